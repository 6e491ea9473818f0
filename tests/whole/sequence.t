#!/usr/bin/env bash
# --sequence, --expert: the members of a rank have parts of the sequences and whole parameters.  A GPT of two heads, so that keys and values are gathered, in four chunks of both ends of its
# sequences: one, two and four members, in other splits, have the same losses, norms, gradients, parameters, states and logits, to the bit, and PyTorch's gradients; a run of
# one number goes on with another, also with replicas that divide parameters.  With Dropout, whose numbers are those of the whole, the same.  Of experts each member has some: the same bits, the
# gradients of the model undivided, and one file of it.  Experts that pick rows likewise, whose parameters are each a member's alone.
. "$(dirname "$0")/members.sh"

for members in 1 2 4; do
    points=h.1:begin
    [ $members != 2 ] || points=h.0.mlp:begin,h.1:begin
    ok "$members members" split_model model.onnx "$work/$members" $points --sequence $members --chunks 4 --loss "$loss"
    ok "they train" run $members of$members --steps 2 --dump-grads "$work/grads$members" --output "logits=$work/logits$members.npy"
    ok "PyTorch's gradients" "$compare" grads "$work/grads$members" grads.safetensors
    [ $members = 1 ] && continue
    is "the losses and norms of one" "$(steps of$members)" "$(steps of1)"
    ok "its parameters, states and logits" eval 'same of1 of$members 2 && cmp "$work/logits1.npy" "$work/logits$members.npy"'
done
ok "of a causal mask a member has rows of both ends" grep -q 'a.mask.diagonal = 14 - 2 \* ((int64_t)c->member\[PP_SEQUENCE\] \* 1 + 0)' "$work/4/stage0.c"
ok "gradients of parameters travel once a step" eval '! grep -q "AllReduce.*weight" "$work"/4/stage*.c && grep -q "%grad/wte" "$work/4/pipeline.c"'
ok "two replicas of four members divide parameters, for a step" run 4 a --microbatches 2 --dp 2 --zero 3 --steps 1
ok "two of two members go on" run 2 b --resume "$work/a" --microbatches 2 --dp 2 --steps 2
ok "two of one member, for two steps" run 1 c --microbatches 2 --dp 2 --schedule zb-h1 --recompute always --steps 2
ok "the same" same b c 2

# layers and sequences: two chunks of each
for mesh in "1 1" "1 2" "2 2"; do
    read -r t n <<<"$mesh"
    points=h.1:begin
    [ "$t$n" != 12 ] || points=h.0.mlp:begin,h.1:begin
    ok "$t x $n members" split_model model.onnx "$work/mesh$t$n" $points --tensor "$t" --sequence "$n" --chunks 2 --loss "$loss"
    ok "they train" run "mesh$t$n" "ofmesh$t$n" --steps 2 --dump-grads "$work/gradsmesh$t$n"
    ok "PyTorch's gradients" "$compare" grads "$work/gradsmesh$t$n" grads.safetensors
    [ $t$n = 11 ] && continue
    is "the losses and norms of one" "$(steps "ofmesh$t$n")" "$(steps ofmesh11)"
    ok "its parameters and states" same ofmesh11 "ofmesh$t$n" 2
done
ok "each axis has its own" eval 'grep -q "PP_ALL_REDUCE, .mesh = PP_TENSOR" "$work/mesh22/pipeline.c" && grep -q "PP_SEQUENCE, .name = .%grad" "$work/mesh22/pipeline.c" && grep -q "AllReduce, P to R, " "$work/mesh22/pipe.txt" && grep -q "AllReduce, P to R along sequences, " "$work/mesh22/pipe.txt"'
ok "two replicas of 2 x 2 divide parameters, for a step" run mesh22 d --microbatches 2 --dp 2 --zero 3 --steps 1
ok "two of 1 x 2 go on" run mesh12 e --resume "$work/d" --microbatches 2 --dp 2 --steps 2
ok "two of one member, for two steps" run mesh11 f --microbatches 2 --dp 2 --steps 2
ok "the same" same e f 2

"$build/models/make_gpt" --vocab 60 --dim 16 --layers 1 --heads 2 --seq 16 --rows 2 --tied --dropout 20 -o "$work/drop.onnx" || exit 1
for members in 1 4; do
    ok "$members members, with Dropout, in half precision" split_model "$work/drop.onnx" "$work/drop$members" none --sequence $members --chunks 4 --loss "$loss" --dtype bf16
    ok "they train" run "drop$members" "ofdrop$members" --steps 2
done
ok "the same" same ofdrop1 ofdrop4 2

