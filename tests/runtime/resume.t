#!/usr/bin/env bash
# A run that was interrupted and resumed ends in the bits of one that was not: parameters and moments, into another split, other
# ranks, another schedule, over another transport.  Killed at any moment it leaves whole checkpoints or none; writing one holds
# up no step.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
m=$top/models/gpt-ts
ok "two stages" split_model "$m/model.onnx" two h.1:begin --loss cross_entropy || exit 1
ok "four stages" split_model "$m/model.onnx" four h.0.mlp:begin,h.1:begin,h.1.mlp:end --loss cross_entropy || exit 1
case_data "$m"
# rows of two epochs meet in no step, and an epoch is no whole number of them
R=(--batch 6 --microbatches 3 --shuffle 7 --optimizer adamw --lr 0.01 --clip-norm 1)
T=(train "${data[@]}" --data "target=$m/target.npy" "${R[@]}")
same() { "$compare" same "$1" "$2"; }
steps() { ls "$1" | tr '\n' ' '; }

# ---- the same bits ----

ok "not interrupted" two/pipeline "${T[@]}" --steps 12 --checkpoint straight --every 3 --keep 2 --log-json straight.json
is "every third, the newest two" "$(steps straight)" "step_12 step_9 "
ok "the first part" two/pipeline "${T[@]}" --steps 4 --checkpoint parts
ok "four stages on three ranks, gpipe" four/pipeline "${T[@]}" --resume parts --checkpoint parts --steps 7 --ranks 3 --schedule gpipe
if command -v mpirun >/dev/null; then
    ok "two processes, zero bubble" mpirun -n 2 four/pipeline "${T[@]}" --resume parts --checkpoint parts --steps 9 --schedule zb-h1
else
    ok "two ranks, zero bubble" four/pipeline "${T[@]}" --resume parts --checkpoint parts --steps 9 --ranks 2 --schedule zb-h1
fi
ok "the same bits on the way" same straight/step_9 parts/step_9
ok "one rank" two/pipeline "${T[@]}" --resume parts --checkpoint last --steps 12 --ranks 1 --log-json parts.json
ok "the same bits at the end" same straight/step_12 last/step_12
losses() { perl -MJSON::PP -ne '$d = decode_json($_); print "$$d{step} $$d{loss} $$d{grad_norm}\n" if $$d{step}' "$1"; }
is "the same losses" "$(losses parts.json)" "$(losses straight.json | tail -n 3)"
mkdir last/step_3
is "nothing is left to do" "$(two/pipeline "${T[@]}" --resume last --checkpoint last --steps 12 2>err | head -n 1)" \
    "resumed from last/step_12, 12 steps are done: nothing is left to do"
is "what an older version left is named" "$(cat err)" "pipeline: warning: last/step_3: without index.json, so it is no checkpoint, and nothing removes it"
ok "a run that may be started again begins" two/pipeline "${T[@]}" --resume new --checkpoint new --steps 2
ok "another value, given" two/pipeline "${T[@]}" --resume new --checkpoint new --steps 3 --lr 0.001
ok "merge takes the newest" eval '"$ppsplit" merge two parts -o a.onnx && "$ppsplit" merge four straight/step_9 -o b.onnx && cmp a.onnx b.onnx'
ok "and so does eval, of any split" eval 'two/pipeline eval "${data[@]}" --data "target=$m/target.npy" --params parts --quiet --log-json a.json &&
    four/pipeline eval "${data[@]}" --data "target=$m/target.npy" --params straight/step_9 --quiet --log-json b.json'
is "with the same loss" "$(losses a.json)" "$(losses b.json)"

# Of parameters that are elsewhere there is no snapshot: writing holds up the run, and the next step changes nothing of what is written.
mkdir elsewhere
ok "every step is saved" two/pipeline "${T[@]}" --steps 6 --checkpoint here --every 1 --quiet
ok "and with its parameters elsewhere" two/pipeline "${T[@]}" --steps 6 --checkpoint there --every 1 --offload params --offload-dir elsewhere --quiet
ok "the same bits in every checkpoint" eval 'for s in here/step_?/*.safetensors; do cmp "$s" "there/${s#here/}" || exit; done'

# ---- what ppsplit was told ----

ok "a sum, which was a mean" split_model "$m/model.onnx" sum h.1:begin --loss cross_entropy --loss-reduction sum --freeze 'wpe.*' || exit 1
sum/pipeline "${T[@]}" --resume parts --checkpoint sums --steps 10 2>err
is "made otherwise: refused" "$? $(cat err)" "1 pipeline: error: --resume parts/step_9: its program was made with --loss-reduction: mean, this one with: sum; \
make this one like it, or continue with --accept loss-reduction"
sum/pipeline "${T[@]}" --resume parts --checkpoint sums --steps 10 --accept loss-reduction 2>err
is "one of two accepted" "$? $(grep -c 'with --freeze: none, this one with: wpe' err)" "1 1"
ok "both" sum/pipeline "${T[@]}" --resume parts --checkpoint sums --steps 10 --accept loss-reduction --accept freeze
two/pipeline "${T[@]}" --resume parts --checkpoint x --steps 10 --accept los 2>err
is "nothing of the kind" "$? $(grep -c "did you mean 'loss'" err)" "2 1"

