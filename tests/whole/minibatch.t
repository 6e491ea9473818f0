#!/usr/bin/env bash
# --loss-over minibatch: one loss over the rows of all microbatches.  CLIP, whose loss compares every image with every text, has PyTorch's
# numbers, whether it is exported for any number of rows, for all of them, or has its loss in a file of its own; the bits are the same under
# every split, schedule that keeps the order of microbatches, number of ranks and transport; sums over rows are what they are without.
# A loss that the model computes is the minibatch's without it, where it is made of means, sums and quotients by what the data decide.
# --debug-mask-minibatches: each microbatch is the whole minibatch with the others' rows masked, and the numbers are PyTorch's all the same.
. "$(dirname "$0")/../lib.sh"
cd "$top/models/special/clip" || exit 1
. ./case.env

# run OUT ARGUMENT...: one step into $work/OUT.run
run() {
    local out=$work/$1 cmd=() data; shift
    case_data .
    [ "${1-}" != mpi ] || { cmd=(mpirun -n "$2"); shift 2; }
    rm -rf "$out.run"
    mkdir -p "$out.run"
    "${cmd[@]}" "$out/pipeline" train "${data[@]}" --steps 1 --optimizer sgd --lr 0 --dump-grads "$out.run/grads" --log-json "$out.run/log.json" "$@"
}
right() { "$compare" grads "$work/$1.run/grads" "${2:-grads.safetensors}" && "$compare" loss "$work/$1.run/log.json" "${3:-$loss_value}"; }
same() { "$compare" same "$first" "$work/$1.run/grads"; }
said() { "$@" 2>&1 >/dev/null | sed 's/^.*error: //'; }
hint="Try 'pipeline --help' for more information."

ok "two stages" split_model model.onnx "$work/two" mixed:begin --loss "$loss" $extra
ok "train" run two --microbatches 4 --output "similarity=$work/similarity.npy"
ok "PyTorch's loss and gradients" right two
ok "and what is made of all rows" "$compare" npy "$work/similarity.npy" out.npy
mv "$work/two.run/grads" "$work/first" && first=$work/first
ok "uneven microbatches" split_model static.onnx "$work/three" text:begin,mixed:begin --loss "$loss" --loss-over minibatch
ok "of a model exported for all rows: three ranks" run three --microbatches 4
ok "the first run's bits" same three
ok "the first two stages on one rank each, recomputed, stashes in a file" run three --microbatches 4 --recompute always --offload stash --offload-dir "$work"
ok "the first run's bits" same three
if command -v mpirun >/dev/null; then
    ok "two processes" run two mpi 2 --microbatches 4
    ok "the first run's bits" same two
fi
ok "masked" run three --microbatches 3 --debug-mask-minibatches
ok "PyTorch's loss and gradients" right three
ok "a loss in a file" split_model pairs.onnx "$work/pairs" none --loss model:contrast.onnx --loss-over minibatch=8
ok "in the order of LoopedBFS" run pairs --schedule loopedbfs
ok "PyTorch's loss and gradients" right pairs pairs.safetensors "$second_loss"

is "1F1B does not do it" "$(said run two --schedule 1f1b)" "1f1b: rank 1, cell 1: 1B0 comes before 1F1 in cell 2, but the loss is one over the whole \
minibatch: it needs every microbatch's forward before the first backward, as gpipe and loopedbfs have it"
is "nor replicas" "$(said run two --dp 2 --ranks 4)" "--dp 2: the loss is one over the whole minibatch, which replicas would divide; use more ranks and \
microbatches instead
$hint"
is "nor passes" "$(said run two --accumulate 2 --microbatches 2)" "--accumulate 2: the loss is one over the whole minibatch, which passes would divide; \
use --microbatches 4 in one pass
$hint"
said run two --batch 6 >"$work/said"
ok "nor other rows" grep -q '^a step has 6 rows, but the loss over the minibatch is made for exactly 8: .*--loss-over minibatch=6$' "$work/said"
is "rows that the model does not keep apart" "$(said "$ppsplit" -q ../contrast/model.onnx --loss output:mean --loss-over minibatch=8 -o "$work/none" | grep '^the model')" \
    "the model computes with exactly 2 rows, not with 8"
is "no loss" "$("$ppsplit" --loss-over minibatch pairs.onnx -o "$work/none" 2>&1 | head -n 1)" "ppsplit: error: --loss-over minibatch without --loss"