"$build/models/make_gpt" --vocab 60 --dim 16 --layers 1 --heads 2 --seq 16 --rows 2 --experts 8 -o "$work/experts.onnx" || exit 1
ok "eight experts, undivided" split_model "$work/experts.onnx" "$work/whole" none --loss "$loss"
ok "their gradients" run whole ofwhole --steps 1 --dump-grads "$work/gradswhole"
for members in 1 4; do
    ok "experts of $members members" split_model "$work/experts.onnx" "$work/experts$members" none --expert $members --chunks 4 --loss "$loss"
    ok "they train" run "experts$members" "ofexperts$members" --steps 2 --dump-grads "$work/gradsexperts$members"
    ok "the model's gradients" "$compare" grads "$work/gradsexperts$members" "$work/gradswhole/stage0.safetensors"
    ok "back into the model" "$ppsplit" merge "$work/experts$members" "$work/ofexperts$members" -o "$work/ofexperts$members.onnx"
done
ok "the same parameters, states and model" eval 'same ofexperts1 ofexperts4 2 && cmp "$work/ofexperts1.onnx" "$work/ofexperts4.onnx"'
ok "of a parameter of eight a member has two" grep -q 'dim = {2, 16, 64}' "$work/experts4/pipeline.c"
for mesh in "1 1" "2 2"; do
    read -r t n <<<"$mesh"
    ok "experts among $n, each among $t, of sequences among $n" split_model "$work/experts.onnx" "$work/each$t$n" none --tensor "$t" --sequence "$n" --expert "$n" --chunks 2 --loss "$loss"
    ok "they train" run "each$t$n" "ofeach$t$n" --steps 2 --dump-grads "$work/gradseach$t$n" --clip-norm 0.1
    ok "the model's gradients" "$compare" grads "$work/gradseach$t$n" "$work/gradswhole/stage0.safetensors"
    ok "back into the model" "$ppsplit" merge "$work/each$t$n" "$work/ofeach$t$n" -o "$work/ofeach$t$n.onnx"
done
ok "the same parameters, states and model" eval 'same ofeach11 ofeach22 2 && cmp "$work/ofeach11.onnx" "$work/ofeach22.onnx"'
ok "a member has half of each of four experts" grep -q 'dim = {4, 16, 32}' "$work/each22/pipeline.c"
ok "two replicas of 2 x 2 x 2 divide parameters, for a step" run each22 g --microbatches 2 --dp 2 --zero 3 --steps 1
ok "two of one member go on" run each11 h --resume "$work/g" --microbatches 2 --dp 2 --steps 2
ok "two of 2 x 2 x 2 that were not interrupted" run each22 i --microbatches 2 --dp 2 --steps 2
ok "the same" same h i 2

# Experts that pick their rows, with parameters of their own (a), and with slices of one (b)
cd "$top/models/special/routed" || exit 1
. ./case.env
case_data .
ok "three experts, each of a member" split_model model.onnx "$work/three" "$splits" --expert 3 --loss "$loss"
ok "they train" run three ofthree --microbatches 4 --steps 1 --dump-grads "$work/gradsthree"
ok "PyTorch's gradients, under its names" "$compare" grads "$work/gradsthree" grads.safetensors
for members in 1 4; do
    ok "four experts of $members members" split_model four.onnx "$work/four$members" none --expert $members --chunks 4 --loss "$loss"
    ok "they train" run "four$members" "offour$members" --microbatches 4 --steps 2 --init 'a.w?.?.*=default'
    ok "back into the model" "$ppsplit" merge "$work/four$members" "$work/offour$members" -o "$work/offour$members.onnx"
done
ok "the same parameters, states and model" eval 'same offour1 offour4 2 && cmp "$work/offour1.onnx" "$work/offour4.onnx"'
ok "a member has one expert of each layer" eval 'grep -q "each = {.mesh = PP_EXPERT, .n = 4, .step = 1" "$work/four4/pipeline.c" && grep -q "dim = {1, 12, 4}" "$work/four4/pipeline.c"'
# Experts whose matrices each row looks up
for members in 1 4; do
    ok "looked up, $members members" split_model looked.onnx "$work/looked$members" none --expert $members --chunks 4 --loss "$loss"
    ok "they train" run "looked$members" "oflooked$members" --microbatches 4 --steps 1 --dump-grads "$work/gradslooked$members"
    ok "PyTorch's gradients" "$compare" grads "$work/gradslooked$members" looked.safetensors
done
ok "the same parameters and states" same oflooked1 oflooked4 1
ok "four members go on where undivided experts were" eval 'split_model four.onnx "$work/fourwhole" none --loss "$loss" && run fourwhole j --microbatches 4 --steps 1 && run four4 k --microbatches 4 --resume "$work/j" --steps 2'
plan_done
