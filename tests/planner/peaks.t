#!/usr/bin/env bash
# What is planned for a rank, activations and workspaces together, is at most 1.05 of the most that is alive at one step of one action
# (tests/tools/peaks.c): every model, uncut and at the points of its splits, with every way to recompute, for the CPU, in half
# precision and for CUDA.
. "$(dirname "$0")/../lib.sh"
peaks=$build/tests/tools/peaks

# of MODEL OPTION...: its lines, in $lines
lines=()
of() {
    local points p
    for p in none ${splits:-}; do
        points=()
        [ $p = none ] || [ $p = markers ] || for p in ${p//,/ }; do points+=(--split "$p"); done
        mapfile -O ${#lines[@]} -t lines < <(cd "$dir" && "$peaks" $files --loss "$loss" ${bind:+--bind "$bind"} "${points[@]}" $extra "$@" 2>/dev/null ||
            echo "$dir ${points[*]} $*: exit $?")
    done
}
# Lines that say more, or nothing of the kind.
over() { awk '{ if (!match($0, /planned [0-9]+ of [0-9]+$/) || $(NF - 2) > 1.05 * $NF) print }'; }
is "what is more is told" "$(printf '%s\n' "m rank 0 never: planned 105 of 100" "m rank 0 never: planned 106 of 100" "m: exit 1" | over | wc -l)" 2
for target in "--target cpu" "--dtype bf16" "--target cuda"; do
    lines=()
    for dir in "$top"/models/*/ "$top"/models/special/*/; do
        [ -f "$dir/case.env" ] || continue
        bind='' extra='' files=model.onnx splits=''
        . "$dir/case.env"
        of $target
    done
    is "$target: no rank of any has more than 1.05 of the most that is alive" \
        "$(printf '%s\n' "${lines[@]}" | over)" ""
    ok "${#lines[@]} of them" test ${#lines[@]} -gt 300
done
plan_done
