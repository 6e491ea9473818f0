#!/usr/bin/env bash
# Of a job of processes: a rank that is stopped is named with its action and ends the job, rank 0 too; one that dies ends it at once;
# a job that is stopped as a whole goes on.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
command -v mpirun >/dev/null || { skip "watchdog" "no mpirun"; plan_done; exit; }
m=$top/models/mlp-ts
ok "splits and builds" split_model "$m/model.onnx" two blocks.1:begin --loss cross_entropy || exit 1
D=(train --data "x=$m/in.x.npy" --data "target=$m/target.npy" --quiet --log-json log.json --watchdog 2)

# later: until a line more is in the log, or the job has ended
later() {
    local lines=$(wc -l <log.json)
    until [ "$(wc -l <log.json)" -gt "$lines" ] || ! kill -0 $job 2>/dev/null; do sleep 0.02; done
}

# beats: processes tell of themselves four times a second; in a busy machine these are seconds in which they come to do steps too
beats() {
    local i
    for i in 1 2 3 4 5 6; do sleep 0.25; later; done
}

# start: a job that goes on for ever, whose ranks' processes are in $pid0 and $pid1, once each has told of itself
start() {
    rm -f watchdog.json pid0 pid1
    >log.json
    timeout $patience mpirun -n 2 bash -c 'echo $$ >pid$OMPI_COMM_WORLD_RANK; exec "$@"' - two/pipeline "${D[@]}" --steps 100000000 >out 2>err &
    job=$!
    until grep -q '"step": 20,' log.json || ! kill -0 $job 2>/dev/null; do sleep 0.02; done
    beats
    pid0=$(cat pid0) pid1=$(cat pid1)
}
said() { grep -c "pipeline: error: rank $1 on .* has been silent for [0-9]* s: it is in step [0-9]*, .*; the last actions of all ranks are in watchdog.json" err; }
for rank in 1 0; do
    start
    kill -STOP $((rank ? pid1 : pid0))
    wait $job
    is "rank $rank is stopped: the job ends and names it" "$(($? != 0)) $(said $rank) $(grep -c 'silent\|moved' err)" "1 1 1"
    ok "rank $rank is stopped: the last actions are a trace" perl -MJSON::PP -e 'local $/; open F, "watchdog.json"; my %n;
        $n{$_->{tid}}++ for grep { $_->{ph} eq "X" && $_->{name} =~ /^[01][FB]/ } @{decode_json(<F>)->{traceEvents}}; exit !($n{0} && $n{1})'
done
start
kill -KILL $pid1
wait $job
is "rank 1 dies: the job ends and names it" "$(($? != 0)) $(grep -c 'rank 1 .*exited on signal 9' err)" "1 1"
start
kill -STOP $pid0 $pid1
sleep 3                                                 # longer than the watchdog's patience
kill -CONT $pid0 $pid1
beats
is "stopped as a whole, and gone on" "$(kill -0 $job 2>/dev/null; echo $?) $(grep -c 'silent\|moved' err)" "0 0"
kill -TERM $job
wait $job
plan_done
