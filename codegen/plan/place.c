/*
 * place.c - where values live.  In: a function's lowered list.  Out: a home for every value whose
 * place matters, and copies, nodes of their own, only where a consumer cannot read strides.
 *
 * Destinations are pushed backwards: what leaves the function (outputs, stash, gradients) has its
 * place; an input of a Concat gets a slice of the result's; through Transpose and Reshape the place
 * becomes a strided one of the operand, so that a product or a nest writes straight into it.  What
 * cannot take the offer is copied.
 */
#include "plan.h"

typedef struct {
    ValueId v;
    Ref at;
    bool acc, alone;
} Sink;
typedef struct {
    Func *f;
    VEC(Sink) sink;
    Readers readers; /* before copies are made */
    uint32_t *uses;
    bool *product_reads; /* by root */
    bool *plain;         /* read by strides: by a node that is no view, or at the end */
    /* read by a product, which takes several strides a batch dimension */
    bool *factor;
    VEC(ValueId) copy[2]; /* copies, by value: row-major, and for a device's products */
} Place;

/* A buffer as large as the place is. */
static void give_buffer(Func *f, Ref *r, BufClass cls, uint32_t index, ValueId v)
{
    r->buf = cg_buffer(f, cls, index, v);
    f->buf.at[r->buf].bytes = cg_ref_bytes(f, r, v);
}

static void set_home(Func *f, ValueId v, const Ref *r)
{
    Ref *home = arena_new_of(f->a, Ref);
    *home = *r;
    home->root = v;
    f->home.at[v] = home;
}

static Ref place_in(Func *f, BufClass cls, uint32_t index, ValueId v)
{
    Ref r = cls == BUF_STASH   ? *f->sg->stash.layout.at[index]
            : cls == BUF_SAVED ? *f->sg->saved.layout.at[index]
            : cls == BUF_OUT   ? *cg_edge(f->sg, v)
            : cls == BUF_DX    ? *cg_edge(f->sg, v)
                               : cg_dense(f, v);
    give_buffer(f, &r, cls, index, v);
    return r;
}

/* A gradient is added. */
static void sink_to(Place *p, BufClass cls, uint32_t index, ValueId v)
{
    Sink s = {.v = v, .acc = cls == BUF_GRAD, .at = place_in(p->f, cls, index, v)};
    vec_push(p->f->scratch, &p->sink, s);
}

/* Does the function make what is in that part of the stash, NONE: in none? */
static bool forward_of(const Func *f, uint32_t part)
{
    return f->kind == F_FORWARD || (part != NONE && part + F_AGAIN == (uint32_t)f->kind);
}

static void sinks(Place *p)
{
    Func *f = p->f;
    Stage *s = f->sg->stage;
    bool forward = f->kind == F_FORWARD || f->kind == F_INFER;
    for (uint32_t i = 0; forward && i < s->output.n; i++)
        sink_to(p, BUF_OUT, i, s->output.at[i].value);
    for (uint32_t i = 0; i < f->sg->stash.value.n; i++)
        if (forward_of(f, f->sg->stash.part.at[i]))
            sink_to(p, BUF_STASH, i, f->sg->stash.value.at[i]);
    for (uint32_t i = 0; f->kind == F_FORWARD && i < s->param.n; i++)
        for (uint32_t u = 0; u < f->g->update.n; u++) {
            ValueId v = f->g->update.at[u].value;
            if (f->g->update.at[u].param != s->param.at[i].param || f->def.at[v] == NONE)
                continue;
            sink_to(p, BUF_PARAM, i, f->g->param.at[s->param.at[i].param].value);
            Sink *sink = &p->sink.at[p->sink.n - 1];
            sink->v = v, sink->alone = true;
        }
    uint32_t dx = 0;
    for (uint32_t i = 0; i < s->input.n; i++)
        for (uint32_t j = 0; j < s->input.at[i].grads.n; j++, dx++)
            if (f->kind == F_BACKWARD || f->kind == F_INPUT)
                sink_to(p, BUF_DX, dx, s->input.at[i].grads.at[j]);
    for (uint32_t i = 0; f->kind == F_INPUT && i < f->sg->saved.value.n; i++)
        sink_to(p, BUF_SAVED, i, f->sg->saved.value.at[i]);
    for (uint32_t i = 0; i < s->param.n; i++)
        for (uint32_t j = 0; j < s->param.at[i].grads.n; j++)
            if (f->kind == F_BACKWARD || f->kind == F_WEIGHT)
                sink_to(p, BUF_GRAD, i + s->param.at[i].of_use.at[j] * s->param.n,
                        s->param.at[i].grads.at[j]);
}

