#!/usr/bin/env bash
# Where a search divides a model that knows no scheme (mesh/search.c): of a GPT exactly what Megatron's by hand sends, with untied and tied heads, heads that several
# members share, dropout; of other models something; what cannot be divided is refused, --shard is followed, and what it says wrong is named.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1

# sent FILE OPTION...: of the member's graph a line a kind of collective: its elements, sorted
sent() {
    "$ppsplit" -q "$1" --loss cross_entropy --dump mesh "${@:2}" 2>err |
        perl -ne 'next unless /^\S+?:\w+\[([\d,]*)\].* = (AllReduce|AllGather|ReduceScatter|AllToAll|Vary)\(/; $n = 1; $n *= $_ for split /,/, $1; $of{$2}{$n}++;
            END { for $k (sort keys %of) { print "$k ", join(" ", map { "$of{$k}{$_}x$_" } sort { $b <=> $a } keys %{$of{$k}}), "\n" } }'
}
# Layers L, rows b, places s, width h, vocabulary v: forward two sums of b s h a layer and that of the embedding; backward the sums of two varied values a layer and of the
# head's; the vocabulary's maximum (a gather of C numbers a place), its sum, and the loss; the logits, for who asks for them.
megatron() {
    local b=$1 s=$2 h=$3 v=$4 layers=$5 members=$6
    echo "AllGather 1x$((b * s * v)) 1x$((b * s * members))"
    echo "AllReduce $((2 * layers + 1))x$((b * s * h)) 1x$((b * s)) 1x1"
    echo "Vary $((2 * layers + 1))x$((b * s * h))"
}
for tied in "" --tied; do
    "$build/models/make_gpt" --vocab 512 --dim 128 --layers 3 --heads 8 --seq 32 --rows 2 $tied -o "gpt$tied.onnx" || exit 1
    for members in 2 4 8; do
        is "GPT $tied, $members members: Megatron's bytes" "$(sent "gpt$tied.onnx" --tensor $members)" "$(megatron 2 32 128 512 3 $members)"
    done
done
"$build/models/make_gpt" --vocab 512 --dim 128 --layers 3 --heads 8 --seq 32 --rows 2 --dropout 10 -o drop.onnx || exit 1
is "with dropout" "$(sent drop.onnx --tensor 4)" "$(megatron 2 32 128 512 3 4)"
is "as many chunks as members of another number" "$(sent gpt.onnx --tensor 4 --chunks 8 | sed -n 2p)" "$(megatron 2 32 128 512 3 8 | sed -n 2p)"
is "16-bit: partial sums in float32" "$(sent gpt.onnx --tensor 2 --dtype bf16)" "$(megatron 2 32 128 512 3 2)"

for model in encdec-ts vit-dyn unet-ts mobilenet-ts mlp-ts gptmask-ts; do
    ok "$model is divided" eval "[ -n \"\$(sent $top/models/$model/model.onnx --loss mse --tensor 2)\" ]"
done

said() { "$ppsplit" -q "$@" -o none 2>&1 | sed -n 's/^.*error: //p'; }
is "nothing to divide" "$(said "$top/models/doc-ts/model.onnx" --loss mse --tensor 4)" "--tensor: nothing of the model divides in 4 chunks"
is "chunks that members do not share evenly" "$("$ppsplit" gpt.onnx --tensor 2 --chunks 6 -o none 2>&1 | head -n 1)" "ppsplit: --chunks 6 of --tensor 2: it is 2 times a power of two"
is "no such parameter" "$(said gpt.onnx --tensor 2 --shard 'x.*=0')" "--shard 'x.*=0': no parameter fits"
is "no such dimension" "$(said gpt.onnx --tensor 2 --shard 'wte.weight=2' --loss cross_entropy)" "--shard 'wte.weight=2': f32[512,128] of 'wte.weight' has no dimension 2"
is "not divisible" "$(said gpt.onnx --tensor 3 --shard 'wte.weight=0' --loss cross_entropy)" "--shard 'wte.weight=0': dimension 0 of f32[512,128] of 'wte.weight' is not divisible in 1 x 3 parts"
ok "--shard: a parameter that is not divided" eval '"$ppsplit" -q gpt.onnx --loss cross_entropy --tensor 2 --shard "wte.weight=replicate" --dump mesh 2>/dev/null | grep -q "^param .*wte.weight.*f32\[512,128\]"'
plan_done
