#!/usr/bin/env bash
# What one exported file cannot show: files in sequence with one named twice, a loss in a file of its own, a loss the model
# computes, pipeline_stage annotations, a module called twice, outputs that are intermediates; cuts at nodes and values;
# samples folded into other dimensions and back; frozen parameters; weights linked rather than copied; weights in external data; equal biases that the exporter merged, their Splits
# too.  Against PyTorch's numbers.
. "$(dirname "$0")/lib.sh"
cases=$top/models/special

# split_build OUT [OPTION...] in the case's folder
split_build() {
    local out=$1; shift
    "$ppsplit" -q $files --loss "$loss" "$@" -o "$out" && make_pipeline "$out"
}

train() {
    local out=$1 run=$2 data=() f; shift 2
    mkdir -p "$run"
    for f in in.*.npy; do
        data+=(--data "$(f=${f#in.}; echo "${f%.npy}")=$f")
    done
    [ -f target.npy ] && data+=(--data target=target.npy)
    "$out/pipeline" train "${data[@]}" --microbatches $((rows / mb)) --steps 1 --lr 0 --dump-grads "$run/grads" --log-json "$run/log.json" \
        --output "$model_output=$run/out.npy" "$@"
}

agrees() { "$compare" grads "$1/grads" grads.safetensors && "$compare" npy "$1/out.npy" out.npy && "$compare" loss "$1/log.json" "$loss_value"; }

check() {                                               # NAME OUT OPTION...
    local name=$1 out=$work/$2; shift 2
    ok "$name: splits and builds" split_build "$out" "$@"
    ok "$name: trains" train "$out" "$out.run"
    ok "$name: agrees with PyTorch" agrees "$out.run"
}

for name in sequence lossmodel ownloss shifted annotated twice passthrough merged folded contrast; do
    cd "$cases/$name" || exit 1
    . ./case.env
    points=()
    for p in ${splits//,/ }; do points+=(--split "$p"); done
    check "$name" "$name" "${points[@]}"
done
is "sequence: a stage a file" "$(grep -c call_stage "$work/sequence/pipe.txt")" 3
is "annotated: a stage a number" "$(grep -c call_stage "$work/annotated/pipe.txt")" 3

cd "$cases/twice" || exit 1
. ./case.env
check "cut before a node" node --split /b/second/Gemm
check "cut after a value" value --split /b/second/Gemm_output_0
check "cut at a parameter's prefix" prefix --split b.second:begin
check "weights by reference" link --split b:begin --params link
is "weights by reference: none are copied" "$(find "$work/link/params" -name '*.safetensors' | wc -l)" 0
ok "frozen parameters: builds" split_build "$work/frozen" --split b:begin --freeze 'a.*' --train a.first.weight
ok "frozen parameters: trains" train "$work/frozen" "$work/frozen.run"
ok "frozen parameters: the others agree with PyTorch" "$compare" grads "$work/frozen.run/grads" grads.safetensors 1e-4 a.first.bias
is "frozen parameters: these have no gradient" "$(cat "$work/frozen.run/grads"/* | grep -ac a.first.bias)" 0
plan_done
