#!/usr/bin/env bash
# out/run: whatever ends a training with --checkpoint, Ctrl-C at a terminal, SIGTERM, SIGHUP, from the first instant on, the step is saved and
# the job's status is 75; a second Ctrl-C ends it at once; the status is the program's own, without what mpirun has to say about it.
# Who started the tests may ignore signals (nohup, a shell in the background): here they are as at a prompt.
# A shell that script(1) starts must outlive a Ctrl-C which its command outlives, as bash does and dash does not.
[ -n "${SIGNALS_RESET:-}" ] || SIGNALS_RESET=1 exec perl -MPOSIX -e '
    $SIG{$_} = "DEFAULT" for qw(HUP INT QUIT TERM USR1 USR2);
    sigprocmask(SIG_SETMASK, POSIX::SigSet->new);
    exec @ARGV' bash "$0" "$@"
export SHELL=$BASH
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
unset OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_rmaps_base_oversubscribe      # it knows by itself
m=$top/models/mlp-ts
ok "splits and builds" split_model "$m/model.onnx" two blocks.1:begin --loss cross_entropy || exit 1
ok "and the launcher" make -s -C two run RUNTIME="$runtime"
D=(train --data "x=$m/in.x.npy" --data "target=$m/target.npy" --quiet)
S=("${D[@]}" --steps 100000000 --checkpoint)
mkdir tmp
export TMPDIR=$work/tmp
cat >hook.c <<'END'
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
int fsync(int fd)
{
    while (!strcmp(getenv("HOOK"), "disk"))
        pause();
    return (int)syscall(SYS_fsync, fd);
}
int madvise(void *at, size_t n, int advice) /* the data are about to be checked */
{
    if (advice == MADV_SEQUENTIAL && !strcmp(getenv("HOOK"), "data"))
        kill(getpid(), SIGTERM);
    return 0;
}
END
ok "a disk that hangs, a signal while data are checked" ${CC:-cc} -shared -fPIC -o hook.so hook.c

# asked SIGNAL WHEN COMMAND...: sends it so many seconds after the launcher began, or in step N; the status is in $s, all that was said in said
asked() {
    local signal=$1 when=$2 pid; shift 2
    rm -rf log.json
    "$@" --log-json log.json >said 2>&1 &
    pid=$!
    case $when in
    *.*) until ls "$TMPDIR"/ppsplit-run.* >/dev/null 2>&1 || ! kill -0 $pid 2>/dev/null; do :; done; sleep "$when" ;;
    *) until grep -q "\"step\": $when," log.json 2>/dev/null || ! kill -0 $pid 2>/dev/null; do sleep 0.02; done ;;
    esac
    kill -"$signal" $pid
    if [ "$signal" = USR1 ]; then                       # once it has saved it ends
        until ls on/step_*/index.json >/dev/null 2>&1 || ! kill -0 $pid 2>/dev/null; do sleep 0.02; done
        kill -TERM $pid
    fi
    wait $pid
    s=$?
}
saved() { echo "$s $(ls "$1" 2>/dev/null | grep -vc '^step_[0-9]*$') $(grep -v '^pipeline: ended by a signal \(after step [0-9]*, which is in\|before the first step: no\) ' said)"; }

two/run "${D[@]}" 2>err
is "how many?" "$? $(cat err)" "2 run: error: how many ranks? -n N
Try 'two/run --help' for more information."
two/run -n 2 --program two/none "${D[@]}" 2>err
is "no program" "$? $(cat err)" "3 run: error: two/none is not there, or is no program: make -C two builds it"
two/run -n 2 --with none "${D[@]}" 2>err
is "no launcher" "$? $(cat err)" "2 run: error: --with none: there is no such launcher
Try 'two/run --help' for more information."
ok "its README names it" grep -q '^    ./run -n 2 train ' two/README

asked TERM 20 two/run --with threads -n 2 "${S[@]}" threads
is "threads, SIGTERM" "$(saved threads)" "75 0 "
asked HUP 0.0 two/run --with threads -n 2 "${S[@]}" early
is "threads, SIGHUP at once" "$(saved early)" "75 0 "
asked HUP 20 two/pipeline "${S[@]}" hup
is "the program alone, SIGHUP" "$(saved hup)" "75 0 "
HOOK=data LD_PRELOAD=$work/hook.so two/pipeline "${S[@]}" checked >said 2>&1
s=$?
is "the program alone, while data are checked" "$(saved checked) $(grep -c 'before the first step' said)" "75 0  1"
is "what a signal will do: the program alone" "$(two/pipeline "${D[@]:0:5}" --steps 1 --checkpoint say | grep Ctrl-C)" "Ctrl-C, SIGTERM, SIGHUP: the step ends, is saved in say, exit status 75"
is "what a signal will do: nothing" "$(two/pipeline "${D[@]:0:5}" --steps 1 | grep -i signal)" "nothing will be saved, not even at a signal: no --checkpoint"

