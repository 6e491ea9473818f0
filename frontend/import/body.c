/*
 * body.c - what nodes with bodies share.  In: the node, and values for its body's inputs.  Out: the
 * nodes of the body, imported in place, and what they yield; values of which a condition chooses.
 * Of the nodes of any list, those that lead to no result are dead and are not imported.
 */
#include <string.h>

#include "control.h"

static void mark_name(void *live, const char *name) { *strmap_at(live, name) = 1; }

void import_mark_live(Model *m, RawNodes *list, uint32_t n, const char *const *root)
{
    StrMap live = {.arena = m->arena};
    for (uint32_t i = 0; i < n; i++)
        mark_name(&live, root[i]);
    for (uint32_t i = list->n; i-- > 0;) {
        RawNode *node = list->at[i];
        node->dead = true;
        for (uint32_t j = 0; j < node->nout; j++)
            if (*node->out[j] && strmap_get(&live, node->out[j]) != NONE)
                node->dead = false;
        if (node->dead)
            continue;
        for (uint32_t j = 0; j < node->nin; j++)
            mark_name(&live, node->in[j]);
        inline_captured(m, node, mark_name, &live);
    }
}

const char *control_text(const Control *c)
{
    Arena *a = c->s->g->arena;
    const RawNode *n = c->n;
    const char *name =
        n->name && *n->name ? arena_printf(a, " '%s'", diag_escape(a, n->name)) : "";
    return arena_printf(a, "node %u%s (%s)", n->index, name, diag_escape(a, n->op_type));
}

typedef struct { const Control *c; const char *attr; } InBody;

static void say_body(const void *about)
{
    const InBody *b = about;
    diag_note("in %s of %s", b->attr, control_text(b->c));
}

Slots control_body(const Control *c, const char *attr, const Slots *in, uint32_t used)
{
    ImportState *s = c->s;
    Inside here = {NULL, say_body, &(InBody){c, attr}};
    here.of = diag_inside(&here);
    Body b = inline_body(s->m, c->n, attr);
    if (b.nin != in->n)
        FATAL(c, -1, "body '%s' takes %u values, it is given %u", attr, b.nin, in->n);
    if (b.nout < used)
        FATAL(c, -1, "its body yields %u values, %u are used", b.nout, used);
    for (uint32_t i = 0; i < b.nin; i++)
        import_define(s, b.in[i], in->at[i]);
    sort_nodes(s->m, &b.node);
    scope_assign(s->m, &b.node);
    import_mark_live(s->m, &b.node, b.nout, b.out);
    StrMap before = {0};
    if (s->params) {
        before = param_enter(s->params, c->n);
        param_assign(s->params, &b.node);
    }
    stop_assign(s->stops, s->m, &b.node);
    drops_find(s, &b.node);
    for (uint32_t i = 0; i < b.node.n; i++)
        vec_push(s->m->arena, &s->m->inner, b.node.at[i]);
    s->body(s, &b.node);
    if (s->params)
        param_leave(s->params, before);
    Slots out = {0};
    for (uint32_t i = 0; i < b.nout; i++)
        vec_push(s->g->arena, &out, *import_lookup(s, b.out[i], raw_where(s->m, c->n, -1)));
    s->g->cur_origin = c->origin;
    diag_inside(here.of);
    return out;
}

bool control_wanted(const Control *c, uint32_t out) { return out < c->n->nout && *c->n->out[out]; }

void control_yield(const Control *c, uint32_t out, Slot slot)
{
    if (!control_wanted(c, out))
        return;
    const Value *v = slot.is_sequence ? NULL : val(c->s->g, slot.v);
    if (v && v->kind == V_NODE && v->made)
        import_name_value(c->s, slot.v, c->n->out[out]);
    import_define(c->s, c->n->out[out], slot);
}

bool control_absent(const Control *c, uint32_t input)
{
    return input >= c->n->nin || !*c->n->in[input];
}

bool control_known(const Control *c, uint32_t input, int64_t *number)
{
    int64_t *at, n;
    if (c->in[input].is_sequence || c->in[input].v == NONE)
        FATAL(c, (int)input, "a number is needed");
    if (!g_const_ints(c->s->g, c->in[input].v, c->s->g->arena, &at, &n))
        return false;
    if (n != 1)
        FATAL(c, (int)input, "%lld numbers where one is needed", (long long)n);
    *number = *at;
    return true;
}

