/*
 * tokens.c - in: --tokens NAME=FILE, a text as numbers, and --dtype-of NAME=TYPE where the file has
 * no header; out: rows of the input NAME, and of the loss's target.
 *
 * With S elements in a row of the input and n tokens in a file, row r is the tokens from r S to
 * r S + S - 1, and the target's row the tokens from r S + 1 to r S + S: (n - 1) / S rows, rounded
 * down.  The next file begins a new row.  With --lengths a row is as long as that says, and its
 * target the same without the first token; but the lengths of as many rows of S as a file makes,
 * which aren't said by their places, are those of such rows.
 */
#include "data.h"

#include "base/file/safetensors.h"
#include "base/file/token_file.h"
#include "core/core.h"

#include <glob.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_integer(int dtype) { return dtype == PP_I32 || dtype == PP_I64; }

/* The type of files without a header; 0: not given */
static PpStatus raw_type(const Options *o, const char *name, int *dtype)
{
    *dtype = 0;
    for (int i = 0; i < o->data.dtype_of.n; i++) {
        const char *type = o->data.dtype_of.at[i].file;
        if (strcmp(o->data.dtype_of.at[i].name, name) != 0)
            continue;
        *dtype = !strcmp(type, "u8")    ? NPY_U8
                 : !strcmp(type, "u16") ? NPY_U16
                 : !strcmp(type, "i32") ? PP_I32
                 : !strcmp(type, "i64") ? PP_I64
                                        : 0;
        if (!*dtype)
            return pp_fail(PP_ERR_USAGE, "--dtype-of %s: expected u8, u16, i32 or i64, not '%s'",
                           name, type);
    }
    return PP_OK;
}

static PpStatus check_options(const Data *d)
{
    const Options *o = d->opt;
    for (int i = 0; i < o->data.dtype_of.n && !o->eval.on; i++) {
        int used = 0;
        for (int k = 0; k < o->data.tokens.n; k++)
            used |= !strcmp(o->data.dtype_of.at[i].name, o->data.tokens.at[k].name);
        for (int k = 0; k < o->eval.tokens.n; k++)
            used |= !strcmp(o->data.dtype_of.at[i].name, o->eval.tokens.at[k].name);
        if (!used)
            return pp_fail(PP_ERR_USAGE, "--dtype-of %s: there is no --tokens %s=FILE",
                           o->data.dtype_of.at[i].name, o->data.dtype_of.at[i].name);
    }
    return PP_OK;
}

/* A token that the input's type does not hold */
static PpStatus check_width(const Data *d, const PpTensor *t, const DataFile *f)
{
    if (f->npy.dtype != PP_I64 || t->dtype != PP_I32)
        return PP_OK;
    for (int64_t i = 0; i < f->npy.dim[0]; i++) {
        int64_t v = npy_integer(f->npy.data + i * 8, PP_I64);
        if (!npy_holds(PP_I32, v))
            return pp_fail(PP_ERR_MODEL,
                           "--%s %s=%s: element %" PRId64 " is %" PRId64
                           ", the model's input is int32",
                           data_option(d, 1), t->name, f->path, i, v);
    }
    return PP_OK;
}

/* So many rows of an input a file makes. */
static int64_t windows_of(const DataInput *in, const DataFile *f)
{
    return f->npy.dim[0] ? (f->npy.dim[0] - 1) / (in->outer * in->inner) : 0;
}

/* The files have rows one behind the other, not windows: these have together fewer places than
   windows take. */
static int are_documents(const Data *d, int input, const DataInput *files)
{
    int64_t windows = 0;
    for (int k = 0; k < files->n; k++)
        windows += windows_of(&d->input[input], &files->file[k]);
    return ragged_is(d, input, &files->file[0].npy) &&
           (d->documents || windows != d->length_rows);
}

static PpStatus open_file(Data *d, int input, const char *path, int shift, int raw)
{
    const PpTensor *t = &d->model->input[input];
    DataInput *in = &d->input[input];
    DataFile *f = NULL;
    char err[600];
    in->tokens = 1;
    in->shift = shift;
    TRY(data_add(d, input, path, &f));
    NpyFile *npy = &f->npy;
    int bad = token_file_open(npy, path, raw, err, sizeof err);
    if (bad)
        return pp_fail(PP_ERR_IO, "--%s %s: %s%s", data_option(d, 1), t->name, err,
                       bad > 0 ? "; --dtype-of says what a file of numbers alone holds" : "");
    if (npy->rank != 1)
        return pp_fail(PP_ERR_MODEL, "--%s %s=%s: rank %d, but a file of tokens has rank 1",
                       data_option(d, 1), t->name, path, npy->rank);
    if (!npy_is_integer(npy->dtype))
        return pp_fail(PP_ERR_MODEL, "--%s %s=%s: %s, but tokens are integers", data_option(d, 1),
                       t->name, path, data_dtype_text(npy->dtype));
    return PP_OK;
}

