/*
 * again.c - the stash as blocks.  In: its roots one behind the other, which value of Stage.stash is
 * read through which root, Stage.again.  Out: a block for what is always kept and one for each part
 * that can be computed again by itself; in a part are the roots through which its values alone are
 * read, a part of none is left out.
 */
#include "plan.h"

/* By root: the part of Stage.again of all values that are read through it, NONE. */
static void find_parts(StageGen *sg, const uint32_t *root_of)
{
    const Stage *s = sg->stage;
    IdMap part_of = {0};
    bool *mixed = arena_array(sg->a, bool, sg->stash.value.n + 1);
    for (uint32_t k = 0; k < s->again.n; k++)
        for (uint32_t i = 0; i < s->again.at[k].value.n; i++)
            cg_position(sg, &part_of, s->again.at[k].value.at[i], k);
    for (uint32_t i = 0; i < sg->stash.value.n; i++)
        vec_push(sg->a, &sg->stash.part, NONE);
    for (uint32_t i = 0; i < s->stash.n; i++) {
        if (root_of[i] == NONE)
            continue;
        uint32_t part = idmap_get(&part_of, s->stash.at[i]), *at = &sg->stash.part.at[root_of[i]];
        mixed[root_of[i]] |= part == NONE || (*at != NONE && *at != part);
        *at = part;
    }
    for (uint32_t i = 0; i < sg->stash.value.n; i++)
        if (mixed[i])
            sg->stash.part.at[i] = NONE;
}

/* Parts that hold something get consecutive numbers. */
static void number_parts(StageGen *sg)
{
    uint32_t number[AGAIN_MOST];
    for (uint32_t k = 0; k < sg->stage->again.n; k++) {
        bool any = false;
        for (uint32_t i = 0; i < sg->stash.value.n; i++)
            any |= sg->stash.part.at[i] == k;
        number[k] = any ? sg->stash.again.n : NONE;
        if (any)
            vec_push(sg->a, &sg->stash.again, ((StagePart){.from = k}));
    }
    for (uint32_t i = 0; i < sg->stash.value.n; i++)
        if (sg->stash.part.at[i] != NONE)
            sg->stash.part.at[i] = number[sg->stash.part.at[i]];
}

/* The roots of one block, from `at`; returns its end. */
static int64_t place_block_at(StageGen *sg, const int64_t *bytes, uint32_t part, int64_t at)
{
    for (uint32_t i = 0; i < sg->stash.value.n; i++)
        if (sg->stash.part.at[i] == part) {
            sg->stash.at.at[i] = at;
            at += bytes[i];
        }
    return at;
}

void cg_again(StageGen *sg, const uint32_t *root_of)
{
    uint32_t n = sg->stash.value.n;
    int64_t *bytes = arena_array(sg->a, int64_t, n + 1);
    for (uint32_t i = 0; i < n; i++)
        bytes[i] = (i + 1 < n ? sg->stash.at.at[i + 1] : sg->stash.bytes) - sg->stash.at.at[i];
    find_parts(sg, root_of);
    number_parts(sg);
    int64_t at = sg->stash.bytes = place_block_at(sg, bytes, NONE, 0);
    for (uint32_t k = 0; k < sg->stash.again.n; k++) {
        sg->stash.again.at[k].at = at;
        at = place_block_at(sg, bytes, k, at);
        sg->stash.again.at[k].bytes = at - sg->stash.again.at[k].at;
    }
}
