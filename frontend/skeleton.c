/*
 * skeleton.c - the model without its trainable bytes, from which `ppsplit merge` makes the trained model.
 *
 * In: a Model as import.c left it (RawNode.param says which operands are parameters).  Out: an ONNX file in which
 * every parameter is one initializer of its own, in the layout of the original file, whose bytes are replaced by
 * a note naming the parameter (external_data keys of ours).  What the exporter merged because it was equal is
 * separated, a bias it dropped because it was zero is an operand again.  All else is copied byte for byte.
 */
#include <stdlib.h>
#include <string.h>

#include "read.h"
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
    const Model *m;
    const Graph *g;
    Arena *arena;
    const char **name;                                  /* per parameter: its initializer's name in the skeleton; NULL: of another file */
    RawNode **edit;                                     /* per top-level node: the raw node whose operands change, or NULL */
    uint32_t n_edit;
    bool *kept;                                         /* per initializer: the original stays (something reads it as a constant) */
} Skeleton;

static void find_uses(Skeleton *s)
{
    for (uint32_t i = 0; i < s->m->node.n; i++) {
        RawNode *n = s->m->node.at[i];
        if (n->index >= s->n_edit)
            s->n_edit = n->index + 1;
        for (uint32_t k = 0; k < n->nin; k++) {
            uint32_t init = strmap_get(&s->m->init_index, n->in[k]);
            if (n->param && n->param[k] != NONE)
                s->name[n->param[k]] = "";
            else if (init != NONE && !n->dead)
                s->kept[init] = true;
        }
        if (n->bias != NONE)
            s->name[n->bias] = "";
    }
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
        if (init != NONE && !s->kept[init] && strmap_get(&used, q->initializer) == NONE)
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
        bool changed = n->bias != NONE;
        for (uint32_t k = 0; n->param && k < n->nin; k++)
            changed |= n->param[k] != NONE && strcmp(n->in[k], s->name[n->param[k]]);
        if (!changed)
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
    uint32_t init = q->initializer ? strmap_get(&s->m->init_index, q->initializer) : NONE;
    const Shape *file = init != NONE ? &s->m->init.at[init].shape : &q->shape;     /* transposed, or with dims of 1 */
    for (int i = 0; i < file->rank; i++)
        wire_put_int(t.f, 1, (uint64_t)file->d[i]);
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

/* Some rows of a parameter. */
static const char *put_rows(FILE *graph, const Skeleton *s, const RawNode *n, uint32_t k, const char *name)
{
    const char *part = arena_printf(s->arena, "%s.rows.%u.%u", name, n->index, k);
    int64_t *bound = arena_array(s->arena, int64_t, 3);
    bound[0] = n->start[k];
    bound[1] = n->start[k] + n->rows[k];
    WireMessage t;
    wire_open(&t);
    wire_put_string(t.f, 1, name);
    for (int i = 0; i < 3; i++) {                       /* from, to, axis 0 */
        const char *own = arena_printf(s->arena, "%s.%d", part, i);
        wire_put_string(t.f, 1, own);
        put_constant(graph, &(RawTensor){own, DT_I64, shape_of(1, INT64_C(1)), {.at = (const uint8_t *)&bound[i], .length = sizeof *bound}});
    }
    wire_put_string(t.f, 2, part);
    wire_put_string(t.f, 3, part);
    wire_put_string(t.f, 4, "Slice");
    wire_close(&t, graph, 1);
    return part;
}

/* The operand's new name; a parameter that this node reads the other way round passes a Transpose first. */
static const char *put_operand(FILE *graph, const Skeleton *s, const RawNode *n, uint32_t k)
{
    if (!n->param || n->param[k] == NONE)
        return n->in[k];
    const char *name = s->name[n->param[k]];
    if (n->rows && n->rows[k])
        name = put_rows(graph, s, n, k, name);
    if (n->flip[k] == s->g->param.at[n->param[k]].transposed)
        return name;
    const char *turned = arena_printf(s->arena, "%s.transposed.%u.%u", name, n->index, k);
    WireMessage t;
    wire_open(&t);
    wire_put_string(t.f, 1, name);
    wire_put_string(t.f, 2, turned);
    wire_put_string(t.f, 3, turned);
    wire_put_string(t.f, 4, "Transpose");
    wire_close(&t, graph, 1);
    return turned;
}

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
    WireSpan body = w->body;
    for (WireField f; wire_next(&body, &f);)
        if (f.number > 2)
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
        if (!is_parameter[i])
            put_constant(g.f, &s->m->init.at[i]);
    wire_close(&g, model, 7);
}

void skeleton_write(const Graph *g, const Model *m, FILE *f)
{
    Arena *arena = g->arena;
    Skeleton s = {.m = m, .g = g, .arena = arena};
    s.name = arena_array(arena, const char *, g->param.n);
    s.kept = arena_array(arena, bool, m->init.n);
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
