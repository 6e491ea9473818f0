/*
 * shape_check.c - what rules of shapes ask of operands.  In: a node's operands and attributes. Out:
 * a number, or an error at the ONNX node it came from, with the operands' types in sight.
 */
#include "infer.h"


static void note_makers(const Infer *x)
{
    for (uint32_t i = 0; i < x->nin && i < 4; i++) {
        const Value *v = val(x->g, x->in[i]);
        if (v->kind != V_NODE) {
            static const char *const kind[] = {"a model input", "a parameter", "a constant"};
            diag_note("input %u is '%s', %s", i, v->name, kind[v->kind]);
            continue;
        }
        uint32_t origin = x->g->node.at[v->node].origin;
        const Origin *o = &x->g->origin.at[origin];
        if (origin != 0 && origin != x->g->cur_origin)
            diag_note("input %u is made by node %u '%s' (%s)", i, o->index, o->name, o->type);
    }
}

/* The message, then the operands: "  f32[8,12,128,64] @ f32[8,12,48,128]". */
void infer_refuse(const Infer *x, int input, const char *fmt, ...)
{
    Arena *a = x->g->arena;
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *list = "";
    for (uint32_t i = 0; i < x->nin && i < 8; i++)
        list = arena_printf(a, "%s%s%s", list, i == 0 ? "" : x->op == OP_MatMul ? " @ " : ", ",
                            shape_print(a, infer_type(x, i), infer_dims(x, i)));
    note_makers(x);
    diag_fatal(EXIT_MODEL, graph_where(x->g, x->g->cur_origin, input), "%s\n  %s", text, list);
}

int infer_axis(const Infer *x, int64_t axis, int rank)
{
    if (axis < 0 || axis >= rank)
        infer_refuse(x, 0, "axis %lld is out of range for rank %d", infer_number(axis), rank);
    return (int)axis;
}

int64_t infer_add(const Infer *x, int64_t a, int64_t b)
{
    int64_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        infer_refuse(x, 0, "a dimension overflows");
    return sum;
}

int64_t infer_mul(const Infer *x, int64_t a, int64_t b)
{
    int64_t product;
    if (__builtin_mul_overflow(a, b, &product))
        infer_refuse(x, 0, "a dimension overflows");
    return product;
}

/* NumPy broadcasting of the first `keep` dims (counted from the left of each) of two shapes. */
void infer_broadcast(const Infer *x, const Shape *b, int skip_last, Shape *r)
{
    const Shape a = *r;
    int ra = a.rank - skip_last, rb = b->rank - skip_last, rank = ra > rb ? ra : rb;
    for (int i = 0; i < rank; i++) {
        int ia = i - (rank - ra), ib = i - (rank - rb);
        int64_t da = ia < 0 ? 1 : a.d[ia], db = ib < 0 ? 1 : b->d[ib];
        if (da != db && da != 1 && db != 1)
            infer_refuse(x, 1, "operands do not broadcast: dimension %d is %lld and %lld", i,
                         infer_number(da), infer_number(db));
        r->d[i] = da == 1 ? db : da;
    }
    r->rank = rank + skip_last;
}

void infer_same_types(const Infer *x, uint32_t from)
{
    for (uint32_t i = from + 1; i < x->nin; i++)
        if (infer_type(x, i) != infer_type(x, from))
            infer_refuse(x, (int)i, "operands have different types: %s and %s",
                         dtype_name(infer_type(x, from)), dtype_name(infer_type(x, i)));
}

void infer_need(const Infer *x, uint32_t i, bool good, const char *what)
{
    if (!good)
        infer_refuse(x, (int)i, "the operand must be %s, and is %s", what,
                     dtype_name(infer_type(x, i)));
}

void infer_broadcast_all(Infer *x)
{
    x->s[0] = *infer_dims(x, 0);
    for (uint32_t i = 1; i < x->nin; i++)
        infer_broadcast(x, infer_dims(x, i), 0, &x->s[0]);
}
