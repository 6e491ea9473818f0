#!/bin/sh
# run -n N [OPTION of the launcher]... train|eval|infer|sample|tokens|measure ... - starts the ranks of the program in this folder, waits for
# them, and ends with the job's own status.
#
# mpirun kills its ranks a second after SIGTERM or Ctrl-C, and its status is then 1.  Here it runs in a session of its own, and the
# ranks themselves get SIGUSR2 instead: the step ends and is saved.  What is known of them stands in the file PP_RUN, to which ranks
# on this machine add lines (runtime/net/launch.h): "rank R PID saves|ends", "ready", "status S"; and this script "killed" and "lost".

usage() {
    cat <<END
usage: $0 -n N [OPTION]... COMMAND [OPTION]...

COMMAND, with its own options: train, eval, infer, sample, tokens or measure

  -n N              so many ranks; in a job of Slurm its tasks, if not given
  --with LAUNCHER   mpirun, mpiexec or srun, by name or path; or threads, of
                    one process.  If not given: srun in a job of Slurm that has
                    PMIx, else mpirun or mpiexec, else threads
  --program FILE    instead of pipeline, or of pipeline-cuda where that one
                    alone was built
Other options before COMMAND are the launcher's, such as
  --hostfile hosts --map-by ppr:4:node:PE=8

Ctrl-C, SIGTERM, SIGHUP and SIGUSR2: a training with --checkpoint ends its step
and saves it; the status is 75.  A second Ctrl-C ends at once.  SIGUSR1: it
saves and goes on.  Otherwise the status is the program's, or 128 and the
signal's number.
END
}

say() { echo "run: $*" >&2; }
steady() (trap '' INT HUP; exec "$@")                   # a Ctrl-C of the terminal is for this script, not for what it asks
wrong() { say "error: $*"; echo "Try '$0 --help' for more information." >&2; exit 2; }

# ---- signals ----

# pass SIGNAL: to the ranks on this machine; where none has told of itself for 10 seconds, to the launcher, for those on others.
# One rank is enough: all agree at the end of the step.
pass() {
    pids='' tries=0
    while [ -z "$pids" ] && [ $tries -lt 40 ]; do
        [ $tries = 0 ] || pause 0.25
        pids=$(sed -n 's/^rank [0-9]* \([0-9]*\) [a-z]*$/\1/p' "$PP_RUN" 2>/dev/null)
        tries=$((tries + 1))
    done
    if grep -q ' ends$' "$PP_RUN" 2>/dev/null; then
        if [ "$1" = USR1 ]; then say "nothing is saved: no --checkpoint"; else finish TERM; fi
        return
    fi
    [ "$asked" != INT ] || say "the step ends and is saved; a second Ctrl-C ends at once"
    [ "$1" = USR2 ] || pids=${pids%%[!0-9]*}            # else two ranks may look in two steps, and it is saved twice
    if [ -n "$pids" ]; then kill -"$1" $pids
    elif [ $kind != hydra ]; then kill -"$1" "$job"
    elif [ "$1" = USR2 ]; then kill -TERM "$job"        # which it passes on, and does not end by
    fi 2>/dev/null
}

# finish SIGNAL...: ends the job by what its launcher ends by; in 5 seconds in any case.
finish() {
    echo killed >>"$PP_RUN"
    for signal; do
        kill -"$signal" "$job" 2>/dev/null
        pause 0.5
    done
    pause 5
    kill -KILL "$job" 2>/dev/null
}

# asked SIGNAL: once to save and end; a second Ctrl-C ends.
asked() {
    again=1
    if [ -z "$asked" ]; then
        asked=$1
        [ -z "$job" ] || beside pass USR2
    elif [ "$1" = INT ] && [ -n "$job" ]; then
        if [ $kind = openmpi ]; then beside finish TERM; else beside finish INT INT; fi
    fi
}
beside() {                                              # whoever signals the whole group means this script
    (trap '' INT TERM HUP USR1 USR2; "$@") &
    helpers="$helpers $!"
}
pause() { sleep "$1" >/dev/null 2>&1; }                 # holds no pipe open for a reader
job='' asked='' helpers=''
for signal in INT TERM HUP USR2; do trap "asked $signal" $signal; done
trap 'again=1; [ -z "$job" ] || beside pass USR1' USR1

