#!/usr/bin/env bash
# Weights trained by a pipeline and merged back give a model that computes what the pipeline computes, bit for bit,
# however it is split again, and that trains on from there; parameters keep their names and shapes.  Also: parameters
# linked instead of copied, and kept outside the model's file.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1

losses() { sed -n '/"step"/s/.*"loss": \([^,]*\),.*/\1/p' "$1"; }
same_losses() { diff <(losses "$1") <(losses "$2"); }
differ() { ! cmp -s "$1" "$2" || { echo "$1 and $2 are the same: training changed nothing"; return 1; }; }

round_trip() {
    local name=$1 first=$2 second=$3 out=$4; shift 4
    local dir=$top/models/$name data m
    . "$dir/case.env"
    case_data "$dir"
    m=$(((rows + mb - 1) / mb))
    local train=(train "${data[@]}" --data "target=$dir/target.npy" --microbatches "$m" --quiet)
    ok "$name: splits" split_model "$dir/model.onnx" a "$first" --loss "$loss" "$@"
    ok "$name: trains" a/pipeline "${train[@]}" --steps 3 --optimizer adamw --lr 0.01 --checkpoint ck
    rm -f trained.onnx
    ok "$name: merges" "$ppsplit" merge a ck -o trained.onnx
    ok "$name: the merged model splits elsewhere" split_model trained.onnx b "$second" --loss "$loss" "$@"
    is "$name: same modules, names and shapes" "$("$ppsplit" ls trained.onnx | tail -n +2)" "$("$ppsplit" ls "$dir/model.onnx" | tail -n +2)"
    ok "$name: the pipeline infers" a/pipeline infer "${data[@]}" --microbatches "$m" --quiet --params ck/step_3 --output "$out=a.npy"
    a/pipeline infer "${data[@]}" --microbatches "$m" --quiet --output "$out=before.npy"
    ok "$name: it has learned" differ a.npy before.npy
    ok "$name: the merged model infers" b/pipeline infer "${data[@]}" --microbatches "$m" --quiet --output "$out=b.npy"
    ok "$name: the same bits" cmp a.npy b.npy
    ok "$name: the pipeline trains on" a/pipeline "${train[@]}" --steps 3 --lr 0.01 --params ck/step_3 --log-json a.json
    ok "$name: the merged model trains on" b/pipeline "${train[@]}" --steps 3 --lr 0.01 --log-json b.json
    ok "$name: with the same losses" same_losses a.json b.json
    ok "$name: with linked parameters" split_model "$dir/model.onnx" linked "$second" --loss "$loss" "$@" --params link
    linked/pipeline infer "${data[@]}" --microbatches "$m" --quiet --output "$out=linked.npy"
    ok "$name: the same bits" cmp linked.npy before.npy
    is "$name: nothing is copied" "$(ls linked/params | grep -c safetensors)" 0
    rm -rf a b ck linked
}

round_trip gpt-ts h.1:begin h.0.mlp:begin,h.1:begin logits
round_trip resnet-ts layer2:begin layer1:begin,layer2:begin logits
round_trip mlp-dyn blocks.1:begin blocks.1:begin,blocks.2:begin logits
round_trip example-ts markers markers logits --multi-use replicate

# Files in sequence, one of them named twice: each goes back into its own.
dir=$top/models/special/sequence
ok "sequence: splits" "$ppsplit" -q "$dir/a.onnx" "$dir/b.onnx" "$dir/a.onnx" --loss mse -o a
ok "sequence: builds" make_pipeline a
ok "sequence: trains" a/pipeline train --data x="$dir/in.x.npy" --data target="$dir/target.npy" --microbatches 4 --steps 3 --lr 0.1 --quiet --checkpoint ck
is "sequence: merges" "$("$ppsplit" merge a ck -o t.onnx)" "merged 4 parameters into t.onnx, t1.onnx"
ok "sequence: the merged models split" "$ppsplit" -q t.onnx t1.onnx t.onnx --loss mse -o b
ok "sequence: builds again" make_pipeline b
a/pipeline infer --data x="$dir/in.x.npy" --microbatches 4 --params ck/step_3 --output y=a.npy --quiet
b/pipeline infer --data x="$dir/in.x.npy" --microbatches 4 --output y=b.npy --quiet
ok "sequence: the same bits" cmp a.npy b.npy
rm -rf a b ck

