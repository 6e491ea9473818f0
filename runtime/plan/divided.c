/*
 * divided.c - what I and W take beside their parts of a B.
 *
 * In: a stage's table, rates of the machine.  What I leaves behind for W (bytes_saved) is read from
 * memory, where B finds it in a cache: I writes it as B does.  And what both read, but neither
 * keeps, such as an activation that is cheaper made again than stored, W makes once more.
 */
#include "divided.h"

double plan_divided(const PpStage *st, const DividedRates *r)
{
    if (st->flops_input == 0)
        return 0;
    return (double)st->bytes_saved / r->moves + (double)st->twice_quick / r->quick +
           (double)st->twice_functions / r->functions;
}
