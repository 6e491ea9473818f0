/*
 * checkpoint.c - a rank's part of a checkpoint: its file rankR.safetensors with parameters, running
 * statistics and optimizer state under the model's names, each tensor in the file of one rank only,
 * whatever the split.  What members divide (PpParam.axis) each writes its part of, what all of
 * them have member 0.  With --zero every replica writes what it updates: pieces of parameters with
 * their state.
 *
 * With --every the tensors are copied to a snapshot between two steps, and a thread writes it while
 * the next steps run; without, at the end, and where there is no room for a snapshot (--offload
 * params), the run waits.  The thread does no communication: what it has written is told, and rank
 * 0's part of it is asked for, by the rank's own thread.
 */
#include "checkpoint.h"

#include "base/file/memory.h"
#include "base/file/safetensors.h"
#include "io/worker.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name; /* NULL: no memory */
    const PpParam *p;
    Box held, box;  /* the bytes of the model's parameter in the arena; without gaps, in the file */
    const char *at; /* in the arena */
    int64_t snapshot; /* in the snapshot */
    unsigned char sha256[SHA256_BYTES];
} Saved;

struct Saver {
    Pool pool;
    const Plan *plan;
    const Options *opt;
    HostCopy *files;
    Saved *saved;
    int n;
    char *snapshot; /* NULL: written from where the tensors are */
    /* of the rank's own thread */
    Publication publication;
    int under_way; /* a file is being written, or is and has not been collected */
    /* the thread's; NULL: there is none */
    Worker *worker;
    PpStatus status;
    char failure[1024];
    int64_t moved; /* atomic */
    /* what it has written */
    int64_t header, bytes;
    unsigned char header_sha256[SHA256_BYTES];
};

void moment_add(Moment *m, const char *key, const char *fmt, ...)
{
    va_list ap;
    if (m->n == MOMENT_FACTS)
        return;
    m->fact[m->n].key = key;
    va_start(ap, fmt);
    vsnprintf(m->fact[m->n].value, sizeof m->fact[m->n].value, fmt, ap);
    va_end(ap);
    m->n++;
}

/* ---- which tensors ---- */

/* Of a parameter that several stages use, the one whose copy is written. */
static int writes(const RankParam *q, const PpStage *st)
{
    return q->p->use == PP_OWN || (q->p->use == PP_REPLICATE && q->p->from == st->index);
}

typedef struct {
    const Plan *plan;
    const Optimizer *optimizer;
    Pool *pool;
    Saved *saved; /* NULL: they are counted */
    int n;
    int64_t bytes;
} List;

/* piece: NULL: all of the parameter; state: -1: the parameter itself */
static void add(List *l, const RankParam *q, const Piece *piece, int state)
{
    Saved one = {.p = q->p,
                 .held = param_box(l->plan->model, q->p, l->plan->ask.member),
                 .snapshot = l->bytes};
    if (piece) {
        one.held.first += piece->first;
        one.held.bytes = piece->bytes;
    }
    one.box = box_dense(&one.held);
    if (!one.box.bytes && one.held.bytes)
        return;
    one.at = state >= 0 ? piece->state[state] : piece ? piece->value : q->value;
    l->bytes += align_up(one.held.bytes);
    if (l->saved) {
        one.name = param_name(l->plan->model, q->p, l->plan->ask.member);
        if (state >= 0)
            one.name = pool_print(l->pool, "optimizer/%s/%s", l->optimizer->state[state], one.name);
        l->saved[l->n] = one;
    }
    l->n++;
}

/* What this rank writes; states behind the parameters.  What no optimizer changes is replica
 * 0's, what several members have the first one's. */
static void list_all(List *l)
{
    const Plan *p = l->plan;
    for (int state = -1; state < p->ask.states; state++)
        for (int s = 0; s < p->n_stage; s++)
            for (int k = 0; k < p->stage[s].st->n_param; k++) {
                const RankParam *q = &p->stage[s].rp[k];
                if (!writes(q, p->stage[s].st) || (p->ask.replica && !p->ask.zero) ||
                    plan_is_twin(p->model, q->p, p->ask.member))
                    continue;
                int pieces = param_in_pieces(p, q);
                if (state < 0 && !p->ask.replica && !pieces && (!q->update || !q->p->t.bytes))
                    add(l, q, NULL, state);
                for (int i = q->piece; i < q->piece + q->n_piece && (state < 0 || q->update); i++)
                    add(l, q, &p->pieces.at[i], state);
            }
}

int64_t saver_file_bytes(const Plan *p, int *tensors)
{
    List l = {.plan = p};
    list_all(&l);
    *tensors = l.n;
    return l.bytes;
}

