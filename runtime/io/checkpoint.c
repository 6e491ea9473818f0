/*
 * checkpoint.c - what a run leaves behind of its parameters: gradients of the first step,
 * checkpoints.  Every file and the checkpoint's folder appear whole or not at all: a temporary
 * name, fsync, rename.
 *
 * DIR/step_N/: stageK.safetensors (parameters and running statistics under the model's names,
 * transmitted ones in their owner's file only), stageK.optimizer.safetensors (its state, same names
 * behind a prefix) and manifest.json (hashes, step, CRC-32 of every tensor), which is written last.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "files.h"
#include "base/file/json.h"

#include "base/file/manifest.h"
#include "base/file/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- gradients ---- */

static PpStatus grads_file(HostCopy *h, int rank, const StagePlan *rs, const char *path)
{
    char err[ST_ERR], tmp[PATH_MAX];
    StWriter w;
    if (snprintf(tmp, sizeof tmp, "%s.tmp", path) >= (int)sizeof tmp)
        return pp_fail(PP_ERR_IO, "%s: name too long", path);
    stw_init(&w);
    stw_meta(&w, "format", "pt");
    for (int k = 0; k < rs->st->n_param; k++)
        if (rs->rp[k].update)
            stw_declare(&w, rs->rp[k].p->t.name, rs->rp[k].p->t.dtype, rs->rp[k].p->t.rank,
                        rs->rp[k].p->t.dim);
    if (stw_begin(&w, tmp, err, sizeof err))
        return pp_fail(PP_ERR_IO, "--dump-grads: %s", err);
    for (int k = 0; k < rs->st->n_param; k++)
        if (rs->rp[k].update)
            stw_write(&w, host_copy(h, rs->rp[k].grad, rs->rp[k].p->t.bytes), rs->rp[k].p->t.bytes);
    int bad = stw_end(&w, 0, err, sizeof err);
    TRY(device_check(h->dev, rank, "copying gradients"));
    if (bad || rename(tmp, path))
        return pp_fail(PP_ERR_IO, "--dump-grads %s: %s", path, strerror(errno));
    return PP_OK;
}

PpStatus grads_dump(const Plan *p, HostCopy *h, const char *folder)
{
    char path[PATH_MAX];
    TRY(folder_make(folder));
    for (int l = 0; l < p->n_stage; l++) {
        if (snprintf(path, sizeof path, "%s/stage%d.safetensors", folder, p->stage[l].st->index) >=
            (int)sizeof path)
            return pp_fail(PP_ERR_IO, "%s: name too long", folder);
        TRY(grads_file(h, p->ask.rank, &p->stage[l], path));
    }
    return PP_OK;
}

/* ---- checkpoints ---- */

typedef struct {
    char prefix[48];
    int state;
} Part; /* state -1: the value itself */

static const void *part_bytes(HostCopy *h, const RankParam *q, const Part *p)
{
    return host_copy(h, p->state < 0 ? q->value : q->state[p->state], q->p->t.bytes);
}

/* One file: `parts` tensors of every parameter that has them; lines for the manifest go to `list`.
 */
static PpStatus stage_file(HostCopy *h, int rank, const StagePlan *rs, const char *path,
                           const char *name, const Part *part, int parts, FILE *list)
{
    char err[ST_ERR], key[4096];
    StWriter w;
    stw_init(&w);
    stw_meta(&w, "format", "pt");
    fputs(",\n    ", list);
    json_write_string(list, name);
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
            json_write_string(list, key);
            fprintf(list, ": \"%08" PRIx32 "\"",
                    st_crc32(0, part_bytes(h, q, &part[j]), (size_t)q->p->t.bytes));
            comma = ",\n      ";
        }
    fputs("\n    }", list);
    if (stw_begin(&w, path, err, sizeof err))
        return pp_fail(PP_ERR_IO, "--checkpoint: %s", err);
    for (int k = 0; k < rs->st->n_param; k++)
        for (int j = 0; j < parts; j++) {
            const RankParam *q = &rs->rp[k];
            if (q->p->use != PP_TRANSMIT && (part[j].state < 0 || q->update))
                stw_write(&w, part_bytes(h, q, &part[j]), q->p->t.bytes);
        }
    int bad = stw_end(&w, 1, err, sizeof err);
    TRY(device_check(h->dev, rank, "copying parameters"));
    return bad ? pp_fail(PP_ERR_IO, "--checkpoint %s: %s", path, err) : PP_OK;
}

static PpStatus shard(const Plan *p, HostCopy *h, const Optimizer *optimizer, const char *tmp,
                      FILE *list)
{
    const Part value = {"", -1};
    Part state[OPTIM_STATES];
    char path[PATH_MAX], name[64];
    int states = p->ask.states;
    for (int j = 0; j < states; j++) {
        state[j].state = j;
        snprintf(state[j].prefix, sizeof state[j].prefix, "optimizer/%s/", optimizer->state[j]);
    }
    for (int l = 0; l < p->n_stage; l++)
        for (int k = 0; k <= (states > 0); k++) {
            snprintf(name, sizeof name, "stage%d%s.safetensors", p->stage[l].st->index,
                     k ? ".optimizer" : "");
            if (snprintf(path, sizeof path, "%s/%s", tmp, name) >= (int)sizeof path)
                return pp_fail(PP_ERR_IO, "%s: name too long", tmp);
            TRY(stage_file(h, p->ask.rank, &p->stage[l], path, name, k ? state : &value,
                           k ? states : 1, list));
        }
    return PP_OK;
}

