#!/usr/bin/env bash
# --tensor: the members of a rank divide its stages.  A GPT whose sums have four parts: one, two and four members, in other splits, have the
# same losses, norms, gradients, parameters and states, to the bit, and write the same model; a run of any of them goes on in any other, also
# with replicas that divide the optimizer; the numbers are PyTorch's.  A vocabulary that the
# members do not divide, and what Dropout leaves out: the same, and the numbers of the model undivided.
. "$(dirname "$0")/members.sh"

for members in 1 2 4; do
    points=h.1:begin
    [ $members != 2 ] || points=h.0.mlp:begin,h.1:begin
    ok "$members members" split_model model.onnx "$work/$members" $points --tensor $members --chunks 4 --loss "$loss"
    ok "they train" run $members of$members --steps 4 --dump-grads "$work/grads$members"
    ok "PyTorch's gradients" "$compare" grads "$work/grads$members" grads.safetensors
    [ $members = 1 ] && continue
    is "the losses and norms of one" "$(steps of$members)" "$(steps of1)"
    ok "its parameters and states" same of1 of$members 4
done
# members send what the summary, `ppsplit ls` and the report say, once for each of four microbatches (logits for who asks for them), and once a step sums of what all have
ok "four microbatches" eval '"$work/4/pipeline" train "${data[@]}" --data target=target.npy --threads 1 --steps 1 --microbatches 4 --verbose --trace "$work/trace.json" >"$work/sent"'
is "what members of a stage send together" "$(perl -ne '$n[$1 / 4] += $2 if /^rank (\d+) collectives: .*, (\d+) bytes sent/; END { print "@n" }' "$work/sent")" \
    "$(perl -ne '$s++ if /<stage /; $s = $1 + 1 if /PpCollective stage(\d)/; $n[$s] += 16 * $1 if /<collective (?!.*"logits").* sent="(\d+)"/;
        $n[$s] += 6 * $1 if /"%grad.*bytes = (\d+)/; END { print "@n[1, 2]" }' "$work/4/pipe.xml" "$work/4/pipeline.c")"
is "and in all" "$("$ppsplit" ls model.onnx --tensor 4 --loss "$loss" | awk 'NR == 2 { printf "%.0f %s", $7, $8 }')" \
    "$("$ppsplit" model.onnx --split h.1:begin --tensor 4 --loss "$loss" -o "$work/sums" | awk '/^[01] / && !/->/ { n += $16; unit = $17 } END { printf "%.0f %s", n, unit }')"
ok "the report has each" test "$(grep -o '<td>All' "$work/4/pipe.html" | wc -l)" = "$(grep -c '^# stage .*: All' "$work/4/pipe.txt")"
ok "a trace says how long they were waited for" grep -q '"name":"1F0".*"members":[0-9]' "$work/trace.json"
# begun BETWEEN: of 4 members, is there such a line between one that begins and where it ends?
begun() { perl -0777 -ne 'exit !/PP_BEGIN \+ (p->key)?\d+, [^;]*;(?:(?!pp_end|PP_BEGIN).)*'"$1"'.*?pp_end/s' "$work"/4/stage*.c; }
ok "the gradient of a layer's input travels while that of its weights is computed" begun 'pp_gemm\(&\(PpGemm\)\{.type = PP_F32, .ta = 1, .m'
ok "two members, zb-h1, everything computed again, outputs asked for" run 2 again2 --steps 4 --schedule zb-h1 --recompute always --output "logits=$work/logits2.npy"
ok "the same" same of1 again2 4
ok "one member's outputs" run 1 again1 --steps 4 --output "logits=$work/logits1.npy"
ok "the same" cmp "$work/logits1.npy" "$work/logits2.npy"
ok "gradients are written once, whole" cmp "$work/grads1/stage1.safetensors" "$work/grads4/stage1.safetensors"
for members in 1 4; do
    ok "$members members: back into the model" "$ppsplit" merge "$work/$members" "$work/of$members" -o "$work/of$members.onnx"
done
ok "the same file" cmp "$work/of1.onnx" "$work/of4.onnx"
ok "rows divided among two replicas" run 4 straight --microbatches 2 --dp 2 --steps 4
ok "and parameters, for a step" run 4 a --microbatches 2 --dp 2 --zero 3 --steps 1
ok "it goes on with one member" run 1 b --resume "$work/a" --microbatches 2 --steps 3
ok "and with two, in another split" run 2 c --resume "$work/b" --microbatches 2 --schedule gpipe --steps 4
ok "in the bits of a run that was not interrupted" same straight c 4
# a parameter that all members have, read by chunks of theirs in both stages
"$build/models/make_gpt" --vocab 64 --dim 32 --layers 2 --heads 4 --seq 8 --rows 2 --gain -o "$work/gain.onnx" || exit 1
array "$work/x.npy" i8 8,8 '($_ * 37 + 5) % 61'
array "$work/y.npy" i8 8,8 '($_ * 37 + 42) % 61'
for members in 1 4; do
    points=none
    [ $members = 1 ] || points=h.1:begin
    ok "$members members: a gain of all heads of all layers" split_model "$work/gain.onnx" "$work/gain$members" $points --tensor $members --chunks 4 --loss "$loss" --dtype bf16
    ok "it trains" "$work/gain$members/pipeline" train --data input_ids="$work/x.npy" --data target="$work/y.npy" --threads 1 --schedule zb-h1 --microbatches 4 --steps 2 \
        --dump-grads "$work/gains$members" --checkpoint "$work/ofgain$members"
