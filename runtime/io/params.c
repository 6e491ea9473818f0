/*
 * params.c - in: params/stageN.safetensors, or stageN.link.json that points into the model's own
 * files, or a checkpoint of any split, or a state_dict; params/constants.bin; out: the parameters,
 * statistics and long constants of this rank's stages, in place, and with --resume their optimizer
 * state.  A rank reads what its own stages have only, of a parameter that members divide its part.
 * Names, dtypes and shapes must be the plan's exactly; bytes from a checkpoint have its index's
 * checksums, constants those of the plan.
 */
#include "files.h"
#include "init.h"

#include "base/file/index.h"
#include "base/file/tensors.h"
#include "core/number.h"
#include "core/signals.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    const char *own;           /* the folder that has the constants */
    Index *index;              /* of a checkpoint; NULL: a stage's file */
    const TensorFiles *shards; /* of a state_dict, or of an optimizer's states */
    const char *folder; /* of stages' files, of which this one's is opened when it is wanted */
    int stage, link;
    StFile f;
    char path[PATH_MAX];
} Source;

static PpStatus io_failed(int bad, const char *err)
{
    return bad ? pp_fail(PP_ERR_IO, "%s", err) : PP_OK;
}

/* What was cut short meanwhile may have read as zeros. */
static PpStatus close_map(FileMap *m)
{
    char err[ST_ERR];
    const int bad = file_whole(m, err, sizeof err);
    file_unmap(m);
    return io_failed(bad, err);
}

static PpStatus close_source(Source *s)
{
    char err[ST_ERR];
    const int bad = file_whole(s->f.map, err, sizeof err);
    st_close(&s->f);
    return io_failed(bad, err);
}

int params_stage_file(char path[PATH_MAX], const char *folder, int stage)
{
    for (int link = 0; link < 2; link++)
        if (snprintf(path, PATH_MAX, "%s/stage%d.%s", folder, stage,
                     link ? "link.json" : "safetensors") < PATH_MAX &&
            !access(path, F_OK))
            return link;
    return -1;
}

/* wanted: a parameter that is read from there */
static PpStatus open_source(Source *s, const char *wanted)
{
    char err[ST_ERR];
    s->link = params_stage_file(s->path, s->folder, s->stage);
    if (s->link < 0)
        return pp_fail(PP_ERR_IO,
                       "%s/stage%d.safetensors: %s: give '%s' values with --init, --params or "
                       "--resume",
                       s->folder, s->stage, strerror(errno), wanted);
    return io_failed((s->link ? st_open_link : st_open)(&s->f, s->path, err, sizeof err), err);
}

/* The bytes of a tensor that begins at byte `from` of the file, mapped */
static PpStatus map_tensor(FileMap **m, const char *path, const char *name, int64_t from,
                           int64_t bytes)
{
    char why[FILE_WHY];
    *m = file_map(path, why);
    if (*m && from <= (int64_t)(*m)->bytes && bytes <= (int64_t)(*m)->bytes - from)
        return PP_OK;
    if (*m)
        strcpy(why, "cut short");
    file_unmap(*m);
    return pp_fail(PP_ERR_IO, "%s, which holds '%s': %s", path, name, why);
}

/* A part of a matrix of which the transpose is stored */
static void copy_transposed(const StTensor *t, const Box *part, char *to, const char *from)
{
    const int64_t size = st_dtype_size(t->dtype), rows = t->dim[0], columns = t->dim[1];
    for (int64_t i = 0, n, at; i < part->bytes; i += n) {
        n = box_run(part, i, &at);
        for (int64_t k = 0, e; k < n && at >= 0; k += size) {
            e = (at + k) / size;
            memcpy(to + i + k, from + (e % columns * rows + e / columns) * size, (size_t)size);
        }
    }
}

static PpStatus read_linked(const Source *s, const StTensor *t, const Box *part, char *to)
{
    FileMap *m;
    POOL(room);
    const Box all = box_whole(t->bytes);
    const char *path = st_linked(&room, &s->f, t);
    if (!path)
        return pp_no_memory();
    TRY(map_tensor(&m, path, t->name, t->offset, t->bytes));
    if (t->transposed)
        copy_transposed(t, part, to, m->at + t->offset);
    else
        box_copy(part, to, &all, m->at + t->offset);
    return close_map(m);
}

