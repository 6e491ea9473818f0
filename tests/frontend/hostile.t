#!/usr/bin/env bash
# No file can do harm: every hostile or broken model of tests/tools/hostile.c is refused with exit 1 (3: a file is missing), in under
# a second of the processor, with the diagnostic that tests/frontend/hostile.expected holds, and leaves nothing behind.  UPDATE=1 rewrites the expectations.
. "$(dirname "$0")/../lib.sh"
expected=$top/tests/frontend/hostile.expected
cd "$work" && "$build/tests/tools/hostile" . || exit 1

refuse() {
    (ulimit -t "${LIMIT_S:-1}" && exec "$ppsplit" -q "$1" --loss mse -o out 2>message)
    code=$?
    [ -e out ] && code="$code and left something behind"
    ls -d out* .out* >/dev/null 2>&1 && code="$code and left something behind"
    sed "s|^|$1: |; s|$1: $1: |$1: |" message
    echo "$1: exit $code"
}

: > got
for f in *.onnx; do refuse "$f" >> got 2>&1; done
[ -z "${UPDATE:-}" ] || cp got "$expected"
for f in *.onnx; do
    is "$f" "$(grep "^$f: " got)" "$(grep "^$f: " "$expected")"
done
is "all are refused" "$(grep ': exit ' got | grep -v ': exit 1$')" "46-external-missing.onnx: exit 3"
is "none takes a second, after which it is killed" "$(grep ': exit 137' got)" ""
plan_done
