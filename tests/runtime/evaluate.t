#!/usr/bin/env bash
# The loss of other rows while a model trains is, to the bit, what `eval` says of a checkpoint of that step; on any ranks, under any
# schedule, and nothing of the training is changed by it.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
m=$top/models/gpt-ts
ok "four stages" split_model "$m/model.onnx" four h.0.mlp:begin,h.1:begin,h.1.mlp:end --loss cross_entropy || exit 1
ok "statistics, in two stages" split_case "$top/models/resnet-ts" "$work/bn" && make_pipeline bn || exit 1
losses() { perl -MJSON::PP -ne '$d = decode_json($_); print "$$d{eval_step} $$d{eval_loss} $$d{rows}\n" if $$d{eval_step}' "$1"; }
mean() { perl -MJSON::PP -ne '$d = decode_json($_); printf "%d %s %d\n", $ENV{AT}, $$d{mean_loss}, $$d{rows} if defined $$d{mean_loss}' "$1"; }

# evals OUT CHECKPOINTS STEPS OPTION...: the lines that a training should have written
evals() {
    local out=$1 folder=$2 steps=$3 s; shift 3
    for s in $steps; do
        "$out/pipeline" eval "$@" --params "$folder/step_$s" --quiet --log-json eval.json || return
        AT=$s mean eval.json
    done
}

# ---- a text of tokens; eight rows of training, five windows of another text ----

case_data "$m"
perl -e 'print pack("v*", map { $_ * 7 % 48 } 0..80)' >text.bin
T=(train "${data[@]}" --data "target=$m/target.npy" --batch 4 --microbatches 4 --optimizer adamw --lr 0.01 --shuffle 3 --steps 5 --quiet)
E=(--eval-tokens input_ids=text.bin --dtype-of input_ids=u16 --eval-every 2)
ok "trains and evaluates" four/pipeline "${T[@]}" "${E[@]}" --checkpoint seen --every 2 --log-json seen.json
ok "trains" four/pipeline "${T[@]}" --checkpoint alone --every 2
ok "nothing of the training is changed" "$compare" same seen/step_5 alone/step_5
want=$(evals four alone "2 4 5" --tokens input_ids=text.bin --dtype-of input_ids=u16 --batch 4)
is "what eval says of checkpoints: every second step, and the last" "$(losses seen.json)" "$want"
is "three lines" "$(wc -l <<<"$want")" 3
for how in "--ranks 2 --schedule interleaved1f1b" "--ranks 2 --schedule zbvzerobubble" "--ranks 3 --schedule gpipe" "--ranks 1 --schedule odd.csv"; do
    printf '%s\n' 0F0,1F0,2F0,3F0,3B0,2B0,1B0,0B0,0F1,1F1,2F1,3F1,3B1,2B1,1B1,0B1,0F2,1F2,2F2,3F2,3B2,2B2,1B2,0B2,0F3,1F3,2F3,3F3,3B3,2B3,1B3,0B3 >odd.csv
    ok "$how" four/pipeline "${T[@]}" "${E[@]}" $how --log-json how.json
    is "$how: the same bits" "$(losses how.json)" "$want"
done
# stages 0 and 3 on one rank, 1 and 2 on the other, as no generator places them with these rows
perl -e 'print join(",", map { ("0F$_") } 0..3), ",", join(",", map { ("3F$_", "3B$_") } 0..3), ",", join(",", map { "0B$_" } 0..3), "\n",
    join(",", map { ("1F$_", "2F$_") } 0..3), ",", join(",", map { ("2B$_", "1B$_") } 0..3), "\n"' >apart.csv
ok "a placement of one's own" four/pipeline "${T[@]}" "${E[@]}" --schedule apart.csv --log-json how.json
is "a placement of one's own: the same bits" "$(losses how.json)" "$want"
if command -v mpirun >/dev/null; then
    ok "processes" mpirun -n 4 four/pipeline "${T[@]}" "${E[@]}" --schedule zb-h1 --log-json how.json
    is "processes: the same bits" "$(losses how.json)" "$want"
fi

# replicas share the rows out, so it is what eval says with as many
for more in "" "--zero 3"; do
    ok "two replicas $more" four/pipeline "${T[@]}" --microbatches 2 "${E[@]}" --dp 2 --ranks 4 $more --checkpoint "two$more" --every 2 --log-json how.json --trace two.json
    is "two replicas $more: the losses of their own checkpoints" "$(losses how.json)" \
        "$(evals four "two$more" "2 4 5" --tokens input_ids=text.bin --dtype-of input_ids=u16 --batch 4 --dp 2 --ranks 4)"
