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
# the gradient of x + x, where that of its sum comes over a cut
ok "a random model that failed once" tests/fuzz/mesh 2037
ok "8 random models over random meshes, under 24 schedules (make fuzz-mesh goes on)" tests/fuzz/mesh 5001 8
plan_done
