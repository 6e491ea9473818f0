#!/usr/bin/env bash
# What a stage's file looks like to a reader: its length does not grow with the depth of the model, because blocks are one loop;
# kernels have names and formulas, buffers the names of modules; lines end at 120 columns.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1

gpt() { "$build/models/make_gpt" --layers "$1" --dim 32 --heads 2 --seq 16 --vocab 64 --rows 2 "${@:2}" -o "gpt$1.onnx" && "$ppsplit" -q "gpt$1.onnx" --loss cross_entropy --target cpu --target cuda -o "gpt$1"; }
lines() { wc -l <"$1"; }
# kernel NAME FILE: the comment, the head and the body of a kernel
kernel() { awk -v name=" $1(" 'BEGIN { RS = "\n\n" } index($0, name)' "$2"; }

for layers in 6 48; do ok "$layers layers" gpt $layers; done
for end in c cu; do
    n=$(lines gpt6/stage0.$end) m=$(lines gpt48/stage0.$end)
    ok "stage0.$end of 48 layers is as long as that of 6: $n and $m lines" test $((m - n)) -lt 60
    is "stage0.$end: lines of more than 120 columns" "$(awk 'NR > 5 && length > 120' gpt6/stage0.$end)" ""
    is "stage0.$end: blocks are loops" "$(grep -c 'for (int64_t i = 0; i < 6; i++) {$' gpt6/stage0.$end)" 3
done
loop=$(awk '/^void stage0_backward\(/,/^}/' gpt6/stage0.c | awk '/^    for /,/^    }/')
is "a turn is a block of the model" "$(grep '^ *//' <<<"$loop" | grep -vE '/h\.#/|of y = softmax')" ""
is "names of a turn: a parameter, its gradient, what a module computes" "$(grep -oE '\*(ln_1_weight|d_ln_1_weight|d_c_attn_bias|mlp_c_proj_weight|c_attn|ln_1_rstd) ' <<<"$loop" | sort | tr -d '*\n')" \
    "c_attn d_c_attn_bias d_ln_1_weight ln_1_rstd ln_1_weight mlp_c_proj_weight "
is "what one turn hands to the next" "$(awk '/^void stage0_forward\(.*[^;]$/,/^}/' gpt6/stage0.c | grep -oE '\*(next_)?ln_1 = ' | paste -sd' ')" "*ln_1 =  *next_ln_1 = "
is "whose gradient a buffer has" "$(grep -m1 -o 'd_mlp_c_proj_bias = .*' <<<"$loop" | sed 's/.*; *//')" "// f32[32] gradient of h.#.mlp.c_proj.bias"
is "where a value without a name is from" "$(grep -cE '// f32\[2,16,1\] in /h.#/ln_1/LayerNormalization$' <<<"$loop")" 1
# Of an attention it is in the runtime, unless a bias of its scores trains.
is "an attention is one call" "$(grep -A30 '// y = softmax(0.25 \* q k. where j <= i) v$' gpt6/stage0.c | grep -m1 -o 'pp_attention.*')" "pp_attention(c, &a);"
ok "a bias that trains" gpt 1 --bias
softmax=$(kernel softmax_1 gpt1/stage0.c)
for said in 'max = max(a)' 'b = exp(a - max)' 'sum = sum(b)' 'attn_softmax = b * (1 / sum)'; do
    ok "softmax says: $said" grep -qxF "// $said" <<<"$softmax"
done
ok "and its scalars are called so" grep -q 'const float sum = pp_fold_sumf(' <<<"$softmax"
# What is used once stands where it is used: GELU is its formula over x + w.  What is stored is read again where it was stored.
is "variables of GELU" "$(kernel gelu_1 gpt6/stage0.c | grep -c ' const float [a-z]* = ')" 1
ln=$(kernel layernorm_2 gpt6/stage0.c)
ok "LayerNormalization ends in its formula" grep -qF 'ln[i * 32 + j] = ln_sub[i * 32 + j] * rstd * ln_weight[j] + ln_bias[j];' <<<"$ln"
is "behind a residual sum, which is added once: the comment and the code" "$(grep -oE '(^// y = |_j = x).*' <<<"$ln")" "// y = x1 + (bias + x0)
_j = x1[i * 32 + j + k] + (bias[j + k] + x0[i * 32 + j + k]);"
# Arguments have the names of their callers, or what their modules have in common.
for said in 'h_0_ln_1 = h_0_ln_1_sub * rstd * h_0_ln_1_weight + h_0_ln_1_bias' 'c_attn = c_attn_bias + c_attn_mat_mul' 'd_bias += sum(dy)' 'd_weight += sum(dy * (x * rstds))'; do
    ok "names: $said" grep -qxF "// $said" gpt6/stage0.c
