/*
 * index.c - in: a checkpoint's folder; out: what its index.json says of it, and the bytes of its
 * tensors, which are those that were written.
 *
 * The file is untrusted: everything is checked before it is used, and what is not known is refused,
 * for it might be a state that the run would then lack.
 */
#include "index.h"

#include "json.h"
#include "safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char format[] = "ppsplit checkpoint 2";

/* One more element, zero, behind the n of the array that `list` points to; NULL: no memory. */
static void *added(Json *j, void *list, int *n, size_t size)
{
    void *at = pool_added(j->pool, list, n, size);
    if (!at)
        json_bad(j, "out of memory");
    return at;
}

/* ---- the text ---- */

static int unknown(Json *j, const char *key)
{
    return json_bad(j, "unknown key '%.40s': written by a newer program", key);
}

static int sha(Json *j, char to[SHA256_TEXT])
{
    const char *text = json_text(j);
    if (!text || strlen(text) != SHA256_TEXT - 1)
        return json_bad(j, "a checksum expected");
    memcpy(to, text, SHA256_TEXT);
    return 0;
}

typedef struct {
    IndexText **list;
    int *n;
} Texts;

static int text_field(void *of, Json *j, const char *key)
{
    Texts *t = of;
    IndexText *at = added(j, t->list, t->n, sizeof *at);
    if (!at)
        return -1;
    *at = (IndexText){key, json_text(j)};
    return at->value ? 0 : -1;
}

static int file_field(void *of, Json *j, const char *key)
{
    IndexFile *f = of;
    if (!strcmp(key, "bytes"))
        return json_int(j, &f->bytes);
    if (!strcmp(key, "header"))
        return json_int(j, &f->header);
    return !strcmp(key, "sha256") ? sha(j, f->sha256) : unknown(j, key);
}

static int files_field(void *of, Json *j, const char *key)
{
    Index *x = of;
    if (strchr(key, '/') || !strcmp(key, "..") || !*key)
        return json_bad(j, "'%.80s' is not the name of a file in the folder", key);
    IndexFile *f = added(j, &x->file, &x->n_file, sizeof *f);
    if (!f)
        return -1;
    f->name = key;
    if (json_members(j, file_field, f))
        return -1;
    return f->header <= f->bytes ? 0 : json_bad(j, "header longer than its file");
}

/* A tensor, or a piece, as its object is read. */
typedef struct {
    Index *x;
    IndexTensor *t;
    int64_t view[INDEX_MAX_RANK]; /* dimensions of which boxes are said */
    int n_view;
    IndexPiece *p;
    int64_t start[INDEX_MAX_RANK], size[INDEX_MAX_RANK];
    int n_start, n_size;
} Reading;

static int piece_field(void *of, Json *j, const char *key)
{
    Reading *r = of;
    const Index *x = r->x;
    IndexPiece *p = r->p;
    if (!strcmp(key, "offset"))
        return json_int(j, &p->offset);
    if (!strcmp(key, "bytes"))
        return json_int(j, &p->bytes);
    if (!strcmp(key, "start"))
        return json_integers(j, r->start, INDEX_MAX_RANK, &r->n_start);
    if (!strcmp(key, "size"))
        return json_integers(j, r->size, INDEX_MAX_RANK, &r->n_size);
    if (!strcmp(key, "sha256"))
        return sha(j, p->sha256);
    if (strcmp(key, "file") != 0)
        return unknown(j, key);
    const char *name = json_text(j);
    for (int i = 0; name && i < x->n_file; i++)
        if (!strcmp(name, x->file[i].name))
            p->file = i;
    return !name ? -1 : p->file < 0 ? json_bad(j, "a file that is not listed") : 0;
}

/* The dimension in which a box is less than all, 0 where it is in none. */
static int divided(Json *j, const Reading *r, int *axis)
{
    int n = 0;
    *axis = 0;
    if (r->n_start != r->n_view || r->n_size != r->n_view)
        return json_bad(j, "a box of '%.80s' has another rank", r->t->name);
    for (int i = 0; i < r->n_view; i++) {
        if (r->start[i] > r->view[i] || r->size[i] > r->view[i] - r->start[i])
            return json_bad(j, "a box of '%.80s' is not in it", r->t->name);
        if (r->size[i] == r->view[i])
            continue;
        *axis = i;
        n++;
    }
    return n < 2 ? 0
                 : json_bad(j, "'%.80s' is divided along two dimensions: written by a newer "
                               "program", r->t->name);
}

