#!/bin/sh
# complete.sh PROGRAM WORD... TYPED - what TYPED, the word at the cursor, may become: candidates, one a line, FILES: also names of files.
# All of it is asked of the program itself: options and what they take of --help, split points of `ppsplit ls', inputs, outputs,
# schedules and optimizers of `pipeline --help'.  The completions of bash, zsh and fish call it.
export LC_ALL=C
program=$1 typed='' previous='' first='' models=''
is_pipeline=; case ${program##*/} in pipeline*) is_pipeline=1 ;; esac
shift
while [ $# -gt 1 ]; do
    [ -n "$first" ] || first=$1
    previous=$1
    case $1 in *.onnx) models="$models $1" ;; esac
    shift
done
typed=${1-}
case $typed in --*=*) previous=${typed%%=*} ;; esac     # --option=value
# The words that usage shows behind the program's name
commands() { "$program" --help 2>/dev/null | sed -n 's/^  or:  ppsplit \([a-z][a-z]*\) .*/\1/p'; }
command=
[ -n "$is_pipeline" ] || [ "$first" = help ] || case " $(commands | tr '\n' ' ')" in *" $first "*) command=$first ;; esac
ask() { "$program" $command --help 2>/dev/null; }

schedules() { awk '/^  [a-z0-9][a-z0-9:-]*  +[A-Za-z0-9]/ && $1 !~ /^(ppsplit|pipeline|mpirun|sgd|momentum|adamw?)$/ { print $1 }'; }
optimizers() { sed -n '/^Optimizers/,/^$/s/^  \([a-z0-9]*\) .*/\1/p'; }
# The names after `inputs:' or `outputs:'
tensors() { sed -n "s/^  $1: //p" | tr ',' '\n' | sed 's/^ *//; s/$/=/'; }
# Behind those of a list that are there already: h.1:begin,h.2
points() {
    before=${typed#--split=}
    case $before in *,*) before=${before%,*}, ;; *) before= ;; esac
    "$program" ls $models 2>/dev/null |
        awk -v before="$before" 'NR > 1 && $1 ~ /^[0-9]/ && $NF != "(model)" { print before $NF ":begin"; print before $NF ":end" }'
}
# What a value is one of: of `--placement loop|v' and `--loss=mse|output:NAME' the words that are not in capitals.  Words deeper within
# a line are of another option's text.
values() {
    awk -v option="$1" '/^ ? ? ? ? ? ?-/ {
        for (i = 1; i <= 3 && i <= NF; i++) {
            if ($i == option) value = $(i + 1)
            else if (index($i, option "=") == 1) value = substr($i, length(option) + 2)
            else continue
            gsub(/\[[^]]*\]/, "", value)
            n = split(value, word, "|")
            for (k = 1; k <= n; k++) {
                sub(/[A-Z][A-Z.a-z]*$/, "", word[k])
                if (n > 1 && word[k] ~ /^[a-z0-9][a-z0-9_:-]*$/) print word[k]
            }
            exit
        }
    }'
}

case $typed in
--*=*) ;;
-*) ask | grep -oE '(^|[[:space:]])--[a-z][a-z0-9-]*' | tr -d ' \t' | sort -u
    exit ;;
esac
if [ -z "$first" ]; then
    if [ -n "$is_pipeline" ]; then printf '%s\n' train eval infer sample tokens measure help; else commands; echo FILES; fi
    exit
fi
case $previous in
help) commands ;;
schedule) ask | schedules; echo FILES ;;
--schedule) if [ -n "$is_pipeline" ]; then ask | schedules; echo FILES; else "$program" schedule --help | schedules | grep -v '^auto$'; fi ;;
--optimizer) if [ -n "$is_pipeline" ]; then ask | optimizers; else ask | values --optimizer; fi ;;
--split) points ;;
--data | --tokens | --dtype-of | --eval-data | --eval-tokens) ask | tensors inputs ;;
--output) if [ -n "$is_pipeline" ]; then ask | tensors outputs; else echo FILES; fi ;;
--lr-schedule) printf '%s\n' constant linear cosine wsd inverse-sqrt ;;
--recompute)
    printf '%s\n' never except-last always cheap
    if [ -n "$is_pipeline" ]; then echo auto; fi ;;
--transport) printf '%s\n' auto local mpi nccl ;;
--objective) printf '%s\n' makespan span ;;
--dump) printf '%s\n' all import loss autocast partition autodiff stash divide ;;
--*)
    found=$(ask | values "$previous")
    if [ -n "$found" ]; then printf '%s\n' "$found"; else echo FILES; fi ;;
*) echo FILES ;;
esac