/* Of the folder params beside the program */
static PpStatus read_constant(const char *own, const PpConst *c, char *to)
{
    char path[PATH_MAX + 16];
    FileMap *m;
    snprintf(path, sizeof path, "%s/constants.bin", own);
    TRY(map_tensor(&m, path, c->t.name, c->at, c->t.bytes));
    memcpy(to, m->at + c->at, (size_t)c->t.bytes);
    TRY(close_map(m));
    return sha256_is(to, (size_t)c->t.bytes, c->sha256)
               ? PP_OK
               : pp_fail(PP_ERR_MODEL, "%s: damaged: '%s' is not what ppsplit wrote", path,
                         c->t.name);
}

static PpStatus another(const char *path, const char *name)
{
    return pp_fail(PP_ERR_MODEL, "%s: '%s' has another dtype or shape than in the plan", path,
                   name);
}

/* A parameter of the model, or a tensor like it, of which a part is to be loaded; or a constant. */
typedef struct {
    const char *name;
    const PpParam *like;
    Box part;
    const PpConst *constant;
    const Init *init; /* instead of a file; NULL: none */
} Wanted;

static int same_shape(const Wanted *w, int rank, const int64_t *dim)
{
    int64_t want[PP_MAX_RANK];
    param_shape(w->like, want);
    int same = rank == w->like->t.rank;
    for (int i = 0; i < rank && same; i++)
        same = dim[i] == want[i];
    return same;
}

static int same_tensor(const Wanted *w, int dtype, int rank, const int64_t *dim)
{
    return dtype == w->like->t.dtype && same_shape(w, rank, dim);
}

/* Every number of the one type is one of the other: 16 bits in 32 or 64, 32 in 64. */
static int widens(int from, int to)
{
    int half = from == PP_BF16 || from == PP_F16;
    return to == PP_F64 ? half || from == PP_F32 : to == PP_F32 && half;
}

/* The part of a tensor of a narrower type */
static void copy_widened(const StTensor *t, const Wanted *w, char *to)
{
    const int dtype = w->like->t.dtype;
    const int64_t size = st_dtype_size(dtype);
    for (int64_t i = 0, n, at; i < w->part.bytes; i += n) {
        n = box_run(&w->part, i, &at);
        for (int64_t k = 0; k < n && at >= 0; k += size)
            number_put(to + i + k, 0, dtype, number_at(t->data, (at + k) / size, t->dtype));
    }
}

static PpStatus load_indexed(Index *x, const Wanted *w, char *to)
{
    char err[INDEX_ERR];
    const IndexTensor *t = index_find(x, w->name);
    if (!t)
        return pp_fail(PP_ERR_MODEL, "%s: no tensor '%s'", x->path, w->name);
    if (!same_tensor(w, t->dtype, t->rank, t->dim))
        return another(x->path, w->name);
    return index_copy(x, t, &w->part, to, err, sizeof err) ? pp_fail(PP_ERR_MODEL, "%s", err)
                                                           : PP_OK;
}

/* Gaps, which the whole's end leaves in a part, are zeros. */
static PpStatus load(Source *s, const Wanted *w, char *to)
{
    if (w->part.gap)
        memset(to, 0, (size_t)w->part.bytes);
    if (w->constant)
        return read_constant(s->own, w->constant, to);
    if (w->init) {
        init_fill(w->init, w->like->t.dtype, &w->part, to);
        return PP_OK;
    }
    if (s->index)
        return load_indexed(s->index, w, to);
    if (!s->shards && !s->f.map)
        TRY(open_source(s, w->name));
    const StTensor *t =
        s->shards ? tensors_find(s->shards, w->name, NULL) : st_find(&s->f, w->name);
    if (!t)
        return pp_fail(PP_ERR_MODEL, "%s: no tensor '%s'", s->path, w->name);
    if (s->shards && widens(t->dtype, w->like->t.dtype) && same_shape(w, t->rank, t->dim)) {
        copy_widened(t, w, to);
        return PP_OK;
    }
    if (!same_tensor(w, t->dtype, t->rank, t->dim) || (t->transposed && t->rank != 2))
        return another(s->path, w->name);
    if (s->link)
        return read_linked(s, t, &w->part, to);
    const Box all = box_whole(t->bytes);
    box_copy(&w->part, to, &all, t->data);
    return PP_OK;
}

