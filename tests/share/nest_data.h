/*
 * nest_data.h - memory for one nest of its own: how much of it the arguments may address, and
 * numbers to start from.
 */
#ifndef NEST_DATA_H
#define NEST_DATA_H

#include <stdlib.h>

#include "codegen/write/write.h"

static uint64_t state = 1;

static double chance(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) / 9007199254740992.0;
}

/* Elements that any argument may address, before and behind its pointer; a multiple of 64. */
static int64_t reach(const Nest *n, uint32_t arg, int64_t rows)
{
    int64_t most = 64;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        if ((s->kind != S_LOAD && s->kind != S_STORE) || s->arg != arg)
            continue;
        int64_t far = llabs(lin_at(s->base, rows));
        for (int d = 0; d < n->nd; d++)
            far += llabs(lin_at(s->stride[d], rows)) * lin_at(n->ext[d], rows);
        for (uint32_t j = 0; j < s->nindex; j++)
            far += llabs(lin_at(s->index[j].stride, rows)) * lin_at(s->index[j].extent, rows);
        most = far + 64 > most ? far + 64 : most;
    }
    return (most + 63) / 64 * 64;
}

/* Floats from -1 to 1, integers and bools 0 or 1. */
static void fill(Dtype t, void *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        switch (t) {
        case DT_F32: ((float *)p)[i] = (float)(2 * chance() - 1); break;
        case DT_F64: ((double *)p)[i] = 2 * chance() - 1; break;
        case DT_F16:
        case DT_BF16: element_set_double(t, p, i, 2 * chance() - 1); break;
        case DT_I32: ((int32_t *)p)[i] = chance() < 0.5; break;
        case DT_I64: ((int64_t *)p)[i] = chance() < 0.5; break;
        default: ((uint8_t *)p)[i] = chance() < 0.5; break;
        }
}

#endif
