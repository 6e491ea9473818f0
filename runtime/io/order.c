/*
 * order.c - in: the rows of the data, in their places.  Out: the order in which an epoch takes
 * them: --mix puts them in their order (mix.c), then --shuffle and --by-length
 * (base/file/row_order.h).
 */
#include "data.h"

#include "base/file/row_order.h"
#include "core/core.h"

_Static_assert((int)ROW_LENGTHS == (int)PP_LENGTHS, "as many dimensions vary");

int order_by_length(const Data *d) { return d->opt->data.by_length && d->opt->data.lengths.n; }

int order_is_own(const Data *d) { return d->opt->data.shuffle || d->n_mix || order_by_length(d); }

PpStatus order_rows(const Data *d, int64_t epoch, int64_t *order)
{
    RowOrder o = {.rows = d->rows,
                  .batch = d->batch,
                  .n = (int64_t)data_chunks(d) * d->replicas,
                  .row0 = d->row0,
                  .by_length = order_by_length(d) ? d->opt->data.by_length : 0,
                  .shuffle = d->opt->data.shuffle,
                  .seed = d->opt->data.shuffle_seed};
    for (int v = 0; v < PP_LENGTHS; v++)
        o.length[v] = d->row_length[v];
    for (int64_t i = 0; i < d->rows; i++)
        order[i] = i;
    if (d->n_mix)
        TRY(mix_order(d, epoch, order));
    return row_order(&o, epoch, order) ? PP_OK : pp_no_memory();
}
