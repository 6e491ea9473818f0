/*
 * signature.c - what a step computes, whatever buffers it is given.  In: a step.  Out: a number,
 * the same for two steps of a stage exactly when the same text serves both: the same statements
 * over the same extents and strides, the same roles and sharing of their arguments.
 */
#include <string.h>

#include "base/file/hash.h"
#include "plan.h"

typedef struct { Arena *a; uint8_t *at; uint32_t n, cap; } Record;

static void put(Record *b, const void *p, size_t n)
{
    while (b->n + n > b->cap)
        b->at = arena_grow_(b->a, b->at, &b->cap, 1);
    memcpy(b->at + b->n, p, n);
    b->n += (uint32_t)n;
}

static void put_text(Record *b, const char *s) { put(b, s ? s : "", s ? strlen(s) + 1 : 1); }
static void put_int(Record *b, int64_t x) { put(b, &x, sizeof x); }

/* an array and how long it is */
#define LIST(...)                                                                                  \
    (const int64_t[]){__VA_ARGS__}, (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static void put_each(Record *b, const int64_t *x, int n)
{
    for (int i = 0; i < n; i++)
        put_int(b, x[i]);
}

static void put_lin(Record *b, Lin x) { put_each(b, LIST(x.c, x.b)); }

static void put_lins(Record *b, const Lin *x, int n)
{
    for (int i = 0; i < n; i++)
        put_lin(b, x[i]);
}

static void put_ints(Record *b, const int64_t *x, int n)
{
    put_int(b, x != NULL);
    put_each(b, x, x ? n : 0);
}

static void put_statement(Record *b, const Nest *n, const Stmt *s)
{
    put_ints(b, LIST((int64_t)s->kind, (int64_t)s->op, (int64_t)s->type, s->nin, s->arg, s->nindex,
                     s->nguard, s->ki, s->acc, s->row, s->pass, s->last, s->keep));
    put(b, &s->k, sizeof s->k);
    for (uint32_t i = 0; i < s->nin; i++)
        put_int(b, s->in[i]);
    put_lin(b, s->base);
    put_lins(b, s->stride, n->nd);
    for (uint32_t i = 0; i < s->nindex; i++) {
        put_int(b, s->index[i].in);
        put_lin(b, s->index[i].extent);
        put_lin(b, s->index[i].stride);
        put_int(b, s->index[i].within);
    }
    for (uint32_t i = 0; i < s->nguard; i++) {
        put_lins(b, s->guard[i].coef, n->nd);
        put_int(b, s->guard[i].lo);
        put_lin(b, s->guard[i].hi);
    }
}

static void put_nest(Record *b, const Step *s)
{
    const Nest *n = s->nest;
    put_ints(b, LIST((int64_t)n->kind, n->nd, n->nouter, n->nrun, n->passes, n->arg.n, n->stmt.n));
    put_lins(b, n->ext, n->nd);
    for (uint32_t i = 0; i < n->arg.n; i++) {
        put_each(b, LIST((int64_t)n->arg.at[i].type, n->arg.at[i].acc, n->arg.at[i].optional));
        put_lin(b, n->arg.at[i].moves);
        put_int(b, s->shared[i]);
    }
    for (uint32_t i = 0; i < n->stmt.n; i++)
        put_statement(b, n, &n->stmt.at[i]);
}

static void put_product(Record *b, const Product *p)
{
    put_ints(b, LIST((int64_t)p->type, p->adds, p->biased, p->transposed_a, p->transposed_b,
                     p->nb, (int64_t)p->packed));
    const Lin sizes[] = {p->m, p->n, p->k, p->a.ld, p->b.ld, p->c.ld};
    put_lins(b, sizes, (int)(sizeof sizes / sizeof *sizes));
    put_lins(b, p->count, p->nb);
    put_lins(b, p->a.stride, p->nb);
    put_lins(b, p->b.stride, p->nb);
    put_lins(b, p->c.stride, p->nb);
    if (p->n_known)
        put_lins(b, p->length, (int)p->n_known);
}

static void put_parts(Record *b, const Chunks *p)
{
    for (int x = 0; p && x < MESH_AXES; x++) {
        const Chunk *c = &p->along[x];
        put_ints(b, LIST(c->axis, c->piece, c->pieces, c->chunks, c->groups));
    }
}

static void put_attention(Record *b, const AttentionStep *t)
{
    const AttentionAttr *at = t->attr;
    put_ints(b, LIST((int64_t)t->type, (int64_t)t->bias_type, t->back, t->width, t->width_v, t->nb,
                     at->causal, at->diagonal, at->window, at->bias, at->mask, at->forbids));
    if (at->step)
        put_each(b, LIST(at->step, at->by));
    put(b, &at->scale, sizeof at->scale);
    put(b, &at->fill, sizeof at->fill);
    put(b, &t->ratio, sizeof t->ratio);
    put_lin(b, t->rows);
    put_lin(b, t->keys);
    put_lins(b, t->count, t->nb);
    put_lins(b, t->random_row, t->nb);
    put_lins(b, t->random_element, t->nb);
    put_parts(b, t->chunk);
    put_ints(b, t->random_chunk, MESH_AXES);
    put_int(b, t->room);
    for (int i = 0; i < SIDES; i++) {
        put_int(b, t->side[i].arg);
        put_lin(b, t->side[i].row);
        put_lin(b, t->side[i].col);
        put_lins(b, t->side[i].batch, t->nb);
    }
}

static void put_value(Record *b, const Func *f, ValueId v)
{
    const Value *x = val(f->g, v);
    put_each(b, LIST((int64_t)x->dtype, x->batch, x->shape.rank));
    put_ints(b, x->shape.d, x->shape.rank);
}

static void put_node(Record *b, const Func *f, const Node *n)
{
    const Attr *at = &n->attr;
    bool window = n->op == OP_MaxPool || n->op == OP_AveragePool;
    bool keyed = n->op == OP_Dropout || n->op == OP_Random;
    put_ints(b, LIST((int64_t)n->op, at->n, at->group, keyed ? 0 : at->axis, at->k, at->mode,
                     (int64_t)at->to, n->nin, n->nout));
    if (keyed)
        put_parts(b, at->piece);
    put(b, &at->value, sizeof at->value);
    put_ints(b, at->dims, at->n);
    put_ints(b, at->size, at->n);
    put_ints(b, at->step, window ? 2 * at->n : at->n);
    put_ints(b, at->kernel, at->n);
    for (uint32_t i = 0; i < n->nin; i++) {
        put_int(b, n->in[i] != NONE && cg_kernel_reads(f, n, i));
        if (n->in[i] != NONE)
            put_value(b, f, n->in[i]);
    }
    for (uint32_t i = 0; i < n->nout; i++) {
        put_each(b, LIST(cg_kernel_writes(f, n, i), f->acc.at[n->out[i]]));
        put_value(b, f, n->out[i]);
    }
}

static void put_kernel(Record *b, const Func *f, const Node *n)
{
    put_node(b, f, n);
    /* the gradient of a pool scatters by that pool's planes */
    if (n->op == OP_ScatterElements) {
        const Node *pool = graph_made_by(f->g, graph_behind_views(f->g, n->in[1]), OP_MaxPool);
        if (pool)
            put_node(b, f, pool);
    }
}

static void put_collective(Record *b, const Collective *c)
{
    put_each(b, LIST(c->kind, (int64_t)c->part));
    put_lins(b, c->size, c->n_size);
    put_int(b, c->first);
}

static void put_custom(Record *b, const Step *s)
{
    const Custom *c = s->custom;
    put_text(b, c->of->function);
    put(b, c->of->number, c->of->n_number * sizeof *c->of->number);
    for (uint32_t k = 0; k < s->arg.n; k++) {
        put_int(b, (int64_t)c->type[k]);
        put_lins(b, c->size[k], c->rank[k]);
    }
}

static void put_ports(Record *b, const LoopPort *port, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        put_each(b, LIST(port[i].state, port[i].arg));
        put_lin(b, port[i].apart);
    }
}

