/*
 * mesh_threads.c - what members of the tensor axis do together, where they are threads that call
 * one stage: the definition of each call in pp.h, in plain loops.  Compiled with the stage;
 * mesh_open() comes first.  A member's room is filled with what is no number, all of it.  What is
 * only begun is done when it ends, so that all must still be there.
 */
#include <pthread.h>
#include <string.h>

#include "api/pp.h"

enum { MOST = 16 };
void mesh_open(int n, const PpStage *s);

static pthread_barrier_t barrier;
static const PpStage *stage;
static int members;
static const char *operand[MOST];

void mesh_open(int n, const PpStage *s)
{
    if (members)
        pthread_barrier_destroy(&barrier);
    members = n;
    stage = s;
    pthread_barrier_init(&barrier, NULL, (unsigned)n);
}

static size_t size_of(int k) { return stage->mesh.collective[k].dtype == PP_F64 ? 8 : 4; }

static void meet(const PpCtx *c, int k, const void *in, void *work, int64_t n)
{
    int64_t room = pp_collective_work(stage->mesh.collective[k].kind, members, (int)size_of(k), n);
    if (room > 0)
        memset(work, 0xff, (size_t)room);
    operand[c->member[PP_TENSOR]] = in;
    pthread_barrier_wait(&barrier);
}

/* Element i of the sum: neighbours in pairs, level by level. */
static void sum(int k, void *out, int64_t to, int64_t i)
{
    double wide[MOST];
    float narrow[MOST];
    for (int m = 0; m < members; m++)
        if (size_of(k) == 8)
            wide[m] = ((const double *)(const void *)operand[m])[i];
        else
            narrow[m] = ((const float *)(const void *)operand[m])[i];
    for (int n = members; n > 1; n = (n + 1) / 2)
        for (int m = 0; m < (n + 1) / 2; m++)
            if (size_of(k) == 8)
                wide[m] = wide[2 * m] + (2 * m + 1 < n ? wide[2 * m + 1] : 0);
            else
                narrow[m] = narrow[2 * m] + (2 * m + 1 < n ? narrow[2 * m + 1] : 0);
    if (size_of(k) == 8)
        ((double *)out)[to] = wide[0];
    else
        ((float *)out)[to] = narrow[0];
}

/* By member and row: a call that has begun. */
typedef struct {
    const PpCtx *c;
    const void *in;
    void *out, *work;
    int64_t size[5];
    int first;
} Begun;
static Begun begun[MOST][256];

static int only_begun(int k, Begun b)
{
    if (k >= PP_BEGIN)
        begun[b.c->member[PP_TENSOR]][k - PP_BEGIN] = b;
    return k >= PP_BEGIN;
}

void pp_end(const PpCtx *c, int k)
{
    Begun b = begun[c->member[PP_TENSOR]][k];
    const int64_t *n = b.size;
    switch (stage->mesh.collective[k].kind) {
    case PP_ALL_REDUCE: pp_all_reduce(b.c, k, b.in, b.out, b.work, n[0]); break;
    case PP_ALL_GATHER: pp_all_gather(b.c, k, b.in, b.out, b.work, n[0], n[1]); break;
    case PP_REDUCE_SCATTER: pp_reduce_scatter(b.c, k, b.in, b.out, b.work, n[0], n[1]); break;
    default:
        pp_all_to_all(b.c, k, b.in, b.out, b.work,
                      (PpAcross){n[0], n[1], n[2], n[3], n[4], b.first});
    }
}

void pp_all_reduce(const PpCtx *c, int k, const void *in, void *out, void *work, int64_t n)
{
    if (only_begun(k, (Begun){c, in, out, work, {n}, 0}))
        return;
    meet(c, k, in, work, n);
    for (int64_t i = 0; i < n; i++)
        sum(k, out, i, i);
    pthread_barrier_wait(&barrier);
}

void pp_all_gather(const PpCtx *c, int k, const void *in, void *out, void *work, int64_t outer,
                   int64_t block)
{
    if (only_begun(k, (Begun){c, in, out, work, {outer, block}, 0}))
        return;
    size_t bytes = (size_t)block * size_of(k);
    meet(c, k, in, work, outer * block);
    for (int64_t o = 0; o < outer; o++)
        for (int m = 0; m < members; m++)
            memcpy((char *)out + (size_t)(o * members + m) * bytes, operand[m] + (size_t)o * bytes,
                   bytes);
    pthread_barrier_wait(&barrier);
}

void pp_reduce_scatter(const PpCtx *c, int k, const void *in, void *out, void *work, int64_t outer,
                       int64_t block)
{
    if (only_begun(k, (Begun){c, in, out, work, {outer, block}, 0}))
        return;
    meet(c, k, in, work, outer * members * block);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < block; i++)
            sum(k, out, o * block + i, (o * members + c->member[PP_TENSOR]) * block + i);
    pthread_barrier_wait(&barrier);
}

void pp_all_to_all(const PpCtx *c, int k, const void *in, void *out, void *work, PpAcross across)
{
    const int64_t a = across.a, d = across.d, b = across.b, e = across.e, f = across.f;
    const int first = across.to_e;
    if (only_begun(k, (Begun){c, in, out, work, {a, d, b, e, f}, first}))
        return;
    int64_t part_d = d / members, part_e = e / members, n = 0;
    size_t bytes = (size_t)f * size_of(k);
    meet(c, k, in, work, a * d * b * e * f / members);
    for (int64_t i = 0; i < a; i++)
        for (int64_t x = 0; x < (first ? d : part_d); x++)
            for (int64_t j = 0; j < b; j++)
                for (int64_t y = 0; y < (first ? part_e : e); y++, n++) {
                    int64_t of = first ? x / part_d : y / part_e,
                            row = first ? x % part_d : c->member[PP_TENSOR] * part_d + x,
                            column = first ? c->member[PP_TENSOR] * part_e + y : y % part_e,
                            at = first ? ((i * part_d + row) * b + j) * e + column
                                       : ((i * d + row) * b + j) * part_e + column;
                    memcpy((char *)out + (size_t)n * bytes, operand[of] + (size_t)at * bytes,
                           bytes);
                }
    pthread_barrier_wait(&barrier);
}

void pp_shard(const PpCtx *c, int k, const void *in, void *out, int64_t outer, int64_t block)
{
    size_t bytes = (size_t)block * size_of(k);
    for (int64_t o = 0; o < outer; o++)
        memcpy((char *)out + (size_t)o * bytes,
               (const char *)in + (size_t)(o * members + c->member[PP_TENSOR]) * bytes, bytes);
}
