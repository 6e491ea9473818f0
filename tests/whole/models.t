#!/usr/bin/env bash
# Laws 1 and 2 on every case of models/: loss, outputs and gradients agree with PyTorch's float64 numbers, and they are
# bit-identical whatever the split, the schedule, the number of ranks and the transport (MPI for every split of the example, and for the last
# one of each other case).  A case is a folder with case.env; see models/README.md.
. "$(dirname "$0")/../lib.sh"

# build CASE SPLIT MULTI OUT: SPLIT unmarked is a model with markers, not split at all
build_case() {
    local args=(--loss "$loss")
    if [ "$2" = unmarked ]; then
        "$build/tests/tools/rename" --unmark "$1/model.onnx" "$4.onnx" && split_model "$4.onnx" "$4" none "${args[@]}"
        return
    fi
    [ -z "$bind" ] || args+=(--bind "$bind")
    [ "$3" = transmit ] || args+=(--multi-use "$3")
    split_model "$1/model.onnx" "$4" "$2" "${args[@]}"
}

# run CASE OUT STAGES SCHEDULE TRANSPORT RUN: one step, gradients and outputs into RUN
run_case() {
    local dir=$1 out=$2 stages=$3 schedule=$4 transport=$5 run=$6 data cmd
    mkdir -p "$run"
    case_data "$dir"
    [ ! -e "$dir/batchnorm.safetensors" ] || data+=(--checkpoint "$run/checkpoint")
    cmd=("$out/pipeline" train "${data[@]}" --data "target=$dir/target.npy" --schedule "$schedule" --microbatches $(((rows + mb - 1) / mb))
         --steps 1 --optimizer sgd --lr 0 --dump-grads "$run/grads" --log-json "$run/log.json" --output "logits=$run/out.npy")
    if [ "$transport" = mpi ]; then
        mpirun -n "$stages" "${cmd[@]}"
    else
        "${cmd[@]}" --ranks "$stages"
    fi
}

# Loss, outputs and gradients are PyTorch's; so are the running statistics after the step.
right() {
    agrees "$2" "$1" 1e-4 "$folded" || return
    [ ! -e "$1/batchnorm.safetensors" ] || "$compare" grads "$2/checkpoint/step_1" "$1/batchnorm.safetensors"
}

# The judge sees one wrong bit: of a gradient, of an output; and one wrong number.
judge_sees() {
    local dir=$1 run=$2 file=$2/grads/stage0.safetensors
    for f in "$file" "$run/out.npy"; do
        flip "$f" -4
        ! same_bits "$first" "$run" >/dev/null || { echo "a changed bit of $f goes unnoticed"; return 1; }
        flip "$f" -4
        flip "$f" -1
        ! right "$dir" "$run" >/dev/null || { echo "a changed number of $f goes unnoticed"; return 1; }
        flip "$f" -1
    done
    sed -i 's/"loss": /"loss": 1/' "$run/log.json"
    ! right "$dir" "$run" >/dev/null || { echo "a changed loss goes unnoticed"; return 1; }
}

check_case() {
    local dir=$1 name=${1##*/} split multi schedule transport out run stages points first="" n=0
    shared='' folded='' bind=''
    . "$dir/case.env"
    set -- none $splits
    [ "$splits" = markers ] && set -- unmarked markers
    for split; do
        points=${split//[^,]/}
        stages=$((${#points} + 2))
        [ "$split" = none ] || [ "$split" = unmarked ] && stages=1
        [ "$split" = markers ] && stages=3
        for multi in transmit replicate; do
            [ -n "$shared" ] && [ $stages -gt 1 ] || [ $multi = transmit ] || continue
            out=$work/$name.$((n += 1))
            ok "$name [$split] $multi: splits and builds" build_case "$dir" "$split" $multi "$out"
            for schedule in gpipe 1f1b; do
                for transport in local mpi; do
                    [ $transport = local ] || [ "$name" = example-ts ] || { [ $schedule = 1f1b ] && [ "$split" = "${*: -1}" ]; } || continue
                    [ $transport = local ] || command -v mpirun >/dev/null || continue
                    [ $stages -gt 1 ] || { [ $schedule = gpipe ] && [ $transport = local ]; } || continue
                    run=$out.$schedule.$transport
                    ok "$name [$split] $multi $schedule $transport: runs" run_case "$dir" "$out" $stages $schedule $transport "$run"
                    ok "$name [$split] $multi $schedule $transport: agrees with PyTorch" right "$dir" "$run"
                    first=${first:-$run}
                    [ "$first" = "$run" ] || ok "$name [$split] $multi $schedule $transport: the first run's bits" same_bits "$first" "$run"
                done
            done
        done
    done
    [ "$name" != doc-ts ] || [ "$run" = "$first" ] || ok "$name: the judge sees one wrong bit" judge_sees "$dir" "$run"
}

cases=("$@")
[ $# -gt 0 ] || cases=("$top"/models/*/)
for dir in "${cases[@]}"; do
    [ -f "${dir%/}/case.env" ] && check_case "${dir%/}"
done
plan_done
