/*
 * digest.c - which numbers a run is trained on, and begins with.  In: the files of --data; out: a
 * SHA-256 of each, of its type and shape and of its numbers: all of them up to a MiB, of more 16
 * blocks of 64 KiB, the first, the last and those evenly between.  A checkpoint holds them,
 * --resume compares, and so do the ranks of a run: other rows under the same option, in another
 * order or edited, are noticed, unless they differ between these blocks alone.
 *
 * Of a stage's file of parameters it is the length and the same number of blocks of 4 KiB: files of
 * two trainings, or of two splits, differ nearly everywhere.
 */
#include "checkpoint.h"
#include "files.h"

#include "base/file/tensors.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 16, BLOCK = 64 << 10, PARAMS_BLOCK = 4 << 10 };

static void add_blocks(Sha256 *s, const char *at, int64_t bytes, int64_t block)
{
    if (bytes <= BLOCKS * block)
        sha256_add(s, at, (size_t)bytes);
    else
        for (int i = 0; i < BLOCKS; i++)
            sha256_add(s, at + (bytes - block) / (BLOCKS - 1) * i, (size_t)block);
}

static void digest(DataFile *f)
{
    Sha256 s;
    const NpyFile *t = &f->npy;
    char head[400];
    int n = snprintf(head, sizeof head, "%d", t->dtype);
    for (int i = 0; i < t->rank; i++)
        n += snprintf(head + n, sizeof head - (size_t)n, " %" PRId64, t->dim[i]);
    sha256_start(&s);
    sha256_add(&s, head, (size_t)n + 1);
    add_blocks(&s, t->data, t->bytes, BLOCK);
    sha256_end(&s, f->sha256);
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
                    : resume_refuse(x,
                                    "input '%s' was trained with more files than %d: give "
                                    "all of them, or --accept data to go on with these",
                                    name, in->n);
    if (was && !strcmp(was, in->file[k].sha256))
        return PP_OK;
    return resume_refuse(x,
                         "--%s %s=%s is not what it was trained with%s: give the same rows "
                         "in the same order, or --accept data to go on with these",
                         option, name, in->file[k].path,
                         was ? ", whose type, shape or numbers were others"
                             : ", which had fewer files");
}

/* Older checkpoints do not say them. */
static PpStatus same_lengths(const Index *x, const Data *d, int v)
{
    char key[1000], digest[SHA256_TEXT];
    lengths_digest(d, v, key, sizeof key, digest);
    const char *was = index_data(x, key);
    if (!was || !strcmp(was, digest))
        return PP_OK;
    return resume_refuse(x,
                         "%s: its rows are not as long as those that it was trained with: "
                         "give the same lengths, or --accept data to go on with these",
                         key);
}

PpStatus resume_data(const Index *x, const Data *d)
{
    for (int i = 0; i < d->opt->save.accept.n; i++)
        if (!strcmp(d->opt->save.accept.at[i], "data"))
            return PP_OK;
    for (int i = 0; i < d->model->n_input && x->n_data; i++)
        for (int k = 0; d->input[i].n && !d->input[i].shift && k <= d->input[i].n; k++)
            TRY(same_file(x, d, i, k));
    for (int v = 0; v < d->model->n_length && x->n_data; v++)
        TRY(same_lengths(x, d, v));
    return PP_OK;
}

/* ---- parameters ---- */

static PpStatus add_file(Sha256 *s, const char *path)
{
    char why[FILE_WHY];
    FileMap *m = file_map(path, why);
    if (!m)
        return pp_fail(PP_ERR_IO, "%s: %s", path, why);
    int64_t bytes = (int64_t)m->bytes;
    sha256_add(s, &bytes, sizeof bytes);
    add_blocks(s, m->at, bytes, PARAMS_BLOCK);
    file_unmap(m);
    return PP_OK;
}

/* The text, and each file that it links to once, beside the one of the tensor before. */
static PpStatus add_link(Sha256 *s, const char *path)
{
    StFile f;
    char err[ST_ERR];
    POOL(room);
    TRY(add_file(s, path));
    if (st_open_link(&f, path, err, sizeof err))
        return pp_fail(PP_ERR_IO, "%s", err);
    PpStatus status = PP_OK;
    for (int i = 0; i < f.n && status == PP_OK; i++) {
        if (i && !strcmp(f.tensor[i].file, f.tensor[i - 1].file))
            continue;
        const char *linked = st_linked(&room, &f, &f.tensor[i]);
        status = linked ? add_file(s, linked) : pp_no_memory();
    }
    st_close(&f);
    return status;
}

PpStatus params_files_digest(const char *files, char digest[SHA256_TEXT])
{
    TensorFiles shards;
    Sha256 s;
    char err[ST_ERR];
    digest[0] = 0;
    if (tensors_open(&shards, files, err, sizeof err))
        return pp_fail(PP_ERR_IO, "%s", err);
    PpStatus status = PP_OK;
    sha256_start(&s);
    for (int i = 0; i < shards.n && status == PP_OK; i++)
        status = add_file(&s, shards.file[i].map->path);
    sha256_end(&s, digest);
    tensors_close(&shards);
    return status;
}

PpStatus params_digest(const char *folder, int stage, char digest[SHA256_TEXT])
{
    Sha256 s;
    char path[PATH_MAX];
    const int link = params_stage_file(path, folder, stage);
    digest[0] = 0;
    if (link < 0)
        return PP_OK;
    sha256_start(&s);
    TRY(link ? add_link(&s, path) : add_file(&s, path));
    sha256_end(&s, digest);
    return PP_OK;
}
