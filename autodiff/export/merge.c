/*
 * merge.c - puts trained weights back into the model: what `ppsplit merge OUT CHECKPOINT -o M.onnx`
 * does.
 *
 * In: OUT/model.skeleton (skeleton.c) and the tensors of a checkpoint, under the parameters' names
 * and in PyTorch's shapes. Out: M.onnx, weights inside it while the file stays under 2 GB,
 * else in M.onnx.data beside it; of several files in sequence M.onnx, M1.onnx, ... from
 * model.skeleton, model1.skeleton, ...  All appear whole or not at all.  Running statistics go back
 * like parameters, long constants (outside.c) as they were.
 *
 * A file is a list of pieces, most of them bytes of the skeleton and of the checkpoint where these
 * are mapped: it is known to fit together, and every checksum compared, before its first byte is
 * written, and is never in memory as a whole.  None takes the place of a model that merge has not
 * written (merge_mark.c).
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file/index.h"
#include "base/file/sha256.h"
#include "merge_mark.h"
#include "onnx_fields.h"
#include "outside.h"
#include "skeleton.h"

static const uint64_t inline_limit = UINT64_C(1800) << 20;      /* protobuf ends at 2 GiB */

/* n bytes of a file to be; of a matrix whose dims are to be exchanged also its rows and columns as
 * they are, else 0; the half type that f32 are rounded to, or DT_NONE. */
typedef struct { const void *at; size_t n, rows, columns; Dtype half; } Piece;
typedef struct { VEC(Piece) piece; uint64_t n; } Pieces;

typedef struct { const char *temporary, *path; } Written;

typedef struct {
    Arena *arena;
    const char *out, *checkpoint, *target;              /* target: as it was given */
    VEC(Written) file; /* temporaries, renamed when all are there */
    Index index;
    const char *data_name; /* of the file of weights outside the model; NULL: they are inside */
    Pieces data;
    const FileMap *constants;                           /* of the output; NULL: not read yet */
    Merged result;
} Merge;

static _Noreturn void io_error(const char *path, const char *what)
{
    diag_fatal(EXIT_IO, WHERE_FILE(path), "%s: %s", what, strerror(errno));
}

/* ---- the checkpoint ---- */

/* The newest one of a step before `below`; why: of newer ones that are not whole, the newest's.  0:
 * there is none. */
static bool open_newest(Merge *m, int64_t below, char why[INDEX_ERR])
{
    char err[INDEX_ERR];
    char *folder = index_newest(m->checkpoint, below, err, sizeof err);
    if (!why[0])
        snprintf(why, INDEX_ERR, "%s", err);
    bool found = folder && index_open(&m->index, folder, err, sizeof err) == 0;
    free(folder);
    return found;
}

/* A checkpoint folder, or the newest step_N in it of which every parameter is what was written. */
static void open_checkpoint(Merge *m)
{
    char why[INDEX_ERR] = "", err[INDEX_ERR];
    bool found = open_newest(m, INT64_MAX, why);
    while (found && index_check(&m->index, 0, 0, 1, err, sizeof err) != 0) {
        int64_t step = m->index.step;
        if (!why[0])
            snprintf(why, sizeof why, "%s", err);
        index_close(&m->index);
        found = !index_there(m->checkpoint) && open_newest(m, step, why);
    }
    if (found && why[0])
        diag_warn(WHERE_NONE, "%s: an older checkpoint is merged", why);
    if (!found && why[0])
        diag_fatal(EXIT_MODEL, WHERE_NONE, "%s", why);
    if (!found) {
        diag_hint("CHECKPOINT is the folder given to --checkpoint, or a step_N in it");
        diag_fatal(EXIT_IO, WHERE_FILE(m->checkpoint),
                   "there is no checkpoint: neither index.json, which one has, nor a folder step_N");
    }
}

/* Its bytes go to *bytes. */
static const IndexTensor *find_parameter(Merge *m, const char *name, const void **bytes)
{
    char err[INDEX_ERR];
    const IndexTensor *t = index_find(&m->index, name);
    if (!t) {
        diag_hint("give a checkpoint of a program that this output folder built");
        diag_fatal(EXIT_MODEL, WHERE_FILE(m->checkpoint), "the checkpoint has no parameter '%s'",
                   name);
    }
    *bytes = index_bytes(&m->index, t, err, sizeof err);
    if (!*bytes && t->bytes)
        diag_fatal(EXIT_MODEL, WHERE_NONE, "%s", err);
    return t;
}

