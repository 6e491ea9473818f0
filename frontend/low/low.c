/*
 * low.c - helpers of the op importers.  In: operands as the ONNX node has them.  Out: checked
 * numbers, and small pieces of core graph whose gradients are safe (no NaN from a branch that is
 * not taken).
 */
#include "low.h"

#include <stdlib.h>
#include <string.h>

#include "state.h"

void low_fatal(const Import *im, int input, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    diag_fatal(EXIT_MODEL, im_where(im, input), "%s", text);
}

void low_no_place(const Import *im, int64_t index, int64_t size)
{
    const Value *v = val(im->g, im->in[0]);
    if (im->state->opt->bind.n)
        diag_hint("if it counts the places of a dimension, --bind that to at most %lld, or export "
                  "the model with a larger table",
                  (long long)size);
    low_fatal(im, 1, "index %lld is out of range for a dim of %lld%s%s%s", (long long)index,
              (long long)size, v->name ? ", of '" : "",
              v->name ? diag_escape(im->arena, v->name) : "", v->name ? "'" : "");
}

void low_limit_nodes(const Import *im, int64_t count, int64_t each, const char *what)
{
    int64_t limit = im->state->m->limits.nodes;
    if (count <= limit / each)
        return;
    diag_hint("--limit=nodes=N raises the limit");
    low_fatal(im, 0, "%lld %s of %lld nodes are more than %lld", (long long)count, what,
              (long long)each, (long long)limit);
}

void low_limit_table(const Import *im, int64_t count, int64_t each, const char *what)
{
    const int64_t most = INT64_C(1) << 26;
    if (each > most || count > most / low_max(each, 1))
        low_fatal(im, -1, "a table of %lld %s, each of %lld numbers, is too large",
                  (long long)count, what, (long long)each);
}

ValueId low_need(const Import *im, uint32_t i)
{
    ValueId v = im_in(im, i);
    if (v == NONE)
        low_fatal(im, (int)i, "the operand is missing");
    return v;
}

ValueId low_need_float(const Import *im, uint32_t i)
{
    ValueId v = low_need(im, i);
    if (!dtype_is_float(low_dtype(im->g, v)))
        low_fatal(im, (int)i, "a float operand is needed, not %s", dtype_name(low_dtype(im->g, v)));
    return v;
}

ValueId low_need_wide(const Import *im, uint32_t i)
{
    ValueId x = low_need_float(im, i);
    return g_cast(im->g, x, dtype_sum(low_dtype(im->g, x)));
}

ValueId low_narrow(const Import *im, ValueId y)
{
    return g_cast(im->g, y, low_dtype(im->g, im->in[0]));
}

Shape low_need_rank(const Import *im, uint32_t i, int lo, int hi)
{
    ValueId v = low_need(im, i);
    Shape s = low_shape(im->g, v);
    if (s.rank < lo || s.rank > hi)
        low_fatal(im, (int)i, lo == hi ? "%s: rank %d is needed" : "%s: rank %d to %d is needed",
                  shape_print(im->arena, low_dtype(im->g, v), &s), lo, hi);
    return s;
}

int low_axis(const Import *im, int64_t axis, int rank)
{
    if (axis < -rank || axis >= rank)
        low_fatal(im, -1, "axis %lld is out of range for rank %d", (long long)axis, rank);
    return (int)(axis < 0 ? axis + rank : axis);
}

int64_t *low_axes(const Import *im, const int64_t *axes, int64_t n, int rank)
{
    bool seen[MAX_RANK] = {0};
    for (int64_t i = 0; i < n; i++) {
        int axis = low_axis(im, axes[i], rank);
        if (seen[axis])
            low_fatal(im, -1, "axis %d is named twice", axis);
        seen[axis] = true;
    }
    int64_t *out = arena_array(im->arena, int64_t, n + 1);
    int k = 0;
    for (int d = 0; d < rank; d++)
        if (seen[d])
            out[k++] = d;
    return out;
}

