#!/usr/bin/env bash
# An output folder is the old one or the new one, whatever goes wrong: every system call of ppsplit that changes a file, or is to read one, fails
# (EIO, ENOSPC, EDQUOT, EINTR), does half of its work or is the last one (SIGKILL), while a new folder is written and while one is
# replaced.  COUNT faults (20 here, 600 in `make faults`), spread over all calls, as many as SECONDS_MOST allows.
. "$(dirname "$0")/lib.sh"
count=${COUNT:-20}
m=$top/models/mlp-ts/model.onnx
old=(-q "$m" --split blocks.1:begin --split blocks.2:begin --loss cross_entropy)
new=(-q "$m" --split blocks.1:begin --loss mse)
"$fault" -- true 2>/dev/null || { skip "faults" "no system call can be intercepted here"; plan_done; exit; }
kinds=(kill EIO ENOSPC kill short EINTR EDQUOT)
calls() { "$fault" --calls "$1" --said said -- "${@:2}" >/dev/null && sed 's/ .*//' said; }

# faulty WHICH AT KIND COMMAND...: exit status in $s, what was said in err; one diagnostic and exit 3 for what failed, none for what did not
faulty() {
    "$fault" --calls "$1" --at "$2" --fault "$3" --said said -- "${@:4}" >stdout 2>err
    s=$?
    [ $s -eq 137 ] && [ "$3" = kill ] && return
    [ $s -eq 0 ] && [ ! -s err ] && return
    [ $s -eq 3 ] && [ "$(grep -c 'error:' err)" -eq 1 ] && return
    echo "exit $s: $(cat said err)"
    return 1
}

# What a folder is after make has looked at it, where its replacement was cut short; make itself says so once.
settle() {
    [ -e "$1/.next" ] || return 0
    make -C "$1" -n >made 2>&1 && { echo "make passed over .next"; return 1; }
    grep -q 'now it is the new output: make again' made && [ ! -e "$1/.next" ] || { cat made; return 1; }
}

written() {
    faulty write "$1" "$2" "$ppsplit" "${new[@]}" -o out || return
    { [ $s -eq 0 ] && same_folder out plain; } || { [ $s -ne 0 ] && [ ! -e out ]; } || { [ $s -eq 137 ] && same_folder out plain; } ||
        { echo "exit $s, and out is neither absent nor new: $(cat said)"; return 1; }
    [ $s -eq 137 ] || [ -z "$(ls -d out.* 2>/dev/null)" ] || { echo "exit $s, and left behind: $(ls -d out.*)"; return 1; }
}
replaced() {
    faulty write "$1" "$2" "$ppsplit" "${new[@]}" -o out || return
    [ $s -eq 137 ] || [ -z "$(ls -d out.* 2>/dev/null)" ] || { echo "exit $s, and left behind: $(ls -d out.*)"; return 1; }
    if [ -e out/.next ] && [ $(($1 % 2)) -eq 0 ]; then
        "$ppsplit" "${new[@]}" -o out || return
        same_folder out new || { echo "exit $s, ppsplit again, and out is not new: $(cat said)"; return 1; }
    fi
    settle out || return
    same_folder out new || { [ $s -ne 0 ] && same_folder out old; } || { echo "exit $s, and out is neither old nor new: $(cat said)"; return 1; }
}
unread() {
    faulty read "$1" "${2/kill/EIO}" "$ppsplit" "${new[@]}" -o out || return
    { [ $s -eq 0 ] && same_folder out plain; } || { [ $s -ne 0 ] && [ ! -e out ]; } || { echo "exit $s, and out is neither absent nor new: $(cat said)"; return 1; }
}

ok "two outputs" eval '"$ppsplit" "${old[@]}" -o old && "$ppsplit" "${new[@]}" -o plain && ! same_folder old plain'
mkdir old/build && echo mine >old/build/mine              # what others put there stays
cp -r plain new && cp -r old/build new

n=$(calls write "$ppsplit" "${new[@]}" -o out) || exit 1
each=$((count * 3 / 10)) i=0
share 3 10
for at in $(spread $n $each); do
    over && break
    rm -rf out*
    kind=${kinds[i++ % 7]}
    tried "a new folder, call $at of $n, $kind" written $at $kind
done
summed "a new folder: it or nothing"

rm -rf out* && cp -r old out
all=$(calls write "$ppsplit" "${new[@]}" -o out)
each=$((count * 6 / 10)) i=0
share 6 7
for at in $(spread $all $each); do
    over && break
    rm -rf out* && cp -r old out
    # most of them where files find their places
    at=$((i % 4 ? n + 1 + (at - 1) * (all - n) / all : 1 + (at - 1) * n / all)) kind=${kinds[i++ % 7]}
    tried "a replaced folder, call $at of $all, $kind" replaced $at $kind
done
summed "a replaced folder: old or new"

reads=$(rm -rf out* && calls read "$ppsplit" "${new[@]}" -o out)
each=$((count / 10)) i=0
share 1 1
for at in $(spread $reads $each); do
    over && break
    rm -rf out*
    kind=${kinds[i++ % 7]}
    tried "a file read, call $at of $reads, $kind" unread $at $kind
done
summed "what is read: a new folder or nothing"
plan_done
