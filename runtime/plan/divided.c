/*
 * divided.c - what I and W take beside their parts of a B.
 *
 * In: a stage's table, rates of the machine.  What I leaves behind for W (bytes_saved) goes to
 * memory and comes from there, where B has it in a cache.  And what both read, but neither keeps,
 * such as an activation that is cheaper made again than stored, W makes once more, in loops of its
 * own.
 */
#include "divided.h"

Divided plan_divided(const PpStage *st, const DividedRates *r)
{
    if (st->flops.input == 0)
        return (Divided){0};
    const double left = (double)st->bytes.saved / r->left / 2; /* on either way */
    return (Divided){.input = left,
                     .weight = left + (double)st->twice.quick / r->quick +
                               (double)st->twice.functions / r->functions +
                               (double)st->twice.bytes / r->traffic};
}
