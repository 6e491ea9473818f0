/*
 * numbers.c - what an array's numbers say of it.  In: floats of the file.  Out: whether they are a
 * mask, a table of sines, a grid: numbers that no one learned.
 */
#include <math.h>
#include <string.h>

#include "fx.h"

double raw_number(const RawTensor *t, int64_t i)
{
    return element_double(t->dtype, t->bytes.at, i);
}

bool raw_is_constant(const RawTensor *t)
{
    size_t size = dtype_size(t->dtype);
    return t->bytes.length <= size ||
           !memcmp(t->bytes.at, t->bytes.at + size, t->bytes.length - size);
}

Same raw_same(const RawTensor *a, const RawTensor *b)
{
    const uint8_t *x = a->bytes.at, *y = b->bytes.at;
    size_t size = dtype_size(a->dtype), rows, cols;
    if (a->dtype != b->dtype || a->bytes.length != b->bytes.length || !x || !y)
        return NOT_SAME;
    if (!memcmp(x, y, a->bytes.length))
        return SAME;
    if (a->shape.rank != 2 || b->shape.rank != 2 || a->shape.d[0] != b->shape.d[1])
        return NOT_SAME;
    rows = (size_t)a->shape.d[0];
    cols = (size_t)a->shape.d[1];
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            if (memcmp(x + (r * cols + c) * size, y + (c * rows + r) * size, size))
                return NOT_SAME;
    return SAME_TURNED;
}

bool raw_repeats(const RawTensor *t, int d, int64_t slices)
{
    const int64_t inner = slices * shape_between(&t->shape, d + 1, t->shape.rank);
    return blocks_equal(t->bytes.at, shape_between(&t->shape, 0, d), t->shape.d[d] / slices,
                        (size_t)inner * dtype_size(t->dtype));
}

Payload raw_first(Arena *a, const RawTensor *t, const Shape *once)
{
    size_t size = dtype_size(t->dtype);
    int64_t n = shape_elements(once), index[MAX_RANK] = {0};
    uint8_t *out = arena_alloc(a, (size_t)n * size);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0;
        for (int d = 0; d < once->rank; d++)
            at = at * t->shape.d[d] + index[d];
        memcpy(out + (size_t)i * size, t->bytes.at + (size_t)at * size, size);
        for (int d = once->rank; d-- > 0; index[d] = 0)
            if (++index[d] < once->d[d])
                break;
    }
    return (Payload){
        .at = out, .length = (size_t)n * size, .file = t->bytes.file, .converted = true};
}

int raw_wide_dims(const Shape *s)
{
    int wide = 0;
    for (int i = 0; i < s->rank; i++)
        wide += s->d[i] > 1;
    return wide;
}

/* What a constant's numbers are like. */
typedef struct {
    bool mask; /* some are infinite, or as good as that */
    bool table;
    bool regular; /* in order, or few again and again */
} Looks;

static RawTensor floats(Dtype t, const Shape *s, const void *data)
{
    return (RawTensor){.dtype = t, .shape = *s, .bytes = {.at = data}};
}

static bool has_infinite(const RawTensor *t, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(raw_number(t, i)) <= 1e30))
            return true;
    return false;
}

/* Is what stands first along a dimension 0 everywhere, or the largest, and all behind it other? */
static bool begins_alike(const RawTensor *t, int64_t n, int64_t inner, int64_t each, double most)
{
    double v = raw_number(t, 0);
    bool varies = false;
    if (each == inner || inner == 1 || (v != 0 && v != most))
        return false;
    for (int64_t at = 0; at < n; at += each)
        for (int64_t i = at; i < at + inner; i++)
            if (raw_number(t, i) != v)
                return false;
    for (int64_t at = 0; at < n && !varies; at += inner)
        for (int64_t i = at + 1; i < at + inner && !varies; i++)
            varies = raw_number(t, i) != raw_number(t, i - 1);
    return varies;
}

/* Do all lines along dim d rise, or all fall? */
static bool is_ordered(const RawTensor *t, int d)
{
    enum { LEAST = 8 };
    const int64_t n = shape_elements(&t->shape),
                  inner = shape_between(&t->shape, d + 1, t->shape.rank);
    bool rises = true, falls = true;
    for (int64_t i = inner; i < n && (rises || falls); i++) {
        if (i / inner % t->shape.d[d] == 0)
            continue;
        double step = raw_number(t, i) - raw_number(t, i - inner);
        rises &= step > 0;
        falls &= step < 0;
    }
    return t->shape.d[d] >= LEAST && (rises || falls);
}

/* Few numbers again and again, as grids and filters have. */
static bool is_repeated(const RawTensor *t)
{
    enum { SEEN = 256 };
    int64_t n = shape_elements(&t->shape), distinct = 0;
    n = n < SEEN ? n : SEEN;
    for (int64_t i = 0; i < n; i++) {
        int64_t k = 0;
        while (k < i && raw_number(t, k) != raw_number(t, i))
            k++;
        distinct += k == i;
    }
    return n > 3 && 2 * distinct <= n;
}

static const void *look(Arena *a, Dtype dtype, const Shape *s, const void *data, int what)
{
    Looks *k = arena_new_of(a, Looks);
    const RawTensor t = floats(dtype, s, data);
    int64_t n = shape_elements(s), inner = 1;
    bool constant = true;
    double most = 0;
    (void)what;
    k->mask = k->table = has_infinite(&t, n);
    for (int64_t i = 0; i < n && !k->mask; i++) {
        most = fmax(most, fabs(raw_number(&t, i)));
        constant &= raw_number(&t, i) == raw_number(&t, 0);
    }
    for (int d = s->rank; d-- > 0 && !constant && !k->table; inner *= s->d[d])
        k->table = begins_alike(&t, n, inner, inner * s->d[d], most);
    k->regular = is_repeated(&t);
    for (int d = 0; d < s->rank && !k->regular; d++)
        k->regular = is_ordered(&t, d);
    return k;
}

static const Looks *looks_of(const Graph *g, const RawTensor *t)
{
    return graph_look(g, t->dtype, &t->shape, t->bytes.at, look, 0);
}

bool param_is_mask(const Graph *g, const RawTensor *t) { return looks_of(g, t)->mask; }
bool param_is_table(const Graph *g, const RawTensor *t) { return looks_of(g, t)->table; }
bool param_is_regular(const Graph *g, const RawTensor *t) { return looks_of(g, t)->regular; }
