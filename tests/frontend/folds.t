#!/usr/bin/env bash
# What the dynamo exporter's optimizer folded, transposed, sliced, expanded, computed or joined trains as the parameter it
# is, in its shape (models/special/folded against PyTorch's numbers), or after --param and --params-from (given), or is named.
# All of it merges back: the model computes what the pipeline computed and trains on from there.
. "$(dirname "$0")/../lib.sh"
cases=$top/models/special

losses() { sed -n '/"step"/s/.*"loss": \([^,]*\),.*/\1/p' "$1"; }
same_losses() { diff <(losses "$1") <(losses "$2"); }
differ() { ! cmp -s "$1" "$2"; }
agrees() { "$compare" grads "$1/grads" "$dir/grads.safetensors" && "$compare" npy "$1/out.npy" "$dir/out.npy" && "$compare" loss "$1/log.json" "$loss_value"; }

for name in folded given equal; do
    dir=$cases/$name
    . "$dir/case.env"
    cd "$work" || exit 1
    ln -sf "$dir"/*.npy "$dir"/*.safetensors .                # what $extra names
    data=(--data "x=$dir/in.x.npy" --data "target=$dir/target.npy" --microbatches $((rows / mb)) --quiet)
    infer=(--data "x=$dir/in.x.npy" --microbatches $((rows / mb)) --quiet)
    first=''
    for multi in transmit replicate; do
        for split in $splits none; do
            out=$name.$multi.$split
            ok "$name [$split] $multi: splits and builds" split_model "$dir/model.onnx" "$out" "$split" --loss "$loss" --multi-use $multi $extra
            mkdir -p "$out.run"
            ok "$name [$split] $multi: trains" "$out/pipeline" train "${data[@]}" --steps 1 --lr 0 --dump-grads "$out.run/grads" \
                --log-json "$out.run/log.json" --output "logits=$out.run/out.npy"
            ok "$name [$split] $multi: agrees with PyTorch" agrees "$out.run"
            first=${first:-$out.run}
            ok "$name [$split] $multi: the same output bits" cmp "$first/out.npy" "$out.run/out.npy"
        done
    done
    a=$name.transmit.${splits%% *}
    ok "$name: trains on" "$a/pipeline" train "${data[@]}" --steps 3 --optimizer adamw --lr 0.01 --checkpoint $name.ck
    ok "$name: merges" "$ppsplit" merge "$a" $name.ck -o $name.onnx
    ok "$name: the merged model splits and builds" split_model $name.onnx $name.b none --loss "$loss"
    "$ppsplit" -q $name.onnx --loss "$loss" -o $name.c 2>said
    is "$name: and nothing is missing in it" "$(grep -v 'BatchNormalization .*evaluation form' said)" ""
    "$a/pipeline" infer "${infer[@]}" --params $name.ck/step_3 --output logits=a.npy
    "$a/pipeline" infer "${infer[@]}" --output logits=before.npy
    $name.b/pipeline infer "${infer[@]}" --output logits=b.npy
    is "$name: no two nodes of the merged model have one name" "$(grep -ao 'node_[A-Za-z_0-9]*' $name.onnx | sort | uniq -d)" ""
    ok "$name: it has learned" differ a.npy before.npy
    ok "$name: the merged model computes the same bits" cmp a.npy b.npy
    ok "$name: the pipeline trains on" "$a/pipeline" train "${data[@]}" --steps 3 --lr 0.01 --params $name.ck/step_3 --log-json a.json
    ok "$name: the merged model trains on" $name.b/pipeline train "${data[@]}" --steps 3 --lr 0.01 --log-json b.json
    ok "$name: with the same losses" same_losses a.json b.json
    ok "$name: with linked parameters" split_model "$dir/model.onnx" $name.linked none --loss "$loss" --params link $extra
    $name.linked/pipeline infer "${infer[@]}" --output logits=linked.npy
    ok "$name: the same bits" cmp linked.npy before.npy
done

# What is said, and what is refused.
said() { "$ppsplit" -q "$cases/$1/model.onnx" --loss mse -o said.out "${@:2}" 2>&1 | sed "s|$cases/||; /^hint/d"; rm -rf said.out; }
is "folded: what was recovered is named" "$(said folded)" "folded/model.onnx: warning: 6 parameters were recovered from what the export folded them into: token [1,1,8], step [3,8] (rows in the order they are read), gamma [8], logit_scale [], window.relative_position_bias_table [15,2], state.A_log [8]"
is "given: what cannot be recovered is named" "$(said given)" "given/model.onnx: warning: 6 parameters will not train, the export folded them away: flat, a.parametrizations.weight.original0, a.parametrizations.weight.original1, c.parametrizations.weight.original0, c.parametrizations.weight.original1, place.weight"
is "given: nothing is left to say with all of them" "$(said given --params-from weights.safetensors --param flat=flat.npy)" ""
is "packed: what was computed is not taken for a parameter" "$(said packed)" "packed/model.onnx: warning: 1 use of parameters that the export folded gets no gradient: o.bias (as sum_1)
packed/model.onnx: warning: 2 parameters will not train, the export folded them away: proto, conv.weight"
is "packed: rows that were folded are no equal of what was merged" "$("$ppsplit" -q "$cases/packed/heads.onnx" --loss mse -o said.out 2>&1 | sed -n 's/.*onnx: warning: //p')" \
    "1 parameter was recovered from what the export folded it into: step_weight [2,4,4]
1 parameter will not train, the export folded it away: step_bias"
is "packed: rows are in the order in which they are read; copies in one dim, and equal ones in several, are named" "$("$ppsplit" -q "$cases/packed/rows.onnx" --loss mse -o rows.out 2>&1 | sed -n 's/.*onnx: warning: //p')" \
    "3 parameters were recovered from what the export folded them into: pair [2,4] (rows in the order they are read), turn [3,4] (rows in the order they are read), late [2,4] (rows in the order they are read)
3 parameters will not train, the export folded them away: tile, spread, twice"
is "packed: what is near to a function of a parameter is none" "$("$ppsplit" -q "$cases/packed/probe.onnx" --loss mse -o said.out --dump import 2>/dev/null | grep -c '(i.bias)')" 0
is "packed: uses that no line names are named" "$("$ppsplit" -q "$cases/packed/penalty.onnx" --loss mse -o said.out 2>&1 | head -n 1 | sed 's/.*: //')" \
    "a.weight (as div), a.bias (as mul), a.weight (as mul), b.bias (as mul), b.weight (as mul)"

is "packed: what was computed of a parameter and has the numbers of one is named" \
    "$("$ppsplit" -q "$cases/packed/alike.onnx" --loss mse -o said.out 2>&1 | head -n 1 | sed 's/.*: //')" "shift (as mul), power (as mul_2), shift (as sub)"
. "$cases/packed/case.env"
ok "packed: that splits and builds" split_model "$cases/packed/alike.onnx" alike none --loss mse
mkdir alike.run
ok "packed: trains" alike/pipeline train --data "x=$cases/packed/in.x.npy" --data "target=$cases/packed/target.npy" --microbatches $((rows / mb)) --quiet --lr 0 --dump-grads alike.run/grads
ok "packed: a symmetric matrix's transpose and a copy are the parameters" \
    "$compare" grads alike.run/grads "$cases/packed/alike.safetensors" 1e-4

# back_again CASE MODEL [FOLDED...]: a model whose matrices come out of their operators' trains, and goes back into a model of the same bits.
back_again() {
    local name=$1 model=$2 data; shift 2
    dir=$cases/$name
    . "$dir/case.env"
    data=(--data "x=$dir/in.x.npy" --microbatches $((rows / mb)) --quiet)
    ok "$name: splits and builds" split_model "$dir/$model" $name "$splits" --loss "$loss"
    mkdir $name.run
    ok "$name: trains" $name/pipeline train "${data[@]}" --data "target=$dir/target.npy" --lr 0.1 --dump-grads $name.run/grads \
        --log-json $name.run/log.json --checkpoint $name.ck
    ok "$name: agrees with PyTorch" "$compare" grads $name.run/grads "$dir/grads.safetensors" "$@"
    ok "$name: with its loss" "$compare" loss $name.run/log.json "$loss_value"
    ok "$name: merges" "$ppsplit" merge $name $name.ck -o $name.onnx
    ok "$name: the merged model splits and builds" split_model $name.onnx $name.b none
    $name/pipeline infer "${data[@]}" --params $name.ck/step_1 --output logits=a.npy
    $name.b/pipeline infer "${data[@]}" --output logits=b.npy
    ok "$name: the merged model computes the same bits" cmp a.npy b.npy
}

# Recurrent layers' matrices, out of their operators' and back into them.
. "$cases/packed/case.env"
back_again packed model.onnx 1e-4 "$folded"

# Of which only the biases were packed: dynamo's optimizer computes what is small.
back_again partly model.onnx
is "partly: nothing is lost" "$(said partly)" "partly/model.onnx: warning: 2 parameters were recovered from what the export folded them into: weight [6], bias [6]"

# The same of TorchScript, where only the place of an operator says what its matrices are called.
back_again recurrent folded.onnx

is "recurrent: a buffer that trains as parameters do is named" "$(said recurrent | sed 's/.*: //')" base
is "recurrent: and is not where it is frozen" "$(said recurrent --freeze base)" ""

# What TorchScript's folding put beside a tied embedding trains by the constant's name, and the embedding as one; what it
# computed is named with the node that reads it.
dir=$cases/beside
. "$dir/case.env"
is "beside: what has no name is named" "$(said beside)" "beside/model.onnx: warning: 2 weights were computed of parameters that folding does not name, they train as such: onnx::MatMul_24, onnx::Sub_27
beside/model.onnx: warning: constants that folding made do not train: onnx::Exp_26 (of /Exp)"
is "beside: a bias that was computed is named" "$("$ppsplit" -q "$cases/beside/equalized.onnx" --loss mse -o said.out 2>&1 | head -n 1 | sed 's/.*: //')" "0.weight, 0.bias"
is "beside: so is one that a BatchNormalization is in" "$("$ppsplit" -q "$cases/beside/fused.onnx" --loss mse -o said.out 2>&1 | sed -n 's/.*do train: //p')" "0.weight, 0.bias"
is "beside: what has a buffer's name, but not its numbers, or stands behind one, is named" "$("$ppsplit" -q "$cases/beside/called.onnx" --loss mse -o said.out 2>&1 | head -n 1 | sed 's/.*: //')" "tril, pe, gain"
is "beside: and nothing is left to say where it is to train" "$("$ppsplit" -q "$cases/beside/called.onnx" --train tril --train pe --train gain --loss mse -o said.out 2>&1)" ""
is "beside: what was merged with a parameter is named" "$("$ppsplit" -q "$dir/merged.onnx" --loss mse -o said.out 2>&1 | head -n 1 | sed 's/.*: //')" "onnx::Add_10"
ok "beside: splits and builds" split_model "$dir/model.onnx" beside "$splits" --loss "$loss"
mkdir beside.run
ok "beside: trains" beside/pipeline train --data "x=$dir/in.x.npy" --data "target=$dir/target.npy" --microbatches $((rows / mb)) --quiet --lr 0 --checkpoint beside.ck --dump-grads beside.run/grads --log-json beside.run/log.json
ok "beside: agrees with PyTorch" "$compare" grads beside.run/grads "$dir/grads.safetensors" 1e-4 "$folded"
ok "beside: with its loss" "$compare" loss beside.run/log.json "$loss_value"
ok "beside: merges" "$ppsplit" merge beside beside.ck -o beside.onnx
is "beside: the model's own parameters leave one number to name" "$(said beside --params-from "$dir/weights.safetensors")" "beside/model.onnx: warning: constants that folding made do not train: onnx::Exp_26 (of /Exp)"
ok "beside: with them splits and builds" split_model "$dir/model.onnx" given.beside "$splits" --loss "$loss" --params-from "$dir/weights.safetensors"
mkdir given.beside.run
ok "beside: with them trains" given.beside/pipeline train --data "x=$dir/in.x.npy" --data "target=$dir/target.npy" --microbatches $((rows / mb)) --quiet --lr 0 --dump-grads given.beside.run/grads
ok "beside: with them agrees with PyTorch" "$compare" grads given.beside.run/grads "$dir/grads.safetensors" 1e-4 logit_scale

# A module called twice: its weight was transposed for each call, and is one.
dir=$cases/twice
. "$dir/case.env"
ok "twice: splits and builds" split_model "$dir/folded.onnx" twice "$splits" --loss "$loss"
mkdir twice.run
ok "twice: trains" twice/pipeline train --data "x=$dir/in.x.npy" --microbatches $((rows / mb)) --quiet --data "target=$dir/target.npy" --lr 0 --dump-grads twice.run/grads --log-json twice.run/log.json
ok "twice: agrees with PyTorch" "$compare" grads twice.run/grads "$dir/grads.safetensors"
ok "twice: with its loss" "$compare" loss twice.run/log.json "$loss_value"

is "equal: what was merged is named" "$(said equal)" "equal/model.onnx: warning: 21 parameters were recovered from what the export folded them into: mask_token [1,1,4], gate [4], fall [4,4], e.rate [4], e.in_b [2,2], d.0.a_log [4], d.0.D [4], e.out_b (equal to e.in_b), d.1.a_log (equal to d.0.a_log), d.1.D (equal to d.0.D), d.2.a_log (equal to d.0.a_log), d.2.D (equal to d.0.D), e.ln_b.weight (equal to e.ln_a.weight), e.ln_b.bias (equal to e.ln_a.bias), e.right.norm.weight (equal to e.left.norm.weight), a.mix_value (equal to a.mix_key), b.mix_value (equal to b.mix_key), inner.f.weight (equal to inner.i.weight), called.w_noise (equal to called.w_gate), behind.b_k (equal to behind.b_q), behind.k.weight (equal to behind.q.weight)
equal/model.onnx: warning: 2 BatchNormalization nodes are in evaluation form
note: BatchNormalization in evaluation form trains without its statistics; export in training mode to keep them"
refused() { "$ppsplit" -q "$cases/equal/$1.onnx" --loss mse -o refused.out 2>&1 | sed -n 's/.*error: //p'; }
is "equal: which of two modules a value is of, and nothing tells" "$(refused three)" \
    "the export merged 'layer_norm_1' with its equal, so that q_norm.weight would train with the gradients of v_norm.bias and others, too"
is "equal: one of two norms that are read through a view" "$(refused turned)" \
    "the export merged 'transpose_1' with its equal, so that first_norm.weight would train with the gradients of second_norm.bias and others, too"
is "equal: one of several that are read elsewhere, too" "$(refused peep)" "the export merged 'mul_3' with its equal, so that inner.o would train with the gradients of inner.f and others, too"
is "equal: a number, and 1 - another one" "$(refused half)" "the export merged 'mul_2' with its equal, so that inner.a would train with the gradients of inner.b, too"
is "equal: norms that what reads them does not name" "$("$ppsplit" -q "$cases/equal/fused.onnx" --loss mse -o fused.out 2>&1 | sed -n 's/.*equal nodes: //p')" \
    "down.0.weight may train with the gradients of side.1.bias and others, too
down.1.weight may train with the gradients of side.1.bias and others, too"
blend=$("$ppsplit" -q "$cases/equal/blend.onnx" --loss mse -o blend.out --dump import 2>blend.said)
is "equal: 1 - p of single numbers reads p" "$(grep -c -e 'Mul(mix, .*-1' -e 'Mul(gate, .*-1' <<<"$blend")" 2
is "equal: 1 - sigmoid(p) is named" "$(sed -n 's/.*no gradient: //p' blend.said)" "logit (as sub_1)"
is "equal: 0 of a p of 1 may be p - 1 as well, and is named" "$(sed -n 's/.*onnx: warning: .*: //p' blend.said | tail -n 1)" "one"
is "a parameter of no such name" "$(said given --param flet=flat.npy | tail -n 1)" "given/model.onnx: error: --param flet: the model declares no such parameter"
is "no file" "$(said given --param flat | tail -n 1)" "ppsplit: error: --param wants NAME=FILE.npy or NAME=FILE.safetensors, not 'flat'"
is "not in the file" "$(said given --param flat=weights.safetensors | tail -n 1)" "weights.safetensors: error: no tensor 'flat'"
is "other numbers" "$(said given --params-from weights.safetensors --param flat=in.x.npy | grep -v 'no gradient reaches')" "given/model.onnx: warning: 1 parameter will not train, the export folded it away: flat
note: given in files, but no initializer is seen to be made of these numbers: flat"
plan_done
