#!/usr/bin/env bash
# The output's Makefile: what was built is built again when what it depends on has changed, and only that: flags, the CPU, MPI, libraries.
# It finds them, says so in one line, and leaves nothing behind.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
mkdir tmp && export TMPDIR=$work/tmp
unset MPICC BLAS ARCH CFLAGS
cp -a "$build/tests/objects" objects
"$ppsplit" -q "$top/models/doc-ts/model.onnx" --split layers.1:begin --loss cross_entropy -o out || exit 1
cp -r out elsewhere
made=(make -C out CC="$cc" RUNTIME="$runtime" RUNTIME_BUILD="$work/objects")
usual=(CFLAGS="${PIPELINE_CFLAGS:--O1}" LDFLAGS="${PIPELINE_CFLAGS:-}")

# remade ARGUMENT...: the objects that are compiled
remade() { "${made[@]}" V= "$@" 2>&1 | sed -n "s|^  CC\t\($runtime/\)\?||p" | tr '\n' ' '; }
# would ARGUMENT...: the same, without compiling; all of the runtime is one word
would() {
    "${made[@]}" -n "$@" 2>&1 | sed -n "s|^echo \"  CC\t\($runtime/\)\?\(.*\)\"|\2|p" >list
    [ "$(wc -l <list)" -lt 30 ] || { echo everything; return; }
    tr '\n' ' ' <list
}
# found ARGUMENT...: what it says; elsewhere, since also -n notes the flags
found() { make -C elsewhere -n CC="$cc" "${usual[@]}" "$@" | sed -n 's/^  FOUND *//p'; }

is "stages are compiled, the runtime is there" "$(remade "${usual[@]}")" "stage0.c stage1.c pipeline.c "
is "and that is all" "$(remade "${usual[@]}")" ""
is "silent, when told to be" "$("${made[@]}" -s "${usual[@]}" 2>&1)" ""
if links_mpi=$(found | grep -o '^MPI ([^)]*)'); then
    is "without MPI" "$(remade "${usual[@]}" MPICC=none)" "net/transport_mpi.c "
    is "a wrapper that does not work is none" "$(found MPICC=false | cut -d, -f1)" "no MPI"
    ok "the program says what it lacks" eval '! mpirun -n 2 out/pipeline infer --data x="$top/models/doc-ts/in.x.npy" >said 2>&1 && grep -q "MPI" said'
    # a launcher ends the job at the first status that is not 0: that of the process that speaks
    launched() { env "$@" out/pipeline infer --data x="$top/models/doc-ts/in.x.npy" >said 2>&1; echo "$? $(head -n 1 said)"; }
    for names in OMPI_COMM_WORLD_RANK=RANK,OMPI_COMM_WORLD_SIZE=2 PMI_RANK=RANK,PMI_SIZE=2 PMIX_RANK=RANK,MPI_LOCALNRANKS=2; do
        is "$names: the first of two processes says why" "$(launched $(tr , ' ' <<<"${names/RANK=RANK/RANK=0}"))" \
            "2 pipeline: error: started as 2 processes, but built without MPI: put mpicc on PATH and run make again, or use --ranks"
        is "$names: the other leaves it to speak" "$(launched $(tr , ' ' <<<"${names/RANK=RANK/RANK=1}"))" "0 "
    done
    is "once MPI is installed, it is used" "$(remade "${usual[@]}")" "net/transport_mpi.c "
    ok "by the program" mpirun -n 2 out/pipeline infer --data x="$top/models/doc-ts/in.x.npy" --quiet
    printf '#!/bin/sh\nexec mpicc "$@"\n' >cc && chmod +x cc
    is "a compiler that knows mpi.h needs no mpicc" "$(found CC="$work/cc" | cut -d, -f1)" "$links_mpi"
    is "and links by itself" "$(make -C elsewhere -n CC="$work/cc" | grep -c "^$work/cc .*-o pipeline ")" 1
