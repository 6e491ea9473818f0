#!/usr/bin/env bash
# --bind NAME=LEAST..MOST for GPUs, run on the CPU under the shim.  Law 12 on a device: with a length of n the outputs, losses and gradients of the
# program of any length are to the bit those of the program of length n, whose sizes the compiler knows.
. "$(dirname "$0")/../lib.sh"
cxx=${CXX:-g++}
command -v "$cxx" >/dev/null || { skip "the shim" "no C++ compiler"; plan_done; exit; }
cd "$top/models/special/lengths" || exit 1

# program OUT MODEL ARGUMENT...: without checks of each memory access, which other tests make
program() {
    rm -rf "$work/$1"
    "$ppsplit" -q "$2" --target cuda -o "$work/$1" "${@:3}" &&
        make -s -C "$work/$1" pipeline-shim CHECK=0 SHIM="$top/tests/cuda_shim" O="$build/cuda_shim" CXX="$cxx" CC="$cc" SHIMFLAGS='-O0 -g0 -Wall -Wextra -Werror' RUNTIME="$runtime" \
            RUNTIME_BUILD="$build/tests/objects" DETECTED="$build/tests/first/build/detected.mk" CFLAGS="${PIPELINE_CFLAGS:--O1}" LDFLAGS="$pipeline_ldflags"
}
# run OUT TO ARGUMENT...
run() {
    rm -rf "$work/$2"*
    SHIM_LINES=0 "$work/$1/pipeline-shim" train --device cuda --lr 0.1 --steps 2 --dump-grads "$work/$2" --log-json "$work/$2.log" --output "$logits=$work/$2.npy" "${data[@]}" "${@:3}"
}
steps() { grep -o '"loss": [^,]*, "grad_norm": [^,]*' "$work/$1.log"; }
equal() {
    local f
    cmp "$work/any.npy" "$work/bound.npy" && [ "$(steps any)" = "$(steps bound)" ] || return
    for f in "$work"/bound/*.safetensors; do cmp "$work/any/${f##*/}" "$f" || return; done
}
# array FILE TYPE SHAPE MODULUS: numbers that repeat only after 37
array() {
    perl -e '($type, $shape, $mod) = @ARGV; $n = 1; $n *= $_ for split /,/, $shape; $h = "{\"descr\": \"<$type\", \"fortran_order\": False, \"shape\": ($shape,), }"; $h =~ tr/"/\x27/;
        $h .= " " x (117 - length $h) . "\n"; print "\x93NUMPY\x01\x00", pack("v", length $h), $h, $type eq "i8" ? pack("q<*", map { ($_ * 37 + 5) % $mod } 1 .. $n)
            : pack("f<*", map { ($_ * 29 % 64) / 64 - 0.3 } 1 .. $n)' "$2" "$3" "${4:-1}" >"$work/$1.npy"
}
# at NAME LENGTHS -- ARGUMENT...: the model bound to them, trained as the program of any length is
at() {
    local bind=()
    for n in $2; do bind+=(--bind "$n"); done
    ok "$1 of $2" program programs_bound "${model[@]}" "${bind[@]}"
    ok "$1 of $2: trains" run programs_bound bound
    ok "$1 of $2: in the program of any length" run programs_any any
    ok "$1 of $2: the same bits" equal
}

logits=logits
model=(model.onnx --loss cross_entropy --bind batch=2)
ok "a GPT of any length" program programs_any "${model[@]}" --bind seq=1..48
for n in 1 6 48; do
    array x i8 "2,$n" 19
    array y i8 "2,$n" 19
    data=(--data x="$work/x.npy" --data target="$work/y.npy")
    at GPT seq=$n
done

model=(pair.onnx --loss cross_entropy --bind batch=2)
ok "an encoder and a decoder of any length" program programs_any "${model[@]}" --bind enc=1..20 --bind dec=1..12
for n in "1 1" "7 12"; do
    array x i8 "2,${n% *}" 19
    array mask f4 "2,${n% *}"
    array y i8 "2,${n#* }" 19
    array target i8 "2,${n#* }" 19
    data=(--data x="$work/x.npy" --data mask="$work/mask.npy" --data y="$work/y.npy" --data target="$work/target.npy")
    at pair "enc=${n% *} dec=${n#* }"
done

logits=y
model=(pictures.onnx --loss cross_entropy --bind batch=2 --bind 'height=4*h' --bind 'width=4*w')
ok "images of many sizes" program programs_any "${model[@]}" --bind h=1..40 --bind w=1..40
model=(pictures.onnx --loss cross_entropy --bind batch=2)
for n in "8 28" "96 96"; do
    array x f4 "2,3,${n% *},${n#* }"
    array target i8 2 7
    data=(--data x="$work/x.npy" --data target="$work/target.npy")
    at images "height=${n% *} width=${n#* }"
done
plan_done
