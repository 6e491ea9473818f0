# time.sh - the GPT: seconds of a step, tokens and FLOPs a second beside the card's peaks; PyTorch's; kinds of kernels.  Sourced by run.
microbatches=8 steps=12

# The sizes of the GPT as variables, and the floating-point operations of a step.
gpt_sizes() {
    local word last=''
    sizes=$(cat "$dir/$gpt/sizes")
    for word in $sizes; do
        case $last in --vocab | --dim | --layers | --heads | --seq | --rows) printf -v "gpt_${last#--}" %d "$word" ;; esac
        last=$word
    done
    gpt_work
}
gpt_work() {
    tokens=$((microbatches * gpt_rows * gpt_seq))
    # forward and backward of every weight a token meets (blocks and head), and of attention's two products over the whole square
    flops=$((tokens * (6 * (12 * gpt_layers * gpt_dim * gpt_dim + gpt_dim * gpt_vocab) + 12 * gpt_layers * gpt_dim * gpt_seq)))
}

# gpt_data ROWS: weights and tokens, which did not travel.
gpt_data() {
    # shellcheck disable=SC2086
    "$tools/make_gpt" --external $sizes -o "$dir/$gpt/gpt.onnx" &&
        "$tools/make_tokens" --rows "$1" --seq "$gpt_seq" --vocab "$gpt_vocab" -o "$dir/$gpt"
}

# train PROGRAM OPTION...: steps of the GPT, PROGRAM as its folder, "2", "2.bf16" or "step.16"; log and output into $run
train() {
    local folder=$1 data=$dir/$gpt ranks=${1%%.*}; shift
    [ "$ranks" != step ] || ranks=1
    mkdir -p "$run"
    limited "$data/$folder/$program" train --device "${device:-cuda}" --ranks "$ranks" --data "input_ids=$data/x.npy" --data "target=$data/target.npy" \
        --batch $((microbatches * gpt_rows)) --microbatches $microbatches --schedule 1f1b --optimizer adamw --lr 1e-4 --log-json "$run/log.json" "$@" >"$run/out" 2>&1 ||
        { cat "$run/out"; return 1; }
}

# The median of a log's steps but the first two, which load kernels.
median_seconds() {
    sed -n 's/.*"seconds": \([0-9.e+-]*\).*/\1/p' "$1" | tail -n +3 | sort -g | awk '{ t[NR] = $1 } END { print t[int((NR + 1) / 2)] }'
}

# What the ranks planned before the first step, together: they share the card.
planned_memory() { awk '/^rank [0-9]+ memory: / { n += $4 } END { printf "%.2f GiB", n / 2^30 }' "$1"; }

first_loss() { sed -n 's/.*"loss": \([0-9.e+-]*\).*/\1/p' "$1" | head -n 1; }

# line NAME SECONDS PEAK [MEMORY]: a line of the table; what it says is kept for ratios
line() {
    awk -v name="$1" -v s="$2" -v peak="$3" -v memory="${4:-}" -v tokens="$tokens" -v flops="$flops" 'BEGIN {
        rate = flops / s * 1e-12
        printf "%-34s %10.2f %12.0f %10.2f %8s %10s\n", name, s * 1e3, tokens / s, rate, (peak > 0 ? sprintf("%.1f %%", 100 * rate / peak) : "-"), memory }' |
        tee -a "$results/table"
    printf '%s\t%s\n' "$1" "$2" >>"$results/times"
}

# table_head TITLE: of what comes, and of what is said once more at the end
table_head() {
    { echo
      echo "GPT of $((12 * gpt_layers * gpt_dim * gpt_dim + gpt_vocab * gpt_dim + gpt_seq * gpt_dim)) weights, AdamW: $1"
      printf '%-34s %10s %12s %10s %8s %10s\n' "" "ms a step" "tokens/s" "TFLOP/s" "of peak" "memory"; } | tee -a "$results/table"
}

# The peak of a precision, and the program of so many stages that computes in it.
peak_of() { case $1 in float32) echo "$peak_fp32" ;; TF32) echo "$peak_tf32" ;; *) echo "$peak_bf16" ;; esac; }
folder_of() { [ "$2" = bfloat16 ] && echo "$1.bf16" || echo "$1"; }

near() { awk -v a="$1" -v b="$2" -v by="$3" 'BEGIN { exit !(a - b <= by && b - a <= by) }'; }

time_pipelines() {
    local stages precision options folder run loss=''
    for stages in 1 2 $([ $mode != cuda ] || echo 4); do
        for precision in float32 TF32 bfloat16; do
            [ $mode = cuda ] || [ $precision = float32 ] || continue    # the shim has no TF32, and step has run bfloat16
            folder=$(folder_of $stages $precision)
            [ $precision = TF32 ] || ok "gpt, $stages stages, $precision: builds for the card" build "$gpt/$folder" "$program" || continue
            options=(); [ $precision != TF32 ] || options=(--tf32)
            run=$results/gpt.$stages.$precision
            ok "gpt, $stages stages, $precision: trains" train "$folder" --steps $steps "${options[@]}" || continue
            line "ppsplit, $stages stages, $precision" "$(median_seconds "$run/log.json")" "$(peak_of $precision)" "$(planned_memory "$run/out")"
            # a score of 8 bits is off by 2^-9 of itself, the loss by as much of a logit, and those of an untrained model are below 1
            [ $precision != bfloat16 ] || ok "gpt, $stages stages, bfloat16: the loss of float32" near "$(first_loss "$run/log.json")" "$loss" 1e-2
            [ $precision = float32 ] || continue
            # untrained, all tokens are equally likely but for noise; and stages change nothing
            loss=${loss:-$(first_loss "$run/log.json")}
            ok "gpt, $stages stages: the first loss is that of chance" near "$loss" "$(awk -v v="$gpt_vocab" 'BEGIN { print log(v) }')" 0.5
            ok "gpt, $stages stages: the loss of the unsplit one" near "$(first_loss "$run/log.json")" "$loss" 2e-5
        done
    done
}

