#!/usr/bin/env bash
# Models of TensorFlow, Keras, JAX, scikit-learn and ONNX Runtime's optimizer, as their exporters write them: what they compute is what their framework does, gradients are
# central differences of the file, each weight of the framework's trains, and modules, layers and functions are split points.  models/exporters.py made them.
. "$(dirname "$0")/../lib.sh"
cases=$top/models/exporters

train() {
    local out=$1 dir=$2 f data=(); shift 2
    case_data "$dir"
    mkdir -p "$out/run"
    "$out/pipeline" train "${data[@]}" --data "target=$dir/target.npy" --microbatches $((rows / mb)) --steps 1 --lr 0 --dump-grads "$out/run/grads" \
        --log-json "$out/run/log.json" --output "$model_output=$out/run/out.npy" "$@"
}
parameters() { sed -n 's/.*<parameter name="\([^"]*\)".*/\1/p' "$1/pipe.xml" | sort -u; }
given() { head -c 100000 "$1/grads.safetensors" | grep -aoE '"[^"]+":\{"dtype"' | sed 's/^"//; s/":{"dtype"$//' | sort -u; }

for dir in "$cases"/*; do
    name=${dir##*/}
    . "$dir/case.env"
    ok "$name: splits" split_case "$dir" "$work/$name"
    is "$name: what trains are the framework's weights" "$(parameters "$work/$name")" "$(given "$dir")"
    ok "$name: builds" make_pipeline "$work/$name"
    ok "$name: trains" train "$work/$name" "$dir"
    ok "$name: agrees with its framework, and with differences" agrees "$work/$name/run" "$dir"
    is "$name: a stage for each point" "$(grep -c call_stage "$work/$name/pipe.txt")" "$(($(wc -w <<<"${splits//,/ }") + 1))"
done

# Weights that stand in local functions go back into them.
dir=$cases/jax-blocks
. "$dir/case.env"
case_data "$dir"
ok "functions: trains" "$work/jax-blocks/pipeline" train "${data[@]}" --data "target=$dir/target.npy" --steps 2 --lr 0.1 --quiet --checkpoint "$work/ck"
ok "functions: merges" "$ppsplit" merge "$work/jax-blocks" "$work/ck" -o "$work/trained.onnx"
is "functions: the same modules" "$("$ppsplit" ls "$work/trained.onnx")" "$("$ppsplit" ls "$dir/model.onnx")"
ok "functions: the merged model splits elsewhere" split_model "$work/trained.onnx" "$work/merged" Block_2:end --loss "$loss"
"$work/jax-blocks/pipeline" infer "${data[@]}" --quiet --params "$work/ck/step_2" --output "$model_output=$work/a.npy"
"$work/merged/pipeline" infer "${data[@]}" --quiet --output "$model_output=$work/b.npy"
ok "functions: the same bits" cmp "$work/a.npy" "$work/b.npy"

# A cut that leaves a stage without anything: what stands before it is integers' arithmetic, which the other stages do themselves.
dir=$cases/keras-transformer
. "$dir/case.env"
points=gpt_1/embed_1/GatherV2
ok "a stage that does nothing: builds" split_model "$dir/model.onnx" "$work/nothing" $points --loss "$loss" --bind "$bind"
ok "a stage that does nothing: trains" train "$work/nothing" "$dir"
ok "a stage that does nothing: agrees" agrees "$work/nothing/run" "$dir"

# A file of more than 2 GB with its weights inside it, most of it a hole: Gather(big, i), MatMul with w.
head=$(tr -d ' \n' <<'END'
CAhCBAoAEBE6sbG0+AgKGAoDYmlnCgFpEgFlGgNlbWIiBkdhdGhlcgoVCgFlCgF3EgF5GgJtbSIGTWF0TXVsEgFnKjsIBAgDEAFCAXdKMAAAgD8AAIA/AACA
PwAAgD8AAIA/AACAPwAAgD8AAIA/AACAPwAAgD8AAIA/AACAP1oPCgFpEgoKCAgHEgQKAggCYhMKAXkSDgoMCAESCAoCCAIKAggDKpSwtPgICICjw0cIBBAB
QgNiaWdKgLC0+Ag=
END
)
base64 -d <<<"$head" > "$work/large.onnx" && truncate -s 2400000191 "$work/large.onnx"
is "2.4 GB in one message" "$("$ppsplit" ls "$work/large.onnx" | awk '{ print $1, $2, $NF }' | sed -n '2,4p')" "600 M (model)
600 M emb
12 48 mm"

# What trains of a file that says nothing, and what does not, is said.
is "a file without modules: nodes are where one can split" "$("$ppsplit" ls "$cases/skl-classifier/model.onnx" --bind X.0=2 | awk '$1 ~ /^[0-9]/ { print $NF }' | tr '\n' ' ')" \
    "(model) MatMul Add MatMul1 Add1 MatMul2 Add2 "
plan_done
