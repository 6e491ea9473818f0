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

/* The only row of zeros of several, or -1. */
static int64_t zero_row(const Param *p)
{
    int64_t rows = p->shape.rank == 2 ? p->shape.d[0] : 0, found = -1;
    size_t each = rows > 1 ? p->bytes.length / (size_t)rows : 0;
    for (int64_t r = 0; each && p->bytes.at && r < rows; r++) {
        const uint8_t *row = p->bytes.at + (size_t)r * each;
        if (row[0] || memcmp(row, row + 1, each - 1))
            continue;
        if (found >= 0)
            return -1;
        found = r;
    }
    return found;
}

static int64_t untold_row(const Import *im)
{
    ImportState *s = im->state;
    const Recipe *made = im->node->made ? im->node->made[0] : NULL;
    bool turned;
    if (!s->m->from_pytorch || !made || !recipe_is_plain(made, &turned) || turned)
        return -1;
    const Param *p = &im->g->param.at[recipe_only_param(made)];
    int64_t row = p->trainable && !p->transposed ? zero_row(p) : -1;
    if (row >= 0 && s->n_padded++ == 0)
        s->first_padded = p->name;
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

void padding_report(const ImportState *s)
{
    if (s->n_padded == 0)
        return;
    diag_hint("if the row trains, export with dynamo=True, which records padding_idx");
    diag_warn(WHERE_FILE(s->m->path),
              "%u embedding%s of TorchScript (first '%.128s') with one row of zeros: it is taken "
              "for padding_idx, and gets no gradient from there",
              s->n_padded, s->n_padded == 1 ? "" : "s", diag_escape(s->m->arena, s->first_padded));
}
