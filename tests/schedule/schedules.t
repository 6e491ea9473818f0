#!/usr/bin/env bash
# Every schedule trains, over any number of ranks, with skips, shared parameters and uneven chunks, to the bits of gpipe on one
# rank after two steps of Adam (LoopedBFS visits microbatches in another order: compared with PyTorch's numbers instead).  Live
# microbatches are as many as planned.  Recompute, --until, --trace and the last partial step too.
. "$(dirname "$0")/../lib.sh"

schedules="gpipe 1f1b interleaved1f1b loopedbfs interleavedzerobubble zbvzerobubble dualpipev zb-h1 zb-h2 gis-h"

# prepare CASE NAME OPTIONS...: splits and builds
prepare() {
    local case=$top/models/$1 name=$2; shift 2
    . "$case/case.env"
    "$ppsplit" -q "$case/model.onnx" --loss "$loss" "$@" -o "$work/$name" && make_pipeline "$work/$name"
}

# data CASE: --data options
data() {
    local f
    for f in "$top/models/$1"/in.*.npy; do
        f=${f##*/in.}
        echo --data "${f%.npy}=$top/models/$1/in.$f"
    done
    echo --data "target=$top/models/$1/target.npy"
}

# run NAME CASE TRANSPORT RANKS SCHEDULE MICROBATCHES OUT OPTIONS...
run() {
    local name=$1 case=$2 transport=$3 ranks=$4 schedule=$5 m=$6 out=$7; shift 7
    rm -rf "$out"; mkdir -p "$out"
    local cmd=("$work/$name/pipeline" train $(data "$case") --schedule "$schedule" --microbatches "$m" --steps 2 --optimizer adam --lr 0.01
               --clip-norm 0.5 --dump-grads "$out/grads" --checkpoint "$out/checkpoint" --output "logits=$out/out.npy" --verbose "$@")
    if [ "$transport" = mpi ]; then
        mpirun -n "$ranks" "${cmd[@]}" >"$out/log"
    else
        "${cmd[@]}" --ranks "$ranks" >"$out/log"
    fi
}

same() { same_bits "$1" "$2" && "$compare" same "$1/checkpoint/step_2" "$2/checkpoint/step_2"; }

# What the executor counted and the plan: `rank R live microbatches: N at most`
live() {
    awk '/live microbatches:/ { n++; ran[$2] = $5 }
         /memory:/ { for (i = 1; i <= NF; i++) if ($i == "microbatches") plan[$2] = $(i + 1) }
         END { for (r in ran) bad += ran[r] != plan[r]; exit bad || n == 0 }' "$1"
}

# every NAME CASE MICROBATCHES STAGES RANKS...
every() {
    local name=$1 case=$2 m=$3 stages=$4 ranks schedule transport; shift 4
    ok "$name: gpipe on one rank" run "$name" "$case" local 1 gpipe "$m" "$work/first"
    ok "$name: PyTorch's gradients" "$compare" grads "$work/first/grads" "$top/models/$case/grads.safetensors"
    for ranks; do
        for schedule in $schedules; do
            case $schedule in
            gis*) [ $((stages % ranks)) -eq 0 ] && [ $((m % ((ranks + 1) / 2))) -eq 0 ] || continue ;;
            interleaved*|loopedbfs) [ $((stages % ranks)) -eq 0 ] || continue ;;
            zbv*|dualpipev|v-*|1f1b-v) [ "$stages" -eq $((2 * ranks)) ] || continue ;;
            esac
            [ $schedule != dualpipev ] || [ "$m" -ge $((2 * ranks)) ] || continue
            ok "$name: $schedule on $ranks ranks" run "$name" "$case" local "$ranks" $schedule "$m" "$work/other"
            if [ $schedule = loopedbfs ]; then
                ok "$name: $schedule on $ranks ranks, PyTorch's gradients" "$compare" grads "$work/other/grads" "$top/models/$case/grads.safetensors"
            else
                ok "$name: $schedule on $ranks ranks, the same bits" same "$work/first" "$work/other"
            fi
            ok "$name: $schedule on $ranks ranks, live microbatches" live "$work/other/log"
        done
    done
}

