#!/usr/bin/env bash
# --dtype: in half precision, too, loss, outputs and gradients are bit-identical whatever the split and the schedule, and they are
# PyTorch's float64 numbers to what 8 or 11 bits allow; parameters, their gradients and the model's outputs stay float32.
. "$(dirname "$0")/../lib.sh"
dir=$top/models/mlp-ts
. "$dir/case.env"
case_data "$dir"

run_half() {
    "$1/pipeline" train "${data[@]}" --data "target=$dir/target.npy" --schedule "$2" --microbatches $(((rows + mb - 1) / mb)) --ranks "$3" \
        --steps 1 --optimizer sgd --lr 0 --dump-grads "$4/grads" --log-json "$4/log.json" --output "logits=$4/out.npy"
}
same() { same_bits "$1" "$2" && same_losses "$1/log.json" "$2/log.json"; }

check_half() {
    local type=$1 tolerance=$2 split=$3 base=$work/$1.none out=$work/$1.split run=$work/$1
    ok "$type: splits and builds" eval 'split_model "$dir/model.onnx" "$base" none --loss "$loss" --dtype '"$type"' &&
        split_model "$dir/model.onnx" "$out" "$split" --loss "$loss" --dtype '"$type"
    mkdir -p "$run.none" "$run.gpipe" "$run.1f1b"
    ok "$type: in one stage" run_half "$base" gpipe 1 "$run.none"
    ok "$type: gradients are PyTorch's within $tolerance" "$compare" grads "$run.none/grads" "$dir/grads.safetensors" "$tolerance"
    for schedule in gpipe 1f1b; do
        ok "$type: split, $schedule" run_half "$out" $schedule 2 "$run.$schedule"
        ok "$type: the same bits, $schedule" same "$run.none" "$run.$schedule"
    done
}
check_half bf16 5e-2 blocks.1:begin
check_half f16 1e-2 blocks.1:begin

# The logits in float32 are the user's alone: without --output they have no place, and nothing else changes.
is "an output that only the user reads" "$(grep -c 'logits; NULL: not asked for' "$work/bf16.none/stage0.c") $(grep -c '\.optional = 1' "$work/bf16.none/pipeline.c")" "2 1"
ok "nobody asks for it" "$work/bf16.none/pipeline" train "${data[@]}" --data "target=$dir/target.npy" --ranks 1 --steps 1 --optimizer sgd --lr 0 \
    --schedule gpipe --microbatches $(((rows + mb - 1) / mb)) --dump-grads "$work/quiet" --log-json "$work/quiet.json"
ok "the same bits" "$compare" same "$work/quiet" "$work/bf16.none/grads"

# A NaN of any bits stays one: this one's would be rounded to -0 as if it were a number.
cp "$dir"/in.x.npy "$work/nan.npy" && printf '\377\377\377\177' | dd of="$work/nan.npy" bs=1 seek=$(($(stat -c %s "$work/nan.npy") - 4)) conv=notrunc status=none
ok "a NaN of all bits goes in" "$work/bf16.none/pipeline" infer --data "x=$work/nan.npy" --microbatches 4 --ranks 1 --output "logits=$work/nan.out.npy"
is "and a NaN comes out" "$(od -v -An -tx4 -w4 "$work/nan.out.npy" | tail -1 | grep -cE '[7f]f[c-f]')" 1

# A parameter that does not train, used in two stages: its half copy stands beside it in each, and none is sent.
ok "a frozen parameter of two stages" "$ppsplit" -q "$top/models/example-ts/model.onnx" --loss mse --dtype bf16 --freeze mm_param -o "$work/frozen"
is "its half copy is not sent" "$(grep -c '<edge .*dtype="bf16" shape="64,64"' "$work/frozen/pipe.xml")" 0