/* All of the box that a piece says. */
static int read_box(Json *j, const Reading *r, Box *b)
{
    int axis;
    *b = box_whole(r->t->bytes);
    if (!r->n_start && !r->n_size)
        return 0;
    if (divided(j, r, &axis))
        return -1;
    if (r->t->bytes > 0)
        *b = box_along(r->n_view, r->view, axis, 1, r->start[axis], r->size[axis],
                       st_dtype_size(r->t->dtype));
    return 0;
}

/* Bytes of a box from that of its piece on */
static int64_t left_of(const IndexTensor *t, const Box *b)
{
    return b->period ? t->bytes / b->period * b->size - b->first : 0;
}

/* A piece goes on where the one before has ended: in its box, or with the next one. */
static int place_piece(Json *j, const Reading *r)
{
    const IndexTensor *t = r->t;
    const Box *before = t->n_piece > 1 ? &r->p[-1].box : NULL;
    Box *b = &r->p->box;
    if (read_box(j, r, b))
        return -1;
    int next = !before || left_of(t, before) == before->bytes;
    if (before && before->period == b->period && before->from == b->from &&
        before->size == b->size)
        b->first = before->first + before->bytes;
    else if (!next || b->from != (before ? before->from + before->size : 0) ||
             (before && before->period != b->period))
        return json_bad(j, "the pieces of '%.80s' do not follow one another", t->name);
    b->bytes = r->p->bytes;
    return b->bytes <= left_of(t, b)
               ? 0
               : json_bad(j, "a piece of '%.80s' is longer than its box", t->name);
}

static int tensor_bytes(Json *j, IndexTensor *t)
{
    return st_read_bytes(j, t->name, t->dtype, t->rank, t->dim, &t->bytes);
}

/* The dimensions that boxes count; as many bytes as those of its shape. */
static int check_view(Json *j, Reading *r)
{
    const IndexTensor *t = r->t;
    int64_t bytes = st_dtype_size(t->dtype);
    if (!r->n_view) {
        memcpy(r->view, t->dim, sizeof r->view);
        r->n_view = t->rank;
    }
    for (int i = 0; i < r->n_view; i++)
        if (__builtin_mul_overflow(bytes, r->view[i], &bytes))
            bytes = -1;
    return bytes == t->bytes ? 0 : json_bad(j, "the view of '%.80s' is not its shape", t->name);
}

static int piece(void *of, Json *j)
{
    Reading *r = of;
    IndexTensor *t = r->t;
    IndexPiece *p = r->p = added(j, &t->piece, &t->n_piece, sizeof *p);
    if (!p)
        return -1;
    p->file = -1;
    r->n_start = r->n_size = 0;
    if (json_members(j, piece_field, r))
        return -1;
    if (p->file < 0 || p->offset > r->x->file[p->file].bytes ||
        p->bytes > r->x->file[p->file].bytes - p->offset)
        return json_bad(j, "a piece of '%.80s' is not in its file", t->name);
    return place_piece(j, r);
}

static int tensor_field(void *of, Json *j, const char *key)
{
    Reading *r = of;
    IndexTensor *t = r->t;
    if (t->n_piece)
        return json_bad(j, "'%.40s' behind the pieces of '%.80s'", key, t->name);
    if (!strcmp(key, "shape"))
        return json_integers(j, t->dim, INDEX_MAX_RANK, &t->rank);
    if (!strcmp(key, "view"))
        return json_integers(j, r->view, INDEX_MAX_RANK, &r->n_view);
    if (!strcmp(key, "pieces"))
        return tensor_bytes(j, t) || check_view(j, r) ? -1 : json_elements(j, piece, r);
    return !strcmp(key, "dtype") ? st_read_dtype(j, &t->dtype) : unknown(j, key);
}

