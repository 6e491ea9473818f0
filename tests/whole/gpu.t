#!/usr/bin/env bash
# tests/gpu/prepare and tests/gpu/run, as far as a machine without a GPU can: one case and the tiny GPT, with the shim in place of CUDA (its checks of
# memory are other tests' business); and run tells a wrong number, and a folder that is none of prepare's.
. "$(dirname "$0")/../lib.sh"
if ! command -v "${CXX:-g++}" >/dev/null; then
    skip "tests/gpu" "no C++ compiler"
    plan_done
    exit
fi
dir=$work/gpu
ok "prepare" env BUILD="$build" "$top/tests/gpu/prepare" --cases doc-ts --rows 1 --arch none "$dir"
# What make check has compiled is not compiled again: the shim, and the runtime for the CPU.
mkdir "$dir/tools" && cp -a "$build/cuda_shim" "$dir/tools/shim" && cp -a "$build/tests/objects" "$dir/tools/objects"
export RUNTIME=$runtime DETECTED=$build/tests/first/build/detected.mk CC=$cc CFLAGS=${PIPELINE_CFLAGS:--O1}
run=(env CHECK=0 SHIMFLAGS="-O0 -g0" LDFLAGS="$pipeline_ldflags" "$top/tests/gpu/run" --shim --jobs 2)
"${run[@]}" "$dir" >"$work/said" 2>&1
is "run --shim" "$? $(tail -n 1 "$work/said" | sed 's/^[1-9][0-9]* passed/N passed/')" "0 N passed, 0 failed"
grep -A 20 '^FAILED' "$work/said" | sed 's/^/# /'
is "a line of time per number of stages and precision, and at the end once more" "$(grep -c '^ppsplit, [12] stages, ' "$work/said")" 4
# rows, loss, the CPU's, bits, milliseconds, tokens a second, forecast, PyTorch's, memory planned and taken
is "a step of one microbatch, a line" "$(awk '$1 == 2 && NF == 11 && $2 - $3 < 0.01 && $3 - $2 < 0.01 && $3 > 0 && $4 == "same" && $5 > 0 && $6 > 0 && $7 > 0 && $8 == "-" && $10 > 0 && $11 >= $10' "$work/said" | wc -l)" 1
is "what matters stands in the last 60 lines" "$(tail -n 60 "$work/said" | sed -n '/^---- all of it/,$p' | grep -c -e '^---- all of it' -e '^ *2 .* same ' -e '^ppsplit, 2 stages, float32 ' -e '^library: ' -e '^compare: ')" 5
is "kinds of kernels" "$(grep -o '^\(product\|elementwise\|row\|column\) ' "$work/said" | sort -u | tr -d '\n')" "column elementwise product row "
# What the program counts as it runs is what the forecast was made of: 3 steps of one microbatch.
counted() { awk -F'\t' -v k="$1" '$1 == k { f += $5; b += $6; n += $3 } END { printf "%d launches, %.4g FLOP, %.4g bytes", n, f, b }' "$dir/results.shim/gpt.profile.step.2.tsv"; }
told() { awk -F'\t' -v k="$1" -v steps=3 '$5 == k && $2 ~ /^(forward|backward)$/ { f += steps * ($6 == "scalar" ? 0 : $8); b += steps * $9; n += steps * $7 } END { printf "%d launches, %.4g FLOP, %.4g bytes", n, f, b }' "$dir/gpt-tiny/step.2/launches.tsv"; }
for kind in product elementwise row; do is "forecast of kind $kind" "$(told $kind)" "$(counted $kind)"; done
# of a causal square the profile counts half; the forecast the tiles that are computed, of 16 tokens all
is "forecast of kind attention" "$(told attention | sed 's/,.*FLOP//')" "$(counted attention | sed 's/,.*FLOP//')"

# the judge of run: a weight of one stage is 0
head -c 4 /dev/zero | dd of="$dir/doc-ts.2/params/stage1.safetensors" bs=1 seek=$(($(stat -c %s "$dir/doc-ts.2/params/stage1.safetensors") - 4)) conv=notrunc status=none
"${run[@]}" --only compare --cases doc-ts "$dir" >"$work/said" 2>&1
is "a wrong weight fails" "$? $(grep -c "^FAILED doc-ts.2: .*PyTorch's and the CPU's numbers" "$work/said" | sed 's/^[1-9][0-9]*/N/')" "1 N"
# Without time nothing is begun, and what has passed is not run again.
"${run[@]}" --only compare --cases doc-ts --minutes 0 --results "$work/none" "$dir" >"$work/said" 2>&1
is "no time" "$? $(tail -n 2 "$work/said" | sed 's/^[1-9][0-9]* too/N too/' | paste -sd' ')" "1 N too late for the 0 minutes: --rest goes on with them 0 passed, 0 failed"
is "what the machine has" "$(grep -c '^\(CPU cores\|nvcc\|cuDNN\|NCCL\|MPI\|oneDNN\|OpenBLAS\|compute-sanitizer\|PyTorch\) ' "$work/said")" 9
"${run[@]}" --only compare --cases doc-ts --rest "$dir" >"$work/said" 2>&1
is "the rest is what failed" "$(sed -n 's/^compare \(doc-ts[^:]*\):.*/\1/p' "$work/said" | paste -sd' ')" doc-ts.2
"${run[@]}" "$work" >"$work/said" 2>&1
is "a folder that prepare did not make" "$? $(sed "s|$work|DIR|" "$work/said")" "2 run: DIR: not made by tests/gpu/prepare"
plan_done