# ---- the rows ----

mkdir other
for f in "$m"/in.*.npy "$m/target.npy"; do cp "$f" other; done
cp other/target.npy edited.npy
perl -e 'open F, "+<", "edited.npy"; seek F, -8, 2; read F, $x, 1; seek F, -8, 2; print F chr(ord($x) ^ 1)'
moved=()
for f in "$m"/in.*.npy; do f=${f##*/in.}; moved+=(--data "${f%.npy}=other/in.$f"); done
ok "the same rows elsewhere" two/pipeline train "${moved[@]}" --data target=other/target.npy "${R[@]}" --resume parts --checkpoint x1 --steps 10
two/pipeline train "${moved[@]}" --data target=edited.npy "${R[@]}" --resume parts --checkpoint x2 --steps 10 2>err
is "one number is another: refused" "$? $(cat err)" "1 pipeline: error: --resume parts/step_9: --data target=edited.npy is not what it was trained with, whose type, shape or \
numbers were others: give the same rows in the same order, or --accept data to go on with these"
ok "accepted" two/pipeline train "${moved[@]}" --data target=edited.npy "${R[@]}" --resume parts --checkpoint x3 --steps 10 --accept data
bound() { "$ppsplit" -q "$top/models/gpt-tsdyn/model.onnx" --bind "batch=$1" -o "bound$1" && grep '"bind", ' "bound$1/pipeline.c"; }
is "rows of a microbatch are no difference" "$(bound 2)" "$(bound 3)"

# ---- epochs ----

ok "two epochs of two steps" two/pipeline "${T[@]:0:1}" "${data[@]}" --data "target=$m/target.npy" --batch 3 --microbatches 3 --epochs 2 --quiet --checkpoint epochs
is "two epochs of two steps: where it is" "$(steps epochs)$(perl -ne 'print " $1" if /"(?:rows|epoch|epoch_row)": "(\d+)"/' epochs/step_4/index.json)" "step_4  12 2 0"
for ((k = 1; k <= 6; k++)); do
    two/pipeline train "${data[@]}" --data "target=$m/target.npy" --batch 4 --microbatches 2 --shuffle 5 --lr 0 --steps $k --quiet \
        --resume rows --checkpoint rows --log-json rows.$k.json || break
done
is "each row once an epoch, in an order of its own, however often the run is begun" "$(cat rows.?.json | losses - | awk '{ sum += $2 }
    NR % 2 == 0 { printf "%.4f ", sum / 2; sum = 0 } !seen[$2]++ { n++ } END { print (n > 3) }')" \
    "$(two/pipeline eval "${data[@]}" --data "target=$m/target.npy" --batch 8 --log-json - --quiet | losses - | awk '{ for (i = 0; i < 3; i++) printf "%.4f ", $2; print 1 }')"
is "eval ends with the mean over all rows" "$(two/pipeline eval "${data[@]}" --data "target=$m/target.npy" --batch 6 --log-json mean.json |
    perl -ne '$n++, $sum += $1 * ($n > 1 ? 2 : 6) if /^step \d+\/\d+ loss (\S+)/; printf "%d", abs($sum / 8 - $1) < 2e-6 && $2 == 8 if /^mean loss (\S+) over (\d+) rows/')" 1

# ---- passes of the schedule that are added up; rates; groups of parameters ----

S=("${T[@]:0:1}" "${data[@]}" --data "target=$m/target.npy" --batch 7 --optimizer adamw --lr 0.01 --lr-schedule cosine --warmup 2 --steps 4 --quiet)
ok "gpipe, six microbatches" two/pipeline "${S[@]}" --microbatches 6 --schedule gpipe --checkpoint whole --dump-grads whole/grads --log-json whole.json
ok "three passes of two" four/pipeline "${S[@]}" --accumulate 3 --microbatches 2 --checkpoint three --dump-grads three/grads --log-json three.json
ok "the same bits of gradients" same whole/grads three/grads
ok "and of parameters" same whole/step_4 three/step_4
is "and losses" "$(losses three.json)" "$(losses whole.json)"
if command -v mpirun >/dev/null; then
    ok "six passes of one, processes" mpirun -n 2 four/pipeline "${S[@]}" --accumulate 6 --microbatches 1 --schedule zb-h1 --checkpoint six
    ok "the same bits" same whole/step_4 six/step_4
