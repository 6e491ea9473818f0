#!/usr/bin/env bash
# --stages N: what it cuts trains to the bits of the model that is not cut, with tied parameters, skips and running statistics;
# what it prints says the same cut; what it is asked for and cannot do is refused.
. "$(dirname "$0")/../lib.sh"

# cut MODEL OUT [OPTION...]: $said is what it says
cut() {
    shared='' folded='' bind=''
    . "$top/models/$1/case.env"
    said=$("$ppsplit" "$top/models/$1/model.onnx" --loss "$loss" "${@:3}" -o "$2" 2>&1)
}
options_said() { sed -n 's/^the same cut://p' <<<"$said"; }

# train MODEL OUT STAGES RUN [OPTION...]: a step in two microbatches or more
train() {
    shared='' folded='' bind=''
    . "$top/models/$1/case.env"
    case_data "$top/models/$1"
    mkdir -p "$4"
    "$2/pipeline" train "${data[@]}" --data "target=$top/models/$1/target.npy" --microbatches $(((rows + mb - 1) / mb)) --ranks "$3" \
        --steps 1 --optimizer sgd --lr 0 --dump-grads "$4/grads" --output "logits=$4/out.npy" "${@:5}"
}

for model in gpt-ts unet-ts resnet-ts; do
    cut $model "$work/$model.1"
    ok "$model as it is" make_pipeline "$work/$model.1"
    ok "trains" train $model "$work/$model.1" 1 "$work/$model.1.run"
    for n in 2 4; do
        [ $model = gpt-ts ] || [ $n = 4 ] || continue
        more=()
        [ $model.$n != gpt-ts.2 ] || more=(--profile)
        cut $model "$work/$model.$n" --stages $n "${more[@]}"
        ok "$model --stages $n" make_pipeline "$work/$model.$n"
        ok "trains" train $model "$work/$model.$n" $n "$work/$model.$n.run" --trace "$work/$model.$n.json"
        ok "to the same bits" same_bits "$work/$model.1.run" "$work/$model.$n.run"
        rm -rf "$work/$model.$n.said"
        eval "cut $model $work/$model.$n.said $(options_said) ${more[*]}"
        rm -rf "$work/$model.$n/build" "$work/$model.$n/pipeline"
        ok "the cut that it names is the same" diff -r "$work/$model.$n" "$work/$model.$n.said"
    done
done

# The cut of a run's own seconds; the trace that was written above is of two stages.
cut gpt-ts "$work/again" --stages 2
points=$(options_said)
eval "cut gpt-ts $work/again --stages 3 --costs $work/gpt-ts.2.json ${points//--split/--costs-split}"
ok "by a run's costs" grep -q "by measured costs" <<<"$said"
same=$said
cut gpt-ts "$work/again" --stages 3 --costs "$work/gpt-ts.2.json"
is "which says itself how it was cut" "$said" "$same"
cut mlp-ts "$work/again" --stages 3 --costs "$work/gpt-ts.2.json"
ok "another model's run" grep -q "in the trace of --costs was cut there: was it made from this model" <<<"$said"
cut gpt-ts "$work/again" --stages 3 --costs "$work/gpt-ts.2.json" --costs-split h.0.mlp:begin --costs-split h.1:begin
ok "of as many stages as are said" grep -q "the trace of --costs has 2 stages, but --costs-split makes 3" <<<"$said"

# Steps that were timed: each step of a function that ran is in the trace, and the node whose step takes all of a stage's time is cut out of it.
timed() { grep -c '"cat":"kernel".*"stage":'"$1"',"part":"'"$2" "$work/gpt-ts.2.json"; }
steps() { sed -n "/^void stage$1_$2(/,/^}/p" "$work/gpt-ts.2.said/stage$1.c" | grep -c 'pp_time_step();'; }
is "a trace has the steps of forward, the end is none" "$(($(timed 0 F) + 1)) $(($(timed 1 F) + 1))" "$(steps 0 forward) $(steps 1 forward)"
is "and of the backward" "$(($(timed 0 '[IWB]') + 1)) $(($(timed 1 '[IWB]') + 1))" "$(steps 0 backward) $(steps 1 backward)"
perl -pe 's/"dur":[0-9.]+/"dur":1/ if /"cat":"kernel"/; s/"dur":1,/"dur":5000,/ if m|"part":"F".*"nodes":\["/h.0/attn/proj/MatMul"\]|;
    s/"dur":[0-9.]+/"dur":1000/ if /"name":"0F/; s/"dur":[0-9.]+/"dur":200/ if /"name":"(1F|.B)/' "$work/gpt-ts.2.json" >"$work/steps.json"
cut gpt-ts "$work/again" --stages 3 --costs "$work/steps.json" --rates messages=1e9,link=1e12
is "a cut within the run's stages, by what their steps took" "$(options_said)" " --split h.0.attn.proj:begin --split h.0.ln_2:begin"
cut gpt-ts "$work/again" --target cuda --profile
ok "of the CPU only" grep -q -e "--profile needs --target cpu" <<<"$said"

