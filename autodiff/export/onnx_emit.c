/*
 * onnx_emit.c - the operators that core nodes are mostly written as, each into a fresh name or the
 * one that is given.
 */
#include "onnx_emit.h"

const char *emit_op3(Emit *e, const char *op, const char *a, const char *b, const char *c,
                     const char *out)
{
    out = out ? out : ow_made(e->w);
    OnnxNode n = ow_begin(e->w, op, c ? 3 : b ? 2 : 1, (const char *[]){a, b, c}, 1, &out);
    ow_end(e->w, &n);
    return out;
}

const char *emit_op2(Emit *e, const char *op, const char *a, const char *b, const char *out)
{
    return emit_op3(e, op, a, b, NULL, out);
}

const char *emit_int(Emit *e, const char *op, const char *a, const char *b, const char *name,
                     int64_t v, const char *out)
{
    out = out ? out : ow_made(e->w);
    OnnxNode n = ow_begin(e->w, op, b ? 2 : 1, (const char *[]){a, b}, 1, &out);
    ow_int(&n, name, v);
    ow_end(e->w, &n);
    return out;
}

const char *emit_range(Emit *e, const char *n)
{
    return emit_op3(e, "Range", ow_number(e->w, DT_I64, 0), n, ow_number(e->w, DT_I64, 1), NULL);
}

const char *emit_list(Emit *e, int n, const int64_t *v) { return ow_ints(e->w, 1, n, v); }

const char *emit_cast(Emit *e, const char *x, Dtype to, const char *out)
{
    return emit_int(e, "Cast", x, NULL, "to", to, out);
}

const char *emit_reshape(Emit *e, const char *x, const Shape *s, const char *out)
{
    bool zero = false;
    for (int i = 0; i < s->rank; i++)
        zero |= s->d[i] == 0;
    out = out ? out : ow_made(e->w);
    OnnxNode n =
        ow_begin(e->w, "Reshape", 2, (const char *[]){x, emit_list(e, s->rank, s->d)}, 1, &out);
    if (zero)
        ow_int(&n, "allowzero", 1);
    ow_end(e->w, &n);
    return out;
}

const char *emit_transpose(Emit *e, const char *x, int rank, const int64_t *perm, const char *out)
{
    out = out ? out : ow_made(e->w);
    OnnxNode n = ow_begin(e->w, "Transpose", 1, &x, 1, &out);
    ow_int_list(&n, "perm", rank, perm);
    ow_end(e->w, &n);
    return out;
}

const char *emit_slice(Emit *e, const char *x, int rank, const int64_t *start, const int64_t *size,
                       const int64_t *step, const char *out)
{
    int64_t end[MAX_RANK], axis[MAX_RANK], by[MAX_RANK];
    for (int i = 0; i < rank; i++) {
        by[i] = step ? step[i] : 1;
        end[i] = start[i] + by[i] * size[i];
        axis[i] = i;
        if (by[i] < 0 && end[i] < 0)
            end[i] = size[i] > 0 ? INT64_MIN
                                 : start[i]; /* a negative end would count from the other side */
    }
    out = out ? out : ow_made(e->w);
    OnnxNode n = ow_begin(e->w, "Slice", 5,
                          (const char *[]){x, emit_list(e, rank, start), emit_list(e, rank, end),
                                           emit_list(e, rank, axis), emit_list(e, rank, by)},
                          1, &out);
    ow_end(e->w, &n);
    return out;
}

const char *emit_collective(Emit *e, Op op, const char *x, const Attr *at, const char *out)
{
    const char *y = out ? out : ow_made(e->w);
    OnnxNode n = ow_begin(e->w, op_name(op), 1, &x, 1, &y);
    if (op != OP_AllReduce)
        ow_int(&n, "axis", at->axis);
    if (op == OP_AllToAll)
        ow_int(&n, "to_axis", at->to_axis);
    ow_int(&n, "members", e->w->g->mesh[at->mesh].members);
    ow_domain(&n, "ppsplit");
    ow_end(e->w, &n);
    ow_import(e->w, "ppsplit");
    return y;
}
