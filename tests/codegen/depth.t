#!/usr/bin/env bash
# What a stage needs beside its stash does not grow with the model's depth: workspace, and the arguments of its largest kernel, of a GPT of 4 and of 24
# blocks, in float32 and with 16-bit products, on CPUs and GPUs.  Nor does it with the vocabulary: a backward, in one or in two parts, has the gradient
# of the logits where the forward kept these.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
for layers in 4 24; do
    "$build/models/make_gpt" --vocab 128 --dim 64 --layers $layers --heads 4 --seq 64 --rows 4 --tied -o $layers.onnx || exit 1
done
# needs LAYERS FILE OPTION...: bytes of workspace, and the most arguments of a function that computes
needs() {
    "$ppsplit" -q "$1.onnx" --loss cross_entropy --target cpu --target cuda -o "$1" "${@:3}" &&
        perl -0ne '/workspace (\d+);/ or die; $w = $1;
            for (/^(?:static|__global__) [^;{=]*?\(([^()]*)\)\s*\{/mg) { $n = 1 + tr/,//; $most = $n if $n > $most }
            print "$w $most"' "$1/$2"
}
for options in "" "--dtype bf16"; do
    for file in stage0.c stage0.cu; do
        read -r few arguments <<<"$(needs 4 $file $options)"
        read -r many more <<<"$(needs 24 $file $options)"
        ok "$file $options: workspace $few, $many" [ $((10 * many)) -le $((11 * few)) ]
        ok "$file $options: arguments $arguments, $more" [ "$more" -le 20 -a "$more" -eq "$arguments" ]
    done
done

# most OUT: of all stages, for CPUs and GPUs, the largest workspace of B, I and W, or what I saves
most() { perl -0ne 'for (/\.saved = (\d+)/g, map { (split /, /)[2 .. 4] } /\.work = \{(.*?)\}/g) { $n = $_ if $_ > $n } print $n' "$1/pipeline.c"; }
"$build/models/make_gpt" --vocab 5021 --dim 16 --layers 2 --heads 2 --seq 32 --rows 4 --tied -o vocab.onnx || exit 1
for dtype in f32 bf16; do
    "$ppsplit" -q vocab.onnx --split h.1:begin --loss cross_entropy --target cpu --target cuda --dtype $dtype -o vocab || exit 1
    bytes=$(most vocab)
    ok "$dtype: workspace and what I saves, $bytes, are less than a tenth of the logits" \
        [ "$bytes" -gt 0 -a $((10 * bytes)) -lt $((4 * 32 * 5021 * $([ $dtype = f32 ] && echo 4 || echo 2))) ]
done
plan_done
