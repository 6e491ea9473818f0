#!/usr/bin/env bash
# A library's order of additions follows the sides of a product and its transposes: they are the same wherever the cuts fall, also where a
# cut lays out anew what a product reads (a sequence first, the batch second) or writes.
. "$(dirname "$0")/../lib.sh"

# sides OUT: transposes and sides of all products of its stages
sides() { cat "$work/$1"/stage*.c | grep -o 'pp_[sd]gemm[_a-z]*([01], [01], [^.]*, 1\.0' | sed 's/_batched//' | sort -u; }

# same MODEL LOSS POINT...: of a model in one stage, and cut at the points
same() {
    local model=$top/models/$1/model.onnx loss=$2 points=() p
    for p in "${@:3}"; do points+=(--split "$p"); done
    ok "$1: whole" "$ppsplit" -q "$model" --loss "$loss" -o "$work/whole"
    ok "$1: cut" "$ppsplit" -q "$model" --loss "$loss" "${points[@]}" -o "$work/cut"
    ok "$1: there are products" test "$(sides whole | wc -l)" -gt 3
    is "$1: the same sides" "$(sides cut)" "$(sides whole)"
    rm -rf "$work/whole" "$work/cut"
}
same encdec-ts cross_entropy encoder.1:begin decoder.0:begin decoder.1:begin
same gpt-ts cross_entropy /h.0/attn/Transpose_2_output_0 /h.1/attn/Transpose_2_output_0
same special/unsorted cross_entropy rnn:begin o:begin
plan_done
