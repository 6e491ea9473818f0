#!/usr/bin/env bash
# --dtype: in half precision, too, loss, outputs and gradients are bit-identical whatever the split and the schedule, and they are
# PyTorch's float64 numbers to what 8 or 11 bits allow; parameters, their gradients and the model's outputs stay float32.
. "$(dirname "$0")/../lib.sh"
dir=$top/models/mlp-ts
. "$dir/case.env"
case_data "$dir"

run_half() {
    "$1/pipeline" train "${data[@]}" --data "target=$dir/target.npy" --schedule "$2" --microbatches $(((rows + mb - 1) / mb)) --ranks "$3" \
        --steps 1 --optimizer sgd --lr 0 --dump-grads "$4/grads" --log-json "$4/log.json" --output "logits=$4/out.npy"
}
same_bits() { "$compare" same "$1/grads" "$2/grads" && cmp "$1/out.npy" "$2/out.npy" && cmp <(loss_of "$1") <(loss_of "$2"); }
loss_of() { grep -o '"loss": [^,}]*' "$1/log.json"; }

check_half() {
    local type=$1 tolerance=$2 split=$3 base=$work/$1.none out=$work/$1.split run=$work/$1
    ok "$type: splits and builds" eval 'split_model "$dir/model.onnx" "$base" none --loss "$loss" --dtype '"$type"' &&
        split_model "$dir/model.onnx" "$out" "$split" --loss "$loss" --dtype '"$type"
    mkdir -p "$run.none" "$run.gpipe" "$run.1f1b"
    ok "$type: in one stage" run_half "$base" gpipe 1 "$run.none"
    ok "$type: gradients are PyTorch's within $tolerance" "$compare" grads "$run.none/grads" "$dir/grads.safetensors" "$tolerance"
    for schedule in gpipe 1f1b; do
        ok "$type: split, $schedule" run_half "$out" $schedule 2 "$run.$schedule"
        ok "$type: the same bits, $schedule" same_bits "$run.none" "$run.$schedule"
    done
}
check_half bf16 5e-2 blocks.1:begin
check_half f16 1e-2 blocks.1:begin
is "what crosses the cut is half" "$(grep -c '<edge .*dtype="bf16".*kind="activation"' "$work/bf16.split/pipe.xml")" 1
plan_done
