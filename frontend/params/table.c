/*
 * table.c - a table of relative positions that folding looked up.  In: what an attention adds
 * to its scores, of heads x n x n, where n are the places of a window.  Out:
 * relative_position_bias_table, one row for each offset of two places (Swin, arXiv:2103.14030,
 * section 3.2; with three rows more where a class token stands before the places, BEiT), and the
 * lookup as a Gather.  The window's height and width are those for which equal offsets hold equal
 * numbers.  Also: which tables are no parameters at all.
 */
#include <math.h>
#include <string.h>

#include "fx.h"

double raw_number(const RawTensor *t, int64_t i)
{
    float f;
    double d;
    if (t->dtype == DT_F64) {
        memcpy(&d, t->bytes.at + (size_t)i * sizeof d, sizeof d);
        return d;
    }
    memcpy(&f, t->bytes.at + (size_t)i * sizeof f, sizeof f);
    return (double)f;
}

/* What a constant's numbers are like. */
typedef struct {
    bool mask;                                          /* some are infinite, or as good as that */
    bool table;
    bool regular;                                       /* in order, or few again and again */
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
    int64_t n = shape_elements(&t->shape), inner = 1;
    bool rises = true, falls = true;
    for (int i = d + 1; i < t->shape.rank; i++)
        inner *= t->shape.d[i];
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

typedef struct { int64_t heads, n, height, width, tokens, rows; bool heads_last; } Table;

static int64_t index_of(const Table *t, int64_t i, int64_t k)
{
    if (i < t->tokens || k < t->tokens)
        return t->rows - 3 + (i < t->tokens ? k < t->tokens ? 2 : 0 : 1);
    i -= t->tokens;
    k -= t->tokens;
    int64_t down = i / t->width - k / t->width + t->height - 1,
            right = i % t->width - k % t->width + t->width - 1;
    return down * (2 * t->width - 1) + right;
}

static const uint8_t *element(const Table *t, const RawTensor *tensor, int64_t head, int64_t i,
                              int64_t k)
{
    int64_t at = t->heads_last ? (i * t->n + k) * t->heads + head : (head * t->n + i) * t->n + k;
    return tensor->bytes.at + (size_t)at * dtype_size(tensor->dtype);
}

/* Fills the table; false when two places at one offset disagree. */
static bool fill(const Table *t, const RawTensor *tensor, uint8_t *out, bool *seen)
{
    size_t size = dtype_size(tensor->dtype);
    memset(seen, 0, (size_t)t->rows * sizeof *seen);
    for (int64_t i = 0; i < t->n; i++)
        for (int64_t k = 0; k < t->n; k++) {
            int64_t row = index_of(t, i, k);
            for (int64_t h = 0; h < t->heads; h++) {
                const uint8_t *from = element(t, tensor, h, i, k);
                uint8_t *to = out + (size_t)(row * t->heads + h) * size;
                if (seen[row] && memcmp(from, to, size))
                    return false;
                memcpy(to, from, size);
            }
            seen[row] = true;
        }
    return true;
}

static void record(Fx *x, const Table *t, const RawTensor *tensor, Undone *out)
{
    Arena *a = x->a;
    int64_t *index = arena_array(a, int64_t, t->n * t->n);
    for (int64_t i = 0; i < t->n * t->n; i++)
        index[i] = index_of(t, i / t->n, i % t->n);
    out->recipe = recipe_of(a, 0);
    recipe_gather(a, out->recipe, t->n * t->n, index);
    if (!t->heads_last)
        recipe_transpose(a, out->recipe, 2, (int64_t[]){1, 0});
    recipe_reshape(a, out->recipe, &tensor->shape);
}

bool undo_table(Fx *x, const RawTensor *tensor, Undone *out)
{
    Shape s = tensor->shape;
    int lead = 0;
    while (lead + 2 < s.rank && s.d[lead] == 1)
        lead++;
    for (int last = 0; last < 2; last++)
        for (int64_t tokens = 0; tokens < 2; tokens++) {
            Table t = {.heads_last = last, .tokens = tokens, .heads = 1};
            if (s.rank - lead == 3 &&
                s.d[last ? lead : lead + 1] == s.d[last ? lead + 1 : lead + 2]) {
                t.n = s.d[lead + 1];
                t.heads = s.d[last ? lead + 2 : lead];
            } else if (s.rank - lead == 2 && s.d[lead] == s.d[lead + 1] && !last) {
                t.n = s.d[lead];
            } else if (s.rank == 2 &&
                       last) { /* as it was looked up: what came then was too large to fold */
                while (t.n * t.n < s.d[0])
                    t.n++;
                t.heads = s.d[1];
                if (t.n * t.n != s.d[0])
                    continue;
            } else {
                continue;
            }
            int64_t places = t.n - tokens;
            for (int64_t d = 0; places > 3 && d < places; d++) {
                t.height = d;
                while (d == 0 && t.height * t.height < places)     /* a square first */
                    t.height++;
                if (t.height < 2 || places % t.height || places / t.height < 2)
                    continue;
                t.width = places / t.height;
                t.rows = (2 * t.height - 1) * (2 * t.width - 1) + 3 * tokens;
                uint8_t *bytes =
                    arena_calloc(x->a, (size_t)(t.rows * t.heads), dtype_size(tensor->dtype));
                bool *seen = arena_array(x->a, bool, t.rows);
                if (!fill(&t, tensor, bytes, seen))
                    continue;
                *out = (Undone){.shape = shape_of(2, t.rows, t.heads)};
                out->bytes =
                    (Payload){.at = bytes,
                              .length = (size_t)(t.rows * t.heads) * dtype_size(tensor->dtype),
                              .file = tensor->bytes.file,
                              .converted = true};
                record(x, &t, tensor, out);
                return true;
            }
        }
    return false;
}
