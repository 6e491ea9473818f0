/*
 * skeleton.c - the model without its trainable bytes, from which `ppsplit merge` makes the trained model.
 *
 * In: a Model as import.c left it (RawNode.made says which operands are made of which parameters).  Out: an ONNX file in which
 * every parameter is one initializer of its own, in the layout of the original file, whose bytes are replaced by
 * a note naming the parameter (external_data keys of ours).  What the exporter merged because it was equal is
 * separated, a bias it dropped because it was zero is an operand again, and what it computed of parameters is computed of
 * them again by nodes.  All else is copied byte for byte.
 */
#include <stdlib.h>
#include <string.h>

#include "frontend/onnx/read.h"
#include "skeleton.h"

/* ---- the wire format, read and written field by field ---- */

static uint64_t get_varint(WireSpan *s)
{
    uint64_t v = 0;
    for (int shift = 0; s->at < s->end && shift < 64; shift += 7) {
        uint8_t c = *s->at++;
        v |= (uint64_t)(c & 127) << shift;
        if (c < 128)
            return v;
    }
    s->broken = true;
    return 0;
}

bool wire_next(WireSpan *s, WireField *f)
{
    if (s->at >= s->end || s->broken)
        return false;
    f->start = s->at;
    uint64_t key = get_varint(s), left;
    f->number = (uint32_t)(key >> 3);
    f->value = 0;
    f->body = (WireSpan){s->at, s->at, false};
    switch (key & 7) {
    case 0: f->value = get_varint(s); break;
    case 1: s->at += 8; break;
    case 5: s->at += 4; break;
    case 2:
        f->value = get_varint(s);
        left = (uint64_t)(s->end - s->at);
        if (f->value > left)
            s->broken = true;
        else {
            f->body = (WireSpan){s->at, s->at + f->value, false};
            s->at += f->value;
        }
        break;
    default: s->broken = true;
    }
    f->end = s->at;
    return !s->broken && s->at <= s->end;
}

void wire_put_varint(FILE *f, uint64_t v)
{
    for (; v >= 128; v >>= 7)
        putc((int)(v & 127) | 128, f);
    putc((int)v, f);
}

void wire_put_int(FILE *f, uint32_t number, uint64_t v)
{
    wire_put_varint(f, (uint64_t)number << 3);
    wire_put_varint(f, v);
}

void wire_put_bytes(FILE *f, uint32_t number, const void *at, size_t n)
{
    wire_put_varint(f, (uint64_t)number << 3 | 2);
    wire_put_varint(f, n);
    fwrite(at, 1, n, f);
}

void wire_put_string(FILE *f, uint32_t number, const char *s) { wire_put_bytes(f, number, s, strlen(s)); }

void wire_open(WireMessage *m)
{
    m->bytes = NULL;
    m->f = open_memstream(&m->bytes, &m->n);
    if (!m->f)
        diag_fatal(EXIT_IO, WHERE_NONE, "out of memory");
}

void wire_close(WireMessage *m, FILE *into, uint32_t number)
{
    if (fclose(m->f))
        diag_fatal(EXIT_IO, WHERE_NONE, "out of memory");
    wire_put_bytes(into, number, m->bytes, m->n);
    free(m->bytes);
}

void wire_put_entry(FILE *f, const char *key, const char *value)
{
    WireMessage e;
    wire_open(&e);
    wire_put_string(e.f, 1, key);
    wire_put_string(e.f, 2, value);
    wire_close(&e, f, 13);
}

static void copy_field(FILE *f, const WireField *w) { fwrite(w->start, 1, (size_t)(w->end - w->start), f); }

/* ---- which initializer each parameter gets ---- */

typedef struct {
    Model *m;
    const Graph *g;
    Arena *arena;
    const char **name;                                  /* per parameter: its initializer's name in the skeleton; NULL: of another file */
    RawNode **edit;                                     /* per top-level node: the raw node whose operands change, or NULL */
    uint32_t n_edit;
    RawNodes copies;                                    /* nodes that the file does not have */
    bool *kept, *made, *named;                          /* per initializer: a node reads it as a constant; or made of parameters; others name it */
} Skeleton;

static void mark_named(void *arg, const char *name)
{
    Skeleton *s = arg;
    uint32_t init = strmap_get(&s->m->init_index, name);
    if (init != NONE)
        s->named[init] = true;
}

