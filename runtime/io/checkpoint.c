/*
 * checkpoint.c - what a run leaves behind: gradients of the first step, the model's outputs, checkpoints.  Every file
 * and the checkpoint's folder appear whole or not at all: a temporary name, fsync, rename.
 *
 * DIR/step_N/: stageK.safetensors (parameters and running statistics under the model's names, transmitted ones in their
 * owner's file only), stageK.optimizer.safetensors (its state, same names behind a prefix) and manifest.json (hashes,
 * step, CRC-32 of every tensor), which is written last.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "internal.h"
#include "base/file/manifest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

PpStatus ranks_agree(Rank *r, PpStatus s)
{
    int mine = (int)s, *all = malloc((size_t)r->t.ranks * sizeof *all);
    if (!all)
        return pp_fail(PP_ERR_IO, "out of memory");
    PpStatus sent = r->t.op->gather(&r->t, &mine, sizeof mine, all);
    int first = -1;
    for (int k = 0; k < r->t.ranks && sent == PP_OK && first < 0; k++)
        if (all[k] != PP_OK)
            first = k;
    if (first == r->rank)
        pp_failure_print();
    if (first >= 0)
        pp_failure_tell();
    PpStatus verdict = sent != PP_OK ? sent : first < 0 ? PP_OK : (PpStatus)all[first];
    free(all);
    return verdict;
}

PpStatus make_folder(const char *path)
{
    char part[PATH_MAX];
    size_t n = strlen(path);
    if (n >= sizeof part)
        return pp_fail(PP_ERR_IO, "%s: name too long", path);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != 0)
            continue;
        memcpy(part, path, i);
        part[i] = 0;
        struct stat sb;
        if (mkdir(part, 0777) && (errno != EEXIST || stat(part, &sb) || !S_ISDIR(sb.st_mode)))
            return pp_fail(PP_ERR_IO, "%s: %s", part, strerror(errno == EEXIST ? ENOTDIR : errno));
    }
    return PP_OK;
}

static PpStatus sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int bad = fd < 0 || fsync(fd);
    int e = errno;
    if (fd >= 0)
        close(fd);
    return bad ? pp_fail(PP_ERR_IO, "%s: %s", path, strerror(e)) : PP_OK;
}

/* ---- gradients ---- */

static PpStatus grads_file(Rank *r, const RankStage *rs, const char *path)
{
    char err[ST_ERR], tmp[PATH_MAX];
    StWriter w;
    if (snprintf(tmp, sizeof tmp, "%s.tmp", path) >= (int)sizeof tmp)
        return pp_fail(PP_ERR_IO, "%s: name too long", path);
    stw_init(&w);
    stw_meta(&w, "format", "pt");
    for (int k = 0; k < rs->st->n_param; k++)
        if (rs->rp[k].dump_grad)
            stw_declare(&w, rs->rp[k].p->t.name, rs->rp[k].p->t.dtype, rs->rp[k].p->t.rank, rs->rp[k].p->t.dim);
    if (stw_begin(&w, tmp, err, sizeof err))
        return pp_fail(PP_ERR_IO, "--dump-grads: %s", err);
    for (int k = 0; k < rs->st->n_param; k++)
        if (rs->rp[k].dump_grad)
            stw_write(&w, stream_host(r, rs->rp[k].grad, rs->rp[k].p->t.bytes), rs->rp[k].p->t.bytes);
    int bad = stw_end(&w, 0, err, sizeof err);
    TRY(device_check(r, "copying gradients"));
    if (bad || rename(tmp, path))
        return pp_fail(PP_ERR_IO, "--dump-grads %s: %s", path, strerror(errno));
    return PP_OK;
}

PpStatus grads_dump(Rank *r)
{
    char path[PATH_MAX];
    const char *dir = r->run->opt->dump_grads;
    TRY(make_folder(dir));
    for (int l = 0; l < r->n_stage; l++) {
        if (snprintf(path, sizeof path, "%s/stage%d.safetensors", dir, r->stage[l].st->index) >= (int)sizeof path)
            return pp_fail(PP_ERR_IO, "%s: name too long", dir);
        TRY(grads_file(r, &r->stage[l], path));
    }
    return PP_OK;
}

/* ---- outputs ---- */

