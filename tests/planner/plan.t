#!/usr/bin/env bash
# ppsplit plan: the best of all ways where all can be looked at; what it says of memory is what the program plans; its commands run;
# files of machines that are none are refused, with their line.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
model=$top/models/gpt-ts
plan() { "$ppsplit" plan "$model/model.onnx" --loss cross_entropy --optimizer adamw "$@" 2>&1; }
small() { "$ppsplit" plan "$top/models/mlp-ts/model.onnx" --loss cross_entropy --optimizer adamw "$@" 2>&1; }
# Microseconds and schedule of the first one
first() { awk '$1 == 1 && / x / { t = $2 * ($3 == "us" ? 1 : $3 == "ms" ? 1000 : 1000000); print t }'; }
schedules=$("$ppsplit" schedule --help | awk '/^  [a-z0-9-]+  +[a-z0-9]/ { print $1 }' | grep -vx -e auto -e forward-only -e ppsplit)

# ---- all there is, one by one ----

# all PLAN STAGES [OPTION...]: the shortest step of every microbatches and schedule
all() {
    local m s t best=
    for m in 1 2 4; do
        for s in $schedules; do
            t=$("$1" --ranks 2 --dp 1 --batch 4 --stages "$2" --microbatches $m --schedule "$s" "${@:3}" | first)
            [ -z "$t" ] || best=$(printf '%s\n' $best "$t" | sort -g | head -n 1)
        done
    done
    echo "$best"
}
is "no schedule and number of microbatches has a shorter step" "$(small --ranks 2 --dp 1 --batch 4 --stages 4 | first)" "$(all small 4)"
is "nor one in less memory" "$(plan --ranks 2 --dp 1 --batch 4 --stages 4 --memory 150k --recompute always | first)" \
    "$(all plan 4 --memory 150k --recompute always)"
each=$(for s in 2 4 6 8; do plan --ranks 2 --dp 1 --batch 4 --stages $s | first; done | sort -g | head -n 1)
is "no number of stages has" "$(plan --ranks 2 --dp 1 --batch 4 | first)" "$each"
each=$(for d in 1 2 4; do plan --ranks 4 --dp $d --batch 8 | first; done | sort -g | head -n 1)
is "nor of replicas" "$(plan --ranks 4 --batch 8 | first)" "$each"

# ---- memory ----

# run_plan NAME OPTION...: its commands, with threads for processes and one step; $run: the last of them; $planned, $taken: bytes of the ranks
run_plan() {
    local name=$1 said make; shift
    planned='' taken='of no run'                         # nor of the one before
    said=$(plan "$@" -o "$name") || return
    planned=$(sed -n 's/^bytes of each rank in plan 1: //p' <<<"$said")
    make=$(sed -n 's/^ppsplit //p' <<<"$said")
    run=$(sed -n 's/^\(.*\)\/run -n \([0-9]*\) \(.*\) --steps 100$/\1\/pipeline \3 --ranks \2 --steps 1/p' <<<"$said")
    eval "'$ppsplit' -q $make" && make_pipeline "$name" || return
    eval "$run" >log 2>&1 || { cat log; return 1; }
    taken=$(sed -n 's/^rank [0-9]* memory: \([0-9]*\) .*/\1/p' log | xargs)
}
cp "$model/in.input_ids.npy" input_ids.npy              # 8 rows
cp "$model/target.npy" target.npy

run_plan cut --ranks 2 --dp 1 --batch 8 --stages 2 --microbatches 4 --schedule 1f1b
ok "the commands run" [ $? = 0 ]
is "and ranks take what the plan says" "$taken" "$planned"
run_plan cut --ranks 4 --dp 2 --batch 8 --stages 2 --microbatches 4 --recompute always --memory 400k --csv cut.csv
ok "also where all that is asked of a run is asked" [ $? = 0 ]
is "to the byte, of the replica that takes most" "$(tr ' ' '\n' <<<"$taken" | awk '$1 > m { m = $1 } END { print m }')" \
    "$(tr ' ' '\n' <<<"$planned" | awk '$1 > m { m = $1 } END { print m }')"

