/*
 * ranks.c - what a rank is called.
 */
#include "core.h"

#include <stdio.h>

static struct {
    int ranks, members;
} shape = {1, 1};

void pp_rank_shape(int ranks, int members)
{
    shape.ranks = ranks > 1 ? ranks : 1;
    shape.members = members;
}

RankName pp_rank(int number)
{
    RankName r;
    int pipe = number / shape.members;
    int at = snprintf(r.text, sizeof r.text, "rank %d", number);
    if (shape.members > 1)
        snprintf(r.text + at, sizeof r.text - (size_t)at, " (replica %d, pipe %d, member %d)",
                 pipe / shape.ranks, pipe % shape.ranks, number % shape.members);
    return r;
}
