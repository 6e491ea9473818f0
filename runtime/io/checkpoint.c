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

#include "base/file/safetensors.h"
#include "io/worker.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const PpParam *p;
    Box held, box;  /* the bytes of the model's parameter in the arena; without gaps, in the file */
    const char *at; /* in the arena */
    int64_t snapshot; /* in the snapshot */
} Saved;

struct Saver {
    Pool pool;
    const Plan *plan;
    const Options *opt;
    HostCopy *files;
    Saved *saved;
    Record *record; /* of the file, then of each of them */
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

static int file_number(const Plan *p)
{
    return (p->ask.replica * p->ask.schedule->ranks + p->ask.rank) * plan_members(p->model) +
           p->ask.member;
}

/* Of a parameter that several stages use, the one whose copy is written. */
static int writes(const RankParam *q, const PpStage *st)
{
    return q->p->use == PP_OWN || (q->p->use == PP_REPLICATE && q->p->from == st->index);
}

typedef struct {
    const Plan *plan;
    Saved *saved; /* NULL: they are counted */
    Record *record;
    int n;
    int64_t bytes;
} List;

/* piece: NULL: all of it; state: -1: the parameter itself */
static void add(List *l, const RankWalk *i, const Piece *piece, int state)
{
    const PlanRequest *ask = &l->plan->ask;
    const RankParam *q = i->q;
    Saved one = {.p = q->p,
                 .held = box_piece(param_box(l->plan->model, q->p, ask->member), piece),
                 .snapshot = l->bytes};
    one.box = box_dense(&one.held);
    if (!one.box.bytes && one.held.bytes)
        return;
    one.at = state >= 0 ? piece->state[state] : piece ? piece->value : q->value;
    l->bytes += align_up(one.held.bytes);
    if (l->saved) {
        l->saved[l->n] = one;
        l->record[l->n] = (Record){.rank = file_number(l->plan),
                                   .stage = i->rs->st->index,
                                   .param = i->param,
                                   .member = ask->member,
                                   .state = state,
                                   .first = one.box.first,
                                   .bytes = one.box.bytes};
    }
    l->n++;
}

/* What this rank writes; states behind the parameters.  What no optimizer changes is replica
 * 0's, what several members have the first one's. */
static void list_all(List *l)
{
    const Plan *p = l->plan;
    for (int state = -1; state < p->ask.states; state++)
        for (RankWalk i = {0}; plan_next(p, &i);) {
            const RankParam *q = i.q;
            if (!writes(q, i.rs->st) || (p->ask.replica && !p->ask.zero) ||
                plan_is_twin(p->model, q->p, p->ask.member))
                continue;
            int pieces = param_in_pieces(p, q);
            if (state < 0 && !p->ask.replica && !pieces && (!q->update || !q->p->t.bytes))
                add(l, &i, NULL, state);
            for (int k = q->piece; k < q->piece + q->n_piece && (state < 0 || q->update); k++)
                add(l, &i, &p->pieces.at[k], state);
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

static const char colons[] = ":, :, :, :, :, :, :, :, :, :, :, :, :, :, :, :, ";

/* `[:, 64:128]`, with several runs along the axis [.., runs, elements of one, ..]; dim: its size */
static void slice_text(char *to, size_t n, const PpPlan *model, const PpParam *p, int member,
                       int64_t dim[PP_MAX_RANK])
{
    const int part = plan_own_part(model, p, member), runs = p->groups > 1 ? p->groups : 1,
              outer = p->outer.whole ? p->outer.dim + 1 : 0; /* dimensions up to the outer one */
    const int64_t at = param_from(p, part), many = param_many(p, part);
    size_t used = (size_t)snprintf(to, n, "[");
    if (outer) {
        const int64_t from = param_outer(model, p, member);
        used += (size_t)snprintf(to + used, n - used, "%.*s%" PRId64 ":%" PRId64 ", ",
                                 3 * (outer - 1), colons, from, from + dim[outer - 1]);
    }
    snprintf(to + used, n - used, "%.*s%" PRId64 ":%" PRId64 "]",
             3 * (p->axis + (runs > 1) - outer), colons, at, at + many);
    dim[p->axis] = many * runs;
}

/* A part is named by the slice that it is; a piece is a row of elements of it: `w[4096:8192]`. */
static int declare(StWriter *w, const Saver *s, int i)
{
    const PpPlan *model = s->plan->model;
    const Saved *t = &s->saved[i];
    const PpParam *p = t->p;
    char slice[240] = "", row[80] = "";
    POOL(room);
    int64_t size = st_dtype_size(p->t.dtype), n = t->box.bytes / size, first = t->box.first / size;
    int64_t dim[PP_MAX_RANK], elements = 1;
    memcpy(dim, p->t.dim, sizeof dim);
    if (param_divided(p))
        slice_text(slice, sizeof slice, model, p, s->plan->ask.member, dim);
    for (int k = 0; k < p->t.rank; k++)
        elements *= dim[k];
    int all = n == elements;
    if (!all)
        snprintf(row, sizeof row, "[%" PRId64 ":%" PRId64 "]", first, first + n);
    const char *of = record_name(&room, model, s->opt, &s->record[1 + i]),
               *name = of ? pool_print(&room, "%s%s%s", of, slice, row) : NULL;
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
static int write_tensor(const Saver *s, StWriter *w, int i, int64_t *offset)
{
    const Saved *t = &s->saved[i];
    Record *r = &s->record[1 + i];
    const char *bytes =
        s->snapshot ? s->snapshot + t->snapshot : host_copy(s->files, t->at, t->held.bytes);
    POOL(room);
    char *dense = t->held.gap ? pool_take(&room, t->box.bytes, 1) : NULL;
    if (t->held.gap && !dense)
        return 0;
    if (dense)
        box_copy(&t->box, dense, &t->held, bytes);
    bytes = dense ? dense : bytes;
    sha256_of(bytes, (size_t)t->box.bytes, r->sha256);
    stw_write(w, bytes, t->box.bytes);
    r->offset = *offset;
    *offset += t->box.bytes;
    return 1;
}

static PpStatus write_file(Saver *s)
{
    char path[PATH_MAX];
    const int64_t step = s->publication.moment.step;
    StWriter w;
    int memory = 1;
    TRY(checkpoint_folder(path, sizeof path - 40, s->opt, step, ".tmp"));
    strcat(path, "/");
    record_file(s->record, path + strlen(path), 39);
    stw_init(&w);
    stw_meta(&w, "format", "pt");
    for (int i = 0; i < s->n; i++)
        memory &= declare(&w, s, i);
    if (stw_begin(&w, path))
        return checkpoint_failed(s->opt, step, strerror(errno));
    int64_t offset = s->record->offset = w.header;
    s->record->bytes = w.header + w.total;
    memcpy(s->record->sha256, w.header_sha256, SHA256_TEXT);
    for (int i = 0; i < s->n && memory && !w.failed; i++) {
        memory = write_tensor(s, &w, i, &offset);
        move(s);
    }
    int bad = stw_end(&w, memory);
    if (!memory)
        return pp_no_memory();
    if (bad)
        return checkpoint_failed(s->opt, step, strerror(errno));
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
    TRY(pp_take(&s->pool, &s->record, s->n + 1, sizeof *s->record));
    *s->record = (Record){.rank = file_number(p), .param = -1};
    List l = {.plan = p, .saved = s->saved, .record = s->record + 1};
    list_all(&l);
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

/* ---- for rank 0 ---- */

/* All ranks' records, one after the other, on rank 0; none of one that writes no file. */
static PpStatus gather(Saver *s, Group *g)
{
    POOL(room);
    Publication *p = &s->publication;
    int64_t mine = s->n ? (s->n + 1) * (int64_t)sizeof *s->record : 0,
            *bytes = pool_take(&room, g->ranks, sizeof *bytes);
    TRY(group_agree(g, bytes ? PP_OK : pp_no_memory()));
    TRY(g->op->gather(g, &mine, sizeof mine, bytes));
    if (g->rank != 0)
        return mine ? group_send(g, 0, s->record, mine) : PP_OK;
    pool_free(&p->pool);
    p->n = 0;
    for (int k = 0; k < g->ranks; k++)
        p->n += bytes[k] / (int64_t)sizeof *s->record;
    TRY(pp_take(&p->pool, &p->record, p->n, sizeof *p->record));
    memcpy(p->record, s->record, (size_t)mine);
    char *at = (char *)p->record + mine;
    for (int k = 1; k < g->ranks; at += bytes[k++])
        if (bytes[k])
            TRY(group_recv(g, k, at, bytes[k]));
    return PP_OK;
}

PpStatus saver_collect(Saver *s, Group *g)
{
    if (!s->under_way)
        return PP_OK;
    TRY(group_agree(g, await(s)));
    TRY(gather(s, g));
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
