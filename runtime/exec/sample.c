/*
 * sample.c - texts from a model that was split: each step computes the logits of all tokens so far
 * and draws the next one, of every row.
 *
 * The rank that has the logits of a row draws its token, from numbers that depend on seed, row and
 * step alone; a sum over all ranks, to which each row has one contribution, tells the others.  A
 * row that fills the model's length loses its first token.  What stands behind the last one is not
 * seen by a causal model.
 */
#include "exec.h"

#include "core/number.h"
#include "io/draw.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

struct Sampler {
    DataInput *input; /* the rank's own, of which one is what it has written so far */
    int logits;       /* the number of the output */
    int64_t T, columns, tokens, rows, length; /* length: tokens that are there, at most T */
    double *next, *logit, *room;              /* [rows] of a step; [columns] of a row */
    int64_t *text;                            /* rank 0: [steps, rows] */
};

/* The first output of numbers [rows, T, V] for the input's [rows, T]. */
PpStatus sample_output(Run *run)
{
    const PpPlan *p = run->model;
    const PpTensor *ids = &p->input[run->data.sampled];
    for (int i = 0; i < p->n_output && run->opt->sample.on; i++) {
        const PpTensor *t = &p->output[i];
        int real =
            t->dtype == PP_F32 || t->dtype == PP_F64 || t->dtype == PP_BF16 || t->dtype == PP_F16;
        if (!real || t->rank != 3 || t->batch_dim != 0 || t->dim[0] != p->rows ||
            t->dim[1] != ids->dim[1])
            continue;
        int64_t tokens = prompt_tokens(&run->data, t->dim[2]);
        if (tokens > 256 && !run->opt->sample.prompt_ids)
            return pp_fail(PP_ERR_USAGE,
                           "sample: this model has %" PRId64
                           " tokens, which are not bytes: --prompt-ids 1,2,3 says in tokens how "
                           "the text begins",
                           tokens);
        run->output_wanted[i] = 0;
        return PP_OK;
    }
    return !run->opt->sample.on
               ? PP_OK
               : pp_fail(PP_ERR_MODEL,
                         "sample: no output of this model is logits, real numbers [rows, %" PRId64
                         ", tokens] for the input '%s' of [rows, %" PRId64 "]",
                         ids->dim[1], ids->name, ids->dim[1]);
}

/* What the rank reads becomes its own, so that it may write there. */
static PpStatus own_input(Rank *r, Sampler *s)
{
    const PpPlan *p = r->run->model;
    const Data *d = &r->data;
    DataInput *in = &s->input[d->sampled];
    memcpy(s->input, d->input, (size_t)p->n_input * sizeof *s->input);
    const DataFile *from = in->file;
    TRY(pp_take(&r->pool, &in->file, 1, sizeof *in->file));
    *in->file = *from;
    TRY(pp_take(&r->pool, &in->file->npy.own, from->npy.bytes, 1));
    memcpy(in->file->npy.own, from->npy.data, (size_t)from->npy.bytes);
    in->file->npy.data = in->file->npy.own;
    r->data.input = s->input;
    return PP_OK;
}

PpStatus sample_open(Rank *r)
{
    const PpPlan *p = r->run->model;
    const Data *d = &r->data;
    if (!r->run->opt->sample.on)
        return PP_OK;
    TRY(pp_take(&r->pool, &r->sampler, 1, sizeof(Sampler)));
    Sampler *s = r->sampler;
    while (r->run->output_wanted[s->logits] < 0)
        s->logits++;
    s->T = p->input[d->sampled].dim[1];
    s->columns = p->output[s->logits].dim[2];
    s->tokens = prompt_tokens(d, s->columns);
    s->rows = d->batch;
    s->length = d->prompt;
    TRY(pp_take(&r->pool, &s->input, p->n_input, sizeof *s->input));
    TRY(pp_take(&r->pool, &s->next, s->rows, sizeof *s->next));
    TRY(pp_take(&r->pool, &s->logit, s->columns, sizeof *s->logit));
    TRY(pp_take(&r->pool, &s->room, s->columns, sizeof *s->room));
    TRY(pp_take(&r->pool, &s->text, r->group.rank ? 0 : s->rows * d->steps, sizeof *s->text));
    return own_input(r, s);
}