const char *control_inputs(const Control *c, const char **hint)
{
    enum { MOST = 4 };
    Graph *g = c->s->g;
    Arena *a = g->arena;
    const char *list = "";
    uint32_t n = 0;
    Ids root = {0};
    vec_push(a, &root, c->in[0].v);
    const bool *live = graph_live(g, a, 0, &root, 1);
    bool *read = arena_array(a, bool, g->value.n + 1);
    read[c->in[0].v] = true;
    for (NodeId id = 0; id < g->node.n; id++)
        for (uint32_t k = 0; k < g->node.at[id].nin && live[id]; k++)
            if (g->node.at[id].in[k] != NONE)
                read[g->node.at[id].in[k]] = true;
    for (uint32_t i = 0; i < g->input.n; i++) {
        const Value *v = val(g, g->input.at[i]);
        if (!read[g->input.at[i]] || ++n > MOST)
            continue;
        list = arena_printf(a, "%s%s'%s'", list, n > 1 ? ", " : "", diag_escape(a, v->name));
        *hint =
            (n == 1 || *hint) && shape_elements(&v->shape) == 1
                ? arena_printf(a, "%s --bind %s=VALUE", n > 1 ? *hint : "", diag_escape(a, v->name))
                : NULL;
    }
    if (n == 0 || n > MOST)
        *hint = NULL;
    return list;
}

ValueId control_bool(const Control *c, ValueId v)
{
    Graph *g = c->s->g;
    Shape s = low_shape(g, v), scalar = {0};
    if (low_dtype(g, v) != DT_BOOL || shape_elements(&s) != 1)
        FATAL(c, -1, "its condition is %s, not one bool",
              shape_print(g->arena, low_dtype(g, v), &s));
    return g_reshape(g, v, &scalar);
}

static bool is_same_constant(const Value *x, const Value *y)
{
    return x->kind == V_CONST && y->kind == V_CONST && x->dtype == y->dtype &&
           shape_equal(&x->shape, &y->shape) &&
           !memcmp(x->data, y->data, (size_t)shape_elements(&x->shape) * dtype_size(x->dtype));
}

static Slot choose_tensor(const Control *c, ValueId condition, Slot x, Slot y)
{
    Graph *g = c->s->g;
    ValueId sized;
    if (x.v == y.v || is_same_constant(val(g, x.v), val(g, y.v)))
        return x;
    if (ragged_choose(c->s, condition, x.v, y.v, &sized))
        return (Slot){.v = sized};
    Shape a = low_shape(g, x.v), b = low_shape(g, y.v);
    if (!shape_equal(&a, &b) || low_dtype(g, x.v) != low_dtype(g, y.v))
        FATAL(c, -1, "a value is %s or %s, which depends on the data",
              shape_print(g->arena, low_dtype(g, x.v), &a),
              shape_print(g->arena, low_dtype(g, y.v), &b));
    return (Slot){.v = g_where(g, condition, x.v, y.v)};
}

/* Element i is there if this is true; NONE: certainly. */
static ValueId there(const Slot *s, uint32_t i) { return s->there.n ? s->there.at[i] : NONE; }

/* One of the sequences begins with the other, or is as long: what only the longer one has is there
 * where it is chosen. */
static Slot choose_sequence(const Control *c, ValueId condition, const Slot *x, const Slot *y)
{
    Graph *g = c->s->g;
    const Slot *most = x->sequence.n >= y->sequence.n ? x : y, *least = most == x ? y : x;
    Slot out = {.v = NONE, .is_sequence = true};
    for (uint32_t i = 0; i < least->sequence.n; i++) {
        if (there(x, i) != there(y, i))
            FATAL(c, -1, "a sequence's length depends on the data, of which more than the end");
        Slot one = control_choose(c, condition, (Slot){.v = x->sequence.at[i]},
                                  (Slot){.v = y->sequence.at[i]});
        vec_push(g->arena, &out.sequence, one.v);
        vec_push(g->arena, &out.there, there(x, i));
    }
    ValueId is = most == x ? condition : g_unary(g, OP_Not, condition);
    for (uint32_t i = least->sequence.n; i < most->sequence.n; i++) {
        ValueId only = there(most, i);
        vec_push(g->arena, &out.sequence, most->sequence.at[i]);
        vec_push(g->arena, &out.there, only == NONE ? is : g_binary(g, OP_And, only, is));
    }
    if (most->sequence.n == least->sequence.n && !most->there.n)
        out.there = (Ids){0};
    return out;
}

Slot control_choose(const Control *c, ValueId condition, Slot x, Slot y)
{
    if (x.is_sequence != y.is_sequence)
        FATAL(c, -1, "a sequence or a tensor, which depends on the data");
    return x.is_sequence ? choose_sequence(c, condition, &x, &y)
                         : choose_tensor(c, condition, x, y);
}

void control_collect(const Control *c, Ids *list, Slot slot)
{
    if (slot.is_sequence)
        FATAL(c, -1, "a sequence where a tensor is needed");
    vec_push(c->s->g->arena, list, slot.v);
}
