#!/usr/bin/env bash
# The library as its users meet it: programs in C and C++, compiled with nothing but what pkg-config says of an installed tree; the runtime,
# which it does not know, is tests/whole/install.t's matter.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1

ok "installs" make -s -C "$top" BUILD="$build" PREFIX="$work/usr" install-compiler
export PKG_CONFIG_PATH=$work/usr/lib/pkgconfig
cflags=$(pkg-config --cflags ppsplit) libs=$(pkg-config --libs ppsplit)
sanitizer=${SANITIZED:+-fsanitize=address,undefined}
model=$top/models/gpt-ts/model.onnx

# Those of the library; runtime/ is for the programs that the compiler writes.
headers() { (cd "$work/usr/include/ppsplit" && find . -name '*.h' ! -path './runtime/*' | sort); }

# program LANGUAGE: the one that docs/library.md shows
program() { awk -v start="\`\`\`$1" '$0 == start { on = 1; next } /^```/ { on = 0 } on' "$top/docs/library.md" >"shown.$1"; }
program c
program cpp

# Every installed header stands alone, in either language, and asks for nothing that is not installed.
alone() {
    local h
    for h in $(headers); do
        printf '#include "%s"\n' "${h#./}" >"alone.$1"
        ${2} -Wall -Wextra -Werror $cflags -fsyntax-only "alone.$1" || return
    done
}
linkage() { (cd usr/include/ppsplit && grep -L 'extern "C"' $(headers | grep -v ppsplit.h)); }
is "every header says that its functions are C's" "$(linkage)" ""

bubble=$(awk 'BEGIN { printf "%.6f", 3 / 11 }')        # (p - 1) / (m + p - 1), p = 4 ranks, m = 8 microbatches
weights=$((48 * 16 + 16 * 16 + 2 * (12 * 16 * 16 + 13 * 16) + 2 * 16))     # a GPT: 48 tokens, 16 positions, 2 blocks of width 16
for pair in gcc:g++ clang:clang++; do
    cc=${pair%:*} cxx=${pair#*:}
    if ! command -v $cc >/dev/null || ! command -v $cxx >/dev/null; then
        skip "$cc" "no $cc and $cxx here"
        continue
    fi
    ok "$cc: headers compile alone in C11" alone c "$cc -std=c11 -Wpedantic"
    ok "$cxx: headers compile alone in C++11" alone cpp "$cxx -std=c++11"
    ok "$cc: a program in C" $cc -std=gnu11 -Wall -Wextra -Werror $sanitizer "$top/tests/whole/library.c" $cflags $libs -o in_c
    ok "$cxx: a program in C++" $cxx -std=c++11 -Wall -Wextra -Werror $sanitizer shown.cpp $cflags $libs -o in_cpp
    ok "$cc: the one in C of docs/library.md" $cc -std=c11 -Wall -Wextra -Werror $sanitizer shown.c $cflags $libs -o shown
    rm -rf shown.out
    is "$cc: says" "$(./shown "$model" h.1:begin cross_entropy shown.out)" "stage 0: wte, h.0, $((4 * (48 * 16 + 16 * 16 + 12 * 16 * 16 + 13 * 16))) bytes of parameters
stage 1: h.1, ln_f, lm_head, $((4 * (12 * 16 * 16 + 13 * 16 + 2 * 16))) bytes of parameters"
    rm -rf out
    ok "$cc: runs" ./in_c "$model" h.1:begin cross_entropy out
    is "$cc: says" "$(./in_c "$model" h.1:begin cross_entropy out 2>&1)" "$(usr/bin/ppsplit ls "$model" 2>&1)
weights $weights
list: 0
stages 2
split: 0
no file: 3: nowhere.onnx: error: cannot open: No such file or directory
no such loss: 2: ppsplit: error: --loss: unknown loss 'crossentropy'
$(usr/bin/ppsplit ls "$model" 2>&1)
weights $weights
again: 0
1f1b: makespan 33 bubble $bubble peaks 4 3 2 1
1f1b: verified; cut short: 1"
    usr/bin/ppsplit -q "$model" --split h.1:begin --loss cross_entropy -o wanted
    # but for the options of the command, which a checkpoint keeps
    ok "$cc: what it wrote is what the command writes" diff -r -I '^    {\.option = "[a-z-]*", \.value = "[a-z_]*"},$' -I 'n_made = ' -I 'written = ' -I '^// A program that was built' out wanted
    is "$cxx: says" "$(./in_cpp "$model" h.1:begin 2>/dev/null)" "stage 0: wte, h.0
stage 1: h.1, ln_f, lm_head
edge 0 to 1: rank 3, 2048 bytes
nowhere.onnx: status 3
gpipe: makespan 33, peak 8"
done
plan_done
