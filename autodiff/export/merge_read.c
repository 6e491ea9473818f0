/*
 * merge_read.c - what merge reads.  In: a checkpoint, and OUT/model.skeleton (skeleton.c), of
 * several files in sequence also model1.skeleton, ...  Out: the tensors that a skeleton lacks, and
 * their bytes, which are mapped and whose checksums were compared.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file/sha256.h"
#include "merge.h"
#include "onnx_fields.h"

/* codegen/write/folder.c */
void merge_refuse_half(Merge *m)
{
    if (access(arena_printf(m->arena, "%s/.next", m->ask->out), F_OK) != 0)
        return;
    diag_hint("make -C '%s' completes it", m->ask->out);
    diag_fatal(EXIT_IO, WHERE_FILE(m->ask->out), "is only partly replaced by another output");
}

/* ---- the checkpoint ---- */

/* The newest one of a step before `below`; why: of newer ones that are not whole, the newest's.  0:
 * there is none. */
static bool open_newest(Merge *m, int64_t below, char why[INDEX_ERR])
{
    char err[INDEX_ERR];
    const bool found = index_newest(&m->index, m->ask->checkpoint, below, err, sizeof err);
    if (!why[0])
        snprintf(why, INDEX_ERR, "%s", err);
    return found;
}

void merge_open_checkpoint(Merge *m)
{
    char why[INDEX_ERR] = "", err[INDEX_ERR];
    bool found = open_newest(m, INT64_MAX, why);
    while (found && index_check(&m->index, 0, 0, 1, err, sizeof err) != 0) {
        int64_t step = m->index.step;
        if (!why[0])
            snprintf(why, sizeof why, "%s", err);
        index_close(&m->index);
        found = !index_there(m->ask->checkpoint) && open_newest(m, step, why);
    }
    if (found && why[0])
        diag_warn(WHERE_NONE, "%s: merging an older checkpoint", why);
    if (!found && why[0])
        diag_fatal(EXIT_MODEL, WHERE_NONE, "%s", why);
    if (!found) {
        diag_hint("CHECKPOINT is the folder given to --checkpoint, or a step_N in it");
        diag_fatal(EXIT_IO, WHERE_FILE(m->ask->checkpoint),
                   "no checkpoint there: neither index.json nor a folder step_N");
    }
}

const IndexTensor *merge_tensor(Merge *m, const char *name, const void **bytes)
{
    char err[INDEX_ERR];
    const IndexTensor *t = index_find(&m->index, name);
    if (!t) {
        diag_hint("give a checkpoint that this folder's program wrote");
        diag_fatal(EXIT_MODEL, WHERE_FILE(m->ask->checkpoint),
                   "the checkpoint has no parameter '%s'", name);
    }
    *bytes = index_bytes(&m->index, t, err, sizeof err);
    if (!*bytes && t->bytes)
        diag_fatal(EXIT_MODEL, WHERE_NONE, "%s", err);
    return t;
}

/* ---- the model ---- */

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
    if (!strcmp(key, SKELETON_TIED))
        vec_push(m->arena, &s->tied, value);
    if (!strcmp(key, SKELETON_CHANGED))
        s->changed = value;
    if (!strcmp(key, SKELETON_SHA256))
        s->sha256 = value;
    if (!strcmp(key, "location"))
        s->file = value;
    if (!strcmp(key, "offset"))
        s->offset = strtoull(value, NULL, 10);
    if (!strcmp(key, "length"))
        s->bytes = strtoull(value, NULL, 10);
}

Slot merge_slot(Merge *m, PbSpan body)
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
        case TENSOR_RAW: s.raw = f.body; break;
        case TENSOR_EXTERNAL: read_entry(m, f.body, &s); break;
        default: break;
        }
    return s;
}

PbSpan merge_open_skeleton(Merge *m, uint32_t i, const char **at_path)
{
    const char *path = *at_path =
        arena_printf(m->arena, i ? "%s/model%u.skeleton" : "%s/model.skeleton", m->ask->out, i);
    if (access(path, F_OK) != 0) {
        if (errno == ENOENT && i > 0)
            return (PbSpan){0};
        diag_hint("OUT is the folder that `ppsplit MODEL -o OUT' wrote");
    }
    if (i == 0)
        merge_open_checkpoint(m);
    const FileMap *f = arena_file(m->arena, path);
    const uint8_t *at = (const uint8_t *)f->at;
    return (PbSpan){at, at + f->bytes, false};
}

static _Noreturn void refuse_damaged(const char *path)
{
    diag_fatal(EXIT_MODEL, WHERE_FILE(path), "damaged: this is not the file that ppsplit wrote");
}

void merge_check_read(const PbSpan *s, const char *path)
{
    if (s->broken)
        refuse_damaged(path);
}

Piece merge_constant(Merge *m, const Slot *s)
{
    const char *path = arena_printf(m->arena, "%s/%s", m->ask->out, s->file);
    if (!m->constants || strcmp(m->constants->path, path))
        m->constants = arena_file(m->arena, path);
    const char *at = m->constants->at;
    if (s->offset > m->constants->bytes || s->bytes > m->constants->bytes - s->offset ||
        !sha256_is(at + s->offset, s->bytes, s->sha256))
        refuse_damaged(path);
    return (Piece){.at = at + s->offset, .n = s->bytes};
}

Piece merge_parameter(Merge *m, const Slot *s, bool as_in_file)
{
    const void *bytes;
    const IndexTensor *t = merge_tensor(m, s->parameter, &bytes);
    const Shape want = shape_turned(&s->shape, s->transposed);
    Dtype half = dtype_is_half((Dtype)s->dtype) && t->dtype == DT_F32 ? (Dtype)s->dtype : DT_NONE;
    if ((t->dtype != (int)s->dtype && half == DT_NONE) || t->rank != want.rank ||
        memcmp(t->dim, want.d, (size_t)want.rank * sizeof want.d[0]) ||
        (s->transposed && s->shape.rank != 2))
        diag_fatal(EXIT_MODEL, WHERE_FILE(m->ask->checkpoint),
                   "parameter '%s' has another type or shape than the model's", s->parameter);
    Piece p = {.at = bytes, .n = (size_t)t->bytes, .half = half};
    if (half != DT_NONE)
        p.n = p.n / dtype_size(DT_F32) * dtype_size(half);
    if (s->transposed && as_in_file && t->bytes > 0) {
        p.rows = (size_t)want.d[0];
        p.columns = (size_t)want.d[1];
    }
    return p;
}
