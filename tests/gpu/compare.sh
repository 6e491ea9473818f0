# compare.sh - the numbers of the card against the CPU's and PyTorch's, and compute-sanitizer.  Sourced by run.

# run_case CASE COMMAND... : one step of a case of models/; its files into $run
run_case() {
    local case=$1 f data=(); shift
    mkdir -p "$run"
    for f in "$top/models/$case"/in.*.npy; do
        f=${f##*/in.}
        data+=(--data "${f%.npy}=$top/models/$case/in.$f")
    done
    limited "$@" train "${data[@]}" --data "target=$top/models/$case/target.npy" --microbatches $(((rows + mb - 1) / mb)) --steps 1 \
        --optimizer sgd --lr 0 --dump-grads "$run/grads" --log-json "$run/log.json" --output "logits=$run/out.npy"
}

# Loss, outputs and gradients: of $run, against PyTorch's and against those of the CPU in $cpu.
agrees() {
    "$tools/compare" grads "$run/grads" "$models/grads.safetensors" "$tolerance" "$folded" && "$tools/compare" npy "$run/out.npy" "$models/out.npy" &&
        "$tools/compare" loss "$run/log.json" "$loss_value" || return
    "$tools/compare" grads "$run/grads" "$cpu/grads" "$tolerance" && "$tools/compare" npy "$run/out.npy" "$cpu/out.npy" "$tolerance"
}

same_bits() { "$tools/compare" same "$first/grads" "$run/grads" "$shared" && cmp "$first/out.npy" "$run/out.npy"; }

# What is known of the case of program $1: case.env, its reference, the CPU's numbers.
open_case() {
    . "$dir/$1/program.env"
    models=$top/models/$case
    . "$models/case.env"
    cpu=$results/$case.cpu
}

# The CPU's numbers of an unsplit program: they are those of every split and schedule (tests/whole/models.t).
cpu_program() {
    local name=$1 run cpu models case stages loss rows mb loss_value splits bind shared folded
    open_case "$name"
    tap=$results/cpu.$name.tap
    ok "$name: builds for the CPU" build "$name" pipeline && run=$cpu ok "$name: runs on the CPU" run_case "$case" "$dir/$name/pipeline"
}

# A line for a program: how many of its checks passed, and the seconds that they took.
summary() {
    echo "$1 $2: $(grep -c '^ok ' "$tap") passed, $(grep -c '^FAILED ' "$tap") failed, $(grep -c '^late ' "$tap") too late, $((SECONDS - $3)) s"
}

# One program: all schedules and ranks; under the shim, where others compare their numbers, two.
compare_program() {
    local name=$1 schedules=(1f1b zb-h1 gpipe) schedule ranks first='' run cpu models case stages loss rows mb loss_value splits bind shared folded
    local begun=$SECONDS
    open_case "$name"
    tap=$results/compare.$name.tap
    ok "$name: builds for the card" build "$name" "$program" || return
    [ $mode = cuda ] || schedules=(1f1b zb-h1)
    for schedule in "${schedules[@]}"; do
        for ranks in 1 2; do
            [ "$ranks" -le "$stages" ] || continue
            run=$results/$name.$schedule.$ranks
            ok "$name: $schedule, $ranks ranks" run_case "$case" "$dir/$name/$program" --device cuda --ranks $ranks --schedule $schedule || continue
            ok "$name: $schedule, $ranks ranks: PyTorch's and the CPU's numbers" agrees
            first=${first:-$run}
            [ "$first" = "$run" ] || ok "$name: $schedule, $ranks ranks: the bits of the first run" same_bits
        done
    done
    rm -rf "$results/$name".*/
    summary compare "$name" "$begun"
}

# Products and convolutions by themselves, by our kernels and, where it is there, by cuDNN.  Under the shim one of these
# programs is enough to try the script: tests/runtime/test_cuda_lib.t runs all of them there.
compare_library() {
    local f objects=() each='attention products convolutions' cpu='gemm gemm_half product conv conv_shape conv_winograd' cudnn=$1 \
        cuda='attention_cuda attention_half attention_half_back bias_cuda blas_cuda count_cuda conv_cuda conv_tiled conv_direct conv_cudnn'
    [ $mode = cuda ] || each=products cpu='gemm gemm_half product' cuda='bias_cuda blas_cuda count_cuda'
    # shellcheck disable=SC2086
    compile_products $cpu || return
    for f in $cpu; do objects+=("$tools/$f.o"); done
    for f in $cuda; do objects+=("$top/runtime/device/cuda/$f.cu"); done
    for f in $each; do
        compile_cu "$f" "$top/tests/runtime/device/$f.cu" "${objects[@]}" && { [ -n "$compiling" ] || limited "$tools/$f"; } || return
    done
}

# How fast attention is, and how far from float64: two lines on the terminal.
attention_speed() {
    local sizes=() f objects=()
    [ $mode = cuda ] || sizes=(40 1 1)
    compile_products gemm gemm_half product || return
    for f in gemm gemm_half product; do objects+=("$tools/$f.o"); done
    for f in attention_cuda attention_half attention_half_back; do objects+=("$top/runtime/device/cuda/$f.cu"); done
    compile_cu attention_speed "$top/tests/gpu/attention.cu" "${objects[@]}" || return
    [ -z "$compiling" ] || return 0
    limited "$tools/attention_speed" "${sizes[@]}" >"$results/attention" || return
    cat "$results/attention" >&3
}

library_all() {
    local begun=$SECONDS
    tap=$results/library.tap
    rm -f "$tap"
    ok "products and convolutions" compare_library ''
    ok "attention on tensor cores" attention_speed 3>&1
    [ $mode = shim ] || ! "$nvcc" -E -include cudnn.h -x cu /dev/null >/dev/null 2>&1 || ok "products and convolutions with cuDNN" compare_library 1
    summary library "of products, convolutions and attention" "$begun"
}

# The first program is built alone, with all cores: it builds what all share.
compare_all() {
    local first cores=$jobs
    tap=$results/compare.tap
    rm -f "$tap"
    [ -n "$programs" ] || return
    first=${programs%%[!a-z0-9.-]*}
    ok "the runtime builds for the CPU" build "${first%.*}.1" pipeline && all cpu $(printf '%s\n' $programs | sed 's/\.[0-9]*r*$/.1/' | sort -u)
    ok "the runtime builds for the card" build "$first" "$program" && all compare $programs
}

# One small program under each tool of compute-sanitizer.
sanitize_program() {
    local name=$1 tool begun=$SECONDS run cpu models case stages loss rows mb loss_value splits bind shared folded
    open_case "$name"
    tap=$results/sanitize.$name.tap
    ok "$name: builds for the card" build "$name" "$program" || return
    for tool in memcheck racecheck synccheck; do
        run=$results/$name.$tool
        ok "$name: $tool" run_case "$case" "$sanitizer" --tool $tool --error-exitcode 9 "$dir/$name/$program" --device cuda --ranks 2 --schedule zb-h1
    done
    rm -rf "$results/$name".*/
    summary sanitize "$name" "$begun"
}

sanitize_all() {
    local p some=''
    [ $mode = cuda ] || return                          # the shim reports by itself
    sanitizer=$(command -v compute-sanitizer) || { echo "sanitize: no compute-sanitizer"; return; }
    export sanitizer
    for p in doc-ts.2 gpt-ts.2 gptmask-ts.2 mobilenet-ts.2 unet-ts.2 vit-dyn.2; do
        case " $(echo $programs) " in *" $p "*) some+=" $p" ;; esac
    done
    # shellcheck disable=SC2086
    [ -z "$some" ] || all sanitize $some
}
