#!/usr/bin/env bash
# ppsplit-export, where the frameworks are: a model of each, exported, split and beside its numbers; and what it refuses.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
tool=$top/tools/ppsplit-export
if ! command -v python3 >/dev/null; then
    skip "ppsplit-export" "no python3"
    plan_done
    exit
fi
python() { python3 "$@" 2>&1; echo "exit $?"; }
ok "says how it is used" eval 'python3 "$tool" --help | grep -q "FILE.py:FUNCTION"'
is "no function" "$(python "$tool" my.py | tail -n 2)" "ppsplit-export: error: my.py is not a folder and names no function (FILE.py:FUNCTION)
exit 2"
is "no such file" "$(python "$tool" my.py:model)" "ppsplit-export: error: my.py: no such file
exit 1"
if python3 -c 'import torch, transformers, onnxscript, onnxruntime, safetensors' 2>/dev/null; then
    ok "a GPT-2: PyTorch's numbers" env PPSPLIT="$ppsplit" python3 "$top/tests/exports/configs.py" GPT-2
else
    skip "a GPT-2: PyTorch's numbers" "no PyTorch and transformers"
fi
for case in torch:torch,onnxscript jax:jax2onnx; do
    if python3 -c "import ${case#*:}" 2>/dev/null; then
        ok "${case%%:*}: what is refused is told in a line" python3 "$top/tests/exports/refused.py" "${case%%:*}"
    else
        skip "${case%%:*}: what is refused is told in a line" "no ${case#*:}"
    fi
done
for case in tree:jax2onnx keras:keras,torch,onnxscript; do
    name=${case%%:*} needs=${case#*:}
    if python3 -c "import $needs, onnxruntime, safetensors" 2>/dev/null; then
        ok "$name: the framework's numbers" env PPSPLIT="$ppsplit" \
            python3 "$top/tests/exports/frameworks.py" "$name"
    else
        skip "$name: the framework's numbers" "no $needs"
    fi
done
plan_done