done
is "a bias behind a product, and its gradient" "$(grep -oE '^static void bias_[a-z]*' gpt6/stage0.c | sort | uniq -c | sed 's/^ *//' | paste -sd' ')" "1 static void bias_ 3 static void bias_dw"
is "comments that say nothing" "$(grep -hE '^// ([a-z]+)s = \1$' gpt6/stage0.c gpt1/stage0.c)" ""
# Three kernels need x - mean of the same BatchNormalization; none writes it for the others: x is there.
ok "a convolution net" "$ppsplit" -q "$top/models/resnet-ts/model.onnx" --loss cross_entropy -o resnet
ok "a running mean" grep -qxF '// new_bn1_running_mean = bn1_running_mean * 0.9 + mean * 0.1' resnet/stage0.c
is "differences from means that are written" "$(grep -cE '^// y[0-9]* = x[0-9]* - means?[0-9]*$' resnet/stage0.c)" 0
# What follows a convolution stands there as a formula, too, for a library that computes it with its sums.
ok "a net of depthwise convolutions" "$ppsplit" -q "$top/models/mobilenet-ts/model.onnx" --loss cross_entropy -o mobile
is "a bias and an activation as a formula" "$(grep -c '&(PpAfter){.out = [a-z0-9_]*, .bias = [a-z0-9_]*, .low = 0.0f, .high = INFINITY}' mobile/stage0.c)" 6
# Experts: rows that the data leave out are cleared, and what is said of the others chooses nothing more; packing is a loop over the mask.
ok "experts" "$ppsplit" -q "$top/models/special/routed/model.onnx" --loss mse -o routed
expert=$(awk 'BEGIN { RS = "\n\n" } /b_mul = x0 \* sigmoid\(x0\) \* x1/' routed/stage0.c)
ok "an expert's rows: which" grep -qxF '// of rows where b_pack holds; the others are 0' <<<"$expert"
is "an expert's kernels: packing and its gate" "$(grep -oE '^static void (pack|swish|sigmoid)[a-z_]*' routed/stage0.c | sort -u | sed 's/.* //' | paste -sd' ')" "pack_ swish_ swish_dx_"
is "an expert's rows: what is chosen" "$(grep ' ? ' <<<"$expert")" ""
is "packing: loops over one" "$(grep -c 'o < 1;' routed/stage0.c)" 0
ok "LayerNormalization's gradient is called so" grep -q 'layernorm_dx_1(rows' gpt6/stage0.c
# Factors cancel: three terms, as one would write it by hand; of GELU's cube one.
is "LayerNormalization's gradient" "$(grep '^// dx = .*sum2' gpt6/stage0.c | sed 's/dy[0-9]* + //' | sort -u)" \
    "// dx = (b + sum * rstd * rstd * rstd * (-1/32) * ln_sub) + sum2 * (-1/32)"
# A norm that a file writes as six nodes is one of its nodes: its gradient has as many terms, and a stage begins before it.
ok "RMSNorm as nodes" gpt 2 --llama --kv-heads 1
is "its kernels" "$(grep -o "PP_LAUNCH(rmsnorm_[a-z]*" gpt2/stage0.cu | sort -u | sed "s,.*(,," | paste -sd" ")" "rmsnorm_ rmsnorm_dw rmsnorm_dx rmsnorm_infer"
is "RMSNorm's gradient" "$(grep '^// dx = .*sum' gpt2/stage0.c | sort -u)" "// dx = d_layers_add + a * rstd + sum * rstd * rstd * rstd * (-1/32) * x"
is "a cut in it" "$("$ppsplit" gpt2.onnx --split /model/layers.1/input_layernorm/Add -o cut 2>&1 | grep -o 'warning.*\|^0 -> 1 .* f32')" \
    "warning: '/model/layers.1/input_layernorm/Add' is inside of a norm, which is one operation: the stage begins before it
0 -> 1  /model/layers.0/Add_1_output_0 f32"
is "GELU's gradient" "$(grep -c '^// d_c_fc = .* \* 0.044715 \* b \* 3$' gpt6/stage0.c)" 1

# The same numbers as the evaluator's after each step, whole and cut, where first and last turns have buffers of other blocks.
values() { "$build/tests/codegen/test_codegen" "$work/gpt6.onnx" --loss cross_entropy "$@"; }
cd "$top" || exit 1
ok "each step's values" values
ok "each step's values, three stages" values --split h.2:begin --split h.4.mlp:begin
plan_done
