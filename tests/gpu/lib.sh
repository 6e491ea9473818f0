# lib.sh - what the parts of tests/gpu/run share: checks, tools, builds, the card.  Sourced by run, which sets $top $dir $mode $results ...
arch=${arch:-${CUDA_ARCH:-native}}                       # 90 and the like: for a card that is elsewhere; the card says its own (card)
arch_flag=-arch=$([ "$arch" = native ] && echo native || echo "sm_$arch")
most=300                                                # seconds that one program may run

# Seconds that are left, of $most at the most; 0: nothing is begun any more.
left() {
    local s=$most
    [ -z "$until" ] || { s=$((until - $(date +%s))); [ "$s" -le "$most" ] || s=$most; [ "$s" -gt 0 ] || s=0; }
    echo "$s"
}
limited() { local s; s=$(left); [ "$s" -gt 0 ] && timeout "$s" "$@"; }

# ok NAME COMMAND...: passes when the command does; a line into $tap and on the terminal, what it said only when it fails.  Too late, it is
# not begun, or not brought to its end.
ok() {
    local name=$1 output; shift
    if [ "$(left)" -eq 0 ]; then
        echo "late $name" >>"$tap"
        return 1
    fi
    if output=$("$@" 2>&1); then
        echo "ok $name" >>"$tap"
        return 0
    fi
    [ "$(left)" -gt 0 ] || { echo "late $name" >>"$tap"; return 1; }
    { echo "FAILED $name"; printf '%s\n' "$output" | tail -n 20 | sed 's/^/    /'; } | tee -a "$tap"
    return 1
}

# What the machine has of all that programs may use, a line for each.
machine() {
    local cc=${CC:-cc}
    said() { printf '%-18s %s\n' "$1" "${2:-missing: $3}"; }
    # header NAME COMPILER FLAG: is it there to be compiled against and linked?  (of nvcc, whose input is a file)
    header() {
        printf "#include <%s>\nint main(void) { return 0; }\n" "$1" >"$tools/probe.c"
        # shellcheck disable=SC2086
        $2 "$tools/probe.c" -o "$tools/probe" "$3" >/dev/null 2>&1 && echo found
    }
    said "CPU cores" "$(nproc)"
    said "GPU driver" "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | tr '\n' ';')" "no nvidia-smi"
    said nvcc "$("$nvcc" --version 2>/dev/null | sed -n 's/.*release //p')" "nothing for a card can be built"
    said "C++ compiler" "$("${CXX:-g++}" --version 2>/dev/null | head -n 1)" "nvcc needs one"
    said cuDNN "$(header cudnn.h "$nvcc" -lcudnn)" "convolutions by kernels of our own"
    said NCCL "$(header nccl.h "$nvcc" -lnccl)" "ranks exchange within one process"
    said MPI "$(command -v mpicc)" "ranks are threads"
    said oneDNN "$(header dnnl.h "$cc" -ldnnl)" "the CPU's products are OpenBLAS's or loops of our own"
    said OpenBLAS "$(header cblas.h "$cc" -lopenblas || header openblas/cblas.h "$cc" -lopenblas)" "the CPU's products are oneDNN's or loops of our own"
    said compute-sanitizer "$(command -v compute-sanitizer)" "no part sanitize"
    said PyTorch "$(python3 -c 'import torch; print(torch.__version__, "with a GPU" if torch.cuda.is_available() else "without a GPU")' 2>/dev/null)" "nothing stands beside our times"
    rm -f "$tools/probe" "$tools/probe.c"
}

