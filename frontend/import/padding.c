/*
 * padding.c - which row of an embedding gets no gradient.  In: a Gather of rows.  Out: the row that
 * dynamo's metadata names, or that the numbers of a TorchScript file tell.
 *
 * nn.Embedding(padding_idx) fills the row with zeros, and as it gets no gradient, no step changes
 * it.  TorchScript's exporter drops the argument.  A table that was drawn or trained has no row of
 * zeros, so where one row alone is zeros, it is that row.
 */
#include <string.h>

#include "driver.h"

/* The only row of zeros, or -1.  Of a row with other numbers only the first are read. */
static int64_t zero_row(const Param *p)
{
    int64_t rows = p->shape.d[0], found = -1;
    size_t each = p->bytes.length / (size_t)rows;
    for (int64_t r = 0; r < rows; r++) {
        const uint8_t *row = p->bytes.at + (size_t)r * each;
        if (row[0] || memcmp(row, row + 1, each - 1))
            continue;
        if (found >= 0)
            return -1;
        found = r;
    }
    return found;
}

static void note(ImportState *s, Strings *list, const char *text)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (!strcmp(list->at[i], text))
            return;
    vec_push(s->m->arena, list, text);
}

/* Is it a table that trains, in which data choose rows? */
static bool is_embedding(const Import *im, const Param *p)
{
    int64_t *at, n;
    return p->trainable && !p->transposed && p->shape.rank == 2 && p->shape.d[0] > 2 &&
           p->shape.d[1] > 1 && p->bytes.at && !param_thawed(im->state->params, p->name) &&
           !g_const_ints(im->g, im->in[1], im->arena, &at, &n);
}

static int64_t untold_row(const Import *im)
{
    ImportState *s = im->state;
    const Recipe *made = im->node->made ? im->node->made[0] : NULL;
    bool turned;
    if (!s->m->from_pytorch || !made || !recipe_is_plain(made, &turned) || turned)
        return -1;
    const Param *p = &im->g->param.at[recipe_only_param(made)];
    if (!is_embedding(im, p))
        return -1;
    const char *name = diag_escape(s->m->arena, p->name);
    int64_t row = p->bytes.absent ? -1 : zero_row(p);
    if (p->bytes.absent)
        note(s, &s->unpadded, name);
    else if (row >= 0)
        note(s, &s->padded, arena_printf(s->m->arena, "%s (row %lld)", name, (long long)row));
    return row;
}

int64_t im_padding_row(const Import *im)
{
    double row;
    if (!im->training)
        return -1;
    if (!im->node->fx_node)
        return untold_row(im);
    bool told = im_told(im, "aten.embedding.default", 2, "padding_idx", &row);
    return told && row >= 0 && row < 0x1p53 ? (int64_t)row : -1;
}

static void warn_of(const ImportState *s, const Strings *list, const char *what)
{
    if (list->n == 0)
        return;
    diag_hint("export with dynamo=True, which records padding_idx; --train NAME: all rows train");
    diag_warn(WHERE_FILE(s->m->path), "%u embedding%s of TorchScript %s: %s", list->n,
              list->n == 1 ? "" : "s", what, param_join(s->m->arena, list->at, list->n));
}

void padding_report(const ImportState *s)
{
    warn_of(
        s, &s->padded,
        "with one row of zeros, which is taken for padding_idx and gets no gradient from there");
    warn_of(s, &s->unpadded,
            "without weights, so it is not known whether one row is padding_idx: all rows train");
}
