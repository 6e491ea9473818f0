#!/usr/bin/env bash
# --offload params: a model whose parameters and gradients do not fit in what the process may take of anonymous memory trains, to the bits of a
# run that may take more.  tests/bench/offload does the same with 8 GB of parameters, in a control group that counts cached files too.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
[ -z "${SANITIZED:-}" ] || { skip "offload" "sanitizers take addresses and memory of their own"; plan_done; exit; }

# 51 MB of parameters and as many of gradients; the matrices are a hole in the model's file
"$build/models/make_gpt" --vectors --dim 512 --layers 4 --heads 8 --seq 8 --rows 1 --vocab 64 -o m.onnx
ok "a GPT of 51 MB builds" split_model m.onnx out h.1:begin,h.2:begin,h.3:begin --params link --loss cross_entropy
# tokens FILE FACTOR: 2 rows of 8 numbers below 64
tokens() {
    local header="{'descr': '<i8', 'fortran_order': False, 'shape': (2, 8), }" i
    printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "$header" >"$1"
    for ((i = 0; i < 16; i++)); do printf "\\x$(printf %02x $((i * $2 % 64)))\\0\\0\\0\\0\\0\\0\\0"; done >>"$1"
}
tokens x.npy 7
tokens y.npy 5
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
train() { out/pipeline train --data input_ids=x.npy --data target=y.npy --ranks 1 --schedule loopedbfs --microbatches 2 --steps 3 --lr 0.1 --threads 1 \
    --eval-data input_ids=y.npy --eval-data target=x.npy --eval-every 1 "$@"; }
limited() { (ulimit -d 80000 && train "$@"); }
numbers() { grep -o -e 'step . loss [^ ]* grad_norm [^ ]*' -e 'eval.*loss [^ ]*' "$1"; }
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
planned=$(sed -n 's/.* at most \([0-9]*\) of them in memory.*/\1/p' away) there=$(sed -n 's/.* \([0-9]*\) were in memory at most/\1/p' away)
ok "never more in memory than planned: $there of $planned" test "$there" -le "$planned" -a "$there" -gt $((planned / 3))
is "nothing is left in the folder" "$(ls -A | grep -c '^\.ppsplit')" 0
plan_done
