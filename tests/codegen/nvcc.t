#!/usr/bin/env bash
# Every model of models/, cut, as CUDA: each stageN.cu compiles with nvcc for sm_80 or for sm_90, some for both and PTX, without a warning; the
# code itself never asks which it is compiled for.  Functions of the host are read by nvcc's front end too, with CUDA's own headers; the C++
# compiler behind it has those of the first unit, and all of them from tests/whole/shim.t.  The stages of a few models go into one unit, each in
# a namespace of its own: headers are read once.
. "$(dirname "$0")/../lib.sh"
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] || { skip "nvcc" "no nvcc"; plan_done; exit; }

# What a stage's file defines or reads for pipeline.c: other names in each, because C linkage knows no namespaces.
defined=(stage#_conv stage#_cuda_{forward,infer,backward,backward_input,backward_weight,again{0..7},open,close,own_weight})

# unit FILE DIR...: a source file that includes the stages of these folders
unit() {
    local file=$1 n=0 dir i; shift
    echo '#include "pp_device.h"' >"$file"
    for dir; do
        for ((i = 0; ; i++)); do
            [ -e "$dir/stage$i.cu" ] || break
            n=$((n + 1))
            for name in "${defined[@]}"; do echo "#define ${name/\#/$i} unit${n}_${name#*_}"; done >>"$file"
            printf 'namespace n%d {\n#include "%s"\n}\n' $n "$dir/stage$i.cu" >>"$file"
            for name in "${defined[@]}"; do echo "#undef ${name/\#/$i}"; done >>"$file"
        done
        [ $i -gt 0 ] || return
    done
}

# Each unit for one kind of card, in turn; the first for both, as a whole.
whole=(-gencode arch=compute_80,code=sm_80 -gencode 'arch=compute_90,code=[sm_90,compute_90]' -Xcompiler -Wall,-Wextra,-Werror -c)
for_80=(-arch=sm_80 -cubin)
for_90=(-arch=sm_90 -cubin)
how=("${whole[@]}")
compiles() { "$nvcc" -std=c++17 $nvcc_quick $includes --Werror all-warnings "${how[@]}" "$1" -o "$work/unit.o"; }

folders=() names=()
flush() {
    [ ${#folders[@]} -gt 0 ] || return
    is "stages of ${names[*]}" "$(unit "$work/unit.cu" "${folders[@]}" && compiles "$work/unit.cu" 2>&1)" ""
    [ "${how[*]}" = "${for_80[*]}" ] && how=("${for_90[@]}") || how=("${for_80[@]}")
    folders=() names=()
}
for dir in "$top"/models/*/ "$top"/models/special/*/; do
    dir=${dir%/} name=${dir##*/}
    [ -f "$dir/case.env" ] || continue
    ok "$name: split for CUDA" split_case "$dir" "$work/$name" --target cuda
    folders+=("$work/$name") names+=("$name")
    [ ${#folders[@]} -lt 4 ] || flush
done
for type in bf16 f16; do
    ok "gpt-ts in $type: split for CUDA" split_case "$top/models/gpt-ts" "$work/gpt-ts.$type" --target cuda --dtype $type
    folders+=("$work/gpt-ts.$type") names+=("gpt-ts in $type")
done
flush
is "for CUDA alone there is no C" "$(ls "$work"/mlp-ts/stage*.c 2>/dev/null)" ""
plan_done
