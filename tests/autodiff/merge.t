#!/usr/bin/env bash
# Weights trained by a pipeline and merged back give a model that computes what the pipeline computes, bit for bit,
# however it is split again, and that trains on from there; parameters keep their names and shapes.  Also: parameters
# linked instead of copied, and kept outside the model's file.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1

# The same weights as a state_dict, in one file and in several: what is split from the model with them has the bytes of what was split from
# the merged model, and the first program runs with them.
state_dict() {
    local name=$1 model=$2 points=() form from stage same
    [ "$3" = markers ] || points=(--split "$3")
    shift 3
    rm -rf t && mkdir t
    ok "$name: merges into a state_dict" "$ppsplit" merge a ck -o t/one.safetensors
    ok "$name: merges into several files" "$ppsplit" merge a ck -o t/many.safetensors --shard-size 4K
    for form in one.safetensors many.safetensors.index.json; do
        from=t/$form same=
        rm -rf c
        "$ppsplit" -q "$model" "${points[@]}" --loss "$loss" "$@" --params-from "$from" -o c || same="no split"
        for stage in b/params/stage*; do cmp "$stage" "c/params/${stage##*/}" || same="another $stage"; done
        is "$name: $form: the bytes of the merged model" "$same" ""
        a/pipeline infer "${data[@]}" --microbatches "$m" --quiet --params "$from" --output "$out=t/run.npy"
        ok "$name: $form: the program takes it" cmp a.npy t/run.npy
    done
    rm -rf c
}

round_trip() {
    local name=$1 first=$2 second=$3 out=$4; shift 4
    local dir=$top/models/$name data m
    . "$dir/case.env"
    case_data "$dir"
    m=$(((rows + mb - 1) / mb))
    local train=(train "${data[@]}" --data "target=$dir/target.npy" --microbatches "$m" --quiet)
    ok "$name: splits" split_model "$dir/model.onnx" a "$first" --loss "$loss" "$@"
    ok "$name: trains" a/pipeline "${train[@]}" --steps 3 --optimizer adamw --lr 0.01 --checkpoint ck
    rm -f trained.onnx
    ok "$name: merges" "$ppsplit" merge a ck -o trained.onnx
    ok "$name: the merged model splits elsewhere" split_model trained.onnx b "$second" --loss "$loss" "$@"
    is "$name: same modules, names and shapes" "$("$ppsplit" ls trained.onnx | tail -n +2)" "$("$ppsplit" ls "$dir/model.onnx" | tail -n +2)"
    ok "$name: the pipeline infers" a/pipeline infer "${data[@]}" --microbatches "$m" --quiet --params ck/step_3 --output "$out=a.npy"
    a/pipeline infer "${data[@]}" --microbatches "$m" --quiet --output "$out=before.npy"
    ok "$name: it has learned" differ a.npy before.npy
    ok "$name: the merged model infers" b/pipeline infer "${data[@]}" --microbatches "$m" --quiet --output "$out=b.npy"
    ok "$name: the same bits" cmp a.npy b.npy
    state_dict "$name" "$dir/model.onnx" "$second" "$@"
    ok "$name: the pipeline trains on" a/pipeline "${train[@]}" --steps 3 --lr 0.01 --params ck/step_3 --log-json a.json
    ok "$name: the merged model trains on" b/pipeline "${train[@]}" --steps 3 --lr 0.01 --log-json b.json
    ok "$name: with the same losses" same_losses a.json b.json
    ok "$name: with linked parameters" split_model "$dir/model.onnx" linked "$second" --loss "$loss" "$@" --params link
    linked/pipeline infer "${data[@]}" --microbatches "$m" --quiet --output "$out=linked.npy"
    ok "$name: the same bits" cmp linked.npy before.npy
    is "$name: nothing is copied" "$(ls linked/params | grep -c safetensors)" 0
    rm -rf a b ck linked
}

round_trip gpt-ts h.1:begin h.0.mlp:begin,h.1:begin logits
round_trip resnet-ts layer2:begin layer1:begin,layer2:begin logits
round_trip mlp-dyn blocks.1:begin blocks.1:begin,blocks.2:begin logits
round_trip example-ts markers markers logits --multi-use replicate