static void count_uses(Place *p)
{
    Func *f = p->f;
    p->readers = cg_readers(f, &f->node, 1);
    p->uses = arena_array(f->scratch, uint32_t, f->g->value.n + 1);
    p->plain = arena_array(f->scratch, bool, f->g->value.n + 1);
    p->factor = arena_array(f->scratch, bool, f->g->value.n + 1);
    p->product_reads = arena_array(f->scratch, bool, f->g->value.n + 1);
    for (uint32_t i = 0; i < f->node.n; i++) {
        const Node *n = &f->g->node.at[f->node.at[i]];
        for (uint32_t j = 0; j < n->nin; j++) {
            const ValueId x = n->in[j];
            if (x == NONE)
                continue;
            p->uses[x] += node_reads(n, j, func_trains(f) ? TRAINING : INFERENCE);
            if (cg_is_view(f, f->node.at[i]))
                continue;
            const bool product = cg_is_factor(f, n, j);
            (product || cg_is_attention(n) ? p->factor : p->plain)[x] = true;
            p->product_reads[cg_root(f, x)] |= product && cg_product_reads(f, x);
        }
    }
    for (uint32_t i = 0; i < p->sink.n; i++) {
        p->uses[p->sink.at[i].v]++;
        p->plain[p->sink.at[i].v] = true;
    }
}

/* The innermost dimension stays the contiguous one: a row of it is read as it lies. */
bool cg_keeps_inner(const Ref *r)
{
    for (int d = r->rank - 1; d >= 0; d--)
        if (!lin_is(r->ext[d], 1))
            return lin_is(r->stride[d], 1);
    return true;
}

/* What products read stands as what made it has it, whoever reads it: the library's order of
   additions follows how operands and results stand, and a reader may be behind a cut (edge.c).  So
   no product writes its result turned round either. */
static bool may_turn(const Place *p, const Node *n, ValueId v)
{
    return !p->product_reads[v] && n->op != OP_MatMul && n->op != OP_PackedMatMul;
}

/* May the value's elements stand there?  If so, its root's home is settled. */
static bool offer_wide(Place *p, ValueId v, const Wide *want, bool acc)
{
    Func *f = p->f;
    NodeId def = f->def.at[v];
    if (def == NONE || f->home.at[v] || (acc && p->uses[v] != 1))
        return false;
    const Node *n = &f->g->node.at[def];
    if (cg_is_view(f, def)) {
        Wide w;
        if (!acc && cg_recuts(f, n) && !cg_in_order(f, want))
            return false; /* a copy that it breaks would stand in order, and products read that */
        return cg_view_invert(f, n, want, &w) && offer_wide(p, cg_view_operand(f, n), &w, acc);
    }
    Ref r;
    uint32_t out = 0;
    while (n->out[out] != v)
        out++;
    if (!cg_narrow(f, want, v, &r) || (!acc && !cg_keeps_inner(&r) && !may_turn(p, n, v)) ||
        (!acc && p->product_reads[v] && !cg_in_order(f, want)))
        return false;
    if (!cg_fusable(n) && (!cg_call_writes(f, n, &r) || (acc && !cg_call_adds(f, n))))
        return false;
    set_home(f, v, &r);
    f->acc.at[v] = acc;
    return true;
}

static bool offer(Place *p, ValueId v, const Ref *want, bool acc)
{
    Wide w = cg_widen(want);
    return offer_wide(p, v, &w, acc);
}