static void find_uses(Skeleton *s)
{
    for (size_t i = 0; i < s->m->graph->n_output; i++)
        mark_named(s, s->m->graph->output[i]->name ? s->m->graph->output[i]->name : "");
    for (uint32_t i = 0; i < s->m->node.n; i++) {
        RawNode *n = s->m->node.at[i];
        if (n->copy_of)
            vec_push(s->arena, &s->copies, n);
        if (n->index >= s->n_edit)
            s->n_edit = n->index + 1;
        inline_captured(s->m, n, mark_named, s);
        for (uint32_t k = 0; k < n->nin; k++) {
            uint32_t init = strmap_get(&s->m->init_index, n->in[k]);
            const Recipe *made = n->made ? n->made[k] : NULL;
            for (uint32_t t = 0; made && t < made->n; t++)
                if (made->at[t].op == OP_NONE && made->at[t].param != NONE)
                    s->name[made->at[t].param] = "";
            if (init != NONE && made)
                s->made[init] = true;
            else if (init != NONE && !n->dead)
                s->kept[init] = true;
        }
        if (n->bias != NONE)
            s->name[n->bias] = "";
    }
}

/* Does the file hold the parameter as it is, or with its two dims exchanged? */
static bool is_held(const Skeleton *s, const Param *q, uint32_t init)
{
    Shape shape = q->transposed ? shape_of(2, q->shape.d[1], q->shape.d[0]) : q->shape;
    return init != NONE && shape_equal(&shape, &s->m->init.at[init].shape);
}

static void choose_names(Skeleton *s)
{
    StrMap used = {.arena = s->arena}, made = {.arena = s->arena};
    for (uint32_t i = 0; i < s->m->node.n; i++)
        for (uint32_t k = 0; k < s->m->node.at[i]->nout; k++)
            *strmap_at(&made, s->m->node.at[i]->out[k]) = i;
    for (uint32_t p = 0; p < s->g->param.n; p++) {
        const Param *q = &s->g->param.at[p];
        if (!s->name[p])
            continue;
        uint32_t init = q->initializer ? strmap_get(&s->m->init_index, q->initializer) : NONE;
        if (is_held(s, q, init) && !s->kept[init] && strmap_get(&used, q->initializer) == NONE)
            s->name[p] = q->initializer;
        else
            s->name[p] = strmap_get(&made, q->name) != NONE || strmap_get(&s->m->init_index, q->name) != NONE
                             ? arena_printf(s->arena, "%s.separated.%u", q->name, p) : q->name;
        *strmap_at(&used, s->name[p]) = p;
    }
}

/* Raw nodes whose operands no longer bear the name the file gives them. */
static void find_edits(Skeleton *s)
{
    s->edit = arena_array(s->arena, RawNode *, s->n_edit);
    for (uint32_t i = 0; i < s->m->node.n; i++) {
        RawNode *n = s->m->node.at[i];
        bool changed = n->bias != NONE || n->renamed;
        for (uint32_t k = 0; n->made && k < n->nin; k++) {
            bool transposed;
            const Recipe *made = n->made[k];
            changed |= made && (!recipe_is_plain(made, &transposed) || transposed != s->g->param.at[made->at[0].param].transposed
                                || strcmp(n->in[k], s->name[made->at[0].param]));
        }
        if (!changed || n->copy_of)
            continue;
        if (n->inlined)
            diag_warn(WHERE_FILE(s->m->path), "parameters inside the local function of node %u were separated; merge will not write them back",
                      n->index);
        else
            s->edit[n->index] = n;
    }
}

/* ---- writing ---- */

static void put_parameter(FILE *graph, const Skeleton *s, uint32_t p)
{
    const Param *q = &s->g->param.at[p];
    WireMessage t;
    wire_open(&t);
    for (int i = 0; i < q->shape.rank; i++)
        wire_put_int(t.f, 1, (uint64_t)q->shape.d[q->transposed ? 1 - i : i]);
    wire_put_int(t.f, 2, (uint64_t)q->dtype);
    wire_put_string(t.f, 8, s->name[p]);
    wire_put_entry(t.f, SKELETON_PARAMETER, q->name);
    if (q->transposed)
        wire_put_entry(t.f, SKELETON_TRANSPOSED, "1");
    wire_put_int(t.f, 14, 1);
    wire_close(&t, graph, 5);
}

/* An initializer that is no parameter: its bytes inline, wherever they were. */
static void put_constant(FILE *graph, const RawTensor *r)
{
    WireMessage t;
    wire_open(&t);
    for (int i = 0; i < r->shape.rank; i++)
        wire_put_int(t.f, 1, (uint64_t)r->shape.d[i]);
    wire_put_int(t.f, 2, (uint64_t)r->dtype);
    wire_put_string(t.f, 8, r->name);
    wire_put_bytes(t.f, 9, r->bytes.at ? (const void *)r->bytes.at : "", r->bytes.length);
    wire_close(&t, graph, 5);
}