if command -v mpirun >/dev/null; then
    two/run -n 3 "${D[@]}" >said 2>&1
    is "refused: the status, and nothing else is said" "$? $(cat said)" \
        "1 pipeline: error: 3 ranks are more than the model's 2 stages: use fewer, or --dp N for N replicas, or split into more stages"
    two/run -n 2 "${D[@]}" --steps 3 --log-json done.json >said 2>&1
    is "done" "$? $(cat said) $(grep -c '"step"' done.json)" "0  3"
    for when in 0.0 0.2 20; do
        asked TERM $when two/run -n 2 "${S[@]}" "term$when"
        is "SIGTERM, $when" "$(saved "term$when")" "75 0 "
    done
    asked HUP 20 two/run -n 2 "${S[@]}" away
    is "SIGHUP" "$(saved away)" "75 0 "
    asked TERM 20 timeout $patience two/run -n 2 "${S[@]}" group       # which passes it on to the whole group
    is "SIGTERM for its whole group" "$(saved group) $(ls group | wc -l)" "75 0  1"
    asked USR1 20 two/run -n 2 "${S[@]}" on
    is "SIGUSR1 saves and goes on" "$s $(ls on | wc -l)" "75 2"
    asked TERM 20 two/run -n 2 "${D[@]}" --steps 100000000
    is "SIGTERM, nothing to save" $s 143
    HOOK=data LD_PRELOAD=$work/hook.so two/run -n 2 "${S[@]}" checking >said 2>&1
    s=$?
    is "while data are checked" "$(saved checking) $(grep -c 'before the first step' said)" "75 0  1"
    if command -v script >/dev/null; then
        # typed COMMAND: the status of a command at a terminal, where Ctrl-C is pressed in step 20, and with $again once more in the save
        typed() {
            rm -f log.json
            { until grep -q '"step": 20,' log.json 2>/dev/null || [ -e ended ]; do sleep 0.02; done
              printf '\003'
              [ -z "${again:-}" ] || { until ls $again >/dev/null 2>&1 || [ -e ended ]; do sleep 0.02; done; sleep 0.5; printf '\003'; }
              until [ -e ended ]; do sleep 0.1; done; } | script -qec "$* --log-json log.json; echo \$? >ended" /dev/null >said 2>&1
            s=$(cat ended)
            rm ended
        }
        typed two/run -n 2 "${S[@]}" terminal
        is "Ctrl-C at a terminal" "$s $(ls terminal | grep -c '^step_[0-9]*$') $(grep -c 'a second Ctrl-C ends at once' said)" "75 1 1"
        HOOK=disk LD_PRELOAD=$work/hook.so again=twice/step_*.tmp typed two/run -n 2 "${S[@]}" twice
        is "a second one ends it at once, and all ranks" "$s $(ps -eo args | grep -c '[t]wo/pipeline.* twice ')" "130 0"
    else
        skip "Ctrl-C at a terminal" "no script(1)"
    fi
    cat >early.sh <<'END'
#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" != 1 ] || exit 0
exec two/pipeline "$@"
END
    chmod +x early.sh
    two/run -n 2 --program ./early.sh "${D[@]}" >said 2>&1
    is "a rank ends before MPI begins: it is named" "$? $(grep -c '^run: error: rank 1 ended before MPI had begun' said)" "3 1"
    is "what a signal will do: mpirun by itself" \
        "$(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2 two/pipeline "${D[@]:0:5}" --steps 1 --checkpoint bare | grep SIG)" \
        "SIGUSR2 to mpirun: the step ends, is saved in bare, exit status 75; at Ctrl-C and SIGTERM mpirun kills the ranks after a second, and nothing is saved: start with out/run instead"
    is "nothing is left" "$(ls tmp | grep -c '^ppsplit-run')" 0
else
    skip "out/run with processes" "no mpirun"
fi
plan_done