# ---- the command line ----

here=${0%/*}
[ "$here" != "$0" ] || here=.
n=${SLURM_NTASKS-} with='' program='' mode='' first='' own=0 alone=0 left=$#
while [ "$left" -gt 0 ]; do                             # each word goes to the end, or is taken out
    word=$1
    shift
    left=$((left - 1))
    case $mode:$word in
    :-n | :-np | :--with | :--program)
        [ "$left" -gt 0 ] || wrong "$word: what?"
        case $word in --with) with=$1 ;; --program) program=$1 ;; *) n=$1 ;; esac
        shift
        left=$((left - 1)) ;;
    :--with=*) with=${word#*=} ;;
    :--program=*) program=${word#*=} ;;
    :-h | :--help) usage; exit 0 ;;
    :train | :eval | :infer | :sample | :tokens | :measure)
        mode=$word
        [ -n "$program" ] || [ -e "$here/pipeline" ] || [ ! -e "$here/pipeline-cuda" ] || program=$here/pipeline-cuda
        set -- "$@" "${program:=$here/pipeline}" "$word" ;;
    *)
        [ -n "$mode" ] || own=$((own + 1)) first=${first:-$word}
        set -- "$@" "$word" ;;
    esac
done
case $first in -*) first='' ;; esac
[ -n "$mode" ] || wrong "${first:+'$first': }what to do? train, eval, infer, sample, tokens or measure"
case $n in '') wrong "how many ranks? -n N" ;; *[!0-9]* | 0*) wrong "-n $n: not a number of ranks" ;; esac
[ -x "$program" ] || { say "error: $program is not there, or is no program: make -C $here builds it"; exit 3; }

# ---- the launcher ----

if [ -z "$with" ]; then
    with=threads
    for one in mpiexec mpirun; do ! command -v $one >/dev/null || with=$one; done
    if [ -n "${SLURM_JOB_ID-}" ] && steady srun --mpi=list 2>&1 | steady grep -q pmix; then with=srun; fi
fi
case $with in
threads) kind=threads ;;
srun | */srun) kind=srun ;;
*)
    command -v "$with" >/dev/null || wrong "--with $with: there is no such launcher"
    kind=openmpi
    case $(steady "$with" --version 2>&1) in *HYDRA* | *Intel*) kind=hydra ;; esac ;;
esac

# Cores of this machine that this process may use, not counting the second thread of any.
cores() (
    trap '' INT HUP
    lscpu -p=CPU,CORE,SOCKET 2>/dev/null | awk -F, -v allowed="$(sed -n 's/^Cpus_allowed_list:[^0-9]*//p' /proc/self/status 2>/dev/null)" '
        BEGIN { for (n = split(allowed, range, ","); n > 0; n--) {
                    ends = split(range[n], cpu, "-")
                    for (c = cpu[1]; c <= cpu[ends]; c++) may[c + 0] = 1 } }
        !/^#/ && ($1 + 0) in may && !seen[$2 "," $3]++ { cores++ }
        END { print cores + 0 }'
)

case $kind in
threads)
    [ $own = 0 ] || wrong "ranks that are threads have no launcher, which would take its options"
    set -- "$@" --ranks "$n" ;;