/* Its last piece ends where it does. */
static int complete(const IndexTensor *t)
{
    const Box *last = t->n_piece ? &t->piece[t->n_piece - 1].box : NULL;
    return last ? last->bytes == left_of(t, last) && last->from + last->size == last->period
                : t->bytes == 0;
}

static int tensors_field(void *of, Json *j, const char *key)
{
    Index *x = of;
    IndexTensor *t = added(j, &x->tensor, &x->n_tensor, sizeof *t);
    if (!t)
        return -1;
    if (t > x->tensor && strcmp(t[-1].name, key) >= 0)
        return json_bad(j, "tensor '%.80s' is not in the order of names", key);
    Reading r = {.x = x, .t = t};
    t->name = key;
    if (json_members(j, tensor_field, &r) || tensor_bytes(j, t))
        return -1;
    return complete(t) ? 0
                       : json_bad(j, "the pieces of '%.80s' do not make its %" PRId64 " bytes",
                                  t->name, t->bytes);
}

static int top_field(void *of, Json *j, const char *key)
{
    Index *x = of;
    Texts state = {&x->state, &x->n_state}, option = {&x->option, &x->n_option},
          data = {&x->data, &x->n_data};
    if (!strcmp(key, "step"))
        return json_int(j, &x->step);
    if (!strcmp(key, "state"))
        return json_members(j, text_field, &state);
    if (!strcmp(key, "options"))
        return json_members(j, text_field, &option);
    if (!strcmp(key, "data"))
        return json_members(j, text_field, &data);
    if (!strcmp(key, "files"))
        return json_members(j, files_field, x);
    if (!strcmp(key, "tensors"))
        return json_members(j, tensors_field, x);
    const char *text = json_text(j);
    if (!text)
        return -1;
    if (!strcmp(key, "format"))
        return strcmp(text, format) ? json_bad(j, "'%.40s', not '%s'", text, format) : 0;
    if (!strcmp(key, "model_hash"))
        x->model_hash = strtoull(text, NULL, 16);
    else if (!strcmp(key, "model") && !x->model)
        x->model = text;
    else if (strcmp(key, "index_sha256") != 0)
        return unknown(j, key);
    return 0;
}

/* The last key, behind all that it is the checksum of. */
static int has_checksum(const char *text, size_t n)
{
    static const char key[] = ",\n  \"index_sha256\": \"", end[] = "\"\n}\n";
    const size_t tail = sizeof key - 1 + SHA256_TEXT - 1 + sizeof end - 1;
    return n >= tail && !memcmp(text + n - tail, key, sizeof key - 1) &&
           !memcmp(text + n - sizeof end + 1, end, sizeof end - 1) &&
           sha256_is(text, n - tail, text + n - tail + sizeof key - 1);
}

/* ---- files ---- */

/* A file of the folder, mapped. */
static FileMap *map(const char *folder, const char *name, char *err, size_t nerr)
{
    char why[FILE_WHY];
    POOL(room);
    const char *path = pool_print(&room, "%s/%s", folder, name);
    if (!path) {
        st_fail(err, nerr, folder, "out of memory");
        return NULL;
    }
    FileMap *m = file_map(path, why);
    if (!m)
        st_fail(err, nerr, path, why);
    return m;
}

static int open_files(Index *x, char *err, size_t nerr)
{
    for (int i = 0; i < x->n_file; i++) {
        IndexFile *f = &x->file[i];
        f->map = map(x->path, f->name, err, nerr);
        if (!f->map)
            return -1;
        if ((int64_t)f->map->bytes != f->bytes ||
            !sha256_is(f->map->at, (size_t)f->header, f->sha256)) {
            snprintf(err, nerr, "%s/%s: damaged: not the file that its index describes", x->path,
                     f->name);
            return -1;
        }
    }
    return 0;
}

/* ---- what others call ---- */

int index_there(const char *folder)
{
    POOL(room);
    const char *path = pool_print(&room, "%s/index.json", folder);
    return path && !access(path, F_OK);
}