# Files in sequence, one of them named twice: each goes back into its own.
dir=$top/models/special/sequence
ok "sequence: splits" "$ppsplit" -q "$dir/a.onnx" "$dir/b.onnx" "$dir/a.onnx" --loss mse -o a
ok "sequence: builds" make_pipeline a
ok "sequence: trains" a/pipeline train --data x="$dir/in.x.npy" --data target="$dir/target.npy" --microbatches 4 --steps 3 --lr 0.1 --quiet --checkpoint ck
is "sequence: merges" "$("$ppsplit" merge a ck -o t.onnx)" "merged 4 parameters into t.onnx, t1.onnx"
ok "sequence: the merged models split" "$ppsplit" -q t.onnx t1.onnx t.onnx --loss mse -o b
ok "sequence: builds again" make_pipeline b
a/pipeline infer --data x="$dir/in.x.npy" --microbatches 4 --params ck/step_3 --output y=a.npy --quiet
b/pipeline infer --data x="$dir/in.x.npy" --microbatches 4 --output y=b.npy --quiet
ok "sequence: the same bits" cmp a.npy b.npy
rm -rf a b ck

# A model is not written over: one that was merged before is, from the same output, until it was split itself.
spare() { "$ppsplit" merge "$1" ck -o "$2" 2>&1 | head -n 1; }
there="exists and is not an earlier merge of this output; it may be the model itself"
dir=$top/models/doc-ts
cp "$dir/model.onnx" doc.onnx
ok "spared: splits" split_model doc.onnx a none --loss cross_entropy
ok "spared: trains" a/pipeline train --data x="$dir/in.x.npy" --data target="$dir/target.npy" --quiet --checkpoint ck
is "spared: the model" "$(spare a doc.onnx)" "doc.onnx: error: $there"
is "spared: another file" "$(spare a a/stage0.onnx)" "a/stage0.onnx: error: $there"
is "an earlier merge is written over" "$(spare a m.onnx; spare a m.onnx)" "merged 7 parameters into m.onnx
merged 7 parameters into m.onnx"
ok "spared: what was merged is split" "$ppsplit" -q m.onnx --loss cross_entropy -o b
is "spared: and is a model then" "$(spare b m.onnx)" "m.onnx: error: $there"
ok "spared: the model as it was" cmp doc.onnx "$dir/model.onnx"
rm -rf a b ck

# Weights outside the model's file, copied and linked.
"$build/models/make_gpt" --vocab 256 --dim 32 --layers 2 --heads 4 --seq 16 --rows 2 --external -o gpt.onnx
"$build/models/make_tokens" --rows 8 --seq 16 --stride 16 "$top/README.md" >/dev/null
data=(--data input_ids=x.npy --quiet)
ok "external weights: split, copied" split_model gpt.onnx copied h.1:begin --loss cross_entropy
ok "external weights: split, linked" split_model gpt.onnx linked h.1:begin --loss cross_entropy --params link
for form in copied linked; do
    ok "external weights: $form: trains" $form/pipeline train "${data[@]}" --data target=target.npy --steps 2 --lr 0.1 --log-json $form.json --checkpoint $form.ck
    ok "external weights: $form: infers" $form/pipeline infer "${data[@]}" --params $form.ck/step_2 --output logits=$form.npy
    ok "external weights: $form: merges" "$ppsplit" merge $form $form.ck -o $form.onnx
done
ok "external weights: the same losses" same_losses copied.json linked.json
ok "external weights: the same bits" cmp copied.npy linked.npy
ok "external weights: the same model" cmp copied.onnx linked.onnx
ok "external weights: the merged model splits" split_model linked.onnx b none
ok "external weights: infers" b/pipeline infer "${data[@]}" --output logits=b.npy
ok "external weights: the same bits again" cmp b.npy linked.npy

