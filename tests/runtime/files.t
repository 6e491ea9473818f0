#!/usr/bin/env bash
# Files that a run reads may shrink, block, be damaged or be links: each is named, with the place, and nothing is deleted through a link.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
m=$top/models/gpt-ts
ok "a program" split_model "$m/model.onnx" two h.1:begin --loss cross_entropy || exit 1
case_data "$m"
T=(train "${data[@]}" --data "target=$m/target.npy")

# ---- data that are cut short ----

# of 4096 rows: big.npy, and the same of the target
perl -e 'for ("x.npy", "t.npy") { open F, ">", $_; $h = "{\x27descr\x27: \x27<i8\x27, \x27fortran_order\x27: False, \x27shape\x27: (4096, 16), }"; $h .= " " x (117 - length $h) . "\n";
    print F "\x93NUMPY\x01\x00", pack("v", length $h), $h, pack("q<*", map { $_ % 5 } 1 .. 4096 * 16) }'
# cut BYTES COMMAND...: x.npy, once the run has done some steps; what it says, without what mpirun adds
cut() {
    local bytes=$1 pid; shift
    cp x.npy cut.npy; rm -f log
    "$@" --data input_ids=cut.npy --data target=t.npy --batch 8 --steps 1000000 --quiet --log-json log >/dev/null 2>err &
    pid=$!
    until grep -q '"step": 5,' log 2>/dev/null || ! kill -0 $pid 2>/dev/null; do sleep 0.02; done
    truncate -s "$bytes" cut.npy
    wait $pid
    echo "$? $(grep '^pipeline' err | sed 's/row [0-9]*/row N/; s/byte [0-9]*/row N/' | sort -u)"
}
gone="cut.npy, row N: the file was cut short while it was being read: it had 524416 bytes, now it has"
is "half of it" "$(cut 262272 two/pipeline train --shuffle 1)" "3 pipeline: error: $gone 262272"
is "all of it" "$(cut 0 two/pipeline train)" "3 pipeline: error: $gone 0"
is "less than a page, which reads as zeros" "$(cut 524408 two/pipeline train --shuffle 1)" "3 pipeline: error: --data input_ids=$gone 524408"
if command -v mpirun >/dev/null; then
    is "processes end" "$(cut 4096 mpirun -n 2 two/pipeline train --shuffle 1)" "3 pipeline: error: $gone 4096"
fi
two/pipeline train --data input_ids=cut.npy --data target=t.npy --batch 8 2>err
is "one that is short from the beginning" "$? $(grep -c 'cut.npy: cut short: fewer bytes than its shape says' err)" "3 1"

# what a run keeps on a disk under --offload-dir: a file without a name, of which SIGBUS or the next copy tells
offloaded() {
    local pid fd
    rm -f log
    two/pipeline train --data input_ids=x.npy --data target=t.npy --batch 8 --steps 1000000 --ranks 1 --quiet --log-json log --offload params --offload-dir . >/dev/null 2>err &
    pid=$!
    until grep -q '"step": 5,' log 2>/dev/null || ! kill -0 $pid 2>/dev/null; do sleep 0.02; done
    for fd in /proc/$pid/fd/*; do case $(readlink "$fd") in */.ppsplit.*) truncate -s 0 "$fd" ;; esac; done
    wait $pid
    echo "$? $(grep '^pipeline' err | sed 's/, byte [0-9]*: cannot be read .*/: is gone/; s/: [a-z]* [0-9]* bytes: cut short/: is gone/' | sort -u)"
}
is "--offload-dir's" "$(offloaded)" "3 pipeline: error: rank 0: --offload-dir .: is gone"

# the model under ppsplit itself: when its output begins, what was read of it is mapped and not yet written
cat >cutter.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
char *mkdtemp(char *t)
{
    if (truncate(getenv("CUT"), atol(getenv("LEFT"))))
        abort();
    return ((char *(*)(char *))dlsym(RTLD_NEXT, "mkdtemp"))(t);
}
END
ok "a hook" ${CC:-cc} -w -shared -fPIC -o cutter.so cutter.c -ldl
for left in 0 4096 $(($(stat -c %s "$m/model.onnx") - 3)); do
    cp "$m/model.onnx" cut.onnx
    CUT=cut.onnx LEFT=$left LD_PRELOAD="$work/cutter.so" "$ppsplit" -q cut.onnx --split h.1:begin --loss cross_entropy -o never 2>err
    is "a model that is cut to $left bytes" "$? $(sed 's/byte [0-9]*/byte N/' err) $(ls -d never* 2>/dev/null)" \
        "3 ppsplit: error: cut.onnx, byte N: the file was cut short while it was being read: it had $(stat -c %s "$m/model.onnx") bytes, now it has $left "
done

# ---- what is no file ----

# refused NAME STATUS WORDS COMMAND...: at once, whoever waits at the other end of a pipe
refused() {
    local name=$1 status=$2 words=$3; shift 3
    timeout $patience "$@" >/dev/null 2>err
    is "$name" "$? $(grep -c -- "$words" err)" "$status 1"
}
mkfifo pipe
perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => "socket", Listen => 1)'
mkdir -p params ck/step_3 whole
mkfifo params/stage0.safetensors ck/step_3/index.json
for what in 'pipe a pipe' 'socket a socket' '/dev/zero a device' '. a folder'; do
    refused "data that are ${what#* }" 3 "--data target: ${what% a *}: is ${what#* }, not a file" two/pipeline train "${data[@]}" --data "target=${what% a *}"
