#!/usr/bin/env bash
# Every allocation of ppsplit fails once: it ends with exit 3 and one diagnostic, or does without, and then what it has written is what it writes
# otherwise; nothing else is left.  MODELS models (1 here, 10 in `make faults`), of each at most COUNT allocations (40 here, all there), evenly, and
# as many as SECONDS_MOST allows, of which each model has its part.
. "$(dirname "$0")/lib.sh"
models=(mlp-ts gpt-dyn doc-ts resnet-ts unet-ts gpt-ts example-ts mobilenet-ts encdec-ts vit-dyn)
count=${COUNT:-40}
lib=$build/tests/faults/fail_alloc.so

# failing N COMMAND...: with allocation N failing
failing() {
    FAIL_ALLOC=$1 FAIL_ALLOC_SAID=$work/said LD_PRELOAD=$lib "${@:2}" >stdout 2>err
    s=$?
    [ $s -eq 0 ] && return
    [ $s -eq 3 ] && [ "$(grep -c 'error:' err)" -eq 1 ] && ! grep -qv '^[a-zA-Z0-9_./-]*: \|^note: \|^hint: ' err && return
    echo "exit $s: $(cat err)"
    return 1
}
compiled() {
    rm -rf out*
    failing "$1" "$ppsplit" "${@:2}" -o out || return
    if [ $s -eq 0 ]; then
        same_folder out reference || { echo "exit 0, but out is another: $(diff -rq out reference)"; return 1; }
        cmp -s err reference.err || { echo "exit 0, but said: $(cat err)"; return 1; }
    elif [ -e out ]; then
        echo "exit $s, but out is there"
        return 1
    fi
    [ -z "$(ls -d out.* 2>/dev/null)" ] || { echo "exit $s, and left behind: $(ls -d out.*)"; return 1; }
}

left=${MODELS:-1}
for name in "${models[@]:0:$left}"; do
    dir=$top/models/$name points=()
    bind=''
    . "$dir/case.env"
    [ "$splits" = markers ] || for p in ${splits##* }; do points+=(--split "${p//,/ --split }"); done
    command=(-q "$dir/model.onnx" --loss "$loss" ${points[*]} ${bind:+--bind $bind} --target cpu --target cuda)
    rm -rf reference out*
    "$ppsplit" "${command[@]}" -o reference 2>reference.err
    failing 0 "$ppsplit" "${command[@]}" -o out
    n=$(cat said) || exit 1
    each=$((n < count ? n : count))
    share 1 $left
    for at in $(spread $n $each); do
        over && break
        tried "$name, allocation $at of $n" compiled $at "${command[@]}"
    done
    summed "$name, $n allocations"
    left=$((left - 1))
done
plan_done