int64_t params_lowest(const void *p, int dtype, int64_t bytes)
{
    int64_t n = 0;
    for (int64_t i = 0; i < bytes / st_dtype_size(dtype); i++)
        n += number_at(p, i, dtype) == -(double)INFINITY;
    return n;
}

/* A tensor to its place, through the host where that is on a device; lowest: to which is added what
 * params_lowest() counts, or NULL. */
static PpStatus place(HostCopy *h, Source *s, Wanted w, char *to, int64_t *lowest)
{
    TRY(signals_heed());
    const int64_t bytes = w.part.bytes;
    if (!h->room) {
        PpStatus loaded = load(s, &w, to);
        if (lowest && loaded == PP_OK)
            *lowest += params_lowest(to, w.like->t.dtype, bytes);
        return loaded;
    }
    char *here;
    POOL(room);
    TRY(pp_take(&room, &here, bytes, 1));
    TRY(load(s, &w, here));
    if (lowest)
        *lowest += params_lowest(here, w.like->t.dtype, bytes);
    host_upload(h, to, here, bytes);
    return PP_OK;
}

/* Of a state, as a checkpoint calls it, or for PyTorch: exp_avg.NAME, where a module's own names
 * follow the state's. */
static int state_name(const Source *s, const char *state, const char *param, char *to, size_t n)
{
    const char *module = s->shards ? s->shards->module : NULL;
    size_t k = module ? strlen(module) : 0;
    if (!s->shards)
        return snprintf(to, n, "optimizer/%s/%s", state, param);
    if (!module)
        return snprintf(to, n, "%s.%s", state, param);
    int inside = !strncmp(param, module, k) && param[k] == '.';
    return snprintf(to, n, "%s.%s.%s", module, state, inside ? param + k + 1 : param);
}

/* part: of the parameter, which is the piece's stage's */
static PpStatus load_states(HostCopy *h, Source *s, Wanted w, const Piece *piece,
                            const Optimizer *optimizer)
{
    char name[4096];
    w.part = box_piece(w.part, piece);
    for (int j = 0; j < optimizer->states; j++) {
        if (state_name(s, optimizer->state[j], w.name, name, sizeof name) >= (int)sizeof name)
            return pp_fail(PP_ERR_IO, "parameter name too long for a checkpoint");
        const Wanted state = {.name = name, .like = w.like, .part = w.part};
        TRY(place(h, s, state, piece->state[j], NULL));
    }
    return PP_OK;
}

typedef struct {
    const char *own, *given;  /* folders of stages' files */
    Index *index;             /* instead of `given` */
    TensorFiles files, torch; /* n 0: none; the same, and the states of --states */
    const Options *options;
    const Optimizer *optimizer;
    int states; /* the checkpoint's too */
} From;

static PpStatus load_params(HostCopy *h, const Plan *plan, const StagePlan *rs, Source *s,
                            const From *from)
{
    Source torch = {.shards = &from->torch};
    if (from->torch.n)
        snprintf(torch.path, sizeof torch.path, "%s", from->torch.file[0].map->path);
    for (int k = 0; k < rs->st->n_param; k++) {
        const PpParam *p = &rs->st->param[k];
        RankParam *q = &rs->rp[k];
        if (p->use == PP_TRANSMIT)
            continue;
        const Box part = param_box(plan->model, p, plan->ask.member);
        Init init;
        const char *name = param_name(plan->model, p, plan->ask.member);
        TRY(init_of(from->options, plan->model, p, name, &init));
        const Wanted w = {name, p, part, NULL, from->states || !init.given ? NULL : &init};
        Source *states = !q->update ? NULL : from->states ? s : from->torch.n ? &torch : NULL;
        if (q->value)
            TRY(place(h, s, w, q->value, &q->lowest));
        for (int i = q->piece; i < q->piece + q->n_piece; i++) {
            const Piece *piece = &plan->pieces.at[i];
            if (!q->value)
                TRY(place(h, s, (Wanted){name, p, box_piece(part, piece), NULL, w.init},
                          piece->value, &q->lowest));
            if (states)
                TRY(load_states(h, states, w, piece, from->optimizer));
        }
    }
    return PP_OK;
}

