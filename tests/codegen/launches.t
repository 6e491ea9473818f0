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
done <<'END'
gpt-ts f32 38
gpt-ts bf16 44
vit-dyn bf16 60
resnet-ts f32 58
resnet-ts bf16 65
mobilenet-ts f32 127
unet-ts f32 57
END
plan_done
