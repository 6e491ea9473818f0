#!/usr/bin/env bash
# Ranks of several members (runtime/net/collective.c): a program written by hand (members_plan.c) on threads, under MPI and, under the CUDA shim, on devices:
# every collective against numbers computed directly, whenever members come to it; training gives the same bits for 1, 2 and 4 members, under every schedule, with replicas;
# what ends is said with the collective and its ranks.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
build_program() {
    cp "$top/codegen/write/pipeline.mk" Makefile && cp "$top/tests/runtime/members_plan.c" pipeline.c && : >stage0.cu && CPATH=$top make_shim . && mv pipeline-shim program
}
command -v "$cxx" >/dev/null || { skip "members" "no C++ compiler"; plan_done; exit; }
ok "builds" build_program
[ -x program ] || { plan_done; exit; }
mpi=
! command -v mpicc >/dev/null || ! command -v mpirun >/dev/null || mpi=1
export OMP_NUM_THREADS=1 SHIM_LINES=0

# ---- each collective, uneven pieces and rows, whenever members come to it ----

# collectives OPTION... -- COMMAND...: its outputs are x, or the sum of all members' parts of it.
collectives() {
    local file options=(--data "x=data$T/x.npy" --batch 4 --microbatches 2)
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    for file in sum scattered gathered there_and_back between; do options+=(--output "$file=$file.npy"); done
    rm -f ./*.npy
    timeout $patience "${@:2}" infer "${options[@]}" >out 2>err || { cat err; return 1; }
    cmp sum.npy "data$T/sum.npy" && cmp scattered.npy "data$T/sum.npy" && cmp gathered.npy "data$T/x.npy" && cmp there_and_back.npy "data$T/x.npy" &&
        cmp between.npy "data$T/x.npy"
}
for T in 2 3 4; do
    export T
    ./program write data$T
    ok "$T members: threads" collectives --device cpu -- ./program
    ok "$T members: threads, delays" collectives --device cpu -- env DELAYS=$T ./program
    [ -z "$mpi" ] || ok "$T members: mpi, delays" collectives --device cpu -- mpirun --oversubscribe -n $((2 * T)) env DELAYS=1 ./program
    for order in lazy random:$T; do
        ok "$T members: one device, $order" collectives -- env SHIM_ORDER=$order ./program
        ok "$T members: nccl, $order" collectives --transport nccl -- env SHIM_DEVICES=8 SHIM_ORDER=$order ./program
    done
done
[ -z "$mpi" ] || T=2 ok "2 members: devices of processes, through the host" collectives -- mpirun --oversubscribe -n 4 ./program

# ---- training: the same bits, whatever T, the schedule and the number of replicas ----

# train COMMAND...: outputs, the loss of each step
train() {
    timeout $patience "$@" --data "x=data4/train.npy" --data "target=data4/target.npy" --params data4 --batch 11 --microbatches 3 --steps 3 --lr 0.1 --schedule $schedule \
        --output y=y.npy --log-json log >out 2>err || { cat err; return 1; }
    { cksum <y.npy; grep -o '"loss": [^,]*' log; } >numbers
}
trained() { train "$@" && diff first numbers; }
export PLAN=train
schedule=1f1b
T=1 ok "training without members" train ./program train --dp 2 --ranks 4
mv numbers first
# Every schedule that trains, with members that come late: pipelines of two ranks, or of one with both stages, whose compounds' halves run at the same time.
every=$("$ppsplit" help schedule | sed -n '/^NAME is/,/forward-only/s/^  \([a-z0-9-]*\) .*/\1/p' | grep -v forward-only)
number=0
for schedule in $every; do
    number=$((number + 1)) ranks=2
    "$ppsplit" schedule "$schedule" --ranks 2 --stages 2 --microbatches 3 >/dev/null 2>&1 || ranks=1
    export T=$((2 + number % 2 * 2)) DELAYS=$number
    ok "$T members, $schedule on $ranks" trained ./program train --ranks $((ranks * T)) --groups 2 --threads 2
    case $schedule in
    1f1b) more="8 ./program train --dp 2" T=2 ;;
    dualpipev) more="4 ./program train --groups 2 --threads 2" T=4 ;;
    *) more= ;;
    esac
    [ -z "$mpi" ] || [ -z "$more" ] || ok "$T members, $schedule, mpi" trained mpirun --oversubscribe -n $more
done
ok "all of them" test $number -ge 15
unset DELAYS

# ---- what is said, evaluation between steps ----

schedule=1f1b
both() { train "$@" --trace trace.json --eval-data x=data4/train.npy --eval-data target=data4/target.npy --eval-every 1; }
T=1 ok "an evaluation after each step" both ./program train --ranks 2
grep -o '"eval_loss": [^,]*' log >first
T=2 ok "2 members: likewise" both ./program train --ranks 4
is "2 members: the same losses" "$(grep -o '"eval_loss": [^,]*' log)" "$(cat first)"
is "a line a member in the trace" "$(grep -o '"rank [^"]*"' trace.json | sort | tr '\n' ' ')" '"rank 0" "rank 0, member 1" "rank 1" "rank 1, member 1" '
is "a drawing has the first one's" "$("$ppsplit" schedule trace.json --svg t.svg && grep -c '<title>[01][FB]' t.svg)" 12
is "what collectives are and send is said" "$(grep '^collectives' out)" "collectives: at most 4 of a rank in a step, 288 bytes sent by it"

# ---- refusals, ends ----

T=2
is "ranks" "$(./program infer --data x=data2/x.npy --ranks 3 2>&1 | head -n 1)" "pipeline: error: 3 ranks: each stage is divided among 2 members (ppsplit --tensor, --sequence, --expert), so their number must be a multiple of 2: use 4 for a pipeline of 2 ranks"
is "ranks of replicas" "$(./program train --dp 2 --ranks 6 2>&1 | head -n 1)" \
    "pipeline: error: 6 ranks: each stage is divided among 2 members (ppsplit --tensor, --sequence, --expert), and --dp 2, so their number must be a multiple of 4: use 8 for a pipeline of 2 ranks"
is "more than stages" "$(./program train --data "x=data4/train.npy" --data "target=data4/target.npy" --ranks 6 2>&1)" \
    "pipeline: error: 6 ranks make pipelines of 3, which are more than the model's 2 stages: use 4, or --dp N for N times as many, or split into more stages"
unset PLAN
STOPS=fail collectives --device cpu -- ./program >/dev/null
is "a member fails: said once" "$(sed 's/microbatch ./microbatch M/' err)" "pipeline: error: member 1 fails by hand"
if [ -n "$mpi" ]; then
    began=$SECONDS
    STOPS=die collectives --device cpu -- mpirun --oversubscribe -n 4 ./program >/dev/null
    ok "a member dies: the job ends" test $((SECONDS - began)) -lt 60
    STOPS=hang collectives --device cpu --watchdog 5 -- mpirun --oversubscribe -n 4 ./program >/dev/null
    is "a member hangs: it is named, and who waits for it" "$(sed -n 's/ on [^ ]* / on HOST /; s/for [0-9]* s:/for N s:/; s/^\(pipeline: error: .*\); the last actions .*/\1/p' err)" \
        "pipeline: error: rank 3 (replica 0, pipe 1, member 1) on HOST has not moved on for N s: it is in step 2, action 1F0 of stage 1, microbatch 0, which has begun; \
rank 2 (replica 0, pipe 1, member 0) waits for it in the reduce-scatter of 'scattered' in stage 1, of ranks 2 to 3"
fi
plan_done
