/*
 * flows.c - what goes from one box of the model to another.
 *
 * In: every node in a box.  Out: the boxes of inputs and outputs, and a flow for each two boxes and
 * kind between them, with its values and bytes; what crosses into a stage is counted once there.
 * Parameters belong to the box that reads them first.
 */
#include "modules.h"

typedef struct {
    const Modules *m;
    Arena *a;
    ModuleGraph *out;
    IdMap flow[3]; /* by kind: (from, to) -> its number */
    IdMap counted; /* (value, stage), (value, box) */
} Flows;

static void add_flow(Flows *f, uint32_t from, uint32_t to, EdgeKind kind, int64_t bytes,
                     const char *name)
{
    uint32_t *slot = idmap_at(f->a, &f->flow[kind], pair(from, to));
    if (*slot == NONE) {
        *slot = f->out->flow.n;
        vec_push(f->a, &f->out->flow, ((ModuleFlow){from, to, kind, 0, 0, NULL}));
    }
    ModuleFlow *x = &f->out->flow.at[*slot];
    if (!name)
        return; /* counted before */
    x->name = x->values++ ? NULL : name;
    x->bytes = __builtin_add_overflow(x->bytes, bytes, &x->bytes) ? INT64_MAX : x->bytes;
}

static uint32_t end_box(Flows *f, BoxKind kind, uint32_t stage, const char *name)
{
    vec_push(f->a, &f->out->box, ((ModuleBox){kind, name, stage, 0, 0, 0}));
    return f->out->box.n - 1;
}

/* A value that a node reads, of another box, or data.  Between stages it is counted once. */
static void add_read(Flows *f, const Item *it, ValueId v, const IdMap *from, IdMap *data)
{
    const Pipe *p = f->m->p;
    uint32_t source = idmap_get(from, v), made_in = source == NONE ? it->stage : source;
    uint32_t maker = idmap_get(&f->m->maker, pair(made_in, v)), box = NONE;
    if (v >= p->graph->value.n)
        return;
    if (maker != NONE) {
        box = f->m->item.at[maker].box;
    } else if (val(p->graph, v)->kind == V_INPUT && v != p->loss_scale) {
        uint32_t *slot = idmap_at(f->a, data, v);
        if (*slot == NONE)
            *slot = end_box(f, BOX_INPUT, it->stage, val(p->graph, v)->name);
        box = *slot;
    }
    if (box == NONE || box == it->box)
        return;
    uint32_t reader = source == NONE ? it->box : f->m->boxes + it->stage;
    uint32_t *once = idmap_at(f->a, &f->counted, pair(v, reader));
    add_flow(f, box, it->box, EDGE_ACTIVATION, value_bytes(p->graph, v),
             *once == NONE ? val(p->graph, v)->name : NULL);
    *once = 1;
}

static void put_reads(Flows *f)
{
    uint32_t stage = NONE;
    IdMap from = {0}, data = {0};
    for (uint32_t i = 0; i < f->m->item.n; i++) {
        const Item *it = &f->m->item.at[i];
        const Stage *s = &f->m->p->stage.at[it->stage];
        if (it->stage != stage) {
            from = data = (IdMap){0};
            for (uint32_t k = 0; k < s->input.n; k++)
                if (s->input.at[k].from != NONE)
                    *idmap_at(f->a, &from, s->input.at[k].value) = s->input.at[k].from;
            stage = it->stage;
        }
        const Node *n = node_of(f->m, it);
        for (uint32_t k = 0; k < n->nin; k++)
            if (n->in[k] != NONE)
                add_read(f, it, n->in[k], &from, &data);
    }
}

static void put_outputs(Flows *f)
{
    const Pipe *p = f->m->p;
    for (uint32_t t = 0; t < p->stage.n; t++)
        for (uint32_t k = 0; k < p->stage.at[t].output.n; k++) {
            const StageOutput *o = &p->stage.at[t].output.at[k];
            uint32_t maker = idmap_get(&f->m->maker, pair(t, o->value));
            if (maker == NONE)
                continue;
            for (uint32_t i = 0; i < o->outputs.n; i++) {
                uint32_t at = o->outputs.at[i];
                const char *name = at < p->graph->output_name.n ? p->graph->output_name.at[at]
                                                                : val(p->graph, o->value)->name;
                add_flow(f, f->m->item.at[maker].box, end_box(f, BOX_OUTPUT, t, name),
                         EDGE_ACTIVATION, value_bytes(p->graph, o->value), name);
            }
        }
}

/* Where a stage first reads its parameters: (stage, value) -> box. */
static IdMap first_readers(const Flows *f)
{
    IdMap at = {0};
    for (uint32_t i = 0; i < f->m->item.n; i++) {
        const Item *it = &f->m->item.at[i];
        const Node *n = node_of(f->m, it);
        for (uint32_t k = 0; k < n->nin; k++) {
            uint32_t *slot = idmap_at(f->a, &at, pair(it->stage, n->in[k]));
            *slot = *slot == NONE ? it->box : *slot;
        }
    }
    return at;
}

/* Parameters belong to the box that reads them first; shared ones join boxes of several stages. */
static void put_parameters(Flows *f)
{
    const Pipe *p = f->m->p;
    IdMap at = first_readers(f);
    for (uint32_t t = 0; t < p->stage.n; t++)
        for (uint32_t k = 0; k < p->stage.at[t].param.n; k++) {
            const ParamUse *u = &p->stage.at[t].param.at[k];
            const Param *q = &p->graph->param.at[u->param];
            uint32_t here = idmap_get(&at, pair(t, q->value)),
                     there = idmap_get(&at, pair(u->from, q->value));
            if (here == NONE)
                continue;
            if (u->use != USE_TRANSMIT && !q->stat)
                f->out->box.at[here].parameters += shape_elements(&q->shape);
            if (u->use != USE_OWN && u->from != t && there != NONE)
                add_flow(f, there, here, q->trainable ? EDGE_PARAMETER : EDGE_CONSTANT,
                         value_bytes(p->graph, q->value), q->name);
        }
}

void module_flows(const Modules *m, Arena *a, ModuleGraph *out)
{
    Flows f = {.m = m, .a = a, .out = out};
    put_reads(&f);
    put_parameters(&f);
    put_outputs(&f);
}