# What the optimizer had goes out and comes back: a run that begins with it and the weights is the run that goes on.
train=(copied/pipeline train "${data[@]}" --data target=target.npy --optimizer adamw --lr 0.01)
ok "states: trains" "${train[@]}" --steps 2 --checkpoint states.ck
is "states: merges" "$("$ppsplit" merge copied states.ck -o w.safetensors --states s.safetensors)" "merged 29 parameters into w.safetensors, s.safetensors"
ok "states: goes on" "${train[@]}" --steps 4 --resume states.ck --log-json resumed.json
ok "states: begins with them" "${train[@]}" --steps 2 --params w.safetensors --states s.safetensors --log-json begun.json
ok "states: the same losses" diff <(losses resumed.json) <(losses begun.json)
is "states: not of another optimizer" "$("${train[@]}" --optimizer momentum --params w.safetensors --states s.safetensors 2>&1 | sed 's/.*error: //')" \
    "s.safetensors: no tensor 'momentum_buffer.wte.weight'"
is "states: not without step" "$("${train[@]}" --params w.safetensors --states w.safetensors 2>&1)" \
    "pipeline: error: --states w.safetensors: no tensor 'step' (one float32, the number of updates)"
# half.safetensors: the upper halves as BF16; upper.safetensors: the same numbers as F32
perl -0777 -e 'open F, "<", "w.safetensors"; $_ = <F>; $n = unpack "Q<"; $h = substr $_, 8, $n; @t = unpack "V*", substr $_, 8 + $n; $k = $h; $k =~ s/"F32"/"BF16"/g;
    $k =~ s/\[(\d+),(\d+)\]\}/"[" . $1 \/ 2 . "," . $2 \/ 2 . "]}"/ge; sub put { open my $f, ">", shift; print $f pack("Q<", length $_[0]), @_ }
    put("half.safetensors", $k, pack("v*", map { $_ >> 16 } @t)); put("upper.safetensors", $h, pack("V*", map { $_ & 0xffff0000 } @t))'
for f in half upper; do ok "states: $f.safetensors begins" "${train[@]}" --steps 2 --params $f.safetensors --log-json $f.json; done
is "states: bfloat16 is widened" "$(losses half.json)" "$(losses upper.json)"
ok "states: and was another" eval '! diff -q <(losses half.json) <(losses begun.json) >/dev/null'
is "a module that is not there" "$("$ppsplit" merge copied states.ck -o h.safetensors --module nothere 2>&1 | head -n 1)" \
    "copied/model.skeleton: error: module 'nothere' has no parameters"