/* They are never trained, and so in no checkpoint. */
static PpStatus load_constants(HostCopy *h, const StagePlan *rs, Source *s)
{
    for (int k = 0; k < rs->st->n_const; k++) {
        const PpConst *c = &rs->st->constants[k];
        if (c->data)
            host_upload(h, rs->constants + c->offset, c->data, c->t.bytes);
        else
            TRY(place(h, s, (Wanted){c->t.name, NULL, box_whole(c->t.bytes), c, NULL},
                      rs->constants + c->offset, NULL));
    }
    return PP_OK;
}

static PpStatus load_stage(HostCopy *h, const Plan *plan, const StagePlan *rs, const From *from)
{
    Source s = {.own = from->own,
                .index = from->index,
                .shards = from->files.n ? &from->files : NULL,
                .folder = from->given ? from->given : from->own,
                .stage = rs->st->index};
    if (s.shards)
        snprintf(s.path, sizeof s.path, "%s", from->given);
    PpStatus status = load_params(h, plan, rs, &s, from);
    if (status == PP_OK)
        status = load_constants(h, rs, &s);
    PpStatus closed = close_source(&s);
    return status == PP_OK ? closed : status;
}

static PpStatus open_files(TensorFiles *s, const char *files)
{
    char err[ST_ERR];
    return io_failed(tensors_open(s, files, err, sizeof err), err);
}

static PpStatus close_files(TensorFiles *s)
{
    char err[ST_ERR];
    int bad = tensors_whole(s, err, sizeof err);
    tensors_close(s);
    return io_failed(bad, err);
}

int params_is_file(const char *given)
{
    const char *path = tensors_path(given), *dot = strrchr(path, '.');
    struct stat is;
    int folder = stat(path, &is) == 0 && S_ISDIR(is.st_mode);
    return !folder && dot && (!strcmp(dot, ".safetensors") || !strcmp(dot, ".json"));
}

/* A folder with files of stages, or a checkpoint: which one has been chosen (exec/begin.c). */
static PpStatus open_given(Index *x, From *from)
{
    char err[INDEX_ERR];
    if (!from->given)
        return PP_OK;
    if (params_is_file(from->given))
        return open_files(&from->files, from->given);
    if (!index_there(from->given))
        return PP_OK;
    int bad = index_open(x, from->given, err, sizeof err);
    from->index = x;
    return bad ? pp_fail(PP_ERR_MODEL, "%s", err) : PP_OK;
}

PpStatus params_updates(const char *states, int64_t *updates)
{
    TensorFiles s;
    float step = -1;
    TRY(open_files(&s, states));
    for (int i = 0; i < s.n; i++) {
        const StTensor *t = st_find(&s.file[i], "step");
        if (t && t->dtype == PP_F32 && t->bytes == (int64_t)sizeof step)
            memcpy(&step, t->data, sizeof step);
    }
    TRY(close_files(&s));
    if (!(step >= 0 && step < 1e9f))
        return pp_fail(PP_ERR_MODEL,
                       "--states %s: no tensor 'step' (one float32, the number of updates)",
                       states);
    *updates = (int64_t)step;
    return PP_OK;
}

/* The output whose program this is may be about to be another: some files of each are none. */
static PpStatus refuse_half(const char *own)
{
    char next[PATH_MAX + 16];
    snprintf(next, sizeof next, "%s/../.next", own);
    if (access(next, F_OK) != 0)
        return PP_OK;
    return pp_fail(
        PP_ERR_IO,
        "%.*s: only partly replaced by another output: run make there to complete and build it",
        (int)(strlen(own) - strlen("/params")), own);
}

PpStatus params_load(const Plan *p, HostCopy *h, const ParamsFrom *given, const Options *o)
{
    Index x = {0};
    From from = {.own = given->own,
                 .given = given->resume ? given->resume : given->given,
                 .options = o,
                 .optimizer = &optimizers[o->train.optimizer],
                 .states = given->resume != NULL};
    TRY(refuse_half(given->own));
    PpStatus status = open_given(&x, &from);
    if (status == PP_OK && given->states)
        status = open_files(&from.torch, given->states);
    for (int l = 0; l < p->n_stage && status == PP_OK; l++)
        status = load_stage(h, p, &p->stage[l], &from);
    index_close(&x);
    PpStatus files = close_files(&from.files), torch = close_files(&from.torch);
    status = status != PP_OK ? status : files != PP_OK ? files : torch;
    return status == PP_OK ? device_check(h->dev, p->ask.rank, "loading its parameters") : status;
}