/* The lists of all ranks come to rank 0, which writes the manifest. */
typedef struct {
    const PpPlan *model;
    int64_t step;
    uint64_t seed;
} Facts;

static void manifest_head(FILE *f, const Facts *of)
{
    fprintf(f, "{\n  \"format\": \"ppsplit checkpoint 1\",\n  \"model\": ");
    json_write_string(f, of->model->model);
    fprintf(f,
            ",\n  \"model_hash\": \"%016" PRIx64 "\",\n  \"plan_hash\": \"%016" PRIx64
            "\",\n  \"step\": %" PRId64 ",\n  \"stages\": %d,\n"
            "  \"seed\": \"%" PRIu64 "\",\n  \"crc32\": {\n    \"\": {}",
            of->model->model_hash, of->model->hash, of->step, of->model->n_stage, of->seed);
}

/* On rank 0: the lists of all ranks in rank order. */
static PpStatus write_manifest(Group *g, const char *path, const Facts *of, const char *list,
                               const int64_t *lengths)
{
    PpStatus s = PP_OK;
    FILE *f = fopen(path, "w");
    if (f)
        manifest_head(f, of);
    for (int k = 0; k < g->ranks && s == PP_OK; k++) {
        char *text = k ? malloc((size_t)lengths[k] + 1) : NULL;
        if (k)
            s = text ? group_recv(g, k, text, lengths[k]) : pp_no_memory();
        if (f && s == PP_OK)
            fwrite(k ? text : list, 1, (size_t)lengths[k], f);
        free(text);
    }
    if (f)
        fprintf(f, "\n  }\n}\n");
    int bad = !f || fflush(f) || fsync(fileno(f));
    if (f)
        bad |= fclose(f) != 0;
    return s != PP_OK ? s
           : bad      ? pp_fail(PP_ERR_IO, "--checkpoint %s: %s", path, strerror(errno))
                      : PP_OK;
}

static PpStatus manifest(Group *g, const char *tmp, const Facts *of, const char *list,
                         int64_t length)
{
    char path[PATH_MAX + 32];
    int64_t *lengths = malloc((size_t)g->ranks * sizeof *lengths);
    if (!lengths)
        return pp_no_memory();
    snprintf(path, sizeof path, "%s/manifest.json", tmp);
    PpStatus s = g->op->gather(g, &length, sizeof length, lengths);
    if (s == PP_OK)
        s = g->rank ? group_send(g, 0, list, length) : write_manifest(g, path, of, list, lengths);
    free(lengths);
    return s;
}

static PpStatus publish(const char *dir, const char *tmp, const char *final)
{
    char old[PATH_MAX];
    struct stat sb;
    TRY(folder_sync(tmp));
    int replace = stat(final, &sb) == 0;
    if (snprintf(old, sizeof old, "%s.old", final) >= (int)sizeof old)
        return pp_fail(PP_ERR_IO, "%s: name too long", final);
    if (replace && rename(final, old))
        return pp_fail(PP_ERR_IO, "--checkpoint %s: %s", final, strerror(errno));
    if (rename(tmp, final))
        return pp_fail(PP_ERR_IO, "--checkpoint %s: %s", final, strerror(errno));
    TRY(folder_sync(dir));
    if (replace)
        folder_remove(old);
    return PP_OK;
}

PpStatus checkpoint_write(const Plan *p, HostCopy *h, Group *g, const Options *o, int64_t step)
{
    char tmp[PATH_MAX], final[PATH_MAX];
    const char *folder = o->checkpoint;
    Facts of = {p->model, step, o->seed};
    if (snprintf(tmp, sizeof tmp, "%s/step_%" PRId64 ".tmp", folder, step) >= (int)sizeof tmp - 32)
        return group_agree(g, pp_fail(PP_ERR_IO, "%s: name too long", folder));
    snprintf(final, sizeof final, "%s/step_%" PRId64, folder, step);
    if (g->rank == 0)
        folder_remove(tmp);
    TRY(group_agree(g, g->rank == 0 ? folder_make(tmp) : PP_OK));
    char *text = NULL;
    size_t length = 0;
    FILE *list = open_memstream(&text, &length);
    PpStatus s = list ? shard(p, h, &optimizers[o->optimizer], tmp, list) : pp_no_memory();
    if (list && fclose(list) && s == PP_OK)
        s = pp_no_memory();
    s = group_agree(g, s);
    if (s == PP_OK)
        s = group_agree(g, manifest(g, tmp, &of, text, (int64_t)length));
    free(text);
    if (s == PP_OK)
        s = group_agree(g, g->rank == 0 ? publish(folder, tmp, final) : PP_OK);
    if (s != PP_OK && g->rank == 0)
        folder_remove(tmp);
    return s;
}