# ---- skips, shared parameters and buffers, several stages a rank ----

ok "example: builds" prepare example-ts example
every example example-ts 5 3 2 3
ok "example, replicated: builds" prepare example-ts replicated --multi-use replicate
schedules="1f1b zb-h1 interleavedzerobubble" every replicated example-ts 5 3 2 3
ok "encdec: builds" prepare encdec-ts encdec --split encoder.1:begin --split decoder.0:begin --split decoder.1:begin
every encdec encdec-ts 8 4 2 4
ok "unet: builds" prepare unet-ts unet --split d2:begin --split mid:begin --split u1:begin
schedules="interleaved1f1b dualpipev zbvzerobubble v-half auto" every unet unet-ts 4 4 2
ok "mlp: builds" prepare mlp-ts mlp --split blocks.1:begin --split blocks.2:begin --split head:begin
schedules="1f1b zb-h2 zbvzerobubble 1f1b-v auto" every mlp mlp-ts 4 4 2
ok "mlp: auto says what it chose" grep -q '^schedule auto: [a-z0-9-]* ([a-z]*), the shortest of [0-9]* compared by their operations: ' "$work/other/log"
ok "mlp: auto on 4 processes, within memory" run mlp mlp-ts mpi 4 auto 4 "$work/other" --memory 90K
ok "mlp: the same bits" same "$work/first" "$work/other"
ok "mlp: traced" run mlp mlp-ts local 4 1f1b 4 "$work/other" --trace "$work/mlp.json"
# All ranks' times are of one clock: no forward begins before the one whose result it reads has ended.
early() {
    sed -n 's/.*"name":"\([0-9]*\)F\([0-9]*\)",.*"ts":\([0-9.]*\),"dur":\([0-9.]*\),"args":{"step":\([0-9]*\),.*/\5 \2 \1 \3 \4/p' "$1" | sort -k1,1n -k2,2n -k3,3n |
        awk '$3 > 0 && (before != $1 " " $2 " " $3 - 1 || $4 < ends - 0.002) { early++ } { before = $1 " " $2 " " $3; ends = $4 + $5 } END { print NR, early + 0 }'
}
is "mlp: the trace has a stage's forward after that of the stage before" "$(early "$work/mlp.json")" "32 0"
ok "mlp: auto by its times" run mlp mlp-ts local 4 auto 4 "$work/other" --costs "$work/mlp.json"
ok "mlp: the same bits by its times" same "$work/first" "$work/other"
is "mlp: auto without memory" "$(run mlp mlp-ts local 4 auto 4 "$work/other" --memory 10K 2>&1 | sed 's/[0-9]* bytes/N bytes/')" "pipeline: error: auto: no schedule of 4 stages on 4 ranks fits the memory: the one that takes least, gpipe, does not: rank 0 takes N bytes"
ok "resnet: builds" prepare resnet-ts resnet --split layer1:begin --split layer2:begin --split fc:begin
schedules="1f1b interleaved1f1b zb-h1 zbvzerobubble" every resnet resnet-ts 2 4 2

# ---- parameters travel once a step; a V turns without a message ----

events() { grep -c "\"name\":\"$2\"" "$1"; }
ok "example: traced" run example example-ts local 3 1f1b 5 "$work/other" --trace "$work/trace.json"
is "mm_param goes to stage 1 once a step" "$(events "$work/trace.json" 0SEND_P@1)" 2
is "and its gradient comes back once a step" "$(events "$work/trace.json" 1SEND_GP@0)" 2
is "activations go once a microbatch" "$(events "$work/trace.json" '0SEND_F[0-9]')" 10
ok "unet: traced" run unet unet-ts local 2 zbvzerobubble 4 "$work/other" --trace "$work/trace.json"
is "unet: stage 1 hands over to stage 2 on its rank without a message" "$(events "$work/trace.json" '1SEND_F[0-9]')" 0

