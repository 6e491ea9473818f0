#!/usr/bin/env bash
# Memory grows with the model and not faster: a GPT of 384 layers, whole and in 32 stages, is compiled in an address space in
# which a pass that keeps something of each part for each other part finds no room.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
[ -z "${SANITIZED:-}" ] || { skip "compile_memory" "sanitizers reserve an address space of their own"; plan_done; exit; }

within() {
    local kib=$1; shift
    (ulimit -v "$kib" && "$ppsplit" -q gpt.onnx --loss cross_entropy "$@" -o out)
}

points=()
for ((i = 12; i < 384; i += 12)); do points+=(--split "h.$i:begin"); done
"$build/models/make_gpt" --layers 384 --dim 64 --heads 4 --vocab 256 --seq 64 -o gpt.onnx
ok "384 layers in 800 MB of addresses, the model's 80 among them" within 800000
ok "in 32 stages in 500" within 500000 "${points[@]}"
plan_done
