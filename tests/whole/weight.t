#!/usr/bin/env bash
# A weight gradient of the user's own, stageN_weight.c beside the output: the example of docs/generated-code.md, with a kernel of its own and
# in another order, gives the bits of the generated one, in B and in W; it is used, it survives ppsplit, and goes when its file goes.
. "$(dirname "$0")/../lib.sh"
cd "$top/models/mlp-ts" || exit 1
. ./case.env
out=$work/out
case_data .

# run SCHEDULE: one step into $work/run
run() {
    rm -rf "$work/run"
    "$out/pipeline" train "${data[@]}" --data target=target.npy --microbatches 4 --schedule "$1" --ranks 2 --lr 0 --quiet --dump-grads "$work/run"
}
same() { "$compare" same "$work/generated" "$work/run"; }

ok "splits and builds" split_model model.onnx "$out" head:begin --loss "$loss"
ok "runs" run gpipe
mv "$work/run" "$work/generated"
sed -n '/^```c$/,/^```$/{/^```/d;p}' "$top/docs/generated-code.md" >"$out/stage1_weight.c"
is "the example of the document" "$(grep -c 'sum_rows\|pp_gemm' "$out/stage1_weight.c")" 3
ok "builds with it" make_pipeline "$out"
for schedule in gpipe 1f1b zb-h1; do
    ok "$schedule" run $schedule
    ok "the generated bits" same
done
sed -i '/^ *sum_rows(/d' "$out/stage1_weight.c"
ok "a change of it is compiled" make_pipeline "$out"
ok "runs" run zb-h1
is "it is the one that runs" "$("$compare" same "$work/generated" "$work/run" | sed 's/: .*//; s/^# //' | tr '\n' ';')" "head.bias;22 tensors, 1 differ;"
ok "ppsplit leaves it alone" eval '"$ppsplit" -q model.onnx --split head:begin --loss "$loss" -o "$out" && [ -e "$out/stage1_weight.c" ]'
mv "$out/stage1_weight.c" "$out/stage7_weight.c"
is "one of no stage" "$(make_pipeline "$out" 2>&1 | sed 's/^[^:]*:[0-9]*: //')" "*** stage7_weight.c: stage7.c is not there or has no gradients of parameters.  Stop."
rm "$out/stage7_weight.c"
ok "without it" make_pipeline "$out"
ok "runs" run gpipe
ok "the generated bits" same
plan_done