int64_t saver_bytes(const Plan *p, const Options *o)
{
    int n;
    if (!o->save.checkpoint || !o->save.every || o->mode != MODE_TRAIN ||
        (o->memory.offload & OFFLOAD_PARAMS))
        return 0;
    return saver_file_bytes(p, &n);
}

/* ---- the file ---- */

static void file_name(const Saver *s, char *to, size_t n)
{
    const PlanRequest *ask = &s->plan->ask;
    int rank = ask->replica * ask->schedule->ranks + ask->rank;
    snprintf(to, n, "rank%d.safetensors", rank * plan_members(s->plan->model) + ask->member);
}

static const char colons[] = ":, :, :, :, :, :, :, :, :, :, :, :, :, :, :, :, ";

/* A part is named by the slice that it is, `w[:, 64:128]`, with several runs along the axis by that
 * of [.., runs, elements of one, ..]; a piece is a row of elements of it: `w[4096:8192]`. */
static int declare(StWriter *w, const Saved *t, const PpPlan *model, int member)
{
    const PpParam *p = t->p;
    char outer[120] = "", slice[240] = "", row[80] = "";
    POOL(room);
    int64_t size = st_dtype_size(p->t.dtype), n = t->box.bytes / size, first = t->box.first / size;
    int64_t dim[PP_MAX_RANK], elements = 1;
    int before = 0; /* dimensions that the slice has in front */
    memcpy(dim, p->t.dim, sizeof dim);
    if (p->outer.whole) {
        int64_t at = param_outer(model, p, member);
        snprintf(outer, sizeof outer, "%.*s%" PRId64 ":%" PRId64 ", ", 3 * p->outer.dim, colons, at,
                 at + dim[p->outer.dim]);
        before = p->outer.dim + 1;
    }
    if (param_divided(p)) {
        int part = plan_own_part(model, p, member);
        int64_t at = param_from(p, part), many = param_many(p, part);
        if (param_divided(p))
            snprintf(slice, sizeof slice, "[%s%.*s%" PRId64 ":%" PRId64 "]", outer,
                     3 * (p->axis + (p->groups > 1) - before), colons, at, at + many);
        dim[p->axis] = many * (p->groups > 1 ? p->groups : 1);
    }
    for (int i = 0; i < p->t.rank; i++)
        elements *= dim[i];
    int all = n == elements;
    if (!all)
        snprintf(row, sizeof row, "[%" PRId64 ":%" PRId64 "]", first, first + n);
    const char *name = pool_print(&room, "%s%s%s", t->name, slice, row);
    if (name)
        stw_declare(w, name, p->t.dtype, all ? p->t.rank : 1, all ? dim : &n);
    return name != NULL;
}

static void move(Saver *s)
{
    __atomic_store_n(&s->moved, (int64_t)(1e6 * pp_now()), __ATOMIC_RELEASE);
}

static void rest(Saver *s) { __atomic_store_n(&s->moved, 0, __ATOMIC_RELEASE); }

const int64_t *saver_moved(const Saver *s) { return &s->moved; }

/* 0: there is no memory */
static int write_tensor(const Saver *s, StWriter *w, Saved *t)
{
    const char *bytes =
        s->snapshot ? s->snapshot + t->snapshot : host_copy(s->files, t->at, t->held.bytes);
    POOL(room);
    char *dense = t->held.gap ? pool_take(&room, t->box.bytes, 1) : NULL;
    if (t->held.gap && !dense)
        return 0;
    if (dense)
        box_copy(&t->box, dense, &t->held, bytes);
    bytes = dense ? dense : bytes;
    sha256_of(bytes, (size_t)t->box.bytes, t->sha256);
    stw_write(w, bytes, t->box.bytes);
    return 1;
}

static PpStatus write_file(Saver *s)
{
    char path[PATH_MAX], err[ST_ERR];
    StWriter w;
    int memory = 1;
    TRY(checkpoint_folder(path, sizeof path - 40, s->opt, s->publication.moment.step, ".tmp"));
    strcat(path, "/");
    file_name(s, path + strlen(path), 39);
    stw_init(&w);
    stw_meta(&w, "format", "pt");
    for (int i = 0; i < s->n; i++)
        memory &= declare(&w, &s->saved[i], s->plan->model, s->plan->ask.member);
    if (stw_begin(&w, path, err, sizeof err))
        return pp_fail(PP_ERR_IO, "--checkpoint: %s", err);
    s->header = w.header;
    s->bytes = w.header + w.total;
    memcpy(s->header_sha256, w.header_sha256, SHA256_BYTES);
    for (int i = 0; i < s->n && memory && !w.failed; i++) {
        memory = write_tensor(s, &w, &s->saved[i]);
        move(s);
    }
    int bad = stw_end(&w, memory, err, sizeof err);
    if (!memory)
        return pp_no_memory();
    if (bad)
        return pp_fail(PP_ERR_IO, "--checkpoint %s: %s", path, err);
    return s->snapshot ? PP_OK
                       : device_check(s->files->dev, s->plan->ask.rank, "copying parameters");
}

