/*
 * tensors.c - in: a .safetensors file, or the index of several; out: their tensors by name.
 *
 * The index is untrusted: it names files beside itself only, each of which has what the index says
 * that it has, and no tensor is in two of them.
 */
#include "tensors.h"

#include "json.h"

#include <string.h>
#include <unistd.h>

/* Opens folder/name, which stays, as one more file. */
static int add(TensorFiles *s, const char *folder, size_t n_folder, const char *name, char *err,
               size_t nerr)
{
    int n = s->n;
    const char **named = pool_added(&s->pool, &s->name, &n, sizeof *named);
    const char *path = pool_print(&s->pool, "%.*s%s", (int)n_folder, folder, name);
    StFile *f = named && path ? pool_added(&s->pool, &s->file, &s->n, sizeof *f) : NULL;
    if (!f)
        return st_fail(err, nerr, folder, "out of memory");
    *named = name;
    return st_open(f, path, err, nerr);
}

typedef struct {
    TensorFiles *s;
    const char *path;
    size_t folder; /* bytes of the path up to the last slash */
    char *err;
    size_t nerr;
} Reader;

/* One entry of the map: a file that is not open yet is opened. */
static int read_entry(void *of, Json *j, const char *key)
{
    Reader *r = of;
    TensorFiles *s = r->s;
    const char *file = json_text(j);
    int at = 0;
    if (!file)
        return -1;
    while (at < s->n && strcmp(s->name[at], file) != 0)
        at++;
    if (strchr(file, '/') || !*file || file[0] == '.')
        return json_bad(j, "'%.80s' is no file beside the index", file);
    if (at == s->n && add(s, r->path, r->folder, file, r->err, r->nerr))
        return -1;
    return st_find(&s->file[at], key)
               ? 0
               : json_bad(j, "tensor '%.80s' is not in %.80s, which the index names", key, file);
}

static int read_top(void *of, Json *j, const char *key)
{
    return strcmp(key, "weight_map") != 0 ? json_skip(j) : json_members(j, read_entry, of);
}

static int check_twins(const TensorFiles *s, const char *path, char *err, size_t nerr)
{
    for (int i = 1; i < s->n; i++)
        for (int k = 0; k < s->file[i].n; k++)
            for (int other = 0; other < i; other++)
                if (st_find(&s->file[other], s->file[i].tensor[k].name)) {
                    snprintf(err, nerr, "%s: %s and %s both have a tensor '%.80s'", path,
                             s->name[other], s->name[i], s->file[i].tensor[k].name);
                    return -1;
                }
    return 0;
}

static int open_index(TensorFiles *s, const char *path, size_t folder, char *err, size_t nerr)
{
    char why[ST_ERR] = "";
    FileMap *map = file_map(path, why);
    if (!map)
        return st_fail(err, nerr, path, why);
    Reader r = {s, path, folder, err, nerr};
    Json j = {map->at, map->at + map->bytes, map->at, why, sizeof why, 0, 0, &s->pool};
    err[0] = 0;
    int bad = json_members(&j, read_top, &r);
    if (!bad && (json_peek(&j) || !s->n))
        bad = json_bad(&j, s->n ? "text after the end" : "no index of tensors: no weight_map");
    if (bad && !err[0])
        st_fail(err, nerr, path, why);
    if (!bad)
        bad = file_whole(map, err, nerr);
    file_unmap(map);
    return bad ? -1 : check_twins(s, path, err, nerr);
}

/* A module has no slash in its name, and the file may have the = in its own. */
const char *tensors_path(const char *text)
{
    const char *equals = strchr(text, '='), *slash = strchr(text, '/');
    int module = equals && equals > text && (!slash || equals < slash) && access(text, F_OK) != 0;
    return module ? equals + 1 : text;
}

int tensors_open(TensorFiles *s, const char *text, char *err, size_t nerr)
{
    const char *path = tensors_path(text), *slash = strrchr(path, '/'),
               *name = slash ? slash + 1 : path;
    size_t n = strlen(name), folder = (size_t)(name - path);
    *s = (TensorFiles){0};
    int index = n > 5 && !strcmp(name + n - 5, ".json"), bad = 0;
    if (path > text && !(s->module = pool_text(&s->pool, text, (size_t)(path - text - 1))))
        bad = st_fail(err, nerr, path, "out of memory");
    if (!bad && index) {
        bad = open_index(s, path, folder, err, nerr);
    } else if (!bad) {
        const char *own = pool_text(&s->pool, name, n);
        bad =
            own ? add(s, path, folder, own, err, nerr) : st_fail(err, nerr, path, "out of memory");
    }
    if (bad)
        tensors_close(s);
    return bad;
}

const StTensor *tensors_find(const TensorFiles *s, const char *name, const StFile **file)
{
    size_t n = s->module ? strlen(s->module) : 0;
    if (s->module && (strncmp(name, s->module, n) != 0 || name[n] != '.'))
        return NULL;
    for (int i = 0; i < s->n; i++) {
        const StTensor *t = st_find(&s->file[i], name + (s->module ? n + 1 : 0));
        if (t && file)
            *file = &s->file[i];
        if (t)
            return t;
    }
    return NULL;
}

int tensors_whole(const TensorFiles *s, char *err, size_t nerr)
{
    int bad = 0;
    for (int i = 0; i < s->n && !bad; i++)
        bad = file_whole(s->file[i].map, err, nerr);
    return bad;
}

void tensors_close(TensorFiles *s)
{
    for (int i = 0; i < s->n; i++)
        st_close(&s->file[i]);
    pool_free(&s->pool);
    *s = (TensorFiles){0};
}
