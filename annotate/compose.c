/*
 * compose.c - the rule of ShardingFormalism.md for operations that are loops over axes (loops.c).
 *
 * An axis that several operands have is divided alike in all of them.  The result for one shard of
 * each loop is computed where the operands' shards for it meet: some device must hold all of them.
 * The result is divided as its loops are, and each of its shards lies on all devices that compute a
 * part of it: along a reduction that is an all-reduce among them.
 */
#include "check.h"

#include <string.h>

enum { MOST_TURNS = 1 << 16 };

typedef struct {
    Check *c;
    const Loops *l;
    const Layout *const *in;
    const Parts **parts;  /* by loop */
    int64_t *shards, *at; /* by loop: how many, and the one that is looked at */
} Compose;

static bool parts_alike(const Parts *a, const Parts *b)
{
    if (a->n != b->n)
        return a->n < 2 && b->n < 2 && layout_shards(a) == layout_shards(b);
    for (uint32_t i = 0; i < a->n; i++) {
        const Part *x = &a->at[i], *y = &b->at[i];
        if (x->shards != y->shards || (a->n > 1 && x->size && y->size && x->size != y->size))
            return false;
    }
    return true;
}

static const char *divided(Arena *a, const Parts *p)
{
    const char *text = p->n > 1 ? "by parts " : "";
    for (uint32_t i = 0; i < p->n; i++)
        text = arena_printf(a, "%s%s%lld", text, i ? " x " : "", (long long)p->at[i].shards);
    return p->n ? arena_printf(a, "in %s shards", text) : "not divided";
}

/* One axis of one operand against the loop that others run over. */
static bool agree(Compose *m, Where w, const Onnx__NodeProto *n, const uint32_t from[2],
                  const int axis[2])
{
    const Loops *l = m->l;
    const Parts *a = &m->in[from[0]]->axis[axis[0]], *b = &m->in[from[1]]->axis[axis[1]];
    if (parts_alike(a, b))
        return true;
    Arena *arena = m->c->a;
    w.input = (int)l->operand[from[1]];
    VIOLATION(m->c, w,
              "axis %d of '%s' is %s, axis %d of '%s', input %u, is %s: one loop runs over "
              "both",
              axis[1], n->input[l->operand[from[1]]], divided(arena, b), axis[0],
              n->input[l->operand[from[0]]], l->operand[from[0]], divided(arena, a));
    return false;
}

/* The parts of each loop; false: operands differ. */
static bool loops_agree(Compose *m, Where w, const Onnx__NodeProto *n, bool say)
{
    const Loops *l = m->l;
    bool good = true;
    for (uint32_t loop = 0; loop < l->n; loop++) {
        uint32_t first = NONE;
        int first_axis = 0;
        for (uint32_t i = 0; i < l->operands; i++)
            for (int k = 0; k < MAX_RANK; k++) {
                const Parts *p = &m->in[i]->axis[k];
                if (l->loop[i].of[k] != (int)loop + 1)
                    continue;
                if (first == NONE) {
                    first = i;
                    first_axis = k;
                    m->parts[loop] = p;
                    m->shards[loop] = layout_shards(p);
                } else if (!say ? !parts_alike(m->parts[loop], p)
                                : !agree(m, w, n, (const uint32_t[]){first, i},
                                         (const int[]){first_axis, k})) {
                    good = false;
                }
            }
    }
    return good;
}

/* The devices that hold the shard of operand i which this turn of the loops reads. */
static const Ids *holder(const Compose *m, uint32_t i)
{
    const Layout *x = m->in[i];
    int64_t shard = 0;
    for (int k = 0; k < x->n; k++) {
        int loop = m->l->loop[i].of[x->order[k]] - 1;
        shard = shard * layout_shards(&x->axis[x->order[k]]) + (loop < 0 ? 0 : m->at[loop]);
    }
    return x->holder ? x->holder[shard] : NULL;
}

static Ids meet(Arena *a, const Ids *x, const Ids *y)
{
    Ids out = {0};
    for (uint32_t i = 0, k = 0; i < x->n && k < y->n;)
        if (x->at[i] == y->at[k]) {
            vec_push(a, &out, x->at[i++]);
            k++;
        } else if (x->at[i] < y->at[k]) {
            i++;
        } else {
            k++;
        }
    return out;
}