# A model of a half type trains in it, with master weights in float32, and is merged back in its own type; its data may be in another
# file, a parameter tied, used twice, transposed, frozen, a running statistic.  PyTorch's numbers are of its own half model.
own=$top/models/special/half
own_run() { "$1/pipeline" "$2" --data "x=$own/in.x.npy" --microbatches "${own_chunks:-1}" --output "logits=$3" "${@:4}"; }
own_types() { "$ppsplit" -q "$1" --dump import | grep -v '^# '; }
check_own() {
    local type=$1 tolerance=$2 out=$work/own.$1 again=$work/again.$1 run=$work/run.$1
    mkdir -p "$run"
    ok "own $type: splits and builds" split_model "$own/$type.onnx" "$out" b:begin --loss cross_entropy --freeze offset
    ok "own $type: trains" own_run "$out" train "$run/out.npy" --data "target=$own/target.npy" --ranks 2 --steps 1 --optimizer sgd --lr 0.1 \
        --loss-scale 1 --dump-grads "$run/grads" --checkpoint "$run/ck"
    ok "own $type: outputs are PyTorch's" "$compare" npy "$run/out.npy" "$own/$type.npy" "$tolerance"
    ok "own $type: gradients are PyTorch's" "$compare" grads "$run/grads" "$own/$type.safetensors" "$tolerance"
    ok "own $type: merges" "$ppsplit" merge "$out" "$run/ck" -o "$run/trained.onnx"
    is "own $type: the same names and types" "$(own_types "$run/trained.onnx")" "$(own_types "$own/$type.onnx")"
    ok "own $type: the merged model in one stage, linked" split_model "$run/trained.onnx" "$again" none --params link \
        --loss cross_entropy --freeze offset
    ok "own $type: the pipeline infers" own_run "$out" infer "$run/a.npy" --ranks 2 --params "$run/ck"
    ok "own $type: the merged model infers" own_run "$again" infer "$run/b.npy" --ranks 1
    ok "own $type: the same bits" cmp "$run/a.npy" "$run/b.npy"
    local own_chunks=3 more=(--data "target=$own/target.npy" --steps 1 --optimizer sgd --lr 0 --loss-scale 1 --quiet)
    ok "own $type: the pipeline trains on" own_run "$out" train "$run/a.npy" --ranks 2 --params "$run/ck" "${more[@]}" --dump-grads "$run/a"
    ok "own $type: the merged model trains on" own_run "$again" train "$run/b.npy" --ranks 1 "${more[@]}" --dump-grads "$run/b"
    ok "own $type: the same bits of gradients" "$compare" same "$run/a" "$run/b"
    is "own $type: another type is refused" "$("$ppsplit" -q "$own/$type.onnx" --dtype f32 -o "$run/no" 2>&1 | sed 's/.*error: //')" \
        "--dtype f32: the model reads parameter 'emb.weight' in $type
hint: leave out --dtype; or export the model in float32"
}
check_own f16 3e-3
check_own bf16 3e-2
is "what crosses the cut is half" "$(grep -c '<edge .*dtype="bf16".*kind="activation"' "$work/bf16.split/pipe.xml")" 1

# A loop over the roundings of a half type becomes vectors, as own kernels need: gcc says which loops did.
cat >"$work/loop.c" <<'END'
#include "pp_half.h"
#define LOOP(type)                                                                                 \
    void in_##type(long n, const uint16_t *x, uint16_t *y)                                         \
    {                                                                                              \
        _Pragma("omp simd") for (long j = 0; j < n; j++)                                           \
        {                                                                                          \
            const float a = pp_from_##type(x[j]), b = pp_round_##type(a * a);                      \
            y[j] = pp_pack_##type(pp_round_##type(pp_tanhf(b) + a));                               \
        }                                                                                          \
    }
LOOP(bf16)
LOOP(f16)
END
if [ "$(uname -m)" = x86_64 ] && "${CC:-cc}" --version | grep -q "Free Software"; then
    is "loops over half types become vectors" "$("${CC:-cc}" -std=gnu11 -O3 -march=x86-64-v3 -ffp-contract=off -fno-math-errno -fno-trapping-math \
        -fopenmp -I"$top/runtime/api" -fopt-info-vec-optimized -c -o "$work/loop.o" "$work/loop.c" 2>&1 | grep -c '32 byte vectors')" 2
else
    skip "loops over half types become vectors" "gcc says so, of x86-64"
fi
plan_done