static bool takes_bias(const char *op)
{
    return !strcmp(op, "Gemm") || !strcmp(op, "Conv") || !strcmp(op, "ConvTranspose");
}

/* ---- recipes as nodes ---- */

typedef struct { const Skeleton *s; FILE *graph; const char *stem; uint32_t made; } Nodes;

static const char *put_ints(Nodes *to, int n, const int64_t *v)
{
    const char *name = arena_printf(to->s->arena, "%s.%u", to->stem, to->made++);
    put_constant(to->graph, &(RawTensor){name, DT_I64, shape_of(1, (int64_t)n), {.at = (const uint8_t *)v, .length = (size_t)n * sizeof *v}});
    return name;
}

static void put_attribute(FILE *node, const char *name, int n, const int64_t *ints, int64_t i)
{
    enum { TYPE_INT = 2, TYPE_INTS = 7 };
    WireMessage a;
    wire_open(&a);
    wire_put_string(a.f, 1, name);
    if (!ints)
        wire_put_int(a.f, 3, (uint64_t)i);
    for (int k = 0; ints && k < n; k++)
        wire_put_int(a.f, 8, (uint64_t)ints[k]);
    wire_put_int(a.f, 20, ints ? TYPE_INTS : TYPE_INT);
    wire_close(&a, node, 5);
}

static const char *put_term(Nodes *to, const Term *t, const char *const *value)
{
    Arena *a = to->s->arena;
    const Attr *at = &t->attr;
    const char *more[4], *name;
    uint32_t n_more = 0;
    if (t->op == OP_Reshape || t->op == OP_Expand || t->op == OP_ReduceSum)
        more[n_more++] = put_ints(to, at->n, at->dims);
    if (t->op == OP_Slice) {
        int64_t *end = arena_array(a, int64_t, at->n + 1), *axis = arena_array(a, int64_t, at->n + 1);
        for (int i = 0; i < at->n; i++) {
            axis[i] = i;
            end[i] = at->start[i] + at->size[i];
        }
        more[n_more++] = put_ints(to, at->n, at->start);
        more[n_more++] = put_ints(to, at->n, end);
        more[n_more++] = put_ints(to, at->n, axis);
    }
    WireMessage node;
    wire_open(&node);
    for (uint32_t k = 0; k < t->nin; k++)
        wire_put_string(node.f, 1, value[t->in[k]]);
    for (uint32_t k = 0; k < n_more; k++)
        wire_put_string(node.f, 1, more[k]);
    name = arena_printf(a, "%s.%u", to->stem, to->made++);
    wire_put_string(node.f, 2, name);
    wire_put_string(node.f, 3, name);
    wire_put_string(node.f, 4, op_name(t->op));
    if (t->op == OP_Transpose)
        put_attribute(node.f, "perm", at->n, at->perm, 0);
    if (t->op == OP_Concat || t->op == OP_Gather)
        put_attribute(node.f, "axis", 0, NULL, at->axis);
    wire_close(&node, to->graph, 1);
    return name;
}

static const char *put_constant_term(Nodes *to, const Tensor *t)
{
    const char *name = arena_printf(to->s->arena, "%s.%u", to->stem, to->made++);
    size_t bytes = (size_t)shape_elements(&t->shape) * dtype_size(t->dtype);
    put_constant(to->graph, &(RawTensor){name, t->dtype, t->shape, {.at = t->data, .length = bytes}});
    return name;
}

static const Term swap = {.op = OP_Transpose, .nin = 1, .param = NONE, .attr = {.n = 2, .perm = (const int64_t[]){1, 0}}};

/* The operand's new name, behind the nodes that make it of parameters as the new file holds them. */
static const char *put_operand(FILE *graph, const Skeleton *s, const RawNode *n, uint32_t k)
{
    const Recipe *r = n->made ? n->made[k] : NULL;
    bool transposed;
    if (!r)
        return n->in[k];
    if (recipe_is_plain(r, &transposed) && transposed == s->g->param.at[r->at[0].param].transposed)
        return s->name[r->at[0].param];
    const char **value = arena_array(s->arena, const char *, r->n);
    const char *copy = n->copy_of ? strrchr(n->out[0], '@') : NULL;     /* numbered by its parameter */
    Nodes to = {s, graph, arena_printf(s->arena, "ppsplit.%u.%u%s", n->index, k, copy ? copy : ""), 0};
    for (uint32_t i = 0; i < r->n; i++) {
        const Term *t = &r->at[i];
        if (t->op != OP_NONE)
            value[i] = put_term(&to, t, value);
        else if (t->param == NONE)
            value[i] = put_constant_term(&to, &t->value);
        else
            value[i] = s->name[t->param];
        if (t->op == OP_NONE && t->param != NONE && s->g->param.at[t->param].transposed)
            value[i] = put_term(&to, &swap, &value[i]);
    }
    return value[r->n - 1];
}

