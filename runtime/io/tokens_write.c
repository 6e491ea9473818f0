/*
 * tokens_write.c - in: --tokens NAME=FILE of any kind, a text by its bytes too, and --output
 * NAME=FILE; out: the rows that a run would make of them, of an input and of the target, as the
 * .npy that --data reads.  Numbers stay as narrow as they are in the files.
 */
#include "data.h"

#include "base/file/safetensors.h"
#include "core/core.h"
#include "io/files.h"

#include <inttypes.h>
#include <string.h>

/* The rows of an input from all of its files, one file of tokens after the other */
static PpStatus write_rows(const Data *d, int input, const char *path)
{
    const PpTensor *t = &d->model->input[input];
    const DataInput *in = &d->input[input];
    int64_t dim[PP_MAX_RANK], rows = in->rows;
    int dtype = in->file[0].npy.dtype, is;
    char err[600];
    for (int k = 1; k < in->n; k++)
        if (in->file[k].npy.dtype != dtype)
            return pp_fail(PP_ERR_MODEL, "--tokens %s: %s holds %s, %s %s: write them apart",
                           t->name, in->file[0].path, data_dtype_text(dtype), in->file[k].path,
                           data_dtype_text(in->file[k].npy.dtype));
    for (int i = 0; i < t->rank; i++)
        dim[i] = i == t->batch_dim ? t->dim[i] / d->model->rows * rows : t->dim[i];
    size_t piece = (size_t)(in->inner * st_dtype_size(dtype));
    char *all, *to;
    POOL(room);
    TRY(pp_take(&room, &all, rows * in->outer, piece));
    to = all;
    for (int64_t o = 0; o < in->outer; o++)
        for (int64_t row = 0; row < rows; row++, to += piece)
            memcpy(to, data_piece(d, input, row, o, &is), piece);
    return npy_write(path, dtype, t->rank, dim, all, err, sizeof err)
               ? pp_fail(PP_ERR_IO, "--output %s: %s", t->name, err)
               : PP_OK;
}

PpStatus tokens_write(Data *d, const PpPlan *p, const Options *o)
{
    if (!o->data.tokens.n || !o->data.output.n)
        return pp_fail(PP_ERR_USAGE, "tokens: --tokens NAME=FILE says what is read, --output "
                                     "NAME=FILE.npy which rows are written where");
    TRY(data_open_tokens(d, p, o));
    TRY(destinations_apart(o, NULL));
    TRY(data_check(d, 0, 1));
    for (int k = 0; k < o->data.output.n; k++) {
        int input;
        TRY(data_find(p, "output", o->data.output.at[k].name, &input));
        if (!d->input[input].n)
            return pp_fail(PP_ERR_USAGE, "--output %s: it is not made of --tokens",
                           o->data.output.at[k].name);
        TRY(write_rows(d, input, o->data.output.at[k].file));
        if (!o->report.quiet)
            printf("%s: %" PRId64 " rows of %s\n", o->data.output.at[k].file, d->input[input].rows,
                   o->data.output.at[k].name);
    }
    return PP_OK;
}