done
unshards=$(grep -c '"cat":"UNSHARD"' two.json)
ok "there were gathers" [ "$unshards" -gt 0 ]
is "each gather has a span in the trace" "$(grep -c '"cat":"gather"' two.json)" "$unshards"

# groups of rows are the same, by whatever replicas they are taken
for more in "" "--dp 2 --ranks 2"; do
    ok "four groups $more" four/pipeline "${T[@]}" --microbatches 1 "${E[@]}" --groups 4 --ranks 1 $more --checkpoint "groups$more" --every 2 --log-json how.json
    is "four groups $more: the losses that as many replicas have" "$(losses how.json)" \
        "$(evals four "groups$more" "2 4 5" --tokens input_ids=text.bin --dtype-of input_ids=u16 --batch 4 --dp 4 --ranks 4)"
done

# a mean over the targets that count, most of which one replica has, of three that have 3, 3 and 2 rows
perl -e 'local $/; $_ = <STDIN>; my $head = 10 + unpack "x8v", $_; my @v = unpack "x${head}q<*", $_;
    $v[$_] = -100 for grep { $_ < 70 || $_ % 3 } 0..$#v; print substr($_, 0, $head), pack "q<*", @v' <"$m/target.npy" >ignored.npy
step() { rm -rf "$1" && mkdir "$1" && four/pipeline train "${data[@]}" --data target=ignored.npy --steps 1 --lr 0 --quiet --log-json "$1/log.json" --dump-grads "$1/grads" "${@:2}"; }
total() { perl -MJSON::PP -ne '$d = decode_json($_); printf "%.5f\n", $$d{loss} if $$d{step}' "$1/log.json"; }
ok "ignored targets: one replica" step one --microbatches 4
ok "ignored targets: three" step three --dp 3 --ranks 12 --microbatches 2
is "ignored targets: the mean over all that count" "$(total three)" "$(total one)"
ok "ignored targets: its gradients" "$compare" grads three/grads one/grads 1e-5

# ---- running statistics are read and not changed; rows that do not divide, fewer than a step's ----

r=$top/models/resnet-ts
B=(train --data "x=$r/in.x.npy" --data "target=$r/target.npy" --lr 0.1 --steps 3 --quiet)
ok "statistics" bn/pipeline "${B[@]}" --eval-data "x=$r/in.x.npy" --eval-data "target=$r/target.npy" --eval-every 1 --checkpoint with --every 1 --log-json with.json
ok "without" bn/pipeline "${B[@]}" --checkpoint without --every 1
ok "statistics are those of the training" "$compare" same with/step_3 without/step_3
is "and eval's are read" "$(losses with.json)" "$(evals bn without "1 2 3" --data "x=$r/in.x.npy" --data "target=$r/target.npy")"
ok "replicas, whose statistics are the first one's" bn/pipeline "${B[@]}" --dp 2 --ranks 4 --eval-data "x=$r/in.x.npy" --eval-data "target=$r/target.npy" --eval-every 1 \
    --checkpoint replicas --every 1 --log-json with.json
is "which all of them read" "$(losses with.json)" "$(evals bn replicas "1 2 3" --data "x=$r/in.x.npy" --data "target=$r/target.npy" --dp 2 --ranks 4)"

# ---- refused ----

says() { local name=$1 status=$2 want=$3; shift 3; "$@" >/dev/null 2>err; is "$name" "$? $(head -n 1 err)" "$status pipeline: error: $want"; }
says "not all inputs" 2 "input 'target' is missing: --eval-data target=FILE.npy" four/pipeline "${T[@]}" --eval-data "input_ids=$m/in.input_ids.npy"
says "a token that is none" 1 "--eval-tokens input_ids=bad.bin: row 0, position 1 (token 1 of the file) is 99, an index into 'wte.weight', which has 48 rows: allowed are 0 to 47" \
    eval 'perl -e "print pack(q(v*), 0, 99, (1) x 40)" >bad.bin; four/pipeline "${T[@]}" --eval-tokens input_ids=bad.bin --dtype-of input_ids=u16'
says "fewer rows than groups" 1 "--eval-data: 2 rows for 4 groups, each of which needs at least one" \
    eval 'perl -e "print pack(q(v*), (1) x 40)" >few.bin; four/pipeline "${T[@]}" --groups 4 --microbatches 1 --eval-tokens input_ids=few.bin --dtype-of input_ids=u16'
says "without rows" 2 "--eval-every needs --eval-data" four/pipeline "${T[@]}" --eval-every 2
says "eval has its own" 2 "--eval-data is for train; here the rows are those of --data" four/pipeline eval "${data[@]}" --eval-data "input_ids=$m/in.input_ids.npy"
plan_done
