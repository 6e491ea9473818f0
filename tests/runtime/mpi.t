#!/usr/bin/env bash
# Messages of processes (runtime/net/transport_mpi.c) by themselves: mpi.c says what.
. "$(dirname "$0")/../lib.sh"
if ! command -v mpirun >/dev/null || ! command -v mpicc >/dev/null; then
    echo "1..0 # SKIP no MPI"
    exit
fi
cd "$work" || exit 1
ok "two ranks alone with the transport" mpicc -std=gnu11 -D_GNU_SOURCE -O1 -DPP_MPI $includes -o mpi "$top/tests/runtime/mpi.c" "$top"/runtime/net/{transport_mpi,group}.c "$top"/runtime/core/*.c "$top/base/file/memory.c" -lpthread || exit 1
printf '\0\0\0\0' >over
mpirun -n 2 ./mpi over $patience >said 2>err
is "a large message arrives while both sides compute" "$(sed -n 1p said)" "while they compute: arrived"
is "all of it" "$(sed -n 2p said)" "what arrived: the same"
is "an error is told, and is not the end" "$(sed -n 3p said | grep -c '^to nobody: 3, MPI: .*rank')" 1
plan_done
