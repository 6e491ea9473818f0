#!/usr/bin/env bash
# The bytes that a run predicts for each rank are the bytes it then allocates for tensors, as count_alloc.so sees them;
# inside a step the program allocates nothing, and of the libraries only those named here do.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
[ -z "${SANITIZED:-}" ] || { skip "memory" "sanitizers count for themselves"; plan_done; exit; }
count=$build/tests/tools/count_alloc.so

predicted() { sed -n "s/^rank ${1:-[0-9]*} memory: \([0-9]*\) bytes.*/\1/p" log | awk '{ n += $1 } END { printf "%.0f", n }'; }
measured() { sed -n 's/^tensors //p' "$1"; }

check_report() {
    local name=$1 report=$2
    is "$name: no other block of the program is large" "$(awk '/^other/ && $2 > 262144' "$report")" ""
    is "$name: nothing is allocated inside a step" "$(awk '/^inside/ && $2 !~ /^(libgomp|libdnnl|libopenblas|libmpi|libopen-|mca_)/' "$report")" ""
}

memory() {
    local name=$1 split=$2; shift 2
    local dir=$top/models/$name data ranks m options r run
    . "$dir/case.env"
    case_data "$dir"
    m=$(((rows + mb - 1) / mb))
    rm -rf out
    ok "$name: splits and builds" split_model "$dir/model.onnx" out "$split" --loss "$loss" "$@"
    ranks=$(($(grep -c '<stage ' out/pipe.xml) * ${members:-1}))
    for options in "gpipe adamw" "1f1b sgd"; do
        set -- $options
        run=(out/pipeline train "${data[@]}" --data "target=$dir/target.npy" --microbatches "$m" --steps 7 --schedule "$1" --optimizer "$2" --output logits=y.npy)
        LD_PRELOAD=$count COUNT_ALLOC=report COUNT_ALLOC_STEPS=7 "${run[@]}" >log
        is "$name $options: $ranks ranks take what was predicted" "$(measured report)" "$(predicted)"
        check_report "$name $options" report
        command -v mpirun >/dev/null || continue
        [ "$1" = 1f1b ] || continue
        mpirun -n "$ranks" -x LD_PRELOAD="$count" -x COUNT_ALLOC=mpi. -x COUNT_ALLOC_STEPS=7 "${run[@]}" >log
        for ((r = 0; r < ranks; r++)); do
            is "$name $options mpi: rank $r takes what was predicted" "$(measured mpi.$r)" "$(predicted $r)"
        done
        check_report "$name $options mpi" mpi.0
    done
}

# W reads the gradient that came in where it came in.  The most that rank 0 holds: the stashes of two microbatches (1,600 bytes), an
# output (512) under way, and a gradient (512) for each of the two: a copy of it for W would be one more.
received_once() {
    local dir=$top/models/mlp-ts data schedule=InterleavedZeroBubble
    case_data "$dir"
    rm -rf out
    ok "mlp-ts: splits and builds" split_model "$dir/model.onnx" out blocks.1:begin --loss cross_entropy
    LD_PRELOAD=$count COUNT_ALLOC=report COUNT_ALLOC_STEPS=3 out/pipeline train "${data[@]}" --data "target=$dir/target.npy" \
        --microbatches 4 --steps 3 --schedule $schedule >log
    is "$schedule: gradients for W are held once" "$(sed -n 's/^rank 0 memory:.* activations \([0-9]*\),.*/\1/p' log)" $((2 * 1600 + 3 * 512))
    is "$schedule: ranks take what was predicted" "$(measured report)" "$(predicted)"
    check_report "$schedule" report
}

# With --every a copy of what is written is held too.
snapshot() {
    local dir=$top/models/mlp-ts data
    case_data "$dir"
    LD_PRELOAD=$count COUNT_ALLOC=report COUNT_ALLOC_STEPS=3 out/pipeline train "${data[@]}" --data "target=$dir/target.npy" \
        --microbatches 4 --steps 3 --optimizer adam --checkpoint ck --every 2 >log
    is "snapshots: ranks take what was predicted" "$(measured report)" "$(predicted)"
}

received_once
snapshot
memory gpt-ts h.0.mlp:begin,h.1:begin,h.1.mlp:end
members=2 memory gpt-ts h.1:begin --dtype bf16 --tensor 2
memory resnet-ts layer2:begin
memory example-ts markers
memory mobilenet-ts features.1:begin
plan_done
