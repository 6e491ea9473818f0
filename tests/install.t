#!/usr/bin/env bash
# make install, uninstall, layers: what is installed works without the source tree and goes away again; a rule that is a test fails
# when it is broken.
. "$(dirname "$0")/lib.sh"
cd "$work" || exit 1

ok "installs" make -s -C "$top" BUILD="$build" DESTDIR="$work/root" PREFIX=/usr install
is "what is installed" "$(cd root && find . -type f | sort)" "./usr/bin/ppsplit
./usr/lib/pkgconfig/ppsplit.pc
./usr/share/bash-completion/completions/ppsplit
./usr/share/man/man1/ppsplit.1"
ok "the installed compiler works" root/usr/bin/ppsplit -q "$top/models/doc-ts/model.onnx" --split layers.1:begin --loss cross_entropy -o out
is "pkg-config reads its file" "$(PKG_CONFIG_PATH=root/usr/lib/pkgconfig pkg-config --modversion ppsplit)" "$("$ppsplit" --version | cut -d' ' -f2)"
ok "what it wrote builds with its own runtime" make -s -C out -j2 CFLAGS=-O0
ok "and runs" out/pipeline infer --data x="$top/models/doc-ts/in.x.npy"
ok "uninstalls" make -s -C "$top" BUILD="$build" DESTDIR="$work/root" PREFIX=/usr uninstall
is "nothing is left" "$(find root -type f)" ""

mkdir tree && cp -r "$top/Makefile" "$top/runtime" "$top/frontend" "$top/partition" "$top/autodiff" "$top/codegen" tree
ok "no file includes from above" make -s -C tree layers
echo '#include "../codegen/codegen.h"' >>tree/frontend/arena.c
ok "and one that does is seen" eval '! make -s -C tree layers'
plan_done
