/*
 * slots.c - in: tensors that are alive from one action of a row to another; out: their offsets in
 * one block, and its length (base/file/pack.c).
 */
#include "planner.h"

PpStatus slots_most(const Packed *of, int64_t n, int n_op, int64_t *bytes, int64_t *live)
{
    return pack_most(of, n, n_op, bytes, live) ? PP_OK : pp_no_memory();
}

PpStatus slots_place(Packed *of, int64_t n, int n_op, int64_t *bytes)
{
    static const PackSearch how = {.order = {{PACK_SIZE, PACK_LENGTH, PACK_FIRST},
                                             {PACK_AREA, PACK_FIRST},
                                             {PACK_FIRST}},
                                   .orders = 3,
                                   .rounds = 100,
                                   .work = 20000000};
    return pack_place(of, n, n_op, &how, bytes) ? PP_OK : pp_no_memory();
}
