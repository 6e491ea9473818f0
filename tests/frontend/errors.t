#!/usr/bin/env bash
# Both commands: every mistake gets one clear message (from one rank, however many there are), the right exit
# code, an end, and leaves no file behind.  errors.expected holds the messages; UPDATE=1 rewrites it.
. "$(dirname "$0")/../lib.sh"
expected=$top/tests/frontend/errors.expected
cd "$work" || exit 1
: >got
: >stdout
: >stderr
: >said

# npy FILE DESCR SHAPE BYTES: a file of zeros
npy() {
    local head="{'descr': '$2', 'fortran_order': ${FORTRAN:-False}, 'shape': ($3), }" n
    n=$((${#head} + 1))
    head=$(printf '%s%*s' "$head" $(((64 - (10 + n) % 64) % 64)) '')
    n=$((${#head} + 1))
    { printf "\\x93NUMPY\\x01\\x00\\x$(printf %x $((n % 256)))\\x$(printf %x $((n / 256)))"; printf '%s\n' "$head"; head -c "$4" /dev/zero; } >"$1"
}

# zip FILE NAME: the beginning of an archive whose first file is NAME
zip() { { printf 'PK\x03\x04%22s' ''; printf "\\x$(printf %x ${#2})\\x00\\x00\\x00%s" "$2"; head -c 200 /dev/zero; } >"$1"; }

wanted() { awk -v name="$1: " 'index($0, name) == 1' "$expected"; }

# refuse NAME CODE COMMAND...: the command ends with CODE, says one thing, and leaves nothing behind.
refuse() {
    local name=$1 want=$2 code before after errors; shift 2
    tests=$((tests + 1))
    before=$(find . | sort)
    if [ "$1" = full ]; then
        timeout $patience "${@:2}" >/dev/full 2>stderr </dev/null
    elif [ "$1" = small_disk ] || [ "$1" = some_disk ]; then    # writes past 1 KiB of a file fail, or past 400
        (trap '' XFSZ; ulimit -f $([ "$1" = some_disk ] && echo 400 || echo 1); exec timeout $patience "${@:2}") >stdout 2>stderr </dev/null
    else
        timeout $patience "$@" >stdout 2>stderr </dev/null
    fi
    code=$?
    after=$(find . | sort)
    if [ "$1" = mpirun ]; then
        grep '^pipeline: ' stderr                       # mpirun itself has much to say, and not always the same
    else
        cat stderr
    fi | sed "s|$work|.|g; s|$top/||g; s|^|$name: |" >said
    echo "$name: exit $code" >>said
    cat said >>got
    errors=$(grep -c -e ': error: ' -e '^ppsplit: ' stderr)
    if [ "$code" = "$want" ] && [ "$errors" = 1 ] && [ "$before" = "$after" ] &&
        { [ -n "${UPDATE:-}" ] || [ "$(wanted "$name")" = "$(cat said)" ]; }; then
        echo "ok $tests - $name"
        return
    fi
    failures=$((failures + 1))
    echo "not ok $tests - $name"
    echo "# exit $code, expected $want; $errors messages"
    diff <(wanted "$name") said | sed 's/^/#   /'
    diff <(echo "$before") <(echo "$after") | sed 's/^/#   file /'
}

# ---- what the cases need ----

m=$top/models/doc-ts
"$ppsplit" -q "$m/model.onnx" --split layers.1:begin --loss cross_entropy -o two && make_pipeline two >/dev/null &&
    "$ppsplit" -q "$m/model.onnx" --split layers.0:begin --loss cross_entropy -o other && make_pipeline other >/dev/null &&
    "$build/tests/tools/hostile" odd . && "$ppsplit" -q 01-rows-by-number.onnx --loss mse -o odd 2>/dev/null && make_pipeline odd >/dev/null &&
    "$ppsplit" -q "$m/model.onnx" --split layers.1:begin -o infer && make_pipeline infer >/dev/null || exit 1
cp "$m/in.x.npy" x.npy
cp "$m/target.npy" target.npy
P=two/pipeline
D=(--data x=x.npy --data target=target.npy)
npy floats.npy '<f4' '8, 4' 128
npy wide.npy '<i8' '8, 5' 320
npy flat.npy '<i8' '32,' 256
npy seven.npy '<i8' '7, 4' 224
npy turned.npy '<i8' '2, 8' 128
npy none.npy '<i8' '0, 4' 0
npy short.npy '<i8' '8, 4' 250
npy huge.npy '<i8' '4611686018427387904, 4' 64
npy negative.npy '<i8' '-8, 4' 256
npy big.npy '>i8' '8, 4' 256
npy objects.npy '|O' '8, 4' 256
FORTRAN=True npy fortran.npy '<i8' '8, 4' 256
head -c 40 x.npy >header.npy
echo 'no array' >text.npy
npy odd3.npy '<f4' '3, 3' 36
mkdir folder
echo "in the way" >file
printf '\x08\x08\x08\x04\x10\x07\x4a\xff\xff\xff\xff\x0f' >short.pb
printf '0F0,0RECV_B0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n' >cross.csv
echo '0F0,2BW0,0B0' >cell.csv
printf '0F0,0OFFLOAD0,,0WAIT_OFFLOAD0,0FETCH0,0B0\n,1F0,1B0,,\n' >offload.csv
printf '0F0,,,0B0\n,1F0,1B0,\n' >good.csv
printf '0F0,0F1,0F2,0F3,0B0,0B1,0B2\n,1F0,1F1,1F2,1F3,1B0,1B1,1B2,1B3\n' >missing.csv
printf '0F0,1F0,1B0,0B0\n' >one.csv
params() { rm -rf "bad.$1"; cp -r two/params "bad.$1"; }
params cut && head -c 100 two/params/stage1.safetensors >bad.cut/stage1.safetensors
params empty && : >bad.empty/stage0.safetensors
params length && printf '\xff\xff\xff\xff\xff\xff\xff\x7f' | dd of=bad.length/stage0.safetensors conv=notrunc status=none
params json && printf '}' | dd of=bad.json/stage0.safetensors bs=1 seek=8 conv=notrunc status=none
params flipped && $P train "${D[@]}" --steps 1 --checkpoint ck.flipped >/dev/null && cp ck.flipped/step_1/* bad.flipped && printf '\xff' |
    dd of=bad.flipped/rank0.safetensors bs=1 conv=notrunc seek=$(($(stat -c %s bad.flipped/rank0.safetensors) - 1)) status=none
cp -r ck.flipped/step_1 bad.index && printf 2 | dd of=bad.index/index.json bs=1 conv=notrunc seek=90 status=none
cp -r ck.flipped/step_1 bad.short && head -c 100 ck.flipped/step_1/rank1.safetensors >bad.short/rank1.safetensors
params swapped && cp two/params/stage1.safetensors bad.swapped/stage0.safetensors

# ---- out/pipeline: the command line ----

refuse "no command" 2 $P
refuse "unknown command" 2 $P trian
refuse "an operand too many" 2 $P train again
refuse "unknown option" 2 $P train "${D[@]}" --microbtaches 4
refuse "an option of ppsplit" 2 $P train "${D[@]}" --loss mse
refuse "an option of ppsplit that begins another" 2 $P train "${D[@]}" --dtype bf16
refuse "ambiguous option" 2 $P train "${D[@]}" --s 4
refuse "a flag with a value" 2 $P train "${D[@]}" --quiet=yes
refuse "no value" 2 $P train --data
refuse "no number" 2 $P train "${D[@]}" --steps ten
refuse "number too small" 2 $P train "${D[@]}" --microbatches 0
refuse "learning rate" 2 $P train "${D[@]}" --lr nan
refuse "unknown thing to offload" 2 $P train "${D[@]}" --offload stahs
refuse "no folder for stashes" 2 $P train "${D[@]}" --offload stash
refuse "a folder for stashes that is none" 3 $P train "${D[@]}" --offload stash --offload-dir nowhere --microbatches 4 --schedule gpipe
refuse "stashes of inference" 2 $P infer --data x=x.npy --offload stash --offload-dir .
refuse "memory of nothing" 2 $P train "${D[@]}" --memory 1000
refuse "unknown optimizer" 2 $P train "${D[@]}" --optimizer adma
refuse "an option of another optimizer" 2 $P train "${D[@]}" --beta1 0.8
refuse "data without a file" 2 $P train --data x=
refuse "a second file of another shape" 1 $P train --data x=x.npy --data x=wide.npy
refuse "trains without a loss" 1 infer/pipeline train --data x=x.npy
refuse "a checkpoint of eval" 2 $P eval "${D[@]}" --checkpoint ck
refuse "an optimizer of infer" 2 $P infer --data x=x.npy --optimizer adam
cp -r two stale && "$ppsplit" -q "$m/model.onnx" --split layers.0:begin --loss cross_entropy -o stale
refuse "another split without make" 1 stale/pipeline train "${D[@]}"
refuse "unknown output" 2 $P train "${D[@]}" --output logit=y.npy
refuse "output of another name" 2 $P train "${D[@]}" --output predictions=y.npy

# ---- data ----

refuse "missing input" 2 $P train --data x=x.npy
refuse "unknown input" 2 $P train --data xx=x.npy --data target=target.npy
refuse "dtype" 1 $P train --data x=floats.npy --data target=target.npy
refuse "shape" 1 $P train --data x=wide.npy --data target=target.npy
refuse "rank of the shape" 1 $P train --data x=flat.npy --data target=target.npy
refuse "rows in another dimension" 1 $P train --data x=turned.npy --data target=target.npy
refuse "rows differ" 1 $P train --data x=seven.npy --data target=target.npy
refuse "too few rows" 1 $P train "${D[@]}" --batch 9
refuse "no rows" 1 $P infer --data x=none.npy
refuse "more microbatches than rows" 1 $P train "${D[@]}" --microbatches 9
refuse "microbatches too large" 1 $P train "${D[@]}" --microbatches 2
refuse "chunks that differ" 1 odd/pipeline infer --data x=odd3.npy
refuse "no such file" 3 $P train --data x=nobody.npy --data target=target.npy
refuse "a folder as data" 3 $P train --data x=folder --data target=target.npy
for f in short huge negative big objects fortran header text; do
    refuse "npy: $f" 3 $P train --data x=$f.npy --data target=target.npy
done
zip x.npz arr_0.npy
zip weights.pt archive/data.pkl
printf '\x80\x02\x8a\x0al\xfc\x9c\x46\xf9' >old.pt
for f in x.npz weights.pt old.pt; do
    refuse "no array: $f" 3 $P train --data x=$f --data target=target.npy
done
refuse "pb: short" 3 $P train --data x=short.pb --data target=target.npy

# ---- parameters ----

refuse "params: no such folder" 3 $P train "${D[@]}" --params nowhere
for f in cut empty length json; do
    refuse "params: $f" 3 $P train "${D[@]}" --params bad.$f
done
refuse "params: a flipped byte in a checkpoint" 1 $P train "${D[@]}" --params bad.flipped
refuse "params: another stage's" 1 $P train "${D[@]}" --params bad.swapped

# ---- schedules and ranks ----

refuse "unknown schedule" 2 $P train "${D[@]}" --schedule 1f1c
refuse "unknown schedule, inference" 2 $P infer --data x=x.npy --schedule 1f1c
refuse "no such schedule file" 3 $P train "${D[@]}" --schedule nobody.csv
refuse "schedule: a bad cell" 1 $P train "${D[@]}" --schedule cell.csv
refuse "schedule: an action is missing" 1 $P train "${D[@]}" --schedule missing.csv
refuse "schedule: deadlock" 1 $P train "${D[@]}" --schedule cross.csv --batch 2
refuse "schedule: a stash to the host" 2 $P train "${D[@]}" --schedule offload.csv --batch 2
ok "schedule: which the tool simulates" "$ppsplit" schedule offload.csv --verify --simulate
refuse "schedule: microbatches" 1 $P train "${D[@]}" --schedule good.csv --microbatches 4
refuse "schedule: ranks" 1 $P train "${D[@]}" --schedule good.csv --batch 2 --ranks 1
refuse "schedule: stages" 1 odd/pipeline train --data x=odd3.npy --data target=odd3.npy --schedule one.csv
refuse "more ranks than stages" 1 $P train "${D[@]}" --ranks 3
if command -v mpirun >/dev/null; then
    refuse "mpi: more ranks than stages" 1 mpirun -n 3 $P train "${D[@]}"
    refuse "mpi: --ranks and processes" 2 mpirun -n 2 $P train "${D[@]}" --ranks 1
    refuse "mpi: usage" 2 mpirun -n 2 $P train "${D[@]}" --optimizer adma
    refuse "mpi: missing input" 2 mpirun -n 2 $P train --data x=x.npy
    refuse "mpi: no such file on one rank" 3 mpirun -n 1 $P train "${D[@]}" : -n 1 $P train --data x=nobody.npy --data target=target.npy
    refuse "mpi: parameters of one rank" 3 mpirun -n 2 $P train "${D[@]}" --params bad.cut
    refuse "mpi: other options" 1 mpirun -n 1 $P train "${D[@]}" : -n 1 $P train "${D[@]}" --steps 2
    refuse "mpi: another program" 1 mpirun -n 1 $P train "${D[@]}" : -n 1 other/pipeline train "${D[@]}"
    refuse "mpi: gradients into a file" 3 mpirun -n 2 $P train "${D[@]}" --dump-grads file/grads
fi

# ---- what is written: found before the first step ----

R() { refuse "$@"; is "$1: no step" "$(grep -c ^step stdout)" 0; }
$P train "${D[@]}" --quiet --steps 2 --checkpoint ck
$P train "${D[@]}" --quiet --steps 2 --checkpoint more --every 1
$P train "${D[@]}" --quiet --steps 2 --checkpoint adam --optimizer adam --clip-norm 1
R "checkpoint over what is read" 1 $P train "${D[@]}" --steps 2 --params ck/step_2 --checkpoint ./ck
R "gradients over the parameters" 1 $P train "${D[@]}" --dump-grads two/params
R "checkpoints among the parameters" 1 $P train "${D[@]}" --checkpoint two/params
R "a new run into the folder of another" 1 $P train "${D[@]}" --checkpoint ck
R "resume: no checkpoint" 3 $P train "${D[@]}" --resume folder
R "resume: a changed byte" 1 $P train "${D[@]}" --resume bad.flipped
R "resume: a changed byte of the index" 1 $P train "${D[@]}" --resume bad.index
R "resume: a file cut short" 1 $P train "${D[@]}" --resume bad.short --steps 2
R "resume: an option that was not given again" 1 $P train "${D[@]}" --steps 3 --resume adam --optimizer adam
R "resume: another default" 1 $P train "${D[@]}" --steps 3 --resume adam
R "resume: other data" 1 $P train --data x=seven.npy --data target=seven.npy --batch 7 --microbatches 4 --steps 3 --resume ck
R "resume: another model" 1 odd/pipeline train --data x=odd3.npy --data target=odd3.npy --batch 2 --resume ck
R "resume: an older checkpoint, into its folder" 1 $P train "${D[@]}" --steps 3 --resume more/step_1 --checkpoint more
R "resume with parameters" 2 $P train "${D[@]}" --resume ck --params two/params
R "resume in eval" 2 $P eval "${D[@]}" --resume ck
R "epochs and steps" 2 $P train "${D[@]}" --epochs 2 --steps 5
R "every without checkpoint" 2 $P train "${D[@]}" --every 5
R "gradients over a checkpoint that is read" 1 $P train "${D[@]}" --params ck/step_2 --dump-grads ck/step_2
R "gradients among checkpoints" 1 $P train "${D[@]}" --dump-grads ck
R "log: no room for its first line" 3 small_disk $P train "${D[@]}" --log-json log.json
R "output over data" 1 $P train "${D[@]}" --output logits=./x.npy
R "log over a schedule" 1 $P train "${D[@]}" --batch 2 --schedule good.csv --log-json good.csv
R "gradients over parameters that others stand for" 1 $P train "${D[@]}" --params ck/step_2 --dump-grads two/params
R "log over weights" 3 $P train "${D[@]}" --log-json two/params/stage0.safetensors
R "output over weights" 3 $P infer --data x=x.npy --output logits=two/params/stage1.safetensors
R "trace over the program" 3 $P train "${D[@]}" --trace two/stage0.c
R "two outputs in one file" 1 $P train "${D[@]}" --output logits=y.npy --trace ./y.npy
R "output: a folder" 3 $P infer --data x=x.npy --output logits=folder
R "trace: no such folder" 3 $P train "${D[@]}" --trace nowhere/trace.json
R "trace: full" 3 $P train "${D[@]}" --trace /dev/full
R "checkpoint under a file" 3 $P train "${D[@]}" --checkpoint file/a/b
mkdir taken && : >taken/step_1
R "checkpoint: a file in its place" 3 $P train "${D[@]}" --checkpoint taken
R "checkpoint: full" 3 small_disk $P train "${D[@]}" --checkpoint new/ck
R "gradients: full" 3 small_disk $P train "${D[@]}" --dump-grads grads
mkdir -p taking/stage1.safetensors.tmp
refuse "gradients: one cannot be written" 3 $P train "${D[@]}" --dump-grads taking
npy many.npy '<i8' '200, 4' 6400
R "output: full" 3 small_disk $P infer --data x=many.npy --output logits=y.npy
R "checkpoint: another run writes there" 3 flock more $P train "${D[@]}" --steps 3 --resume more --checkpoint more
mkdir more/step_9.tmp
is "what a killed run has left goes before there is no room" "$( (trap '' XFSZ; ulimit -f 1; $P train "${D[@]}" --steps 3 --resume more --checkpoint more 2>&1 | grep -c 'too large'); ls -d more/*.tmp 2>&1)" "1
ls: cannot access 'more/*.tmp': No such file or directory"
if command -v mpirun >/dev/null; then
    R "mpi: checkpoint over what is read" 1 mpirun -n 2 $P train "${D[@]}" --steps 2 --params ck/step_2 --checkpoint ck
    R "mpi: checkpoint under a file" 3 mpirun -n 2 $P train "${D[@]}" --checkpoint file/a/b
fi
if [ "$(id -u)" != 0 ]; then
    mkdir locked && chmod 500 locked
    R "checkpoint: not writable" 3 $P train "${D[@]}" --checkpoint locked/ck
else
    skip "checkpoint: not writable" "root may write everywhere"
fi
is "a device stays one" "$($P train "${D[@]}" --quiet --output logits=/dev/null; test -c /dev/null; echo $?)" 0
refuse "output: no such folder" 3 $P infer --data x=x.npy --output logits=nowhere/y.npy
refuse "log: no such folder" 3 $P train "${D[@]}" --log-json nowhere/log.json
refuse "log: full" 3 $P train "${D[@]}" --log-json /dev/full
refuse "gradients into a file" 3 $P train "${D[@]}" --dump-grads file/grads
refuse "checkpoint into a file" 3 $P train "${D[@]}" --checkpoint file
refuse "standard output: full" 3 full $P train "${D[@]}"

# ---- ppsplit ----

S() { refuse "$1" "$2" "$ppsplit" -q "${@:3}"; }
M=$m/model.onnx
G=$top/models/gpt-ts/model.onnx
cp -r two ours
mkdir theirs && echo precious >theirs/thesis.tex
refuse "ppsplit: nothing" 2 "$ppsplit"
S "ppsplit: unknown option" 2 "$M" --splt h -o out
S "ppsplit: an option of the program" 2 "$M" --steps 10 -o out
S "ppsplit: an option of plan" 2 "$M" --batch 16 -o out
refuse "plan: an offload that is none" 2 "$ppsplit" plan "$M" --offload stahs
refuse "plan: measures nothing itself" 2 "$ppsplit" plan "$M" --measure
S "ppsplit: a block that is beyond the last" 2 "$G" --split h.7:begin --loss cross_entropy -o out
S "ppsplit: no value" 2 "$M" -o out --split
S "ppsplit: an empty value" 2 "$M" -o ""
S "ppsplit: no output" 2 "$M"
S "ppsplit: params" 2 "$M" --params move -o out
S "ppsplit: limit" 2 "$M" --limit depth=much -o out
S "ppsplit: limit of 33 bits" 2 "$M" --limit nodes=4294967296 -o out
S "ppsplit: no such model" 3 nobody.onnx -o out
S "ppsplit: a folder as model" 3 folder -o out
S "ppsplit: unknown path" 2 "$M" --split layer.1:begin --loss cross_entropy -o out
S "ppsplit: begin, with a letter missing" 2 "$M" --split layers.1:begn --loss cross_entropy -o out
S "ppsplit: no begin or end" 2 "$M" --split layers.1:middle --loss cross_entropy -o out
S "ppsplit: ambiguous path" 2 "$G" --split mlp:begin --loss cross_entropy -o out
S "ppsplit: empty first stage" 2 "$M" --split emb:begin --loss cross_entropy -o out
S "ppsplit: empty last stage" 2 "$M" --split lm:end -o out
S "ppsplit: the same cut twice" 2 "$M" --split layers.0:end --split layers.1:begin --loss cross_entropy -o out
S "ppsplit: a pattern that matches nothing" 2 "$M" --split 'layer.*:begin' --loss cross_entropy -o out
S "ppsplit: an empty point" 2 "$M" --split layers.0:end,,lm:begin --loss cross_entropy -o out
S "ppsplit: one of a list is unknown" 2 "$M" --split layers.1:begin,ml:begin --loss cross_entropy -o out
head -c 1500 "$M" >cut.onnx
for f in x.npz weights.pt old.pt x.npy two/params/stage0.safetensors cut.onnx; do
    S "ppsplit: no model: $f" 1 $f -o out
done
refuse "ppsplit: a table of what" 2 "$ppsplit" ops Add
refuse "ppsplit: a cost that is none" 2 "$ppsplit" schedule gpipe --ranks 2 --microbatches 2 --costs X=1
S "ppsplit: unknown loss" 2 "$M" --loss cross_entrpy -o out
S "ppsplit: loss of no output" 2 "$M" --loss output:los -o out
S "ppsplit: loss model is missing" 3 "$M" --loss model:nobody.onnx -o out
S "ppsplit: bind" 2 "$top/models/gpt-tsdyn/model.onnx" --bind batch=x -o out
S "ppsplit: bind, where all have a size" 2 "$M" --bind batch=4 -o out
S "ppsplit: bind of another name" 2 "$top/models/gpt-tsdyn/model.onnx" --bind batch=2 --bind rows=3 -o out
S "ppsplit: bind of a name twice" 2 "$top/models/gpt-tsdyn/model.onnx" --bind batch=2 --bind batch=3 -o out
S "ppsplit: chunk of no input" 2 "$M" --chunk pixels=0 -o out
S "ppsplit: merge of no output" 2 "$M" --merge predictions=0 -o out
S "ppsplit: unbound" 1 "$top/models/gpt-tsdyn/model.onnx" -o out
S "ppsplit: multi-use of nothing" 2 "$G" --multi-use wte.wight=replicate --split h.1:begin --loss cross_entropy -o out
S "ppsplit: freeze nothing" 2 "$G" --freeze 'h.0.ln1.weigth' --loss cross_entropy -o out
S "ppsplit: output is a file" 3 "$M" -o file
S "ppsplit: output under a file" 3 "$M" -o file/out
S "ppsplit: output folder not ours" 3 "$M" -o theirs
refuse "ppsplit: report to a full disk" 3 full "$ppsplit" ls "$M"
refuse "ppsplit: table to a full disk" 3 full "$ppsplit" ops
refuse "ppsplit: the files on a full disk" 3 small_disk "$ppsplit" -q "$G" --loss cross_entropy -o out
"$build/models/make_gpt" --dim 4 --layers 1 --heads 1 --seq 4 --vocab 40000 --rows 2 -o wide.onnx
ended() {
    local code=0 k pid
    for ((k = 0; code != 128 + $2 && k < 20; k++)); do  # it may be done before the signal comes
        rm -rf out out.??????
        "$ppsplit" -q wide.onnx --loss cross_entropy -o out >stdout 2>stderr & pid=$!
        until compgen -G 'out.??????' >/dev/null || ! kill -0 $pid 2>/dev/null; do :; done
        kill -"$1" $pid
        wait $pid
        code=$?
    done
    echo "$code $(echo out*)"
    rm -rf out
}
is "ppsplit: SIGTERM ends it and leaves nothing behind" "$(ended TERM 15 2>/dev/null)" "143 out*"
is "ppsplit: SIGHUP, too" "$(ended HUP 1 2>/dev/null)" "129 out*"
refuse "ppsplit: the weights on a full disk" 3 some_disk "$ppsplit" -q wide.onnx --loss cross_entropy -o out
refuse "ppsplit: the files on a full disk, in folders that are not there" 3 small_disk "$ppsplit" -q "$G" --loss cross_entropy -o a/b/out
refuse "ppsplit: the files on a full disk, over an earlier output" 3 small_disk "$ppsplit" -q "$G" --loss cross_entropy -o ours
ok "an earlier output stays as it was" diff -r two ours
is "a folder that is not ours stays as it was" "$(ls theirs) $(cat theirs/thesis.tex)" "thesis.tex precious"

# ---- merge ----

$P train "${D[@]}" --quiet --checkpoint good
cp -r good/step_1 flipped
printf '\x42' | dd of=flipped/rank1.safetensors bs=1 seek=$(($(stat -c %s flipped/rank1.safetensors) - 3)) conv=notrunc status=none
cp -r good/step_1 lacking && rm lacking/rank1.safetensors
cp -r good/step_1 unfinished && rm unfinished/index.json
other/pipeline train "${D[@]}" --quiet --checkpoint others
W() { refuse "$1" "$2" "$ppsplit" merge "${@:3}"; }
W "merge: nothing" 2
W "merge: no output" 2 two good
W "merge: unknown option" 2 two good -o t.onnx --force
W "merge: an operand too many" 2 two good again -o t.onnx
W "merge: no output folder of ppsplit" 3 folder good -o t.onnx
W "merge: no checkpoint" 3 two folder -o t.onnx
W "merge: a changed byte" 1 two flipped -o t.onnx
W "merge: a file is missing" 1 two lacking -o t.onnx
W "merge: no index" 3 two unfinished -o t.onnx
W "merge: cannot write" 3 two good -o file/t.onnx
refuse "merge: disk full" 3 small_disk "$ppsplit" merge two good -o t.onnx

[ -z "${UPDATE:-}" ] || cp got "$expected"
plan_done
