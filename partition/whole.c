/*
 * whole.c - --loss-over minibatch: the Pipe in two sizes.
 *
 * In: a Pipe after autodiff/reverse.c, with the shapes of a whole minibatch, whose last stage is
 * the loss.  Out: a twin that keeps these shapes and of which only the last stage counts, and the
 * Pipe itself with the shapes of a microbatch, without that stage's programs.  What crosses between
 * the two is gathered and handed out row by row at run time.
 */
#include "partition.h"

const Stage *pipe_programs(const Pipe *p, uint32_t t)
{
    const Stage *s = &p->stage.at[t];
    return s->elsewhere && p->whole ? &p->whole->stage.at[t] : s;
}

static void leave(Stage *s)
{
    s->forward.n = s->infer.n = s->backward.n = 0;
    s->elsewhere = true;
}

/* The nodes that run with the rows of a microbatch. */
static Ids programs(const Pipe *p)
{
    Ids all = {0};
    for (uint32_t t = 0; t < p->stage.n; t++) {
        const Ids *const lists[] = {&p->stage.at[t].nodes, &p->stage.at[t].backward};
        for (int k = 0; k < 2 && !p->stage.at[t].elsewhere; k++)
            for (uint32_t i = 0; i < lists[k]->n; i++)
                vec_push(p->graph->arena, &all, lists[k]->at[i]);
    }
    return all;
}

static void shrink(Pipe *p, int64_t rows)
{
    Ids list = programs(p);
    graph_resize(p->graph, rows, &list);
    for (uint32_t e = 0; e < p->edge.n; e++)
        if (p->edge.at[e].kind == EDGE_ACTIVATION)
            p->edge.at[e].bytes = value_bytes(p->graph, p->edge.at[e].value);
}

void pipe_whole(Pipe *p, int64_t rows)
{
    if (!p->loss_whole)
        return;
    uint32_t last = p->stage.n - 1;
    p->whole = pipe_twin(p);
    p->whole->uneven.n = 0;
    for (uint32_t i = 0; i < p->uneven_loss.n; i++)
        vec_push(p->graph->arena, &p->whole->uneven, p->uneven_loss.at[i]);
    for (uint32_t t = 0; t < last; t++)
        leave(&p->whole->stage.at[t]);
    leave(&p->stage.at[last]);
    if (rows != p->graph->batch && p->uneven.n > 0) {
        diag_note("%s", p->uneven.at[0]);
        diag_fatal(EXIT_MODEL, WHERE_FILE(p->graph->file),
                   "--loss-over minibatch: the model runs with exactly %lld rows a microbatch, not "
                   "with %lld",
                   (long long)p->graph->batch, (long long)rows);
    }
    shrink(p, rows);
}
