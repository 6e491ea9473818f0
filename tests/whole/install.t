#!/usr/bin/env bash
# make install, uninstall, layers: what is installed works without the source tree and goes away again; outputs link the installed
# runtime where it is theirs; a rule that is a test fails when it is broken.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1

ok "installs" make -s -C "$top" BUILD="$build" CC="$cc" DESTDIR="$work/root" PREFIX=/usr install CFLAGS=-O0
is "what is installed, beside headers and documents" "$(cd root && find . ! -type d ! -path './usr/include/*' ! -path './usr/share/doc/*' | sort)" "./usr/bin/ppsplit
./usr/bin/ppsplit-export
./usr/lib/libppruntime.a
./usr/lib/libppsplit.a
./usr/lib/pkgconfig/ppsplit-runtime.pc
./usr/lib/pkgconfig/ppsplit.pc
$(for p in pipeline pipeline-cuda ppsplit; do echo "./usr/share/bash-completion/completions/$p"; done)
$(for p in pipeline pipeline-cuda ppsplit; do echo "./usr/share/fish/vendor_completions.d/$p.fish"; done | sort)
./usr/share/man/man1/ppsplit-export.1
./usr/share/man/man1/ppsplit.1
./usr/share/ppsplit/complete.sh
$(cd "$top" && for m in machines/*; do echo "./usr/share/ppsplit/$m"; done)
./usr/share/zsh/site-functions/_ppsplit"
is "the documents, which name no file that is not there" "$(cd root/usr/share/doc/ppsplit && grep -oh '](\(docs/\)\?[a-z-]*\.[a-z]*)' README.md docs/*.md | tr -d ']()' | sort -u |
    while read -r f; do [ -e "$f" ] || [ -e "docs/$f" ] || echo "$f"; done)" ""
ok "completions know where their words come from" eval '! grep -r @PREFIX@ root/usr/share && grep -rq /usr/share/ppsplit/complete.sh root/usr/share/zsh'
if command -v python3 >/dev/null; then
    make -s -C "$top" BUILD="$build" CC="$cc" CFLAGS=-O0 wheel DIST="$work/dist" >said 2>&1
    python3 -m zipfile -e dist/*.whl wheel && chmod +x wheel/*.data/scripts/*
    is "the wheel's command is linked statically, and works" "$(cd wheel/*.data/scripts && ls | tr '\n' ' ' && ./ppsplit --version | head -n 1) $(ldd wheel/*.data/scripts/ppsplit 2>&1 | grep -c '=>')" \
        "ppsplit ppsplit-export $("$ppsplit" --version | head -n 1) 0"
    is "its record has all files" "$(wc -l <wheel/*.dist-info/RECORD)" "$(find wheel -type f | wc -l)"
else
    skip "the wheel" "no python3"
fi
ok "the installed compiler works" root/usr/bin/ppsplit -q "$top/models/doc-ts/model.onnx" --split layers.1:begin --loss cross_entropy -o out
is "pkg-config reads its file" "$(PKG_CONFIG_PATH=root/usr/lib/pkgconfig pkg-config --modversion ppsplit)" "$("$ppsplit" --version | sed -n 's/^ppsplit //p')"
is "and that of the runtime, whose headers are all there" "$(PKG_CONFIG_PATH=root/usr/lib/pkgconfig pkg-config --modversion ppsplit-runtime)$(
    cd root/usr/include/ppsplit/runtime && find . -name '*.h' | sort)" "$("$ppsplit" --version | sed -n 's/^ppsplit //p')$(cd out/runtime && find . -name '*.h' | sort)"

# What is compiled, and the line that says whose the runtime is: that of the ppsplit which wrote the folder.
unset PPSPLIT_RUNTIME
built() {
    make -C out CC="$cc" CFLAGS=-O0 "$@" >said 2>&1 || echo "exit $?"
    sed -n 's|^  CC\t\(runtime\)\?.*|\1|p' said | sort | uniq -c | tr '\n' ' ' | tr -s ' '
    sed -n "s|^  FOUND.*; ||p; s|.*\*\*\* \(.*\)  Stop.|\1|p" said | sed "s|$work/||"
}
root=root/usr/lib
is "what it wrote links the installed runtime: of its own only machine.c is compiled" "$(built)" " 3 1 runtime runtime of $root (ARCH=native)"
ok "and runs" out/pipeline infer --data x="$top/models/doc-ts/in.x.npy"
mkdir -p made/handed && cp "$ppsplit" made && cp -r root/usr/lib made/handed
ok "a ppsplit that was only built" made/ppsplit -q "$top/models/doc-ts/model.onnx" -o second
is "names the runtime beside it" "$(cat second/runtime/compiled)" "$work/made/handed"
sed -i 's/^machine=.*/machine=other/' made/handed/lib/pkgconfig/ppsplit-runtime.pc
is "which is not taken on another CPU" "$(make -n -C second CC="$cc" CFLAGS=-O0 | sed -n "s|^  FOUND.*; ||p" | sed "s|$work/||")" \
    "own runtime (that of made/handed/lib is for another CPU)"
is "not when it was built for another CPU than is asked for" "$(built -n ARCH=x86-64)" "own runtime (that of $root is for ARCH=native)"
is "nor with another library" "$(built -n BLAS=none | sed 's/with .*/with/')" "own runtime (that of $root was built with"
is "nor with other flags" "$(built -n CFLAGS=-O1)" "own runtime (that of $root was built with -O0)"
is "unless told to" "$(built -n CFLAGS=-O1 ARCH=x86-64 PPSPLIT_RUNTIME="$work/root/usr")" "runtime of $root (ARCH=native)"
is "nor when told not to" "$(built -n PPSPLIT_RUNTIME=own)" "own runtime"
echo "/* changed */" >>out/runtime/net/wire_local.c
is "changed sources are compiled" "$(make -n -C out CC="$cc" CFLAGS=-O0 | sed -n "s|$work/||; s|^  FOUND.*; ||p; s|^echo \"  CC	runtime/.*|runtime|p" | sort | uniq -c | sed 's/^ *//')" \
    "1 own runtime (that of $root has other sources)