else
    skip "MPI" "no MPI"
fi
case $(found) in
*OpenBLAS*)
    is "without libraries" "$(remade "${usual[@]}" BLAS=none)" "device/cpu/gemm.c device/cpu/gemm_arithmetic.c device/cpu/gemm_half.c "
    ok "a program runs so" out/pipeline infer --data x="$top/models/doc-ts/in.x.npy" --quiet
    is "once one is installed, it is used" "$(would "${usual[@]}" BLAS=openblas)" "device/cpu/gemm.c device/cpu/gemm_arithmetic.c device/cpu/gemm_half.c "
    is "the usual ones" "$(would "${usual[@]}")" "device/cpu/gemm.c device/cpu/gemm_arithmetic.c device/cpu/gemm_half.c "
    # A stand-in for MKL: pkg-config knows where it is.
    mkdir mkl && echo '#include <cblas.h>' >mkl/mkl.h
    printf 'Name: mkl\nDescription: a stand-in\nVersion: 7.1\nCflags: -I%s -DSTANDS_IN\nLibs: %s\n' "$work/mkl" "$(pkg-config --libs openblas)" >mkl/mkl-dynamic-lp64-seq.pc
    export PKG_CONFIG_PATH=$work/mkl
    is "by name" "$(found BLAS=mkl | cut -d';' -f1 | sed 's/^[^)]*), //')" "MKL 7.1"
    is "with its flags" "$(make -C elsewhere -n BLAS=mkl | grep -c -e '-DPP_CBLAS -DPP_MKL.* -DSTANDS_IN .*gemm.o')" 1
    is "beside another" "$(found BLAS="onednn? mkl" | grep -c 'oneDNN.*, MKL 7.1;')" 1 ;;
*) skip "libraries" "no OpenBLAS" ;;
esac
is "one that is named must be there" "$(found BLAS=absent 2>&1 | grep -c 'BLAS=absent: .*cblas_dgemm() of <cblas.h>')" 1
is "other flags" "$(would CFLAGS=-Og)" everything
is "another CPU" "$(would "${usual[@]}" ARCH=)" everything
is "the same flags again" "$(would "${usual[@]}")" everything
# A stand-in for nvcc, and a stage that nobody compiles.
mkdir -p cuda/bin cuda/lib64 && printf '#!/bin/sh\nexit 1\n' >cuda/bin/nvcc && chmod +x cuda/bin/nvcc && touch elsewhere/stage0.cu
is "nvcc contracts nothing, whatever its flags" "$(make -C elsewhere -n pipeline-cuda CC="$cc" "${usual[@]}" V=1 NVCC="$work/cuda/bin/nvcc" NVCCFLAGS="-O2 -fmad=true" CUDA_ARCH=80 |
    grep -c 'nvcc -std=c++17 -O2 -fmad=true -fmad=false .* stage0.cu$')" 1
ok "one line of what was found" grep -qE '^(no MPI|MPI \([^)]*\)), .*; ARCH=native( \([^)]*\))?; own runtime$' <(found)
is "nothing is left of it" "$(ls -A "$work/tmp"; ls -A out elsewhere | grep -i probe)" ""

# native on another machine; with the flags that distributions give
if [ "$(uname -m)" = x86_64 ] && ! grep -qw fma4 /proc/cpuinfo; then
    echo 'int main(void) { return 0; }' >main.c
    $cc $includes -O1 -D_FORTIFY_SOURCE=2 -march=bdver4 "$top/runtime/exec/machine.c" main.c -o other
    is "a program for another CPU says so" "$(./other 2>&1; echo $?)" "pipeline: error: this CPU has no FMA4, for which the program was built
hint: build it on this machine, or for what all machines have: make ARCH=x86-64-v3 (AVX2) or ARCH= (any)
3"
else
    skip "a program for another CPU says so" "not here"
fi
plan_done
