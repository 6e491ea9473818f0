#!/usr/bin/env bash
# The rules of vjp_cases.h and small networks, cut and whole, as CUDA under the shim: every step against the evaluator, and the same bits whatever
# the cut (test_codegen.c).
. "$(dirname "$0")/../lib.sh"
command -v g++ >/dev/null || { skip "CUDA stages" "no C++ compiler"; plan_done; exit; }
cd "$top" && "$build/tests/codegen/test_codegen" --cuda
