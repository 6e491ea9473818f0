/*
 * rows.c - a parameter of which folding left the rows alone.  In: traces that were made by
 * select or slice, and the lines of their readers.  Out: the parameter, where the rows can be put
 * in order: by the numbers that the lines have, else by that of the reads, which is said.
 */
#include <stdlib.h>
#include <string.h>

#include "fx.h"

enum { MOST_CALLS = 8 };

static int by_number(const void *a, const void *b)
{
    long i = fx_number((*(Trace *const *)a)->fx), k = fx_number((*(Trace *const *)b)->fx);
    return (i > k) - (i < k);
}

/* Does the text take rows of another dim than the first? */
static bool cuts_across(Fx *x, const Trace *t)
{
    TextCall call[MOST_CALLS];
    uint32_t k = 0, n = text_calls(x->a, t->use->node->stack,
                                   fx_leaf(x->p->sig.entry[t->entry].target), call, MOST_CALLS);
    while (k < n && strcmp(call[k].name, "[]"))
        k++;
    return k < n && call[k].n > 1 &&
           (!strcmp(call[k].arg[0], ":") || !strcmp(call[k].arg[0], "..."));
}

static int by_row(const void *a, const void *b)
{
    int64_t i = (*(Trace *const *)a)->row, k = (*(Trace *const *)b)->row;
    return (i > k) - (i < k);
}

/* Rows by select, in the order of the numbers that the lines have, else in that of the reads: a
 * loop may go backwards, which nothing in the file says.  False: one row is read as several. */
static bool sort_rows(Fx *x, Trace **t, uint32_t n, bool *in_order)
{
    uint32_t numbers = 0, variables = 0;
    for (uint32_t i = 0; i < n; i++) {
        const char *line = text_last(t[i]->use->node->stack),
                   *leaf = fx_leaf(x->p->sig.entry[t[i]->entry].target);
        RowText said = text_row(x->a, line, leaf, &t[i]->row);
        numbers += said == ROW_NUMBER;
        variables += said == ROW_VARIABLE || !text_reads(line, leaf);
        if (said == ROW_NUMBER && t[i]->row < 0)
            t[i]->row += n;
    }
    qsort(t, n, sizeof *t, numbers == n ? by_row : by_number);
    *in_order = variables > 0;
    for (uint32_t i = 0; i < n && numbers == n; i++) {
        if (i > 0 && t[i]->row == t[i - 1]->row)
            return false;
        *in_order |= t[i]->row != i;
    }
    return true;
}

/* Rows by select, or runs of rows by slices whose bounds the text tells. */
bool infer_rows(Fx *x, Trace *const *t, uint32_t n, Inferred *out)
{
    Trace **sorted = arena_array(x->a, Trace *, n);
    const Shape *first = &t[0]->tensor->shape;
    bool rows = fx_is_base(t[0]->fx, "select");
    int64_t *size = arena_array(x->a, int64_t, n), all = 0;
    size_t bytes = 0, at = 0;
    if (n < 2 || first->rank + rows > MAX_RANK ||
        (!rows && (!fx_is_base(t[0]->fx, "slice") || first->rank < 1)) || cuts_across(x, t[0]))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        if (!trace_is_plain_part(x, t[i]))
            return false;
        sorted[i] = t[i];
    }
    bool in_order = false;
    if (!rows)
        qsort(sorted, n, sizeof *sorted, by_number);
    else if (!sort_rows(x, sorted, n, &in_order))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        Shape s = sorted[i]->tensor->shape;
        bool same = s.rank == first->rank && fx_is_base(sorted[i]->fx, rows ? "select" : "slice");
        for (int d = !rows; same && d < s.rank; d++)
            same = s.d[d] == first->d[d];
        if (!same)
            return false;
        size[i] = rows ? 1 : s.d[0];
        sorted[i]->row = all;
        sorted[i]->rows = size[i];
        all += size[i];
        bytes += sorted[i]->tensor->bytes.length;
    }
    if (rows && first->rank == 0)
        return false; /* numbers: what was done before they were taken apart is not told */
    if (!rows && !text_slices(x->a, text_last(t[0]->use->node->stack),
                              fx_leaf(x->p->sig.entry[t[0]->entry].target), size, n))
        return false;
    uint8_t *whole = arena_alloc(x->a, bytes);
    for (uint32_t i = 0; i < n; at += sorted[i++]->tensor->bytes.length)
        memcpy(whole + at, sorted[i]->tensor->bytes.at, sorted[i]->tensor->bytes.length);
    *out = (Inferred){.shape = *first, .in_order = in_order};
    for (int d = first->rank; rows && d > 0; d--)
        out->shape.d[d] = first->d[d - 1];
    out->shape.rank += rows;
    out->shape.d[0] = all;
    out->bytes = (Payload){
        .at = whole, .length = bytes, .file = t[0]->tensor->bytes.file, .converted = true};
    return true;
}
