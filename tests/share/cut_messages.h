/*
 * cut_messages.h - what crosses between the stages of a cut, by pair of stages, as the costs of the
 * graph say.
 */
#ifndef CUT_MESSAGES_H
#define CUT_MESSAGES_H

#include "partition/auto/cut.h"

/* What stage `from` sends to stage `to`, of a microbatch; back: the gradients of it. */
typedef struct {
    uint32_t from, to, values;
    int64_t bytes, back;
} CutMessage;
typedef VEC(CutMessage) CutMessages;

static CutMessages cut_messages(const CutGraph *g, const uint32_t *stage_of, uint32_t stages, Arena *a)
{
    CutMessages list = {0};
    uint32_t *seen = arena_array(a, uint32_t, stages + 1);
    IdMap at = {0};
    for (uint32_t v = 0; v < g->value.n; v++) {
        const CutValue *x = &g->value.at[v];
        for (uint32_t i = 0; i < x->read.n && x->bytes + x->back > 0; i++) {
            uint32_t to = stage_of[x->read.at[i].node];
            if (to == stage_of[x->from] || seen[to] == v + 1)
                continue;
            const uint32_t from = cut_sender(x, stage_of, to);
            seen[to] = v + 1;
            uint32_t *slot = idmap_at(a, &at, (uint64_t)from << 32 | to);
            if (*slot == NONE) {
                CutMessage m = {.from = from, .to = to};
                *slot = list.n;
                vec_push(a, &list, m);
            }
            CutMessage *m = &list.at[*slot];
            m->values++;
            m->bytes += x->bytes;
            m->back += x->back;
        }
    }
    return list;
}

#endif