# A model is not written over: one that was merged before is, from the same output, until it was split itself.
spare() { "$ppsplit" merge "$1" ck -o "$2" 2>&1 | head -n 1; }
there="is there, and no earlier merge of this output: perhaps the model itself"
dir=$top/models/doc-ts
cp "$dir/model.onnx" doc.onnx
ok "spared: splits" split_model doc.onnx a none --loss cross_entropy
ok "spared: trains" a/pipeline train --data x="$dir/in.x.npy" --data target="$dir/target.npy" --quiet --checkpoint ck
is "spared: the model" "$(spare a doc.onnx)" "doc.onnx: error: $there"
is "spared: another file" "$(spare a a/README)" "a/README: error: $there"
is "an earlier merge is written over" "$(spare a m.onnx; spare a m.onnx)" "merged 7 parameters into m.onnx
merged 7 parameters into m.onnx"
ok "spared: what was merged is split" "$ppsplit" -q m.onnx --loss cross_entropy -o b
is "spared: and is a model then" "$(spare b m.onnx)" "m.onnx: error: $there"
ok "spared: the model as it was" cmp doc.onnx "$dir/model.onnx"
rm -rf a b ck

# Weights outside the model's file, copied and linked.
"$build/models/make_gpt" --vocab 256 --dim 32 --layers 2 --heads 4 --seq 16 --rows 2 --external -o gpt.onnx
"$build/models/make_tokens" --rows 8 --seq 16 --stride 16 "$top/README.md" >/dev/null
data=(--data input_ids=x.npy --quiet)
ok "external weights: split, copied" split_model gpt.onnx copied h.1:begin --loss cross_entropy
ok "external weights: split, linked" split_model gpt.onnx linked h.1:begin --loss cross_entropy --params link
for form in copied linked; do
    ok "external weights: $form: trains" $form/pipeline train "${data[@]}" --data target=target.npy --steps 2 --lr 0.1 --log-json $form.json --checkpoint $form.ck
    ok "external weights: $form: infers" $form/pipeline infer "${data[@]}" --params $form.ck/step_2 --output logits=$form.npy
    ok "external weights: $form: merges" "$ppsplit" merge $form $form.ck -o $form.onnx
done
ok "external weights: the same losses" same_losses copied.json linked.json
ok "external weights: the same bits" cmp copied.npy linked.npy
ok "external weights: the same model" cmp copied.onnx linked.onnx
ok "external weights: the merged model splits" split_model linked.onnx b none
ok "external weights: infers" b/pipeline infer "${data[@]}" --output logits=b.npy
ok "external weights: the same bits again" cmp b.npy linked.npy

# A disk that is full: which file, and why; nothing stays behind.
(trap '' XFSZ; ulimit -f 8; "$ppsplit" merge copied copied.ck -o full.onnx >said 2>&1)
is "a full disk: refused as input and output are" "$?" 3
is "a full disk: says so" "$(cat said)" "full.onnx: error: cannot write: File too large"
is "a full disk: nothing is left" "$(ls | grep full)" ""
cp -r copied damaged && truncate -s -7 damaged/model.skeleton
is "a damaged skeleton is refused" "$("$ppsplit" merge damaged copied.ck -o full.onnx 2>&1)" \
    "damaged/model.skeleton: error: damaged: this is not the file that ppsplit wrote"

# 800 GB of weights, of which nothing is read: a file that is a hole.  In seconds of the processor, however busy the machine is.
within() { (ulimit -t "$1" && "${@:2}"); }
"$build/models/make_gpt" --vocab 256 --dim 25600 --layers 26 --heads 100 --seq 8 --rows 2 --sparse -o big.onnx 2>/dev/null ||
    { skip "800 GB of external weights" "no such sparse file here"; plan_done; exit; }
ok "800 GB of external weights: split and linked" within "${SANITIZED:+6}5" "$ppsplit" -q big.onnx --split h.13:begin --loss cross_entropy --params link -o big
ok "800 GB of external weights: less than 8 MB is written" [ "$(du -sk big | cut -f1)" -lt 8192 ]
plan_done
