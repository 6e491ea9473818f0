/*
 * destinations.c - what a run will write is tried before the first step: hours of training do not
 * end in a full disk or a folder that is not there.  In: the options, what this rank holds.  Out:
 * nothing, or what cannot be written and why.
 *
 * Beside each file a nameless one of its size is allocated and held until all ranks have tried, for
 * they may share a disk. Nothing is left behind, and what is there already is not touched.
 */
#include "checkpoint.h"
#include "scratch.h"

#include "base/file/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER = 256 }; /* of an .npy file; of a tensor in a safetensors file, about */

/* ---- apart from what is read, and from each other ---- */

/* Two names of one file, or, where there is none yet, the same name in one folder. */
static int same_place(const char *a, const char *b)
{
    char x[PATH_MAX], y[PATH_MAX];
    const char *last_a = strrchr(a, '/'), *last_b = strrchr(b, '/');
    if (!access(a, F_OK) || !access(b, F_OK) ||
        strcmp(last_a ? last_a + 1 : a, last_b ? last_b + 1 : b))
        return files_same(a, b);
    snprintf(x, sizeof x, "%s", a);
    snprintf(y, sizeof y, "%s", b);
    folder_above(x);
    folder_above(y);
    return files_same(x, y);
}

static int holds_checkpoints(const char *folder)
{
    int n;
    free(index_steps(folder, 1, &n));
    return n > 0 || index_there(folder);
}

/* Checkpoints may go where one is read from, but not among the program's own parameters, where runs
 * would then find them. */
static PpStatus folders_apart(const Options *o, const Index *from)
{
    char own[sizeof o->command.folder + 16];
    const char *grads = o->report.dump_grads, *steps = o->save.checkpoint;
    snprintf(own, sizeof own, "%s/params", o->command.folder);
    const char *read = from->path ? from->path : o->save.params ? o->save.params : own;
    if (grads && same_place(grads, read))
        return pp_fail(PP_ERR_MODEL, "--dump-grads would overwrite %s, which the run reads", grads);
    if (grads && same_place(grads, own))
        return pp_fail(PP_ERR_MODEL, "--dump-grads %s: the program's parameters are in this folder",
                       grads);
    if (grads && steps && same_place(grads, steps))
        return pp_fail(PP_ERR_MODEL, "--dump-grads and --checkpoint are both to be written to %s",
                       grads);
    if (grads && holds_checkpoints(grads))
        return pp_fail(PP_ERR_MODEL, "--dump-grads %s: checkpoints of a run are in this folder",
                       grads);
    return steps && same_place(steps, own)
               ? pp_fail(PP_ERR_MODEL,
                         "--checkpoint %s: the program's own parameters are in this folder", steps)
               : PP_OK;
}

/* What a run writes: only an earlier file of the same kind is written over, and thus none of the
 * program, no weights and no model. */
typedef struct {
    const char *option, *path;
    FileOurs ours;
} Destination;

static int begins(const char *at, size_t n, const void *text)
{
    const size_t k = strlen(text);
    return !memcmp(at, text, n < k ? n : k); /* the first line of a log may have been cut off */
}

/* File number i that the run writes; path NULL: there is none. */
static Destination file_of(const Options *o, int i)
{
    const int n = o->data.output.n;
    const char *log = o->report.log_json;
    if (i < n)
        return (Destination){"--output", o->data.output.at[i].file,
                             {begins, "\x93NUMPY", "a .npy file"}};
    if (i == n)
        return (Destination){"--log-json", log && strcmp(log, "-") != 0 ? log : NULL,
                             {begins, "{\"config\": ", "the log of a run"}};
    return (Destination){"--trace", o->report.trace,
                         {begins, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":", "a trace"}};
}

PpStatus destinations_apart(const Options *o, const Index *from)
{
    char why[FILE_WHY];
    for (int i = 0; i < o->data.output.n + 2; i++) {
        const Destination a = file_of(o, i);
        if (a.path && file_was_read(a.path))
            return pp_fail(PP_ERR_MODEL, "%s would overwrite %s, which the run reads", a.option,
                           a.path);
        for (int k = 0; k < i && a.path; k++) {
            const Destination b = file_of(o, k);
            if (b.path && same_place(a.path, b.path))
                return pp_fail(PP_ERR_MODEL, "%s and %s are both to be written to %s", b.option,
                               a.option, a.path);
        }
        if (a.path && file_spare(a.path, &a.ours, why))
            return pp_fail(PP_ERR_IO, "%s %s: %s", a.option, a.path, why);
    }
    return o->mode == MODE_TRAIN ? folders_apart(o, from) : PP_OK;
}

/* ---- room ---- */

static PpStatus no(const char *option, const char *path, int64_t bytes, int error)
{
    if (bytes > HEADER && (error == ENOSPC || error == EFBIG || error == EDQUOT))
        return pp_fail(PP_ERR_IO, "%s %s: %s: it takes %" PRId64 " bytes", option, path,
                       strerror(error), bytes);
    return pp_fail(PP_ERR_IO, "%s %s: %s", option, path, strerror(error));
}