torch_is_here() { [ "$mode" = cuda ] && python3 -c 'import torch; assert torch.cuda.is_available()' >/dev/null 2>&1; }

# The same model in PyTorch; ratios are its time by ours unsplit, in the same precision.
time_torch() {
    local mode_of options seconds memory name ours
    torch_is_here || { echo "PyTorch: not here: nothing stands beside these times"; return; }
    for options in {,--compile}" "{,--sdpa}" "{--bf16,--tf32,}; do    # what compiles takes long, and comes last
        [ "$(left)" -gt 0 ] || { echo "PyTorch $options: no time is left"; continue; }
        # shellcheck disable=SC2086
        IFS=$'\t' read -r name seconds memory _ < <(limited python3 "$top/tests/gpu/torch_gpt.py" $sizes --microbatches $microbatches --steps $steps $options 2>"$results/torch.err") ||
            { echo "PyTorch $options: $(tail -n 1 "$results/torch.err")"; continue; }
        case $options in *tf32*) mode_of=TF32 ;; *bf16*) mode_of=bfloat16 ;; *) mode_of=float32 ;; esac
        line "PyTorch $name" "$seconds" "$(peak_of $mode_of)" "$memory GiB"
        ours=$(sed -n "s/^ppsplit, 1 stages, $mode_of\t//p" "$results/times")
        [ -z "$ours" ] || awk -v t="$seconds" -v o="$ours" -v n="$name" 'BEGIN { printf "    PyTorch %s takes %.3f times as long as ppsplit unsplit\n", n, t / o }'
    done
}

# kinds PROGRAM PEAK OPTION...: what one stage's kernels reach, by kind, from a profile: TFLOP/s and GB/s beside the peaks.
kinds() {
    local folder=$1 peak=$2 run=$results/gpt.profile.$1; shift 2
    PP_PROFILE=$run.tsv CUDA_MODULE_LOADING=EAGER ok "gpt, $folder: a profile" train "$folder" --steps 3 "$@" || return
    echo
    echo "kernels of the GPT in $folder${1:+ $*}: 3 steps; of the peaks $peak TFLOP/s and $peak_gbs GB/s"
    awk -F'\t' -v flops="$peak" -v gbs="$peak_gbs" '
        { k = $1; calls[k] += $3; s[k] += $4; f[k] += $5; b[k] += $6; total += $4; name[NR] = $0 }
        function share(of, peak) { return of > 0 && peak > 0 ? sprintf("%5.1f %%", 100 * of / peak) : "      -" }
        function row(what, n, t, ops, bytes) {
            t = t > 0 ? t : 1e-12
            printf "%-44s %8d %10.3f %6.1f %% %9.2f %s %9.1f %s\n", what, n, t * 1e3, 100 * t / total, ops / t * 1e-12, share(ops / t * 1e-12, flops),
                bytes / t * 1e-9, share(bytes / t * 1e-9, gbs)
        }
        END {
            printf "%-44s %8s %10s %8s %9s %7s %9s %7s\n", "kind", "calls", "ms", "of all", "TFLOP/s", "of peak", "GB/s", "of peak"
            for (k in s) order[++n] = k
            for (i = 1; i <= n; i++)
                for (j = i + 1; j <= n; j++)
                    if (s[order[j]] > s[order[i]]) { t = order[i]; order[i] = order[j]; order[j] = t }
            for (i = 1; i <= n; i++)
                row(order[i], calls[order[i]], s[order[i]], f[order[i]], b[order[i]])
            print "the ten longest:"
            for (i = 1; i <= NR && i <= 10; i++) { split(name[i], a, "\t"); row("  " a[1] ": " substr(a[2], 1, 40 - length(a[1])), a[3], a[4], a[5], a[6]) }
        }' "$run.tsv"
}

time_all() {
    local cores=$jobs
    gpt=gpt
    tap=$results/time.tap
    rm -f "$tap"
    [ $mode = cuda ] || { gpt=gpt-tiny microbatches=2 steps=3; }
    gpt_sizes
    ok "gpt: weights and tokens" gpt_data $((microbatches * gpt_rows)) || return
    table_head "$tokens tokens a step in $microbatches microbatches"
    time_pipelines
    time_torch
    kinds 1 "$peak_fp32"
    [ $mode != cuda ] || kinds 1 "$peak_tf32" --tf32
    rm -f "$dir/$gpt"/gpt.onnx "$dir/$gpt"/gpt.onnx.data
}
