#!/usr/bin/env bash
# --recompute: whatever is computed again instead of kept, under every kind of schedule, the loss of each step, the gradients, the
# running statistics and what the optimizer makes of them have the same bits; what a rank takes is what was planned.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1

# run NAME SCHEDULE RANKS WHAT...: what a run of three steps leaves behind, as one hash; its standard output is in log
run() {
    local program=$1 schedule=$2 ranks=$3; shift 3
    rm -rf grads checkpoint
    "$program/pipeline" train "${data[@]}" --steps 3 --lr 0.1 --seed 7 --schedule "$schedule" --ranks "$ranks" --microbatches 4 "$@" \
        --dump-grads grads --checkpoint checkpoint --log-json steps >log || return
    cat grads/*.safetensors checkpoint/step_3/*.safetensors <(sed -n '/"step":/s/"seconds.*//p' steps) | md5sum
}

# alike NAME WHAT...
schedules=("gpipe 4" "1f1b 4" "interleaved1f1b 2" "zb-h1 4" "zbvzerobubble 2" "dualpipev 2")
alike() {
    local program=$1 schedule what; shift
    for schedule in "${schedules[@]}"; do
        want=$(run "$program" $schedule) || want="a run"
        for what; do is "$program, $schedule, --recompute $what: the same bits" "$(run "$program" $schedule --recompute "$what")" "$want"; done
    done
}

# planned SCHEDULE RANKS WHAT...: what such a run of the GPT would take, in log; it ends with its first action
planned() { gpt/pipeline train "${data[@]}" --until 0F0 --schedule "$1" --ranks "$2" --microbatches 4 "${@:3}" >log; }

activations() { sed -n 's/^rank [0-9]* memory:.* activations \([0-9]*\),.*/\1/p' log | tr '\n' ' '; }

# ---- Dropout and BatchNormalization ----

dir=$top/models/mobilenet-ts
case_data "$dir"; data+=(--data "target=$dir/target.npy")
ok "mobilenet: splits and builds" split_model "$dir/model.onnx" mobilenet features.0:begin,features.1:begin,features.2:begin --loss cross_entropy
alike mobilenet except-last always 1,3 cheap
run mobilenet 1f1b 4 --recompute never >/dev/null
is "1f1b keeps the stash of each microbatch under way" "$(activations)" "74240 323904 132992 45568 "
run mobilenet 1f1b 4 --recompute always >/dev/null
is "recomputed: the inputs, and one stash" "$(activations)" "49280 157120 91584 45568 "

# ---- attention with Dropout and a bias that trains: parts of the stash ----

"$build/models/make_gpt" --vocab 128 --dim 48 --layers 4 --heads 8 --seq 32 --rows 2 --dropout 10 --bias -o gpt.onnx
"$build/models/make_tokens" --vocab 128 --rows 8 --seq 32 >/dev/null
data=(--data input_ids=x.npy --data target=target.npy)
ok "gpt: splits and builds" split_model gpt.onnx gpt h.1:begin,h.2:begin,h.3:begin --loss cross_entropy
alike gpt always cheap
run gpt 1f1b 4 --recompute never >/dev/null
is "gpt: what is kept" "$(activations)" "1183744 906240 628736 360704 "
run gpt 1f1b 4 --recompute cheap >/dev/null
is "gpt: without attention's weights and their Dropout" "$(activations)" "693760 611328 481280 360704 "

# ---- auto: the least that fits, and what cannot be ----

chosen() { grep -E '^rank [0-9]* recomputes' log | sed 's/; \([0-9]*\) operations.*/; \1/'; }
want=$(run gpt 1f1b 4)
is "gpt: in 900 KiB: the same bits" "$(run gpt 1f1b 4 --recompute auto --memory 900K)" "$want"
is "a window of some that recompute parts and some the whole" "$(chosen)" "rank 0 recomputes stage 0: 0 parts 2, 1-3 whole; 13117568
rank 1 recomputes stage 1: 0-1 parts 0, 2 whole, 3 parts 0; 5240192
rank 2 recomputes stage 2: 0-3 parts 0; 1310720
rank 3 recomputes nothing"
is "no rank takes more" "$(sed -n 's/^rank [0-9]* memory: \([0-9]*\) bytes.*/\1/p' log | awk '$1 > 900 * 1024')" ""
run gpt 1f1b 4 --recompute auto --memory 10M >/dev/null
is "nothing, where all fits" "$(chosen | sort -u -k3)" "rank 0 recomputes nothing"
# More memory never costs more operations, from what little will do up to all that is needed, and none is taken that is not given.
costs= over=
for kib in 805 850 900 950 1000 1100 1200 1300 1400 1700; do
    planned 1f1b 4 --recompute auto --memory ${kib}K
    costs+=" $(sed -n 's/^rank [0-9]* recomputes.*; \([0-9]*\) operations.*/\1/p' log | awk '{ n += $1 } END { printf "%d", n }')"
    over+=$(sed -n 's/^rank [0-9]* memory: \([0-9]*\) bytes.*/\1/p' log | awk -v most=$((kib * 1024)) '$1 > most')
