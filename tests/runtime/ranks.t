#!/usr/bin/env bash
# Ranks that are started with other options, data, parameters, programs or libraries than the others are refused before the first step, by name; of every
# option: test_options.c.  Bits that may differ from a checkpoint's are warned of.
. "$(dirname "$0")/../lib.sh"
if ! command -v mpirun >/dev/null; then
    echo "1..0 # SKIP no mpirun"
    exit
fi
cd "$work" || exit 1
m=$top/models/gpt-ts
ok "a program" split_model "$m/model.onnx" two h.1:begin --loss cross_entropy || exit 1
ok "another" split_model "$m/model.onnx" other h.1.mlp:begin --loss cross_entropy || exit 1
case_data "$m"
D=("${data[@]}" --data "target=$m/target.npy")
# both A... -- B...: ranks 0 and 1; the status and what the pipeline says, without digests
both() {
    local first=() second
    while [ "$1" != -- ]; do first+=("$1"); shift; done
    shift; second=("$@")
    mpirun -n 1 "${first[@]}" : -n 1 "${second[@]}" >said 2>err
    echo "$? $(grep '^pipeline' err | sed 's/ ([0-9a-f]\{8,\})//g')"
}
T=(two/pipeline train "${D[@]}" --steps 2)
options="all ranks of a run are started with the same options"
is "alike, but for what is a rank's own" "$(both "${T[@]}" --threads 1 -- "${T[@]}" --quiet)" "0 "
is "a schedule of the rate" "$(both "${T[@]}" -- "${T[@]}" --lr-schedule cosine)" \
    "1 pipeline: error: rank 1 has --lr-schedule cosine, rank 0 has no --lr-schedule: $options"
is "a flag" "$(both "${T[@]}" --optimizer momentum --nesterov -- "${T[@]}" --optimizer momentum)" "1 pipeline: error: rank 1 has no --nesterov, rank 0 has --nesterov: $options"
is "another command" "$(both "${T[@]}" -- two/pipeline eval "${D[@]}")" "1 pipeline: error: rank 1 has the command eval, rank 0 has the command train: $options"
is "another program" "$(both "${T[@]}" -- other/pipeline "${T[@]:1}")" \
    "1 pipeline: error: rank 1 has a program of model.onnx in 2 stages, rank 0 has a program of model.onnx in 2 stages: ppsplit wrote them in different runs; build one, and let all machines have it"

# ---- what files hold ----

cp "$m/target.npy" same.npy
perl -e '$_ = do { local $/; <> }; substr($_, -8, 1) = chr(1 ^ ord substr($_, -8, 1)); print' "$m/target.npy" >edited.npy
is "the same rows elsewhere" "$(both "${T[@]}" -- two/pipeline train "${data[@]}" --data target=same.npy --steps 2)" "0 "
is "other rows" "$(both two/pipeline train "${data[@]}" --data target=same.npy -- two/pipeline train "${data[@]}" --data target=edited.npy)" \
    "1 pipeline: error: rank 1 has --data target=edited.npy, rank 0 has --data target=same.npy: their types, shapes or numbers differ, and all ranks are to see the same rows"
is "other rows to evaluate" "$(both "${T[@]}" "${data[@]/#--data/--eval-data}" --eval-data target=same.npy -- "${T[@]}" "${data[@]/#--data/--eval-data}" --eval-data target=edited.npy |
    grep -c '^1 .*rank 1 has --eval-data target=edited.npy, rank 0 has --eval-data target=same.npy')" 1
cp -r two/params params; cp -r two/params changed
perl -e 'open F, "+<", "changed/stage1.safetensors"; seek F, -4, 2; print F "\x11"'
is "the same parameters elsewhere" "$(both "${T[@]}" --params params -- "${T[@]}" --params two/params)" "0 "
is "other parameters" "$(both "${T[@]}" --params params -- "${T[@]}" --params changed)" \
    "1 pipeline: error: rank 1 has parameters of stage 1 in changed, rank 0 has parameters of stage 1 in params: their sizes, headers or numbers differ, and the stages of a model \
are to be of one split"
ok "checkpoints" eval '"${T[@]}" --quiet --checkpoint a && "${T[@]}" --quiet --seed 1 --lr 0.02 --checkpoint b'
is "another checkpoint" "$(both "${T[@]}" --params a -- "${T[@]}" --params b)" "1 pipeline: error: rank 1 has b/step_2, rank 0 has a/step_2: they are not the same checkpoint"

# ---- what they compute with ----

# LIBRARY, where it takes another code by its variable: seen in what a checkpoint holds
ok "a run" "${T[@]}" --quiet --checkpoint here
arithmetic() { perl -ne 'print $1 if /"arithmetic": "(.*)"/' "$1/step_2/index.json"; }
is "a checkpoint says what it was computed with" "$(arithmetic here | grep -c '^instructions of ')" 1
for set in OPENBLAS_CORETYPE=Prescott DNNL_MAX_CPU_ISA=SSE41; do
    env "$set" "${T[@]}" --quiet --checkpoint there >/dev/null 2>&1
    [ -d there ] && [ "$(arithmetic here)" != "$(arithmetic there)" ] && break
    rm -rf there
done
if [ -d there ]; then
    is "another library, or its code" "$(both env "$set" "${T[@]}" -- "${T[@]}" | sed 's/has [^:]*: bits/has WHAT: bits/')" \
        "1 pipeline: error: rank 1 has WHAT: bits depend on which rank computes what, then; --accept cpu goes on all the same"
    is "accepted" "$(both env "$set" "${T[@]}" --accept cpu -- "${T[@]}" --accept cpu)" "0 "
    "${T[@]:0:${#T[@]}-1}" 3 --resume there --checkpoint there --quiet 2>err
    is "resumed elsewhere: warned" "$? $(cat err)" "0 pipeline: warning: there/step_2 was computed with $(arithmetic there), this run computes with $(arithmetic here): its bits may differ \
from those of a run that was not interrupted"
fi
"${T[@]:0:${#T[@]}-1}" 3 --resume here --checkpoint here --quiet 2>err
is "resumed here" "$? $(cat err)" "0 "
plan_done