/* The root below v through views that keep all elements, when it has no place yet. */
static ValueId homeless(const Func *f, ValueId v)
{
    while (f->def.at[v] != NONE && cg_is_view(f, f->def.at[v])) {
        const Node *n = &f->g->node.at[f->def.at[v]];
        if (n->op == OP_Slice || n->op == OP_Split || n->op == OP_Expand)
            return NONE;
        v = cg_view_operand(f, n);
    }
    return f->def.at[v] == NONE || f->home.at[v] ? NONE : v;
}

/* The place of operand j of a Concat in its result's. */
static Ref place_of_part(const Func *f, const Node *n, uint32_t j, const Ref *whole)
{
    Ref r = *whole;
    r.root = n->in[j];
    for (uint32_t i = 0; i < j; i++)
        r.off = lin_add(r.off, lin_times(whole->stride[n->attr.axis],
                                         val(f->g, n->in[i])->shape.d[n->attr.axis]));
    for (int d = 0; d < r.rank; d++) {
        r.ext[d] = cg_ext(f, n->in[j], d);
        if (lin_is(r.ext[d], 1))
            r.stride[d] = lin(0);
    }
    return r;
}

static Ref padded_or_dense(Place *p, ValueId v)
{
    Ref r;
    return cg_pad(p->f, v, &p->readers, &r) ? r : cg_own(p->f, v);
}

static void set_own_home(Func *f, ValueId v, Ref r)
{
    give_buffer(f, &r, BUF_WORK, 0, v);
    set_home(f, v, &r);
}

/* A view whose reader cannot take it as it is. */
static bool broken(Place *p, ValueId v)
{
    Ref r;
    if (cg_ref_try(p->f, v, &r))
        return false;
    return p->plain[v] || (p->factor[v] && !cg_product_reads(p->f, v));
}

static void push_back(Place *p)
{
    Func *f = p->f;
    for (uint32_t i = f->node.n; i-- > 0;) {
        const Node *n = &f->g->node.at[f->node.at[i]];
        if (n->op == OP_Concat) {
            if (!f->home.at[n->out[0]])
                set_own_home(f, n->out[0], padded_or_dense(p, n->out[0]));
            Ref whole = *f->home.at[n->out[0]];
            for (uint32_t j = 0; j < n->nin; j++) {
                Ref r = place_of_part(f, n, j, &whole);
                /* a value that other calls read as well stays dense: they may not take strides */
                offer(p, n->in[j], &r, false);
            }
        } else if (cg_is_view(f, f->node.at[i]) && n->nout == 1) {
            /* when strides cannot say it, lay the operand out so that they can */
            ValueId root = homeless(f, n->out[0]);
            if (root == NONE || !broken(p, n->out[0]))
                continue;
            Ref want = padded_or_dense(p, n->out[0]);
            want.buf = cg_buffer(f, BUF_WORK, 0, root);
            f->buf.at[want.buf].bytes = cg_ref_bytes(f, &want, n->out[0]);
            offer(p, n->out[0], &want, false);
        }
    }
}

/* The place of an elementwise result whose one operand v is: v may then be made there. */
static bool as_its_result(Place *p, ValueId v, NodeId reader, Ref *at)
{
    Func *f = p->f;
    if (p->uses[v] != 1 || !cg_fusable(&f->g->node.at[reader]) || cg_is_view(f, reader))
        return false;
    ValueId y = f->g->node.at[reader].out[0];
    const Ref *home = f->home.at[y], dense = cg_dense(f, v);
    if (!home || home->wide || home->rank != dense.rank || !lin_is(home->off, 0) ||
        val(f->g, y)->dtype != val(f->g, v)->dtype)
        return false;
    for (int d = 0; d < dense.rank; d++)
        if (!lin_eq(home->ext[d], dense.ext[d]))
            return false;
    *at = *home;
    at->root = v;
    return cg_keeps_inner(at);
}