srun) set -- "$with" --mpi=pmix --cpu-bind=cores -n "$n" "$@" ;;
hydra) set -- "$with" -n "$n" "$@" ;;
openmpi)
    # On this machine alone: a rank that would have one core keeps to it; several cores each, or less than one, are shared.
    if [ $own = 0 ] && [ -z "${SLURM_JOB_ID-}" ]; then
        alone=1
        has=$(cores)
        if [ "$n" -gt "$has" ]; then set -- --oversubscribe --bind-to none "$@"
        elif [ $((2 * n)) -gt "$has" ]; then set -- --bind-to core "$@"
        else set -- --bind-to none "$@"; fi
    fi
    if [ "$(steady id -u)" = 0 ]; then                         # in a container, most likely
        export OMPI_ALLOW_RUN_AS_ROOT="${OMPI_ALLOW_RUN_AS_ROOT-1}" OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="${OMPI_ALLOW_RUN_AS_ROOT_CONFIRM-1}"
        export PRTE_ALLOW_RUN_AS_ROOT="${PRTE_ALLOW_RUN_AS_ROOT-1}" PRTE_ALLOW_RUN_AS_ROOT_CONFIRM="${PRTE_ALLOW_RUN_AS_ROOT_CONFIRM-1}"
    fi
    set -- "$with" -n "$n" "$@" ;;
esac

# ---- the job ----

# watch: a rank that ends before MPI has begun is waited for by the others, for ever: Open MPI 4 does not notice where its status is 0.
# One that does not come is named after a minute.
watch() {
    gone='' seconds=0
    while pause 1 && ! grep -q '^ready' "$PP_RUN" 2>/dev/null; do
        now='' alive='' missing='' k=0
        while [ $k -lt "$n" ]; do
            pid=$(sed -n "s/^rank $k \\([0-9]*\\) .*/\\1/p" "$PP_RUN" 2>/dev/null)
            if [ -z "$pid" ]; then missing="$missing $k"
            elif kill -0 "$pid" 2>/dev/null; then alive="$alive $k"
            else now="$now $k"; fi
            k=$((k + 1))
        done
        if [ -n "$alive" ] && [ $alone = 1 ] && [ "$(ps -o pid= --ppid "$job" 2>/dev/null | wc -l)" -lt "$n" ]; then now="$now$missing"; fi
        if [ -n "$now" ] && [ "$now" = "$gone" ]; then
            say "error: rank$now ended before MPI had begun; the others would wait for ever"
            echo lost >>"$PP_RUN"
            finish TERM
        fi
        gone=$now seconds=$((seconds + 1))
        [ $seconds != 60 ] || say "warning: MPI has not begun after a minute; on this machine there is no rank${missing:- missing}"
    done
}

export PP_RUN
PP_RUN=$(steady mktemp "${TMPDIR:-/tmp}/ppsplit-run.XXXXXX") || exit 3
trap 'rm -f "$PP_RUN"' EXIT
apart=$(command -v setsid) || set -m                    # Ctrl-C reaches this process alone
$apart "$@" </dev/null &
job=$!
[ $kind = threads ] || beside watch
[ -z "$asked" ] || beside pass USR2
s=127
while again=''; do
    wait "$job"
    now=$?
    [ $now = 127 ] || s=$now                             # 127: it has been waited for
    [ -n "$again" ] || break
done
trap '' INT HUP TERM USR1 USR2
[ -z "$helpers" ] || kill -KILL $helpers 2>/dev/null

told=$(sed -n 's/^status //p' "$PP_RUN")
if [ $s = 0 ] && [ -n "$told" ]; then
    s=$told
elif grep -q '^lost' "$PP_RUN"; then
    s=3
elif grep -q '^killed' "$PP_RUN"; then
    case $asked in HUP) s=129 ;; INT) s=130 ;; USR2) s=140 ;; *) s=143 ;; esac
elif [ $s != 0 ] && [ $kind != threads ] && ! grep -q '^ready' "$PP_RUN"; then
    say "MPI had not begun; of $n ranks these had started on this machine: $(sed -n 's/^rank \([0-9]*\) .*/\1/p' "$PP_RUN" | sort -n | tr '\n' ' ')"
fi
exit $s