/* ---- nodes and the graph ---- */

/* The node with its operands renamed; a restored bias becomes operand 2, or an Add of its own. */
static void put_edited(FILE *graph, const Skeleton *s, const WireField *w, const RawNode *n)
{
    WireMessage out;
    const char **in = arena_array(s->arena, const char *, n->nin);
    for (uint32_t k = 0; k < n->nin; k++)
        in[k] = put_operand(graph, s, n, k);
    wire_open(&out);
    bool own_add = n->bias != NONE && !takes_bias(n->op_type);
    const char *bare = own_add ? arena_printf(s->arena, "%s.without_bias", n->out[0]) : NULL;
    for (uint32_t k = 0; k < n->nin; k++)
        if (k != 2 || n->bias == NONE || own_add)
            wire_put_string(out.f, 1, in[k]);
    if (n->bias != NONE && !own_add)
        wire_put_string(out.f, 1, s->name[n->bias]);
    for (uint32_t k = 0; k < n->nout; k++)
        wire_put_string(out.f, 2, k == 0 && own_add ? bare : n->out[k]);
    if (n->copy_of)
        wire_put_string(out.f, 3, n->out[0]);           /* no two nodes may have one name */
    WireSpan body = w->body;
    for (WireField f; wire_next(&body, &f);)
        if (f.number > (n->copy_of ? 3u : 2u))
            copy_field(out.f, &f);
    wire_close(&out, graph, 1);
    if (!own_add)
        return;
    wire_open(&out);
    wire_put_string(out.f, 1, bare);
    wire_put_string(out.f, 1, s->name[n->bias]);
    wire_put_string(out.f, 2, n->out[0]);
    wire_put_string(out.f, 3, arena_printf(s->arena, "%s.bias", n->name));
    wire_put_string(out.f, 4, "Add");
    wire_close(&out, graph, 1);
}

static void put_graph(FILE *model, const Skeleton *s, WireSpan body)
{
    WireMessage g;
    wire_open(&g);
    uint32_t node = 0;
    for (WireField f; wire_next(&body, &f);) {
        const RawNode *edit = f.number == 1 && node < s->n_edit ? s->edit[node] : NULL;
        node += f.number == 1;
        for (uint32_t i = 0; f.number == 1 && i < s->copies.n; i++)
            if (s->copies.at[i]->index == node - 1)
                put_edited(g.f, s, &f, s->copies.at[i]);
        if (edit)
            put_edited(g.f, s, &f, edit);
        else if (f.number != 5)
            copy_field(g.f, &f);
    }
    bool *is_parameter = arena_array(s->arena, bool, s->m->init.n);
    for (uint32_t p = 0; p < s->g->param.n; p++)
        if (s->name[p]) {
            put_parameter(g.f, s, p);
            uint32_t init = strmap_get(&s->m->init_index, s->name[p]);
            if (init != NONE)
                is_parameter[init] = true;
        }
    for (uint32_t i = 0; i < s->m->init.n; i++)
        if (!is_parameter[i] && (s->kept[i] || s->named[i] || !s->made[i]))
            put_constant(g.f, &s->m->init.at[i]);
    wire_close(&g, model, 7);
}

void skeleton_write(const Graph *g, Model *m, FILE *f)
{
    Arena *arena = g->arena;
    Skeleton s = {.m = m, .g = g, .arena = arena};
    s.name = arena_array(arena, const char *, g->param.n);
    s.kept = arena_array(arena, bool, m->init.n);
    s.made = arena_array(arena, bool, m->init.n);
    s.named = arena_array(arena, bool, m->init.n);
    find_uses(&s);
    choose_names(&s);
    find_edits(&s);
    WireSpan body = {m->at, m->at + m->size, false};
    for (WireField w; wire_next(&body, &w);)
        if (w.number == 7)
            put_graph(f, &s, w.body);
        else
            copy_field(f, &w);
}