/* All files of an input are open: the rows that each has. */
static PpStatus count_rows(Data *d, int input)
{
    const PpTensor *t = &d->model->input[input];
    DataInput *in = &d->input[input];
    in->ragged = are_documents(d, input, in);
    for (int k = 0; k < in->n; k++) {
        DataFile *f = &in->file[k];
        f->first = in->rows;
        f->rows = windows_of(in, f);
        if (in->ragged)
            TRY(ragged_rows(d, input, f));
        else if (!f->rows)
            return pp_fail(PP_ERR_MODEL,
                           "--%s %s=%s: %" PRId64 " tokens, a row and its target take %" PRId64,
                           data_option(d, 1), t->name, f->path, f->npy.dim[0],
                           in->outer * in->inner + 1);
        data_place(in, f);
        TRY(check_width(d, t, f));
        TRY(data_count(in, f, t->name));
    }
    return PP_OK;
}

/* A file, or those that a pattern finds, in the order of their names. */
static PpStatus open_files(Data *d, int input, const char *path, int raw)
{
    glob_t found;
    if (!strpbrk(path, "*?[") || access(path, F_OK) == 0)
        return open_file(d, input, path, 0, raw);
    int none = glob(path, 0, NULL, &found);
    PpStatus s = none ? pp_fail(PP_ERR_IO, "--%s %s=%s: no such file", data_option(d, 1),
                                d->model->input[input].name, path)
                      : PP_OK;
    for (size_t i = 0; !none && i < found.gl_pathc && s == PP_OK; i++) {
        const char *own = pool_text(&d->pool, found.gl_pathv[i], strlen(found.gl_pathv[i]));
        s = own ? open_file(d, input, own, 0, raw) : pp_no_memory();
    }
    if (!none)
        globfree(&found);
    return s;
}

/* The input's own rows: integers, [rows, S], [rows * S] or [S, rows] */
static PpStatus check_input(const Data *d, int input)
{
    const PpTensor *t = &d->model->input[input];
    if (!is_integer(t->dtype) || t->rank > 2 || t->batch_dim < 0 || !d->input[input].inner)
        return pp_fail(PP_ERR_MODEL,
                       "--%s %s: the model wants %s of rank %d%s; tokens make rows of an int32 "
                       "or int64 input, [rows, length]",
                       data_option(d, 1), t->name, data_dtype_text(t->dtype), t->rank,
                       t->batch_dim < 0 ? ", without rows" : "");
    if (input == d->model->loss.target)
        return pp_fail(PP_ERR_USAGE,
                       "--%s %s: this is the target, which follows from --tokens of an input, "
                       "or is given by --%s",
                       data_option(d, 1), t->name, data_option(d, 0));
    return PP_OK;
}

/* `pipeline tokens` makes what is written, all others need a target. */
static int asks(const Options *o, int target, const PpPlan *p)
{
    int asked = o->mode != MODE_TOKENS;
    for (int k = 0; k < o->data.output.n; k++)
        asked |= !strcmp(o->data.output.at[k].name, p->input[target].name);
    return asked;
}

/* The target of the input that is made of tokens, unless --data gives one. */
static PpStatus open_target(Data *d, int input)
{
    const PpPlan *p = d->model;
    int target = p->loss.target, raw;
    if (target < 0 || d->input[target].n || d->opt->mode == MODE_INFER || !asks(d->opt, target, p))
        return PP_OK;
    const PpTensor *t = &p->input[target];
    const DataInput *in = &d->input[input], *to = &d->input[target];
    if (!is_integer(t->dtype) || t->batch_dim < 0 ||
        in->outer * in->inner != to->outer * to->inner ||
        in->ragged != are_documents(d, target, in))
        return pp_fail(PP_ERR_MODEL,
                       "--%s %s: rows of %" PRId64 " tokens are no targets of this model, which "
                       "wants %s, %" PRId64 " a row: --%s %s=FILE.npy",
                       data_option(d, 1), p->input[input].name, in->outer * in->inner,
                       data_dtype_text(t->dtype), to->outer * to->inner, data_option(d, 0),
                       t->name);
    TRY(raw_type(d->opt, p->input[input].name, &raw));
    d->input[target].sets = in->sets;
    for (int k = 0; k < in->n; k++)
        TRY(open_file(d, target, in->file[k].path, 1, raw));
    return count_rows(d, target);
}

PpStatus tokens_open(Data *d)
{
    const PpPlan *p = d->model;
    const Options *o = d->opt;
    int only = -1;
    TRY(check_options(d));
    for (int i = 0; i < o->data.tokens.n; i++) {
        int at, raw;
        TRY(data_find(p, data_option(d, 1), o->data.tokens.at[i].name, &at));
        TRY(check_input(d, at));
        if (d->input[at].n && !d->input[at].tokens)
            return pp_fail(PP_ERR_USAGE, "--%s %s: its rows are given by --%s", data_option(d, 1),
                           o->data.tokens.at[i].name, data_option(d, 0));
        if (only >= 0 && at != only && p->loss.target >= 0 && !d->input[p->loss.target].n &&
            o->mode != MODE_INFER)
            return pp_fail(PP_ERR_USAGE,
                           "--%s %s and %s: which one does the target follow? --%s %s=FILE.npy",
                           data_option(d, 1), p->input[only].name, p->input[at].name,
                           data_option(d, 0), p->input[p->loss.target].name);
        only = at;
        TRY(raw_type(o, o->data.tokens.at[i].name, &raw));
        d->input[at].sets++;
        TRY(open_files(d, at, o->data.tokens.at[i].file, raw));
    }
    for (int i = 0; i < p->n_input; i++)
        if (d->input[i].tokens)
            TRY(count_rows(d, i));
    return only < 0 ? PP_OK : open_target(d, only);
}
