#!/usr/bin/env bash
# The products as programs get them, with each library that is there: numbers, and bits that depend on nothing but sizes and transposes.
. "$(dirname "$0")/../lib.sh"

# built LIBRARY FLAGS...: test_gemm with it
built() {
    local what=$1; shift
    if ! "${CC:-cc}" -O2 -march=native -std=gnu11 -fopenmp -ffp-contract=off $includes -o "$work/$what" "$top/tests/runtime/test_gemm.c" "$top/runtime/device/cpu/gemm.c" \
        "$@" -lm 2>/dev/null; then
        skip "products by $what" "not found"
        return
    fi
    ok "products by $what" "$work/$what"
}
built oneDNN -DPP_DNNL -ldnnl
built OpenBLAS -DPP_CBLAS -DPP_OPENBLAS -lopenblas
built BLIS -DPP_CBLAS -DPP_BLIS -lblis
plan_done
