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
mkdir "$dir/tools" && cp -a "$build/cuda_shim" "$dir/tools/shim" && cp -a "$build/tests/objects" "$dir/tools/objects" && cp "$compare" "$build"/models/make_{gpt,tokens} "$dir/tools"
export RUNTIME=$runtime DETECTED=$build/tests/first/build/detected.mk CC=$cc CFLAGS=${PIPELINE_CFLAGS:--O1}
run=(env SHIMFLAGS="-O0 -g0" LDFLAGS="$pipeline_ldflags" "$top/tests/gpu/run" --shim --jobs 2)
# the judge of run: a weight of one stage is 0
weights=$dir/doc-ts.2/params/stage1.safetensors
cp "$weights" "$work/weights"
head -c 4 /dev/zero | dd of="$weights" bs=1 seek=$(($(stat -c %s "$weights") - 4)) conv=notrunc status=none
"${run[@]}" "$dir" >"$work/said" 2>&1
is "run --shim: a wrong weight fails, and nothing else" "$? $(tail -n 1 "$work/said" | sed 's/[1-9][0-9]*/N/g') $(sed -n '/^FAILED/{ s/:.*ranks//; p; }' "$work/said" | sort -u)" \
    "1 N passed, N failed FAILED doc-ts.2: PyTorch's and the CPU's numbers"
grep -A 20 '^FAILED' "$work/said" | grep -v doc-ts.2 | sed 's/^/# /'
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

# What has passed is not run again: once the weight is right, all has passed.
cp "$work/weights" "$weights"
"${run[@]}" --only compare --rest "$dir" >"$work/said" 2>&1
is "the rest is what failed, and nothing fails any more" "$? $(sed -n 's/^compare \(doc-ts[^:]*\):.*/\1/p' "$work/said" | paste -sd' ') $(tail -n 1 "$work/said" | sed 's/^[1-9][0-9]*/N/')" "0 doc-ts.2 N passed, 0 failed"
# Without time nothing is begun.
"${run[@]}" --only compare --minutes 0 --results "$work/none" "$dir" >"$work/said" 2>&1
is "no time" "$? $(tail -n 2 "$work/said" | sed 's/^[1-9][0-9]* too/N too/' | paste -sd' ')" "1 N too late for the 0 minutes: --rest goes on with them 0 passed, 0 failed"
is "what the machine has" "$(grep -c '^\(CPU cores\|nvcc\|cuDNN\|NCCL\|MPI\|oneDNN\|OpenBLAS\|compute-sanitizer\|PyTorch\) ' "$work/said")" 9
"${run[@]}" "$work" >"$work/said" 2>&1
is "a folder that prepare did not make" "$? $(sed "s|$work|DIR|" "$work/said")" "2 run: DIR: not made by tests/gpu/prepare"
plan_done
