#!/usr/bin/env bash
# A folder of checkpoints can be gone on from, whatever goes wrong with a run that writes it, and the run then ends in the bits of one that was not
# interrupted: system calls that fail or do half, allocations that fail, SIGKILL at any call and at any time.  What a run or a merge was to
# write besides is the old file or the new one.  COUNT faults (18 here, 450 in `make faults`), KILLS at any time (3 here, 100 there), as many as
# SECONDS_MOST allows.
. "$(dirname "$0")/lib.sh"
count=${COUNT:-18} kills=${KILLS:-3}
dir=$top/models/mlp-ts
D=(train --data "x=$dir/in.x.npy" --data "target=$dir/target.npy" --microbatches 4 --optimizer adam --lr 0.01 --shuffle 3)
"$fault" -- true 2>/dev/null || { skip "faults" "no system call can be intercepted here"; plan_done; exit; }
kinds=(kill EIO ENOSPC short kill EINTR EDQUOT)
calls() { "$fault" --said said -- "$@" >/dev/null 2>err && sed 's/ .*//' said; }
same() { "$compare" same "$1" "$2" >/dev/null; }

# ended KIND: exit 3 and one diagnostic, or 0 and none; or killed where that was asked for
ended() {
    [ $s -eq 137 ] && [ "$1" = kill ] && return
    [ $s -eq 0 ] && [ ! -s err ] && return
    [ $s -eq 3 ] && [ "$(grep -c 'error:' err)" -eq 1 ] && return
    [ $s -eq 1 ] && [ "$1" = ENOMEM ] && grep -q '^libgomp: Out of memory' err && return       # which ends the process itself
    echo "exit $s: $(cat said err)"
    return 1
}
goes_on() {
    two/pipeline "${D[@]}" --quiet --steps 5 --resume ck --checkpoint ck >stdout 2>err || { echo "after exit $s, resuming: $(cat said err)"; return 1; }
    same ck/step_5 straight/step_5 || { echo "after exit $s, resumed: another result: $(cat said)"; return 1; }
    [ -z "$(find ck -name '*.tmp')" ] || { echo "left behind: $(find ck -name '*.tmp')"; return 1; }
}
old_or_new() { [ ! -e "$1" ] || cmp -s "$1" "$2" || { echo "exit $s, and $1 is neither absent nor new: $(cat said)"; return 1; }; }

program=(two/pipeline "${D[@]}" --steps 5 --every 1 --keep 2 --checkpoint ck --output logits=y.npy --log-json log.json)
trains=(timeout $patience "${program[@]}")
allocating() { timeout $patience env FAIL_ALLOC="$1" FAIL_ALLOC_SAID="$work/said" LD_PRELOAD="$build/tests/faults/fail_alloc.so" "${program[@]}" --ranks 2; }
trained() {
    rm -rf ck y.npy* log.json
    "$fault" --at "$1" --fault "$2" --said said -- "${trains[@]}" --ranks "$3" >stdout 2>err
    s=$?
    ended "$2" && old_or_new y.npy straight.npy && goes_on
}
starved() {
    rm -rf ck y.npy* log.json
    allocating "$1" >stdout 2>err
    s=$?
    ended ENOMEM && old_or_new y.npy straight.npy && goes_on
}
merged() {
    cp old.onnx t.onnx; rm -f t.onnx.*
    "$fault" --at "$1" --fault "$2" --said said -- "$ppsplit" merge two straight -o t.onnx >stdout 2>err
    s=$?
    ended "$2" || return
    cmp -s t.onnx new.onnx || { [ $s -ne 0 ] && cmp -s t.onnx old.onnx; } || { echo "exit $s, and t.onnx is neither old nor new: $(cat said)"; return 1; }
    [ $s -eq 137 ] || [ "$(echo t.onnx*)" = t.onnx ] || { echo "exit $s, and left behind: $(echo t.onnx*)"; return 1; }
}

ok "a program" split_model "$dir/model.onnx" two blocks.1:begin --loss cross_entropy || exit 1
ok "not interrupted" "${trains[@]}"
[ -d ck ] || exit 1
mv ck straight && mv y.npy straight.npy
ok "merges of two steps" eval '"$ppsplit" merge two straight -o new.onnx && "$ppsplit" merge two straight/step_4 -o old.onnx && ! cmp -s old.onnx new.onnx'

for ranks in 1 2; do
    rm -rf ck && n=$(calls "${trains[@]}" --ranks $ranks) || { cat err; exit 1; }
    each=$((count / 3)) i=$ranks
    share 1 $((6 - ranks))
    for at in $(spread $n $each); do
        over && break
        kind=${kinds[i++ % 7]}
        tried "training, $ranks ranks, call $at of $n, $kind" trained $at $kind $ranks
    done
    summed "system calls of a training of $ranks ranks"
done
n=$(calls "$ppsplit" merge two straight -o t.onnx)
each=$((count / 9)) i=0
share 1 3
for at in $(spread $n $each); do
    over && break
    kind=${kinds[i++ % 7]}
    tried "merge, call $at of $n, $kind" merged $at $kind
done
summed "system calls of a merge"

rm -rf ck; allocating 0 >stdout
n=$(cat said) || exit 1
each=$((count * 2 / 9))
share 1 2
for at in $(spread $n $each); do
    over && break
    tried "allocation $at of $n" starved $at
done
summed "$n allocations of a training"

# ---- killed at any time ----

long=(two/pipeline "${D[@]}" --quiet --every 2 --keep 3 --resume killed --checkpoint killed --steps)
steps=$((kills * 60))
mkfifo never
ok "a longer one, not interrupted" two/pipeline "${D[@]}" --quiet --steps $steps --checkpoint longer
# at a random step after the one it has gone on from, as its log says, and at any moment of that
stepped() { [ -s killed.json ] && mapfile -t lines <killed.json && [ ${#lines[@]} -gt "$1" ]; }
done=0
: >reached
share 4 5
while [ $done -lt $kills ] && ! over; do
    rm -f killed.json
    "${long[@]}" $steps --ranks $((1 + done % 2)) --log-json killed.json >/dev/null 2>err &
    pid=$! at=$((1 + RANDOM % 30))
    until stepped $at || ! kill -0 $pid 2>/dev/null; do read -r -t 0.00$((RANDOM % 10)) <>never; done
    kill -KILL $pid 2>/dev/null
    { wait $pid; s=$?; } 2>/dev/null
    [ $s -eq 137 ] || { cat err; break; }
    done=$((done + 1))
    ls killed | sort -V | tail -n 1 >>reached
done
ok "killed $done times, after $(sort -u reached | grep -c step_) different checkpoints: the last one goes on" "${long[@]}" $steps
ok "the same bits" same "killed/step_$steps" "longer/step_$steps"
plan_done
