/*
 * publish.c - the folder of a checkpoint, on rank 0.  In: the records of all ranks, whose files lie
 * in step_N.tmp.  Out: step_N.  The index is written when all files are durable, and the folder
 * gets its name when the index is, and loses it before its files go: a folder step_N is whole.
 */
#include "checkpoint.h"

#include "base/file/json.h"
#include "base/file/memory.h"
#include "base/file/replace.h"
#include "base/file/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static PpStatus failed(const char *path)
{
    return pp_fail(PP_ERR_IO, "--checkpoint %s: %s", path, strerror(errno));
}

PpStatus checkpoint_folder(char *path, size_t n, const Options *o, int64_t step, const char *end)
{
    return snprintf(path, n, "%s/step_%" PRId64 "%s", o->save.checkpoint, step, end) < (int)n
               ? PP_OK
               : pp_fail(PP_ERR_IO, "%s: name too long", o->save.checkpoint);
}

/* ---- removing ---- */

/* Renamed it is none, and a run that is killed here leaves what the next one removes.  Of a link to
 * one only the link goes; a file of its name stays. */
static PpStatus remove_checkpoint(const Options *o, int64_t step)
{
    char path[PATH_MAX], old[PATH_MAX];
    struct stat sb;
    TRY(checkpoint_folder(path, sizeof path, o, step, ""));
    TRY(checkpoint_folder(old, sizeof old, o, step, ".old.tmp"));
    if (lstat(path, &sb) || S_ISREG(sb.st_mode))
        return PP_OK;
    folder_clear(old);
    if (rename(path, old))
        return failed(path);
    folder_clear(old);
    return PP_OK;
}

/* step_N.tmp of runs that were interrupted. */
static void remove_unfinished(const char *folder)
{
    char path[PATH_MAX];
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        size_t n = strlen(e->d_name);
        if (!strncmp(e->d_name, "step_", 5) && n > 9 && !strcmp(e->d_name + n - 4, ".tmp") &&
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name) < (int)sizeof path)
            folder_clear(path);
    }
    if (d)
        closedir(d);
}

static PpStatus keep_newest(const Options *o)
{
    int n;
    int64_t *step = o->save.keep ? index_steps(o->save.checkpoint, &n) : NULL;
    PpStatus s = PP_OK;
    for (int i = 0; step && i + o->save.keep < n && s == PP_OK; i++)
        s = remove_checkpoint(o, step[i]);
    free(step);
    return s;
}

PpStatus checkpoint_prepare(const Options *o, int64_t step)
{
    char path[PATH_MAX];
    TRY(checkpoint_folder(path, sizeof path, o, step, ".tmp"));
    struct stat sb;
    TRY(folder_make(o->save.checkpoint));
    remove_unfinished(o->save.checkpoint);
    return mkdir(path, 0777) && (errno != EEXIST || lstat(path, &sb) || !S_ISDIR(sb.st_mode))
               ? failed(path)
               : PP_OK;
}

/* ---- the index ---- */

typedef struct {
    Record r;
    const char *name, *head, *piece;
} Entry;

static int compare(int64_t x, int64_t y) { return (x > y) - (x < y); }

/* The tensors by name, each one's parts and their pieces in order. */
static int by_name(const void *a, const void *b)
{
    const Entry *x = a, *y = b;
    int c = strcmp(x->name, y->name);
    c = c ? c : compare(x->r.at, y->r.at);
    return c ? c : compare(x->r.first, y->r.first);
}

static PpStatus entries(const Publication *p, Pool *pool, Entry **list, int *n)
{
    for (const char *at = p->record; at < p->record + p->bytes;) {
        Entry e = {.name = at + sizeof e.r};
        memcpy(&e.r, at, sizeof e.r);
        e.head = e.name + strlen(e.name) + 1;
        e.piece = e.head + strlen(e.head) + 1;
        at = e.piece + strlen(e.piece) + 1;
        TRY(pp_add(pool, list, n, &e, sizeof e));
    }
    return PP_OK;
}

/* A line of its own for the next member of an object. */
static void put_key(FILE *f, const char **comma, const char *key)
{
    fprintf(f, "%s\n    ", *comma);
    json_write_string(f, key);
    fputs(": ", f);
    *comma = ",";
}

static void put_text(FILE *f, const char **comma, const char *key, const char *text)
{
    put_key(f, comma, key);
    json_write_string(f, text);
}

static void put_files(FILE *f, const Entry *e, int n)
{
    const char *comma = "";
    fputs(",\n  \"files\": {", f);
    for (int i = 0; i < n; i++)
        if (e[i].r.at < 0) {
            put_key(f, &comma, e[i].name);
            fputs(e[i].head, f);
        }
    fputs("\n  }", f);
}

