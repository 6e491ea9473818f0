#!/usr/bin/env bash
# Every allocation of ppsplit fails once: it ends with exit 3 and one diagnostic, or does without, and then what it has written is what it writes
# otherwise; nothing else is left, in memory neither.  MODELS models (1 here, 10 in `make faults`), of each at most COUNT allocations (40 here, all
# there), evenly, and as many as SECONDS_MOST allows, of which each model has its part.
. "$(dirname "$0")/lib.sh"
models=(mlp-ts gpt-dyn doc-ts resnet-ts unet-ts gpt-ts example-ts mobilenet-ts encdec-ts vit-dyn)
count=${COUNT:-40}
mkdir children parent
mkfifo says asks
exec {says}<>says {asks}<>asks

# failing N COMMAND...: in the folder `parent`, the allocations fail that this script asks for, N first
failing() {
    (cd parent && FAIL_ALLOC=$1 FAIL_ALLOC_EACH=$work/children FAIL_ALLOC_SAID=$work/said LD_PRELOAD=$build/tests/faults/fail_alloc.so \
        exec "${@:2}" >../stdout 2>../err 8>&$says 9<&$asks)
}

# ended N STATUS LIVE
ended() {
    local out=children/$1 err
    err=$(<children/$1.err)
    case $2 in
    3)  [[ $err == *error:* && ${err#*error:} != *error:* ]] && ! grep -qv '^[a-zA-Z0-9_./-]*: \|^note: \|^hint: ' <<<"$err" || { echo "exit 3: $err"; return 1; }
        [ -z "$(ls -A $out)" ] || { echo "exit 3, and left behind: $(ls -A $out)"; return 1; } ;;
    0)  [[ $(<reference.err) == *"$err" ]] || { echo "exit 0, but said: $err"; return 1; }
        [ "$(ls -A $out)" = out ] || { echo "exit 0, and left behind: $(ls -A $out)"; return 1; }
        same_folder $out/out reference || { echo "exit 0, but out is another: $(diff -rq $out/out reference)"; return 1; } ;;
    *)  echo "exit $2: $err"; return 1 ;;
    esac
    [ "$3" -le "$live" ] || { echo "exit $2, and $3 allocations are not freed, otherwise $live: $err"; return 1; }
}

left=${MODELS:-1}
for name in "${models[@]:0:$left}"; do
    dir=$top/models/$name points=()
    bind=''
    . "$dir/case.env"
    [ "$splits" = markers ] || for p in ${splits##* }; do points+=(--split "${p//,/ --split }"); done
    command=("$ppsplit" -q "$dir/model.onnx" --loss "$loss" ${points[*]} ${bind:+--bind $bind} --target cpu --target cuda -o out)
    rm -rf reference parent/*
    failing 0 "${command[@]}" || { cat err; exit 1; }
    mv parent/out reference && mv err reference.err
    read -r _ _ live <&$says
    n=$(<said) step=$((n > count ? n / count : 1))
    share 1 $left
    failing 1 "${command[@]}" &
    while read -r at status left_in <&$says && [ "$at" != 0 ]; do
        tried "$name, allocation $at of $n" ended $at $status $left_in
        rm -rf children/*
        over && echo 0 >&$asks || echo $((at + step)) >&$asks
    done
    wait $!
    s=$?
    tried "$name, all the others" eval '[ $s -eq 0 ] && same_folder parent/out reference && [ $left_in -le $live ]'
    summed "$name, $n allocations"
    left=$((left - 1))
done
plan_done