int *low_which(const Import *im, const int64_t *axes, int64_t n, int rank)
{
    int *which = arena_array(im->arena, int, MAX_RANK);
    if (axes)
        low_axes(im, axes, n, rank);
    for (int i = 0; i < rank && i < n; i++)
        which[i] = axes ? low_axis(im, axes[i], rank) : i;
    return which;
}

bool low_ints_either(const Import *im, const char *name, int i, int64_t **at, int64_t *n)
{
    int count;
    if (im_in(im, (uint32_t)i) != NONE) {
        im_const_ints(im, i, at, n);
        return true;
    }
    if (!im_ints(im, name, at, &count))
        return false;
    *n = count;
    return true;
}

void low_ints_needed(const Import *im, const char *name, int i, int64_t **at, int64_t *n)
{
    if (!low_ints_either(im, name, i, at, n))
        low_fatal(im, i, "'%s' is missing", name);
}

int low_choice(const Import *im, const char *name, const char *dflt, const char *words)
{
    enum { MOST = 16 };
    const char *s = im_str(im, name, dflt), *word[MOST];
    uint32_t n = 0;
    for (const char *at = words; *at && n < MOST; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        word[n] = arena_strndup(im->arena, at, length);
        if (!strcmp(s, word[n]))
            return (int)n;
        n++, at += length;
    }
    diag_meant(s, word, n);
    low_fatal(im, -1, "attribute '%s' is '%.32s', not one of: %s", name, diag_escape(im->arena, s),
              words);
}

int64_t *low_numbers(const Import *im, const char *name, int n, int64_t dflt, int64_t least)
{
    int64_t *at, *out = arena_array(im->g->arena, int64_t, n + 1);
    int count = 0;
    bool given = im_ints(im, name, &at, &count) && count > 0;
    if (given && count != n)
        low_fatal(im, -1, "%s has %d numbers, %d are needed", name, count, n);
    for (int i = 0; i < n; i++) {
        out[i] = given ? at[i] : dflt;
        if (out[i] < least || out[i] > INT32_MAX)
            low_fatal(im, -1, "%s: %lld is out of range", name, (long long)out[i]);
    }
    return out;
}

Shape low_dims(const Import *im, int i, const int64_t *at, int64_t n, int64_t least)
{
    Shape s = {.rank = (int)low_min(n, MAX_RANK)};
    if (n > MAX_RANK)
        low_fatal(im, i, "%lld dims, at most %d are supported", (long long)n, MAX_RANK);
    for (int d = 0; d < s.rank; d++) {
        s.d[d] = at[d];
        if (at[d] < least)
            low_fatal(im, i, "dim %d is %lld", d, (long long)at[d]);
    }
    return s;
}

ValueId low_expect(const Import *im, uint32_t i, Shape want)
{
    ValueId v = low_need(im, i);
    Shape s = low_shape(im->g, v);
    Dtype t = low_dtype(im->g, v);
    if (!shape_equal(&s, &want))
        low_fatal(im, (int)i, "%s: %s is needed", shape_print(im->arena, t, &s),
                  shape_print(im->arena, t, &want));
    return v;
}

void low_fits(const Import *im, uint32_t i, Shape s)
{
    ValueId v = im_in(im, i);
    Shape p = v == NONE ? (Shape){0} : low_shape(im->g, v);
    bool ok = p.rank <= s.rank;
    for (int d = 0; ok && d < p.rank; d++)
        ok = p.d[d] == 1 || p.d[d] == s.d[s.rank - p.rank + d];
    if (!ok)
        low_fatal(im, (int)i, "%s does not broadcast to %s", shape_print(im->arena, DT_F32, &p),
                  shape_print(im->arena, DT_F32, &s));
}

double low_const_at(const Value *v, int64_t i)
{
    INSIST(v->kind == V_CONST);
    return element_double(v->dtype, v->data, i);
}

