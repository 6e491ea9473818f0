#!/usr/bin/env bash
# `ppsplit annotate': a model that it has annotated splits without options into the same stages, every byte but the annotations is the
# model's, annotating again changes nothing; what cannot be said is said; --check of what it wrote, and of a file that was broken.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1

said() { "$ppsplit" annotate "$@" 2>&1; echo "exit $?"; }
# stages FOLDER: what does not depend on the model's name
stages() { (cd "$1" && sha256sum stage*.[ch] stage*.onnx params/*); }
# plain FILE: its fields, but the IR version, ModelProto.configuration, and of the graph's nodes device_configurations; a line each
plain() {
    perl -e 'undef $/;
        sub number { my ($b, $at) = @_; my ($v, $s) = (0, 0); { my $c = ord substr $$b, $$at++, 1; $v |= ($c & 127) << $s; $s += 7; redo if $c > 127 } $v }
        sub fields { my ($b) = @_; my ($at, @all) = 0;
            while ($at < length $b) { my $key = number(\$b, \$at); my $from = $at;
                my $n = ($key & 7) == 2 ? number(\$b, \$at) : ($key & 7) == 1 ? 8 : ($key & 7) == 5 ? 4 : (number(\$b, \$at), 0)[1];
                $from = $at if ($key & 7) == 2; $at += $n; push @all, [$key >> 3, substr $b, $from, $at - $from] }
            @all }
        sub show { my ($path, $b) = @_;
            for (fields($b)) { my $p = "$path.$$_[0]";
                next if $p =~ /^[.](1|26|7[.]1[.]10)$/;
                if ($p =~ /^[.]7([.]1)?$/) { print "$p\n"; show($p, $$_[1]) } else { print "$p ", unpack("H*", $$_[1]), "\n" } } }
        show("", <STDIN>)' <"$1"
}

# round NAME MODEL "OPTIONS of the cut" OPTION...
round() {
    local name=$1 model=$2 cut=$3; shift 3
    ok "$name: is annotated" "$ppsplit" annotate -q "$model" $cut "$@" -o annotated.onnx
    { "$ppsplit" -q "$model" $cut "$@" -o asked && "$ppsplit" -q annotated.onnx "$@" -o read; } 2>said
    is "$name: splits into the same stages" "$(stages read)" "$(stages asked)"
    ok "$name: is checked" "$ppsplit" annotate --check annotated.onnx
    "$ppsplit" annotate -q annotated.onnx "$@" -o again.onnx 2>said
    ok "$name: again, the same" cmp annotated.onnx again.onnx
    rm -rf asked read
}
m=$top/models
round "a module" "$m/doc-ts/model.onnx" "--split layers.1:begin" --loss cross_entropy
round "values between stages" "$m/unet-ts/model.onnx" "--stages 3" --loss mse
round "functions" "$m/gpt-dyn/model.onnx" "--split h.1:begin" --loss cross_entropy
round "nodes out of order" "$m/special/unsorted/model.onnx" "--stages 2" --loss mse
round "annotated before" "$m/special/annotated/model.onnx" "" --loss mse

# The tensor axis: --tensor, --chunks and where tensors lie are the file's
round "members" "$m/mlp-ts/model.onnx" "--stages 2 --tensor 2" --loss cross_entropy
round "chunks of members" "$m/gpt-ts/model.onnx" "--split h.1:begin --tensor 2 --chunks 4" --loss cross_entropy
is "which is said" "$("$ppsplit" annotate annotated.onnx --loss cross_entropy -o x.onnx)" "x.onnx: 191 nodes in 2 stages, tensors in 4 chunks on 2 members"
members() { "$ppsplit" -q annotated.onnx --loss cross_entropy "$@" -o x 2>said; sed -n 's/.*\.members = {\([0-9]*\), 1, 1}, \.chunks = {\([0-9]*\), 1, 1}.*/\1 \2/p' x/pipeline.c; }
is "members and chunks of the file" "$(members)" "2 4"
is "without a word" "$(cat said)" ""
is "of the command line" "$(members --tensor 4 --chunks 8)" "4 8"
is "--shard wins" "$(members --shard 'h.0.mlp.0.weight=replicate' --shard 'h.0.mlp.2.weight=replicate')" "2 4"
is "and nothing else: each takes its part of the weight" "$(cat said)" ""
# Specs of no name: of another tool, or changed.  What they say is followed, whatever it costs
perl -pe 's{ppsplit tensor=2/4}{another tool: 2/4.}g' annotated.onnx >other.onnx
{ "$ppsplit" -q annotated.onnx --loss cross_entropy -o asked && "$ppsplit" -q other.onnx --loss cross_entropy -o read; } 2>said
is "another tool's specs: the same stages" "$(stages read)" "$(stages asked)"
"$ppsplit" annotate -q other.onnx --loss cross_entropy -o again.onnx 2>>said
ok "and the same specs" cmp annotated.onnx again.onnx
is "without a word, too" "$(cat said)" ""
perl -0777 -pe 's{(h\.0/mlp/mlp\.1/Tanh_output_0(?:\x10.)+\x22.\x08)\x02}{$1\x01}s' annotated.onnx >changed.onnx
"$ppsplit" annotate -q changed.onnx --loss cross_entropy -o again.onnx 2>said
is "a spec that contradicts its node's others" "$(sed 's/ (.*//; s/.*warning: //' said)" "1 sharding spec is not followed
hint: where nobody has changed them: annotate the model with the options of this run, as --loss"
# Annotated without a loss: the specs are those of inference, training is divided as the model; of an axis that is replaced nothing is said
for axis in tensor sequence; do
    "$ppsplit" annotate -q "$m/gpt-ts/model.onnx" --split h.1:begin --$axis 2 -o bare.onnx
    { "$ppsplit" -q "$m/gpt-ts/model.onnx" --split h.1:begin --$axis 2 --loss cross_entropy -o asked && "$ppsplit" -q bare.onnx --loss cross_entropy -o read; } 2>said
    is "without a loss, --$axis: trained as the model" "$(stages read)" "$(stages asked)"
    is "without a word, --$axis" "$(cat said)" ""
done
"$ppsplit" annotate -q annotated.onnx --sequence 2 --loss cross_entropy -o x.onnx 2>said
is "another axis: nothing is said of the one before" "$(cat said)" ""

# Another axis is the configuration's name; places of both ends of a causal sequence are shards of one device
round "places of sequences" "$m/gpt-ts/model.onnx" "--split h.1:begin --sequence 2 --chunks 4" --loss cross_entropy
is "the axis of the file" "$("$ppsplit" -q annotated.onnx --loss cross_entropy -o x && grep -o '\.members = .*}, \.chunks = {[^}]*}' x/pipeline.c)" ".members = {1, 2, 1}, .chunks = {1, 4, 1}"
# Several axes: a tensor is on the devices that have its shards of both
specs() { "$ppsplit" annotate --check annotated.onnx | sed -n '1s/.*, \([0-9]*\) sharding specs/\1/p'; }
round "parts of places" "$m/gpt-ts/model.onnx" "--split h.1:begin --tensor 2 --sequence 2 --chunks tensor=4,sequence=2" --loss cross_entropy
is "members and chunks of both" "$("$ppsplit" -q annotated.onnx --loss cross_entropy -o x 2>said; grep -o '\.members = .*}, \.chunks = {[^}]*}' x/pipeline.c)" ".members = {2, 2, 1}, .chunks = {4, 2, 1}"
cp annotated.onnx parts.onnx
ok "almost as many specs as of one axis" test "$(specs)" -gt $(($("$ppsplit" annotate -q "$m/gpt-ts/model.onnx" --tensor 4 --loss cross_entropy -o annotated.onnx; specs) - 6))
# A number past all bounds is none of several axes
perl -pe 's/ppsplit tensor=2\/4 sequence=2\/2/ppsplit sequence=2\/107374182400/g' parts.onnx >bomb.onnx
is "a number of chunks past all bounds" "$(ulimit -v 4000000; "$ppsplit" -q bomb.onnx --loss cross_entropy -o x 2>&1 | sed 's/.*warning: //; s/ (.*//')" "114 sharding specs are ignored"
# One tensor member has all its chunks; a dimension in as many shards on several devices is another axis'
round "chunks of one member" "$m/encdec-ts/model.onnx" "--stages 2 --tensor 1 --chunks tensor=2 --sequence 2" --loss mse

# All but the annotations
"$ppsplit" annotate -q "$m/doc-ts/model.onnx" --split layers.1:begin -o one.onnx
is "all else is the model's, in its order" "$(plain one.onnx | sha256sum)" "$(plain "$m/doc-ts/model.onnx" | sha256sum)"
is "ten nodes among it" "$(plain one.onnx | grep -cx .7.1)" 10
is "IR version 11" "$(xxd -p -l 2 one.onnx)" 080b
is "each node has its stage" "$("$ppsplit" annotate "$m/doc-ts/model.onnx" --split layers.1:begin -o one.onnx)" "one.onnx: 10 nodes in 2 stages"
is "what is checked" "$(said --check one.onnx)" "configuration 'ppsplit', 2 devices: 10 of 10 nodes annotated, 0 sharding specs
  0 nodes checked by the rule of their operation
0 violations
exit 0"
is "the same point as an option is the same cut" "$("$ppsplit" one.onnx --split layers.1:begin -o cut | grep -c '^stage')" \
    "$("$ppsplit" one.onnx -o cut | grep -c '^stage')"

# What an annotation cannot say
"$ppsplit" annotate "$m/mlp-ts/model.onnx" --loss cross_entropy --stages 5 -o lost.onnx >/dev/null 2>said
is "a stage of the loss alone" "$(sed 's/.*\/model/model/' said)" \
    "model.onnx: warning: stage 4 has no whole node of the model (it is inside a node, or the loss): the annotations leave it out"

# Violations
perl -0777 -pe 's/.*\Kppsplit/ppsplot/s' one.onnx >other.onnx                 # the last one: the configuration
is "entries of no configuration" "$(said --check other.onnx | sed -n '1,2p;$p')" "other.onnx: node 0 '/emb/Gather' (Gather): error: the model has no configuration 'ppsplit'
hint: did you mean 'ppsplot'?
exit 1"
is "nothing to check" "$(said --check "$m/doc-ts/model.onnx")" "no annotations
exit 0"

# Usage, places
is "no output" "$(said one.onnx | head -n 1)" "ppsplit annotate: error: missing option: -o M.onnx, the file to write"
is "--check writes nothing" "$(said --check one.onnx -o x.onnx | head -n 1)" "ppsplit annotate: error: --check writes nothing, so it takes no -o x.onnx"
is "two models" "$(said one.onnx other.onnx -o x.onnx | head -n 1)" "ppsplit annotate: error: unexpected operand 'other.onnx': give one model"
is "another command's option" "$("$ppsplit" one.onnx --check -o x 2>&1 | head -n 1)" "ppsplit: error: unrecognized option '--check'; it is an option of \`ppsplit annotate'"
is "the model itself stays" "$(said one.onnx -o ./one.onnx)" "./one.onnx: error: cannot write: would overwrite what the command reads
exit 3"
echo notes >notes
is "and another file" "$(said one.onnx -o notes | head -n 1; cat notes; said one.onnx -o '' | head -n 1)" "notes: error: exists and is not an earlier file of \`ppsplit annotate'
notes
ppsplit annotate: error: option '--output' needs a value: M.onnx"
is "a folder that is not there" "$(said one.onnx -o there/x.onnx)" "there/x.onnx: error: cannot write: No such file or directory
exit 3"
plan_done
