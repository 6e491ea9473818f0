/*
 * loop.c - a Recurrence as a step.  In: the node, its arguments.  Out: its body as a stage of its
 * own, with one function, and what that function's inputs and outputs are among the arguments.
 *
 * A state that a step leaves is the next one's: it stands in two places by turns, such that the
 * last one is where the result is.  Both, and the workspace of a step, which is arranged once,
 * stand behind the workspace of the function.
 */
#include "plan.h"

/* The step's argument that is this value; NONE: it has none. */
static uint32_t argument(const Step *s, ValueId v, bool written)
{
    for (uint32_t i = 0; i < s->arg.n; i++)
        if (s->arg.at[i].value == v && s->arg.at[i].written == written)
            return i;
    return NONE;
}

/* Bytes of one step's part. */
static Lin apart(const Func *f, ValueId v)
{
    const Value *x = val(f->g, v);
    return lin_times(cg_span(f, v, 1, x->shape.rank), (int64_t)dtype_size(x->dtype));
}

/* The body with the sequences that somebody reads; which: their numbers, those of states first. */
static Pipe *pipe_of(const Func *f, const Node *n, Ids *which)
{
    Arena *a = f->sg->a;
    Graph *body = body_placed(f->g, n, a);
    uint32_t kept = 0;
    for (uint32_t o = 0; o < body->output.n; o++) {
        if (o >= n->attr.recurrence->states && !cg_kernel_writes(f, n, o))
            continue;
        vec_push(a, which, o);
        body->output.at[kept++] = body->output.at[o];
    }
    body->output.n = kept;
    const PartitionOptions own = {
        .alone = arena_printf(a, "%s_loop%u", f->sg->name, f->sg->loops.body.n)};
    return pipe_build(body, &own, NULL);
}

static const LoopPort *inputs(const Func *f, const Node *n, const Step *s, const Pipe *p)
{
    const Recurrence *r = n->attr.recurrence;
    const Stage *of = &p->stage.at[0];
    LoopPort *port = arena_array(f->a, LoopPort, of->input.n + 1);
    for (uint32_t k = 0; k < of->input.n; k++) {
        uint32_t i = 0;
        while (p->graph->input.at[i] != of->input.at[k].value)
            i++;
        port[k] = (LoopPort){.state = i < r->states ? i : NONE,
                             .arg = argument(s, n->in[i], false),
                             .apart = recurrence_is_sequence(r, i) ? apart(f, n->in[i]) : lin(0)};
    }
    return port;
}

static const LoopPort *outputs(const Func *f, const Node *n, const Step *s, const Stage *of,
                               const Ids *which)
{
    const Recurrence *r = n->attr.recurrence;
    LoopPort *port = arena_array(f->a, LoopPort, of->output.n + 1);
    for (uint32_t k = 0; k < of->output.n; k++) {
        const uint32_t o = which->at[of->output.at[k].outputs.at[0]];
        port[k] = (LoopPort){.state = o < r->states ? o : NONE,
                             .arg = argument(s, n->out[o], true),
                             .apart = o < r->states ? lin(0) : apart(f, n->out[o])};
    }
    return port;
}

void cg_loop(Func *f, const Node *n, Step *s)
{
    const Recurrence *r = n->attr.recurrence;
    Loop *l = arena_new_of(f->a, Loop);
    Ids which = {0};
    Pipe *p = pipe_of(f, n, &which);
    l->body = f->sg->loops.plan(f->sg, p);
    l->steps = recurrence_steps(f->g, n);
    l->reverse = r->reverse;
    l->nin = p->stage.at[0].input.n;
    l->nout = p->stage.at[0].output.n;
    l->in = inputs(f, n, s, p);
    l->out = outputs(f, n, s, &p->stage.at[0], &which);
    int64_t (*room)[2] = arena_calloc(f->a, r->states + 1, sizeof *room);
    for (uint32_t i = 0; i < r->states; i++)
        for (int k = 0; k < 2; k++) {
            room[i][k] = l->body_room;
            l->body_room += align_up(cg_most(f->sg, value_bytes(f->g, n->in[i])));
        }
    l->room = (const int64_t (*)[2])room;
    s->loop = l;
    const Func *step = l->body->func[F_FORWARD];
    const int64_t bytes = l->body_room + align_up(step->bytes.work + step->bytes.scratch);
    f->bytes.scratch = bytes > f->bytes.scratch ? bytes : f->bytes.scratch;
}