static void join(Arena *a, Ids *to, const Ids *x)
{
    Ids out = {0};
    for (uint32_t i = 0, k = 0; i < to->n || k < x->n;) {
        uint32_t p = i < to->n ? to->at[i] : NONE, q = k < x->n ? x->at[k] : NONE;
        vec_push(a, &out, p < q ? p : q);
        i += p <= q;
        k += q <= p;
    }
    *to = out;
}

/* "'w' axis 0 shard 1" */
static const char *shard_text(const Compose *m, const Onnx__NodeProto *n, uint32_t i)
{
    const Layout *x = m->in[i];
    const char *text = arena_printf(m->c->a, "'%s'", n->input[m->l->operand[i]]);
    for (int k = 0; k < x->n; k++) {
        const int loop = m->l->loop[i].of[x->order[k]] - 1;
        text = arena_printf(m->c->a, "%s%s axis %d shard %lld", text, k ? "," : "", x->order[k],
                            (long long)(loop < 0 ? 0 : m->at[loop]));
    }
    return text;
}

/* Where the operands' shards of this turn meet; all: no operand says. */
static bool turn(Compose *m, Where w, const Onnx__NodeProto *n, bool say, Ids *out, bool *all)
{
    *all = true;
    for (uint32_t i = 0; i < m->l->operands; i++) {
        const Ids *h = holder(m, i);
        if (!h)
            continue;
        *out = *all ? *h : meet(m->c->a, out, h);
        *all = false;
        if (out->n > 0)
            continue;
        if (say) {
            w.input = (int)m->l->operand[i];
            VIOLATION(m->c, w,
                      "%s: no device holds it and the shards of the inputs before it that it "
                      "is computed with",
                      shard_text(m, n, i));
        }
        return false;
    }
    return true;
}

static bool next_turn(const Compose *m)
{
    for (uint32_t k = m->l->n; k-- > 0;) {
        if (++m->at[k] < m->shards[k])
            return true;
        m->at[k] = 0;
    }
    return false;
}

/* The result's axes, without devices yet. */
static Layout *result(const Compose *m)
{
    Layout *out = arena_new_of(m->c->a, Layout);
    for (int k = 0; k < m->l->rank; k++) {
        int loop = m->l->out[k] - 1;
        if (loop < 0 || m->shards[loop] == 1)
            continue;
        out->axis[k] = *m->parts[loop];
        out->order[out->n++] = k;
    }
    return out;
}

const Layout *compose(Check *c, Where w, const Onnx__NodeProto *n, const Loops *l,
                      const Layout *const *in, bool say)
{
    Compose m = {c,
                 l,
                 in,
                 arena_array(c->a, const Parts *, l->n + 1),
                 arena_array(c->a, int64_t, l->n + 1),
                 arena_array(c->a, int64_t, l->n + 1)};
    int64_t turns = 1;
    bool known = true, anywhere = true;
    for (uint32_t i = 0; i < l->operands; i++)
        known &= in[i] != NULL;
    for (uint32_t k = 0; k < l->n; k++)
        m.shards[k] = 1;
    if (!known || !loops_agree(&m, w, n, say))
        return NULL;
    Layout *out = result(&m);
    for (uint32_t k = 0; k < l->n; k++)
        if (__builtin_mul_overflow(turns, m.shards[k], &turns) || turns > MOST_TURNS)
            return NULL;
    const int64_t shards = layout_count(out);
    Ids *holders = arena_array(c->a, Ids, shards);
    do {
        Ids here = {0};
        bool all;
        int64_t shard = 0;
        if (!turn(&m, w, n, say, &here, &all))
            return NULL;
        for (int k = 0; k < out->n; k++) {
            int loop = l->out[out->order[k]] - 1;
            shard = shard * m.shards[loop] + m.at[loop];
        }
        anywhere &= all;
        join(c->a, &holders[shard], &here);
    } while (next_turn(&m));
    if (anywhere)
        return out;
    out->holder = arena_array(c->a, const Ids *, shards);
    for (int64_t i = 0; i < shards; i++)
        out->holder[i] = &holders[i];
    return out;
}