static void put_step(Record *b, const Func *f, const Step *s);

/* Its body's steps, and where what they read and write stands. */
static void put_loop(Record *b, const Loop *l)
{
    const Func *f = l->body->func[F_FORWARD];
    put_each(b, LIST(l->steps, l->reverse, l->body_room, f->bytes.work));
    put_ports(b, l->in, l->nin);
    put_ports(b, l->out, l->nout);
    for (uint32_t i = 0; i < f->step.n; i++) {
        put_step(b, f, &f->step.at[i]);
        put_int(b, f->step.at[i].key);
        for (uint32_t j = 0; j < f->step.at[i].arg.n; j++) {
            const Buffer *x = &f->buf.at[f->step.at[i].arg.at[j].buf];
            put_each(b, LIST((int64_t)x->cls, x->cls == BUF_WORK ? x->offset : (int64_t)x->index));
        }
    }
}

static void put_step(Record *b, const Func *f, const Step *s)
{
    put_each(b, LIST((int64_t)s->kind, s->empty, s->arg.n));
    for (uint32_t i = 0; i < s->arg.n; i++) {
        const StepArg *x = &s->arg.at[i];
        put_lin(b, x->offset);
        put_each(b, LIST(x->written, (int64_t)x->role));
        put_text(b, x->known);
        put_int(b, (int64_t)f->buf.at[x->buf].type);
    }
    if (s->kind == STEP_NEST)
        put_nest(b, s);
    else if (s->empty || s->kind == STEP_KERNEL)
        put_kernel(b, f, &f->g->node.at[s->node]);
    else if (s->kind == STEP_CUSTOM)
        put_custom(b, s);
    else if (s->kind == STEP_LOOP)
        put_loop(b, s->loop);
    else if (s->kind == STEP_PRODUCT)
        put_product(b, s->product);
    else if (s->kind == STEP_ATTENTION)
        put_attention(b, s->attention);
    else if (s->kind == STEP_COLLECTIVE)
        put_collective(b, s->collective);
    else {
        const Convolution *c = s->convolution;
        put_ints(b, LIST((int64_t)c->op, c->shape, c->adds));
        put_lin(b, c->rows);
        put_int(b, s->then != NULL);
        if (s->then)
            put_nest(b, s->then);
    }
}

uint32_t cg_signature(Func *f, const Step *s)
{
    Signatures *k = &f->sg->print.signatures;
    Record b = {f->sg->a, k->room.at, 0, k->room.cap};
    put_step(&b, f, s);
    k->room.at = b.at;
    k->room.cap = b.cap;
    for (uint64_t h = hash_bytes(HASH_START, b.at, b.n);; h++) {
        uint32_t *number = idmap_at(f->sg->a, &k->of, h);
        const Signature *x = *number == NONE ? NULL : &k->list.at[*number];
        if (x && x->n == b.n && !memcmp(x->bytes, b.at, b.n))
            return *number;
        if (x)
            continue;
        uint8_t *bytes = arena_alloc(f->sg->a, b.n);
        memcpy(bytes, b.at, b.n);
        *number = k->list.n;
        vec_push(f->sg->a, &k->list, ((Signature){bytes, b.n}));
        return k->list.n - 1;
    }
}
