# step.sh - the first thing to know of a card: a step of the GPT in bfloat16, unsplit, of one microbatch of few, some and many rows, a line each.
# Sourced by run, after time.sh.

# What a run computed, all digits: loss and norm of the gradient of each step.
computed() { grep -o '"\(loss\|grad_norm\)": [^,}]*' "$1/log.json"; }

# The row of cards.def that the card is most like; prepare has made forecasts for all.
card_row() { case ${peak_card:-} in *H200*) echo h200 ;; *A100*) echo a100 ;; *) echo h100 ;; esac; }
forecast_of() { sed -n 's/^a step on one .*: \([0-9.]*\) ms at the least, .*/\1/p' "$dir/$gpt/step.$1/forecast.$(card_row)" 2>/dev/null; }
# "4146563712 bytes planned, 4300000000 taken" of --verbose, in GiB
memory_of() { awk '/ device memory: / { printf "%.2f %.2f\n", $5 / 2^30, $8 / 2^30 }' "$1/out"; }

# The loss of so many rows on the CPU, by the program of few rows in as many microbatches as that takes.
cpu_loss() {
    local rows=$1 few=$2 program=pipeline device=cpu run=$results/step.$1.cpu microbatches=$(($1 / $2)) gpt_rows=$2
    train "step.$few" --steps 1 && cpu=$(first_loss "$run/log.json")
}

torch_milliseconds() {
    local options=$1 seconds
    torch_is_here || { echo -; return; }
    # shellcheck disable=SC2086
    IFS=$'\t' read -r _ seconds _ < <(limited python3 "$top/tests/gpu/torch_gpt.py" $sizes --rows "$gpt_rows" --microbatches 1 --steps 12 $options 2>"$results/torch.err") &&
        awk -v s="$seconds" 'BEGIN { printf "%.2f", 1e3 * s }' || echo -
}

step_head() {
    echo
    echo "GPT of $((12 * gpt_layers * gpt_dim * gpt_dim + gpt_vocab * gpt_dim + gpt_seq * gpt_dim)) weights in bfloat16, unsplit, AdamW, a microbatch a step: ms of a step, PyTorch's with its fused attention, GiB"
    printf '%5s %9s %9s %5s %9s %10s %9s %9s %9s %8s %8s\n' rows loss "CPU's" bits ms tokens/s forecast "eager" compiled planned taken
}

# What is known of a size so far, as a line: once as it is measured, once with the CPU's loss.
step_line() {
    printf '%5d %9s %9s %5s %9s %10s %9s %9s %9s %8s %8s\n' "$rows" "$loss" "$cpu" "$bits" "$ms" "$rate" "${forecast:--}" "$eager" "$compiled" $memory
}

step_of() {
    local rows=$1 run bits=differ ms rate forecast loss cpu=- eager=- compiled=- memory
    gpt_rows=$rows
    gpt_work
    ok "gpt, $rows rows: builds for the card" build "$gpt/step.$rows" "$program" || return
    run=$results/step.$rows.again
    ok "gpt, $rows rows: trains" train "step.$rows" --steps $((steps / 3)) || return
    run=$results/step.$rows
    ok "gpt, $rows rows: trains again" train "step.$rows" --steps $steps --verbose || return
    ok "gpt, $rows rows: twice the same bits" cmp <(computed "$run.again") <(computed "$run" | head -n "$(computed "$run.again" | wc -l)") && bits=same
    ms=$(median_seconds "$run/log.json" | awk '{ printf "%.2f", 1e3 * $1 }')
    rate=$(awk -v t="$tokens" -v ms="$ms" 'BEGIN { printf "%.0f", (ms > 0 ? 1e3 * t / ms : 0) }')
    loss=$(first_loss "$run/log.json" | awk '{ printf "%.5f", $1 }')
    forecast=$(forecast_of "$rows") memory=$(memory_of "$run")
    ok "gpt, $rows rows: memory planned and taken is said" [ -n "$memory" ]
    eager=$(torch_milliseconds "--bf16 --sdpa") compiled=$(torch_milliseconds "--bf16 --sdpa --compile")
    step_line | tee -a "$results/step.lines"
}

# The CPU's losses come last: they need no card.  A score of 8 bits is off by 2^-9 of itself, the loss by as much of a logit, and those of an
# untrained model are below 1.
step_cpu() {
    local rows loss bits ms rate forecast eager compiled memory planned cpu few=$1
    ok "gpt, $few rows: builds for the CPU" build "$gpt/step.$few" pipeline
    while read -r rows loss cpu bits ms rate forecast eager compiled planned memory; do
        memory="$planned $memory" cpu=-
        ok "gpt, $rows rows: trains on the CPU" cpu_loss_into "$rows" "$few" && cpu=$(cat "$results/cpu.loss") && ok "gpt, $rows rows: the loss of the CPU" near "$cpu" "$loss" 1e-2
        step_line >>"$results/step"
    done <"$results/step.lines"
}
cpu_loss_into() { local cpu=''; cpu_loss "$@" && awk -v l="$cpu" 'BEGIN { printf "%.5f\n", l }' >"$results/cpu.loss"; }

step_all() {
    local folder gpt=gpt microbatches=1 steps=30 cores=$jobs rows=()
    tap=$results/step.tap
    rm -f "$tap" "$results"/step.lines
    [ "$mode" = cuda ] || gpt=gpt-tiny steps=3
    for folder in "$dir/$gpt"/step.*; do rows+=("${folder##*.}"); done
    mapfile -t rows < <(printf '%s\n' "${rows[@]}" | sort -n)
    gpt_sizes
    ok "gpt: weights and tokens" gpt_data "${rows[-1]}" || return
    step_head | tee "$results/step"
    for folder in "${rows[@]}"; do
        step_of "$folder"
    done
    [ -s "$results/step.lines" ] || return
    kinds "step.${rows[0]}" "$peak_bf16"
    [ ${#rows[@]} -eq 1 ] || kinds "step.${rows[-1]}" "$peak_bf16"
    step_cpu "${rows[0]}"
}