/* What products read, and nothing else has a say in: rows a little apart; and what becomes such a
 * value in place. */
static void pad_rows(Place *p)
{
    Func *f = p->f;
    bool *leaves = arena_array(f->scratch, bool, f->g->value.n + 1);
    NodeId *reader = arena_array(f->scratch, NodeId, f->g->value.n + 1);
    for (uint32_t i = 0; i < p->sink.n; i++)
        leaves[cg_root(f, p->sink.at[i].v)] = true;
    for (uint32_t i = f->node.n; i-- > 0;) {
        NodeId id = f->node.at[i];
        const Node *n = &f->g->node.at[id];
        for (uint32_t o = 0; o < n->nout && !cg_is_view(f, id); o++) {
            ValueId v = n->out[o];
            Ref at;
            if (f->home.at[v] || leaves[v] || (!cg_fusable(n) && !cg_is_product(f, n)))
                continue;
            bool found = p->product_reads[v]
                             ? cg_pad(f, v, &p->readers, &at)
                             : !f->sg->device && cg_is_product(f, n) &&
                                   as_its_result(p, v, reader[v], &at);
            if (!found || (!cg_fusable(n) && !cg_call_writes(f, n, &at)))
                continue;
            set_own_home(f, v, at);
        }
        for (uint32_t j = 0; j < n->nin; j++)
            if (n->in[j] != NONE)
                reader[n->in[j]] = id;
    }
}

/* What a new node makes of v: of that type and shape. */
static ValueId made(Place *p, Op op, ValueId v, Value x, Attr attr, uint32_t origin, Ids *list)
{
    Func *f = p->f;
    ValueId y = cg_new_value(f, x.dtype, &x.shape, x.batch);
    NodeId id = cg_new_node(f, (Node){.op = op,
                                      .nin = 1,
                                      .in = &v,
                                      .nout = 1,
                                      .out = &y,
                                      .attr = attr,
                                      .origin = origin});
    f->g->value.at[y].node = id;
    cg_track(f);
    f->def.at[y] = id;
    vec_push(f->a, list, id);
    return y;
}

static ValueId copy_to(Place *p, ValueId v, const Ref *home, bool acc, uint32_t origin, Ids *list)
{
    ValueId c = made(p, OP_Identity, v, *val(p->f->g, v), (Attr){.copy = 1}, origin, list);
    p->f->acc.at[c] = acc;
    if (home)
        set_home(p->f, c, home);
    return c;
}

static ValueId reshaped(Place *p, ValueId v, Value to, uint32_t origin, Ids *list)
{
    return made(p, OP_Reshape, v, to, (Attr){.n = to.shape.rank}, origin, list);
}

/* A view with several strides a dimension is copied in the shape of its parts; the copy's place may
   be settled as that of the whole value. */
static ValueId copy_parts(Place *p, ValueId v, const Ref *place, uint32_t origin, Ids *list)
{
    Func *f = p->f;
    Value x = *val(f->g, v), flat = x;
    Wide w;
    flat.shape = (Shape){0}, flat.batch = BATCH_NONE;
    if (!cg_wide(f, v, &w) || w.n > MAX_RANK)
        BUG("value %u cannot be copied", v);
    for (int i = 0; i < w.n; i++) {
        if (w.ext[i].b != 0)
            flat.batch = flat.shape.rank;
        flat.shape.d[flat.shape.rank++] = lin_at(w.ext[i], f->g->batch);
    }
    ValueId parts = reshaped(p, v, flat, origin, list);
    ValueId copy = copy_to(p, parts, NULL, false, origin, list);
    ValueId whole = reshaped(p, copy, x, origin, list);
    Ref r;
    if (place) {
        Wide want = cg_widen(place), at;
        if (!cg_view_invert(f, &f->g->node.at[f->def.at[whole]], &want, &at) ||
            !cg_narrow(f, &at, copy, &r))
            BUG("value %u cannot be copied with its rows apart", v);
        f->buf.at[r.buf].value = copy;
        set_home(f, copy, &r);
    }
    return whole;
}

