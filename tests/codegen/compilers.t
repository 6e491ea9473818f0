#!/usr/bin/env bash
# Two compilers: our C and the C we generate are free of warnings under gcc and clang (the compiler's own files where tests/whole/sanitize.t builds them);
# a program's numbers are the same bits whatever the optimisation and whichever of them builds it.
. "$(dirname "$0")/../lib.sh"
cd "$top" || exit 1
command -v clang >/dev/null || { skip "clang" "clang is not installed"; plan_done; exit; }

warn=$(make -s print-WARN)
flags="-std=c11 -fsyntax-only -Werror -D_GNU_SOURCE -I. -I$build $(pkg-config --cflags libxml-2.0 libprotobuf-c) $warn"
clean() {                                               # clean FLAGS FILE...: all are looked at, not the first bad one only
    local flags=$1 bad=0 f; shift
    for f; do clang $flags "$f" || bad=1; done
    return $bad
}
mkdir "$work/include" && ln -s "$top" "$work/include/ppsplit"          # as it is installed
ok "clang: the command, tests and models" clean "$flags -I$work/include -Iruntime -Itests -Itests/share" ppsplit.c command/*.c tests/*/*.c models/*.c
ok "clang: runtime" clean "$flags -Iruntime -Wno-unknown-pragmas" $(find runtime -name '*.c')
ok "clang: runtime with all libraries" clean "-std=gnu11 -D_GNU_SOURCE -fsyntax-only -Werror -Wall -Wextra -fopenmp -DPP_DNNL -DPP_CBLAS -DPP_OPENBLAS -I. -Iruntime" \
    $(grep -lrE --include='*.c' 'PP_DNNL|PP_CBLAS|PP_OPENBLAS|_OPENMP|pragma omp|gemm_wide.h' runtime)

generated() {
    local cc=$1 f bad=0
    for f in "$work"/out/*.c; do
        $cc -std=gnu11 -O1 -march=native -fopenmp -Wall -Wextra -Wshadow -Wno-unused-parameter -Wno-pass-failed -Werror -I"$work/out/runtime" -I"$work/out/runtime/api" -c -o /dev/null "$f" || bad=1
    done
    return $bad
}
run() {
    "$work/out/pipeline" train "${data[@]}" --data "target=$dir/target.npy" --microbatches $(((rows + mb - 1) / mb)) --lr 0 \
        --dump-grads "$work/$1" --output "logits=$work/$1/out.npy" "${@:2}"
}
for case in gpt-ts resnet-ts unet-ts vit-dyn; do
    dir=$top/models/$case
    folded=
    . "$dir/case.env"
    case_data "$dir"
    rm -rf "$work/out"
    ok "$case: splits" split_model "$dir/model.onnx" "$work/out" "${splits##* }" --loss "$loss"
    for with in gcc clang; do ok "$case: the generated code is clean under $with" generated "$with"; done
    case $case in gpt-ts | unet-ts) ;; *) continue ;; esac
    mkdir -p "$work/O1" "$work/O3" "$work/clang"
    ok "$case: -O1 runs" run O1
    rm -r "$work/out/build"
    ok "$case: -O3 builds" make_pipeline "$work/out" CFLAGS=-O3 STAGE_CFLAGS= RUNTIME_BUILD="$build/tests/objects-O3"
    ok "$case: -O3 runs" run O3
    ok "$case: the same gradients" "$compare" same "$work/O1" "$work/O3"
    ok "$case: the same outputs" cmp "$work/O1/out.npy" "$work/O3/out.npy"
    for schedule in 1f1b zb-h1 zb-h2; do
        rm -r "$work/O3" && mkdir "$work/O3"
        ok "$case: -O3 runs $schedule" run O3 --schedule $schedule
        ok "$case: $schedule: the same gradients" "$compare" same "$work/O1" "$work/O3"
    done
    rm -r "$work/out/build"
    ok "$case: clang builds" make_pipeline "$work/out" CC=clang STAGE_CFLAGS= RUNTIME_BUILD="$build/tests/objects-clang"
    ok "$case: clang's runs" run clang
    ok "$case: clang's gradients are PyTorch's" "$compare" grads "$work/clang" "$dir/grads.safetensors" 1e-4 "$folded"
    ok "$case: clang's outputs are PyTorch's" "$compare" npy "$work/clang/out.npy" "$dir/out.npy"
    ok "$case: and the same bits as gcc's" eval 'cmp "$work/O1/out.npy" "$work/clang/out.npy" && "$compare" same "$work/O1" "$work/clang"'
done
plan_done
