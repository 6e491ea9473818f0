#!/usr/bin/env bash
# A loss or a gradient that is not finite ends a run on all ranks: exit 4, one message that says where it comes from, no update,
# no checkpoint, a log that is JSON.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
m=$top/models/mlp-ts
ok "splits and builds" split_model "$m/model.onnx" two blocks.1:begin --loss cross_entropy || exit 1
D=(--data "x=$m/in.x.npy" --data "target=$m/target.npy" --steps 6 --optimizer sgd)

# stops NAME MESSAGE COMMAND...
stops() {
    local name=$1 want=$2; shift 2
    rm -rf ck log.json
    timeout $patience "$@" --checkpoint ck --log-json log.json >stdout 2>stderr </dev/null
    is "$name: exit" $? 4
    is "$name: one message" "$(grep '^pipeline: ' stderr)" "pipeline: error: $want"
    ok "$name: no checkpoint" test ! -e ck
    ok "$name: the log is JSON" perl -MJSON::PP -ne 'decode_json($_)' log.json
}
numbers() { perl -MJSON::PP -ne '$d = decode_json($_); print join(" ", map { $$d{$_} // "null" } qw(step loss grad_norm)), "\n" if $$d{step}' log.json | tail -n 1; }
poison() { printf "$2" | dd of="$1/stage$3.safetensors" bs=1 seek=$(($(stat -c %s "$1/stage$3.safetensors") - 4)) conv=notrunc status=none; }

# The first update makes weights of 1e30: a product of them fits; the norm behind it, whose squares do not, divides by infinity and leaves
# its bias of 1e30, of which no product fits.
product="'/blocks.0/blocks.0.1/Gemm' (Gemm)"
nan="step 2: the loss is nan: in microbatch 0 a value inside of node $product, in stage 0, is the first value not to be finite"
stops "threads" "$nan" two/pipeline train "${D[@]}" --lr 1e30
is "threads: the numbers" "$(numbers)" "2 null null"
is "threads: the lines" "$(sed -n 's/ lr.*//; /^step 2/p' stdout)" "step 2/6 loss nan grad_norm nan"
stops "zero bubble" "$nan" two/pipeline train "${D[@]}" --lr 1e30 --schedule zb-h1
command -v mpirun >/dev/null && stops "processes" "$nan" mpirun -n 2 two/pipeline train "${D[@]}" --lr 1e30

# Gradients that overflow because the loss is scaled: a dynamic scale falls, and until they fit no rank steps.  Steps that were skipped
# leave nothing behind: parameters, moments and their step are those of a run without them.
perl -e 'binmode $_ for *STDIN, *STDOUT; read STDIN, $head, 10; read STDIN, $rest, unpack("x8v", $head); print $head, $rest;
    local $/; print pack "f<*", map { $_ * 64 } unpack "f<*", <STDIN>' <"$m/in.x.npy" >large.npy
L=(--data x=large.npy --data "target=$m/target.npy" --optimizer adam)
# skips NAME COMMAND...
skips() {
    local name=$1 steps; shift
    rm -rf ck plain log.json
    timeout $patience "$@" train "${L[@]}" --steps 6 --loss-scale dynamic --loss-scale-initial 170141183460469231731687303715884105728 \
        --checkpoint ck --log-json log.json >stdout 2>stderr </dev/null
    steps=$(perl -MJSON::PP -ne '$d = decode_json($_); next if $$d{config}; print $$d{loss_scale} == 2 ** (127 - ($k += $skipped)) ? $$d{skipped} ? "s" : "-" : "?"; $skipped = $$d{skipped}' log.json)
    ok "$name: steps are skipped until gradients fit: $steps" grep -qE '^s+--+$' <(echo "$steps")
    is "$name: the lines" "$(grep -c 'grad_norm [a-z]* lr .* loss_scale .* skipped tokens/s' stdout)" "$(tr -cd s <<<"$steps" | wc -c)"
    "$@" train "${L[@]}" --steps "$(tr -cd - <<<"$steps" | wc -c)" --checkpoint plain --quiet
    ok "$name: as if they had not been" diff -r -x index.json plain/step_* ck/step_6
}
skips "threads" two/pipeline
command -v mpirun >/dev/null && skips "processes" mpirun -n 2 two/pipeline

stops "after the last update" "after step 1: parameter 'inp.weight' of stage 0 is not finite: no checkpoint is written" \
    two/pipeline train "${D[@]:0:4}" --steps 1 --lr 1e39
cp -r two/params bad && poison bad '\x00\x00\x80\x7f' 1
name=$(grep -ao '"[a-z.0-9]*":' bad/stage1.safetensors | grep -v -e metadata -e format -e dtype -e shape -e offsets | tail -n 1 | tr -d '":')
inf="step 1: the loss is \(nan\|inf\): parameter '$name' of stage 1 is not finite"
two/pipeline train "${D[@]}" --lr 0 --params bad >stdout 2>stderr
is "a parameter: exit" $? 4
ok "a parameter: named" grep -q "^pipeline: error: $inf\$" stderr
two/pipeline eval "${D[@]:0:4}" --params bad >stdout 2>stderr
is "eval: exit" $? 4
ok "eval: named" grep -q "^pipeline: error: $inf\$" stderr
two/pipeline infer "${D[@]:0:2}" --params bad >stdout 2>stderr
is "infer has no loss" $? 0

