#!/usr/bin/env bash
# The products as programs get them, with each library that is there: numbers, and bits that depend on nothing but sizes and transposes.
. "$(dirname "$0")/../lib.sh"

# built LIBRARY FLAGS...: the tests with it
built() {
    local what=$1 t; shift
    for t in test_gemm test_gemm_half test_band; do
        if ! "${CC:-cc}" -O2 -march=native -std=gnu11 -fopenmp -ffp-contract=off $includes -o "$work/$what.$t" "$top/tests/runtime/$t.c" \
            "$top/runtime/device/cpu/gemm.c" "$top/runtime/device/cpu/gemm_half.c" "$top/runtime/device/cpu/band.c" "$@" -lm 2>/dev/null; then
            skip "products by $what" "not found"
            return
        fi
    done
    ok "products by $what" "$work/$what.test_gemm"
    ok "products of half types by $what" "$work/$what.test_gemm_half"
    ok "products within a band by $what" "$work/$what.test_band"
}
built oneDNN -DPP_DNNL -ldnnl
# What a CPU without these instructions would do; where this one has them, the roads are others.
half() { DNNL_MAX_CPU_ISA=$1 "$work/oneDNN.test_gemm_half"; }
if [ -x "$work/oneDNN.test_gemm_half" ]; then
    for isa in AVX512_CORE_BF16 AVX2; do ok "of half types, $isa" half $isa; done
    is "converted operands where there is no AVX512-BF16" "$(half AVX2 | sed -n 1p)" \
        "# bf16 as float32, of converted operands, f16 as float32, of converted operands"
fi
built OpenBLAS -DPP_CBLAS -DPP_OPENBLAS -lopenblas
built BLIS -DPP_CBLAS -DPP_BLIS -lblis
plan_done