/* ---- the model ---- */

typedef struct {
    Shape shape;
    uint64_t dtype;
    const char *name, *parameter;
    bool transposed;
    const char *file, *sha256;                          /* of a long constant */
    uint64_t offset, bytes;
} Slot;

static const char *text_of(Merge *m, PbSpan s)
{
    return arena_strndup(m->arena, (const char *)s.at, (size_t)(s.end - s.at));
}

static void read_entry(Merge *m, PbSpan entry, Slot *s)
{
    const char *key = "", *value = "";
    for (PbField e; pb_next(&entry, &e);)
        *(e.number == ENTRY_KEY ? &key : &value) = text_of(m, e.body);
    if (!strcmp(key, SKELETON_PARAMETER))
        s->parameter = value;
    s->transposed |= !strcmp(key, SKELETON_TRANSPOSED);
    if (!strcmp(key, SKELETON_SHA256))
        s->sha256 = value;
    if (!strcmp(key, "location"))
        s->file = value;
    if (!strcmp(key, "offset"))
        s->offset = strtoull(value, NULL, 10);
    if (!strcmp(key, "length"))
        s->bytes = strtoull(value, NULL, 10);
}

static Slot read_slot(Merge *m, PbSpan body)
{
    Slot s = {0};
    for (PbField f; pb_next(&body, &f);)
        switch (f.number) {
        case TENSOR_DIMS:
            if (s.shape.rank < MAX_RANK)
                s.shape.d[s.shape.rank++] = (int64_t)f.value;
            break;
        case TENSOR_TYPE: s.dtype = f.value; break;
        case TENSOR_NAME: s.name = text_of(m, f.body); break;
        case TENSOR_EXTERNAL: read_entry(m, f.body, &s); break;
        default: break;
        }
    return s;
}

static void add(Merge *m, Pieces *to, Piece p)
{
    vec_push(m->arena, &to->piece, p);
    to->n += p.n;
}

static void add_message(Merge *m, Pieces *to, const PbMessage *p)
{
    add(m, to, (Piece){.at = p->at, .n = p->n});
}

/* The tensor's bytes, to be written in the layout of the model's file. */
static Piece slot_bytes(Merge *m, const Slot *s)
{
    const void *bytes;
    const IndexTensor *t = find_parameter(m, s->parameter, &bytes);
    Shape want = s->shape;
    if (s->transposed) {
        want.d[0] = s->shape.d[1];
        want.d[1] = s->shape.d[0];
    }
    Dtype half = dtype_is_half((Dtype)s->dtype) && t->dtype == DT_F32 ? (Dtype)s->dtype : DT_NONE;
    if ((t->dtype != (int)s->dtype && half == DT_NONE) || t->rank != want.rank ||
        memcmp(t->dim, want.d, (size_t)want.rank * sizeof want.d[0]) ||
        (s->transposed && want.rank != 2))
        diag_fatal(EXIT_MODEL, WHERE_FILE(m->checkpoint),
                   "parameter '%s' has another type or shape than the model's", s->parameter);
    Piece p = {.at = bytes, .n = (size_t)t->bytes, .half = half};
    if (half != DT_NONE)
        p.n = p.n / dtype_size(DT_F32) * dtype_size(half);
    if (s->transposed && t->bytes > 0) {
        p.rows = (size_t)want.d[0];
        p.columns = (size_t)want.d[1];
    }
    return p;
}

static _Noreturn void refuse_damaged(const char *path)
{
    diag_fatal(EXIT_MODEL, WHERE_FILE(path), "damaged: this is not the file that ppsplit wrote");
}

static void check_read(const PbSpan *s, const char *path)
{
    if (s->broken)
        refuse_damaged(path);
}

/* A constant's bytes, which are in a file of the output folder. */
static Piece constant_bytes(Merge *m, const Slot *s)
{
    const char *path = arena_printf(m->arena, "%s/%s", m->out, s->file);
    unsigned char digest[SHA256_BYTES];
    char text[SHA256_TEXT] = "";
    if (!m->constants || strcmp(m->constants->path, path))
        m->constants = arena_file(m->arena, path);
    const char *at = m->constants->at;
    if (s->offset <= m->constants->bytes && s->bytes <= m->constants->bytes - s->offset) {
        sha256_of(at + s->offset, s->bytes, digest);
        sha256_text(digest, text);
    }
    if (strcmp(text, s->sha256))
        refuse_damaged(path);
    return (Piece){.at = at + s->offset, .n = s->bytes};
}

