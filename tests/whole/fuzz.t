#!/usr/bin/env bash
# The differential fuzzer (tests/tools/fuzz_nets.c): every net that once failed, and as many random graphs as fit into a minute, the same
# in every run.  `make fuzz-nets` goes on from there, for hours where one likes.
. "$(dirname "$0")/../lib.sh"
cd "$top" || exit 1

ok "nets that failed once, interpreted" "$build/tests/tools/fuzz_nets" tests/nets/*.net
ok "nets that failed once, compiled" "$build/tests/tools/fuzz_nets" --compiled tests/nets/*.net
ok "1,200 random graphs, differentiated numerically and interpreted" "$build/tests/tools/fuzz_nets" --from 1 --count 1200
ok "150 random graphs in bf16, interpreted" "$build/tests/tools/fuzz_nets" --dtype bf16 --from 1 --count 150
ok "50 random graphs, compiled" "$build/tests/tools/fuzz_nets" --compiled --batch 25 --from 1 --count 50
# fuzz/mesh found x + x, the gradient of whose sum comes over a cut.
twice() {
    local to=$work/$1 net=$top/tests/nets/twice; shift
    split_model "$net/model.onnx" "$to" "$@" --loss output:loss --loss-reduction sum --train 'w*' &&
        "$to/pipeline" train --data x0="$net/in.x0.npy" --data x1="$net/in.x1.npy" --microbatches 4 --schedule gpipe --ranks 1 --dump-grads "$to.grads"
}
ok "x + x behind a cut: the bits of none" eval 'twice whole none && twice cut v7 && "$compare" same "$work/whole.grads" "$work/cut.grads"'
ok "its model whose backward begins with collectives" tests/fuzz/mesh 70044
ok "8 random models over random meshes, under 24 schedules (make fuzz-mesh goes on)" tests/fuzz/mesh 5001 8
ok "2 random models of any length, bit for bit as bound to 3 of them (make fuzz-lengths goes on)" tests/fuzz/lengths 7 2
ok "one that multiplies by a remainder of its length is refused" eval 'LOUD=1 tests/fuzz/lengths 5074 1 | grep -q "/Mul_11.*it is not what follows from other lengths"'
ok "one that pads to a multiple of 4, with whose even lengths nothing is padded" eval 'LOUD=1 tests/fuzz/lengths 103 1 | grep -q "/ReduceMean_67.*it is not what follows from other lengths"'
plan_done
