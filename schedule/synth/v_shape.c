/*
 * v_shape.c - the V family of Pipeline Parallelism with Controllable Memory (Qi et al.,
 * 2405.15362) by name: two chunks a rank, placed as a V, and a limit of microbatch-chunks alive.
 *
 * In: ranks, microbatches, the limit of a name.  Out: rows for F = I = W.  Those with a divided
 * backward are v_block.c's; 1f1b-v is what the search (search.c) finds.  For other costs there is
 * `auto`.
 */
#include "synth.h"

#include "schedule/generate/generate.h"

enum { WORK = 1 << 20 }; /* decisions that the search may look at */

static int made(SchedGen *g, int chunks, int found)
{
    return found > 0   ? SCHED_OK
           : found < 0 ? sched_nomem(g->e)
                       : sched_fail(g->e, SCHED_EREFUSED, -1, -1,
                                    "found no schedule of the V family on %d ranks with at most %d "
                                    "microbatch-chunks alive",
                                    g->p, chunks);
}

/* The backward undivided; -1: no memory */
static int searched(SchedGen *g, int chunks)
{
    SchedGraph graph;
    SynthTask t;
    const SynthAsk ask = {.span = 1, .whole = 1, .work = WORK};
    if (sched_graph(&graph, g->s->stages, NULL, 0, NULL, 0, g->e))
        return -1;
    int found = -1;
    if (synth_task(&t, &graph, g->p, g->m, g->s->rank_of)) {
        for (int s = 0; s < t.stages; s++) {
            t.f[s] = t.i[s] = t.w[s] = t.stash[s] = t.late[s] = 1;
            t.b[s] = 2;
        }
        for (int r = 0; r < t.ranks; r++)
            t.limit[r] = chunks;
        synth_task_ready(&t);
        found = synth_search(&t, &ask, g->s->row);
    }
    synth_task_free(&t);
    sched_graph_free(&graph);
    return found;
}

static int divided(SchedGen *g, int chunks)
{
    return made(g, chunks, synth_v(g->p, g->m, chunks, SYNTH_V_WORK, g->s->row));
}

int sched_gen_vhalf(SchedGen *g) { return divided(g, 2 * ((g->p + 2) / 2)); }

int sched_gen_vmin(SchedGen *g) { return divided(g, 2 * ((g->p + 4) / 3)); }

int sched_gen_v(SchedGen *g) { return divided(g, g->round); }

int sched_gen_1f1bv(SchedGen *g)
{
    const int chunks = 2 * ((2 * g->p + 4) / 3);
    return made(g, chunks, searched(g, chunks));
}