done
ok "the bits of one member" same ofgain1 ofgain4 2
is "what was summed of halves travels as halves, a step's sums as they are" "$(tr -s ' \n' ' ' <"$work/gain4/pipeline.c" | sed 's/},/},\n/g' |
    sed -n 's/.*"%grad.\(gain\)", .dtype = PP_F32, .bytes = 32}.*/\1/p; s/.*PP_ALL_GATHER.*MatMul.*dtype = \(PP_[A-Z0-9]*\).*/\1/p' | sort | uniq -c | tr -s ' \n' ' ')" " 7 PP_BF16 2 gain "
ok "its gradient is whole in both stages" "$compare" grads "$work/gains4" "$work/gains1"
ok "no member sends it for a microbatch" eval '! grep -q "all_reduce.*gain" "$work"/gain4/stage*.c && grep -q "%grad/gain" "$work/gain4/pipeline.c"'
if command -v mpirun >/dev/null; then
    ok "processes" mpirun -n 8 "$work/4/pipeline" train "${data[@]}" --data target=target.npy --optimizer adamw --lr 0.01 --clip-norm 0.5 --threads 1 \
        --checkpoint "$work/d" --resume "$work/a" --steps 4 --microbatches 4
fi

# 125 classes in four chunks of 32: three places that count nowhere, and are in no file.  8 rows of 8 numbers.
array "$work/x.npy" i8 8,8 '($_ * 37 + 5) % 125'
array "$work/target.npy" i8 8,8 '($_ * 37 + 42) % 125'
cd "$work" || exit 1
data=(--data input_ids=x.npy)
"$build/models/make_gpt" --vocab 125 --dim 16 --layers 1 --heads 4 --seq 8 --rows 4 --tied --dropout 20 -o odd.onnx || exit 1
ok "125 classes, undivided" split_model odd.onnx odd none --loss cross_entropy
ok "its gradients" run odd whole --batch 4 --steps 1 --dump-grads gradsodd
is "a table in four parts of 32 rows" "$("$ppsplit" -q odd.onnx --loss cross_entropy --tensor 4 --dump mesh | grep '^param wte')" "param wte.weight:f32[32,16] = wte.weight"
for members in 1 4; do
    ok "$members members of four chunks, a gain that each gathers" split_model odd.onnx "odd$members" none --loss cross_entropy --tensor $members --chunks 4 \
        --shard 'h.0.ln_1.weight=0'
    ok "they train" run "odd$members" "ofodd$members" --batch 4 --steps 3 --dump-grads "gradsodd$members" --output "logits=odd$members.npy"
    ok "the model's gradients" "$compare" grads "gradsodd$members" gradsodd/stage0.safetensors
    ok "back into the model" "$ppsplit" merge "odd$members" "ofodd$members" -o "ofodd$members.onnx"
done
ok "the same parameters and states" same ofodd1 ofodd4 3
ok "logits are gathered where a run asks for them" grep -q 'logits; NULL: not asked for' odd4/stage0.c
ok "the same logits, model, gradients" eval 'cmp odd1.npy odd4.npy && cmp ofodd1.onnx ofodd4.onnx && cmp gradsodd1/stage0.safetensors gradsodd4/stage0.safetensors'
ok "two replicas of four members divide the optimizer, for two steps" run odd4 odda --batch 4 --microbatches 2 --dp 2 --shard-optimizer --steps 2
ok "one member goes on" run odd1 oddb --batch 4 --microbatches 2 --dp 2 --steps 3 --resume odda
ok "three steps of one member" run odd1 oddc --batch 4 --microbatches 2 --dp 2 --steps 3
ok "the same" same oddb oddc 3

# Encoder and decoder: a value that members gather is read by others while the gather is under way.
dir=$top/models/encdec-ts
case_data "$dir"
ok "an encoder and a decoder" split_case "$dir" "$work/ed" --tensor 2 --chunks 4
ok "they are built" make_pipeline "$work/ed"
ok "they train" "$work/ed/pipeline" train "${data[@]}" --data "target=$dir/target.npy" --microbatches 4 --lr 0 --threads 1 --dump-grads "$work/edgrads" \
    --output "logits=$work/ed.npy"
ok "PyTorch's gradients and logits" eval '"$compare" grads "$work/edgrads" "$dir/grads.safetensors" && "$compare" npy "$work/ed.npy" "$dir/out.npy"'

# Images: members divide the rows of a microbatch.
dir=$top/models/unet-ts
case_data "$dir"
for members in 1 4; do
    ok "rows of images, $members members" split_case "$dir" "$work/rows$members" --tensor $members --chunks 4 --rows 4
    ok "they are built" make_pipeline "$work/rows$members"
    ok "they train" "$work/rows$members/pipeline" train "${data[@]}" --data "target=$dir/target.npy" --microbatches 2 --lr 0 --threads 1 --dump-grads "$work/ofrows$members"
done
ok "are divided" grep -q "members divide the rows" "$work/rows4/pipe.txt"
ok "PyTorch's gradients" "$compare" grads "$work/ofrows4" "$dir/grads.safetensors"
ok "the bits of one" "$compare" same "$work/ofrows1" "$work/ofrows4"

# A parameter that members divide for one product, and exchange for two others: its gradient is added up by use.
dir=$top/models/special/gathered
case_data "$dir"
for members in 1 2; do
    ok "three uses, $members members" split_case "$dir" "$work/g$members" --tensor $members --chunks 2
    ok "they are built" make_pipeline "$work/g$members"
    ok "they train" "$work/g$members/pipeline" train "${data[@]}" --data "target=$dir/target.npy" --microbatches 4 --lr 0 --threads 1 --dump-grads "$work/ggrads$members"
    ok "PyTorch's gradients" "$compare" grads "$work/ggrads$members" "$dir/grads.safetensors"
done
ok "the bits of one" "$compare" same "$work/ggrads1" "$work/ggrads2"
plan_done