PpStatus outputs_write(Rank *r)
{
    const Run *run = r->run;
    const PpPlan *plan = run->plan;
    char err[600];
    for (int i = 0; i < plan->n_output; i++) {
        if (!r->collect[i])
            continue;
        PpTensor t = plan->output[i];
        if (t.batch_dim >= 0)
            t.dim[t.batch_dim] = t.dim[t.batch_dim] / plan->rows * r->collect_rows;
        /* the loss as an output is the minibatch's, not the last microbatch's */
        int l = plan->loss_stage >= 0 ? r->local_of[plan->loss_stage] : -1;
        if (l >= 0 && r->stage[l].st->output[plan->loss_output].model_output == i && run->opt->mode != MODE_INFER) {
            float single = (float)r->norm[0];
            memcpy(r->collect[i], t.dtype == PP_F64 ? (const void *)&r->norm[0] : (const void *)&single,
                   (size_t)t.bytes);
        }
        const char *file = run->opt->output[run->output_wanted[i]].file;
        if (npy_write(file, t.dtype, t.rank, t.dim, r->collect[i], err, sizeof err))
            return pp_fail(PP_ERR_IO, "--output %s", err);
    }
    return PP_OK;
}

/* ---- checkpoints ---- */

typedef struct {
    char prefix[48];
    int state;
} Part; /* state -1: the value itself */

static const void *part_bytes(Rank *r, const RankParam *q, const Part *p)
{
    return stream_host(r, p->state < 0 ? q->value : q->state[p->state], q->p->t.bytes);
}

/* One file: `parts` tensors of every parameter that has them; lines for the manifest go to `list`. */
static PpStatus stage_file(Rank *r, const RankStage *rs, const char *path, const char *name, const Part *part,
                           int parts, FILE *list)
{
    char err[ST_ERR], key[4096];
    StWriter w;
    stw_init(&w);
    stw_meta(&w, "format", "pt");
    fputs(",\n    ", list);
    st_json_string(list, name);
    fputs(": {", list);
    const char *comma = "\n      ";
    for (int k = 0; k < rs->st->n_param; k++)
        for (int j = 0; j < parts; j++) {
            const RankParam *q = &rs->rp[k];
            if (q->p->use == PP_TRANSMIT || (part[j].state >= 0 && !q->update))
                continue;
            if (snprintf(key, sizeof key, "%s%s", part[j].prefix, q->p->t.name) >= (int)sizeof key)
                return pp_fail(PP_ERR_IO, "parameter name too long for a checkpoint");
            stw_declare(&w, key, q->p->t.dtype, q->p->t.rank, q->p->t.dim);
            fputs(comma, list);
            st_json_string(list, key);
            fprintf(list, ": \"%08" PRIx32 "\"", st_crc32(0, part_bytes(r, q, &part[j]), (size_t)q->p->t.bytes));
            comma = ",\n      ";
        }
    fputs("\n    }", list);
    if (stw_begin(&w, path, err, sizeof err))
        return pp_fail(PP_ERR_IO, "--checkpoint: %s", err);
    for (int k = 0; k < rs->st->n_param; k++)
        for (int j = 0; j < parts; j++) {
            const RankParam *q = &rs->rp[k];
            if (q->p->use != PP_TRANSMIT && (part[j].state < 0 || q->update))
                stw_write(&w, part_bytes(r, q, &part[j]), q->p->t.bytes);
        }
    int bad = stw_end(&w, 1, err, sizeof err);
    TRY(device_check(r, "copying parameters"));
    return bad ? pp_fail(PP_ERR_IO, "--checkpoint %s: %s", path, err) : PP_OK;
}

static PpStatus shard(Rank *r, const char *tmp, FILE *list)
{
    const Part value = {"", -1};
    Part state[OPTIM_STATES];
    char path[PATH_MAX], name[64];
    int states = optim_states(r->run->opt);
    for (int j = 0; j < states; j++) {
        state[j].state = j;
        snprintf(state[j].prefix, sizeof state[j].prefix, "optimizer/%s/",
                 optimizers[r->run->opt->optimizer].state[j]);
    }
    for (int l = 0; l < r->n_stage; l++) {
        for (int optimizer = 0; optimizer <= (states > 0); optimizer++) {
            snprintf(name, sizeof name, "stage%d%s.safetensors", r->stage[l].st->index, optimizer ? ".optimizer" : "");
            if (snprintf(path, sizeof path, "%s/%s", tmp, name) >= (int)sizeof path)
                return pp_fail(PP_ERR_IO, "%s: name too long", tmp);
            TRY(stage_file(r, &r->stage[l], path, name, optimizer ? state : &value, optimizer ? states : 1, list));
        }
    }
    return PP_OK;
}

static void remove_folder(const char *path)
{
    DIR *d = opendir(path);
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    rmdir(path);
}