$(find out/runtime -name '*.c' | wc -l) runtime"
is "and never linked with another's" "$(built PPSPLIT_RUNTIME="$work/root/usr" | tail -n 1)" "PPSPLIT_RUNTIME=root/usr: the runtime there has other sources; \
make PPSPLIT_RUNTIME=own compiles runtime/ for this program alone, make install-runtime PPSPLIT_RUNTIME=own PREFIX=$work/root/usr installs it there."
ok "uninstalls" make -s -C "$top" BUILD="$build" DESTDIR="$work/root" PREFIX=/usr uninstall
is "nothing is left" "$(find root ! -type d)" ""

mkdir -p tree/tests && cp -r "$top"/{Makefile,ppsplit.h,command,base,ir,frontend,mesh,partition,autodiff,codegen,schedule,runtime,planner,annotate} tree && cp "$top"/tests/{layers,circles} tree/tests
mkdir tree/build && cp "$build"/{onnx.pb-c.*,embed.*} tree/build && (cd "$build" && cp -r $(make -s -C "$top" print-ROOMS) runtime.o "$work/tree/build")     # which are newer than the copy
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
is "the compiler, of the runtime" "$(broken schedule/graph.c ir/ir.h)" "schedule/graph.c: schedule includes ir/ir.h"
is "what is not shipped" "$(broken runtime/exec/exec.c schedule/tool/tool.h)" "runtime/exec/exec.c: includes schedule/tool/tool.h: schedule/tool/ is not shipped"
is "the runtime, of the compiler" "$(broken ir/graph.c runtime/plan/plan.h)" "ir/graph.c: the compiler includes runtime/plan/plan.h"
is "plans, of what runs" "$(broken planner/memory.c runtime/exec/exec.h)" "planner/memory.c: the compiler includes runtime/exec/exec.h"
is "a room above, in the runtime" "$(broken runtime/net/links.c io/feed.h)" "runtime/net/links.c: upward include of io/feed.h"
is "a circle" "$(broken ir/type.h ir/ir.h)" "ir/type.h: includes ir/ir.h in a circle"

# make lint: a function that nobody calls, and one that only it calls
mkdir some
echo 'int live_x(void); int live_x(void) { return 1; } int dead_y(void); int dead_y(void) { return 2; } int dead_x(void);
int dead_x(void) { return dead_y(); } int main(void) { return live_x(); }' >main.c
echo 'int both_x(void); int both_x(void) { return 3; } int pp_main(void); int pp_main(void) { return both_x(); }' >runtime.c
$cc -ffunction-sections -c main.c -o some/ppsplit.o && $cc -ffunction-sections -c runtime.c && ar rc some/libppruntime.a runtime.o &&
    sed 's/pp_main/dead_z/g' runtime.c | $cc -ffunction-sections -x c -c - -o shared.o && ar rc some/libppsplit.a shared.o
is "functions that nobody calls are told" "$("$top/tests/dead" some; echo $?)" "dead_x(): nobody calls it
dead_y(): nobody calls it
dead_z(): nobody calls it
1"
plan_done