/* A copy, made once: row-major, or at a place without a buffer, for a device's products. */
static ValueId copied(Place *p, ValueId v, Ref *place, uint32_t origin, Ids *list)
{
    Func *f = p->f;
    const bool apart = place != NULL;
    while (p->copy[apart].n <= v)
        vec_push(f->scratch, &p->copy[apart], NONE);
    if (p->copy[apart].at[v] != NONE)
        return p->copy[apart].at[v];
    if (place)
        give_buffer(f, place, BUF_WORK, 0, v);
    const bool wide = cg_ref(f, v)->wide;
    const ValueId copy = wide ? copy_parts(p, v, place, origin, list)
                              : copy_to(p, v, place, false, origin, list);
    if (place && !wide)
        f->buf.at[place->buf].value = copy;
    return p->copy[apart].at[v] = copy;
}

/* The node with operand i replaced; the graph's own node stays as it is. */
static NodeId with_operand(Func *f, NodeId id, uint32_t i, ValueId v)
{
    Node n = f->g->node.at[id];
    NodeId clone = cg_new_node(f, n);
    f->g->node.at[clone].in[i] = v;
    for (uint32_t o = 0; o < n.nout; o++)
        f->def.at[n.out[o]] = clone;
    return clone;
}

static void settle(Place *p, NodeId id, Ids *list)
{
    Func *f = p->f;
    Node n = f->g->node.at[id];
    Wide w;
    Ref at;
    if (n.op == OP_Concat) {
        const Ref whole = *cg_ref(f, n.out[0]);
        for (uint32_t j = 0; j < n.nin; j++) {
            Ref want = place_of_part(f, &n, j, &whole);
            if (!cg_ref_same(cg_ref(f, n.in[j]), &want))
                id = with_operand(f, id, j, copy_to(p, n.in[j], &want, false, n.origin, list));
        }
    } else if (cg_is_view(f, id)) {
        /* copies before this one may have changed what strides can say: what no longer is a view at
         * all breaks here as well */
        for (uint32_t o = 0; o < n.nout; o++)
            if (broken(p, n.out[o]) || !cg_wide(f, n.out[o], &w))
                id = with_operand(f, id, 0, copied(p, n.in[0], NULL, n.origin, list));
    } else if (!cg_fusable(&n)) {
        for (uint32_t j = 0; j < n.nin; j++)
            if (n.in[j] != NONE && !cg_call_reads(f, &n, j)) {
                Ref *place = cg_factor_place(f, &n, j, &at) ? &at : NULL;
                id = with_operand(f, id, j, copied(p, n.in[j], place, n.origin, list));
            }
    }
    vec_push(f->a, list, id);
}

/* Where a chain of views has to be broken by a copy: at the first that has no strides, when one
 * after it must have them. */
static void mark_breaks(Place *p)
{
    Func *f = p->f;
    Ref r;
    for (uint32_t i = 0; i < f->node.n; i++) {
        const Node *n = &f->g->node.at[f->node.at[i]];
        if (!cg_is_view(f, f->node.at[i]))
            continue;
        for (uint32_t o = 0; o < n->nout; o++) {
            ValueId u = n->out[o];
            if (!broken(p, u))
                continue;
            for (;;) {
                ValueId x = cg_view_operand(f, &f->g->node.at[cg_maker(f, u)]);
                if (cg_ref_try(f, x, &r) || f->def.at[x] == NONE)
                    break;
                u = x;
            }
            p->plain[u] = true;
        }
    }
}

static void order_after(Func *f, NodeId first, NodeId then)
{
    vec_push(f->a, &f->after, first);
    vec_push(f->a, &f->after, then);
}

/* Sinks whose value stands elsewhere: a copy at the end.  Contributions to one gradient stay in
   their order, and a running statistic is overwritten after all have read it. */