int index_open(Index *x, const char *folder, char *err, size_t nerr)
{
    char why[ST_ERR] = "";
    *x = (Index){.step = -1};
    if (!(x->path = pool_text(&x->pool, folder, strlen(folder))))
        return st_fail(err, nerr, folder, "out of memory");
    FileMap *m = map(folder, "index.json", err, nerr);
    if (!m) {
        if (!index_there(folder))
            st_fail(err, nerr, folder,
                 "without index.json, which a checkpoint gets last: it was not written, copied or "
                 "removed to its end");
        index_close(x);
        return -1;
    }
    const char *text = m->at;
    Json j = {text, text + m->bytes, text, why, sizeof why, 0, 0, &x->pool};
    int bad = !has_checksum(text, m->bytes);
    if (bad)
        snprintf(err, nerr, "%s/index.json: damaged: it does not have its own checksum", folder);
    else if ((bad = json_members(&j, top_field, x)) != 0)
        snprintf(err, nerr, "%s/index.json: %s", folder, why);
    else if ((bad = x->step < 0 || !x->model) != 0)
        snprintf(err, nerr, "%s/index.json: without step or model", folder);
    sha256_of(text, m->bytes, x->sha256);
    file_unmap(m);
    if (bad || open_files(x, err, nerr)) {
        index_close(x);
        return -1;
    }
    return 0;
}

void index_close(Index *x)
{
    for (int i = 0; i < x->n_file; i++)
        file_unmap(x->file[i].map);
    pool_free(&x->pool);
    *x = (Index){0};
}

static const char *value_of(const IndexText *t, int n, const char *key)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(t[i].key, key))
            return t[i].value;
    return NULL;
}

const char *index_state(const Index *x, const char *key)
{
    return value_of(x->state, x->n_state, key);
}

const char *index_option(const Index *x, const char *key)
{
    return value_of(x->option, x->n_option, key);
}

const char *index_data(const Index *x, const char *key)
{
    return value_of(x->data, x->n_data, key);
}

static int named(const void *key, const void *tensor)
{
    return strcmp(key, ((const IndexTensor *)tensor)->name);
}

const IndexTensor *index_find(const Index *x, const char *name)
{
    return x->n_tensor
               ? bsearch(name, x->tensor, (size_t)x->n_tensor, sizeof *x->tensor, named)
               : NULL;
}

static const char *piece_bytes(const Index *x, const IndexTensor *t, int i, char *err, size_t nerr)
{
    const IndexPiece *q = &t->piece[i];
    const char *at = x->file[q->file].map->at + q->offset;
    if (sha256_is(at, (size_t)q->bytes, q->sha256))
        return at;
    snprintf(err, nerr, "%s/%s: damaged: the bytes of '%s' do not have the index's checksum",
             x->path, x->file[q->file].name, t->name);
    return NULL;
}

int index_copy(Index *x, const IndexTensor *t, const Box *part, void *to, char *err, size_t nerr)
{
    for (int k = 0; k < t->n_piece; k++) {
        IndexPiece *p = &x->tensor[t - x->tensor].piece[k];
        int64_t i = 0, j = 0;
        if (!box_common(part, &i, &p->box, &j))
            continue;
        if (!p->checked && !piece_bytes(x, t, k, err, nerr))
            return -1;
        p->checked = 1;
        box_copy(part, to, &p->box, x->file[p->file].map->at + p->offset);
    }
    return 0;
}

int index_check(const Index *x, int states, int part, int parts, char *err, size_t nerr)
{
    int k = 0;
    for (int i = 0; i < x->n_tensor; i++) {
        const IndexTensor *t = &x->tensor[i];
        if (!states && !strncmp(t->name, "optimizer/", 10))
            continue;
        for (int j = 0; j < t->n_piece; j++)
            if (k++ % parts == part && !piece_bytes(x, t, j, err, nerr))
                return -1;
    }
    return 0;
}

const void *index_bytes(Index *x, const IndexTensor *t, char *err, size_t nerr)
{
    IndexTensor *own = &x->tensor[t - x->tensor];
    if (t->n_piece == 1)
        return piece_bytes(x, t, 0, err, nerr);
    if (!own->whole && !(own->whole = pool_take(&x->pool, t->bytes, 1))) {
        snprintf(err, nerr, "%s: out of memory", x->path);
        return NULL;
    }
    const Box all = box_whole(t->bytes);
    return index_copy(x, t, &all, own->whole, err, nerr) ? NULL : own->whole;
}