bool low_uniform(const Graph *g, ValueId v, double *x)
{
    const Value *from = val(g, graph_behind_views(g, v));
    int64_t n = shape_elements(&from->shape);
    if (from->kind != V_CONST || n < 1)
        return false;
    for (int64_t i = 1; i < n; i++)
        if (low_const_at(from, i) != low_const_at(from, 0))
            return false;
    *x = low_const_at(from, 0);
    return true;
}

ValueId low_const(Graph *g, Dtype t, Shape s, void *data)
{
    return graph_const(g, NULL, (Tensor){t, s, data});
}

ValueId low_const_doubles(Graph *g, Dtype t, Shape s, const double *at)
{
    int64_t n = shape_elements(&s);
    if (t == DT_F64) {
        double *d = arena_array(g->arena, double, n + 1);
        memcpy(d, at, (size_t)n * sizeof *d);
        return low_const(g, t, s, d);
    }
    float *f = arena_array(g->arena, float, n + 1);
    for (int64_t i = 0; i < n; i++)
        f[i] = (float)at[i];
    ValueId c = low_const(g, DT_F32, s, f);
    return t == DT_F32 ? c : g_cast(g, c, t);
}

/* Not an expanded constant: those dims would name the rows of the batch, which may be fewer. */
ValueId low_zeros_like(Graph *g, ValueId x)
{
    ValueId no = g_scalar(g, DT_BOOL, 0);
    return g_where(g, no, x, g_like(g, x, 0));
}

ValueId low_squeeze(Graph *g, ValueId x, int n, const int64_t *axes)
{
    Shape s = low_shape(g, x), out = {0};
    for (int d = 0, k = 0; d < s.rank; d++) {
        if (k < n && axes[k] == d)
            k++;
        else
            out.d[out.rank++] = s.d[d];
    }
    return g_reshape(g, x, &out);
}

ValueId low_unsqueeze(Graph *g, ValueId x, int axis)
{
    INSIST(axis <= val(g, x)->shape.rank);
    const Shape s = shape_with(&val(g, x)->shape, axis, 1);
    return g_reshape(g, x, &s);
}

ValueId low_at(Graph *g, ValueId x, int axis, int64_t i)
{
    return low_squeeze(g, g_slice_axis(g, x, axis, i, 1), 1, &(int64_t){axis});
}

ValueId low_reduce(Graph *g, Op op, ValueId x, int axis)
{
    const int64_t along = axis;
    return low_squeeze(g, g_reduce(g, op, x, 1, &along), 1, &along);
}

ValueId low_line(Graph *g, ValueId x, int axis, int rank)
{
    Shape s = low_shape(g, x), line = {.rank = rank};
    for (int d = 0; d < rank; d++)
        line.d[d] = d == axis ? shape_elements(&s) : 1;
    return g_reshape(g, x, &line);
}

ValueId low_stopped(Graph *g, ValueId x)
{
    ValueKind k = x == NONE ? V_CONST : val(g, x)->kind;
    return k == V_NODE || k == V_PARAM ? g_unary(g, OP_StopGradient, x) : x;
}

ValueId low_move_dim(Graph *g, ValueId x, int from, int to)
{
    int64_t perm[MAX_RANK];
    int rank = low_shape(g, x).rank;
    for (int d = 0; d < rank; d++) {
        int other = d - (d > to); /* its place among the others */
        perm[d] = d == to ? from : other + (other >= from);
    }
    return g_transpose(g, x, perm);
}

ValueId low_channels(const Import *im, uint32_t i, int64_t c, int rank)
{
    ValueId v = low_need(im, i);
    Shape s = low_shape(im->g, v);
    if (s.rank != 1 || s.d[0] != c)
        low_fatal(im, (int)i, "%s: one number for each of %lld channels is needed",
                  shape_print(im->arena, low_dtype(im->g, v), &s), (long long)c);
    for (s.rank = 1; s.rank < rank - 1; s.rank++)
        s.d[s.rank] = 1;
    return g_reshape(im->g, v, &s);
}

ValueId low_not_zero(Graph *g, ValueId x) { return g_formula(g, "x: x == 0 ? 1 : x", x); }

