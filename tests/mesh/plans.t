#!/usr/bin/env bash
# Where a search divides a model that knows no scheme (mesh/search.c): of a GPT exactly what Megatron's by hand sends, with untied and tied heads, heads that several
# members share, dropout; what is kept where memory is short; of other models something; what cannot be divided is refused, what divides almost is divided, --shard is followed, and what it says wrong is named.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1

# sent FILE OPTION...: of the member's graph a line a kind of collective: its elements, sorted
sent() {
    "$ppsplit" -q "$1" --loss cross_entropy --dump mesh "${@:2}" 2>err |
        perl -ne 'next unless /^\S+?:\w+\[([\d,]*)\].* = (AllReduce|AllGather|ReduceScatter|AllToAll|Vary)\(/; $n = 1; $n *= $_ for split /,/, $1; $of{$2}{$n}++;
            END { for $k (sort keys %of) { print "$k ", join(" ", map { "$of{$k}{$_}x$_" } sort { $b <=> $a } keys %{$of{$k}}), "\n" } }'
}
# Layers L, rows b, places s, width h, vocabulary v, with Korthikanti's norms (2205.05198, section 4.2): forward two sums of b s h a layer that are scattered by places, and gathered for the
# next product; backward those of two varied values a layer, of the head's, and of one number a place; once a step those of the gains and biases between, two of a norm and one of what is
# summed; the vocabulary's maximum (a gather of C numbers a place), its sum, and the loss; the logits, for who asks for them.  The table of a tied head is divided by rows, so its result is a
# sum too; another one by columns, which takes an exchange.
megatron() {
    local bs=$(($1 * $2)) h=$3 v=$4 layers=$5 members=$6 tied=${7-}
    echo "AllGather 1x$((bs * v)) $((2 * layers + 1))x$((bs * h)) 1x$((bs * members))"
    echo "AllReduce 1x$bs 1x1"
    [ -n "$tied" ] || echo "AllToAll 1x$((bs * h / members))"
    echo "ReduceScatter $((2 * layers + ${#tied} / 4))x$((bs * h / members))"
    echo "Vary $((2 * layers + 1))x$((bs * h)) $((6 * layers + 2))x$h 1x$bs"
}
for tied in "" --tied; do
    "$build/models/make_gpt" --vocab 512 --dim 128 --layers 3 --heads 8 --seq 32 --rows 2 $tied -o "gpt$tied.onnx" || exit 1
    for members in 2 4 8; do
        is "GPT $tied, $members members: Megatron's bytes" "$(sent "gpt$tied.onnx" --tensor $members)" "$(megatron 2 32 128 512 3 $members $tied)"
    done
done
"$build/models/make_gpt" --vocab 509 --dim 128 --layers 3 --heads 8 --seq 32 --rows 2 --tied -o odd.onnx || exit 1
is "a vocabulary of 509: Megatron's bytes, and three places that are gathered with the logits" "$(sent odd.onnx --tensor 4)" "$(megatron 2 32 128 512 3 4 tied)"
"$build/models/make_gpt" --vocab 512 --dim 128 --layers 3 --heads 8 --seq 32 --rows 2 --dropout 10 -o drop.onnx || exit 1
is "with dropout" "$(sent drop.onnx --tensor 4)" "$(megatron 2 32 128 512 3 4)"
is "two members of four chunks: what is varied, for each" "$(sent gpt.onnx --tensor 2 --chunks 4 | sed -n 2p)" "$(megatron 2 32 128 512 3 4 | sed -n 2p)"
"$build/models/make_gpt" --vocab 50304 --dim 768 --layers 2 --heads 12 --seq 1024 --rows 4 --tied --sparse --external -o wide.onnx || exit 1
is "of more places than its width: no weights travel" "$(sent wide.onnx --tensor 4 | grep -v Vary)" "$(megatron 4 1024 768 50304 2 4 tied | grep -v Vary)"

# Where memory is short: norms and dropout between the divided parts by places of the sequence, in the same bytes (the gathers again in backward beside), so that of a layer the members keep
# what one would, divided among them (Korthikanti et al. 2022, 2205.05198, table 2); without a limit eight bytes of each place and feature, what two products read, are kept by all.
kept() { "$ppsplit" -q "$1" --loss cross_entropy "${@:2}" -o kept >/dev/null && grep -o 'bytes_stash="[0-9]*"' kept/pipe.xml | tr -dc 0-9; }
for layers in 2 3; do
    "$build/models/make_gpt" --vocab 512 --dim 256 --layers $layers --heads 8 --seq 128 --rows 4 --dropout 10 -o "gpt$layers.onnx" || exit 1
done
one=$(($(kept gpt3.onnx) - $(kept gpt2.onnx)))
all=$(($(kept gpt3.onnx --tensor 4) - $(kept gpt2.onnx --tensor 4)))
few=$(($(kept gpt3.onnx --tensor 4 --stages 1 --microbatches 1 --memory 19M) - $(kept gpt2.onnx --tensor 4 --stages 1 --microbatches 1 --memory 14M)))
is "a layer with --memory: all that is kept is divided" $((4 * few)) "$one"
is "without: these, and what products read of all places" $((4 * all - one)) $((4 * 8 * 4 * 128 * 256))
is "sums are scattered, and parts gathered" "$(sent gpt2.onnx --tensor 4 --stages 1 --microbatches 1 --memory 14M | grep -o 'ReduceScatter.*\|AllGather.* 5x131072')" "AllGather 1x262144 5x131072
ReduceScatter 4x32768"

