# compile.sh - objects of .cu files for a card that is elsewhere: made by prepare, where there is a CUDA toolkit, and taken by run.  Sourced by run.

cuda_release() { "$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\).*/\1/p'; }
# The libraries beside CUDA's own that programs are compiled for, in one word.
libraries() {
    local name
    mkdir -p "$tools"
    for name in nccl cudnn; do
        printf '#include <%s.h>\nint main(void) { return 0; }\n' $name >"$tools/probe.cu"
        "$nvcc" "$tools/probe.cu" -o "$tools/probe" -l$name >/dev/null 2>&1 && echo "$name," || echo "no $name,"
    done | tr -d ' \n'
    rm -f "$tools/probe" "$tools/probe.cu"
}
sources() {
    (cd "$top" && find runtime tests/runtime/device tests/gpu -name '*.cu' -o -name '*.h' -o -name '*.cuh' | sort | xargs sha256sum) >"$dir/ready.top"
    (cd "$dir" && find . -name 'stage*.cu' -o -path './runtime/*' -name '*.cu' -o -path './runtime/*' -name '*.h' | sort | xargs sha256sum) >"$dir/ready.dir"
}

# compile_objects PROGRAM GOAL...: by its makefile
compile_objects() { make -s -C "$dir/$1" "${@:2}" MAKECMDGOALS=pipeline-cuda RUNTIME="$dir/runtime" RUNTIME_BUILD="$tools/objects" CUDA_ARCH="$arch" -j"$jobs" >/dev/null; }
compile_runtime() {
    local goals=() f
    for f in $(cd "$dir/runtime" && find . -name '*.cu'); do f=${f#./}; goals+=("$tools/objects/${f%.cu}.cuda.o"); done
    compile_objects "$1" "${goals[@]}"
}
compile_stages() {
    local goals=() f jobs=1
    for f in "$dir/$1"/stage*.cu; do f=${f##*/}; goals+=("build/${f%.cu}.cuda.o"); done
    compile_objects "$1" "${goals[@]}" || return
    find "$dir/$1/build" -type f ! -name '*.cuda.o' -delete
    find "$dir/$1/build" -type d -empty -delete
}

compile_all() {
    local p programs
    programs=$(cd "$dir" && find . -name stage0.cu ! -path './gpt-tiny/*' | sed 's,^./,,; s,/stage0.cu$,,' | sort)
    ok "the runtime compiles for sm_$arch" compile_runtime "${programs%%$'\n'*}"
    for p in $programs; do
        while [ "$(jobs -r | wc -l)" -ge "$jobs" ]; do wait -n; done
        ok "$p: compiles for sm_$arch" compile_stages "$p" &
    done
    wait
    compiling=1
    ok "tools compile" make_tools
    ok "tests of the library compile" compare_library ''
    ok "attention compiles" attention_speed
    (cd "$dir" && find . -name '*.cuda.o' | tar czf ready.tar.gz -T - && find . -name '*.cuda.o' -delete)
    rm -rf "$tools"                                         # programs are linked where they run
    ! grep -q '^FAILED ' "$tap" || return
    echo "$arch $(cuda_release) $(libraries)" >"$dir/ready"
    sources
}

# What travelled is taken as it is, whatever the times of files say, where the sources are those that it was compiled from, and the card and the
# toolkit those that it was for: $ready is then "yes", and it is unpacked.  $ready_for: the libraries that it was compiled for; $now_for: those there are.
ready_objects() {
    local for_arch cuda
    ready= ready_for= now_for=
    [ $mode = cuda ] && [ -s "$dir/ready" ] || return
    read -r for_arch cuda ready_for <"$dir/ready"
    now_for=$(libraries)
    [ "$arch" != native ] || arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .)
    arch=${arch:-native}
    [ "$for_arch $cuda" = "$arch $(cuda_release)" ] && (cd "$top" && sha256sum --check --status "$dir/ready.top") && (cd "$dir" && sha256sum --check --status ready.dir && tar xzf ready.tar.gz) &&
        ready=yes
    export ready ready_for now_for                          # for what run starts
    printf '%-18s %s\n' "compiled before" "${ready:-no: for sm_$for_arch by CUDA $cuda, or from other sources}"
}

# ready_of PROGRAM: what make need not look at, as its options
ready_of() {
    local f
    [ -n "${ready:-}" ] || return 0
    for f in "$dir/$1"/build/*.cuda.o; do [ ! -e "$f" ] || printf -- '-o build/%s ' "${f##*/}"; done
    # of the runtime all but what asks for libraries, where these are others
    for f in $(cd "$dir/runtime" && find . -name '*.cu'); do
        f=${f#./}
        [ -e "$tools/objects/${f%.cu}.cuda.o" ] && { [ "$ready_for" = "$now_for" ] || ! grep -q PP_WITH_ "$dir/runtime/$f"; } && printf -- '-o %s ' "$tools/objects/${f%.cu}.cuda.o"
    done
}