static PpStatus try_room(Held *h, const char *option, const char *path, const char *folder,
                         int64_t bytes)
{
    int *fd = memory_added(&h->fd, &h->n, sizeof *fd);
    if (!fd)
        return pp_no_memory();
    int e = scratch_file(fd, bytes, folder);
    h->n -= *fd < 0; /* the place is taken by the next one */
    return e ? no(option, path, bytes, e) : PP_OK;
}

static PpStatus try_file(Held *h, const char *option, const char *path, int64_t bytes)
{
    char folder[PATH_MAX];
    struct stat sb;
    if (snprintf(folder, sizeof folder, "%s", path) >= (int)sizeof folder)
        return no(option, path, bytes, ENAMETOOLONG);
    if (!stat(path, &sb)) {
        if (S_ISDIR(sb.st_mode))
            return no(option, path, bytes, EISDIR);
        if (access(path, W_OK))
            return no(option, path, bytes, errno);
        if (S_ISCHR(sb.st_mode)) { /* /dev/full has no room even for nothing */
            int fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC),
                e = fd < 0 || write(fd, "", 0) < 0 ? errno : 0;
            if (fd >= 0)
                close(fd);
            return e ? no(option, path, 0, e) : PP_OK;
        }
        if (!S_ISREG(sb.st_mode))
            return PP_OK;
    }
    folder_above(folder);
    return try_room(h, option, path, folder, bytes);
}

/* A folder that is there, or will be made in the nearest one that is. */
static PpStatus try_folder(Held *h, const char *option, const char *path, int64_t bytes)
{
    char folder[PATH_MAX];
    struct stat sb;
    if (snprintf(folder, sizeof folder, "%s", *path ? path : ".") >= (int)sizeof folder)
        return no(option, path, bytes, ENAMETOOLONG);
    while (stat(folder, &sb)) {
        if (errno != ENOENT && errno != ENOTDIR)
            return no(option, folder, bytes, errno);
        if (!strcmp(folder, ".") || !strcmp(folder, "/"))
            return no(option, path, bytes, ENOENT);
        folder_above(folder);
    }
    return S_ISDIR(sb.st_mode) ? try_room(h, option, path, folder, bytes)
                               : no(option, folder, bytes, ENOTDIR);
}

/* ---- what this rank writes ---- */

static int64_t gradient_bytes(const Plan *p)
{
    int64_t sum = HEADER;
    for (RankWalk i = {0}; plan_next(p, &i);)
        if (i.q->update)
            sum += param_bytes(i.q->p) + HEADER;
    return sum;
}

static PpStatus try_checkpoint(Held *h, const Plan *p, const Options *o, int64_t steps)
{
    char step[PATH_MAX];
    struct stat sb;
    int tensors;
    int64_t bytes = saver_file_bytes(p, &tensors);
    if (o->mode != MODE_TRAIN || !o->save.checkpoint || o->report.until ||
        ((p->ask.replica || p->ask.member) && !tensors))
        return PP_OK;
    TRY(try_folder(h, "--checkpoint", o->save.checkpoint, bytes + HEADER * (1 + (int64_t)tensors)));
    snprintf(step, sizeof step, "%s/step_%" PRId64, o->save.checkpoint, steps);
    return !stat(step, &sb) && !S_ISDIR(sb.st_mode) ? no("--checkpoint", step, 0, ENOTDIR) : PP_OK;
}

PpStatus destinations_try(Held *h, const Plan *p, const Options *o, int64_t steps)
{
    const PpPlan *model = p->model;
    if (p->ask.replica || p->ask.member) /* what else is written the first one writes */
        return try_checkpoint(h, p, o, steps);
    for (int i = 0; i < model->n_output; i++)
        if (p->data.has_output[i] && !o->sample.on)
            TRY(try_file(h, "--output", o->data.output.at[p->ask.output.wanted[i]].file,
                         HEADER + tensor_bytes(model, &model->output[i], p->ask.output.rows,
                                               p->ask.output.length)));
    if (o->mode == MODE_TRAIN && o->report.dump_grads)
        TRY(try_folder(h, "--dump-grads", o->report.dump_grads, gradient_bytes(p)));
    TRY(try_checkpoint(h, p, o, steps));
    if (p->ask.rank == 0 && o->report.log_json && strcmp(o->report.log_json, "-") != 0)
        TRY(try_file(h, "--log-json", o->report.log_json, HEADER));
    return p->ask.rank == 0 && o->report.trace ? try_file(h, "--trace", o->report.trace, HEADER)
                                               : PP_OK;
}

void destinations_release(Held *h)
{
    while (h->n > 0)
        close(h->fd[--h->n]);
    free(h->fd);
    h->fd = NULL;
}
