/*
 * control.c - nodes with bodies, of which If and SequenceMap stand here, Loop and Scan in loop.c.
 * In: the node and what its operands stand for.  Out: the nodes of its bodies, imported in place,
 * once for each time that they run.
 *
 * A condition is mostly known when the model is read; then the branch not taken does not exist.
 * One of the data computes both branches and chooses.  Semantics: ONNX, If-25, SequenceMap-17.
 */
#include <string.h>

#include "control.h"

/* ---- If ---- */

/* The condition is not known. */
static void say_condition(const void *about)
{
    const Control *c = about;
    const char *hint, *list = control_inputs(c, &hint);
    diag_note("both branches of %s are imported: its condition depends on %s%s", control_text(c),
              *list ? "input " : "the data", list);
    if (hint)
        diag_hint("if that is the same in every run,%s keeps only the branch taken", hint);
}

static void import_if(const Control *c)
{
    int64_t condition;
    Slots none = {0};
    if (c->n->nin != 1 || control_absent(c, 0))
        FATAL(c, -1, "its condition is missing");
    if (!c->in[0].is_sequence)
        c->in[0].v = ragged_actual(c->s, c->in[0].v);
    bool is_known = control_known(c, 0, &condition);
    Slots out = {0}, other = {0};
    Inside here = {NULL, say_condition, c};
    if (!is_known)
        here.of = diag_inside(&here);
    if (!is_known || condition)
        out = control_body(c, "then_branch", &none, c->n->nout);
    if (!is_known || !condition)
        other = control_body(c, "else_branch", &none, c->n->nout);
    const Slots *taken = is_known && !condition ? &other : &out;
    ValueId test = is_known ? NONE : control_bool(c, c->in[0].v);
    for (uint32_t i = 0; i < c->n->nout; i++)
        if (control_wanted(c, i))
            control_yield(
                c, i, is_known ? taken->at[i] : control_choose(c, test, out.at[i], other.at[i]));
    if (!is_known)
        diag_inside(here.of);
}

/* ---- SequenceMap ---- */

static void import_sequence_map(const Control *c)
{
    Graph *g = c->s->g;
    if (c->n->nin < 1 || !c->in[0].is_sequence)
        FATAL(c, 0, "a sequence is needed");
    for (uint32_t i = 0; i < c->n->nin; i++)
        if (c->in[i].is_sequence && c->in[i].there.n)
            FATAL(c, (int)i, "the sequence's length depends on the data");
    uint32_t n = c->in[0].sequence.n;
    Slot *out = arena_array(g->arena, Slot, c->n->nout);
    for (uint32_t i = 0; i < c->n->nout; i++)
        out[i] = (Slot){.v = NONE, .is_sequence = true};
    for (uint32_t k = 0; k < n; k++) {
        Slots in = {0};
        for (uint32_t i = 0; i < c->n->nin; i++) {
            if (c->in[i].is_sequence && c->in[i].sequence.n != n)
                FATAL(c, (int)i, "a sequence of %u, the first has %u", c->in[i].sequence.n, n);
            Slot one = c->in[i].is_sequence ? (Slot){.v = c->in[i].sequence.at[k]} : c->in[i];
            vec_push(g->arena, &in, one);
        }
        Slots yields = control_body(c, "body", &in, c->n->nout);
        for (uint32_t i = 0; i < c->n->nout; i++)
            control_collect(c, &out[i].sequence, yields.at[i]);
    }
    for (uint32_t i = 0; i < c->n->nout; i++)
        control_yield(c, i, out[i]);
}

/* ---- the node ---- */

static const struct {
    const char *op;
    void (*import)(const Control *c);
} controls[] = {
    {"If", import_if},
    {"Loop", import_loop},
    {"Scan", import_scan},
    {"SequenceMap", import_sequence_map},
};
enum { N_CONTROLS = sizeof controls / sizeof *controls };

static int control_number(const RawNode *n)
{
    int i = 0;
    while (i < N_CONTROLS && (*n->domain || strcmp(n->op_type, controls[i].op)))
        i++;
    return i;
}

ValueId im_graph(const Import *im, const char *name, ValueId x)
{
    ImportState *s = im->state;
    Control c = {.s = s, .n = im->node, .origin = s->g->cur_origin};
    Slots in = {0};
    vec_push(im->arena, &in, ((Slot){.v = x}));
    Slots out = control_body(&c, name, &in, 1);
    if (out.n != 1 || out.at[0].is_sequence)
        FATAL(&c, -1, "graph '%s' must yield one tensor", name);
    return out.at[0].v;
}

bool control_is(const RawNode *n) { return control_number(n) < N_CONTROLS; }

void control_import(ImportState *s, RawNode *n, const ValueId *in)
{
    Control c = {.s = s, .n = n, .origin = s->g->cur_origin};
    c.in = arena_array(s->g->arena, Slot, n->nin);
    for (uint32_t i = 0; i < n->nin; i++) {
        const Slot *slot = *n->in[i] && !param_is_used(n, i) ? import_slot(s, n, i) : NULL;
        c.in[i] = slot && slot->is_sequence ? *slot : (Slot){.v = in[i]};
    }
    controls[control_number(n)].import(&c);
}