# What needs no ppsplit: the judge, the makers of GPTs and tokens, what knows the card.
make_tools() {
    local cc=${CC:-cc} c="-std=gnu11 -D_GNU_SOURCE -O2 -fwrapv -I$top -I$top/runtime"
    # tool NAME FILE...: once
    tool() {
        # shellcheck disable=SC2086
        [ "$tools/$1" -nt "$2" ] || $cc $c -o "$tools/$1" "${@:2}" -lm
    }
    tool compare "$top/tests/tools/compare.c" "$top"/base/file/*.c && tool make_gpt "$top/models/make_gpt.c" && tool make_tokens "$top/models/make_tokens.c" || return
    if [ $mode = shim ]; then
        make -s -f "$top/tests/cuda_shim/shim.mk" O="$tools/shim" -j"$jobs" && compile_products gemm gemm_half product || return
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
    local name=$1 f object made tag=$mode objects=(); shift
    [ $mode = cuda ] || [ "${CHECK:-1}" = 1 ] || tag=shim.plain
    mkdir -p "$tools/cu"
    local late=()
    for f; do
        case $f in *.o) objects+=("$f"); continue ;; esac
        object=${f#"$top/"} object=${object%.cu}        # two of them are called attention.cu
        # a program's runtime has been compiled: the same file, where no library makes a difference
        made=$tools/objects/${object#runtime/}.$tag.o
        if [ -e "$made" ] && cmp -s "$f" "${RUNTIME:-$dir/runtime}/${f#"$top/runtime/"}" && ! grep -q PP_WITH_CUDNN "$f"; then
            objects+=("$made")
            continue
        fi
        objects+=("$tools/cu/${object//\//.}.$mode${cudnn:+.cudnn}.o")
        [ -z "${ready:-}" ] || [ ! -e "${objects[-1]}" ] || continue
        [ ! -e "${objects[-1]}" ] || [ -n "$(find "$top/runtime" "$top"/tests/{cuda_shim,runtime/device,gpu} -newer "${objects[-1]}" | head -n 1)" ] || continue
        if [ $mode = shim ]; then
            # shellcheck disable=SC2086
            "${CXX:-g++}" -x c++ -std=c++17 -O1 -g -ffp-contract=off -Wno-unknown-pragmas ${SHIMFLAGS:-} -I"$top/tests/cuda_shim" -I"$top" -I"$top/runtime" -c "$f" -o "${objects[-1]}" || return
        else
            # shellcheck disable=SC2086
            limited "$nvcc" -std=c++17 -O3 -fmad=false "$arch_flag" ${cudnn:+-DPP_WITH_CUDNN} -I"$top" -I"$top/runtime" -c "$f" -o "${objects[-1]}" &
            late+=($!)
        fi
    done
    for f in "${late[@]}"; do wait "$f" || return; done
    if [ $mode = shim ]; then
        "${CXX:-g++}" -o "$tools/$name" "${objects[@]}" "$tools/shim/libshim.a" $([ "$name" = card ] && echo "$tools/gemm.o $tools/gemm_half.o $tools/product.o") -lpthread -lm
    else
        "$nvcc" "$arch_flag" -o "$tools/$name" "${objects[@]}" -lcublasLt -lcublas ${cudnn:+-lcudnn}
    fi
}

# The card's name and peaks: into variables peak_NAME, and as a line.
card() {
    local name value processes small=()
    [ $mode = cuda ] || small=(256 8)
    peak_card=unknown peak_cc=0 peak_memory=$jobs peak_fp32=0 peak_tf32=0 peak_bf16=0 peak_gbs=0 peak_sgemm=0 peak_tgemm=0 peak_copy=0 peak_cache=0 peak_host=0
    [ "$(left)" -gt 0 ] || { echo "late the card" >>"$tap"; return; }
    limited "$tools/card" "${small[@]}" >"$results/card" 2>&1 || { echo "FAILED the card" >>"$tap"; sed 's/^/FAILED the card: /' "$results/card"; return; }
    while read -r name value; do
        printf -v "peak_$name" %s "$value"
    done <"$results/card"
    [ $mode = shim ] || [ "$arch" != native ] || { arch=$peak_cc arch_flag=-arch=sm_$peak_cc; }
    # a process on a card takes half a GiB before it does anything
    processes=$(awk -v m="$peak_memory" 'BEGIN { printf "%d", 1 + m }')
    [ $mode = shim ] || [ "$jobs" -le "$processes" ] || jobs=$processes
    card_line
}
card_line() {
    echo "$peak_card: float32 $peak_fp32 TFLOP/s (measured $peak_sgemm), TF32 $peak_tf32 (measured $peak_tgemm), bfloat16 $peak_bf16, memory $peak_gbs GB/s (measured $peak_copy, of its cache $peak_cache), a launch $peak_host us of the CPU, $peak_memory GiB"
}

# build PROGRAM GOAL: a program of $dir; all of them share the objects of one runtime.  $cores: how many files at once.
build() {
    local args=(-j"${cores:-1}")
    [ $mode = cuda ] || args+=(SHIM="$top/tests/cuda_shim" O="$tools/shim" CHECK="${CHECK:-1}")
    # shellcheck disable=SC2046
    limited make -s -C "$dir/$1" "$2" $([ "$2" != pipeline-cuda ] || ready_of "$1") RUNTIME="${RUNTIME:-$dir/runtime}" RUNTIME_BUILD="$tools/objects" CUDA_ARCH="$arch" "${args[@]}"
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

# all KIND PROGRAM...: the programs in parallel, each in a process of its own that writes $results/KIND.PROGRAM.tap; with --rest without those that
# have passed.
all() {
    local kind=$1 flags=() p; shift
    [ $mode = cuda ] || flags=(--shim)
    for p; do
        [ -n "$rest" ] && [ -s "$results/$kind.$p.tap" ] && ! grep -q '^FAILED \|^late ' "$results/$kind.$p.tap" && continue
        rm -f "$results/$kind.$p.tap"
        echo "$p"
    done | xargs -r -P "$jobs" -I{} "$top/tests/gpu/run" "${flags[@]}" --results "$results" --worker "$kind:{}" "$until" "$arch" "$dir"
    for p; do
        [ -s "$results/$kind.$p.tap" ] || echo "FAILED $p: $kind says nothing" | tee "$results/$kind.$p.tap"
    done
    echo "$kind: $(cat "$results/$kind".*.tap | grep -c '^ok ') passed, $(cat "$results/$kind".*.tap | grep -c '^FAILED ') failed"
}
