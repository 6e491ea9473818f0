#!/usr/bin/env bash
# A library's order of additions follows the sides of a product and its transposes: they are the same wherever the cuts fall, also where a
# cut lays out anew what a product reads (a sequence first, the batch second) or writes.  On a GPU it may follow how far rows are apart, too: all
# are multiples of 16 bytes, of 128 where they are long, whatever sizes a model has, and so are those that the loss's kernels read, four at a time.
. "$(dirname "$0")/../lib.sh"

# sides OUT: transposes and sides of all products of its stages
sides() {
    cat "$work/$1"/stage*.c | perl -0777 -ne 'for (/\(PpGemm\)\{(.*?)\}\);/gs) { %f = /\.(\w+)\s+=\s+([^,]+)/g; print join(" ", map { $f{$_} || 0 } qw(type ta tb m n k)), "\n" }' |
        sort -u
}

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

# rows OUT: of its products, how many there are, and "; CALL" for each whose rows are otherwise
rows() {
    perl -0ne 'BEGIN { %size = (F32 => 4, F64 => 8, BF16 => 2, F16 => 2) }
        while (/PpGemm g = \{\};\s*(.*?);/gs) {
            $call = $1; %f = (type => "F32", $call =~ /g\.(\w+)\s+=\s+(?:PP_)?([^,]+)/g); $n++;
            %f = (lda => $f{ta} ? $f{m} : $f{k}, ldb => $f{tb} ? $f{k} : $f{n}, ldc => $f{n}, %f);
            for $x (qw(a b c)) { $b = $f{"ld$x"} * $size{$x eq "c" && $f{result} || $f{type}}; $bad .= "; $call" if $b == 0 || $b % ($b > 1024 ? 128 : 16) } }
        END { print $n > 30 ? "many" : $n, $bad }' "$1"/stage*.cu
}
# fours OUT: which kernels of the loss read logits one by one
fours() { cat "$1"/stage*.cu | perl -0ne 'for (/^(static __global__[^;{]*? cross_entropy_\w+\(.*?^\})/gms) { print /(\w+)\(/ if /exp/ && !/pp_load4/ }'; }

for sizes in "1021 64 2 32" "1021 60 4 13 --tied" "50257 16 2 8 --tied"; do
    set -- $sizes
    "$build/models/make_gpt" --vocab $1 --dim $2 --layers 2 --heads $3 --seq $4 --rows 3 ${5:-} -o "$work/odd.onnx" || exit 1
    for options in "" "--dtype bf16 --split h.1:begin" "--dtype f16 --split h.1.mlp:begin --split lm_head:begin" "--split /h.1/attn/Transpose_0"; do
        rm -rf "$work/odd"
        ok "GPT $sizes $options" "$ppsplit" -q "$work/odd.onnx" --loss cross_entropy --target cuda $options -o "$work/odd"
        is "GPT $sizes $options: rows of products" "$(rows "$work/odd")" many
        is "GPT $sizes $options: logits" "$(fours "$work/odd")" ""
    done
done
"$build/models/make_gpt" --vocab 61 --dim 16 --layers 2 --heads 1 --seq 4 --rows 2 -o "$work/odd.onnx" || exit 1
for points in "" "--split h.1:begin" "--split lm_head:begin"; do
    ok "rows of odd lengths are copied $points: each step's values" "$build/tests/codegen/test_codegen" --cuda "$work/odd.onnx" --loss cross_entropy $points
done
plan_done
