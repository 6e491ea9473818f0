#!/usr/bin/env bash
# --bind NAME=LEAST..MOST for GPUs, run on the CPU under the shim.  Law 12 on a device: with a length of n the outputs, losses and gradients of the
# program of any length are to the bit those of the program of length n, whose sizes the compiler knows.  Rows of several lengths in one step have
# PyTorch's gradients.
. "$(dirname "$0")/../lib.sh"
command -v "$cxx" >/dev/null || { skip "the shim" "no C++ compiler"; plan_done; exit; }
cd "$top/models/special/lengths" || exit 1

# program OUT MODEL ARGUMENT...: without checks of each memory access, which other tests make
program() {
    rm -rf "$work/$1"
    "$ppsplit" -q "$2" --target cuda -o "$work/$1" "${@:3}" && make_shim "$work/$1" CHECK=0
}
# run OUT TO ARGUMENT...
run() {
    rm -rf "$work/$2"*
    SHIM_LINES=0 SHIM_PRODUCTS=$work/$2.products "$work/$1/pipeline-shim" train --device cuda --lr 0.1 --steps 2 --dump-grads "$work/$2" --log-json "$work/$2.log" --output "$logits=$work/$2.npy" \
        "${data[@]}" "${@:3}"
}
equal() {
    local f
    cmp "$work/any.npy" "$work/bound.npy" && [ "$(steps any)" = "$(steps bound)" ] || return
    for f in "$work"/bound/*.safetensors; do cmp "$work/any/${f##*/}" "$f" || return; done
}
# tokens FILE SHAPE MODULUS, images FILE SHAPE: numbers that repeat only after as many as their modulus
tokens() { array "$work/$1.npy" i8 "$2" '(($_ + 1) * 37 + 5) % $ARGV[0]' "$3"; }
images() { array "$work/$1.npy" f4 "$2" '(($_ + 1) * 29 % 64) / 64 - 0.3'; }
# at NAME LENGTHS: the model bound to them, trained as the program of any length is
at() {
    local bind=() n
    for n in $2; do bind+=(--bind "$n"); done
    ok "$1 of $2" program programs_bound "${model[@]}" "${bind[@]}"
    ok "$1 of $2: trains" run programs_bound bound
    ok "$1 of $2: in the program of any length" run programs_any any
    ok "$1 of $2: the same bits" equal
}

# Two lengths; in two stages, whose messages NCCL carries, rows of their own.
logits=logits
model=(pair.onnx --loss cross_entropy --bind batch=2 --split e:end)
ok "an encoder and a decoder of any length" program programs_any "${model[@]}" --bind enc=1..20 --bind dec=1..12
tokens x 2,7 19
images mask 2,7
tokens y 2,12 19
tokens target 2,12 19
data=(--data x="$work/x.npy" --data mask="$work/mask.npy" --data y="$work/y.npy" --data target="$work/target.npy")
at pair "enc=7 dec=12"
is "in products of as many rows and columns, however far rows are apart" "$(cut -d' ' -f1-4 "$work/any.products" | sort)" "$(cut -d' ' -f1-4 "$work/bound.products" | sort)"
data=(--data x=pair.x.npy --data mask=pair.mask.npy --data y=pair.y.npy --data target=pair.target.npy)
SHIM_DEVICES=2 ok "rows of their own" run programs_any mixed --lengths enc=pair.enc.npy --lengths dec=pair.dec.npy --microbatches 4 --steps 1 --ranks 2 --transport nccl
ok "PyTorch's gradients" "$compare" grads "$work/mixed" pair.safetensors

# An attention that is written out, with dropout: rows as long as the sequence, below and above 1,024 bytes, as far apart as the longest.
model=(distant.onnx --loss cross_entropy --bind batch=2)
ok "products of rows of any length" program programs_any "${model[@]}" --bind seq=1..300
for n in 1 300; do
    tokens x "2,$n" 19
    tokens y "2,$n" 19
    data=(--data x="$work/x.npy" --data target="$work/y.npy")
    at rows seq=$n
    is "rows of $n: apart by no multiple of 16 bytes" "$(awk '{ for (i = 5; i <= 7; i++) if ($i % ($i > 1024 ? 128 : 16)) print }' "$work/any.products")" ""
done

# Images: a table that is resized; a CNN in f16, whose kernels and rows of statistics are chosen for the greatest sizes, and whose norm reads, pass
# after pass, what is made in the place of a convolution's result.
logits=y
model=(patches.onnx --loss cross_entropy --bind batch=2)
ok "a resized table" program programs_any "${model[@]}" --bind 'height=2*h' --bind 'width=2*w' --bind h=1..8 --bind w=1..8
images x 2,3,6,14
tokens target 2 7
data=(--data x="$work/x.npy" --data target="$work/target.npy")
at patches "height=6 width=14"
model=(pictures.onnx --loss cross_entropy --bind batch=2 --dtype f16) sizes=(--bind 'height=4*h' --bind 'width=4*w')
ok "images of many sizes, in two members" "$ppsplit" -q "${model[@]}" "${sizes[@]}" --bind h=1..40 --bind w=1..40 --tensor 2 --target cuda -o "$work/members"
ok "of few" program programs_any "${model[@]}" "${sizes[@]}" --bind h=1..12 --bind w=1..12
images x 2,3,12,28
data=(--data x="$work/x.npy" --data target="$work/target.npy")
at images "height=12 width=28"
plan_done
