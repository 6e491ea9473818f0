#!/usr/bin/env bash
# Pipeline bugs that others' users have reported, as small models: loss, outputs and gradients are PyTorch's in float64, and the same bits
# for every cut, schedule and number of ranks.  A case is a folder whose case.env names the threads and says what went wrong there;
# make.py made them.  KNOWN=all, as `make known` has it: each cut under each schedule; else one schedule a cut, in turns.
. "$(dirname "$0")/../lib.sh"
schedules=(1f1b zb-h1 gpipe)                             # a rank for each stage
folded_schedules=(interleaved1f1b loopedbfs zb-v)        # half as many

# step OUT RUN RANKS SCHEDULE [REPLICAS [OPTION...]]: one step, gradients and outputs into RUN
step() {
    local out=$1 run=$2 ranks=$3 schedule=$4 dp=${5:-1}
    mkdir -p "$run"
    "$out/pipeline" train "${data[@]}" --data "target=$dir/target.npy" --ranks "$ranks" --schedule "$schedule" --dp "$dp" --microbatches $(((rows + mb - 1) / mb / dp)) \
        --steps 1 --optimizer sgd --lr 0 --dump-grads "$run/grads" --log-json "$run/log.json" --output "logits=$run/out.npy" --quiet "${@:6}"
}
right() { [ -n "$random" ] || agrees "$1" "$dir" 1e-4; }
same() { same_bits "$work/$case.whole" "$1"; }

# build SPLIT OUT [OPTION...]
build() { split_model "$dir/model.onnx" "$2" "$1" --loss "$loss" $extra "${@:3}"; }

turn=0
for dir in "$top"/tests/known/*/; do
    dir=${dir%/} case=${dir##*/} extra='' random=''                 # `ok' has a name of its own
    . "$dir/case.env"
    case_data "$dir"
    ok "$case ($report): builds whole" build none "$work/$case"
    numbers="PyTorch's numbers"
    [ -z "$random" ] || numbers="a step"                 # PyTorch draws other numbers
    ok "$case: $numbers" eval 'step "$work/$case" "$work/$case.whole" 1 1f1b && right "$work/$case.whole"'
    for split in $splits; do
        points=${split//[^,]/} stages=$((${#points} + 2)) out=$work/$case.$stages
        ok "$case [$split]: builds" build "$split" "$out"
        ways=("${schedules[@]/#/$stages }")
        [ $stages != 4 ] || ways+=("${folded_schedules[@]/#/2 }")
        [ "${KNOWN:-}" = all ] || ways=("${ways[turn++ % ${#ways[@]}]}")
        for way in "${ways[@]}"; do
            read -r ranks schedule <<<"$way"
            run=$out.$schedule
            ok "$case [$split] $schedule on $ranks: $numbers" eval 'step "$out" "$run" "$ranks" "$schedule" && right "$run"'
            # LoopedBFS takes microbatches in an order of its own: docs/numbers.md
            [ "$schedule" = loopedbfs ] || ok "$case [$split] $schedule on $ranks: the same bits" same "$run"
        done
    done
    case $case in
    tied)                                                # a copy in each stage, its gradients summed
        ok "$case, replicated: builds" build "${split%%,*}" "$out.copies" --multi-use replicate
        ok "$case, replicated: PyTorch's numbers, the same bits" eval 'step "$out.copies" "$out.run" 2 1f1b && right "$out.run" && same "$out.run"' ;;
    masked-tokens | digits)                              # replicas count what counts in all of them, under any schedule, and divide what they keep
        ok "$case, two replicas: PyTorch's numbers" eval 'step "$out" "$out.dp" $((2 * stages)) zb-h1 2 --zero 3 && right "$out.dp"' ;;
    rope)                                                # layers divided, and the cross entropy: the bits of one member
        ok "$case, divided in two: builds" eval 'build "${split%%,*}" "$out.two" --tensor 2 && build none "$out.one" --tensor 1 --chunks 2'
        ok "$case, divided in two: PyTorch's numbers" eval 'step "$out.one" "$work/$case.whole" 1 1f1b && step "$out.two" "$out.run" 4 1f1b && right "$out.run"'
        ok "$case, divided in two: the same bits" same "$out.run" ;;
    dropout)
        ok "$case: drawn by the seed" eval 'data+=(--seed 7) && step "$out" "$out.seed" $stages 1f1b && ! same "$out.seed"' ;;
    resumed)                                             # before the first step an evaluation; the third step is of another cut, or of two replicas
        on() { "$1/pipeline" train "${data[@]}" --data "target=$dir/target.npy" --groups 2 --microbatches 2 --optimizer adamw --lr 0.01 --quiet "${@:2}"; }
        check=(--eval-data "ids=$dir/in.ids.npy" --eval-data "target=$dir/target.npy" --eval-every 1)
        last() { grep -v eval_loss "$1" | tail -n 1 | grep -o '"loss": [^,]*'; }
        ok "$case: three steps" on "$out" --steps 3 --checkpoint "$out.whole" --log-json "$out.json"
        ok "$case: two, with evaluations" on "$out" --steps 2 --checkpoint "$out.two" "${check[@]}"
        ok "$case: an evaluation" "$out/pipeline" eval "${data[@]}" --data "target=$dir/target.npy" --params "$out.two" --quiet
        ok "$case: the third, whole" on "$work/$case" --steps 3 --resume "$out.two" --checkpoint "$out.third" --log-json "$out.third.json"
        ok "$case: the third, of two replicas" on "$out" --dp 2 --ranks 4 --zero 2 --steps 3 --resume "$out.two" --checkpoint "$out.dp" --log-json "$out.dp.json"
        for other in third dp; do
            ok "$case: the same bits ($other)" "$compare" same "$out.whole/step_3" "$out.$other/step_3"
            is "$case: the same loss ($other)" "$(last "$out.$other.json")" "$(last "$out.json")"
        done ;;
    experts)
        ok "$case, divided in two: builds" build "${split%%,*}" "$out.expert" --expert 2
        ok "$case, divided in two: PyTorch's numbers" eval 'step "$out.expert" "$out.expert.run" 4 1f1b && right "$out.expert.run"' ;;
    esac
    rm -rf "$work/$case"*
done
is "docs/known-bugs.md has each case" "$(grep '^| [a-z-]* | [^ ]*#' "$top/docs/known-bugs.md")" "$(
    for dir in "$top"/tests/known/*/; do ( . "$dir/case.env"; echo "| $(basename "$dir") | $report | $wrong |" ); done)"
plan_done
