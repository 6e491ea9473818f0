/*
 * attributes.c - what an op importer asks of its node: attributes, constant operands, sequences.
 * In: the node as the file has it.  Out: numbers; or a diagnostic at the node for what is malformed
 * or not known.
 */
#include <math.h>
#include <string.h>

#include "state.h"

/* AttributeProto.type, where files set it. */
enum {
    ATTR_FLOAT = 1,
    ATTR_INT,
    ATTR_STRING,
    ATTR_TENSOR,
    ATTR_GRAPH,
    ATTR_FLOATS,
    ATTR_INTS,
    ATTR_STRINGS
};
enum { MOST = 1 << 20 }; /* elements of a list */

bool im_wanted(const Import *im, uint32_t out)
{
    return out < im->node->nout && *im->node->out[out];
}

Where im_where(const Import *im, int input) { return raw_where(im->state->m, im->node, input); }

bool im_told(const Import *im, const char *target, int position, const char *keyword, double *v)
{
    return meta_number(im->node->fx_node, target, position, keyword, v);
}

bool im_calls(const Import *im, const char *text)
{
    return im->node->fx_node && strstr(im->node->fx_node, text);
}

Dtype im_declared(const Import *im, uint32_t i)
{
    bool value = i < im->node->nin && !param_is_used(im->node, i);
    const Slot *s = value ? import_slot(im->state, im->node, i) : NULL;
    return s ? s->declared : DT_NONE;
}

bool im_has(const Import *im, const char *name) { return raw_attr(im->node, name) != NULL; }

/* NULL: the node has none. */
static const Onnx__AttributeProto *typed(const Import *im, const char *name, int32_t type)
{
    static const char *const what[] = {
        [ATTR_FLOAT] = "a number",           [ATTR_INT] = "an integer",
        [ATTR_STRING] = "a string",          [ATTR_TENSOR] = "a tensor",
        [ATTR_FLOATS] = "a list of numbers", [ATTR_INTS] = "a list of integers",
        [ATTR_STRINGS] = "a list of strings"};
    const Onnx__AttributeProto *a = raw_attr(im->node, name);
    if (a && ((a->has_type && a->type != type) || (type == ATTR_TENSOR && !a->t)))
        diag_fatal(EXIT_MODEL, im_where(im, -1), "attribute '%s' must be %s", name, what[type]);
    const size_t n = a ? a->n_ints + a->n_floats + a->n_strings : 0;
    if (n > MOST)
        diag_fatal(EXIT_MODEL, im_where(im, -1), "attribute '%s' has %zu elements", name, n);
    return a;
}

/* No place, size or count is as far as 2^60 (a tensor has less than 2^56 elements): what is beyond
 * means what that means, and importers may negate it and add a few. */
static int64_t within_reach(int64_t v)
{
    const int64_t far = INT64_C(1) << 60;
    return v > far ? far : v < -far ? -far : v;
}

int64_t im_int(const Import *im, const char *name, int64_t dflt)
{
    const Onnx__AttributeProto *a = typed(im, name, ATTR_INT);
    return a ? within_reach(a->i) : dflt;
}

Dtype im_dtype(const Import *im, const char *name, Dtype dflt)
{
    int64_t t = im_int(im, name, (int64_t)dflt);
    return t < 0 || t > DT_LAST ? DT_NONE : (Dtype)t;
}

bool im_value_int(const Import *im, const char *name, int64_t *v)
{
    const Onnx__AttributeProto *a = typed(im, name, ATTR_INT);
    if (a)
        *v = a->i;
    return a != NULL;
}

double im_float(const Import *im, const char *name, double dflt)
{
    const Onnx__AttributeProto *a = typed(im, name, ATTR_FLOAT);
    return a ? (double)a->f : dflt;
}

const char *im_str(const Import *im, const char *name, const char *dflt)
{
    const Onnx__AttributeProto *a = typed(im, name, ATTR_STRING);
    return a ? arena_strndup(im->arena, a->s.data ? (const char *)a->s.data : "", a->s.len) : dflt;
}

bool im_value_ints(const Import *im, const char *name, int64_t **at, int *n)
{
    const Onnx__AttributeProto *a = typed(im, name, ATTR_INTS);
    if (!a)
        return false;
    *n = (int)a->n_ints;
    *at = arena_array(im->arena, int64_t, a->n_ints + 1);
    if (a->n_ints)
        memcpy(*at, a->ints, a->n_ints * sizeof **at);
    return true;
}

bool im_ints(const Import *im, const char *name, int64_t **at, int *n)
{
    if (!im_value_ints(im, name, at, n))
        return false;
    for (int i = 0; i < *n; i++)
        (*at)[i] = within_reach((*at)[i]);
    return true;
}

