#!/usr/bin/env bash
# The runtime on a device, under the CUDA shim: a pipeline written by hand (device_plan.c, .cu) gives the CPU's numbers to the bit over every
# transport, schedule and order in which streams may run; nothing is allocated in a step; what fails is said once, with rank,
# action and microbatch, and nobody hangs.  Functions of generated stages are tests/whole/shim.t's matter.
. "$(dirname "$0")/../lib.sh"
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
cd "$work" || exit 1

# ---- with nvcc: no warnings ----

has_nccl() { printf '#include <nccl.h>\n' >nccl.cu && "$nvcc" -c nccl.cu -o nccl.o 2>/dev/null; }
if [ -x "$nvcc" ]; then
    nccl=$(has_nccl && echo -DPP_WITH_NCCL)
    for f in runtime/device/cuda/device_cuda runtime/optim/optim_cuda runtime/net/transport_nccl tests/runtime/device_plan; do
        is "nvcc: $f.cu" "$("$nvcc" -std=c++17 $nvcc_quick $nccl -arch=sm_80 --Werror all-warnings $includes -I"$top/tests/share" -cubin "$top/$f.cu" -o nvcc.cubin 2>&1)" ""
    done
else
    skip "nvcc" "no nvcc"
fi
if ! command -v "$cxx" >/dev/null; then
    skip "the runtime under the shim" "no C++ compiler"
    plan_done
    exit
fi

# ---- the program ----

