#!/usr/bin/env bash
# make install, uninstall, layers: what is installed works without the source tree and goes away again; a rule that is a test fails
# when it is broken.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1

ok "installs" make -s -C "$top" BUILD="$build" DESTDIR="$work/root" PREFIX=/usr install
is "what is installed" "$(cd root && find . -type f | sort)" "./usr/bin/ppsplit
./usr/include/ppsplit/autodiff/autodiff.h
./usr/include/ppsplit/base/base.h
./usr/include/ppsplit/base/cli/nearest.h
./usr/include/ppsplit/codegen/codegen.h
./usr/include/ppsplit/frontend/frontend.h
./usr/include/ppsplit/ir/facts/facts.h
./usr/include/ppsplit/ir/ir.h
./usr/include/ppsplit/ir/ops.def
./usr/include/ppsplit/partition/partition.h
./usr/include/ppsplit/ppsplit.h
./usr/include/ppsplit/schedule/schedule.h
./usr/lib/libppsplit.a
./usr/lib/pkgconfig/ppsplit.pc
./usr/share/bash-completion/completions/ppsplit
./usr/share/man/man1/ppsplit.1"
ok "the installed compiler works" root/usr/bin/ppsplit -q "$top/models/doc-ts/model.onnx" --split layers.1:begin --loss cross_entropy -o out
is "pkg-config reads its file" "$(PKG_CONFIG_PATH=root/usr/lib/pkgconfig pkg-config --modversion ppsplit)" "$("$ppsplit" --version | cut -d' ' -f2)"
ok "what it wrote builds with its own runtime" make -s -C out -j2 CFLAGS=-O0
ok "and runs" out/pipeline infer --data x="$top/models/doc-ts/in.x.npy"
ok "uninstalls" make -s -C "$top" BUILD="$build" DESTDIR="$work/root" PREFIX=/usr uninstall
is "nothing is left" "$(find root -type f)" ""

mkdir -p tree/tests && cp -r "$top"/{Makefile,ppsplit.h,base,ir,frontend,partition,autodiff,codegen,schedule,runtime} tree && cp "$top/tests/layers" tree/tests
ok "no file includes from above" make -s -C tree layers
# broken FILE INCLUDED: does such a line go unseen
broken() {
    cp "tree/$1" before && printf '#include "%s"\n' "$2" >>"tree/$1"
    make -s -C tree layers >said 2>&1
    local code=$?
    cp before "tree/$1"
    [ $code -eq 0 ] || grep -v '^make' said | sed 's/:[0-9]*:/:/'
}
is "a room above" "$(broken base/arena.c codegen/codegen.h)" "base/arena.c: upward include of codegen/codegen.h"
is "the compiler, of the runtime" "$(broken schedule/ir.c ir/ir.h)" "schedule/ir.c: schedule includes ir/ir.h"
is "what is not shipped" "$(broken runtime/exec/exec.c schedule/tool/tool.h)" "runtime/exec/exec.c: includes schedule/tool/tool.h: schedule/tool/ is not shipped"
is "the runtime, of the compiler" "$(broken ir/graph.c runtime/plan/plan.h)" "ir/graph.c: the compiler includes runtime/plan/plan.h"
is "a circle" "$(broken ir/ir.h ir/facts/facts.h)" "ir/facts/facts.h: includes ir/ir.h in a circle"
plan_done
