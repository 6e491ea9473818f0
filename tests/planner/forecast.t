#!/usr/bin/env bash
# ppsplit forecast: its sums are those of the lines of launches.tsv by the rates of cards.def, computed here once more; these lines have the
# operations that the sizes of a GPT say; GPT-2 takes no longer than it should; what is no table is refused.  What the program itself counts
# under the CUDA shim is compared in tests/whole/gpu.t.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
gpt() { "$build/models/make_gpt" --sparse "${@:2}" -o "$1.onnx" && "$ppsplit" -q "$1.onnx" --loss cross_entropy --params link --target cuda "${options[@]}" -o "$1"; }
forecast() { "$top/tests/gpu/forecast" "$@" 2>&1; }
milliseconds() { sed -n 's/^a step on one .*: \([0-9.]*\) ms at the least, .*/\1/p'; }
near() { awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { exit !(a > 0 && (a - b) ^ 2 <= (t * b) ^ 2) }'; }
export PPSPLIT=$ppsplit

options=(--dtype bf16)
ok "a GPT-2 of 124 M parameters" gpt gpt2 --vocab 50257 --dim 768 --layers 12 --heads 12 --seq 1024 --rows 4 --tied
forecast gpt2 --longest 1000 >said
is "a step of 4 x 1024 tokens on an H100 takes 14 ms at the most" "$(milliseconds <said | awk '{ print ($1 > 8 && $1 <= 14) }')" 1
ok "and with 16 rows" gpt gpt16 --vocab 50257 --dim 768 --layers 12 --heads 12 --seq 1024 --rows 16 --tied
is "of 16 x 1024 tokens 50 ms" "$(forecast gpt16 | milliseconds | awk '{ print ($1 > 30 && $1 <= 50) }')" 1
# operations of a kind, as launches.tsv has them: of products forward all weights that a token meets, backward twice that; of attention
# 2 products forward, 7 backward, over more than half of the square, of which a few tiles are more than the causal mask leaves
operations() { awk -F'\t' -v f="$1" -v k="$2" '$2 == f && $5 == k { n += $8 } END { printf "%.0f", n }' gpt2/launches.tsv; }
tokens=$((4 * 1024)) weights=$((12 * 12 * 768 * 768 + 50257 * 768)) square=$((2 * 4 * 12 * 12 * 1024 * 1024 * 64))
ok "products forward" near "$(operations forward product)" $((2 * tokens * weights)) 0.001
ok "products backward" near "$(operations backward product)" $((4 * tokens * weights)) 0.001
ok "attention forward" near "$(operations forward attention)" $((2 * square * 53 / 100)) 0.01
ok "attention backward" near "$(operations backward attention)" $((7 * square * 53 / 100)) 0.01
# AdamW: gradients for the norm; value, gradient, value, and both states there and back, and the copies in 16 bits; zeros
awk -F'\t' -v n=$((weights + 1024 * 768)) '$2 == "update" { b += $9 } $2 == "state" { b += 2 * $9 } END { exit !(b > 4 * n * 9 && b < 4 * n * 9.7) }' gpt2/launches.tsv
ok "bytes of the optimizer" [ $? = 0 ]

# of two members each sends half of a tensor that they sum and scatter, two a layer, or gather, as many and the head's; of a sum that all have, of a token's loss and of one for all, all of it
options=(--tensor 2)
ok "a GPT of two members" gpt member --vocab 512 --dim 128 --layers 3 --heads 8 --seq 32 --rows 2
is "bytes that a member sends" "$(awk -F'\t' '$2 == "forward" && $5 ~ /ReduceScatter|AllReduce/ { n += $8 } $2 == "forward" && $5 == "AllGather" && /ln_/ { n += $8 } END { print n }' member/launches.tsv)" $((2 * 13 * 64 * 128 + 4 * (64 + 1)))
is "a small one takes what the CPU takes to launch it" "$(forecast member | awk '/^a step/ { t = $8 } $1 == "all" { print t == sprintf("%.3f", $2 * 4e-3) }')" 1
is "the link is what they wait for" "$(awk -F'\t' '$5 == "ReduceScatter" { print $6 }' member/launches.tsv | sort -u)" link
options=(--dtype bf16)

# what a product of the MLP reads of the norm before it, 4096 x 768 numbers, is in the cache still; its weights are not
is "bytes that are near" "$(awk -F'\t' '$2 == "forward" && $5 == "product" && /h.5\/mlp\/c_fc/ { print $15 }' gpt2/launches.tsv)" $((2 * tokens * 768))
ok "no launch has more of them than bytes" awk -F'\t' 'NR > 2 && $15 > $9 { exit 1 }' gpt2/launches.tsv

# the whole sum once more, of what needs no waves: what moves memory, and loops
again=$(awk -F'\t' 'NR > 2 && $6 ~ /^(memory|scalar)$/ && $2 ~ /^(forward|backward|update|state)$/ {
    unit = $6 == "scalar" ? $8 / 25e12 : 0; memory = ($9 - $15) / 3000e9; if (memory < $9 / 5400e9) memory = $9 / 5400e9
    t += ($2 == "state" ? 2 : 1) * ($7 * 2e-6 + (unit > memory ? unit : memory)) } END { printf "%.3f", t * 1e3 }' gpt2/launches.tsv)
attention=$(awk -F'\t' '$5 == "attention" && $2 ~ /^(forward|backward)$/ { u = $8 / 184e12; m = ($9 - $15) / 3000e9; t += 2e-6 * $7 + (u > m ? u : m) } END { printf "%.3f", t * 1e3 }' gpt2/launches.tsv)
is "kinds add up to the step" "$(awk '$1 ~ /^(product|attention|elementwise|row|column|copy|optimizer|fill|host|[A-Z][A-Za-z]*)$/ && NF >= 6 && $4 ~ /^[0-9.]+$/ { t += $3 } $1 == "all" { print (t - $3) ^ 2 < 0.0001 }' said)" 1
ok "attention by its operations" near "$(awk '$1 == "attention" { print $3 }' said)" "$attention" 0.01
ok "loops and memory by theirs" near "$(awk '$1 != "product" && $1 != "attention" && $1 != "all" && NF >= 6 && $3 ~ /^[0-9.]+$/ && $5 == "%" { t += $3 } END { print t }' said)" "$again" 0.01
is "a product's floor is above its operations at the full rate" "$(awk '$1 == "product" && $4 ~ /^[0-9.]+$/ { print ($6 > 200 && $6 < 680) }' said)" 1

# microbatches, cards, TF32
step() { forecast "$@" | milliseconds; }
forward_and_backward=$(sed -n 's/^stage 0: forward \([0-9.]*\) ms, backward \([0-9.]*\) ms, .*/\1 \2/p' said | awk '{ print $1 + $2 }')
ok "a microbatch more takes a forward and a backward more" near "$(echo "$(step gpt2 --microbatches 3) $(step gpt2)" | awk '{ print ($1 - $2) / 2 }')" "$forward_and_backward" 0.001
ok "an A100 takes longer, an H200 no longer" awk -v a="$(step gpt2 --card a100)" -v h="$(step gpt2)" -v m="$(step gpt2 --card h200)" 'BEGIN { exit !(a > 1.5 * h && m < h) }'
ok "without states less" awk -v a="$(step gpt2 --optimizer sgd)" -v h="$(step gpt2)" 'BEGIN { exit !(h - a > 0.6 && h - a < 0.8) }'
options=(--split h.1:begin)
ok "a small one in float32, in two stages" gpt small --vocab 1000 --dim 256 --layers 2 --heads 4 --seq 256 --rows 8
is "stages" "$(forecast small | grep -c '^stage [01]: forward [0-9.]* ms, backward [0-9.]* ms, update [0-9.]* ms$')" 2
ok "TF32 is faster" awk -v a="$(step small --tf32)" -v h="$(step small)" 'BEGIN { exit !(a < h) }'
is "it says so" "$(sed -n '2,$p' small/launches.tsv | head -n 1)" "$(printf 'stage\tfunction\tonce\tpart\tkind\tunit\tlaunches\toperations\tbytes\tm\tn\tk\tcount\todd\tnear\tnodes')"

# ---- refused ----
head -n 5 small/launches.tsv >whole && sed '4s/\t/ /' whole >small/launches.tsv
is "a line that is none" "$(forecast small; echo $?)" "small/launches.tsv: error: line 4 is not what ppsplit writes
3"
"$ppsplit" -q small.onnx --loss cross_entropy --params link -o cpu
is "a program for CPUs alone" "$(forecast cpu | head -n 2 | tail -n 1)" "hint: ppsplit MODEL.onnx --loss LOSS --target cuda -o cpu writes it"
is "a card that is none" "$("$ppsplit" forecast gpt2 --card h10 2>/dev/null; echo $?)" 2
is "the cards are those of the table" "$(forecast gpt2 --card none | sed -n 's/^Valid arguments are: //p') $("$ppsplit" forecast --help | sed -n 's/^ *--card \([^ ]*\).*/\1/p')" \
    "$(sed -n 's/^CARD(\([a-z0-9]*\),.*/\1/p' "$top/partition/auto/cards.def" | paste -sd' ') $(sed -n 's/^CARD(\([a-z0-9]*\),.*/\1/p' "$top/partition/auto/cards.def" | paste -sd'|')"
plan_done
