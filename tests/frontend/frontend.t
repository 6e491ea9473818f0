#!/usr/bin/env bash
# What one exported file cannot show: files in sequence with one named twice, a loss in a file of its own, a loss the model
# computes, pipeline_stage annotations, a module called twice, outputs that are intermediates; cuts at nodes and values;
# samples folded into other dimensions and back; frozen parameters; weights linked rather than copied; weights in external data; equal
# biases that the exporter merged, their Splits too; values that send no gradient back; loops; rows that experts pick,
# features put where their tokens stand.  Against PyTorch's numbers.
. "$(dirname "$0")/../lib.sh"
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

check() {                                               # NAME OUT OPTION...
    local name=$1 out=$work/$2; shift 2
    ok "$name: splits and builds" split_build "$out" "$@"
    ok "$name: trains" train "$out" "$out.run"
    ok "$name: agrees with PyTorch" agrees "$out.run" .
}

for name in stateful sequence lossmodel ownloss valid shifted annotated twice looped passthrough stopped detached samples contrast recurrent normed unsorted bounded trips routed graph parts features relative; do
    cd "$cases/$name" || exit 1
    . ./case.env
    points=()
    for p in ${splits//,/ }; do points+=(--split "$p"); done
    check "$name" "$name" "${points[@]}" $extra
done
is "sequence: a stage a file" "$(grep -c call_stage "$work/sequence/pipe.txt")" 3
is "annotated: a stage a number" "$(grep -c call_stage "$work/annotated/pipe.txt")" 3

is "normed: nothing is in evaluation form" "$("$ppsplit" -q "$cases/normed/model.onnx" --loss mse -o "$work/normed.said" 2>&1)" ""
is "normed: unless it was exported so" "$("$ppsplit" -q "$cases/normed/evaluated.onnx" --loss mse -o "$work/evaluated" 2>&1 | grep -o 'warning: .*')" "warning: 2 BatchNormalization nodes are in evaluation form"
is "unsorted: a row that is told its place in the order is not alone" "$("$ppsplit" -q "$cases/unsorted/ranked.onnx" --loss cross_entropy -o "$work/ranked" 2>&1 | grep -c 'only a single microbatch trains')" 1
is "trips: a number of the data without a bound, said with what bounds it" "$("$ppsplit" "$cases/trips/unbounded.onnx" -o "$work/refused" 2>&1 | sed 's/.*(Loop)/Loop/')" \
    "Loop, input 0: error: how often it runs must be known, or bounded, when the model is read
hint: if it follows from symbolic dimensions, give them sizes with --bind NAME=N; if the data decide it, bound it in the model: n.clamp(max=N), min(n, x.shape[1])"
is "trips: until a sum is small, too" "$("$ppsplit" "$cases/trips/endless.onnx" -o "$work/refused" 2>&1 | sed 's/.*(Loop)/Loop/')" \
    "Loop, input 0: error: it runs 10000 times and has no bound
hint: if the data end the loop, its condition needs a bound on the iterations: \`and i < N\`"
ok "trips: for fewer rows" "$ppsplit" -q "$cases/trips/counted.onnx" --rows 1 --loss mse -o "$work/fewer"
is "trips: for more rows, of which as many could be counted" "$("$ppsplit" -q "$cases/trips/counted.onnx" --rows 4 --loss mse -o "$work/refused" 2>&1 | sed 's/.*(Loop)/Loop/')" \
    "Loop: error: with 4 rows it may run more often than with 2, for which it was read
hint: export the model for 4 rows, or --bind its dimension"
is "routed: what counts such rows mixes samples, which is said" \
    "$("$ppsplit" "$cases/routed/counted.onnx" -o "$work/counted" 2>&1 | grep -o 'computes over all samples')" "computes over all samples"
is "routed: a loop over a list of modules needs a trip for each" "$(cd "$cases/routed" && "$ppsplit" -q --dump import lacking.onnx 2>&1 | grep -o 'in the example).*')" \
    "in the example): each iteration has parameters of its own, and the example did not reach all of them"
cd "$cases/graph" || exit 1
. ./case.env
is "graph: of a size that is larger where fewer are there" "$("$ppsplit" rest.onnx -o "$work/refused" 2>&1 | sed -n 's/.*error: //p')" "ConstantOfShape of a size computed of such a one"
files=fit.onnx loss=output:loss rows=8 mb=8
ok "graph: rows that a mask of as many picks" split_build "$work/fit"
"$work/fit/pipeline" train --data x=five.npy --steps 1 --lr 0 --log-json "$work/fit.json" >/dev/null
ok "graph: their product" "$compare" loss "$work/fit.json" 35.34375
"$work/fit/pipeline" train --data x=two.npy --steps 1 --lr 0 >/dev/null 2>&1
is "graph: a mask of another number ends the run" $? 4
files=drop.onnx
ok "graph: a dropout of rows that are picked" split_build "$work/drop"
"$work/drop/pipeline" train --data x=five.npy --steps 400 --lr 0 --log-json "$work/drop.json" >/dev/null
is "graph: which it takes and doubles, one in two" \
    "$(sed -n 's/.*"loss": \([-0-9.e+]*\).*/\1/p' "$work/drop.json" | awk '{ sum += $1; n += !seen[$1]++ } END { print NR, (n > 100), (sum / NR > 33 && sum / NR < 37.7) }')" "400 1 1"
cd "$cases/parts" || exit 1
. ./case.env
files=raw.onnx
check "parts: a sequence of them" partsraw
"$work/parts/pipeline" train --data x=in.x.npy --data sizes=wrong.npy --data target=target.npy --steps 1 >/dev/null 2>&1
is "parts: sizes of other rows end the run" $? 4
is "features: whose they are cannot be told, which is said" "$("$ppsplit" -q "$cases/features/model.onnx" --loss mse -o "$work/whose" 2>&1 | grep -c 'cannot be put together\|only a single microbatch trains')" 2

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

# The uses of one parameter, one, two and three of them in the stages: the bits of all six in one stage.
cd "$cases/looped" || exit 1
. ./case.env
check "looped: one stage" looped1
ok "looped: the same bits in three" same_bits "$work/looped1.run" "$work/looped.run"
for schedule in gpipe zb-h1; do
    ok "looped: $schedule on 2 ranks" train "$work/looped" "$work/looped.run2" --schedule $schedule --ranks 2
    ok "looped: $schedule on 2 ranks, the same bits" same_bits "$work/looped1.run" "$work/looped.run2"
done
check "looped: replicated" looped3 --split /a_1/Gemm --split /a_3/Gemm --multi-use replicate
for ranks in 3 2 1; do
    ok "looped: replicated, on $ranks ranks" train "$work/looped3" "$work/looped.run$ranks" --ranks $ranks
    ok "looped: replicated, on $ranks ranks, the same bits" same_bits "$work/looped1.run" "$work/looped.run$ranks"
done

cd "$cases/stopped" || exit 1
. ./case.env
out=$work/stopped
is "stopped: no gradient crosses the first cut" "$(sed -n 's/.*<edge from="0" to="1".*gradient="\([a-z]*\)".*/\1/p' "$out/pipe.xml")" no
is "stopped: what is before has none" "$(cat "$out.run/grads"/* | grep -ac pre.weight)" 0
is "stopped: stages are standard ONNX" "$(cat "$out"/*.onnx | grep -acP '\x22\x0cStopGradient')" 0      # field 4 of a node: its operator
ok "stopped: 4 stages" split_build "$work/four" --split enc:begin --split dec:begin --split dec:end
for schedule in gpipe zb-h1 loopedbfs interleavedzerobubble; do
    ok "stopped: $schedule trains" train "$work/four" "$work/four.run" --schedule $schedule --ranks 2
    ok "stopped: $schedule agrees with PyTorch" agrees "$work/four.run" .
done
ok "stopped: checkpoint" train "$out" "$out.run" --optimizer adamw --lr 0.01 --checkpoint "$work/stopped.ck"
ok "stopped: merges" "$ppsplit" merge "$out" "$work/stopped.ck" -o "$work/merged.onnx"
files=plain.onnx
check "named: a value, nodes" named --split enc:begin --split dec:begin --stop-gradient /Reshape_output_0 --stop-gradient '/Reshape_?'
ok "not named: builds" split_build "$work/not" --split dec:begin
ok "not named: trains" train "$work/not" "$work/not.run"
ok "not named: other gradients" eval '! agrees "$work/not.run" .'
is "not named: as without a loss" "$("$ppsplit" -q plain.onnx --dump import)" "$("$ppsplit" -q plain.onnx --dump import --stop-gradient /Sub_1)"
stop() { "$ppsplit" -q plain.onnx --loss output:loss --dump import --stop-gradient "$1" 2>&1 >/dev/null; }
ok "hard: what is straight through splits and builds" split_model hard.onnx "$work/hard" none --loss mse
mkdir "$work/hard.run"
ok "hard: trains" "$work/hard/pipeline" train --data x=in.x.npy --data target=in.labels.npy --microbatches $((rows / mb)) --quiet --lr 0 --dump-grads "$work/hard.run/grads"
ok "hard: agrees with PyTorch" "$compare" grads "$work/hard.run/grads" hard.safetensors
is "hard: which is said" "$("$ppsplit" -q hard.onnx --loss mse --dump import 2>&1 >/dev/null)" \
    "hard.onnx: warning: sums (y - x) + x, where y has no gradient, are taken for y - x.detach() + x, whose gradient goes to x: /Add, /Add_1"
is "plain: what may be straight through is said" "$("$ppsplit" -q plain.onnx --loss output:loss --dump import 2>&1 >/dev/null | head -n 1)" \
    "plain.onnx: warning: sums (y - x) + x may be straight-through estimators; the file does not say whether its source calls detach(), so the gradient passes: /Add"
is "a name that is none" "$(stop /Reshape_1_output_1; echo $?)" "plain.onnx: error: --stop-gradient /Reshape_1_output_1: no value or node has that name
hint: did you mean '/Reshape_1_output_0'?
2"
is "a parameter" "$(stop enc.first.weight; echo $?)" "plain.onnx: error: --stop-gradient enc.first.weight: this is a parameter, not a value that a node computes
hint: with --freeze enc.first.weight the parameter does not train
2"
is "an input" "$(stop x; echo $?)" 0
cd "$cases/detached" || exit 1
. ./case.env
ok "detached: two steps" train "$work/detached" "$work/detached.run" --steps 2 --optimizer sgd --lr 0.01
tail -n 1 "$work/detached.run/log.json" >"$work/second.json"
ok "detached: what is detached of a parameter follows it" "$compare" loss "$work/second.json" "$second_loss"
is "removed by the exporter" "$("$ppsplit" -q undecided.onnx --loss output:loss --dump import 2>&1 >/dev/null; echo $?)" \
    "undecided.onnx: node 1 'node_linear_1' (Gemm): error: the exporter removed the result of detach() ('detach'), so it is not known where the gradient stops
hint: export again with optimize=False, or name with --stop-gradient where gradients stop
1"
is "of which only the source tells" "$("$ppsplit" -q cloned.onnx --loss mse --dump import 2>&1 >/dev/null; echo $?)" \
    "cloned.onnx: warning: its source line calls detach(), but the file does not show on what, so the gradient passes: return self.b(h.detach().clone()) + h
hint: export again with optimize=False, or name the value with --stop-gradient
0"
# Who trains is said: the list, the counts, and what no gradient reaches.
m=$top/models/mlp-ts/model.onnx
is "ls --parameters: name, shape, whether it trains, and why" "$("$ppsplit" ls --parameters "$m" --freeze 'inp.*' | sed -n '1,4p' | tr -s ' ')" "name shape trains why
inp.weight f32[32,16] no frozen
inp.bias f32[32] no frozen
blocks.0.0.weight f32[32] yes scale of LayerNormalization"
is "a split with a loss counts both" "$("$ppsplit" "$m" --freeze 'inp.*' --loss cross_entropy -o "$work/counts" | grep 'numbers train')" \
    "$("$ppsplit" ls --parameters "$m" --freeze 'inp.*' | awk 'NR > 1 { n[$3]++ } END { print n["yes"] }') arrays of 13.1 k numbers train, 2 of 544 do not (ppsplit ls --parameters)"
is "what no gradient reaches is named" "$("$ppsplit" -q "$m" --stop-gradient /Add_output_0 --loss cross_entropy -o "$work/reached" 2>&1 | sed 's/.*warning: //; s/: .*//' | head -n 1)" \
    "no gradient reaches 8 parameters, which will not train"
is "what is made of it is counted with it" "$("$ppsplit" "$top/models/special/folded/model.onnx" --stop-gradient tanh_2 --loss mse -o "$work/made" 2>/dev/null | grep 'numbers train')" \
    "19 arrays of 594 numbers train, 8 of 145 do not (ppsplit ls --parameters)"
is "nothing that trains is refused" "$("$ppsplit" -q "$m" --stop-gradient logits --loss cross_entropy -o "$work/refused" 2>&1 | sed -n 's/.*error: \([^:]*\):.*/\1/p')" "no gradient reaches any parameter"
is "all that is frozen is not" "$("$ppsplit" -q "$m" --freeze '*' --loss cross_entropy -o "$work/frozen" 2>&1)" ""

plan_done
