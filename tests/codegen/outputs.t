#!/usr/bin/env bash
# How microbatches meet in outputs without rows: a mean, a sum, what is the same in all; anything else is refused where several
# microbatches would write it, with the node and the remedies, and never holds the last microbatch alone.
. "$(dirname "$0")/../lib.sh"
cd "$top/models/special/contrast" || exit 1
data=(--data x=in.x.npy --data y=in.y.npy)

infer() { "$work/$1/pipeline" infer "${data[@]}" "${@:2}"; }

# refused OUT WORDS -- ARGUMENT...: exit 1, one message that says all the words, no file
refused() {
    local out=$1 words=() said code=0; shift
    while [ "$1" != -- ]; do words+=("$1"); shift; done
    said=$(infer "$out" "${@:2}" 2>&1 >/dev/null) || code=$?
    [ $code = 1 ] && [ "$(grep -c error: <<<"$said")" = 1 ] && [ ! -e "$work/none.npy" ] || { echo "exit $code: $said"; return 1; }
    for w in "${words[@]}"; do [[ $said == *$w* ]] || { echo "not a word of $w: $said"; return 1; }; done
}

shape() { head -c 128 "$1" | grep -ao "'shape': ([^)]*)"; }

ok "splits and builds" split_model model.onnx "$work/plain" b:begin 2>"$work/warnings"
"$ppsplit" model.onnx -o "$work/said" >/dev/null 2>"$work/warnings"
ok "ppsplit warns of the two outputs, and of no other" test "$(grep -c "warning: output '\(logits\|most\)' .*cannot be put together" "$work/warnings")$(grep -c warning "$work/warnings")" = 22
for o in mean sum fixed; do
    ok "$o: four microbatches" infer plain --microbatches 4 --output "$o=$work/$o.npy"
    ok "$o: PyTorch's" "$compare" npy "$work/$o.npy" "out.$o.npy"
    ok "$o: two steps of two microbatches" infer plain --batch 4 --microbatches 2 --output "$o=$work/$o.npy"
    ok "$o: PyTorch's again" "$compare" npy "$work/$o.npy" "out.$o.npy"
done
ok "a contrastive head is refused" refused plain logits contrastive /MatMul -\-merge -\-bind -- --microbatches 4 --output "logits=$work/none.npy"
ok "in steps as well" refused plain logits -- --batch 2 --output "logits=$work/none.npy"
ok "so is a maximum over the samples" refused plain most ReduceMax -\-merge -- --output "p=$work/none.npy" --output "most=$work/none.npy"
ok "others are written meanwhile" infer plain --output "p=$work/p.npy"
ok "a single microbatch is not refused" infer plain --batch 2 --steps 1 --output "logits=$work/one.npy" --output "most=$work/most.npy"
is "and has its own rows' numbers" "$(shape "$work/one.npy")" "'shape': (2, 2)"
ok "the user may say how they meet" split_model model.onnx "$work/merged" b:begin --merge logits=0 --merge most=mean
ok "and it runs" infer merged --output "logits=$work/said.npy" --output "most=$work/most.npy"
is "as told" "$(shape "$work/said.npy")" "'shape': (8, 2)"
plan_done