# Sequences: parameters are whole, and read by each member for its own places.  Where members divide heads, what they attend to is exchanged for the time of an attention: q, k, v and
# what comes of them, 4 b s h / N elements of each member a layer; of fewer heads keys and values are gathered.  One number is summed: the loss.  The logits, for who asks for them.
"$build/models/make_gpt" --vocab 512 --dim 128 --layers 3 --heads 2 --seq 32 --rows 2 -o few.onnx || exit 1
is "sequences of 8 heads, 4 members" "$(sent gpt.onnx --sequence 4 | grep -v Vary)" "AllGather 1x32768
AllReduce 1x1
AllToAll 3x6144 3x2048"
is "of 2 heads" "$(sent few.onnx --sequence 4 | grep -v Vary)" "AllGather 1x32768 6x8192
AllReduce 1x1"
ok "chunks have places of both ends of the sequence, each half a diagonal of its own" eval '"$ppsplit" -q few.onnx --sequence 4 --dump mesh | perl -ne "\$n{\$1}++ if /FlashAttention.* (diagonal=\d+ step=-?\d+) /; END { exit !(\$n{q(diagonal=0 step=4)} == 3 && \$n{q(diagonal=28 step=-4)} == 3) }"'
"$build/models/make_gpt" --vocab 512 --dim 64 --layers 2 --heads 4 --seq 4096 --rows 1 -o long.onnx || exit 1
is "of what is kept for backward a quarter each, and what an attention makes once more, by places" $((4 * $(kept long.onnx --sequence 4))) $(($(kept long.onnx) + 2 * 4 * 4096 * 64))
is "the layers' parameters are whole" "$("$ppsplit" -q gpt.onnx --sequence 4 --dump mesh | grep -c '^param h.*f32\[\(128\|384\|512\)')" 36

# Both: the sums of two members that divide layers are of a fourth of the places, what four that divide sequences exchange is of half of the heads.
is "layers by 2, sequences by 4" "$(sent gpt.onnx --tensor 2 --sequence 4 | grep -v Vary)" "AllGather 1x32768 1x8192 1x2048 1x32
AllReduce 6x2048 1x16 2x1
AllToAll 3x3072 3x1024"

# Experts: places are gathered before them, b s h elements, and their results added up at the places that members keep.
"$build/models/make_gpt" --vocab 512 --dim 128 --layers 3 --heads 8 --seq 32 --rows 2 --experts 8 -o experts.onnx || exit 1
is "8 experts, 4 members" "$(sent experts.onnx --expert 4 | grep -v Vary)" "AllGather 1x32768 3x8192
AllReduce 1x1
AllToAll 3x6144 3x2048
ReduceScatter 3x2048"
is "of 8 two each" "$("$ppsplit" -q experts.onnx --expert 4 --dump mesh | grep -c '^param h.*mlp.c.*f32\[2,')" 12

is "two matrices that each of 2 x 4 places looks up: its 24 numbers are sent once, and two with a number each; sums of three come back" "$(sent $top/models/special/routed/looked.onnx --loss mse --expert 4 | grep -v Vary)" "AllGather 1x192 1x24 2x16
AllReduce 1x1
ReduceScatter 1x6"

is "the model's own slots of experts, 4 x 2 of each of 2 x 4 groups: they are exchanged, there and back" "$(sent $top/models/special/routed/slots.onnx --loss mse --expert 4 | grep AllToAll)" "AllToAll 2x128"

for model in encdec-ts vit-dyn unet-ts mobilenet-ts mlp-ts gptmask-ts; do
    ok "$model is divided" eval "[ -n \"\$(sent $top/models/$model/model.onnx --loss mse --tensor 2)\" ]"
done

said() { "$ppsplit" -q "$@" -o none 2>&1 | sed -n 's/^.*error: //p'; }
is "nothing to divide" "$(said gpt.onnx --loss cross_entropy --tensor 300)" "--tensor: nothing in the model can be divided into 300 chunks"
is "chunks that members do not share evenly" "$("$ppsplit" gpt.onnx --tensor 2 --chunks 6 -o none 2>&1 | head -n 1)" "ppsplit: error: --chunks 6 with --tensor 2: it must be 2 times a power of two"
is "chunks of an axis twice" "$("$ppsplit" gpt.onnx --tensor 2 --chunks tensor=2,tensor=4 -o none 2>&1 | head -n 1)" "ppsplit: error: --chunks: tensor has two numbers"
is "nothing to divide but parameters" "$(said $top/models/mlp-ts/model.onnx --loss mse --sequence 2)" "--sequence: nothing in the model can be divided into 2 chunks"
is "no experts" "$(said gpt.onnx --loss cross_entropy --expert 4)" "--expert: nothing in the model can be divided into 4 chunks"
is "parts of parameters" "$("$ppsplit" gpt.onnx --sequence 2 --shard 'wte.*=0' -o none 2>&1 | head -n 1)" "ppsplit: error: --shard with --sequence: its members divide no parameters but experts"
is "no such parameter" "$(said gpt.onnx --tensor 2 --shard 'x.*=0')" "--shard 'x.*=0': no parameter matches"
is "no such dimension" "$(said gpt.onnx --tensor 2 --shard 'wte.weight=2' --loss cross_entropy)" "--shard 'wte.weight=2': f32[512,128] of 'wte.weight' has no dimension 2"
is "not divisible" "$(said gpt.onnx --tensor 300 --shard 'wte.weight=0' --loss cross_entropy)" "--shard 'wte.weight=0': dimension 0 of f32[512,128] of 'wte.weight' is not divisible in 1 x 300 parts"
ok "--shard: a parameter that is not divided" eval '"$ppsplit" -q gpt.onnx --loss cross_entropy --tensor 2 --shard "wte.weight=replicate" --dump mesh 2>/dev/null | grep -q "^param .*wte.weight.*f32\[512,128\]"'
plan_done