/* ---- the thread ---- */

static void settle(Saver *s, PpStatus status)
{
    s->status = status;
    if (status != PP_OK)
        snprintf(s->failure, sizeof s->failure, "%s", pp_failure_text());
    rest(s);
}

static void work_file(void *saver)
{
    Saver *s = saver;
    move(s);
    settle(s, s->n > 0 ? write_file(s) : PP_OK);
}

static void work_publish(void *saver)
{
    Saver *s = saver;
    move(s);
    settle(s, checkpoint_publish(&s->publication));
}

static void hand_over(Saver *s, void (*work)(void *))
{
    if (s->worker)
        worker_give(s->worker, work, s);
    else
        work(s);
}

/* What the thread was doing is done; its failure is this thread's. */
static PpStatus await(Saver *s)
{
    worker_finish(s->worker);
    return s->status == PP_OK ? PP_OK : pp_fail(s->status, "%s", s->failure);
}

/* ---- the rank's own thread ---- */

PpStatus saver_open(Saver **out, const Plan *p, HostCopy *h, const Data *d)
{
    const Options *o = d->opt;
    Saver *s = *out = calloc(1, sizeof *s);
    if (!s)
        return pp_no_memory();
    s->plan = p;
    s->opt = o;
    s->files = h;
    s->publication = (Publication){.model = p->model, .opt = o, .data = d};
    int64_t bytes = saver_bytes(p, o);
    saver_file_bytes(p, &s->n);
    TRY(pp_take(&s->pool, &s->saved, s->n, sizeof *s->saved));
    List l = {.plan = p,
              .optimizer = &optimizers[o->train.optimizer],
              .pool = &s->pool,
              .saved = s->saved};
    list_all(&l);
    for (int i = 0; i < s->n; i++)
        if (!s->saved[i].name)
            return pp_no_memory();
    if (!o->save.every || (o->memory.offload & OFFLOAD_PARAMS))
        return PP_OK; /* no thread: it would read what the next step changes */
    if (bytes > 0 && !(s->snapshot = h->dev->op->memory.alloc_host(h->dev, bytes)))
        return pp_fail(PP_ERR_IO, "rank %d: no memory for the snapshot of --every: %lld bytes",
                       p->ask.rank, (long long)bytes);
    s->worker = worker_open(1);
    return s->worker ? PP_OK : pp_fail(PP_ERR_IO, "no thread could be started for --every");
}

void saver_close(Saver *s)
{
    if (!s)
        return;
    worker_close(s->worker);
    if (s->snapshot)
        s->files->dev->op->memory.release_host(s->files->dev, s->snapshot);
    pool_free(&s->pool);
    pool_free(&s->publication.pool);
    free(s);
}

int saver_written(const Saver *s) { return s->under_way && s->worker && worker_idle(s->worker); }

/* ---- what the index says of them ---- */

static void put_sha(FILE *f, const unsigned char *digest)
{
    char text[SHA256_TEXT];
    sha256_text(digest, text);
    fprintf(f, "\"sha256\": \"%s\"}", text);
}

static void put_numbers(FILE *f, const char *key, int n, const int64_t *list)
{
    fprintf(f, "\"%s\": [", key);
    for (int i = 0; i < n; i++)
        fprintf(f, "%s%" PRId64, i ? ", " : "", list[i]);
    fputs("], ", f);
}

/* The dimensions in which the parts of a tensor are boxes, and that along which it is divided;
 * those of the tensor, or where the axis has several runs what lies before it, a run, what lies
 * behind. */
static int view_of(const PpParam *p, int64_t dim[PP_MAX_RANK], int *axis)
{
    int64_t outer = p->groups, inner = 1;
    param_shape(p, dim);
    *axis = p->axis;
    if (p->groups <= 1)
        return p->t.rank;
    for (int i = 0; i < p->t.rank; i++)
        *(i < p->axis ? &outer : &inner) *= i == p->axis ? 1 : dim[i];
    dim[1] = dim[p->axis] / p->groups;
    dim[0] = outer;
    dim[2] = inner;
    *axis = 1;
    return 3;
}