# By the same costs nothing that one would cut by hand is better: the benchmark's GPT, before each block, and
# before and behind each module of the third one, where its middle is.
"$build/models/make_gpt" --dim 256 --layers 4 --heads 8 --seq 128 --vocab 1024 --rows 4 -o "$work/gpt.onnx"
by_hand() { "$ppsplit" "$work/gpt.onnx" --stages 2 --loss cross_entropy --params link "$@" -o "$work/by-hand" 2>&1 | sed -n 's/^slowest stage \([0-9.]*\) ms by modelled costs$/\1/p'; }
"$ppsplit" ls "$work/gpt.onnx" | awk '$NF ~ /^h[.]2/ { print $NF }' >"$work/modules"
for point in h.{0,1,3}:begin $(sed 's/$/:begin/p; s/:begin/:end/' "$work/modules"); do by_hand --split "$point"; done >"$work/hands"
is "cuts by hand, of one model" "$(wc -l <"$work/hands")" 21
ok "the best of them is not better, but for 1/64, than the one that is found" awk -v found="$(by_hand)" '
    $1 < found * 63 / 64 { better = 1 } $1 > found * 1.3 { bad = 1 } END { exit better || !bad }' "$work/hands"

# Points that are given stay.
cut gpt-ts "$work/again" --stages 3 --split h.1:begin
ok "two given points and one found" grep -q "^the same cut: --split h.1:begin --split " <<<"$said"
cut gpt-ts "$work/again" --stages 2 --split h.0.mlp:begin --split h.1:begin
ok "more are given than asked for" grep -q "the given split points already make 3" <<<"$said"

cut example-ts "$work/again" --stages 4
ok "markers stay, and are not said again" grep -qx "the same cut: --split [^ ]*" <<<"$said"
is "no stage has a marker alone, which computes nothing" "$(awk '$1 ~ /^[0-9]$/ && / FLOP / { n++; none += / 0 FLOP +0 FLOP / } END { print n, none + 0 }' <<<"$said")" "4 0"
cut example-ts "$work/again" --stages 2
ok "more markers than asked for" grep -q "the given split points already make 3" <<<"$said"

# The same cut for another rate is another, and a step is not a slowest stage.
cut gpt-ts "$work/again" --stages 3 --microbatches 4 --rates "products=1e9, link=1e12" --rates messages=1e9
ok "of a step" grep -q "^step of 4 microbatches .* by modelled costs$" <<<"$said"
printf '# of a slow wire\nlnk = 1e3\n' >"$work/bad"
printf 'link = 1e3 # of a slow wire\n\nproducts=1e9\n' >"$work/rates"
cut gpt-ts "$work/again" --stages 2 --rates "$work/bad"
ok "a file of rates with a mistake" grep -q "did you mean 'link'?" <<<"$said"
cut gpt-ts "$work/again" --stages 2 --rates "$work/rates"
ok "a file of rates" grep -q "^slowest stage .* s by" <<<"$said"

# Memory: a limit moves the cut, or is refused; all of a schedule's microbatches count.
memory() { cut gpt-ts "$work/again" --stages 4 --microbatches 8 --memory "$@"; awk '/^cost/ { on = 1; next } !/^[0-9]/ { on = 0 } on { print $(NF - 1) $NF }' <<<"$said"; }
most() { numfmt --from=iec-i --suffix=B --to=none "$@" 2>/dev/null | tr -d B | sort -n | tail -n 1; }
is "with enough" "$(memory 1G | wc -l)" 4
ok "a limit is kept" test "$(most $(memory 150K))" -le $((150 * 1024))
memory 20K >/dev/null
ok "what fits nowhere is refused" grep -q "no cut found fits in the memory" <<<"$said"
ok "with what the best would take" grep -q "note: without a limit the best cut has a stage of [0-9]* bytes" <<<"$said"
is "gpipe holds them all" "$(("$(most $(memory 1G --schedule gpipe))" > $(most $(memory 1G))))" 1

refused() { ok "$1" grep -qF -- "$2" <<<"$said"; }
cut gpt-ts "$work/again" --stages 0; refused "no stages" "--stages wants a whole number from 1 to 4096, not '0'"
cut gpt-ts "$work/again" --stages 100000; refused "too many to say" "--stages wants a whole number"
cut gpt-ts "$work/again" --stages 4000; refused "too many for the model" "--stages 4000: there are places for "
cut example-ts "$work/again" --stages 10; refused "more than nodes that compute" "there are places for 9 stages at most, each with a node that computes"
cut gpt-ts "$work/again" --stages 2 --memory 1G; refused "memory without microbatches" "--memory needs --microbatches M"
cut gpt-ts "$work/again" --stages 2 --memory lots --microbatches 2; refused "no bytes" "--memory wants a number of bytes"
cut gpt-ts "$work/again" --memory 1G; refused "of --stages only" "--memory needs --stages N"
cut gpt-ts "$work/again" --stages 2 --schedule gpipe; refused "a schedule for nothing" "--schedule needs --memory"
cut gpt-ts "$work/again" --stages 2 --rates product=1; refused "a rate that is none" "did you mean 'products'?"
cut gpt-ts "$work/again" --stages 2 --rates products=0; refused "a rate of nothing" "--rates wants NAME=NUMBER"
cut gpt-ts "$work/again" --stages 2 --costs "$work/none.json"; refused "no trace" "none.json"

# ---- what is one operation is not divided ----

inside() {
    . "$top/models/gptmask-ts/case.env"
    "$ppsplit" "$top/models/gptmask-ts/model.onnx" --loss "$loss" --split /h.0/attn/Softmax --target "$1" -o "$work/inside" 2>&1 >"$work/inside.said"
    awk '/FLOP/ { print $6, $7, $8; exit }' "$work/inside.said"
}
for target in cuda cpu; do is "a cut inside of an attention, for $target, is one before it" "$(inside $target)" \
    "$top/models/gptmask-ts/model.onnx: warning: '/h.0/attn/Softmax' is inside of an attention, which is one operation: the stage begins before it
54.9 k FLOP"
done

plan_done
