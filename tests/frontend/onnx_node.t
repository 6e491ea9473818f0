#!/usr/bin/env bash
# ONNX's own backend cases through the importers and the evaluator: those of Debian's libonnx-testdata (ONNX 1.12), and in
# onnx_new.tar.gz cases of ONNX 1.23 (Apache License 2.0) for what came later and some of domains com.microsoft (test_ms_*) and ai.onnx.ml
# (test_ml_*), with what ONNX Runtime 1.31 and 1.32 compute; test_gradient_* and test_sized_* are torch_cases.py's.  A case may be refused, never wrong.
. "$(dirname "$0")/../lib.sh"
shopt -s extglob
cases=/usr/share/libonnx-testdata/data
floor=1024                                              # of 1071: the others need strings, random numbers ...

run() { "$build/tests/tools/onnx_backend" "$@" > "$work/out" 2>/dev/null; tail -n 1 "$work/out"; }
none() { ! grep "^$1 " "$work/out"; }

if [ -d $cases ]; then
    # test_adam_multiple lacks the epsilon that its numbers are of; in 1.23 it has it
    read -r _ passed _ < <(run $cases/{node,simple,pytorch-operator,pytorch-converted}/!(test_adam_multiple))
    ok "$passed cases pass, at least $floor" [ "$passed" -ge $floor ]
    ok "none is wrong" none wrong
    ok "none crashes" none crashed
else
    skip "cases of libonnx-testdata" "the package is not installed"
fi

tar -xzf "$top/tests/frontend/onnx_new.tar.gz" -C "$work"
is "newer cases" "$(run "$work"/test_*)" "passed $(ls -d "$work"/test_* | wc -l) wrong 0 refused 0 crashed 0"

is "docs/operators.md is what 'make operators' writes" "$("$top/tests/operators" "$ppsplit" | cmp - "$top/docs/operators.md" 2>&1)" ""
is "the table has every operator of ONNX" "$(cut -d' ' -f1 "$top/docs/operators.counts" |
    grep -vxF "$("$ppsplit" ops | awk '{ print $1 }')")" ""
plan_done