/* Of the rows whose logits this rank has. */
static PpStatus draw(Rank *r, int64_t step)
{
    Sampler *s = r->sampler;
    const Options *o = r->run->opt;
    const Draw how = {o->sample.temperature, o->sample.top_k, o->data.seed};
    const char *from = r->results.output[s->logits];
    int dtype = r->run->model->output[s->logits].dtype;
    memset(s->next, 0, (size_t)s->rows * sizeof *s->next);
    for (int m = 0; from && r->member == 0 && m < data_chunks(&r->data); m++) {
        const int64_t *row0 = data_chunk(&r->data, step, m);
        for (int64_t row = row0[0]; row < row0[1]; row++) {
            int64_t first = (row * s->T + s->length - 1) * s->columns;
            for (int64_t i = 0; i < s->tokens; i++)
                s->logit[i] = number_at(from, first + i, dtype);
            int64_t token =
                draw_token(&how, s->logit, s->room, s->tokens, (uint64_t)row, (uint64_t)step);
            if (token < 0)
                return pp_fail(PP_ERR_FINITE,
                               "sample: token %" PRId64 " of text %" PRId64
                               ": the model's logits there are not finite",
                               step + 1, row + 1);
            s->next[row] = (double)token;
        }
    }
    return PP_OK;
}

static void append(Rank *r)
{
    Sampler *s = r->sampler;
    NpyFile *f = &s->input[r->data.sampled].file->npy;
    int64_t size = f->bytes / (s->rows * s->T);
    for (int64_t row = 0; row < s->rows; row++) {
        char *at = f->own + row * s->T * size;
        if (s->length == s->T)
            memmove(at, at + size, (size_t)((s->T - 1) * size));
        prompt_put(at + (s->length < s->T ? s->length : s->T - 1) * size, f->dtype,
                   (int64_t)s->next[row]);
    }
    s->length += s->length < s->T;
}

/* ---- what is seen of it ---- */

/* Bytes are the model's, and a terminal takes some of them for orders; mpirun shows its processes
 * one that is none. */
static void put_token(const Rank *r, int64_t token)
{
    int orders = (token < 32 && token != '\n' && token != '\t') || token == 127;
    if (r->run->opt->sample.prompt_ids)
        printf(" %" PRId64, token);
    else
        putchar(orders && !r->group.processes && isatty(1) ? '?' : (int)token);
}

static void put_prompt(const Rank *r)
{
    const Options *o = r->run->opt;
    const char *comma = o->sample.prompt_ids;
    for (const char *at = o->sample.prompt; at && *at; at++)
        put_token(r, (unsigned char)*at);
    for (; comma && *comma; comma++)
        putchar(*comma == ',' ? ' ' : *comma);
}

/* A single text is seen while it grows, several one after the other. */
static void show(const Rank *r, int64_t step)
{
    const Sampler *s = r->sampler;
    int64_t steps = r->data.steps;
    if (s->rows > 1 && step + 1 < steps)
        return;
    for (int64_t row = 0; row < s->rows; row++) {
        int64_t from = s->rows > 1 ? 0 : step;
        if (from == 0)
            put_prompt(r);
        for (int64_t k = from; k <= step; k++)
            put_token(r, s->text[k * s->rows + row]);
        if (step + 1 == steps)
            putchar('\n');
    }
    fflush(stdout);
}

PpStatus sample_step(Rank *r, int64_t step)
{
    Sampler *s = r->sampler;
    if (!s)
        return PP_OK;
    TRY(group_agree(&r->group, draw(r, step)));
    TRY(r->group.op->sum(&r->group, s->next, (int)s->rows));
    append(r);
    if (r->group.rank)
        return PP_OK;
    for (int64_t row = 0; row < s->rows; row++)
        s->text[step * s->rows + row] = (int64_t)s->next[row];
    show(r, step);
    return PP_OK;
}