"$build/tests/tools/hostile" odd . && "$ppsplit" -q 02-root.onnx --loss mse -o root && make_pipeline root || exit 1
floats() {                                              # FILE TWO_ROWS_OF_THREE
    local head="{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
    { printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "$head"; for _ in 1 2 3 4 5 6; do printf "$2"; done; } >"$1"
}
floats zeros.npy '\x00\x00\x00\x00'
floats ones.npy '\x00\x00\x80\x3f'
{ head -c $(($(stat -c %s ones.npy) - 4)) ones.npy; printf '\x00\x00\xc0\x7f'; } >nan.npy
floats tiny.npy '\x00\x00\x80\x3a'
ok "a small loss has its digits" eval 'root/pipeline eval --data x=zeros.npy --data target=tiny.npy | grep -q "^step 1/1 loss 9.536743e-07 "'
stops "data" "step 1: the loss is nan: input 'x' holds a NaN, in microbatch 0" root/pipeline train --data x=nan.npy --data target=ones.npy
stops "a gradient" "step 1: the gradient's norm is nan: in microbatch 0 that of 'w', in stage 0, is the first not to be finite" root/pipeline train --data x=zeros.npy --data target=ones.npy
is "a gradient: the numbers" "$(numbers)" "1 1 null"
# The initializer b of a model: the bytes behind its name and what tells of them
bias_of() { perl -0777 -ne '/\x42\x01b\x4a\x0c(.{12})/s; printf "%d %08x\n", (unpack "L3", $1)[0] != 0, (unpack "L3", $1)[2]' "$1"; }
# A parameter that is -inf from the beginning, as a bias that masks, stays so; one that becomes infinite ends the run.
"$ppsplit" -q 03-masked.onnx --loss mse -o masked && make_pipeline masked || exit 1
cp -r masked/params lowest && poison lowest '\x00\x00\x80\xff' 0
{ head -c 132 ones.npy; tail -c 20 zeros.npy; } >first.npy
M=(--data x=ones.npy --data target=first.npy --optimizer adam --weight-decay 0.1)
ok "-inf: trains and is checkpointed" masked/pipeline train "${M[@]}" --steps 2 --params lowest --checkpoint mck
ok "-inf: resumes" masked/pipeline train "${M[@]}" --steps 3 --resume mck --checkpoint mck
ok "-inf: merges" "$ppsplit" merge masked mck -o masked.onnx
is "-inf: is what it was, what is beside it has moved" "$(bias_of masked.onnx)" "1 ff800000"
# of rows that are large in microbatch 1 alone, under a scale that does not fall
perl -e 'binmode $_ for *STDIN, *STDOUT; read STDIN, $head, 10; read STDIN, $rest, unpack("x8v", $head); print $head, $rest;
    local $/; my @x = unpack "f<*", <STDIN>; print pack "f<*", map { $x[$_] * ($_ < @x / 2 ? 1e-3 : 64) } 0 .. $#x' <"$m/in.x.npy" >half.npy
overflows() {                                           # MICROBATCH OPTION...
    stops "a scale too large, ${*:2}" "step 1: the gradient's norm is inf: in microbatch $1 that of 'head.weight', in stage 1, is the first not to be finite" \
        two/pipeline train --data x=half.npy --data "target=$m/target.npy" --steps 1 --optimizer sgd --loss-scale 21267647932558653966460912964485513216 "${@:2}"
}
overflows 3 --microbatches 4 --schedule gpipe
overflows 3 --microbatches 4 --schedule zb-h1 --ranks 1
overflows "1 of replica 1" --dp 2 --ranks 4 --microbatches 2

# ---- --on-nonfinite skip: the update is left out, unless what is not finite stays so ----

root/pipeline train --data x=zeros.npy --data target=ones.npy --steps 2 --on-nonfinite skip --log-json log.json --checkpoint skipped >stdout 2>stderr
is "skip: exit" $? 0
is "skip: said" "$(cat stderr)" "pipeline: warning: step 1: the gradient's norm is nan: that of 'w' in stage 0 first: no update
pipeline: warning: step 2: the gradient's norm is nan: that of 'w' in stage 0 first: no update"
is "skip: no update" "$(perl -ne 'print $1 if /"updates": "(\d+)"/' skipped/step_2/index.json)" 0
is "skip: in the log" "$(grep -c '"skipped": true' log.json)" 2
two/pipeline train "${D[@]}" --on-nonfinite skip --params bad >stdout 2>stderr
is "skip: a parameter that is not finite stops" "$? $(grep -c "error: $inf" stderr)" "4 1"
# BatchNormalization: a NaN in the data reaches the running statistics, which are no cause; a skipped step leaves them as they were.
c=$top/models/resnet-ts
ok "a CNN splits and builds" split_model "$c/model.onnx" cnn layer2:begin --loss cross_entropy
{ head -c -4 "$c/in.x.npy"; printf '\x00\x00\xc0\x7f'; } >cnn.npy
C=(--data x=cnn.npy --data "target=$c/target.npy" --ranks 2 --batch 4 --microbatches 2)
stops "statistics" "step 2: the loss is nan: input 'x' holds a NaN, in microbatch 1" cnn/pipeline train "${C[@]}" --steps 2
ok "a skipped step leaves statistics as they were" eval 'cnn/pipeline train "${C[@]}" --steps 2 --on-nonfinite skip --checkpoint cnn.skip --quiet &&
    cnn/pipeline train "${C[@]}" --steps 1 --checkpoint cnn.one --quiet && diff -r -x index.json cnn.one/step_1 cnn.skip/step_2'
plan_done
