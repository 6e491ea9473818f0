# lib.sh - what the parts of tests/gpu/run share: checks, tools, builds, the card.  Sourced by run, which sets $top $dir $mode $results ...
arch=${CUDA_ARCH:-native}                               # 90 and the like: for a card that is elsewhere
arch_flag=-arch=$([ "$arch" = native ] && echo native || echo "sm_$arch")

# ok NAME COMMAND...: passes when the command does; a line into $tap and on the terminal, what it said only when it fails.
ok() {
    local name=$1 output; shift
    if output=$("$@" 2>&1); then
        echo "ok $name" >>"$tap"
        return 0
    fi
    { echo "FAILED $name"; printf '%s\n' "$output" | tail -n 20 | sed 's/^/    /'; } | tee -a "$tap"
    return 1
}

# What needs no ppsplit: the judge, the makers of GPTs and tokens, what knows the card.
make_tools() {
    local cc=${CC:-cc} c="-std=gnu11 -D_GNU_SOURCE -O2 -fwrapv -I$top -I$top/runtime"
    # shellcheck disable=SC2086
    $cc $c -o "$tools/compare" "$top/tests/tools/compare.c" "$top"/base/file/*.c -lm &&
        $cc $c -o "$tools/make_gpt" "$top/models/make_gpt.c" -lm &&
        $cc $c -o "$tools/make_tokens" "$top/models/make_tokens.c" || return
    if [ $mode = shim ]; then
        make -s -f "$top/tests/cuda_shim/shim.mk" O="$tools/shim" -j"$jobs" && compile_products gemm gemm_half || return
    fi
    compile_cu card "$top/tests/gpu/card.cu"
}

# compile_products FILE...: of the CPU's products and convolutions, once; objects in $tools
compile_products() {
    local f
    for f; do
        [ ! "$tools/$f.o" -nt "$top/runtime/device/cpu/$f.c" ] || continue
        ${CC:-cc} -std=gnu11 -D_GNU_SOURCE -O2 -fwrapv -ffp-contract=off -Wno-unknown-pragmas -I"$top" -I"$top/runtime" -c -o "$tools/$f.o" "$top/runtime/device/cpu/$f.c" || return
    done
}

# compile_cu NAME FILE.cu... [FILE.o...]: a program of a few .cu files, for this card or the shim
compile_cu() {
    local name=$1 f objects=(); shift
    mkdir -p "$tools/cu"
    for f; do
        case $f in *.o) objects+=("$f"); continue ;; esac
        objects+=("$tools/cu/$(basename "$f" .cu).$mode${cudnn:+.cudnn}.o")
        [ ! -e "${objects[-1]}" ] || [ -n "$(find "$top/runtime" "$top"/tests/{cuda_shim,runtime/device,gpu} -newer "${objects[-1]}" | head -n 1)" ] || continue
        if [ $mode = shim ]; then
            # shellcheck disable=SC2086
            "${CXX:-g++}" -x c++ -std=c++17 -O1 -g -ffp-contract=off -Wno-unknown-pragmas ${SHIMFLAGS:-} -I"$top/tests/cuda_shim" -I"$top" -I"$top/runtime" -c "$f" -o "${objects[-1]}" || return
        else
            # shellcheck disable=SC2086
            "$nvcc" -std=c++17 -O3 "$arch_flag" ${cudnn:+-DPP_WITH_CUDNN} -I"$top" -I"$top/runtime" -c "$f" -o "${objects[-1]}" || return
        fi
    done
    if [ $mode = shim ]; then
        "${CXX:-g++}" -o "$tools/$name" "${objects[@]}" "$tools/shim/libshim.a" $([ "$name" = card ] && echo "$tools/gemm.o $tools/gemm_half.o") -lpthread -lm
    else
        "$nvcc" "$arch_flag" -o "$tools/$name" "${objects[@]}" -lcublasLt -lcublas ${cudnn:+-lcudnn}
    fi
}

# The card's name and peaks: into variables peak_fp32 peak_tf32 peak_bf16 peak_gbs peak_sgemm peak_tgemm peak_copy, and as a table.
card() {
    local name value most small=()
    [ $mode = cuda ] || small=(256 8)
    "$tools/card" "${small[@]}" >"$results/card" || { cat "$results/card"; echo "run: no card to run on" >&2; exit 1; }
    while read -r name value; do
        printf -v "peak_$name" %s "$value"
    done <"$results/card"
    # a process on a card takes half a GiB before it does anything
    most=$(awk -v m="$peak_memory" 'BEGIN { printf "%d", 1 + m }')
    [ $mode = shim ] || [ "$jobs" -le "$most" ] || jobs=$most
    echo "$peak_card: float32 $peak_fp32 TFLOP/s (measured $peak_sgemm), TF32 $peak_tf32 (measured $peak_tgemm), bfloat16 $peak_bf16, memory $peak_gbs GB/s (measured $peak_copy), $peak_memory GiB"
}

# build PROGRAM GOAL: a program of $dir; all of them share the objects of one runtime
build() {
    local args=()
    [ $mode = cuda ] || args=(SHIM="$top/tests/cuda_shim" O="$tools/shim" CHECK="${CHECK:-1}")
    make -s -C "$dir/$1" "$2" RUNTIME="${RUNTIME:-$dir/runtime}" RUNTIME_BUILD="$tools/objects" CUDA_ARCH="$arch" "${args[@]}"
}

# The folders of $dir that prepare_case made, of the cases asked for.
list_programs() {
    local f case=''
    for f in "$dir"/*/program.env; do
        [ -e "$f" ] || return
        . "$f"
        f=${f%/program.env}
        case " ${cases:-$case} " in *" $case "*) echo "${f##*/}" ;; esac
    done
}

# all KIND PROGRAM...: the programs in parallel, each in a process of its own that writes $results/KIND.PROGRAM.tap
all() {
    local kind=$1 flags=() p; shift
    [ $mode = cuda ] || flags=(--shim)
    printf '%s\n' "$@" | xargs -P "$jobs" -I{} "$top/tests/gpu/run" "${flags[@]}" --worker "$kind:{}" "$dir"
    for p; do
        [ -s "$results/$kind.$p.tap" ] || echo "FAILED $p: $kind says nothing" | tee "$results/$kind.$p.tap"
    done
    echo "$kind: $(cat "$results/$kind".*.tap | grep -c '^ok ') passed, $(cat "$results/$kind".*.tap | grep -c '^FAILED ') failed"
}
