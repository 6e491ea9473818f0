#!/usr/bin/env bash
# The CUDA shim: right programs run with the right numbers and without a finding, in every order; every mistake of bad.cu is
# reported in its own words, with exit code 97; both compile with nvcc, where there is one, without a warning.
. "$(dirname "$0")/../lib.sh"
shim=$top/tests/cuda_shim
objects=$build/cuda_shim
cxx=${CXX:-g++}
if ! command -v "$cxx" >/dev/null; then
    skip "CUDA shim" "no C++ compiler"
    plan_done
    exit
fi

make -s -f "$shim/shim.mk" O="$objects" CXX="$cxx" || exit 1
for f in gemm gemm_half product; do
    ${CC:-cc} -O2 $includes -c "$top/runtime/device/cpu/$f.c" -o "$work/$f.o" || exit 1
done

# compile PROGRAM KIND: checked or plain
compile() {
    local flags=()
    [ "$2" = plain ] || flags=(-fsanitize=thread -fsanitize=alignment -fsanitize=bounds)
    "$cxx" -x c++ -std=c++17 -O1 -g -ffp-contract=off -Wall -Wextra -Werror -Wno-unknown-pragmas -I"$shim" $includes "${flags[@]}" -c "$shim/tests/$1.cu" -o "$work/$1.$2.o" &&
        "$cxx" -o "$work/$1.$2" "$work/$1.$2.o" "$objects/libshim.a" "$work"/{gemm,gemm_half,product}.o -lpthread -lm
}

for program in good bad; do
    for kind in checked plain; do
        ok "$program.cu compiles, $kind" compile $program $kind
    done
done

# What the program says, without the prefix, in one line; and its exit code.
run() {
    timeout $patience "$@" 2>&1 | sed 's/^shim: //' | tr '\n' ' '
    echo "exit ${PIPESTATUS[0]}"
}

for kind in checked plain; do
    for order in lazy eager random:1 random:2; do
        got=
        for name in $("$work/good.$kind"); do
            [ "$name" = injected ] || got+=$(SHIM_ORDER=$order run "$work/good.$kind" "$name" | grep -v '^exit 0$' | sed "s/^/$name: /")
        done
        is "right programs, $kind, $order" "$got" ""
    done
    is "errors on demand, $kind" "$(SHIM_FAIL=cudaMalloc:3,cublasSgemm:1,kernel:1 run "$work/good.$kind" injected)" "exit 0"
done

# The road of machines for which switch.h has no assembly.
slow_switch() {
    "$cxx" -std=c++17 -O1 -DSHIM_UCONTEXT -I"$shim" -c "$shim/block.cpp" -o "$work/block.o" &&
        "$cxx" -o "$work/good.ucontext" "$work/good.checked.o" "$work/block.o" "$objects/libshim.a" "$work"/{gemm,gemm_half,product}.o -lpthread -lm &&
        "$work/good.ucontext" reductions && "$work/good.ucontext" warp_operations
}
ok "switching stacks by ucontext" slow_switch

# bad.cu lists its cases: name, plain or checked, what is said (a pattern)
while read -r name how says; do
    for kind in checked plain; do
        [ $kind = checked ] || [ "$how" = plain ] || continue
        got=$(run "$work/bad.$kind" "$name")
        [[ $got == *$says*"exit 97" ]] && got=$says
        is "reported, $kind: $name" "$got" "$says"
    done
done < <("$work/bad.plain")
for order in eager random:3; do
    for name in no_wait_read no_wait_write early_record; do
        is "reported, $order: $name" "$(SHIM_ORDER=$order run "$work/bad.checked" $name | grep -c '^missing wait: .*exit 97$')" 1
    done
done

nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if [ -x "$nvcc" ]; then
    for program in good bad; do
        is "nvcc: $program.cu" \
            "$("$nvcc" -std=c++17 $nvcc_quick -arch=sm_80 --Werror all-warnings \
                $includes -Xcompiler -Wall,-Wextra -c "$shim/tests/$program.cu" -o "$work/nvcc.o" 2>&1)" ""
    done
else
    skip "nvcc" "no nvcc"
fi
plan_done
