#!/usr/bin/env bash
# Products and convolutions on the device (runtime/device/cuda/) under the CUDA shim, with its cuDNN and without: the CPU's
# numbers, the same bits twice, nothing that a GPU would punish.  With nvcc, where there is one, they compile without a warning, with cuDNN and without.
. "$(dirname "$0")/../lib.sh"
shim=$top/tests/cuda_shim
objects=$build/cuda_shim
cxx=${CXX:-g++}
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
files=(attention_cuda attention_half attention_half_back bias_cuda blas_cuda count_cuda conv_cuda conv_tiled conv_direct conv_cudnn profile_cuda)
programs=(attention products convolutions)
linked=("${files[@]/%/.o}")
if ! command -v "$cxx" >/dev/null; then
    skip "products and convolutions under the shim" "no C++ compiler"
else
    # compile KIND: $work/KIND has the programs; checked: with the objects that other tests link, cudnn: what is other with cuDNN
    compile() {
        local f sources flags=(-fsanitize=thread -fsanitize=alignment -fsanitize=bounds) out=$work/$1
        mkdir -p "$out"
        if [ "$1" = checked ]; then
            for f in "${files[@]}"; do cp "$build/tests/objects/device/cuda/$f.shim.o" "$out/$f.o" || return; done
            sources=("${programs[@]/#/$top/tests/runtime/device/}")
        else
            cp "$work/checked"/*.o "$out" && flags+=(-DPP_WITH_CUDNN)
            sources=($(grep -l PP_WITH_CUDNN "$top/runtime/device/cuda"/*.cu "$top/tests/runtime/device"/*.cu))
        fi
        for f in "${sources[@]%.cu}"; do
            "$cxx" -x c++ -std=c++17 -O1 -g -ffp-contract=off -Wall -Wextra -Werror -Wno-unknown-pragmas -I"$shim" $includes "${flags[@]}" -c "$f.cu" -o "$out/${f##*/}.o" || return
        done
        for f in "${programs[@]}"; do
            "$cxx" -o "$out/$f" "$out/$f.o" "${linked[@]/#/$out/}" "$objects/libshim.a" "$build/libppruntime.a" -lpthread -lm || return
        done
    }
    for kind in checked cudnn; do
        ok "compiles, $kind" compile $kind
        for program in "${programs[@]}"; do
            [ $kind != cudnn ] || break
            profile=()
            [ $program != products ] || profile=(env PP_PROFILE="$work/products.profile")
            ok "$program, $kind" "${profile[@]}" "$work/$kind/$program"
        done
    done

    # Of the shapes 15 have the same padding on both sides; in float32 and float64 each is computed so often (convolutions.cu),
    # and in one of bf16 and f16 twice, but for the weights' gradient.
    cudnn_calls() { awk -F'\t' '/cudnn/ { print $2, $3 }' "$work/profile" | sort; }
    ok "a profile of cuDNN" env PP_PROFILE="$work/profile" "$work/cudnn/convolutions"
    is "cuDNN does what it takes" "$(cudnn_calls)" \
        "$(printf 'cudnnConvolution%s\n' "BackwardData $((30 * 2 + 15 * 2))" "BackwardFilter $((30 * 4))" "Forward $((30 * 3 + 15 * 2))")"

    # cuDNN 8 has no categories of its errors.
    printf '#include <cudnn.h>\n#undef CUDNN_STATUS_CATEGORY\n#include "device/cuda/conv_cudnn.cu"\n' >"$work/cudnn8.cu"
    is "cuDNN 8 is compiled with" "$("$cxx" -x c++ -std=c++17 -fsyntax-only -Wall -Wextra -Werror -I"$shim" $includes -DPP_WITH_CUDNN "$work/cudnn8.cu" 2>&1)" ""

    # PP_PROFILE writes a line per kernel: kind, name, calls, seconds, operations, bytes.
    profile() {
        awk -F'\t' 'NF != 6 || $3 < 1 || $4 < 0 { bad = 1 } $2 == "cublas gemm" && $1 == "product" && $5 > 0 && $6 > 0 { found = 1 }
            END { exit bad || !found }' "$work/products.profile"
    }
    ok "a profile" profile
fi

# nvcc FILE FLAG...: what it says; each for one kind of card, in turn, because the code never asks which of these it is compiled for
archs=(sm_80 sm_90) turn=0
compile_nvcc() {
    "$nvcc" -std=c++17 $nvcc_quick -arch=${archs[turn % 2]} --Werror all-warnings $includes "${@:2}" -cubin "$1" -o "$work/nvcc.cubin" 2>&1
}