# ---- replicas of the pipeline: the same bits whatever the schedule, ranks, transport and buckets ----

ok "example: two replicas on a rank each" run example example-ts local 2 gpipe 3 "$work/first" --dp 2
for how in "6 1f1b" "4 zb-h1"; do
    ok "example: two replicas, $how" run example example-ts local $how 3 "$work/other" --dp 2 --bucket 128
    ok "example: two replicas, $how, the same bits" same "$work/first" "$work/other"
done
ok "example, replicated: two replicas" run replicated example-ts local 6 1f1b 3 "$work/other" --dp 2
ok "example, replicated: two replicas, the same bits" same "$work/first" "$work/other"
ok "encdec: three replicas, uneven" run encdec encdec-ts local 3 gpipe 2 "$work/first" --dp 3
ok "encdec: three replicas, interleaved" run encdec encdec-ts local 6 interleaved1f1b 2 "$work/other" --dp 3
ok "encdec: three replicas, interleaved, the same bits" same "$work/first" "$work/other"
if command -v mpirun >/dev/null; then
    ok "encdec: three replicas over mpi" run encdec encdec-ts mpi 6 1f1b 2 "$work/other" --dp 3 --bucket 1000
    ok "encdec: three replicas over mpi, the same bits" same "$work/first" "$work/other"
    ok "encdec: three replicas over mpi that divide the parameters" run encdec encdec-ts mpi 6 1f1b 2 "$work/other" --dp 3 --zero 3
    ok "encdec: three replicas over mpi that divide the parameters, the same bits" same "$work/first" "$work/other"
fi
ok "resnet: two replicas" run resnet resnet-ts local 4 1f1b 1 "$work/first" --dp 2
ok "resnet: two replicas, one rank each, replica 0's statistics" run resnet resnet-ts local 2 gpipe 1 "$work/other" --dp 2
ok "resnet: two replicas, the same bits" same "$work/first" "$work/other"

# ---- mpi ----

if command -v mpirun >/dev/null; then
    ok "example: gpipe" run example example-ts local 3 gpipe 5 "$work/first"
    ok "example: zb-h1 over mpi" run example example-ts mpi 3 zb-h1 5 "$work/other"
    ok "example: zb-h1 over mpi, the same bits" same "$work/first" "$work/other"
    ok "encdec: gpipe" run encdec encdec-ts local 2 gpipe 8 "$work/first"
    for schedule in interleaved1f1b zbvzerobubble dualpipev; do
        ok "encdec: $schedule over mpi" run encdec encdec-ts mpi 2 $schedule 8 "$work/other"
        ok "encdec: $schedule over mpi, the same bits" same "$work/first" "$work/other"
    done
else
    skip "schedules over mpi" "no mpirun"
fi

# ---- recompute: running statistics move once, the stash lives from R to its last reader ----

printf '%s\n' 0F0,1F0,0F1,1F1,1R0,1B0,0R0,0B0,1B1,0R1,0B1 2F0,3F0,2F1,3F1,3R0,3B0,2R0,2I0,3B1,2R1,2I1,2W0,2W1 >"$work/recompute.csv"
sed 's/[0-9]R[0-9],//g' "$work/recompute.csv" >"$work/kept.csv"
ok "resnet: gpipe" run resnet resnet-ts local 1 gpipe 2 "$work/first"
ok "resnet: a file with recompute" run resnet resnet-ts local 2 "$work/recompute.csv" 2 "$work/other"
ok "resnet: recompute, the same bits" same "$work/first" "$work/other"
ok "resnet: the same file without" run resnet resnet-ts local 2 "$work/kept.csv" 2 "$work/first"
activations() { sed -n 's/^rank 0 plan: activations and work \([0-9]*\) .*/\1/p' "$1/log"; }
ok "resnet: recompute takes less memory" test "$(activations "$work/other")" -lt "$(activations "$work/first")"

# ---- stashes on the host between F and backward ----