# build_program [COLUMNS]
build_program() {
    local name
    cp "$top/codegen/write/pipeline.mk" Makefile || return
    for name in stage0.cu pipeline.c; do
        { [ $# = 0 ] || echo "#define COLUMNS $1"; cat "$top/tests/runtime/device_plan.${name##*.}"; } >$name || return
    done
    CPATH=$top:$top/tests/share make_shim . && mv pipeline-shim program
}
ok "builds" build_program
[ -x program ] || { plan_done; exit; }
mpi=
! command -v mpicc >/dev/null || ! command -v mpirun >/dev/null || mpi=1
export OMP_NUM_THREADS=1 SHIM_LINES=0

# use PLAN [NAME]: that pipeline's parameters beside the program, its data in $data.  0: w is transmitted, 1: replicated, three stages; 2 and 3: four.
use() {
    export PLAN=$1
    local to=data${2-}$1
    mkdir -p "$to" && ./program write "$to" && rm -rf params && cp -r "$to/params" . || return
    data=(--data "x=$to/x.npy" --data "target=$to/target.npy")
}

# run TO COMMAND...: outputs, gradients, checkpoint and log into the folder TO.
run() {
    local to=$1; shift
    rm -rf "$to" && mkdir "$to" || return
    timeout $patience "$@" --output "y=$to/y.npy" --log-json "$to/log.json" >"$to/out" 2>"$to/err" || { cat "$to/err"; return 1; }
    sed -i '1d; s/, "seconds.*//' "$to/log.json"
}
train() { run "$1" "${@:2}" --dump-grads "$1/grads" --checkpoint "$1/checkpoint"; }
same() { diff -r -x out -x err -I '"device":' -I '"arithmetic":' -I '"index_sha256":' "$1" "$2"; }
# alike A B: the same, written in other pieces
alike() { diff -r -x out -x err -x checkpoint "$1" "$2" && "$compare" same "$1"/checkpoint/step_* "$2"/checkpoint/step_*; }

# ---- the same bits ----

steps=(--microbatches 6 --steps 3)
for plan in 0 1 2 3; do
    use $plan
    for schedule in gpipe 1f1b zb-h1; do
        options=("${data[@]}" "${steps[@]}" --schedule $schedule --optimizer adamw --clip-norm 1)
        ok "plan $plan, $schedule: the CPU" train cpu ./program train --device cpu "${options[@]}"
        for order in lazy random:1; do
            ok "plan $plan, $schedule, local, $order" train cuda env SHIM_ORDER=$order ./program train "${options[@]}"
            ok "plan $plan, $schedule, local, $order: the same bits" same cpu cuda
        done
        ok "plan $plan, $schedule, nccl" train cuda env SHIM_DEVICES=4 SHIM_ORDER=random:2 ./program train --transport nccl "${options[@]}"
        ok "plan $plan, $schedule, nccl: the same bits" same cpu cuda
    done
done

# each line: a name, the pipeline, options
while read -r name plan options; do
    use "$plan"
    ok "$name: the CPU" train cpu ./program train --device cpu "${data[@]}" --steps 4 $options
    for how in lazy random:3; do
        ok "$name, $how" train cuda env SHIM_ORDER=$how ./program train "${data[@]}" --steps 4 $options
        ok "$name, $how: the same bits" same cpu cuda
    done
done <<'END'
sgd 0 --microbatches 6
momentum 1 --microbatches 6 --optimizer momentum --weight-decay 0.1
nesterov 0 --microbatches 6 --optimizer momentum --nesterov --clip-norm 0.5
adam 2 --microbatches 6 --optimizer adam --weight-decay 0.1
shuffled 0 --batch 8 --shuffle 3
two-stages-a-rank 2 --microbatches 6 --ranks 2 --schedule interleaved1f1b
halves-beside-each-other 3 --microbatches 6 --ranks 2 --schedule dualpipev
one-rank 2 --microbatches 6 --ranks 1 --schedule gpipe
few-sends 1 --microbatches 6 --send-budget 1 --defer
END

# Recomputed forwards, from a file.
use 2
printf '%s\n' 0F0,0F1,0R0,0B0,0R1,0B1 1F0,1F1,1R0,1B0,1R1,1B1 2F0,2F1,2R0,2B0,2R1,2B1 3F0,3R0,3B0,3F1,3R1,3B1 >recompute.csv
few=("${data[@]}" --batch 8 --steps 2 --schedule recompute.csv)
ok "recompute: the CPU" train cpu ./program train --device cpu "${few[@]}"
ok "recompute" train cuda ./program train "${few[@]}"
ok "recompute: the same bits" same cpu cuda

# Stashes in pinned memory between F and backward.
use 2
for options in "--schedule gpipe --ranks 2" "--schedule interleaved1f1b --ranks 2" "--schedule zb-h1"; do
    many=("${data[@]}" "${steps[@]}" $options)
    ok "offload, $options: the CPU keeps all" train cpu ./program train --device cpu "${many[@]}"
    for how in lazy random:4; do
        ok "offload, $options, $how" train cuda env SHIM_ORDER=$how ./program train "${many[@]}" --offload stash --offload-time 0.1
        ok "offload, $options, $how: the same bits" same cpu cuda
        ok "offload, $options, $how: copies" grep -q "rank . offload: .* of pinned host memory" cuda/out
    done
done
# Parameters, gradients and optimizer state in pinned memory, two stages or one on the device.
moved_as_planned() {
    awk '/^rank . offload: parameters/ { match($0, /; [0-9]+ bytes in and [0-9]+/); split(substr($0, RSTART), w, " "); in_[$2] = w[2]; out[$2] = w[6] }
         /bytes came/ { n++; bad += $4 != steps * in_[$2] || $8 != steps * out[$2] } END { exit bad || !n }' steps=3 "$1/out"
}
while read -r plan options; do
    use $plan
    many=("${data[@]}" "${data[@]/#--data/--eval-data}" --eval-every 2 "${steps[@]}" $options --optimizer adamw --clip-norm 1)
    ok "offload params, plan $plan, $options: the CPU keeps all" train cpu ./program train --device cpu "${many[@]}"
    for how in lazy random:4; do
        ok "offload params, plan $plan, $options, $how" train cuda env SHIM_DEVICES=2 SHIM_ORDER=$how ./program train "${many[@]}" --offload params --unshard $((2 - plan % 2)) --verbose
        ok "offload params, plan $plan, $options, $how: the same bits" same cpu cuda
        ok "offload params, plan $plan, $options, $how: what moves was planned" moved_as_planned cuda
    done
done <<'END'
0 --schedule 1f1b --ranks 2
1 --schedule gpipe --ranks 1
2 --schedule interleaved1f1b --ranks 2
2 --schedule zb-h1 --ranks 4
3 --schedule loopedbfs --ranks 2
1 --schedule gpipe --ranks 2 --dp 2
2 --schedule interleaved1f1b --ranks 4 --dp 2 --shard-optimizer --bucket 1
END
ok "offload params: a checkpoint of a run without goes on" train cuda ./program train "${many[@]}" --offload params --params cpu/checkpoint/step_3
ok "a snapshot after every step: the CPU" train cpu ./program train --device cpu "${many[@]}" --every 1
for how in lazy random:5; do
    ok "a snapshot after every step, $how" train cuda env SHIM_ORDER=$how ./program train "${many[@]}" --every 1
    ok "a snapshot after every step, $how: the same bits" same cpu cuda
done
offloads_traced() { ./program train "${many[@]}" --offload stash --offload-time 0.1 --trace trace.json >out && grep -q '"name":"[12]FETCH.","cat":"FETCH","ph":"X","pid":0,"tid":[0-9]*,"ts":[0-9]' trace.json; }
ok "offload: a trace" offloads_traced

use 0
for devices in 2 3; do
    for peer in 0 1; do
        ok "$devices devices, peer access $peer: the CPU" train cpu ./program train --device cpu "${data[@]}" "${steps[@]}"
        ok "$devices devices, peer access $peer" train cuda env SHIM_DEVICES=$devices SHIM_PEER=$peer ./program train "${data[@]}" "${steps[@]}"
        ok "$devices devices, peer access $peer: the same bits" same cpu cuda
    done
done
# A profile's events are of the device whose stream they are recorded in, whichever rank enqueues a copy.
profiled() {
    PP_PROFILE=profile SHIM_DEVICES=3 train cuda ./program train "${data[@]}" "${steps[@]}" && grep -q '^transfer	cudaMemcpyPeerAsync	' profile
}
ok "3 devices, a profile" profiled
ok "3 devices, a profile: the same bits" same cpu cuda
for mode in eval infer; do
    for rows in "--batch 8 --microbatches 2" "--microbatches 6"; do
        ok "$mode $rows: the CPU" run cpu ./program $mode --device cpu "${data[@]}" $rows
        ok "$mode $rows" run cuda ./program $mode "${data[@]}" $rows
        ok "$mode $rows: the same bits" same cpu cuda
    done
done
for action in 1B3 0B1 1SEND_B2; do
    for device in cpu cuda; do
        ./program train --device $device "${data[@]}" --microbatches 6 --until $action --dump-grads until.$device >$device.out 2>&1
    done
    is "--until $action: state" "$(grep -v memory cuda.out)" "$(grep -v memory cpu.out)"
    ok "--until $action: gradients" diff -r until.cpu until.cuda
    SHIM_DEVICES=3 ./program train --transport nccl "${data[@]}" --microbatches 6 --until $action --dump-grads until.nccl >cuda.out 2>&1
    is "--until $action, nccl: state" "$(grep -v memory cuda.out)" "$(grep -v memory cpu.out)"
    ok "--until $action, nccl: gradients" diff -r until.cpu until.nccl
    rm -r until.*
done
./program train "${data[@]}" "${steps[@]}" --trace trace.json >out 2>err
ok "--trace: the device's own times" perl -MJSON::PP -e 'local $/; open F, "trace.json"; my @e = grep { $_->{ph} eq "X" } @{decode_json(<F>)->{traceEvents}};
    exit !(@e > 100 && !grep { $_->{dur} < 0 || $_->{ts} < 0 } @e)'

# ---- replicas: sums over them go by the same wires, in the same order ----

for plan in 0 1; do
    use $plan
    options=("${data[@]}" --microbatches 3 --steps 2 --schedule 1f1b --optimizer adamw --dp 2 --ranks 6)
    ok "plan $plan, two replicas: the CPU" train cpu ./program train --device cpu "${options[@]}"
    ok "plan $plan, two replicas, local" train cuda env SHIM_ORDER=random:1 ./program train "${options[@]}"
    ok "plan $plan, two replicas, local: the same bits" same cpu cuda
    ok "plan $plan, two replicas, nccl" train cuda env SHIM_DEVICES=6 SHIM_ORDER=random:2 ./program train --transport nccl "${options[@]}"
    ok "plan $plan, two replicas, nccl: the same bits" same cpu cuda
done

# Parameters of several blocks of the norm, which three replicas divide: each updates what it adds up, and all of it is sent after the update.
# NCCL: of each replica the two sides of eight edges join a communicator, and each rank that of all its replicas; one more would fail.
cp program narrow
ok "wide: builds" build_program 4200
use 1 wide
for options in "--dp 2 --optimizer adamw --clip-norm 0.01" "--dp 3 --groups 6 --optimizer momentum --clip-norm 0.01 --bucket 20K"; do
    d=${options:5:1}
    many=("${data[@]}" --microbatches 3 --schedule 1f1b --ranks $((3 * d)) $options)
    ok "$options: the CPU, undivided" train cpu ./program train --device cpu "${many[@]}"
    levels=(1 3)
    [[ $options = *--groups* ]] || levels+=("3 --offload params")
    for zero in "${levels[@]}"; do
        ok "$options, --zero $zero, local" train cuda env SHIM_ORDER=random:${zero::1} ./program train "${many[@]}" --zero $zero
        ok "$options, --zero $zero, local: the same bits" alike cpu cuda
        ok "$options, --zero $zero, nccl" train cuda env SHIM_DEVICES=$((3 * d)) SHIM_ORDER=random:2 SHIM_FAIL=ncclCommInitRankConfig:$((2 * 8 * d + 3 * d + 1)) \
            ./program train --transport nccl "${many[@]}" --zero $zero
        ok "$options, --zero $zero, nccl: the same bits" alike cpu cuda
    done
done
# Of two stages a rank one is in the window at a time, and comes from the replicas' host memory; rows are evaluated meanwhile.
use 2 wide
many=("${data[@]}" "${data[@]/#--data/--eval-data}" "${steps[@]}" --schedule interleaved1f1b --ranks 4 --dp 2 --optimizer adamw --clip-norm 1)
ok "shares in host memory: the CPU, undivided" train cpu ./program train --device cpu "${many[@]}"
ok "shares in host memory" train cuda env SHIM_DEVICES=2 SHIM_ORDER=random:5 ./program train "${many[@]}" --zero 3 --offload params --unshard 1 --verbose
ok "shares in host memory: the same bits" alike cpu cuda
ok "shares in host memory: what moves was planned" moved_as_planned cuda
mv narrow program

# ---- generated stages: uneven microbatches of parameters used twice, statistics under recompute ----

# model NAME SPLIT...: builds it, both devices in one program.
model() {
    "$ppsplit" -q "$top/models/$1/model.onnx" --target cpu --target cuda "${@:2}" -o "$work/$1" && make_shim "$work/$1"
}
# compared NAME OPTION...: two steps on either device; additions come in other orders there, tests/whole/shim.t says how far that goes
compared() {
    local device name=$1; shift
    case_data "$top/models/$name"
    data+=(--data "target=$top/models/$name/target.npy" --steps 2 --lr 0.1)
    for device in cpu cuda; do
        rm -rf $device && timeout $patience "$name/pipeline-shim" train --device $device "${data[@]}" "$@" --dump-grads $device/grads --checkpoint $device || return
    done
    "$compare" grads cuda/grads cpu/grads 5e-5 && "$compare" grads cuda/step_2 cpu/step_2 5e-5
}
ok "example: builds" model example-ts --loss mse --multi-use replicate
while read -r schedule order; do
    export SHIM_ORDER=$order
    ok "example, $schedule, $order" compared example-ts --schedule $schedule --microbatches 5
done <<'END'
gpipe lazy
1f1b random:1
zb-h1 lazy
zb-h1 random:2
END
unset SHIM_ORDER
is "a checkpoint of a device has its libraries' versions" \
    "$(perl -ne 'print $1 =~ s/[0-9]+/N/gr if /"arithmetic": "[^"]*(CUDA [^"]*)"/' cuda/step_2/index.json)" "CUDA N, cuBLAS N, NCCL N"
ok "resnet: builds" model resnet-ts --split layer1:begin --split layer2:begin --split fc:begin --loss cross_entropy
printf '%s\n' 0F0,1F0,0F1,1F1,1R0,1B0,0R0,0B0,1B1,0R1,0B1 2F0,3F0,2F1,3F1,3R0,3B0,2R0,2I0,3B1,2R1,2I1,2W0,2W1 >resnet.csv
ok "resnet: statistics move once when forwards are recomputed" compared resnet-ts --schedule resnet.csv

# ---- processes ----

if [ -n "$mpi" ]; then
    for schedule in gpipe 1f1b zb-h1; do
        use 1
        options=("${data[@]}" "${steps[@]}" --schedule $schedule --optimizer adam)
        ok "mpi, $schedule: the CPU" train cpu ./program train --device cpu "${options[@]}"
        for order in lazy random:1; do
            ok "mpi, $schedule, $order" train cuda env SHIM_ORDER=$order mpirun -n 3 ./program train "${options[@]}"
            ok "mpi, $schedule, $order: the same bits" same cpu cuda
        done
    done
    use 2
    ok "mpi, two stages a rank: the CPU" train cpu ./program train --device cpu "${data[@]}" "${steps[@]}" --ranks 2 --schedule interleaved1f1b
    ok "mpi, two stages a rank" train cuda mpirun -n 2 ./program train "${data[@]}" "${steps[@]}" --schedule interleaved1f1b
    ok "mpi, two stages a rank: the same bits" same cpu cuda
else
    skip "transport mpi" "no MPI"
fi

# ---- memory: what the report says, and no allocation in a step ----

use 0
planned=$(./program train "${data[@]}" "${steps[@]}" --optimizer adam | awk '/^rank . memory:/ { n += $4 } END { print n }')
ok "the memory reported is enough" env SHIM_MEMORY="$planned" ./program train "${data[@]}" "${steps[@]}" --optimizer adam
is "and a byte less is not" "$(SHIM_MEMORY=$((planned - 1)) ./program train "${data[@]}" "${steps[@]}" --optimizer adam 2>&1 | grep -c 'out of memory')" 1
for call in cudaMalloc cudaMallocHost cudaEventCreateWithFlags cudaStreamCreateWithFlags; do
    most=1024 n=0                                       # the first one that one step does not come to, by bisection
    while [ $((most - n)) -gt 1 ]; do
        half=$(((n + most) / 2))
        if SHIM_FAIL=$call:$half ./program train "${data[@]}" --microbatches 6 --quiet >out 2>&1; then most=$half; else n=$half; fi
    done
    ok "$call: $n before the first step, none in five" env SHIM_FAIL=$call:$most ./program train "${data[@]}" --microbatches 6 --steps 5
done

# ---- what fails ----

# said NAME PATTERN CODE COMMAND...: one message that matches, that exit code, in time.
said() {
    local got
    got=$(timeout $patience "${@:4}" 2>&1 >/dev/null; echo "exit $?")
    got=$(grep -E '^pipeline: |^exit ' <<<"$got")
    [[ $(wc -l <<<"$got") = 2 && $got =~ $2 && $got =~ exit\ ($3)$ ]] && got=$2
    is "$1" "$got" "$2"
}
# Where it is noticed depends on the threads: in an action, or at the step's end.  The shim goes on with what was enqueued: after a copy
# or an event that never was it finds what it should, and the code is its own.
export SHIM_OFF=unset
at='rank [0-2], (action [0-2][A-Z_]+[0-5]?(@[0-2])? of stage [0-2](, microbatch [0-5])? failed|end of step 1): '
train0=(./program train "${data[@]}" --microbatches 6 --steps 2)
for order in lazy eager; do
    export SHIM_ORDER=$order
    said "a launch fails, $order" 'rank 0, action 0F0 of stage 0, microbatch 0 failed: first_forward: unspecified launch failure' 3 env SHIM_FAIL=launch:1 "${train0[@]}"
    said "a later launch, $order" "$at[a-z_]+: unspecified launch failure" 3 env SHIM_FAIL=launch:25 "${train0[@]}"
    said "a kernel faults, $order" "$at.*unspecified launch failure" 3 env SHIM_FAIL=kernel:7 "${train0[@]}"
    said "a copy between ranks, $order" "${at}cudaMemcpyAsync: unknown error" '3|97' env SHIM_FAIL=cudaMemcpyAsync:30 "${train0[@]}"
    said "an event, $order" "${at}cudaEventRecord: unknown error" '3|97' env SHIM_FAIL=cudaEventRecord:50 "${train0[@]}"
done
unset SHIM_ORDER
# One rank alone: of several, each on a thread, it would be chance which of them asks last.  Enough for cuBLAS's workspace of 32 MiB and its
# list of pointers of 96 KiB.
said "no memory for the arena" 'rank 0: no memory for [0-9]+ bytes of tensors on the device: cudaMalloc: out of memory: of 33652740 bytes [0-9]+ are free' 3 \
    env SHIM_MEMORY=33652740 "${train0[@]}" --ranks 1 --schedule gpipe
said "no pinned memory" 'rank [0-2]: no [0-9]+ bytes of pinned host memory: cudaMallocHost: out of memory' 3 env SHIM_FAIL=cudaMallocHost:6 "${train0[@]}"
said "no cuBLAS" 'rank [0-2], GPU 0: cublasCreate: the resource allocation failed' 3 env SHIM_FAIL=cublasCreate:2 "${train0[@]}"
said "no GPU" 'no GPU: .*no CUDA-capable device is detected.*--device cpu runs without one' 3 env SHIM_DEVICES=0 "${train0[@]}"
# The parameters are looked at on the host, one after the other, though no file was asked for.
said "a loss that is not finite" 'step [23]: the (loss|gradient.s norm) is (nan|inf): ' 4 "${train0[@]}" --steps 4 --lr 1e30
# Whoever waits for messages that never come is let go.
# (16 groups connect, before the first step)
for call in ncclSend:9 ncclRecv:12 ncclGroupEnd:22 launch:20; do
    said "nccl, $call" "$at[a-zA-Z_]+: un(handled system error|specified launch failure)" '3|97' \
        env SHIM_DEVICES=3 SHIM_FAIL=$call "${train0[@]}" --transport nccl
done
said "nccl, no communicator" 'rank [0-2], a communicator for the edge from stage . to .: ncclCommInitRankConfig: unhandled system error' 3 \
    env SHIM_DEVICES=3 SHIM_FAIL=ncclCommInitRankConfig:2 "${train0[@]}" --transport nccl
said "nccl, the other side" 'rank [0-2], end of step 1: ncclCommGetAsyncError: unhandled system error' '3|97' \
    env SHIM_DEVICES=3 SHIM_FAIL=ncclCommGetAsyncError:3 "${train0[@]}" --transport nccl
if [ -n "$mpi" ]; then
    said "mpi, a launch" 'rank 2, action 2B2 of stage 2, microbatch 2 failed: last_' 3 \
        mpirun -n 2 ./program train "${data[@]}" --microbatches 6 : -n 1 env SHIM_FAIL=launch:9 ./program train "${data[@]}" --microbatches 6
fi

# ---- what cannot be ----

said "nccl, one GPU for all" 'ranks 0 and 1 share GPU .*, and NCCL takes one rank a GPU: use --transport local' 2 "${train0[@]}" --transport nccl
said "nccl on the CPU" '--transport nccl moves tensors between GPUs' 2 "${train0[@]}" --transport nccl --device cpu
said "mpi without mpirun" '--transport mpi: ' 2 "${train0[@]}" --transport mpi
said "another transport" "unknown transport 'ncll'; did you mean 'nccl'" 2 "${train0[@]}" --transport ncll
said "another device" "unknown device 'gpu'" 2 "${train0[@]}" --device gpu
[ -z "$mpi" ] || said "local under mpirun" '--transport local: ranks are processes of mpirun' 2 mpirun -n 3 ./program train "${data[@]}" --microbatches 6 --transport local
plan_done