# ptx FILE: its PTX without f16, whose code differs from bf16's in two instructions
ptx() {
    sed 's/a.dtype == PP_BF16 ? run<PP_BF16>(stream, a) : run<PP_F16>(stream, a)/run<PP_BF16>(stream, a)/' "$top/runtime/device/cuda/$1.cu" >"$work/$1.cu" &&
        "$nvcc" -std=c++17 -O3 -fmad=false -arch=compute_80 --Werror all-warnings $includes -ptx -o "$work/$1.ptx" "$work/$1.cu"
}

# fits ARCH FILE...: a line for each kernel of these PTX files: its name and widths, bytes spilled, blocks on a multiprocessor by its registers
# (64 Ki, given to warps by 256; attention_half.h asserts the same of shared memory)
fits() {
    local arch=$1 f; shift
    for f; do "${nvcc%nvcc}ptxas" -O3 -arch="$arch" -v "$f" -o "$work/sass" 2>&1; done |
        awk '/Compiling entry/ { match($0, /attention_half[a-z_]*INS/); name = substr($0, RSTART, RLENGTH - 3)
                match($0, /ILi16ELi[0-9]+/); name = name " " substr($0, RSTART + 8, RLENGTH - 8) }
            /spill stores/ { for (i = 1; i <= NF; i++) if ($(i + 1) $(i + 2) == "bytesspill") spilled += $i }
            /Used [0-9]+ registers/ { match($0, /Used [0-9]+/); r = substr($0, RSTART + 5, RLENGTH - 5)
                print name, "spills", spilled + 0, "blocks", int(65536 / (int((r + 7) / 8) * 8 * 128)); spilled = 0 }' |
        grep -v delta | sort
}
kernels() { for w in "$@"; do printf "attention_half%s $w spills 0 blocks 2\n" '' _keys _queries; done | sort; }

# What ptxas says of these files takes it most of a minute, and hangs on them and its version alone: attention.ptxas keeps it behind their hash.  Others
# are compiled; UPDATE=1 keeps what comes of them.
kept=$top/tests/runtime/attention.ptxas
compiled() { for f in "${archs[@]}"; do fits "$f" "$work"/attention_half{,_back}.ptx | sed "s/^/$f /"; done; }
# registers ARCH WIDTH...
registers() { is "attention on tensor cores: registers on $1" "$(sed -n "s/^$1 //p" <<<"$said" | sed 's/blocks [2-9]$/blocks 2/')" "$(kernels "${@:2}")"; }
if [ -x "$nvcc" ]; then
    ok "attention's PTX" ptx attention_half && ok "attention's PTX, backward" ptx attention_half_back
    # nvcc puts hashes of the file's path into names
    hash=$({ "${nvcc%nvcc}ptxas" --version && sed 's/_GLOBAL__N__[0-9a-f]*_\([0-9]*_[a-z_]*_cu\)_[0-9a-f]\{8\}/_GLOBAL__N__\1/g' "$work"/attention_half{,_back}.ptx; } |
        sha256sum | cut -d' ' -f1)
    if [ "$(head -n 1 "$kept" 2>/dev/null)" = "$hash" ]; then
        said=$(tail -n +2 "$kept")
    else
        said=$(compiled)
        [ -z "${UPDATE:-}" ] || printf '%s\n%s\n' "$hash" "$said" >"$kept"
    fi
    for f in "${archs[@]}"; do registers "$f" 32 64 128 256; done
    is "tiles are copied by 16 bytes" "$(grep -h 'cp.async.c[ag]' "$work"/attention_half{,_back}.ptx | grep -vc ', 16, \|, 4, ')" 0
    # but for those two, which have been
    for f in $(printf "$top/runtime/device/cuda/%s\n" "${files[@]}" | grep -v attention_half) "${programs[@]/#/$top/tests/runtime/device/}"; do
        is "nvcc: ${f##*/}.cu" "$(compile_nvcc "$f.cu")" ""
        turn=$((turn + 1))
    done
    if [ -e "$(dirname "$(readlink -f "$nvcc")")/../include/cudnn.h" ] || [ -e /usr/include/cudnn.h ]; then
        for f in conv_cuda conv_cudnn; do
            is "nvcc: $f.cu with cuDNN" "$(compile_nvcc "$top/runtime/device/cuda/$f.cu" -DPP_WITH_CUDNN)" ""
        done
    else
        skip "nvcc with cuDNN" "no cuDNN"
    fi
else
    skip "nvcc" "no nvcc"
fi
plan_done