done
is "more memory, less to compute again" "$(tr ' ' '\n' <<<"$costs" | sed 1d | sort -c -rn 2>&1)$over" ""
is "nothing in the end, at first more than once" "$(awk '{ print ($1 > 4 * $5), $NF }' <<<"$costs")" "1 0"
run gpt 1f1b 4 --recompute auto --memory 500K 2>err >/dev/null
least=$(sed -n 's/.*--memory \([0-9]*\) is the least.*/\1/p' err)
is "what is too little says what would do, which it does" "$(run gpt 1f1b 4 --recompute auto --memory "$least")" "$want"
is "to the byte" "$(run gpt 1f1b 4 --recompute auto --memory $((least - 1)) 2>&1 | grep -c "is the least")" 1
# Nothing, all parts or the whole for each of rank 0's four microbatches: no combination that fits in as much costs less.
"$ppsplit" schedule 1f1b --ranks 4 --microbatches 4 --csv rows.csv
of_first() { sed -n "/^const PpStage pp_stage0 = {/,/^};/s/.*\.$1 = \([0-9]*\).*/\1/p" gpt/pipeline.c; }
again=$(sed -n '/stage0_again\[/,/^};/s/.*\.flops = \([0-9]*\),.*/\1/p' gpt/pipeline.c | awk '{ n += $1 } END { print n }')
first=$(of_first 'flops = {.forward')
level() { sed "s/0B$1/0R$1$2,0B$1/" rows.csv >some.csv && mv some.csv rows.csv; }
cp rows.csv plain.csv
for a in '' @255 whole; do for b in '' @255 whole; do for c in '' @255 whole; do for d in '' @255 whole; do
    cp plain.csv rows.csv
    k=0 cost=0
    for what in "$a" "$b" "$c" "$d"; do
        case $what in @255) level $k @255; cost=$((cost + again)) ;; whole) level $k ''; cost=$((cost + first)) ;; esac
        k=$((k + 1))
    done
    planned rows.csv 4
    sed -n "s/^rank 0 memory: \([0-9]*\) bytes.*/\1 $cost/p" log
done; done; done; done >every
worse=
for most in $(cut -d' ' -f1 every | sort -nu | awk -v least="$least" '$1 >= least'); do
    planned 1f1b 4 --recompute auto --memory "$most"
    took=$(sed -n 's/^rank 0 recomputes.*; \([0-9]*\) operations.*/\1/p' log) best=$(awk -v most="$most" '$1 <= most { print $2 }' every | sort -n | head -1)
    [ "${took:-0}" -le "$best" ] || worse+=" $most:${took:-0}>$best"
done
is "auto takes no more operations than the best of 81 combinations that fits in as much" "$(wc -l <every)$worse" 81
if [ -z "${SANITIZED:-}" ]; then
    for what in "cheap" "always" "auto --memory 2500K"; do
        LD_PRELOAD=$build/tests/tools/count_alloc.so COUNT_ALLOC=report COUNT_ALLOC_STEPS=3 gpt/pipeline train "${data[@]}" --steps 3 \
            --schedule zb-h1 --microbatches 4 --recompute $what >log
        is "--recompute $what: ranks take what was predicted" "$(sed -n 's/^tensors //p' report)" \
            "$(sed -n 's/^rank [0-9]* memory: \([0-9]*\) bytes.*/\1/p' log | awk '{ n += $1 } END { printf "%.0f", n }')"
    done
fi

# Of what no placement of activations and workspaces could go below, at most a twentieth more.
for what in never cheap always "auto --memory 2500K"; do
    for schedule in "1f1b 4" "zb-h1 4" "interleaved1f1b 2"; do
        planned $schedule --recompute $what --verbose
        is "$schedule, --recompute $what: activations and work at most 1.05 of their bound" \
            "$(sed -n 's/^rank [0-9]* plan: activations and work \([0-9]*\) bytes, no placement needs less than \([0-9]*\);.*/\1 \2/p' log | awk '$1 > 1.05 * $2')" ""
    done
done

# ---- the bytes of a layer of a GPT of 22 B parameters (Korthikanti et al. 2205.05198, table 2: s 2048, b 4, h 6144, a 64) ----
# Their 34 sbh + 5 as^2b are 16-bit numbers and masks of a byte: of float32, 66 sbh + 9 as^2b.  ppsplit keeps neither the norms' results (8 sbh)
# nor GELU's (16 sbh), for backward makes them from the operands in passing, nor what lies between attention's products (9 as^2b), but two
# numbers for each row of scores: 42 sbh.  Recomputing all of it leaves the layer's input, 4 sbh.

"$build/models/make_gpt" --vocab 512 --dim 6144 --layers 3 --heads 64 --seq 2048 --rows 4 --dropout 10 --sparse -o large.onnx
ok "a layer of 22 B parameters" "$ppsplit" -q large.onnx --split h.1:begin --split h.2:begin --loss cross_entropy --params link -o large
sbh=$((2048 * 4 * 6144))
kept=$(sed -n '/pp_stage1 = {/,/^};/s/.*\.stash = \([0-9]*\).*/\1/p' large/pipeline.c)
input=$(sed -n '/stage1_input\[\] = {/,/^};/s/.*\.bytes = \([0-9]*\)}.*/\1/p' large/pipeline.c | sort -n | tail -1)
kept=$((kept + input))
ok "42 sbh within 2 %: $kept" test $((kept * 100)) -ge $((42 * sbh * 98)) -a $((kept * 100)) -le $((42 * sbh * 102))
is "its input is 4 sbh" "$input" $((4 * sbh))
rm -rf large large.onnx large.onnx.data

refused() { gpt/pipeline train "${data[@]}" "$@" 2>&1; echo $?; }
is "a stage that is not there" "$(refused --recompute 1,4)" "pipeline: error: --recompute 1,4: there is no stage 4, the last one is 3
Try 'pipeline --help' for more information.
2"
is "auto of how much" "$(refused --recompute auto)" "pipeline: error: --recompute auto: --memory BYTES says what a rank may take
Try 'pipeline --help' for more information.
2"
is "a word that is none" "$(refused --recompute alwys)" "pipeline: error: --recompute alwys: expected never, except-last, always, cheap, auto or numbers of stages (0,2)
Try 'pipeline --help' for more information.
2"
plan_done