ok "a module" "$ppsplit" merge copied states.ck -o h.safetensors --module h.1
is "a module: its names" "$(grep -ao '"[a-z0-9_.]*":{"dtype' h.safetensors | head -n 2 | tr '\n' ' ')" '"attn.c_attn.bias":{"dtype "attn.c_attn.weight":{"dtype '

# Long constants: the same bytes as an initializer that stage 0 reads and a Constant of stage 1; a Constant of int64_data,
# and a branch's, for both stages.  Each is once on the disk, outside of every file that has it; a merged model has all again.
cat >long.pl <<'END'
sub varint { my ($v, $s) = (shift, ""); while ($v > 127) { $s .= chr($v & 127 | 128); $v >>= 7 } $s . chr $v }
sub i { varint($_[0] << 3) . varint($_[1]) }
sub b { varint($_[0] << 3 | 2) . varint(length $_[1]) . $_[1] }
sub tensor { my ($name, $type, $field, $bytes, @d) = @_; join("", map { i(1, $_) } @d) . i(2, $type) . b(8, $name) . b($field, $bytes) }
sub node { my ($op, $out, $in, @attr) = @_; b(1, join("", map { b(1, $_) } @$in) . b(2, $out) . b(3, $out) . b(4, $op) . join("", map { b(5, $_) } @attr)) }
sub value { my ($name, $type, @d) = @_; b(1, $name) . b(2, b(1, i(1, $type) . b(2, join("", map { b(1, i(1, $_)) } @d)))) }
sub held { my ($out, @tensor) = @_; node("Constant", $out, [], b(1, "value") . b(5, tensor("", @tensor, $n, 8)) . i(20, 4)) }
sub branch { b(2, "g") . held("t$_[0]", 7, @_[1, 2]) . node("Gather", "i$_[0]", ["t$_[0]", "ids"]) . node("Cast", "b$_[0]", ["i$_[0]"], b(1, "to") . i(3, 1) . i(20, 2)) . b(12, value("b$_[0]", 1, 4, 8)) }
sub cast { node("Gather", "$_[0]i", [$_[1], "ids"]) . node("Cast", $_[0], ["$_[0]i"], b(1, "to") . i(3, 1) . i(20, 2)) }
sub chosen { node("If", $_[0], ["yes"], b(1, "then_branch") . b(6, branch("$_[0]y", 9, pack("q<*", map { $_ % 5 } 1 .. $n * 8))) . i(20, 5), b(1, "else_branch") . b(6, branch("$_[0]n", 7, $typed)) . i(20, 5)) }
$n = $ARGV[0];
my $long = pack("q<*", map { $_ % 7 } 1 .. $n * 8);
$typed = join "", map { varint(18446744073709551615 - $_ % 3) } 1 .. $n * 8;
my @weight = map { pack("f<*", map { sin $_ } $_ .. $_ + 63) } 1, 2;
print i(1, 8), b(8, i(2, 18)), b(7, cast("f", "long") . held("typed", 7, 7, $typed) .
    node("Add", "x1", ["x", "f"]) . cast("g", "typed") . node("Add", "x2", ["x1", "g"]) . chosen("c") . node("Add", "x3", ["x2", "c"]) .
    node("MatMul", "h", ["x3", "fc1.weight"]) . held("again", 7, 9, $long) .
    cast("f2", "again") . node("Add", "x4", ["h", "f2"]) . cast("g2", "typed") . node("Add", "x5", ["x4", "g2"]) . chosen("d") . node("Add", "x6", ["x5", "d"]) .
    node("MatMul", "y", ["x6", "fc2.weight"]) . b(2, "g") . b(5, tensor("long", 7, 9, $long, $n, 8)) . b(5, tensor("yes", 9, 9, "\1")) .
    b(5, tensor("fc1.weight", 1, 9, $weight[0], 8, 8)) . b(5, tensor("fc2.weight", 1, 9, $weight[1], 8, 8)) .
    b(11, value("x", 1, 4, 8)) . b(11, value("ids", 7, 4)) . b(12, value("y", 1, 4, 8)));
END
long_bytes() { perl -0777 -ne 'BEGIN { @w = (pack("q<*", map { $_ % 7 } 1 .. 160000), pack("q<*", map { -1 - $_ % 3 } 1 .. 160000), pack("q<*", map { $_ % 5 } 1 .. 160000)) }
    for my $i (0 .. 2) {                                   # a search for the whole of what repeats itself would take a minute
        for (my $at = 0; ($at = index $_, substr($w[$i], 0, 64), $at) >= 0; ) {
            my $found = substr($_, $at, length $w[$i]) eq $w[$i];
            $n[$i] += $found;
            $at += $found ? length $w[$i] : 1;
        }
    }
    END { print join " ", map { $_ + 0 } @n[0 .. 2] }' "$@"; }
npy() { perl -e '$h = sprintf "%-117s\n", "{\x27descr\x27: \x27<$ARGV[0]\x27, \x27fortran_order\x27: False, \x27shape\x27: ($ARGV[1]), }"; print "\x93NUMPY\1\0", pack("v", length $h), $h, pack("$ARGV[2]<*", 1 .. $ARGV[3])' "$@"; }
perl long.pl 20000 >long.onnx && npy f4 "4, 8" f 32 >lx.npy && npy i8 "4," q 4 >li.npy
long=(h --loss mse)
long_data=(--data x=lx.npy --data ids=li.npy --quiet)
ok "long constants: splits" split_model long.onnx long "${long[@]}"
is "long constants: in no file that refers to them" "$(find long -name '*.onnx' -size +16k -o -name '*.skeleton' -size +16k -o -name '*.safetensors' -size +16k)" ""
is "long constants: stages and model refer to one file" "$(cd long && grep -l params/constants.bin *.onnx *.skeleton | LC_ALL=C sort | tr '\n' ' ')" \
    "model.skeleton stage0.onnx stage1.onnx "
is "long constants: which has them once" "$(long_bytes long/params/constants.bin) $(wc -c <long/params/constants.bin)" "1 1 1 3844096"
ok "long constants: trains" long/pipeline train "${long_data[@]}" --data target=lx.npy --steps 1 --lr 1e-9 --checkpoint long.ck
is "long constants: merges" "$("$ppsplit" merge long long.ck -o long.merged.onnx)" "merged 2 parameters into long.merged.onnx"
is "long constants: the merged model has all" "$(long_bytes long.merged.onnx)" "2 3 2"
ok "long constants: it splits" split_model long.merged.onnx b "${long[@]}"
long/pipeline infer "${long_data[@]}" --params long.ck/step_1 --output y=a.npy
b/pipeline infer "${long_data[@]}" --output y=b.npy
ok "long constants: the same bits" cmp a.npy b.npy
ok "long constants: and into the same file" cmp long/params/constants.bin b/params/constants.bin
ok "long constants: with linked parameters" "$ppsplit" -q long.onnx --split "${long[@]}" --params link -o linked
ok "long constants: into the same file too" cmp long/params/constants.bin linked/params/constants.bin
is "long constants: and nowhere else" "$(find linked/params -size +16k -name 'stage*')" ""
mv long moved
long_train=(moved/pipeline train "${long_data[@]}" --data target=lx.npy --lr 1e-9 --optimizer adamw)
ok "long constants: moved, trains" "${long_train[@]}" --steps 2 --checkpoint whole.ck
"${long_train[@]}" --steps 1 --checkpoint begun.ck
ok "long constants: goes on" "${long_train[@]}" --steps 2 --resume begun.ck --checkpoint begun.ck
ok "long constants: to the same bits" "$compare" grads begun.ck/step_2 whole.ck/step_2 0
cp moved/params/constants.bin whole.bin
constants() { "${long_train[@]}" --steps 1 --ranks 2 2>&1; echo "exit $?"; }
truncate -s -4100 moved/params/constants.bin
is "long constants: cut short, they are refused" "$(constants)" "pipeline: error: $work/moved/params/constants.bin, which holds 'constant 2': cut short
exit 3"
rm moved/params/constants.bin
is "long constants: missing" "$(constants)" "pipeline: error: $work/moved/params/constants.bin, which holds 'constant 0': No such file or directory
exit 3"
(head -c 9 whole.bin; printf x; tail -c +11 whole.bin) >moved/params/constants.bin
is "long constants: damaged, they are refused" "$(constants)" "pipeline: error: $work/moved/params/constants.bin: damaged: 'constant 0' is not what ppsplit wrote
exit 1"
is "long constants: and by merge" "$("$ppsplit" merge moved long.ck -o full.onnx 2>&1)" \
    "moved/params/constants.bin: error: damaged: this is not the file that ppsplit wrote"
perl long.pl 200 >short.onnx
ok "shorter constants: splits" "$ppsplit" -q short.onnx --split "${long[@]}" -o b
is "shorter constants: the program's are apart, the ONNX files have theirs inside" "$(wc -c <b/params/constants.bin) $(cd b && grep -l params/constants.bin *.onnx *.skeleton)" "45568 "
perl long.pl 8 >short.onnx
ok "short constants: splits" "$ppsplit" -q short.onnx --split "${long[@]}" -o b
is "short constants: stand in the source" "$(ls b/params | grep constants)" ""

# What bodies hold goes back into them: initializers and a Constant of a Loop, and of the branches of an If in it.
sed '/^my /,$d' long.pl >body.pl
cat >>body.pl <<'END'
sub attr { my ($name, $field, $body, $type) = @_; b(1, $name) . b($field, $body) . i(20, $type) }
sub numbers { my ($k, $n) = @_; pack("f<*", map { 0.3 * sin($k * $_) } 1 .. $n) }
sub constant { my ($out, $type, @tensor) = @_; node("Constant", $out, [], attr("value", 5, tensor("", $type, 9, @tensor), 4)) }
sub arm { my ($k, $out) = @_; node("MatMul", $out, ["s", "own"]) . b(2, $out) . b(5, tensor("own", 1, 9, numbers($k, 64), 8, 8)) . b(12, value($out, 1, 4, 8)) }
my $body = node("Identity", "on", ["c"]) . constant("one", 7, pack("q<", 1)) . constant("shift", 1, numbers(3, 8), 8) . node("Less", "first", ["i", "one"]) .
    node("If", "m", ["first"], attr("then_branch", 6, arm(4, "t"), 5), attr("else_branch", 6, arm(5, "e"), 5)) .
    node("Add", "n", ["m", "shift"]) . node("MatMul", "o", ["n", "inner"]) . node("Tanh", "s2", ["o"]) . b(2, "body") .
    b(5, tensor("inner", 1, 9, numbers(6, 64), 8, 8)) . b(11, value("i", 7)) . b(11, value("c", 9)) . b(11, value("s", 1, 4, 8)) . b(12, value("on", 9)) . b(12, value("s2", 1, 4, 8));
print i(1, 8), b(8, i(2, 18)), b(7, node("MatMul", "h", ["x", "w"]) . node("Loop", "y", ["trips", "go", "h"], attr("body", 6, $body, 5)) . b(2, "g") .
    b(5, tensor("w", 1, 9, numbers(2, 64), 8, 8)) . b(5, tensor("trips", 7, 9, pack("q<", 3))) . b(5, tensor("go", 9, 9, "\1")) . b(11, value("x", 1, 4, 8)) . b(12, value("y", 1, 4, 8)));
END
perl body.pl >body.onnx
ok "bodies: splits" split_model body.onnx a none --loss mse
ok "bodies: trains" a/pipeline train --data x=lx.npy --data target=lx.npy --steps 2 --lr 0.5 --quiet --checkpoint body.ck
is "bodies: merges" "$("$ppsplit" merge a body.ck -o body.merged.onnx)" "merged 5 parameters into body.merged.onnx"
is "bodies: the same modules, names and shapes" "$("$ppsplit" ls --parameters body.merged.onnx)" "$("$ppsplit" ls --parameters body.onnx)"
is "bodies: nothing beside what there was" "$(wc -c <body.merged.onnx | awk -v n="$(wc -c <body.onnx)" '{ print $1 - n < 100 }')" 1
ok "bodies: the merged model splits" split_model body.merged.onnx b none --loss mse
a/pipeline infer --data x=lx.npy --quiet --output y=before.npy
a/pipeline infer --data x=lx.npy --quiet --params body.ck/step_2 --output y=a.npy
b/pipeline infer --data x=lx.npy --quiet --output y=b.npy
ok "bodies: it has learned" differ a.npy before.npy
ok "bodies: the same bits" cmp a.npy b.npy
rm -rf a b

# A disk that is full: which file, and why; nothing stays behind.
(ulimit -f 8; "$ppsplit" merge copied copied.ck -o full.onnx >said 2>&1)
is "a full disk: refused as input and output are" "$?" 3
is "a full disk: says so" "$(cat said)" "full.onnx: error: cannot write: File too large"
is "a full disk: nothing is left" "$(ls | grep full)" ""
cp -r copied damaged && truncate -s -7 damaged/model.skeleton
is "a damaged skeleton is refused" "$("$ppsplit" merge damaged copied.ck -o full.onnx 2>&1)" \
    "damaged/model.skeleton: error: damaged: this is not the file that ppsplit wrote"

# 800 GB of weights, of which nothing is read: a file that is a hole.  In seconds of the processor, however busy the machine is.
within() { (ulimit -t "$1" && "${@:2}"); }
"$build/models/make_gpt" --vocab 256 --dim 25600 --layers 26 --heads 100 --seq 8 --rows 2 --sparse -o big.onnx 2>/dev/null ||
    { skip "800 GB of external weights" "no such sparse file here"; plan_done; exit; }
ok "800 GB of external weights: split and linked" within "${SANITIZED:+6}5" "$ppsplit" -q big.onnx --split h.13:begin --loss cross_entropy --params link -o big
ok "800 GB of external weights: less than 8 MB is written" [ "$(du -sk big | cut -f1)" -lt 8192 ]
plan_done
