#!/usr/bin/env bash
# The compiler under ASan and UBSan over every model of models/ and every hostile file; generated programs with their runtime
# under ASan and UBSan, and under TSan with ranks as threads.  `make sanitize` runs all other tests so as well.
. "$(dirname "$0")/../lib.sh"
[ -z "${SANITIZED:-}" ] || { skip "sanitizers" "everything runs under them already"; plan_done; exit; }
sanitizes() { echo 'int main(void) { return 0; }' | "$1" -x c - -fsanitize=address,undefined -o "$work/probe" 2>/dev/null && "$work/probe"; }
if ! sanitizes gcc; then
    skip "sanitizers" "the compiler has none"
    plan_done
    exit
fi

# Where clang has them too, it compiles in two thirds of the time, and its warnings are errors.
sane=gcc
! sanitizes clang || sane=clang
flags="-O0 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all"
ok "the compiler builds" make -s -C "$top" CI=1 BUILD="$build/asan" CC=$sane CFLAGS="$flags" "$build/asan/ppsplit"
export PPSPLIT=$build/asan/ppsplit
compile_case() {
    local args=(--loss "$loss") p
    [ -z "$bind" ] || args+=(--bind "$bind")
    [ "$splits" = markers ] || for p in ${splits##* }; do args+=(--split "${p//,/ --split }"); done
    "$PPSPLIT" -q "$1/model.onnx" ${args[*]} -o "$work/out" && "$PPSPLIT" ls "$1/model.onnx" ${bind:+--bind $bind}
}
for dir in "$top"/models/*/; do
    [ -f "$dir/case.env" ] || continue
    . "$dir/case.env"
    ok "$(basename "$dir"): splits" compile_case "${dir%/}"
done
ok "hostile files" env LIMIT_S=20 "$top/tests/frontend/hostile.t"

# Bytes that others wrote, mutated (tests/fuzz), as many as fit into seconds, the same in every run; `make fuzz` goes on from there.
ok "the fuzzer's driver builds" make -s -C "$top" BUILD="$build/asan" CC=$sane CFLAGS="$flags" "$build/asan/drive"
ok "its first inputs" "$top/tests/fuzz/seeds" "$build/ppsplit" "$build/tests/tools/hostile" "$work/seeds"
for target in wire import compile csv costs index safetensors npy json report machine; do
    count=3000
    [ $target = compile ] && count=1500
    ok "$target: $count executions" env FUZZ_TARGET=$target "$build/asan/drive" --count $count --keep "$build" "$work/seeds/$target"
done
rm -r "$work/seeds"

# runs NAME CASE CFLAGS [MAKE ARGUMENT...]: a program of four stages trains two steps with everything switched on.
runs() {
    local kind=$1 dir=$top/models/$2 flags=$3 data p points=(); shift 3
    . "$dir/case.env"
    case_data "$dir"
    for p in ${splits##* }; do p=${p//,/ --split }; points=(--split $p); done
    "$build/ppsplit" -q "$dir/model.onnx" --loss "$loss" "${points[@]}" -o "$work/$kind" &&
        make_pipeline "$work/$kind" CC=$sane RUNTIME_BUILD="$build/tests/objects-$kind" CFLAGS="$flags" LDFLAGS="$flags" "$@" &&
        ASAN_OPTIONS=detect_leaks=0 "$work/$kind/pipeline" train "${data[@]}" --data "target=$dir/target.npy" --steps 2 --optimizer adam \
            --clip-norm 1 --shuffle 1 --checkpoint "$work/ck" --output "logits=$work/y.npy" --dump-grads "$work/grads" --trace "$work/trace.json" &&
        ASAN_OPTIONS=detect_leaks=0 "$work/$kind/pipeline" infer "${data[@]}" --params "$work/ck/step_2" --output "logits=$work/y.npy" || return
    rm -rf "${work:?}/$kind" "$work/ck"
}
for case in gpt-ts resnet-ts unet-ts; do
    ok "$case: runs under ASan and UBSan" runs asan $case "$flags"
done
# OpenMP's own synchronisation is invisible to TSan: without it, one thread a rank.
unthreaded() { OMP_NUM_THREADS=1 TSAN_OPTIONS=halt_on_error=1 "$@"; }
ok "gpt-ts: runs under TSan" unthreaded runs tsan gpt-ts '-O0 -g1 -fsanitize=thread' CC="$cc" CPPFLAGS=-fno-openmp
plan_done
