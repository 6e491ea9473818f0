/*
 * prompt.c - in: --prompt or --prompt-ids; out: rows of the model's input of tokens, which begin
 * with them, in memory instead of a file; and what a drawn token may be.
 *
 * A model that writes texts takes tokens [rows, T] and gives, for each of them, V numbers about the
 * one that follows: [rows, T, V].
 */
#include "data.h"

#include "core/core.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int is_ids(const Data *d, int input)
{
    const PpPlan *p = d->model;
    const PpTensor *t = &p->input[input];
    return !d->input[input].n && input != p->loss.target && data_total(p, input) < 0 &&
           (t->dtype == PP_I64 || t->dtype == PP_I32) && t->rank == 2 && t->batch_dim == 0 &&
           t->dim[0] == p->rows && t->dim[1] > 0;
}

static PpStatus find_ids(Data *d)
{
    const PpPlan *p = d->model;
    int n = 0;
    for (int i = 0; i < p->n_input; i++)
        if (is_ids(d, i) && n++ == 0)
            d->sampled = i;
    if (n == 0)
        return pp_fail(PP_ERR_MODEL,
                       "sample: this model has no input of tokens, integers [rows, length]");
    if (n > 1)
        return pp_fail(PP_ERR_MODEL,
                       "sample: '%s' and %d more inputs may be the tokens: --data gives the others",
                       p->input[d->sampled].name, n - 1);
    return PP_OK;
}

/* The next number of --prompt-ids, or byte of --prompt; 0: there is none, -1: what stands there is
 * no number. */
static int next_token(const Options *o, const char **at, int64_t *token)
{
    if (!**at)
        return 0;
    if (!o->sample.prompt_ids) {
        *token = (unsigned char)*(*at)++;
        return 1;
    }
    char *end;
    errno = 0;
    *token = strtoll(*at, &end, 10);
    if (end == *at || errno || (*end && *end != ',') || (*end && !end[1]))
        return -1;
    *at = end + (*end == ',');
    return 1;
}

/* ids: room for the last T of them; NULL: they are counted. */
static PpStatus read_prompt(const Options *o, int64_t T, int64_t *ids, int64_t *n)
{
    const char *text = o->sample.prompt_ids ? o->sample.prompt_ids
                       : o->sample.prompt   ? o->sample.prompt
                                            : "\n",
               *at = text;
    int64_t token;
    int more;
    for (*n = 0; (more = next_token(o, &at, &token)) > 0; ++*n) {
        if (ids && *n >= T)
            memmove(ids, ids + 1, (size_t)(T - 1) * sizeof *ids);
        if (ids)
            ids[*n < T ? *n : T - 1] = token;
    }
    if (more < 0)
        return pp_fail(PP_ERR_USAGE, "--prompt-ids %s: expected whole numbers separated by commas",
                       text);
    if (!*n)
        return pp_fail(PP_ERR_USAGE, "--prompt%s: a text needs at least one token to begin with",
                       o->sample.prompt_ids ? "-ids" : "");
    *n = *n < T ? *n : T;
    return PP_OK;
}

/* As many as other inputs have rows. */
static int64_t count_texts(const Data *d)
{
    const PpPlan *p = d->model;
    for (int i = 0; i < p->n_input && !d->opt->data.batch; i++)
        if (d->input[i].n && p->input[i].batch_dim >= 0)
            return d->input[i].rows;
    return d->opt->data.batch ? d->opt->data.batch : p->uneven.ok ? 1 : p->rows;
}

void prompt_put(char *at, int dtype, int64_t token)
{
    memcpy(at, &token, dtype == PP_I64 ? 8 : 4); /* little-endian: the low bytes come first */
}

PpStatus prompt_open(Data *d)
{
    if (!d->opt->sample.on)
        return PP_OK;
    TRY(find_ids(d));
    const PpTensor *t = &d->model->input[d->sampled];
    DataInput *in = &d->input[d->sampled];
    DataFile *f;
    int64_t T = t->dim[1], rows = count_texts(d), size = t->dtype == PP_I64 ? 8 : 4, all;
    if (__builtin_mul_overflow(rows, T * size, &all))
        return pp_fail(PP_ERR_USAGE, "--batch %" PRId64 ": too many texts", rows);
    int64_t *ids;
    POOL(room);
    TRY(pp_take(&room, &ids, T, sizeof *ids));
    TRY(read_prompt(d->opt, T, ids, &d->prompt));
    for (int64_t i = 0; i < d->prompt; i++)
        if (!npy_holds(t->dtype, ids[i]))
            return pp_fail(PP_ERR_USAGE, "--prompt-ids %s: %" PRId64 " is no value of %s",
                           d->opt->sample.prompt_ids, ids[i], data_dtype_text(t->dtype));
    TRY(data_add(d, d->sampled, d->opt->sample.prompt_ids ? "(--prompt-ids)" : "(--prompt)", &f));
    f->npy = (NpyFile){.dtype = t->dtype, .rank = 2, .dim = {rows, T}, .bytes = all};
    f->npy.data = f->npy.own = zeroed(all, 1);
    f->rows = rows;
    if (!f->npy.own)
        return pp_no_memory();
    for (int64_t i = 0; i < rows * T; i++)
        prompt_put(f->npy.own + i * size, t->dtype, ids[i % T]);
    return data_count(in, f, t->name);
}

/* Where the logits have more columns than the model's own table has rows, to fill a multiple of 64
 * up, those stand for no token. */
int64_t prompt_tokens(const Data *d, int64_t columns)
{
    for (int k = 0; k < d->model->n_index; k++) {
        const PpIndex *b = &d->model->index[k];
        if (b->input == d->sampled && b->table && b->most + 1 < columns)
            columns = b->most + 1;
    }
    return columns;
}