static void put_tensor(FILE *f, const Saver *s, const Saved *t, const char *file, int64_t offset)
{
    const PpParam *p = t->p;
    const int part = plan_own_part(s->plan->model, p, s->plan->ask.member);
    int64_t dim[PP_MAX_RANK], start[PP_MAX_RANK] = {0}, size[PP_MAX_RANK];
    int axis = 0, rank = param_divided(p) ? view_of(p, size, &axis) : 0;
    const Record r = {rank ? param_from(p, part) : 0, t->box.first};
    fwrite(&r, sizeof r, 1, f);
    fprintf(f, "%s%c\"dtype\": \"%s\", ", t->name, 0, st_dtype_name(p->t.dtype));
    param_shape(p, dim);
    put_numbers(f, "shape", p->t.rank, dim);
    if (rank && p->groups > 1)
        put_numbers(f, "view", rank, size);
    fprintf(f, "%c{\"file\": \"%s\", \"offset\": %" PRId64 ", \"bytes\": %" PRId64 ", ", 0, file,
            offset, t->box.bytes);
    if (rank) {
        start[axis] = param_from(p, part);
        size[axis] = param_many(p, part);
        put_numbers(f, "start", rank, start);
        put_numbers(f, "size", rank, size);
    }
    put_sha(f, t->sha256);
    putc(0, f);
}

/* This rank's records, for rank 0. */
static char *records(const Saver *s, int64_t *bytes)
{
    const Record whole = {-1, 0};
    char name[40];
    int64_t offset = s->header;
    Memory text;
    FILE *f = memory_open(&text);
    if (!f)
        return NULL;
    file_name(s, name, sizeof name);
    if (s->n > 0) {
        fwrite(&whole, sizeof whole, 1, f);
        fprintf(f, "%s%c{\"bytes\": %" PRId64 ", \"header\": %" PRId64 ", ", name, 0, s->bytes,
                s->header);
        put_sha(f, s->header_sha256);
        fwrite("\0", 2, 1, f);
    }
    for (int i = 0; i < s->n; offset += s->saved[i++].box.bytes)
        put_tensor(f, s, &s->saved[i], name, offset);
    int bad = memory_close(f, &text);
    *bytes = (int64_t)text.n;
    return bad ? NULL : text.at;
}

/* All ranks' records, one after the other, on rank 0. */
static PpStatus gather(Saver *s, Group *g, const char *mine, int64_t bytes)
{
    POOL(room);
    Publication *p = &s->publication;
    int64_t *length = pool_take(&room, g->ranks, sizeof *length);
    TRY(group_agree(g, length && mine ? PP_OK : pp_no_memory()));
    TRY(g->op->gather(g, &bytes, sizeof bytes, length));
    if (g->rank != 0)
        return bytes ? group_send(g, 0, mine, bytes) : PP_OK;
    pool_free(&p->pool);
    p->bytes = 0;
    for (int k = 0; k < g->ranks; k++)
        p->bytes += length[k];
    TRY(pp_take(&p->pool, &p->record, p->bytes, 1));
    memcpy(p->record, mine, (size_t)bytes);
    int64_t at = length[0];
    for (int k = 1; k < g->ranks; at += length[k++])
        if (length[k])
            TRY(group_recv(g, k, p->record + at, length[k]));
    return PP_OK;
}

PpStatus saver_collect(Saver *s, Group *g)
{
    int64_t bytes = 0;
    if (!s->under_way)
        return PP_OK;
    TRY(group_agree(g, await(s)));
    char *mine = records(s, &bytes);
    PpStatus status = gather(s, g, mine, bytes);
    free(mine);
    TRY(status);
    s->under_way = 0;
    if (g->rank == 0)
        hand_over(s, work_publish);
    return PP_OK;
}

PpStatus saver_finish(Saver *s, Group *g)
{
    TRY(saver_collect(s, g));
    return group_agree(g, await(s));
}

PpStatus saver_save(Saver *s, Group *g, const Moment *m)
{
    TRY(saver_finish(s, g));
    move(s);
    PpStatus prepared = g->rank == 0 ? checkpoint_prepare(s->opt, m->step) : PP_OK;
    rest(s);
    TRY(group_agree(g, prepared));
    for (int i = 0; s->snapshot && i < s->n; i++)
        host_fetch(s->files, s->snapshot + s->saved[i].snapshot, s->saved[i].at,
                   s->saved[i].held.bytes);
    if (s->snapshot)
        host_await(s->files);
    TRY(group_agree(g, device_check(s->files->dev, s->plan->ask.rank, "copying parameters")));
    s->publication.moment = *m;
    s->under_way = 1;
    hand_over(s, work_file);
    return s->worker ? PP_OK : saver_finish(s, g);
}
