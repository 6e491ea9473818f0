# members.sh - what divides a rank among members trains a GPT: its data, and how a run is made and compared.  Source it.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
cd "$top/models/gpt-ts" || exit 1
. ./case.env
case_data .

# run OUT TO ARGUMENT...: trains into $work/TO
run() {
    local out=$work/$1 to=$work/$2; shift 2
    "$out/pipeline" train "${data[@]}" --data target=target.npy --optimizer adamw --lr 0.01 --clip-norm 0.5 --threads 1 --checkpoint "$to" \
        --log-json "$to.log" "$@"
}

# same A B STEP: the checkpoints of two runs
same() { "$compare" same "$work/$1/step_$3" "$work/$2/step_$3"; }
