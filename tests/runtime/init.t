#!/usr/bin/env bash
# A program without weights, of a model whose file of weights is gone, begins with --init (runtime/io/init.c): the same losses whatever the
# split (one parameter is tied), members, replicas and offloading, and after a resume; what is told by no option is refused with its name.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
"$build/models/make_gpt" --vocab 256 --dim 32 --layers 2 --heads 4 --seq 16 --rows 2 --tied --external -o gpt.onnx
"$build/models/make_tokens" --rows 8 --seq 16 --stride 16 "$top/README.md" >/dev/null
init=(--init '*=default' --init '*wte*=normal:0.02' --init 'h.*.weight=xavier' --init '*ln*.weight=ones' --seed 5)
train=(train --data input_ids=x.npy --data target=target.npy --batch 8 --steps 2 --lr 0.01 --optimizer adamw --quiet)
# same NAME OUT [OPTION...]: as the first program's
same() {
    local what=$1 out=$2; shift 2
    rm -f run.json
    "$out/pipeline" "${train[@]}" "${init[@]}" --groups 2 --microbatches 2 --log-json run.json "$@"
    is "$what" "$(grep -o '"loss": [^,]*' run.json | tail -n 2)" "$losses"
}

ok "with weights: splits" split_model gpt.onnx whole h.1:begin --loss cross_entropy --chunks 2
whole/pipeline "${train[@]}" "${init[@]}" --groups 2 --microbatches 2 --log-json whole.json --checkpoint ck
losses=$(grep -o '"loss": [^,]*' whole.json)
is "with weights: trains" "$(wc -l <<<"$losses")" 2
rm gpt.onnx.data
is "without its file of weights" "$("$ppsplit" -q gpt.onnx --loss cross_entropy -o none 2>&1)" \
    "gpt.onnx: initializer 0 'wte.weight': error: external data 'gpt.onnx.data': No such file or directory
hint: --params none makes a program without weights, which starts with --init"
ok "no weights: splits" split_model gpt.onnx none h.1:begin --loss cross_entropy --chunks 2 --params none
is "no weights: none is written" "$(ls none/params)" ""
same "no weights: the same losses" none
same "in replicas that divide them" none --dp 2 --zero 3
same "where they are offloaded" none --dp 2 --offload params --offload-dir .
ok "in other stages, divided among members: splits" split_model gpt.onnx members h.0:begin,h.1:begin --loss cross_entropy --chunks 2 --params none --tensor 2
same "in other stages, divided among members" members
train+=(--steps 3 --groups 2 --microbatches 2)
none/pipeline "${train[@]}" "${init[@]}" --resume ck --log-json a.json
whole/pipeline "${train[@]}" --seed 5 --resume ck --log-json b.json
is "a resumed run has the checkpoint's" "$(grep -o '"loss": [^,]*' a.json)" "$(grep -o '"loss": [^,]*' b.json)"
said() { none/pipeline "${train[@]}" "$@" 2>&1 | sed "s|$work/||" | head -n 1; }
is "told by nothing" "$(said)" \
    "pipeline: error: none/params/stage0.safetensors: No such file or directory: give 'wte.weight' values with --init, --params or --resume"
is "told in part" "$(said --init '[!h]*=ones')" \
    "pipeline: error: none/params/stage0.safetensors: No such file or directory: give 'h.0.ln_1.weight' values with --init, --params or --resume"
is "a kind that does not fit" "$(said --init '*=xavier')" \
    "pipeline: error: --init *=xavier: 'h.0.ln_1.weight' has 1 dimension, xavier needs two; add a later --init for it"

# A constant is part of the program: there, numbers that are not there are refused.
perl -e 'sub v { my ($v, $s) = (shift, ""); while ($v > 127) { $s .= chr($v & 127 | 128); $v >>= 7 } $s . chr $v } sub i { v($_[0] << 3) . v($_[1]) } sub b { v($_[0] << 3 | 2) . v(length $_[1]) . $_[1] }
    sub value { my ($n, @d) = @_; b(1, $n) . b(2, b(1, i(1, 1) . b(2, join "", map { b(1, i(1, $_)) } @d))) }
    print i(1, 8), b(8, i(2, 18)), b(7, b(1, b(1, "x") . b(1, "mean") . b(2, "y") . b(4, "Sub")) . b(2, "g") .
        b(5, i(1, 4) . i(2, 1) . b(8, "mean") . b(13, b(1, "location") . b(2, "gone.data")) . i(14, 1)) . b(11, value("x", 2, 4)) . b(12, value("y", 2, 4)))' >mean.onnx
is "a constant that is not there" "$("$ppsplit" -q mean.onnx --params none -o mean 2>&1)" \
    "mean.onnx: initializer 'mean': error: its numbers are in 'gone.data', which is missing, and it is not a parameter
hint: onnx.save_model(..., size_threshold=BYTES) leaves small constants in the model; --train 'mean' makes it a parameter"
plan_done