/* As field `number` of what `graph` becomes. */
static void add_tensor(Merge *m, Pieces *graph, uint32_t number, const Slot *s)
{
    Piece bytes = s->parameter ? slot_bytes(m, s) : constant_bytes(m, s);
    PbMessage tensor = {.a = m->arena}, head = {.a = m->arena};
    for (int i = 0; i < s->shape.rank; i++)
        pb_put_int(&tensor, TENSOR_DIMS, s->shape.d[i]);
    pb_put_int(&tensor, TENSOR_TYPE, (int64_t)s->dtype);
    pb_put_string(&tensor, TENSOR_NAME, s->name ? s->name : "");
    if (m->data_name) {
        onnx_put_external(&tensor, m->data_name, m->data.n, bytes.n);
    } else {
        pb_put_key(&tensor, TENSOR_RAW, PB_BYTES); /* the last: its bytes are the next piece */
        pb_put_varint(&tensor, bytes.n);
    }
    pb_put_key(&head, number, PB_BYTES);
    pb_put_varint(&head, tensor.n + (m->data_name ? 0 : bytes.n));
    add_message(m, graph, &head);
    add_message(m, graph, &tensor);
    add(m, m->data_name ? &m->data : graph, bytes);
    m->result.parameters += s->parameter != NULL;
}

static void add_pieces(Merge *m, Pieces *to, uint32_t number, const Pieces *part)
{
    PbMessage head = {.a = m->arena};
    pb_put_key(&head, number, PB_BYTES);
    pb_put_varint(&head, part->n);
    add_message(m, to, &head);
    for (uint32_t i = 0; i < part->piece.n; i++)
        add(m, to, part->piece.at[i]);
}

/* The message of kind `in`, with the tensors that are not in it. */
static Pieces merge_part(Merge *m, PbSpan body, Holder in, const char *path)
{
    Pieces out = {0};
    for (PbField f; pb_next(&body, &f);) {
        Holder is = holder_of(in, f.number);
        Slot s = is == IS_TENSOR ? read_slot(m, f.body) : (Slot){0};
        if (s.parameter || s.sha256) {
            add_tensor(m, &out, f.number, &s);
        } else if (is != IN_NOTHING && is != IS_TENSOR) {
            Pieces part = merge_part(m, f.body, is, path);
            add_pieces(m, &out, f.number, &part);
        } else {
            add(m, &out, (Piece){.at = f.start, .n = (size_t)(f.end - f.start)});
        }
    }
    check_read(&body, path);
    return out;
}

/* ---- files: all of them, or none ---- */

/* f32 as the piece's half type, to nearest even. */
static bool write_rounded(FILE *f, const Piece *p)
{
    enum { BLOCK = 4096 };
    uint16_t block[BLOCK];
    const float *from = p->at;
    for (size_t i = 0, n = p->n / sizeof *block; i < n; i += BLOCK) {
        size_t some = n - i < BLOCK ? n - i : BLOCK;
        for (size_t k = 0; k < some; k++)
            element_copy(p->half, block, DT_F32, from + i, (int64_t)k);
        if (fwrite(block, sizeof *block, some, f) != some)
            return false;
    }
    return true;
}

static bool write_plain(FILE *f, const Piece *p)
{
    if (p->half != DT_NONE)
        return write_rounded(f, p);
    return p->n == 0 || file_put(p->at, p->n, f) == p->n;
}

static bool write_transposed(Merge *m, FILE *f, const Piece *p)
{
    size_t size = p->half != DT_NONE ? dtype_size(DT_F32) : p->n / (p->rows * p->columns);
    const char *from = p->at;
    char *line = arena_calloc(m->arena, p->rows, size);
    for (size_t j = 0; j < p->columns; j++) {
        for (size_t i = 0; i < p->rows; i++)
            memcpy(line + i * size, from + (i * p->columns + j) * size, size);
        Piece row = {.at = line, .half = p->half};
        row.n = p->n / p->columns;
        if (!write_plain(f, &row))
            return false;
    }
    return true;
}

static bool write_pieces(Merge *m, FILE *f, const Pieces *pieces)
{
    for (uint32_t i = 0; i < pieces->piece.n; i++) {
        const Piece *p = &pieces->piece.at[i];
        if (p->rows ? !write_transposed(m, f, p) : !write_plain(f, p))
            return false;
    }
    return fflush(f) == 0 && fsync(fileno(f)) == 0;
}