ValueId low_safe_sqrt(Graph *g, ValueId s)
{
    return g_formula(g, "s: zero = s == 0; zero ? 0 : Sqrt(zero ? 1 : s)", s);
}

ValueId low_square(Graph *g, ValueId x) { return g_mul(g, x, x); }

ValueId low_plus(Graph *g, ValueId x, ValueId y)
{
    return x == NONE ? y : y == NONE ? x : g_add(g, x, y);
}

ValueId low_scale(Graph *g, ValueId x, double k)
{
    return k == 1 ? x : g_mul(g, x, g_like(g, x, k));
}

/* Every element r times: a new dim of 1 after the axis, expanded and merged. */
static ValueId repeat_each(Graph *g, ValueId x, int axis, int64_t r)
{
    Shape whole = low_shape(g, x), s;
    whole.d[axis] *= r;
    x = low_unsqueeze(g, x, axis + 1);
    s = low_shape(g, x);
    s.d[axis + 1] = r;
    return g_reshape(g, g_expand(g, x, &s), &whole);
}

ValueId low_take(Graph *g, ValueId x, int axis, int64_t n, const int64_t *idx)
{
    Shape s = low_shape(g, x);
    int64_t step = n > 1 ? idx[1] - idx[0] : 1, i;
    for (i = 1; i < n && idx[i] - idx[i - 1] == step; i++) {
    }
    if (n >= 1 && i == n && step != 0) {
        int64_t start[MAX_RANK] = {0}, size[MAX_RANK], steps[MAX_RANK];
        for (int d = 0; d < s.rank; d++)
            size[d] = s.d[d], steps[d] = 1;
        start[axis] = idx[0], size[axis] = n, steps[axis] = step;
        return g_slice(g, x, start, size, steps);
    }
    int64_t r = s.d[axis] > 0 && n % s.d[axis] == 0 ? n / s.d[axis] : 0;
    for (i = 0; r > 0 && i < n && idx[i] == i / r; i++) {
    }
    if (r > 0 && i == n && s.rank < MAX_RANK)
        return repeat_each(g, x, axis, r);
    int64_t *copy = arena_array(g->arena, int64_t, n + 1);
    memcpy(copy, idx, (size_t)n * sizeof *copy);
    Shape is = {1, {n}};
    return g_gather(g, x, low_const(g, DT_I64, is, copy), axis);
}

/* A list of constant indices may be a slice, which costs nothing and has a gradient without
 * additions. */
ValueId low_gather(const Import *im, ValueId x, ValueId index, const Attr *t)
{
    Graph *g = im->g;
    Shape s = low_shape(g, x), is = low_shape(g, index), out = {0};
    const int axis = (int)t->axis;
    int64_t *given, n;
    const Dtype type = low_dtype(g, index);
    if (t->padding_row > 0 || s.rank + is.rank - 1 > MAX_RANK ||
        (type != DT_I32 && type != DT_I64) || !g_const_ints(g, index, im->arena, &given, &n))
        return graph_node(g, OP_Gather, 2, (ValueId[]){x, index}, *t);
    int64_t *idx = arena_array(g->arena, int64_t, n + 1);
    for (int64_t i = 0; i < n; i++) {
        idx[i] = given[i] < 0 ? given[i] + s.d[axis] : given[i];
        if (idx[i] < 0 || idx[i] >= s.d[axis])
            low_no_place(im, given[i], s.d[axis]);
    }
    for (int d = 0; d < axis; d++)
        out.d[out.rank++] = s.d[d];
    for (int d = 0; d < is.rank; d++)
        out.d[out.rank++] = is.d[d];
    for (int d = axis + 1; d < s.rank; d++)
        out.d[out.rank++] = s.d[d];
    bool list = true;
    for (int d = 0; d < is.rank; d++)
        list &= is.d[d] == 1 || is.d[d] == n;
    return list ? g_reshape(g, low_take(g, x, axis, n, idx), &out)
                : g_gather(g, x, low_const(g, DT_I64, is, idx), axis);
}
