#!/usr/bin/env bash
# Operations of the user's own (--ops): a fused rotary embedding computes and trains as the nodes that it stands for, on the CPU and as CUDA
# under the shim, in any split; what a table or a node lacks is refused, with its line.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
own=$top/models/custom
llama=(--llama --vocab 64 --dim 32 --heads 4 --kv-heads 2 --ffn 48 --layers 1 --seq 12 --rows 2)
"$build/models/make_gpt" "${llama[@]}" -o plain.onnx && "$build/models/make_gpt" "${llama[@]}" --fused -o fused.onnx &&
    "$build/models/make_tokens" --rows 14 --seq 12 --vocab 64 || exit 1
loss=(--loss cross_entropy)
ok "its nodes" split_model plain.onnx plain none "${loss[@]}" || exit 1
ok "one of our own, in two stages" split_model fused.onnx fused /model/layers.0/self_attn/Rotary_k "${loss[@]}" --ops "$own/ops.txt" || exit 1
train() { "$1" train --data input_ids=x.npy --data target=target.npy --batch 7 --microbatches 4 --steps 4 --optimizer adamw --lr 0.01 --dump-grads "$2" --log-json "$2.json" --quiet "${@:3}"; }
ok "trains" train plain/pipeline g.plain
ok "and so does that" train fused/pipeline g.fused
losses() { sed -n 's/.*"loss": \([^,]*\), "grad_norm": \([^,]*\),.*/\1 \2/p' "$1"; }
near() { paste <(losses g.plain.json) <(losses "$1") | awk '{ for (i = 1; i < 3; i++) bad += ($i - $(i + 2)) ^ 2 > 1e-10 * $i ^ 2 } END { exit bad || NR != 4 }'; }
ok "the same losses and norms" near g.fused.json
ok "the same gradients" "$compare" grads g.plain g.fused 1e-5
ok "in a single stage" split_model fused.onnx whole none "${loss[@]}" --ops "$own/ops.txt" --target cpu --target cuda
ok "trains" train whole/pipeline g.whole
is "to the bit as in two" "$(losses g.whole.json)" "$(losses g.fused.json)"
ok "with a zero-bubble schedule" train fused/pipeline g.zb --schedule zb-h1
is "the same bits" "$(losses g.zb.json)" "$(losses g.fused.json)"
if command -v "$cxx" >/dev/null; then
    ok "as CUDA, under the shim" make_shim whole
    ok "trains" train whole/pipeline-shim g.shim
    ok "the same losses and norms" near g.shim.json
    ok "the same gradients" "$compare" grads g.plain g.shim 1e-5
fi
ok "half precision comes and goes as float32" split_model fused.onnx half none "${loss[@]}" --ops "$own/ops.txt" --dtype bf16
ok "trains" train half/pipeline g.half
ok "its stage as ONNX names the operation" grep -q example.fused fused/stage0.onnx

# ---- refused ----

says() { "$ppsplit" -q fused.onnx "${loss[@]}" -o no "$@" 2>&1; }
is "without a table" "$(says | sed -n '2p;$p')" "$(printf '  2 x example.fused.Rotary, first in node 32 %s\nhint: if it is an operation of your own, --ops FILE names C functions for it (docs/custom.md)' "'/model/layers.0/self_attn/Rotary_q'")"
table() { cp "$own"/rotary.c "$own"/rotary.cu .; sed "$1" "$own/ops.txt" >ops.txt; says --ops ops.txt "${@:2}" | head -n 1; }
where="fused.onnx: node [0-9]* '[^']*' (Rotary)"
is "no gradient" "$(table '/^gradient/d' | sed "s|^$where|NODE|")" "NODE, input 0: error: a gradient is needed here, but the table of --ops names no function for it"
is "no .cu" "$(table 's/, rotary.cu//' --target cuda)" "ops.txt: error: the row of example.fused Rotary names no .cu file among its sources, which --target cuda needs"
is "no such file" "$(table 's/rotary.c,/gone.c,/')" "ops.txt: error: line 9: there is no file 'gone.c'"
is "another number of inputs" "$(table 's/x, cos, sin/x, cos/' | sed "s|^$where|NODE|")" "NODE: error: it has 3 inputs and 1 outputs, but its row in ops.txt has 2 and 1"
is "no input" "$(table 's/(x)/(z)/')" "ops.txt: error: line 8: 'z' is not one of its inputs"
is "a word that is none" "$(table 's/^rows/row/')" "ops.txt: error: line 6: a row cannot have 'row'"
is "no C name" "$(table 's/= rotary$/= system("x")/')" "ops.txt: error: line 7: 'system(\"x\")' is not the name of a C function"
is "a file elsewhere" "$(table 's|rotary.c,|../rotary.c,|')" "ops.txt: error: line 9: '../rotary.c' is not a .c or .cu file beside the table"
is "half a row" "$(table '/^forward/d')" "ops.txt: error: line 8: the row before this line needs \`inputs', \`outputs', \`forward' and \`sources'"
is "a size that the input has not" "$(table 's/^rows/shape y = [x.0, x.7]\nrows/' | sed "s|^$where|NODE|")" "NODE, input 0: error: the table of --ops reads dimension 7 of it"
ok "and nothing is written" [ ! -e no ]
sed '/^rows/d' "$own/ops.txt" >ops.txt
says --ops ops.txt >said
ok "without rows only a single microbatch trains, which is said" grep -q "^note: node 32 .*the table of --ops names no samples there (rows = ...)" said
plan_done
