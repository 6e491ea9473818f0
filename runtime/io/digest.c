/*
 * digest.c - which numbers a run is trained on.  In: the files of --data; out: a SHA-256 of each, of
 * its type and shape and of its numbers: all of them up to a MiB, of more 16 blocks of 64 KiB, the
 * first, the last and those evenly between.  A checkpoint holds them, and --resume compares: other
 * rows under the same option, in another order or edited, are noticed, unless they differ between
 * these blocks alone.
 */
#include "checkpoint.h"

#include "base/file/safetensors.h"

#include <inttypes.h>
#include <string.h>

enum { BLOCKS = 16, BLOCK = 64 << 10 };

static void digest(DataFile *f)
{
    Sha256 s;
    unsigned char end[SHA256_BYTES];
    const NpyFile *t = &f->npy;
    char head[400];
    int n = snprintf(head, sizeof head, "%d", t->dtype);
    for (int i = 0; i < t->rank; i++)
        n += snprintf(head + n, sizeof head - (size_t)n, " %" PRId64, t->dim[i]);
    sha256_start(&s);
    sha256_add(&s, head, (size_t)n + 1);
    if (t->bytes <= (int64_t)BLOCKS * BLOCK)
        sha256_add(&s, t->data, (size_t)t->bytes);
    else
        for (int i = 0; i < BLOCKS; i++)
            sha256_add(&s, t->data + (t->bytes - BLOCK) / (BLOCKS - 1) * i, BLOCK);
    sha256_end(&s, end);
    sha256_text(end, f->sha256);
}

void data_digest(Data *d)
{
    for (int i = 0; i < d->model->n_input; i++)
        for (int k = 0; k < d->input[i].n; k++)
            digest(&d->input[i].file[k]);
}

int data_digest_key(const Data *d, int input, int file, char *key, size_t n)
{
    const DataInput *in = &d->input[input];
    if (file >= in->n || in->shift) /* a target that follows from tokens has their files */
        return 0;
    snprintf(key, n, "%s %d", d->model->input[input].name, file + 1);
    return 1;
}

/* Its file, or the one behind its last. */
static PpStatus same_file(const Index *x, const Data *d, int input, int k)
{
    const DataInput *in = &d->input[input];
    const char *name = d->model->input[input].name, *option = data_option(d, in->tokens);
    char key[1000];
    snprintf(key, sizeof key, "%s %d", name, k + 1);
    const char *was = index_data(x, key);
    if (k == in->n)
        return !was ? PP_OK
                    : pp_fail(PP_ERR_MODEL,
                              "--resume %s: input '%s' was trained with more files than %d: give "
                              "all of them, or --accept data to go on with these",
                              x->path, name, in->n);
    if (was && !strcmp(was, in->file[k].sha256))
        return PP_OK;
    return pp_fail(PP_ERR_MODEL,
                   "--resume %s: --%s %s=%s is not what it was trained with%s: give the same rows "
                   "in the same order, or --accept data to go on with these",
                   x->path, option, name, in->file[k].path,
                   was ? ", whose type, shape or numbers were others" : ", which had fewer files");
}

PpStatus resume_data(const Index *x, const Data *d)
{
    for (int i = 0; i < d->opt->accept.n; i++)
        if (!strcmp(d->opt->accept.at[i], "data"))
            return PP_OK;
    for (int i = 0; i < d->model->n_input && x->n_data; i++)
        for (int k = 0; d->input[i].n && !d->input[i].shift && k <= d->input[i].n; k++)
            TRY(same_file(x, d, i, k));
    return PP_OK;
}
