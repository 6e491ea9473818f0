#!/usr/bin/env bash
# The CUDA of models, run on the CPU under the shim, which ends a program that does what a GPU would punish: a zero-bubble schedule, in the last
# split of each case, without a warning of the C++ compiler; 1f1b too where parameters are shared, and of the demo's GPT and a network with running
# statistics.  Loss, outputs and gradients are PyTorch's, and those of the same program with --device cpu.  Of models/ these are all but those that another exporter
# wrote of the same network; of models/special/ those that ask something of a device: rows that the data pick, a loss over all rows or of
# its own, a smallest one.  The others differ in what the importer makes of names and metadata; they are compiled by nvcc (tests/codegen/nvcc.t), and each operation has run
# under the shim (tests/codegen/codegen_cuda.t).
#
# The tolerance between devices: both compute in float32 from the same parameters, with other orders of addition.  A sum of n terms in any
# order is within n eps of the exact one, as a fraction of the sum of magnitudes (Higham, 4.2), eps = 6e-8; the longest sums here have
# some thousands of terms in partial sums of at most 64, so each value is within 64 eps + log2(n) eps = 5e-6, and gradients gather
# some ten such steps one after the other: 5e-5.
. "$(dirname "$0")/../lib.sh"
tolerance=5e-5
command -v "$cxx" >/dev/null || { skip "the shim" "no C++ compiler"; plan_done; exit; }

# run NAME DEVICE SCHEDULE RANKS [OPTION...]: one step into $work/NAME.run
run() {
    local out=$work/$1 data
    case_data "$dir"
    [ ! -f "$dir/target.npy" ] || data+=(--data "target=$dir/target.npy")
    rm -rf "$out.run.$2"
    mkdir -p "$out.run.$2"
    (cd "$dir" && SHIM_LINES=0 SHIM_PRODUCTS="$out.run.$2/products" "$out/pipeline-shim" train "${data[@]}" --device "$2" --schedule "$3" --ranks "$4" --microbatches $(((rows + mb - 1) / mb)) \
        --steps 1 --optimizer sgd --lr 0 --dump-grads "$out.run.$2/grads" --log-json "$out.run.$2/log.json" --output "$model_output=$out.run.$2/out.npy" "${@:5}")
}

right() {
    local cuda=$work/$1.run.cuda cpu=$work/$1.run.cpu
    agrees "$cuda" "$dir" 1e-4 "$folded" && "$compare" grads "$cuda/grads" "$cpu/grads" $tolerance && "$compare" npy "$cuda/out.npy" "$cpu/out.npy" $tolerance
}

# Rows of products that are no multiples of 16 bytes, or, where they are long, of 128; those that are as long as a microbatch has rows stand
# as they come.
slow_rows() { awk -v mb="$mb" '{ for (i = 5; i <= 7; i++) if ($i % ($i > 1024 ? 128 : 16) && ($3 != mb || $i != 4 * mb)) print }' "$1" | sort -u; }

check() {
    local name=${dir##*/} stages schedule schedules=zb-h1
    split_case "$dir" "$work/$name" --target cuda --target cpu || return
    ok "$name: builds" make_shim "$work/$name"
    stages=$(ls "$work/$name"/stage*.cu | wc -l)
    [[ $extra != *--loss-over* ]] || stages=$((stages - 1))                # the loss is with the last one
    ok "$name: on the CPU" run "$name" cpu gpipe 1
    case $name:$shared in gpt-ts:* | resnet-ts:* | *:?*) schedules='1f1b zb-h1' ;; esac
    for schedule in $schedules; do
        ok "$name: $schedule: runs clean" run "$name" cuda $schedule "$stages"
        ok "$name: $schedule: PyTorch's and the CPU's numbers" right "$name"
        is "$name: $schedule: rows that fast kernels read" "$(slow_rows "$work/$name.run.cuda/products")" ""
    done
    if [ "$name" = routed ]; then                       # 8 x 3 rows: two of three experts for each, and two of five
        case_data "$dir"
        ok "$name: infers" env SHIM_LINES=0 SHIM_PRODUCTS="$work/$name.products" "$work/$name/pipeline-shim" infer "${data[@]}" --device cuda \
            --ranks 1 --microbatches $(((rows + mb - 1) / mb)) --output y="$work/$name.npy"
        is "$name: products over the rows that are there" \
            "$(awk '{ n[$2 " " $3] += $1 * $4 } END { print n["6 4"], n["12 4"], n["4 6"] }' "$work/$name.products")" "48 48 96"
        is "$name: none for an expert without rows" "$(awk '$1 * $2 * $3 == 0' "$work/$name.products")" ""
    fi
    if [ "$name" = clip ]; then                         # the loss over all rows has a parameter of its own
        ok "$name: parameters in host memory: runs clean" run "$name" cuda gpipe "$stages" --offload params --unshard 1
        ok "$name: parameters in host memory: PyTorch's and the CPU's numbers" right "$name"
    fi
    rm -rf "$work/$name"*
}

cases=("$@")
[ $# -gt 0 ] || cases=("$top"/models/{doc-ts,example-ts,mlp-ts,gpt-ts,gpt-dyn,gptmask-ts,resnet-ts,mobilenet-ts,unet-ts,vit-dyn,encdec-ts}
    "$top"/models/special/{clip,features,graph,lossmodel,parts,routed,stopped,trips})
for dir in "${cases[@]}"; do
    dir=$(cd "$dir" && pwd)
    if [ -f "$dir/case.env" ]; then check; else ok "${dir##*/}: a case" false; fi
done
plan_done
