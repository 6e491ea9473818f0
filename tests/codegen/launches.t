#!/usr/bin/env bash
# Launches of a program for GPUs, as the source has them (a block of a model that is repeated has one place): none of one thread, for what is one number is
# computed by each kernel that reads it, and of all no more than there were when this was written.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
launches() { grep -c 'PP_LAUNCH(' out/stage0.cu; }
while read -r model dtype most; do
    ok "$model $dtype" "$ppsplit" -q "$top/models/$model/model.onnx" --loss cross_entropy --dtype "$dtype" --target cuda -o out
    is "$model $dtype: of one thread" "$(grep -oE 'PP_LAUNCH\([^(]*, 1, 1, .*' out/stage0.cu)" ""
    ok "$model $dtype: $(launches) launches, $most at most" [ "$(launches)" -le "$most" ]
    # A chain of 16-bit elementwise operations computes in float32 and is rounded where it is stored, nowhere else.
    case $model$dtype in gpt-tsbf16 | vit-dynbf16)
        is "$model $dtype: kernels that round inside of a chain" "$(perl -0ne 'for (/^static __global__[^\n]* gelu\w*\(.*?^}/gms) {
            $n += s/pp_pack_\w+\(pp_(?:round|nearest)_\w+\(//g; $inside++ if /pp_(?:round|nearest|to)_/ } END { printf "%d, of %s", $inside, $n > 2 ? "some" : "none" }' out/stage0.cu)" "0, of some" ;;
    esac
done <<'END'
gpt-ts f32 38
gpt-ts bf16 44
vit-dyn bf16 60
resnet-ts f32 34
resnet-ts bf16 42
mobilenet-ts f32 87
unet-ts f32 57
END
# Statistics of a large batch are several blocks' a channel, the running ones among them.
ok "many rows" "$ppsplit" -q "$top/models/resnet-ts/model.onnx" --rows 2048 --loss cross_entropy --target cuda -o out
is "batch statistics: four launches a norm" "$(awk '/^void stage0_cuda_forward/,/^}/' out/stage0.cu | grep -o 'PP_LAUNCH(batchnorm_[0-9]*, [a-z0-9_]*(' | head -n 8 | sed 's/.*, //; s/(//' | paste -sd' ')" \
    "dim3 dim3 dim3 pp_cover dim3 dim3 dim3 pp_cover"
plan_done