static void finish(Place *p)
{
    Func *f = p->f;
    NodeId last = NONE;
    uint32_t last_index = NONE;
    for (uint32_t i = 0; i < p->sink.n; i++) {
        Sink *s = &p->sink.at[i];
        const Ref *is = cg_ref(f, s->v);
        NodeId maker = f->def.at[is->root], def = f->def.at[s->v];
        if (s->alone || !cg_ref_same(is, &s->at)) {
            uint32_t origin = def == NONE ? NONE : f->g->node.at[def].origin;
            maker = f->def.at[copy_to(p, s->v, &s->at, s->acc, origin, &f->node)];
            if (s->alone) {
                f->g->node.at[maker].attr.alone = 1;
                for (uint32_t j = 0; j + 1 < f->node.n; j++)
                    for (uint32_t k = 0; k < f->g->node.at[f->node.at[j]].nin; k++) {
                        ValueId x = f->g->node.at[f->node.at[j]].in[k];
                        if (x != NONE && !cg_is_view(f, f->node.at[j]) &&
                            cg_ref(f, x)->buf == s->at.buf)
                            order_after(f, f->node.at[j], maker);
                    }
            }
        }
        if (s->acc) {
            uint32_t index = f->buf.at[s->at.buf].index;
            if (last != NONE && last_index == index && maker != last)
                order_after(f, last, maker);
            last = maker;
            last_index = index;
        }
    }
}

/* Is v made of `of` alone by elementwise operations of v's shape, `depth` of them at most, the node
   that reads w among them? */
static bool made_through(const Func *f, ValueId v, NodeId reader, int depth)
{
    NodeId def = f->def.at[v];
    const Node *n = def == NONE ? NULL : &f->g->node.at[def];
    if (!n || depth == 0 || !op_is_map(n->op))
        return false;
    bool found = def == reader;
    for (uint32_t i = 0; i < n->nin && !found; i++)
        found = n->in[i] != NONE &&
                shape_equal(&val(f->g, n->in[i])->shape, &val(f->g, v)->shape) &&
                made_through(f, n->in[i], reader, depth - 1);
    return found;
}

/* A running statistic that nothing reads but what its new value is made of, element by element. */
static bool overwrites(const Place *p, const Sink *s)
{
    enum { DEEPEST = 4 };
    const Func *f = p->f;
    const ValueId w = f->buf.at[s->at.buf].value;
    bool only = shape_equal(&val(f->g, w)->shape, &val(f->g, s->v)->shape);
    for (uint32_t i = p->readers.first[w]; i < p->readers.first[w + 1] && only; i++)
        only = made_through(f, s->v, p->readers.node[i], DEEPEST);
    return only;
}

/* Contributions to one gradient must be added in their order: one is added in place only while
   those before it were, and earlier. */
static void offer_sinks(Place *p)
{
    Func *f = p->f;
    uint32_t *at = arena_array(f->scratch, uint32_t, f->g->node.n + 1), last = 0, buf = NONE;
    bool in_place = true;
    for (uint32_t i = 0; i < f->node.n; i++)
        at[f->node.at[i]] = i + 1;
    for (uint32_t i = 0; i < p->sink.n; i++) {
        Sink *s = &p->sink.at[i];
        if (!s->acc) {
            bool there = (!s->alone || overwrites(p, s)) && offer(p, s->v, &s->at, false);
            s->alone &= !there;
            continue;
        }
        if (buf != s->at.buf) {
            buf = s->at.buf;
            last = 0;
            in_place = true;
        }
        NodeId def = f->def.at[cg_below(f, s->v)];
        in_place = in_place && def != NONE && at[def] > last && offer(p, s->v, &s->at, true);
        if (in_place)
            last = at[def];
    }
}

void cg_place(Func *f)
{
    Place p = {.f = f};
    cg_apart(f, &f->node, 1);
    sinks(&p);
    count_uses(&p);
    offer_sinks(&p);
    push_back(&p);
    pad_rows(&p);
    mark_breaks(&p);
    Ids list = {0}, old = f->node;
    for (uint32_t i = 0; i < old.n; i++)
        settle(&p, old.at[i], &list);
    f->node = list;
    finish(&p);
}