done
refused "parameters" 3 "params/stage0.safetensors: is a pipe" two/pipeline "${T[@]}" --params params
refused "an index" 1 "ck/step_3/index.json: is a pipe" two/pipeline "${T[@]}" --resume ck
refused "a model" 3 "pipe: error: cannot open: is a pipe" "$ppsplit" pipe -o never
refused "a model that is a device" 3 "/dev/zero: error: cannot open: is a device" "$ppsplit" /dev/zero -o never
refused "a log of report" 3 "pipe: error: is a pipe" "$ppsplit" report two pipe -o page.html

# ---- checkpoints that are damaged, or no checkpoints ----

ok "three checkpoints" two/pipeline "${T[@]}" --optimizer adam --steps 3 --every 1 --checkpoint whole --quiet
# resumed COMMAND...: the status, the warnings and errors, and where it begins
resumed() { "$@" "${T[@]}" --optimizer adam --steps 4 --resume damaged --checkpoint damaged >said 2>err; echo "$? $(grep '^pipeline' err) $(sed -n 's/^resumed from \([^,]*\),.*/\1/p' said)"; }
checked() { rm -rf damaged; cp -r whole damaged; }
for at in -1 3000 700 9; do
    checked; flip damaged/step_3/rank1.safetensors $at
    is "byte $at of a file: the older one is taken" "$(resumed two/pipeline | sed 's/damaged: .*: an/damaged: an/')" \
        "0 pipeline: warning: damaged/step_3/rank1.safetensors: damaged: an older checkpoint is taken damaged/step_2"
done
checked; flip damaged/step_3/rank0.safetensors -1; flip damaged/step_2/index.json 300; flip damaged/step_1/rank1.safetensors -1
is "all of them" "$(resumed two/pipeline | sed 's/the bytes of .* do/do/')" \
    "1 pipeline: error: --resume damaged/step_3/rank0.safetensors: damaged: do not have the index's checksum "
if command -v mpirun >/dev/null; then
    checked; flip damaged/step_3/rank1.safetensors -1; flip damaged/step_2/rank0.safetensors -1
    is "processes take the same one" "$(resumed mpirun -n 2 two/pipeline | sed 's/the bytes of .* do/do/; s/^0 .*the index/0 the index/')" \
        "0 the index's checksum: an older checkpoint is taken damaged/step_1"
fi
checked; flip damaged/step_3/rank0.safetensors 3000; flip damaged/step_2/rank1.safetensors -1    # of the optimizer
two/pipeline eval "${T[@]:1}" --params damaged >said 2>err
is "eval takes the older one too" "$? $(grep -c 'step_3/rank0.safetensors: damaged: .*: an older checkpoint is taken' err)" "0 1"
is "with its loss" "$(grep -o '^mean loss [0-9.]*' said)" "$(two/pipeline eval "${T[@]:1}" --params whole/step_2 | grep -o '^mean loss [0-9.]*')"
"$ppsplit" merge two damaged -o old.onnx >said 2>err
is "and merge" "$? $(grep -c 'step_3/rank0.safetensors: damaged: .*: merging an older checkpoint' err)" "0 1"
ok "with its parameters" eval '"$ppsplit" merge two whole/step_2 -o older.onnx && cmp old.onnx older.onnx'
checked; rm damaged/step_3/index.json
is "without an index" "$(resumed two/pipeline)" "0 pipeline: warning: damaged/step_3: without index.json, which a checkpoint gets last: it was not written, copied or removed \
to its end: an older checkpoint is taken damaged/step_2"
checked; rm damaged/step_3/index.json
two/pipeline "${T[@]}" --resume damaged/step_3 --checkpoint another 2>err
is "no checkpoint at all" "$? $(cat err)" "1 pipeline: error: --resume damaged/step_3: without index.json, which a checkpoint gets last: it was not written, copied or removed to its end"
refused "no folder of parameters" 3 "--params two: no parameters there: neither a checkpoint" two/pipeline "${T[@]}" --params two

# ---- links ----

mkdir -p precious
for f in index.json a b; do echo "$f" >"precious/$f"; done
echo mine >file
ok "a run" two/pipeline "${T[@]}" --steps 1 --checkpoint linked --quiet
for l in step_2.tmp step_9.tmp step_0 step_4; do ln -s ../precious "linked/$l"; done
ln -s ../../file linked/step_1/notes
ok "one that removes old ones" two/pipeline "${T[@]}" --steps 4 --every 1 --keep 1 --checkpoint linked --resume linked --quiet
is "what links point to stays" "$(cat precious/* file | tr '\n' ' ')$(ls linked)" "a b index.json mine step_4"
ln -s ../file gone.npy.tmp; ln -s file m.onnx.tmp; mkdir -p grads; ln -s ../file grads/stage0.safetensors.tmp
ok "names for unfinished files" eval 'two/pipeline "${T[@]}" --output logits=gone.npy --dump-grads grads --quiet && "$ppsplit" merge two linked -o m.onnx'
is "are no roads to others" "$(cat file)" mine
ok "an output" "$ppsplit" -q "$m/model.onnx" --split h.0.mlp:begin --split h.1:begin --loss cross_entropy -o out
mv out/params there; ln -s ../there out/params
"$ppsplit" -q "$m/model.onnx" --split h.1:begin --loss cross_entropy -o out 2>err
is "whose parameters lie elsewhere" "$? $(head -n 1 err) $(ls there/*.safetensors | wc -l)" "3 out/params: error: is a link to a folder, into which ppsplit would write 3"
plan_done
