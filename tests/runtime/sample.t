#!/usr/bin/env bash
# Texts that a split model writes: tokens are those that logits of `infer` say, one row of them after the other, and the same whatever the
# split, the ranks, the transport and the replicas.  (Probabilities: test_draw.c.)
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
m=$top/models/gpt-ts
ok "four stages" split_model "$m/model.onnx" four h.0.mlp:begin,h.1:begin,h.1.mlp:end --loss cross_entropy || exit 1
ok "one" split_model "$m/model.onnx" one none || exit 1
T=$(perl -ne 'print $1 if /\(\d+, (\d+)\)/' "$m/in.input_ids.npy")

# The likeliest tokens behind those that are given, by infer: T at most are seen.
likeliest() {
    local ids=$1 n=$2 k
    for ((k = 0; k < n; k++)); do
        IDS=$ids T=$T perl -e '@t = split /,/, $ENV{IDS}; @t = @t[-$ENV{T} .. -1] if @t > $ENV{T}; $n = @t; push @t, 0 while @t < $ENV{T};
            printf "\223NUMPY\001\000\166\000%-117s\n", "{\x27descr\x27: \x27<i8\x27, \x27fortran_order\x27: False, \x27shape\x27: (1, $ENV{T}), }"; print pack("q<*", @t)' >x.npy
        one/pipeline infer --data input_ids=x.npy --output logits=y.npy --quiet || return
        ids+=,$(IDS=$ids T=$T perl -e 'binmode STDIN; local $/; $_ = <STDIN>; @y = unpack "f<*", substr $_, 128; @t = split /,/, $ENV{IDS}; $n = @t < $ENV{T} ? @t : $ENV{T};
            $v = @y / $ENV{T}; @y = @y[($n - 1) * $v .. $n * $v - 1]; $b = 0; for (1 .. $#y) { $b = $_ if $y[$_] > $y[$b] } print $b' <y.npy)
    done
    tr ',' ' ' <<<"$ids"
}
is "temperature 0: the likeliest token that infer has" "$(one/pipeline sample --prompt-ids 5,9,31 --steps 4 --temperature 0)" "$(likeliest 5,9,31 4)"
long=$(seq -s, 3 $((T + 4)))
is "past the model's length" "$(four/pipeline sample --prompt-ids "$long" --steps 3 --temperature 0)" "$(likeliest "$long" 3)"

S=(sample --prompt-ids 5,9 --steps 12 --seed 3 --temperature 1.5 --top-k 20)
want=$(one/pipeline "${S[@]}")
is "so many tokens" "$(wc -w <<<"$want")" 14
ok "another seed, another text" [ "$want" != "$(one/pipeline "${S[@]}" --seed 4)" ]
for how in "--ranks 4" "--ranks 2" "--ranks 1" "--ranks 2 --threads 1 --transport local"; do
    is "four stages, $how: the same text" "$(four/pipeline "${S[@]}" $how)" "$want"
done
if command -v mpirun >/dev/null; then
    is "processes: the same text" "$(mpirun -n 4 four/pipeline "${S[@]}")" "$want"
fi
many=$(one/pipeline "${S[@]}" --batch 4 --microbatches 4)
is "several texts: the first one is that of one" "$(head -n 1 <<<"$many")" "$want"
is "and all differ" "$(sort -u <<<"$many" | wc -l)" 4
is "replicas share them out" "$(four/pipeline "${S[@]}" --batch 4 --microbatches 2 --dp 2 --ranks 8)" "$many"
is "bytes: the prompt, then as many as were asked for" "$(one/pipeline sample --prompt '+*' --steps 9 | head -c 2) $(one/pipeline sample --prompt '+*' --steps 9 | wc -c)" "+* 12"
one/pipeline "${S[@]}" --log-json log.json >text
is "a log counts a token a step" "$(cat text)$(grep -c '"tokens_per_second"' log.json)" "${want}12"

# What LlamaForCausalLM of transformers 5 generates in float64 from these weights; the two likeliest are 0.007 apart at the least
"$build/models/make_gpt" --llama --vocab 64 --dim 32 --heads 4 --kv-heads 2 --ffn 48 --layers 2 --seq 12 --rows 1 -o llama.onnx
ok "a Llama" split_model llama.onnx llama model.layers.1:begin
is "writes what transformers has it write" "$(llama/pipeline sample --prompt-ids 5,9,31 --steps 9 --temperature 0)" "5 9 31 21 48 56 5 33 46 22 24 22"
for shape in "gpt2 124" "llama3-8b 8.03" "llama3-405b 406"; do
    "$build/models/make_gpt" --shape ${shape% *} --seq 64 --sparse -o shape.onnx
    is "parameters of $shape" "$("$ppsplit" ls shape.onnx | awk 'NR == 2 { print $1 }')" "${shape#* }"
done

# ---- what is refused ----

refused() { "$@" 2>&1 >/dev/null | head -n 1; }
is "a token that the model has not" "$(refused one/pipeline sample --prompt-ids 1,48)" \
    "pipeline: error: --data input_ids=(--prompt-ids): row 0, position 1 is 48, an index into 'wte.weight', which has 48 rows: allowed are 0 to 47"
is "no numbers" "$(refused one/pipeline sample --prompt-ids 1,x)" "pipeline: error: --prompt-ids 1,x: expected whole numbers separated by commas"
is "more than 64 bits" "$(refused one/pipeline sample --prompt-ids 18446744073709551617)" "pipeline: error: --prompt-ids 18446744073709551617: expected whole numbers separated by commas"
is "options of others" "$(refused one/pipeline infer --top-k 3)" "pipeline: error: --top-k is for sample: infer draws no tokens"
is "outputs" "$(refused one/pipeline sample --output logits=y.npy)" "pipeline: error: --output logits: sample writes the text; infer writes outputs"
ok "a model without tokens" split_model "$top/models/mlp-ts/model.onnx" other none
is "no model of texts" "$(refused other/pipeline sample)" "pipeline: error: sample: this model has no input of tokens, integers [rows, length]"
plan_done