/* The lists of all ranks come to rank 0 in rank order, which writes the manifest. */
static PpStatus manifest(Rank *r, const char *tmp, int64_t step, const char *list, int64_t length)
{
    char path[PATH_MAX + 32];
    PpRequest q;
    int64_t tag = r->t.tag_max;
    int64_t *lengths = malloc((size_t)r->t.ranks * sizeof *lengths);
    if (!lengths)
        return pp_fail(PP_ERR_IO, "out of memory");
    PpStatus s = r->t.op->gather(&r->t, &length, sizeof length, lengths);
    if (s == PP_OK && r->rank != 0) {
        s = r->t.op->send(&r->t, 0, tag, list, length, &q);
        s = s == PP_OK ? r->t.op->wait(&r->t, &q) : s;
    }
    if (s != PP_OK || r->rank != 0) {
        free(lengths);
        return s;
    }
    snprintf(path, sizeof path, "%s/manifest.json", tmp);
    FILE *f = fopen(path, "w");
    if (f) {
        fprintf(f, "{\n  \"format\": \"ppsplit checkpoint 1\",\n  \"model\": ");
        st_json_string(f, r->run->plan->model);
        fprintf(f,
                ",\n  \"model_hash\": \"%016" PRIx64 "\",\n  \"plan_hash\": \"%016" PRIx64 "\",\n  \"step\": %" PRId64
                ",\n  \"stages\": %d,\n"
                "  \"seed\": \"%" PRIu64 "\",\n  \"crc32\": {\n    \"\": {}",
                r->run->plan->model_hash, r->run->plan->hash, step, r->run->plan->n_stage, r->run->opt->seed);
    }
    for (int k = 0; k < r->t.ranks && s == PP_OK; k++) {
        char *text = malloc((size_t)lengths[k] + 1);
        if (!text)
            s = pp_fail(PP_ERR_IO, "out of memory");
        else if (k == 0)
            memcpy(text, list, (size_t)length);
        else if ((s = r->t.op->recv(&r->t, k, tag, text, lengths[k], &q)) == PP_OK)
            s = r->t.op->wait(&r->t, &q);
        if (f && s == PP_OK)
            fwrite(text, 1, (size_t)lengths[k], f);
        free(text);
    }
    free(lengths);
    if (f)
        fprintf(f, "\n  }\n}\n");
    int bad = !f || fflush(f) || fsync(fileno(f));
    if (f)
        bad |= fclose(f) != 0;
    return s != PP_OK ? s : bad ? pp_fail(PP_ERR_IO, "--checkpoint %s: %s", path, strerror(errno)) : PP_OK;
}

static PpStatus publish(const char *dir, const char *tmp, const char *final)
{
    char old[PATH_MAX];
    struct stat sb;
    TRY(sync_folder(tmp));
    int replace = stat(final, &sb) == 0;
    if (snprintf(old, sizeof old, "%s.old", final) >= (int)sizeof old)
        return pp_fail(PP_ERR_IO, "%s: name too long", final);
    if (replace && rename(final, old))
        return pp_fail(PP_ERR_IO, "--checkpoint %s: %s", final, strerror(errno));
    if (rename(tmp, final))
        return pp_fail(PP_ERR_IO, "--checkpoint %s: %s", final, strerror(errno));
    TRY(sync_folder(dir));
    if (replace)
        remove_folder(old);
    return PP_OK;
}

PpStatus checkpoint_write(Rank *r, int64_t step)
{
    char tmp[PATH_MAX], final[PATH_MAX];
    const char *dir = r->run->opt->checkpoint;
    if (snprintf(tmp, sizeof tmp, "%s/step_%" PRId64 ".tmp", dir, step) >= (int)sizeof tmp - 32)
        return ranks_agree(r, pp_fail(PP_ERR_IO, "%s: name too long", dir));
    snprintf(final, sizeof final, "%s/step_%" PRId64, dir, step);
    if (r->rank == 0)
        remove_folder(tmp);
    TRY(ranks_agree(r, r->rank == 0 ? make_folder(tmp) : PP_OK));
    char *text = NULL;
    size_t length = 0;
    FILE *list = open_memstream(&text, &length);
    PpStatus s = list ? shard(r, tmp, list) : pp_fail(PP_ERR_IO, "out of memory");
    if (list && fclose(list) && s == PP_OK)
        s = pp_fail(PP_ERR_IO, "out of memory");
    s = ranks_agree(r, s);
    if (s == PP_OK)
        s = ranks_agree(r, manifest(r, tmp, step, text, (int64_t)length));
    free(text);
    if (s == PP_OK)
        s = ranks_agree(r, r->rank == 0 ? publish(dir, tmp, final) : PP_OK);
    if (s != PP_OK && r->rank == 0)
        remove_folder(tmp);
    return s;
}
