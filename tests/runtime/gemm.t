#!/usr/bin/env bash
# The products as programs get them, with each library that is there: numbers, and bits that depend on nothing but sizes and transposes;
# and the convolutions with this machine's vectors.
. "$(dirname "$0")/../lib.sh"

compile() { "${CC:-cc}" -O2 -march=native -std=gnu11 -fopenmp -ffp-contract=off $includes "$@"; }

# built LIBRARY -lLIBRARY FLAGS...: the tests with it
built() {
    local what=$1 library=$2 f objects=(); shift 2
    if ! echo 'int main(void) { return 0; }' | "${CC:-cc}" -x c - "$library" -o "$work/probe" 2>/dev/null; then
        skip "products by $what" "not found"
        return
    fi
    for f in gemm gemm_half product; do
        objects+=("$work/$what.$f.o")
        compile "$@" -c -o "${objects[-1]}" "$top/runtime/device/cpu/$f.c" || exit 1
    done
    for f in test_gemm test_gemm_half test_band; do
        [ -e "$work/$f.o" ] || compile -c -o "$work/$f.o" "$top/tests/runtime/$f.c" || exit 1
        compile -o "$work/$what.$f" "$work/$f.o" "${objects[@]}" "$library" -lm || exit 1
    done
    ok "products by $what" "$work/$what.test_gemm"
    ok "products of half types by $what" "$work/$what.test_gemm_half"
    ok "products within a band by $what" "$work/$what.test_band"
}
built oneDNN -ldnnl -DPP_DNNL
# What a CPU without these instructions would do; where this one has them, the roads are others.
half() { DNNL_MAX_CPU_ISA=$1 "$work/oneDNN.test_gemm_half" >"$work/said" || { cat "$work/said"; return 1; }; }
if [ -x "$work/oneDNN.test_gemm_half" ]; then
    for isa in AVX512_CORE_BF16 AVX2; do ok "of half types, $isa" half $isa; done
    is "converted operands where there is no AVX512-BF16" "$(sed -n 1p "$work/said")" \
        "# bf16 as float32, of converted operands, f16 as float32, of converted operands"
fi
for f in gemm gemm_half product; do compile -c -o "$work/none.$f.o" "$top/runtime/device/cpu/$f.c" || exit 1; done
alone() {
    compile -o "$work/none.test_gemm_half" "$top/tests/runtime/test_gemm_half.c" "$work"/none.{gemm,gemm_half,product}.o -lm || return
    "$work/none.test_gemm_half" >"$work/said" || { cat "$work/said"; return 1; }
}
if grep -qw avx512_bf16 /proc/cpuinfo; then
    ok "all of them where there is no oneDNN" alone
    is "by the instructions alone" "$(sed -n 1p "$work/said")" "# bf16 with AVX512-BF16, f16 as float32, of converted operands"
else
    skip "all of them where there is no oneDNN" "no AVX512-BF16 here"
    skip "by the instructions alone" "no AVX512-BF16 here"
fi
built OpenBLAS -lopenblas -DPP_CBLAS -DPP_OPENBLAS
built BLIS -lblis -DPP_CBLAS -DPP_BLIS
# test_conv itself is built for any processor; some convolutions have kernels for what this one has.
native() {
    compile -o "$work/test_conv" "$top"/tests/runtime/test_conv.c "$top"/runtime/device/cpu/conv{,_shape,_winograd}.c "$work"/none.{gemm,gemm_half,product}.o -lm && "$work/test_conv"
}
ok "convolutions with this machine's vectors" native
plan_done
