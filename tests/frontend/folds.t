#!/usr/bin/env bash
# What the dynamo exporter's optimizer made of parameters trains as these, in their shapes, where its record or the bits tell
# (models/special/folded against PyTorch's numbers), or after --params-from (given); or it is named.
# All of it merges back: the model computes what the pipeline computed and trains on from there.
. "$(dirname "$0")/../lib.sh"
cases=$top/models/special


for name in folded given; do
    dir=$cases/$name
    . "$dir/case.env"
    cd "$work" || exit 1
    ln -sf "$dir"/*.npy "$dir"/*.safetensors .                # what $extra names
    data=(--data "x=$dir/in.x.npy" --data "target=$dir/target.npy" --microbatches $((rows / mb)) --quiet)
    infer=(--data "x=$dir/in.x.npy" --microbatches $((rows / mb)) --quiet)
    first=''
    for run in "transmit $splits" "replicate $splits" "transmit none"; do
        multi=${run% *} split=${run#* } out=$name.${run/ /.}
        ok "$name [$split] $multi: splits and builds" split_model "$dir/model.onnx" "$out" "$split" --loss "$loss" --multi-use $multi $extra
        mkdir -p "$out.run"
        ok "$name [$split] $multi: trains" "$out/pipeline" train "${data[@]}" --steps 1 --lr 0 --dump-grads "$out.run/grads" \
            --log-json "$out.run/log.json" --output "logits=$out.run/out.npy"
        ok "$name [$split] $multi: agrees with PyTorch" agrees "$out.run" "$dir" 1e-4 "$folded"
        first=${first:-$out.run}
        ok "$name [$split] $multi: the same output bits" cmp "$first/out.npy" "$out.run/out.npy"
    done
    a=$name.transmit.${splits%% *}
    ok "$name: trains on" "$a/pipeline" train "${data[@]}" --steps 3 --optimizer adamw --lr 0.01 --checkpoint $name.ck
    ok "$name: merges" "$ppsplit" merge "$a" $name.ck -o $name.onnx
    ok "$name: the merged model splits and builds" split_model $name.onnx $name.b none --loss "$loss"
    "$ppsplit" -q $name.onnx --loss "$loss" -o $name.c 2>said
    is "$name: and nothing more is missing in it" "$(sed -n 's/.*ones or not used: //p' said)" "${folded//,/, }"
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
said() { "$ppsplit" -q "$cases/$1/${2:-model}.onnx" --loss mse -o said.out "${@:3}" 2>&1 | sed "s|$cases/||; /^hint/d"; rm -rf said.out; }
told() { said "$@" | sed -n 's/.*: //p'; }
is "folded: what was recovered is named" "$(said folded | head -n 1)" "folded/model.onnx: warning: parameters were recovered from what the export folded them into: token f32[1,1,8], step f32[3,8] (rows in the order they are read), gamma f32[8], logit_scale f32[], state.A_log f32[8]"
is "given: what cannot be recovered is named" "$(said given)" "given/model.onnx: warning: parameters will not train, folded away by the export, merged with equal ones or not used: flat, a.parametrizations.weight.original0, a.parametrizations.weight.original1, c.parametrizations.weight.original0, c.parametrizations.weight.original1, place.weight"
is "packed: a parameter of which a use is folded, and trains: refused" "$(told packed)" "o.bias (as sum_1)"
is "packed: what was computed is not taken for a parameter" "$(told packed model --freeze o.bias)" "proto, conv.weight"
is "packed: rows that were folded are no equal of what was merged" "$(told packed heads)" "step_weight f32[2,4,4]
step_bias"
is "packed: rows are in the order in which they are read; copies in one dim, and equal ones in several, are named" "$(told packed rows)" \
    "pair f32[2,4] (rows in the order they are read), turn f32[3,4] (rows in the order they are read), late f32[2,4] (rows in the order they are read)
tile, spread, twice"
is "packed: what is near to a function of a parameter is none" "$("$ppsplit" -q "$cases/packed/probe.onnx" --loss mse -o said.out --dump import 2>/dev/null | grep -c '(i.bias)')" 0
is "packed: uses that no line names are named" "$(told packed penalty)" "a.weight (as div), a.bias (as mul), a.weight (as mul), b.bias (as mul), b.weight (as mul)"
is "packed: what was computed of a parameter and has the numbers of one is named" "$(told packed alike)" "shift (as mul), power (as mul_2), shift (as sub), scale (as _to_copy_1)"
refused() { "$ppsplit" -q "$cases/packed/$1.onnx" --loss mse -o refused.out 2>&1 | sed -n 's/.*nodes, //p'; }
is "packed: one of three norms of one value" "$(refused three)" "'layer_norm_1' with this, so q_norm.weight would also train with the gradients of k_norm.weight"
is "packed: a number, and 1 - another one" "$(refused half)" "'mul_2' with this, so inner.a would also train with the gradients of inner.b"

# Recurrent layers' matrices, out of their operators' and back into them; of partly only the biases were packed.
for name in packed partly; do
    folded=''
    . "$cases/$name/case.env"
    dir=$cases/$name data=(--data "x=$cases/$name/in.x.npy" --microbatches $((rows / mb)) --quiet)
    ok "$name: splits and builds" split_model "$dir/model.onnx" $name "$splits" --loss "$loss" $extra
    mkdir $name.run
    ok "$name: trains" $name/pipeline train "${data[@]}" --data "target=$dir/target.npy" --lr 0.1 --dump-grads $name.run/grads \
        --log-json $name.run/log.json --checkpoint $name.ck
    ok "$name: agrees with PyTorch" "$compare" grads $name.run/grads "$dir/grads.safetensors" 1e-4 "$folded"
    ok "$name: with its loss" "$compare" loss $name.run/log.json "$loss_value"
    ok "$name: merges" "$ppsplit" merge $name $name.ck -o $name.onnx
    ok "$name: the merged model splits and builds" split_model $name.onnx $name.b none
    $name/pipeline infer "${data[@]}" --params $name.ck/step_1 --output logits=a.npy
    $name.b/pipeline infer "${data[@]}" --output logits=b.npy
    ok "$name: the merged model computes the same bits" cmp a.npy b.npy
done

is "recurrent: a buffer that trains as parameters do is named" "$(told recurrent)" base
is "recurrent: and is not where it is frozen" "$(said recurrent model --freeze base)" ""

# What TorchScript's folding renamed or computed trains as the file has it, and is named; the model's own parameters are found by their bits.
dir=$cases/beside
. "$dir/case.env"
is "beside: what has no name is named" "$(said beside)" "beside/model.onnx: warning: parameters that lost their names in folding and may be computed from others train as in the file: onnx::MatMul_24, onnx::Sub_27
beside/model.onnx: warning: constants that folding made do not train: onnx::Exp_26 (of /Exp)"
is "beside: so is one that a BatchNormalization is in" "$(told beside fused)" "onnx::Conv_11, onnx::Conv_12"
is "beside: what has a buffer's name, but not its numbers, or stands behind one, is named" "$(told beside called | head -n 1)" "tril, pe, gain"
is "beside: and nothing is left to say where it is to train" "$(said beside called --train tril --train pe --train gain)" ""
is "beside: what was merged with a parameter is named" "$(told beside merged)" "onnx::Add_10"
is "beside: the model's own parameters leave one number to name, and what was joined of two" "$(told beside model --params-from "$dir/weights.safetensors")" "onnx::MatMul_24
onnx::Exp_26 (of /Exp)
onnx::MatMul_24"
ok "beside: with them splits and builds" split_model "$dir/model.onnx" beside "$splits" --loss "$loss" --params-from "$dir/weights.safetensors"
mkdir beside.run
ok "beside: with them trains" beside/pipeline train --data "x=$dir/in.x.npy" --data "target=$dir/target.npy" --microbatches $((rows / mb)) --quiet --lr 0 --log-json beside.run/log.json
ok "beside: with its loss" "$compare" loss beside.run/log.json "$loss_value"

# A module called twice: its weight was transposed for each call, and is one.
dir=$cases/twice
. "$dir/case.env"
ok "twice: splits and builds" split_model "$dir/folded.onnx" twice "$splits" --loss "$loss"
mkdir twice.run
ok "twice: trains" twice/pipeline train --data "x=$dir/in.x.npy" --microbatches $((rows / mb)) --quiet --data "target=$dir/target.npy" --lr 0 --dump-grads twice.run/grads --log-json twice.run/log.json
ok "twice: agrees with PyTorch" "$compare" grads twice.run/grads "$dir/grads.safetensors"
ok "twice: with its loss" "$compare" loss twice.run/log.json "$loss_value"

is "given: other numbers" "$(said given model --params-from "$cases/beside/weights.safetensors" | sed -n 's/.*--params-from and/and/p')" "and keep the model's values: a.bias, ..."
plan_done