# A model's own loss: whatever the microbatches, replicas, groups and passes, PyTorch's of all rows; what has no terms is named.
cd "$top/models/special/valid" || exit 1
. ./case.env
ok "valid: two stages" split_model model.onnx "$work/valid" b:begin --loss "$loss" $extra
ok "valid: uneven microbatches" run valid --microbatches 5 --ranks 2 --schedule 1f1b --output "loss=$work/loss.npy"
ok "valid: PyTorch's loss and gradients" right valid
ok "valid: and the output" "$compare" npy "$work/loss.npy" loss.npy
mv "$work/valid.run/grads" "$work/valid.first" && first=$work/valid.first
ok "valid: zero bubbles" run valid --microbatches 5 --ranks 2 --schedule zb-h1
ok "valid: the same bits" same valid
ok "valid: three replicas" run valid --dp 3 --microbatches 2
ok "valid: PyTorch's loss and gradients" right valid
mv "$work/valid.run/grads" "$work/valid.three" && first=$work/valid.three
ok "valid: three groups" run valid --groups 3 --microbatches 2
ok "valid: the same bits" same valid
ok "valid: passes, a scaled loss" run valid --accumulate 2 --microbatches 2 --loss-scale 1024
ok "valid: PyTorch's loss and gradients" right valid
case_data .
is "valid: of other rows, as eval says" "$(run valid --microbatches 4 --eval-every 1 "${data[@]/#--data/--eval-data}" | sed -n 's/.*eval_loss \([^ ]*\) .*/\1/p')" 3.776887
is "valid: as eval does" "$("$work/valid/pipeline" eval "${data[@]}" | sed -n 's/mean loss \([^ ]*\) .*/\1/p')" 3.776887
is "valid: a total is no data" "$(said run valid --data total=in.x.npy)" "--data total: the model has no such input; there are 'x', 'labels', 'mask'
$hint"
ok "valid: in shapes of one row" split_model model.onnx "$work/one" b:begin --loss "$loss" $extra --rows 1
ok "valid: trains" run one
ok "valid: PyTorch's loss and gradients" right one
ok "a root of a mean" split_model root.onnx "$work/root" none --loss output:loss
is "has no microbatches" "$(said "$work/root/pipeline" train --data x=in.x.npy)" "the loss of a step does not follow from those of its microbatches: node 13 '/Sqrt' (Sqrt): what it \
makes of all samples does not add up over microbatches; split with --loss-over minibatch, or run with --microbatches 1"
ok "but over the minibatch" split_model root.onnx "$work/root" none --loss output:loss --loss-over minibatch=8
data=(--data x=in.x.npy)
ok "trains" "$work/root/pipeline" train "${data[@]}" --microbatches 4 --steps 1

# A sum over rows is the same number either way.
cd "$top/models/mlp-dyn" || exit 1
. ./case.env
{ head -c 128 out.npy; tail -c 280 out.npy; tail -c +129 out.npy | head -c 280; } >"$work/other.npy"        # rows 7 .. 13, then 0 .. 6
for loss in cross_entropy mse l1 bce_with_logits; do
    ok "$loss: over the microbatch" split_model model.onnx "$work/each" blocks.1:begin --loss $loss --rows 14
    ok "$loss: over the minibatch" split_model model.onnx "$work/whole" blocks.1:begin --loss $loss --loss-over minibatch=14
    target=target.npy
    [ $loss = cross_entropy ] || target=$work/other.npy         # any numbers of the output's shape
    ok "$loss: one" run each --microbatches 4 --data "target=$target" --ranks 2
    ok "$loss: the other" run whole --microbatches 4 --data "target=$target" --ranks 2
    ok "$loss: the same gradients" "$compare" grads "$work/whole.run/grads" "$work/each.run/grads" 1e-6
    [ $loss = cross_entropy ] || continue
    ok "PyTorch's" right whole
    ok "masked" run each --microbatches 4 --data target=target.npy --ranks 2 --debug-mask-minibatches --output "logits=$work/out.npy"
    ok "PyTorch's loss and gradients" right each
    ok "and outputs" "$compare" npy "$work/out.npy" out.npy
done
is "masked rows would count in such a loss" "$(said run each --microbatches 4 --data target=out.npy --debug-mask-minibatches)" \
    "--debug-mask-minibatches: rows of other microbatches would count in this loss: ppsplit --loss-over minibatch computes it of each one's own rows"
is "nor are there that many" "$(said run whole --microbatches 4 --data target=out.npy --debug-mask-minibatches)" \
    "--debug-mask-minibatches: each microbatch is all 14 rows of the step, the model's shapes are those of 4: ppsplit --rows 14"
ok "in half precision, and a loss in a file" eval '"$ppsplit" -q model.onnx --loss cross_entropy --loss-over minibatch=14 --dtype bf16 -o "$work/half" &&
    "$ppsplit" -q ../special/clip/pairs.onnx --loss model:../special/clip/contrast.onnx --loss-over minibatch=8 --dtype f16 -o "$work/pairs.half"'
is "the loss computes in float32" "$(grep -c '<edge from="0" to="1" value="logits" dtype="f32"' "$work/half/pipe.xml")" 1
plan_done