bool im_floats(const Import *im, const char *name, double **at, int *n)
{
    const Onnx__AttributeProto *a = typed(im, name, ATTR_FLOATS);
    if (!a)
        return false;
    *n = (int)a->n_floats;
    *at = arena_array(im->arena, double, a->n_floats + 1);
    for (int i = 0; i < *n; i++)
        (*at)[i] = (double)a->floats[i];
    return true;
}

bool im_strings(const Import *im, const char *name, const char ***at, int *n)
{
    const Onnx__AttributeProto *a = typed(im, name, ATTR_STRINGS);
    if (!a)
        return false;
    *n = (int)a->n_strings;
    *at = arena_array(im->arena, const char *, a->n_strings + 1);
    for (int i = 0; i < *n; i++)
        (*at)[i] = arena_strndup(im->arena, (const char *)a->strings[i].data, a->strings[i].len);
    return true;
}

bool im_tensor(const Import *im, const char *name, Tensor *t)
{
    const Onnx__AttributeProto *a = typed(im, name, ATTR_TENSOR);
    if (!a)
        return false;
    RawTensor r;
    tensor_read(im->state->m, a->t, im_where(im, -1), &r);
    *t = tensor_widen(im->arena, &r, im_where(im, -1));
    return true;
}

/* ---- constant operands ---- */

static _Noreturn void not_constant(const Import *im, int input)
{
    Graph *g = im->g;
    const Value *v = val(g, im->in[input]);
    if (v->kind == V_NODE) {
        const Origin *o = &g->origin.at[g->node.at[v->node].origin];
        diag_note("it is computed from run-time data by node %u '%s' (%s)", o->index, o->name,
                  o->type);
    } else {
        diag_note("it is %s '%s'", v->kind == V_INPUT ? "the model's input" : "the parameter",
                  v->name);
    }
    diag_hint("if it follows from symbolic dimensions, give them sizes with --bind NAME=N");
    diag_fatal(EXIT_MODEL, im_where(im, input),
               "this operand must be known when the model is read");
}

void im_const_values(const Import *im, int input, int64_t **at, int64_t *n)
{
    if (im_in(im, (uint32_t)input) == NONE)
        diag_fatal(EXIT_MODEL, im_where(im, input), "this operand is missing");
    if (dtype_is_float(val(im->g, im->in[input])->dtype))
        diag_fatal(EXIT_MODEL, im_where(im, input), "this operand must be of an integer type");
    if (!g_const_ints(im->g, im->in[input], im->arena, at, n))
        not_constant(im, input);
}

void im_const_ints(const Import *im, int input, int64_t **at, int64_t *n)
{
    im_const_values(im, input, at, n);
    for (int64_t i = 0; i < *n; i++)
        (*at)[i] = within_reach((*at)[i]);
}

int64_t im_const_int(const Import *im, int input, int64_t dflt)
{
    int64_t *at, n;
    if (im_in(im, (uint32_t)input) == NONE)
        return dflt;
    im_const_values(im, input, &at, &n);
    if (n != 1)
        diag_fatal(EXIT_MODEL, im_where(im, input), "the operand must be a scalar");
    return at[0];
}

double im_const_double(const Import *im, int input, double dflt)
{
    double x;
    if (im_in(im, (uint32_t)input) == NONE)
        return dflt;
    if (val(im->g, im->in[input])->kind == V_CONST &&
        shape_elements(&val(im->g, im->in[input])->shape) != 1)
        diag_fatal(EXIT_MODEL, im_where(im, input), "this operand must be a scalar");
    if (!g_const_double(im->g, im->in[input], &x))
        not_constant(im, input);
    return x;
}

/* ---- sequences ---- */

void im_sequence_there(const Import *im, int input, Ids *list, Ids *there)
{
    const Slot *s =
        (uint32_t)input < im->nin ? import_slot(im->state, im->node, (uint32_t)input) : NULL;
    if (!s || !s->is_sequence)
        diag_fatal(EXIT_MODEL, im_where(im, input), "this operand must be a sequence");
    *list = s->sequence;
    *there = s->there;
}

void im_sequence(const Import *im, int input, Ids *list)
{
    Ids there;
    im_sequence_there(im, input, list, &there);
    if (there.n)
        diag_fatal(EXIT_MODEL, im_where(im, input), "the sequence's length depends on the data");
}

void im_set_sequence(Import *im, uint32_t out, Ids list, Ids there)
{
    INSIST(out < im->node->nout);
    if (im_wanted(im, out))
        import_define(im->state, im->node->out[out],
                      (Slot){.v = NONE, .is_sequence = true, .sequence = list, .there = there});
}