/* A temporary file, to be renamed to path at the end. */
static void write_file(Merge *m, const char *path, const Pieces *pieces)
{
    Written w = {arena_printf(m->arena, "%s.tmp", path), path};
    FILE *f = arena_file_new(m->arena, w.temporary);
    if (!f)
        io_error(path, "cannot write");
    vec_push(m->arena, &m->file, w);
    bool good = write_pieces(m, f, pieces);
    int error = errno; /* of what failed first: closing may fail too, and differently */
    if (arena_fclose(m->arena, f) && good) {
        good = false;
        error = errno;
    }
    errno = error;
    if (!good)
        io_error(path, "cannot write");
}

static void rename_files(Merge *m)
{
    for (uint32_t i = 0; i < m->file.n; i++)
        if (rename(m->file.at[i].temporary, m->file.at[i].path))
            io_error(m->file.at[i].path, "cannot write");
}

/* "trained.onnx", "trained1.onnx", "trained2.onnx" */
static const char *target_name(Merge *m, uint32_t i)
{
    const char *dot = strrchr(m->target, '.'), *slash = strrchr(m->target, '/');
    if (i == 0)
        return m->target;
    if (!dot || (slash && dot < slash))
        dot = m->target + strlen(m->target);
    return arena_printf(m->arena, "%.*s%u%s", (int)(dot - m->target), m->target, i, dot);
}

/* The mapped skeleton of model i; empty when there are no more. */
static PbSpan open_skeleton(Merge *m, uint32_t i, const char *path)
{
    if (access(path, F_OK) != 0) {
        if (errno == ENOENT && i > 0)
            return (PbSpan){0};
        diag_hint("OUT is the folder that `ppsplit MODEL -o OUT' wrote");
    }
    const FileMap *f = arena_file(m->arena, path);
    const uint8_t *at = (const uint8_t *)f->at;
    return (PbSpan){at, at + f->bytes, false};
}

/* An output that is being replaced, or was when ppsplit was ended (codegen/write/folder.c). */
static void refuse_half(Merge *m)
{
    if (access(arena_printf(m->arena, "%s/.next", m->out), F_OK) != 0)
        return;
    diag_hint("make -C '%s' completes it", m->out);
    diag_fatal(EXIT_IO, WHERE_FILE(m->out), "is half replaced by another output");
}

/* One model: false when there is no skeleton of that number. */
static bool merge_model(Merge *m, uint32_t i)
{
    const char *path =
        arena_printf(m->arena, i ? "%s/model%u.skeleton" : "%s/model.skeleton", m->out, i);
    const char *target = target_name(m, i);
    PbSpan skeleton = open_skeleton(m, i, path);
    if (!skeleton.at)
        return false;
    if (i == 0)
        open_checkpoint(m);
    uint32_t parameters = m->result.parameters;
    const char *data = NULL;
    m->data_name = NULL;
    Pieces model = merge_part(m, skeleton, IN_MODEL, path);
    if (model.n > inline_limit) {
        data = arena_printf(m->arena, "%s.data", target);
        m->data_name = strrchr(data, '/') ? strrchr(data, '/') + 1 : data;
        m->data = (Pieces){0};
        m->result.parameters = parameters;
        model = merge_part(m, skeleton, IN_MODEL, path);
        onnx_check_size(target, model.n);
    }
    const char *mark = merge_mark(m->arena, skeleton);
    PbMessage *metadata = arena_new_of(m->arena, PbMessage);
    metadata->a = m->arena;
    merge_put_mark(metadata, mark);
    add_message(m, &model, metadata);
    merge_spare(target, mark);
    if (data && access(target, F_OK))
        merge_spare(data, mark);
    if (data)
        write_file(m, data, &m->data);
    write_file(m, target, &model);
    vec_push(m->arena, &m->result.file, target);
    return true;
}

static void merge(void *arg)
{
    Merge *m = arg;
    refuse_half(m);
    for (uint32_t i = 0; merge_model(m, i); i++)
        ;
    diag_files();
    rename_files(m);
}

Merged merge_weights(Arena *a, const char *out, const char *checkpoint, const char *target)
{
    Merge m = {.arena = a, .out = out, .checkpoint = checkpoint, .target = target};
    int code = diag_run(merge, &m); /* files and mappings are let go of in any case */
    for (uint32_t i = 0; code && i < m.file.n; i++)
        unlink(m.file.at[i].temporary);
    index_close(&m.index);
    if (code)
        diag_raise(code);
    return m.result;
}