fi
is "the rates" "$(perl -MJSON::PP -ne '$d = decode_json($_); print "$$d{lr} " if $$d{step}' whole.json)" "0.005 0.01 0.01 0.005 "
ok "without decay" two/pipeline "${S[@]}" --microbatches 4 --weight-decay 0 --checkpoint no
ok "all parameters by pattern" two/pipeline "${S[@]}" --microbatches 4 --weight-decay 0.5 --no-decay '*' --checkpoint none
ok "the same bits" same no/step_4 none/step_4
ok "biases by pattern" two/pipeline "${S[@]}" --microbatches 4 --weight-decay 0.5 --no-decay '*.bias' --checkpoint some
ok "others" eval '! same no/step_4 some/step_4'

# ---- a damaged one is passed over ----

cp -r straight damaged
printf '\xff' | dd of=damaged/step_12/rank1.safetensors bs=1 seek=9 conv=notrunc status=none
two/pipeline "${T[@]}" --resume damaged --checkpoint damaged --steps 12 >said 2>err
is "the newest whole one is taken" "$? $(head -n 1 said)" "0 resumed from damaged/step_9, 9 steps are done"
is "and why" "$(cat err)" \
    "pipeline: warning: damaged/step_12/rank1.safetensors: damaged: not the file that its index describes: an older checkpoint is taken"
ok "it is written again" same straight/step_12 damaged/step_12

# ---- the log of a run that is resumed goes on, also behind a line that was cut short ----

L=("${T[@]}" --checkpoint logged --every 5 --log-json logged.json)
ok "eight steps" two/pipeline "${L[@]}" --steps 8
printf '{"step": 9, "lo' >>logged.json
rm -r logged/step_8
two/pipeline "${L[@]}" --resume logged --steps 12 >said
is "the last line: the steps and the checkpoint" "$(tail -n 1 said | sed 's/ in .*;/;/')" "done: steps 6 to 12 of 12; saved in logged/step_12"
is "each step once" "$(losses logged.json)" "$(losses straight.json)"
is "and both configurations" "$(grep -n -o '{"config' logged.json)" "$(printf '1:{"config\n7:{"config')"
printf '{"step": 1}\n' >-
is "to standard output, whatever file has that name" "$(two/pipeline "${T[@]}" --resume logged --checkpoint logged --steps 13 --log-json - | losses - | cut -d ' ' -f 1) $(cat ./-)" '13 {"step": 1}'
rm ./-

# ---- beside the run: nothing of step 38 gets to the disk before step 39 is over ----

cat >slow.c <<'END'
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
int fsync(int fd)
{
    static char text[1 << 16];
    for (int i = 0; i < 60000; i++, usleep(10000)) { /* a hang, not a busy machine, ends this */
        FILE *f = fopen("slow.json", "r");
        size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
        text[n] = 0;
        if (f)
            fclose(f);
        if (strstr(text, "\"step\": 39,"))
            return (int)syscall(SYS_fsync, fd);
    }
    abort();
}
END
ok "a slow disk" ${CC:-cc} -shared -fPIC -o slow.so slow.c
ok "the next step does not wait for it" env LD_PRELOAD="$work/slow.so" two/pipeline "${T[@]}" --steps 40 --every 38 --checkpoint slow --log-json slow.json --ranks 1
ok "and the bits are those of the step it was asked for" eval 'two/pipeline "${T[@]}" --steps 38 --checkpoint 38 --quiet && same slow/step_38 38/step_38'

# ---- signals ----

# asked SIGNAL FOLDER COMMAND...: sends it once the run has done some steps; its exit status in $s
asked() {
    local signal=$1 log=$2.json; shift 2
    "$@" --steps 1000000 --log-json "$log" >/dev/null 2>err &
    local pid=$!
    until grep -q '"step": 20,' "$log" 2>/dev/null || ! kill -0 $pid 2>/dev/null; do sleep 0.02; done
    kill -"$signal" $pid
    case $signal in USR1) signal=usr1/step_*/index.json ;; INT) signal=twice/step_*.tmp ;; *) signal='' ;; esac
    if [ -n "$signal" ]; then                               # a second one, once this is there
        until ls $signal >/dev/null 2>&1 || ! kill -0 $pid 2>/dev/null; do sleep 0.02; done
        kill -INT $pid
    fi
    wait $pid
    s=$?
}
last() { ls "$1" | sed 's/step_//' | sort -n | tail -n 1; }
for signal in TERM USR2; do
    asked $signal $signal two/pipeline "${T[@]}" --checkpoint $signal
    is "SIG$signal: exit, and what is said" "$s $(cat err)" \
        "75 pipeline: ended by a signal after step $(last $signal), which is in $signal: --resume goes on from there"
    is "SIG$signal: one checkpoint, of the last step in the log" "$(steps $signal)" "step_$(losses $signal.json | tail -n 1 | cut -d' ' -f1) "