run_plan cut --ranks 4 --dp 1 --batch 8 --tensor 2 --keep-parts --stages 2 --microbatches 4 --schedule 1f1b
is "of two members of each stage" "$(tr ' ' '\n' <<<"$taken" | uniq | xargs)" "$planned"
ok "with the options that divide it" grep -q -e " --tensor 2 --keep-parts --rows 2 " <(plan --ranks 4 --dp 1 --batch 8 --tensor 2 --keep-parts --stages 2 --microbatches 4 --schedule 1f1b)
each=$(for t in 1 2 4; do plan --ranks 4 --batch 8 --tensor $t | first; done | sort -g | head -n 1)
is "no number of members has a shorter step" "$(plan --ranks 4 --batch 8 | first)" "$each"
# Along all axes: a row of long sequences, and of experts, on four ranks
for kind in --seq=1024 '--seq=512 --experts=4'; do
    "$build/models/make_gpt" --vocab 64 --dim 32 --layers 1 --heads 4 --rows 1 ${kind//=/ } -o mesh.onnx
    mesh() { "$ppsplit" plan mesh.onnx --loss cross_entropy --optimizer adam --ranks 4 --batch 1 "$@" 2>&1; }
    each=$(for m in "--tensor 1" "--tensor 2" "--tensor 4" "--sequence 2" "--sequence 4" "--tensor 2 --sequence 2" "--expert 2" "--expert 4" "--tensor 2 --expert 2" "--sequence 2 --expert 2"; do mesh $m | first; done | sort -g | head -n 1)
    is "$kind: no mesh of members has a shorter step" "$(mesh | first)" "$each"
done
ok "members along two axes" grep -q "^1 .* --tensor 2 --expert 2" <(mesh)
of() { plan --ranks 4 --batch 8 --memory 1M "$@" | awk '/ x / && $1 ~ /^[0-9]/ { print $15, $12 / $11, $9, $16, /zero 1/ }' | sort -u; }
is "what is asked for of microbatches, stages and replicas" "$(of --microbatch-rows 2 --rank-stages 2 --zero 1 --dp 2 --schedule 1f1b --recompute always --tensor 1)" "2 2 2 1f1b 1"
mlp() { "$ppsplit" plan "$top/models/mlp-ts/model.onnx" --loss mse --batch 16 "$@" 2>&1; }
of_rank() { mlp "$@" | awk '/ x / && $1 ~ /^[0-9]/ { print $12 / $11 }' | sort -u | xargs; }
is "of stages and those of each rank, both" "$(of_rank --ranks 2 --stages 4 --rank-stages 2) $(of_rank --ranks 2 --stages 4 --rank-stages 4)" "2 4"
is "or there is no way" "$(mlp --ranks 2 --stages 4 --rank-stages 3 | sed -n 's/^ppsplit: error: //p')" "no way to train 16 rows a step on 2 ranks fits these options"
is "more stages of each rank than are looked at otherwise" "$(of_rank --ranks 2 --dp 1 --tensor 1 --rank-stages 5) $(of_rank --ranks 1 --rank-stages 2)" "5 2"
ok "pipelines that idle are looked at where there are no others" grep -q "^1 " <(plan --ranks 16 --batch 1 --tensor 1)
is "members divide ranks" "$(plan --ranks 4 --batch 8 --tensor 3 | head -n 1)" "ppsplit: error: 3 members of each stage do not divide 4 ranks"

# Shares differ by a few blocks: what is planned is the most that any replica takes, of every stage.
for d in 3 4 8; do
    run_plan cut --ranks $d --dp $d --batch $((d == 3 ? 6 : 8)) --stages 1 --microbatches $((d == 3 ? 2 : 1)) --schedule gpipe
    is "of $d replicas" "$(tr ' ' '\n' <<<"$taken" | sort -n | tail -n 1)" "$planned"
done

run_plan cut --ranks 2 --dp 1 --batch 8 --stages 2 --microbatches 8 --schedule gpipe --recompute never --memory 180k --rates offload=1e9
ok "stashes wait in a store where the machine says how fast it is" [ $? = 0 ]
ok "and are needed to fit" eval 'grep -q " --offload stash " <<<"$run" && ! "$ppsplit" plan "$model/model.onnx" --loss cross_entropy --optimizer adamw --ranks 2 --dp 1 --batch 8 --stages 2 \
    --microbatches 8 --schedule gpipe --recompute never --memory 180k'
is "to the byte" "$taken" "$planned"
run_plan cut --ranks 2 --dp 1 --batch 8 --stages 2 --microbatches 8 --schedule gpipe --recompute except-last
is "all but the last microbatch again" "$taken" "$planned"

# Convolutions take scratch when a run opens them, for each thread, and for both halves of a compound.
gpt=$model model=$top/models/unet-ts
cp "$model/in.x.npy" x.npy
cp "$model/target.npy" target.npy
run_plan conv --loss mse --ranks 2 --dp 1 --batch 8 --stages 4 --microbatches 4 --schedule dualpipev --threads 2
ok "convolutions' scratch is counted" grep -q "library [0-9]" log
is "to the byte" "$taken" "${planned%% with*}"
ok "for so many threads" grep -q " with the scratch of convolutions for 2 threads each$" <<<"$planned"
is "what is found in a model is said once" "$("$ppsplit" plan "$top/models/vit-dyn/model.onnx" --loss mse --ranks 2 --batch 8 2>&1 | grep -c 'warning: ')" 1
model=$gpt

said=$(plan --ranks 2 --dp 1 --batch 4 --memory 80k)
ok "nothing fits" grep -q "no plan fits into 81920 bytes per rank" <<<"$said"
least=$(sed -n 's/^note: the smallest takes \([0-9]*\) bytes.*/\1/p' <<<"$said")
ok "and what is said to be the least does" grep -q "^1 " <(plan --ranks 2 --dp 1 --batch 4 --memory $((least + least / 20)))
ok "by which ranks are within it" awk -v most=$((least + least / 20)) '/^bytes of each rank/ { for (i = 8; i <= NF; i++) if ($i > most) exit 1; seen = 1 } END { exit !seen }' \
    <(plan --ranks 2 --dp 1 --batch 4 --memory $((least + least / 20)))

ok "with what takes it" grep -q "^note: of them parameters [0-9.]* KiB, gradients .*, optimizer .*, activations .*, work of an action " <<<"$said"
# Of 4 layers each in a stage of its own on a rank of its own no schedule has less than attention's scores of 1024 x 1024 in 4 heads: 16 MiB.
"$build/models/make_gpt" --rows 1 --seq 1024 --vocab 64 --dim 64 --layers 4 --heads 4 --external --sparse -o scores.onnx
scores() { "$ppsplit" plan scores.onnx --loss cross_entropy --ranks 4 --dp 1 --tensor 1 --batch 4 --optimizer adam "$@" 2>&1; }
ok "no schedule is made where none can fit" grep -q "no plan fits into 16777216 bytes" <(scores --memory 16M)
cp "$model/model.onnx" .
tiny() { "$ppsplit" plan model.onnx --loss cross_entropy --ranks 1 --stages 1 --microbatches 1 --batch 8 "$@" 2>&1; }
is "--csv of what is read, and where there is no folder: before the search" "$(tiny --csv ./model.onnx; tiny --csv none/x.csv)" "./model.onnx: error: --csv: would overwrite what the command reads
none/x.csv: error: --csv: No such file or directory"
ok "and where nothing is written it is said" grep -q "^ppsplit: note: --csv x.csv: nothing is written: " <(tiny --schedule 1f1b --csv x.csv)
ways() { scores --memory 50M "$@" | sed -n '1s/; by .*//p'; }
is "with --csv the same ways are looked at" "$(ways --csv made.csv)" "$(ways)"
is "each once" "$(plan --ranks 4 --batch 16 --memory 200k | sed -n 's/^[0-9]* *//;/ x /p' | sort | uniq -d)" ""
ok "larger ones are said" grep -q "^[1-9][0-9]* ways have more than 32768 microbatches x stages and were not looked at: --schedule NAME" <(plan --ranks 16 --dp 1 --tensor 1 --stages 8 --ranks 8 --batch 16384)
lone() { "$ppsplit" plan "$top/models/special/valid/root.onnx" --loss output:loss --ranks 2 --batch 16 "$@" 2>&1; }
is "a loss of a single microbatch has no others" "$(lone | awk '/ x / && $1 ~ /^[0-9]+$/' | grep -vc ' 1 x 16 ')" 0
ok "and why is said" grep -q "^several microbatches or replicas are not offered, a run refuses them: .*(Sqrt)" <(lone)
ok "also where nothing else is asked for" grep -q "^note: several microbatches or replicas are not offered" <(lone --dp 2)
ok "a mean of theirs has" grep -q " 2 x 8 " <(lone --merge loss=mean)

# The fastest cut does not fit, another one does.
"$build/models/make_gpt" --rows 1 --seq 16 --vocab 2048 --dim 64 --layers 4 --heads 4 -o tied.onnx
tied() { "$ppsplit" plan tied.onnx --loss cross_entropy --ranks 2 --dp 1 --stages 2 --batch 8 --optimizer adam --microbatches 8 --schedule 1f1b --recompute never "$@" 2>&1; }
most() { sed -n 's/^bytes of each rank in plan 1: //p' | tr ' ' '\n' | sort -n | tail -n 1; }
fast=$(tied)
limit=$(($(most <<<"$fast") * 9 / 10))
less=$(tied --memory $limit)
ok "with less memory the cut is another one" [ "$(grep -o -e '--split [^ ]*' <<<"$less")" != "$(grep -o -e '--split [^ ]*' <<<"$fast")" ]
ok "that fits" [ "$(most <<<"$less")" -le "$limit" ]
limit=$(($(most <<<"$fast") * 7 / 10))
least=$(tied --memory $limit | sed -n 's/^note: the smallest takes \([0-9]*\) bytes.*/\1/p')
ok "the least is of such a cut, too" [ "$least" -lt "$(($(most <<<"$fast") * 95 / 100))" ]
ok "and fits" grep -q "^1 " <(tied --memory $((least + least / 20)))

# ---- machines ----

cut/pipeline measure --ranks 2 --offload-dir . >measured 2>&1 || true
ok "a store is measured" grep -q "^offload = [0-9]" measured
ok "and what a loop takes to begin" grep -q "^steps = [0-9]" measured
ok "and what is left for later" grep -q "^left = [1-9]" measured
machine() { printf "$1" >machine; plan --batch 4 --machine machine; }
ok "with how many threads" grep -q "^threads = [1-9]" measured
ok "a machine that was measured" grep -q "on 2 ranks, .* a rank" <(plan --batch 4 --machine measured)
ok "one that is written" grep -q "on 2 ranks, .* 16 GiB a rank" <(machine 'ranks=2 # two\n\n  memory = 16G\nproducts = 90e9\nlatency=1e-5\n')
ok "options win" grep -q "on 1 ranks, .* 1 GiB a rank" <(printf 'ranks=2\nmemory=1k\n' >machine; plan --batch 4 --machine machine --ranks 1 --memory 1G)
refused() { is "$1" "$(machine "$2" | head -n 1)" "machine: error: line $3"; }
refused "an unknown name" 'ranks = 2\nproduct = 1e9\n' "2: unknown name 'product'"
ok "with what is near" grep -q "did you mean 'products'" <(machine 'product = 1e9\n')
refused "a number that is none" 'products = fast\n' "1: 'products' wants a number above 0, not 'fast'"
refused "nothing" 'link = 0\n' "1: 'link' wants a number above 0, not '0'"
refused "half a processor" 'ranks = 1.5\n' "1: 'ranks' wants a whole number up to 65536"
refused "memory that is none" 'ranks=2\nmemory = lots\n' "2: 'memory' wants a number of bytes, with K, M, G or T, not 'lots'"
refused "a name that is said twice" 'link=1e9\nlink=2e9\n' "2: 'link' is repeated; it is in line 1 already"
refused "or in other words" 'messages=1e4\nlatency=1e-4\n' "2: 'latency' is repeated; it is in line 1 already"
refused "no number" 'ranks\n' "1: expected NAME = NUMBER, not 'ranks'"
is "no file" "$(plan --batch 4 --machine nowhere | head -n 1)" "nowhere: error: --machine: no such file"
refused "a card that is none" 'ranks = 1\ncard = h10\n' "2: unknown card 'h10'; did you mean 'h100'?"

# Two levels of links: a pipeline across nodes sends as if there were the slower one only, one within a node as without it; of replicas some are near.
links() { printf "$1" >machine; plan --batch 8 --machine machine "${@:2}" | first; }
P=(--ranks 2 --dp 1 --stages 2 --split h.1:begin --microbatches 4 --schedule 1f1b) D=(--stages 1 --microbatches 1 --schedule gpipe)
is "across nodes" "$(links 'link=1e9\nnode=1\nnetwork=1e6\nnetwork-latency=1e-3\n' "${P[@]}")" "$(links 'link=1e6\nlatency=1e-3\n' "${P[@]}")"
is "within a node" "$(links 'link=1e9\nnode=2\nnetwork=1e6\n' "${P[@]}")" "$(links 'link=1e9\n' "${P[@]}")"
is "replicas in nodes of their own" "$(links 'link=1e9\nlatency=1e-6\nnode=1\nnetwork=1e6\n' "${D[@]}" --ranks 2 --dp 2)" "$(links 'link=1e6\nlatency=1e-6\n' "${D[@]}" --ranks 2 --dp 2)"
# 1 of 3 peers is near: bytes take 2/3 of the time that they take where all are far
ok "four in two nodes" awk -v a="$(links 'link=1e9\nlatency=1e-9\nnode=2\nnetwork=1e5\n' "${D[@]}" --ranks 4 --dp 4)" -v b="$(links 'link=1e5\nlatency=1e-9\n' "${D[@]}" --ranks 4 --dp 4)" \
    'BEGIN { exit !(a > 0.66 * b && a < 0.68 * b) }'
is "half of it" "$(machine 'ranks=2\nnode=2\n' | head -n 1)" "machine: error: 'node' (ranks that one link joins) and 'network' (bytes/s to the others) must be given together"
for m in "$top"/machines/*; do
    ok "${m##*/}" grep -q "on 8 ranks, .* by ${m##*-} costs" <(plan --batch 16 --dp 2 --schedule 1f1b --stages 4 --microbatches 4 --machine "$m")
done

# ---- a machine with GPUs: the seconds of its actions are those of `ppsplit forecast', and 10 us for each ----

printf 'ranks = 1\nlink = 1e6\ncard = h100\n' >gpu
"$build/models/make_gpt" --rows 4 --seq 128 --vocab 1000 --dim 256 --layers 4 --heads 4 -o card.onnx
on_card() { "$ppsplit" plan card.onnx --loss cross_entropy --optimizer adamw --machine gpu --dp 1 --schedule gpipe --recompute never "$@" 2>&1; }
"$ppsplit" -q card.onnx --loss cross_entropy --split h.2:begin --target cuda -o card
is "in two stages the floors of both, and of what 2 microbatches begin" "$(on_card --batch 8 --split h.2:begin --stages 2 --microbatches 2 | first)" \
    "$("$ppsplit" forecast card --microbatches 2 | awk '/^a step/ { printf "%.3g", 1000 * $8 + 8 * 10 }' | awk '{ print $1 + 0 }')"
"$build/models/make_gpt" --rows 1 --seq 128 --vocab 1000 --dim 256 --layers 4 --heads 4 -o row.onnx
# Of work that is no launch's, the beginnings, 40 us, nothing is left out: floors of 8 rows of 1 are those of a microbatch of 8.
eight() { "$ppsplit" plan "$1" --loss cross_entropy --optimizer adamw --machine gpu --dp 1 --schedule gpipe --recompute never --batch 8 --microbatches 1 --stages 1 2>&1 | first; }
is "a model for one row takes as long as one for four, of as many" "$(eight row.onnx)" "$(eight card.onnx)"
# Twice as long, but for what launches take to begin.
printf 'ranks = 1\nlink = 1e6\nefficiency = 1e-3\ncard = h100\n' >slow; printf 'ranks = 1\nlink = 1e6\nefficiency = 5e-4\ncard = h100\n' >slower
ok "kernels reach a part of a card" awk -v a="$(on_card --machine slow --batch 4 | first)" -v b="$(on_card --machine slower --batch 4 | first)" 'BEGIN { exit !(b > 1.9 * a && b < 2.01 * a) }'
is "of which card" "$(machine 'ranks = 1\nefficiency = 0.5\n' | head -n 1)" "machine: error: 'efficiency' needs \`card'"
near() { links "link=1e9\nnode=$1\nnetwork=1e6\nnetwork-latency=1e-3\n" --ranks 2 --dp 1 --tensor 2 --stages 1 --microbatches 1; }
ok "members of two nodes tell each other over the network" awk -v a="$(near 2)" -v b="$(near 1)" 'BEGIN { exit !(b > 2 * a) }'
ok "the command makes a program for GPUs" grep -q '^ppsplit card.onnx .*--target cuda' <(on_card --batch 4)
ok "a card's memory" grep -q "on 1 ranks, .* by h100 costs, 74.5 GiB a rank" <(on_card --batch 4)
ok "a link that is said counts, before the card or behind it" awk -v a="$(on_card --ranks 2 --batch 4 --stages 2 --microbatches 1 | first)" -v b="$(sed -i 's/^link.*//; $a link = 1e6' gpu; on_card --ranks 2 --batch 4 --stages 2 --microbatches 1 | first)" \
    -v c="$(sed -i '/^link/d' gpu; on_card --ranks 2 --batch 4 --stages 2 --microbatches 1 | first)" 'BEGIN { exit !(a == b && b > 100 * c) }'
is "no ranks" "$(plan --batch 4 | head -n 1)" "ppsplit: error: the number of ranks is missing"

# ---- costs ----

one() { plan --ranks 2 --dp 1 --tensor 1 --batch 8 --stages 2 --schedule 1f1b --rows 1 --split "$point" --microbatches "${M:-8}" "$@"; }
slower() { awk -v a="$(one | first)" -v b="$(one "$@" | first)" 'BEGIN { exit !(a > 0 && b > 2 * a) }'; }
point=$(sed -n '/plan_program_split\[\]/,/};/s/^ *"\(.*\)",$/\1/p' cut/pipeline.c)
printf 'ranks = 2\nfunctions = 1e7\n' >machine
ok "a machine's rates count" slower --machine machine
ok "those of the command line too" slower --rates messages=1e2
ok "over the machine's" eval '! slower --machine machine --rates functions=3e9'
for rate in operands=1e6 transposed=1e6 exponentials=1e5 softmax=1e5 rows=1e4 cached=1e6; do ok "$rate" slower --rates "$rate"; done
ok "what fits a cache is not far" eval '! slower --rates parameters=1e3,gradients=1e3'
# Attention alone takes time: in each of 4 layers 2 products forward and 5 backward, each of 2 * 128 * 128 * 64 FLOP, of which a causal mask leaves 10 of 16 tiles: 36.700 ms
"$build/models/make_gpt" --rows 1 --seq 128 --vocab 64 --dim 64 --layers 4 --heads 4 -o causal.onnx
# What I and W both make is in the program's table: of two layers GELU's tanh of 128 rows of 256; its rates count
"$ppsplit" -q causal.onnx --split h.2:begin --loss cross_entropy -o causal
is "what W makes again" "$(sed -n 's/.*\.functions = \([0-9]*\),.*/\1/p' causal/pipeline.c)" $((2 * 128 * 256))
fast=products=1e18,operands=1e18,transposed=1e18,parameters=1e18,gradients=1e18,quick=1e18,slow=1e18,functions=1e18,exponentials=1e18,softmax=1e18,rows=1e18,cached=1e18,traffic=1e18,moves=1e18,updates=1e18,actions=1e12,steps=1e15,messages=1e12,link=1e15
is "and what it reads for that, x and mean of each of 5 norms" "$(sed -n 's/.*\.twice.*\.bytes = \([0-9]*\)}.*/\1/p' causal/pipeline.c)" $((4 * (2 * 128 * 256 + 5 * (128 * 64 + 128))))
# What I leaves for W goes to memory and comes from there, of 8 x 64 rows all of it, where a B has it in a cache, as both have of 8 x 1
saved=$(sed -n 's/.*\.saved = \([1-9][0-9]*\),.*/\1/p' causal/pipeline.c)
left() {
    "$ppsplit" plan causal.onnx --split h.2:begin --loss cross_entropy --ranks 1 --dp 1 --stages 2 --schedule "$1" --batch $((8 * $2)) --microbatches 8 --optimizer sgd \
        --recompute never --rates $fast,batched=1e18,left=1e9 2>&1 | first | cut -d. -f1
}
is "what is left for W counts" "$(left zb-h1 64)" "$(((8 * 64 * saved + 500000) / 1000000))000"
is "but not in a whole backward" "$(left gpipe 64)" 0
is "or a cache" "$(left zb-h1 1)" 0
is "a mask's tiles are not computed" "$("$ppsplit" plan causal.onnx --loss cross_entropy --ranks 1 --dp 1 --stages 1 --schedule gpipe --batch 1 --microbatches 1 --optimizer sgd \
    --recompute never --rates $fast,batched=1e9 2>&1 | first)" 36700
# Of heads of 24 columns vectors of 16 compute 32, but where scores and their gradients are made: 4 layers of 3 products of 2 * 128 * 128 * 96 FLOP, and of 4 with 32 / 24 of them
"$build/models/make_gpt" --rows 1 --seq 128 --vocab 64 --dim 96 --layers 4 --heads 4 -o heads.onnx
is "columns go by whole vectors" "$("$ppsplit" plan heads.onnx --loss cross_entropy --ranks 1 --dp 1 --stages 1 --schedule gpipe --batch 1 --microbatches 1 --optimizer sgd \
    --recompute never --rates $fast,batched=1e9 2>&1 | first)" 65500
# trace KIND:MICROSECONDS...: of each of two stages and 8 microbatches
trace() {
    local s k i
    echo '{"traceEvents":['
    for s in 0 1; do for k in "$@"; do for i in 0 1 2 3 4 5 6 7; do
        printf '{"name":"%s%s%s","cat":"%s","ph":"X","pid":0,"tid":%s,"ts":0,"dur":%s,"args":{"step":1}},\n' $s ${k%:*} $i ${k%:*} $s ${k#*:}
    done; done; done
    echo '{"name":"split","ph":"M","pid":0,"args":{"points":["'"$point"'"]}}]}'
}
# Of two stages F takes 1 ms and B 2: (8 + 2 - 1) times 3 ms
trace F:1000 B:2000 >trace.json
said=$(one --costs trace.json --rates messages=1e12,link=1e15,updates=1e15)
ok "a run's times" grep -q "by measured costs" <<<"$said"
is "are what a step is simulated with" "$(first <<<"$said")" 27000
half=$(M=4 one --costs trace.json --rates messages=1e12,link=1e15,updates=1e15,steps=1e12 | first)
# Another run of the machine when it was 6 % slower, of divided backwards, which take 2.4 ms: 28.4 ms as `ppsplit schedule` simulates F=1,I=1.2,W=1.2
trace F:1060 I:1272 W:1272 >zb.json
said=$(one --costs trace.json,zb.json --rates messages=1e12,link=1e15,updates=1e15)
is "a run with divided backwards leaves the whole ones" "$(first <<<"$said")" 27000
ok "and is brought onto the first one's clock" grep -q "^zb.json: times x 0.943, by F, " <<<"$said"
divided() { plan --ranks 2 --dp 1 --batch 8 --stages 2 --schedule zb-h1 --rows 1 --split "$point" --microbatches 8 --rates messages=1e12,link=1e15,updates=1e15 "$@" | first; }
is "so that I and W can be compared" "$(divided --costs trace.json,zb.json)" 28400
is "which alone are on their own" "$(divided --costs zb.json)" 30100
halves=$(divided --costs trace.json) more=$(divided --costs trace.json --rates functions=1e7)
ok "what they take beside a B is the model's where no run had them" awk -v a="$halves" -v b="$more" 'BEGIN { exit !(a >= 8 * 3000 + 1000 && b > a * 1.05) }'
ok "of fewer rows; more take more" awk -v t="$half" 'BEGIN { exit !(t > 5 * 4000 && t < 5 * 6100) }'

# ---- what is asked for ----

is "another optimizer" "$("$ppsplit" plan "$model/model.onnx" --loss cross_entropy --optimizer lion --batch 4 --ranks 2 2>&1)" \
    "ppsplit: error: --optimizer: unknown optimizer 'lion'; there are sgd, momentum, adam, adamw"
is "a schedule that is none" "$(plan --ranks 2 --batch 4 --schedule zb-h3 2>&1)" "ppsplit: error: --schedule: unknown schedule 'zb-h3'; did you mean 'zb-h2'?"
is "auto, which a plan is" "$(plan --ranks 2 --batch 4 --schedule auto 2>&1 | head -n 1)" "ppsplit: error: --schedule: 'auto' is not a single schedule"
is "replicas that do not divide the ranks" "$(plan --ranks 3 --dp 2 --batch 4 2>&1)" "ppsplit: error: --dp: 2 replicas do not divide 3 ranks"
ok "more ranks than can be" grep -q "no way to train 4 rows a step on 2 ranks fits these options" <(plan --ranks 2 --batch 4 --dp 1 --microbatches 3)
is "no loss, no optimizer" "$("$ppsplit" plan "$model/model.onnx" --batch 4 --ranks 2 2>&1 | sed -n '1p;/^ppsplit .*--rows/s/ --rows.*//p;s/.*\(--optimizer [a-z]*\).*/\1/p')" \
    "ppsplit: note: no --loss is given: a plan is one of training, this one with mse, which its command names: put yours there
ppsplit $model/model.onnx --loss mse
--optimizer sgd"
plan_done
