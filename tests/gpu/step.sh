# step.sh - the first thing to know of a card: a step of the GPT in bfloat16, unsplit, of one microbatch of few, some and many rows.  Its loss beside the
# CPU's, the bits of a second run, time and tokens a second beside PyTorch's, planned memory, and where the time goes.  Sourced by run, after time.sh.

# What a run computed, all digits: loss and norm of the gradient of each step.
computed() { grep -o '"\(loss\|grad_norm\)": [^,}]*' "$1/log.json"; }

step_of() {
    local rows=$1 first=$2 run options name seconds memory
    gpt_rows=$rows
    gpt_work
    ok "gpt, $rows rows: builds for the card" build "$gpt/step.$rows" "$program" || return
    run=$results/step.$rows.again
    ok "gpt, $rows rows: trains" train "step.$rows" --steps $((steps / 3)) || return
    run=$results/step.$rows
    ok "gpt, $rows rows: trains again" train "step.$rows" --steps $steps || return
    ok "gpt, $rows rows: twice the same bits" cmp <(computed "$run.again") <(computed "$run" | head -n "$(computed "$run.again" | wc -l)")
    line "ppsplit, $rows rows, bfloat16" "$(median_seconds "$run/log.json")" "$peak_bf16" "$(planned_memory "$run/out")"
    if [ "$rows" = "$first" ] && ok "gpt, $rows rows: builds for the CPU" build "$gpt/step.$rows" pipeline; then
        local program=pipeline device=cpu loss
        loss=$(first_loss "$run/log.json") run=$run.cpu
        # a score of 8 bits is off by 2^-9 of itself, the loss by as much of a logit, and those of an untrained model are below 1
        ok "gpt, $rows rows: trains on the CPU" train "step.$rows" --steps 1 &&
            ok "gpt, $rows rows: the loss of the CPU" near "$(first_loss "$run/log.json")" "$loss" 1e-2
    fi
    for options in "--bf16 --sdpa" "--bf16 --sdpa --compile"; do
        torch_is_here || break
        # shellcheck disable=SC2086
        IFS=$'\t' read -r name seconds memory _ < <(limited python3 "$top/tests/gpu/torch_gpt.py" $sizes --rows "$rows" --microbatches 1 --steps $steps $options 2>"$results/torch.err") &&
            line "PyTorch $name, $rows rows" "$seconds" "$peak_bf16" "$memory GiB"
    done
}

step_all() {
    local folder gpt=gpt microbatches=1 steps=30 cores=$jobs rows=()
    tap=$results/step.tap
    rm -f "$tap"
    [ "$mode" = cuda ] || gpt=gpt-tiny steps=9
    for folder in "$dir/$gpt"/step.*; do rows+=("${folder##*.}"); done
    mapfile -t rows < <(printf '%s\n' "${rows[@]}" | sort -n)
    gpt_sizes
    ok "gpt: weights and tokens" gpt_data "${rows[-1]}" || return
    table_head "a step of one microbatch"
    for folder in "${rows[@]}"; do
        step_of "$folder" "${rows[0]}"
    done
    kinds "step.${rows[0]}" "$peak_bf16"
    kinds "step.${rows[-1]}" "$peak_bf16"
}