static void put_tensors(FILE *f, const Entry *e, int n)
{
    fputs(",\n  \"tensors\": {", f);
    const char *comma = "", *name = NULL;
    for (int i = 0; i < n; i++) {
        if (e[i].r.at < 0)
            continue;
        const int another = !name || strcmp(name, e[i].name) != 0;
        if (another) {
            fputs(name ? "]}" : "", f);
            put_key(f, &comma, name = e[i].name);
            fprintf(f, "{%s\"pieces\": [", e[i].head);
        }
        fprintf(f, "%s%s", another ? "" : ", ", e[i].piece);
    }
    fputs(name ? "]}\n  }" : "\n  }", f);
}

/* Of the run, and of ppsplit's as "made.NAME". */
static PpStatus put_options(FILE *f, const PpPlan *model, const Options *o)
{
    NumberOption n;
    const char *comma = "";
    POOL(pool);
    fputs(",\n  \"options\": {", f);
    for (int i = 0; options_next_number(o, &i, &n, &pool);) {
        if (!n.value)
            return pp_no_memory();
        put_text(f, &comma, n.name, n.value);
    }
    for (int i = 0; i < model->program.n_made; i++) {
        char made[80];
        snprintf(made, sizeof made, "made.%s", model->program.made[i].option);
        put_text(f, &comma, made, model->program.made[i].value);
    }
    fputs("\n  }", f);
    return PP_OK;
}

/* Of the files that the run is trained on. */
static void put_data(FILE *f, const Data *d)
{
    const char *comma = "";
    char key[1000], digest[SHA256_TEXT];
    fputs(",\n  \"data\": {", f);
    for (int i = 0; i < d->model->n_input; i++)
        for (int k = 0; data_digest_key(d, i, k, key, sizeof key); k++)
            put_text(f, &comma, key, d->input[i].file[k].sha256);
    for (int v = 0; v < d->model->n_length; v++) {
        lengths_digest(d, v, key, sizeof key, digest);
        put_text(f, &comma, key, digest);
    }
    fputs("\n  }", f);
}

static PpStatus put_index(FILE *f, const Publication *p)
{
    int n = 0;
    Entry *e = NULL;
    POOL(room);
    TRY(entries(p, &room, &e, &n));
    fputs("{\n  \"format\": \"ppsplit checkpoint 2\",\n  \"model\": ", f);
    json_write_string(f, p->model->model);
    fprintf(f, ",\n  \"model_hash\": \"%016" PRIx64 "\",\n  \"step\": %" PRId64 ",\n  \"state\": {",
            p->model->program.model_hash, p->moment.step);
    const char *comma = "";
    for (int i = 0; i < p->moment.n; i++)
        put_text(f, &comma, p->moment.fact[i].key, p->moment.fact[i].value);
    fputs("\n  }", f);
    PpStatus s = put_options(f, p->model, p->opt);
    put_data(f, p->data);
    put_files(f, e, n);
    if (n)
        qsort(e, (size_t)n, sizeof *e, by_name);
    put_tensors(f, e, n);
    return s;
}

static PpStatus write_index(const Publication *p, const char *folder)
{
    char path[PATH_MAX + 16], sha[SHA256_TEXT];
    unsigned char digest[SHA256_BYTES];
    Memory text;
    snprintf(path, sizeof path, "%s/index.json", folder);
    FILE *m = memory_open(&text);
    PpStatus s = m ? put_index(m, p) : pp_no_memory();
    if (memory_close(m, &text) && s == PP_OK)
        s = pp_no_memory();
    FILE *f = s == PP_OK ? file_new(path) : NULL;
    if (f) {
        sha256_of(text.at, text.n, digest);
        sha256_text(digest, sha);
        fwrite(text.at, 1, text.n, f);
        fprintf(f, ",\n  \"index_sha256\": \"%s\"\n}\n", sha);
    }
    int bad = s == PP_OK && (!f || fflush(f) || fsync(fileno(f)));
    if (f)
        bad |= fclose(f) != 0;
    free(text.at);
    return s != PP_OK ? s : bad ? failed(path) : PP_OK;
}

PpStatus checkpoint_publish(const Publication *p)
{
    char tmp[PATH_MAX], final[PATH_MAX];
    TRY(checkpoint_folder(tmp, sizeof tmp, p->opt, p->moment.step, ".tmp"));
    TRY(checkpoint_folder(final, sizeof final, p->opt, p->moment.step, ""));
    TRY(write_index(p, tmp));
    TRY(folder_sync(tmp));
    TRY(remove_checkpoint(
        p->opt, p->moment.step)); /* a damaged one: a whole one would have been resumed from */
    if (rename(tmp, final))
        return failed(final);
    TRY(folder_sync(p->opt->save.checkpoint));
    return keep_newest(p->opt);
}
