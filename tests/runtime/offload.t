#!/usr/bin/env bash
# --offload params: a model whose parameters and gradients do not fit in what the process may take of anonymous memory trains, to the bits of a
# run that may take more.  tests/bench/offload does the same with 8 GB of parameters, in a control group that counts cached files too.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
[ -z "${SANITIZED:-}" ] || { skip "offload" "sanitizers take addresses and memory of their own"; plan_done; exit; }

# 51 MB of parameters and as many of gradients; the matrices are a hole in the model's file
"$build/models/make_gpt" --vectors --dim 512 --layers 4 --heads 8 --seq 8 --rows 1 --vocab 64 -o m.onnx
ok "a GPT of 51 MB builds" split_model m.onnx out h.1:begin,h.2:begin,h.3:begin --params link --loss cross_entropy
array x.npy i8 2,8 '$_ * 7 % 64'
array y.npy i8 2,8 '$_ * 5 % 64'
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
train() { out/pipeline train --data input_ids=x.npy --data target=y.npy --ranks 1 --schedule loopedbfs --microbatches 2 --steps 3 --lr 0.1 --threads 1 \
    --eval-data input_ids=y.npy --eval-data target=x.npy --eval-every 1 "$@"; }
limited() { (ulimit -d 80000 && train "$@"); }
numbers() { grep -o -e 'step ./. loss [^ ]* grad_norm [^ ]*' -e 'eval.*loss [^ ]*' "$1"; }
train --dump-grads g1 --checkpoint c1 >all
no() { ! "$@"; }
ok "a limit of 80 MB: too little for all of it" no limited
away() { limited --offload params --offload-dir . --dump-grads g2 --checkpoint c2 --verbose >away; }
ok "enough for two stages of four" away
is "the same losses and norms" "$(numbers away)" "$(numbers all)"
ok "which fall" awk '{ if (NR > 1 && $4 >= last) exit 1; last = $4 }' <(numbers away | grep grad_norm)
is "and those of other rows" "$(numbers away | grep -vc grad_norm)" 3
ok "the same gradients" diff -r g1 g2
same() { local f; for f in c1/step_3/*.safetensors; do cmp "$f" "c2/step_3/${f##*/}" || return; done; }
ok "the same parameters" same

# With one stage there at a time (FairScale's OffloadModel): each step every stage's parameters come once for F and once for B, but the last one's,
# which are still there, and gradients go once; 1F1B does so for each microbatch, finds the first stage's there from the second on, and gets
# what it has added up.
one() { train --offload params --offload-dir . --unshard 1 --schedule "$1" --verbose >one; }
sizes() { sed -n "/^const PpStage pp_stage[0-9]* = {/,/^};/s/.*\.$1 = \([0-9]*\).*/\1/p" out/pipeline.c; }
moved() { sed -n 's/.* in memory; \([0-9]*\) bytes in and \([0-9]*\) out a step.*/\1 \2/p' one; }
all=$(sizes 'bytes = {.param' | awk '{ n += $1 } END { printf "%d", n }') grads=$(sizes grad | awk '{ n += $1 } END { printf "%d", n }')
first=$(sizes 'bytes = {.param' | head -1) last=$(sizes 'bytes = {.param' | tail -1)
ok "LoopedBFS with one stage in memory" one loopedbfs
is "parameters come once a direction, gradients go once" "$(moved)" "$((2 * all - last)) $grads"
is "as many did in three steps" "$(sed -n 's/.*: \([0-9]*\) bytes came and \([0-9]*\) went with actions.*/\1 \2/p' one)" "$((3 * (2 * all - last))) $((3 * grads))"
largest=$(paste <(sizes 'bytes = {.param') <(sizes grad) | awk '$1 + $2 > most { most = $1 + $2 } END { printf "%d", most }')
is "no more is in memory than the largest stage with its gradients" "$(sed -n 's/.* at most \([0-9]*\) of them in memory.*/\1/p' one)" "$largest"
ok "1F1B" one 1f1b
is "for each of two microbatches" "$(moved)" "$((2 * (2 * all - last) - first + grads)) $((2 * grads))"

# Two replicas: with --zero 3 the file of each has its shares alone, and those of the other come into the window.
two() { train --ranks 2 --dp 2 --microbatches 1 --dump-grads "g$1" --checkpoint "c$1" --verbose "${@:2}" >"two$1"; }
file() { sed -n 's/^rank 0 offload: .* state are \([0-9]*\) bytes in .*/\1/p' "two$1"; }
two 4 && two 5 --zero 1 --offload params --offload-dir . && two 6 --zero 3 --offload params --offload-dir .
is "replicas that divide parameters: the same losses and norms" "$(numbers two6)" "$(numbers two4)"
ok "the same gradients and parameters" eval 'diff -r g4 g6 && "$build/tests/tools/compare" same c4/step_3 c6/step_3'
ok "half of the parameters are in a file: $(file 6) of $(file 5)" test $((4 * $(file 6))) -lt $((3 * $(file 5) + 1000000))
rm -r g[456] c[456]
train --offload params --offload-dir . --groups 2 --microbatches 1 >/dev/null 2>err
is "several groups of rows" "$? $(head -n 1 err)" "2 pipeline: error: --offload params: a replica can run only one group of rows in a step: for --groups 2 use --dp 2"
is "one replica that divides" "$(train --steps 1 --zero 3 2>&1 >/dev/null)" "pipeline: warning: --zero 3 divides nothing: there is one replica (--dp 1)"
is "nothing is left in the folder" "$(ls -A | grep -c '^\.ppsplit')" 0
plan_done