moved() { awk '/^rank . offload:/ { n += $4 } END { print n + 0 }' "$1/log"; }
away=(--offload stash --offload-dir "$work")
ok "resnet: gpipe" run resnet resnet-ts local 1 gpipe 2 "$work/first"
ok "resnet: gpipe, all stashes in a file" run resnet resnet-ts local 1 gpipe 2 "$work/other" "${away[@]}" --offload-time 0.1
ok "resnet: the same bits" same "$work/first" "$work/other" ""
ok "encdec: gpipe" run encdec encdec-ts local 1 gpipe 8 "$work/first"
for schedule in gpipe 1f1b interleaved1f1b zbvzerobubble dualpipev gis-h; do
    ok "encdec: $schedule, stashes in a file" run encdec encdec-ts local 2 $schedule 8 "$work/other" "${away[@]}" --offload-time 0.25 --trace "$work/trace.json"
    ok "encdec: $schedule, stashes in a file, the same bits" same "$work/first" "$work/other" emb.weight
    ok "encdec: $schedule, live microbatches are those planned" live "$work/other/log"
    is "encdec: $schedule, a line of the trace for each copy" "$(events "$work/trace.json" '[0-9]*OFFLOAD[0-9]*') $(events "$work/trace.json" '[0-9]*FETCH[0-9]*')" \
        "$(($(moved "$work/other") * 2)) $(($(moved "$work/other") * 2))"
    ok "encdec: $schedule, parameters in a file too" run encdec encdec-ts local 2 $schedule 8 "$work/other" "${away[@]}" --offload params --unshard $((2 + ${#schedule} % 2))
    ok "encdec: $schedule, parameters in a file too, the same bits" same "$work/first" "$work/other" emb.weight
done
ok "resnet: gpipe on 2 ranks" run resnet resnet-ts local 2 gpipe 2 "$work/half"
ok "resnet: gpipe on 2 ranks, running statistics in a file" run resnet resnet-ts local 2 gpipe 2 "$work/other" --offload params --offload-dir "$work" --unshard 1
ok "resnet: the same bits" same "$work/half" "$work/other" ""
most() { sed -n 's/^rank . memory: \([0-9]*\) bytes.*/\1/p' "$1/log" | sort -n | tail -1; }
ok "encdec: gpipe on 2 ranks" run encdec encdec-ts local 2 gpipe 8 "$work/first"
ok "encdec: all for which there is time" run encdec encdec-ts local 2 gpipe 8 "$work/other" "${away[@]}" --offload-time 0.25
fits() { [ "$(most "$work/other")" -lt "$(most "$work/first")" ]; }
ok "encdec: which saves memory" fits
ok "encdec: the same bits" same "$work/first" "$work/other" emb.weight
is "nothing is left in the folder" "$(ls -A "$work" | grep -c '^\.ppsplit')" 0
"$ppsplit" schedule gpipe --ranks 2 --stages 4 --microbatches 8 --offload 3 --csv "$work/offload.csv"
ok "encdec: rows with copies from a file" run encdec encdec-ts local 2 "$work/offload.csv" 8 "$work/other" --offload-dir "$work"
is "encdec: so many as they say" "$(moved "$work/other")" 6
ok "encdec: the same bits" same "$work/first" "$work/other" emb.weight

# ---- PyTorch's spelling is the same schedule, in training and in inference ----

# where NAME MODE SCHEDULE: which rank did which forward
where() {
    "$work/$1/pipeline" "$2" $([ "$2" = train ] && data encdec-ts || data encdec-ts | sed 's/--data target=[^ ]*//') --ranks 2 --microbatches 8 --schedule "$3" \
        --trace "$work/where.json" --quiet && sed -n 's/.*"name":"\([0-9]*F[0-9]*\)".*"tid":\([0-9]*\).*/\1 \2/p' "$work/where.json" | sort -u
}
stages() { where encdec "$1" "$2" | sed -n 's/^\(.\)F0 /\1 on /p' | tr '\n' ' '; }
for schedule in Interleaved1F1B:interleaved1f1b DualPipeV:dualpipev ScheduleZBVZeroBubble:zbvzerobubble; do
    for mode in train infer; do
        case $schedule in Int*) want="0 on 0 1 on 1 2 on 0 3 on 1 " ;; *) want="0 on 0 1 on 1 2 on 1 3 on 0 " ;; esac
        is "$mode with ${schedule%:*}: where stages are" "$(stages $mode ${schedule%:*})" "$want"
        is "$mode with ${schedule#*:}: the same" "$(stages $mode ${schedule#*:})" "$want"
    done
done

# ---- slots: tensors of different sizes share their places ----

ok "encdec: 1f1b" run encdec encdec-ts local 2 1f1b 8 "$work/other"
near() { awk '/plan:/ { if ($7 + 0 < $14 + 0 || $7 > 1.2 * $14) { print; bad = 1 } n++ } END { exit bad || !n }' "$1/log"; }
ok "encdec: activations within a fifth of what any placement needs" near "$work/other"

# ---- --until ----

stop_at() { "$work/encdec/pipeline" train $(data encdec-ts) --microbatches 8 --schedule "$1" --ranks "$2" --until "$3"; }
# 1F1B on two ranks of two stages: before B of microbatch 0 on stage 2, rank 0 has sent two microbatches and waits.
is "--until 2B0 of 1f1b" "$(stop_at 1f1b 2 2B0 | grep -v memory)" "stopped after 2B0
rank 0: 4 of 84 actions done, next 0F1
  stage 0: forward done 0
  stage 1: forward done 0
rank 1: 8 of 84 actions done, next 2SEND_B0
  stage 2: finished 0
  stage 3: finished 0"
if command -v mpirun >/dev/null; then
    is "--until over mpi" "$(mpirun -n 2 "$work/encdec/pipeline" train $(data encdec-ts) --microbatches 8 --schedule zb-h1 --until 1I3 | grep -v memory)" \
        "$(stop_at zb-h1 2 1I3 | grep -v memory)"
fi
is "--until with an action that is not in the rows" "$(stop_at 1f1b 2 1I3 2>&1 | head -n 1)" \
    "pipeline: error: --until 1I3: the schedule has no such action (4 stages, 8 microbatches, 1f1b)"

# ---- --trace ----

ok "encdec: traced" run encdec encdec-ts local 2 zb-h1 8 "$work/other" --trace "$work/trace.json"
ok "its times simulate" "$ppsplit" schedule zb-h1 --ranks 2 --stages 4 --microbatches 8 --costs "$work/trace.json" --simulate
for event in 0F0 3W7 1SEND_F2 2RECV_F2 wait; do
    ok "the trace has $event" grep -q "\"name\":\"$event\",.*\"ph\":\"X\",.*\"ts\":[0-9.]*,\"dur\":[0-9.]*" "$work/trace.json"
done

# ---- eval and infer where rows do not divide ----

infer() { "$work/mlp/pipeline" infer --data x="$top/models/mlp-ts/in.x.npy" --ranks 2 --output logits="$1" "${@:2}"; }
ok "infer: all 14 rows at once" infer "$work/whole.npy" --microbatches 4
ok "infer: 14 rows in steps of 4" infer "$work/parts.npy" --batch 4 --microbatches 2
ok "the same outputs" cmp "$work/whole.npy" "$work/parts.npy"
ok "infer: 14 rows in steps of 8" infer "$work/parts.npy" --batch 8
ok "the same outputs" cmp "$work/whole.npy" "$work/parts.npy"

# ---- a target class that the model does not have ----

head -c -8 "$top/models/mlp-ts/target.npy" >"$work/bad.npy"; printf '\012\0\0\0\0\0\0\0' >>"$work/bad.npy"
is "class 10 of 10 is refused" "$("$work/mlp/pipeline" train --data x="$top/models/mlp-ts/in.x.npy" --data target="$work/bad.npy" 2>&1)" \
    "pipeline: error: --data target=$work/bad.npy: row 13 is class 10, the model has 10 classes: 0 to 9, or -100, which is ignored"
plan_done