done
asked USR1 usr1 two/pipeline "${T[@]}" --checkpoint usr1
is "SIGUSR1 saves and goes on, SIGINT ends" "$s $(ls usr1 | wc -l)" "75 2"
rm slow.json
asked INT twice env LD_PRELOAD="$work/slow.so" two/pipeline "${T[@]}" --checkpoint twice
is "a second SIGINT waits for no disk" $s 130
if command -v mpirun >/dev/null; then
    asked USR2 processes mpirun -n 2 two/pipeline "${T[@]}" --checkpoint processes
    is "processes: one checkpoint of all ranks" "$(grep -c "ended by a signal" err) $(ls processes | wc -l)" "1 1"
fi
at=$(last TERM)
ok "what was saved" eval 'two/pipeline "${T[@]}" --steps "$at" --checkpoint same --quiet && same "TERM/step_$at" "same/step_$at"'

# ---- started as several that do not know of each other ----

SLURM_JOB_ID=1 SLURM_NTASKS=4 two/pipeline "${T[@]}" >/dev/null 2>err
is "Slurm's tasks without MPI" "$? $(head -n 1 err)" "2 pipeline: error: Slurm has 4 tasks, but there is one process: srun --mpi=pmix, or mpirun, starts them as ranks; --ranks N in a job of one task runs threads"
TORCHELASTIC_RUN_ID=none WORLD_SIZE=2 RANK=0 two/pipeline "${T[@]}" --ranks 2 >/dev/null 2>err
is "torchrun's" "$? $(head -n 1 err)" "2 pipeline: error: torchrun has 2 tasks, but there is one process: mpirun starts them as ranks: mpirun -n N --hostfile hosts out/pipeline train ..."
if command -v mpirun >/dev/null; then
    # a process that is refused must not end the job before the one that says why has begun
    mpirun -n 2 bash -c '[ $OMPI_COMM_WORLD_RANK != 0 ] || sleep 0.3; exec "$@"' - two/pipeline "${T[@]}" --memory 1G >/dev/null 2>err
    is "refused before MPI starts: said, once" "$? $(grep -c '^pipeline: error: --memory needs --recompute auto' err)" "2 1"
fi
ok "ranks as threads, in a job script" env SLURM_JOB_ID=1 SLURM_NTASKS=4 two/pipeline "${T[@]}" --ranks 2

# ---- killed anywhere, resumed ----

# cut N: the Nth call that changes a file kills the program
cat >cut.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void tick(void)
{
    static int n;
    const char *at = getenv("CUT");
    if (at && __atomic_add_fetch(&n, 1, __ATOMIC_SEQ_CST) == atoi(at))
        raise(SIGKILL);
}
#define NEXT(f) (tick(), (__typeof__(&f))dlsym(RTLD_NEXT, #f))
int fsync(int fd) { return NEXT(fsync)(fd); }
int unlink(const char *p) { return NEXT(unlink)(p); }
int unlinkat(int d, const char *p, int flags) { return NEXT(unlinkat)(d, p, flags); }
int rmdir(const char *p) { return NEXT(rmdir)(p); }
int rename(const char *a, const char *b) { return NEXT(rename)(a, b); }
int mkdir(const char *p, unsigned m) { return NEXT(mkdir)(p, m); }
FILE *fopen(const char *p, const char *m) { return NEXT(fopen)(p, m); }
size_t fwrite(const void *p, size_t n, size_t m, FILE *f) { return NEXT(fwrite)(p, n, m, f); }
END
ok "a program that is killed" ${CC:-cc} -w -shared -fPIC -o cut.so cut.c -ldl
killed=0
for ((i = 1; i < 4000; i += 37 + RANDOM % 40)); do
    { (CUT=$i LD_PRELOAD=$work/cut.so two/pipeline "${T[@]}" --resume cut --checkpoint cut --steps 12 --every 2 --keep 2 --quiet --ranks 1) >/dev/null 2>err
      s=$?; } 2>/dev/null
    [ $s -eq 137 ] || break
    killed=$((killed + 1))
    [ $killed -lt 12 ] || { two/pipeline "${T[@]}" --resume cut --checkpoint cut --steps 12 --quiet >/dev/null 2>err; s=$?; break; }
done
is "killed $((killed > 1)) times and more, resumed each time" "$s $((killed > 1))" "0 1"
ok "the same bits" same straight/step_12 cut/step_12
is "nothing temporary is left, nor without an index" "$(ls cut | grep -c tmp) $(ls -d cut/* | wc -l)" "0 $(ls cut/*/index.json | wc -l)"
plan_done
