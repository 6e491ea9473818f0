/*
 * collective.c - what members of a rank do together along an axis of the mesh, inside a stage's
 * function (pp.h).  In: each
 * member's operand; out: each one's result, in memory of the device, by whatever wire.
 *
 * All that is sent goes straight from one member to another: of an all-reduce each member gets one
 * piece of every other's operand, adds them up and gives the sum to all (Rabenseifner's halves,
 * with direct exchanges for the ring: as many elements, and an order of additions that depends on
 * nothing).  Sums are a tree over the members: neighbours in pairs, level by level, an odd one
 * passes up.  So of C chunks, K of them in a member, the tree over all of them is the tree in each
 * member and then this one, where K is a power of two.
 *
 * A collective begins with its first messages; the rest is done when it ends.  What has begun keeps
 * a set of the stage's messages until then; members begin and end in one order.
 *
 * On a device everything is enqueued: copies and additions in the current stream, messages after
 * what is there and before what follows.  Where the wire enqueues as well (nccl), all of what is
 * only begun is so at once, in a stream of its own, for which the current one waits where it ends.
 */
#include "net/mesh.h"

#include "base/file/safetensors.h"
#include "core/core.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- a call ---- */

/* A place among those that are under way; NULL: nothing is to be done, as something has gone wrong
 * before. */
static PpBegun *begin(const PpCtx *c, int k, const void *in, void *out, void *work)
{
    PpMesh *m = c->mesh;
    PpBegun *a = m->begun;
    if (m->status != PP_OK)
        return NULL;
    while (a->busy)
        a++;
    const PpCollective *row = &m->st->mesh.collective[k & (PP_BEGIN - 1)];
    *a = (PpBegun){.of = m,
                   .dev = m->links->dev,
                   .mesh = row->mesh,
                   .own = c->member[row->mesh],
                   .members = plan_members_along(m->model, row->mesh),
                   .k = k & (PP_BEGIN - 1),
                   .busy = 1,
                   .size = st_dtype_size(row->dtype),
                   .in = in,
                   .out = out,
                   .work = work};
    return a;
}

/* The first of the ranks that differ from this one along the axis alone. */
static int first_along(const PpPlan *model, int x, int number)
{
    int member = number % plan_members(model);
    return number - plan_member_along(model, member, x) * plan_stride(model, x);
}

int collective_has(const PpPlan *model, const PpCollective *c, int number, int other)
{
    return first_along(model, c->mesh, number) == first_along(model, c->mesh, other);
}

void collective_text(char *to, size_t n, const PpPlan *model, const PpStage *st, int k, int number)
{
    static const char *const kind[] = {[PP_ALL_REDUCE] = "all-reduce",
                                       [PP_ALL_GATHER] = "all-gather",
                                       [PP_REDUCE_SCATTER] = "reduce-scatter",
                                       [PP_ALL_TO_ALL] = "all-to-all",
                                       [PP_SHARD] = "shard"};
    const PpCollective *c = &st->mesh.collective[k];
    int first = first_along(model, c->mesh, number), step = plan_stride(model, c->mesh);
    char steps[40] = "";
    if (step > 1)
        snprintf(steps, sizeof steps, " in steps of %d", step);
    snprintf(to, n, "the %s of '%s' in stage %d, of ranks %d to %d%s", kind[c->kind], c->name,
             st->index, first, first + (plan_members_along(model, c->mesh) - 1) * step, steps);
}

/* What the transport has said stands behind it. */
static void failed(const PpBegun *a, PpStatus s)
{
    char text[400], why[400];
    a->of->status = s;
    if (s == PP_ERR_PEER)
        return;
    snprintf(why, sizeof why, "%s", pp_failure_text());
    collective_text(text, sizeof text, a->of->model, a->of->st, a->k, a->of->links->world->rank);
    pp_failure_forget();
    pp_fail(s, "%s, %s: %s", pp_rank(a->of->links->world->rank).text, text, why);
}

/* ---- messages ---- */

/* Message j of a set: of each other member what comes, then of each what goes to it. */
static int member_of(const PpBegun *a, int j) { return j < a->own ? j : j + 1; }

static int set_of(const PpBegun *a)
{
    return a->of->first[a->mesh] + (int)(a - a->of->begun) * 2 * (a->members - 1);
}

static void set_receive(const PpBegun *a, int j, char *to, int64_t bytes)
{
    Message *m = &a->of->msg[set_of(a) + j];
    m->buf = to;
    m->bytes = bytes;
}

static void set_send(const PpBegun *a, int j, const char *from, int64_t bytes)
{
    union {
        const char *in;
        char *out;
    } any = {from}; /* a send's buffer is only read */
    set_receive(a, a->members - 1 + j, any.out, bytes);
    a->of->sent += bytes;
}

/* All of them, as they have been set; 0 after a failure. */
static int start(const PpBegun *a)
{
    PpMesh *m = a->of;
    int others = a->members - 1, first = set_of(a);
    for (int j = 0; j < 2 * others; j++)
        m->msg[set_of(a) + j].tag = m->tag + a->k;
    PpStatus s = links_start(m->links, first, others, 1);
    if (s == PP_OK)
        s = links_start(m->links, first + others, others, 0);
    if (s != PP_OK)
        failed(a, s);
    return s == PP_OK;
}

static int arrive(const PpBegun *a)
{
    PpMesh *m = a->of;
    const double begun = pp_now();
    m->note(m->of, a->k);
    PpStatus s = links_finish(m->links, set_of(a), 2 * (a->members - 1));
    m->note(m->of, -1);
    m->waited += pp_now() - begun;
    if (s != PP_OK)
        failed(a, s);
    return s == PP_OK;
}

/* When it is all in the stream beside the computations; NULL: what is left is done where it ends.
 */
static DeviceEvent beside(const PpBegun *a)
{
    return a->of->links->op->enqueues ? a->of->done[a - a->of->begun] : NULL;
}

static void finish(PpBegun *a)
{
    if (a->of->status == PP_OK && arrive(a))
        a->end(a);
}

static void end(PpBegun *a)
{
    if (a->ahead)
        a->dev->op->wait(a->dev, a->dev->current, beside(a));
    else
        finish(a);
    a->busy = 0;
}

/* Its messages are set.  then: what is left when they have arrived */
static void go(PpBegun *a, int k, void (*then)(PpBegun *a))
{
    Device *d = a->dev;
    const int from = d->current;
    a->end = then;
    a->of->calls++;
    a->ahead = k >= PP_BEGIN && beside(a);
    if (a->ahead)
        device_switch(d, STREAM_MEMBERS);
    if (!start(a))
        a->busy = 0;
    else if (a->ahead)
        finish(a), d->op->record(d, d->current, beside(a));
    else if (k < PP_BEGIN)
        end(a);
    d->current = from;
}

void pp_end(const PpCtx *c, int k)
{
    for (int i = 0; i < PP_AT_ONCE; i++)
        if (c->mesh->begun[i].busy && c->mesh->begun[i].k == k)
            end(&c->mesh->begun[i]);
}

/* ---- what a member does by itself ---- */

static void copy(const PpBegun *a, char *to, const char *from, int64_t bytes)
{
    if (bytes > 0 && to != from)
        a->dev->op->copy(a->dev, a->dev->current, to, from, bytes);
}

static void add(const PpBegun *a, char *to, const char *from, int64_t n)
{
    a->dev->op->math.add(a->dev, a->dev->current, to, from, n,
                         a->of->st->mesh.collective[a->k].dtype);
}

/* The sum of all members' n elements: `own` is this member's, the others' are in slots, in one of
 * which the sum is then.  (x + y is y + x.) */
static const char *add_tree(const PpBegun *a, const char *own, char *slot, int64_t apart, int64_t n)
{
    for (int of = 1; of < a->members && n > 0; of *= 2)
        for (int i = 0; i + of < a->members; i += 2 * of) {
            const int j = i + of, mine = a->own >= i && a->own < j + of,
                      left = a->own >= j || !mine ? i : j, right = left == i ? j : i;
            char *to = slot + (left < a->own ? left : left - 1) * apart;
            add(a, to, mine ? own : slot + (right < a->own ? right : right - 1) * apart, n);
            own = mine ? to : own;
        }
    return own;
}

/* Of a tensor [outer, all, run] the part of `rows` runs, from byte `at` on: bytes. */
typedef struct {
    int64_t at, outer, outer_step, rows, step, run;
} Part;

static int64_t part_bytes(const Part *p) { return p->outer * p->rows * p->run; }

/* One behind the other, as they are sent. */
static Part packed(const Part *p)
{
    return (Part){0, p->outer, p->rows * p->run, p->rows, p->run, p->run};
}

static void copy_part(const PpBegun *a, char *to, const Part *t, const char *from, const Part *f)
{
    const DeviceRuns r = {.outer = f->outer,
                          .rows = f->rows,
                          .run = f->run,
                          .to_outer = t->outer_step,
                          .to_row = t->step,
                          .from_outer = f->outer_step,
                          .from_row = f->step};
    if (part_bytes(f) > 0)
        a->dev->op->copy_runs(a->dev, a->dev->current, to + t->at, from + f->at, &r);
}

/* ---- the collectives ---- */

/* Of n elements those that a member owns. */
static int64_t owned(const PpBegun *a, int member, int64_t n, int64_t *first)
{
    int64_t piece = pp_collective_piece(n, a->members), left;
    *first = member * piece < n ? member * piece : n;
    left = n - *first;
    return left < piece ? left : piece;
}

static void give_sums(PpBegun *a)
{
    const int half = a->of->st->mesh.collective[a->k].half;
    const int64_t piece = pp_collective_piece(a->n, a->members) * a->size,
                  size = half ? st_dtype_size(half) : a->size;
    int64_t first, own_first, own = owned(a, a->own, a->n, &own_first);
    const char *sum = add_tree(a, a->in + own_first * a->size, a->work, piece, own);
    char *mine = a->out + own_first * size;
    if (half && own > 0)
        a->dev->op->math.round(a->dev, a->dev->current, mine, sum, own, half);
    else
        copy(a, mine, sum, own * size);
    for (int j = 0; j < a->members - 1; j++) {
        int64_t theirs = owned(a, member_of(a, j), a->n, &first);
        set_receive(a, j, a->out + first * size, theirs * size);
        set_send(a, j, mine, own * size);
    }
    if (start(a))
        arrive(a);
}

void pp_all_reduce(const PpCtx *c, int k, const void *in, void *out, void *work, int64_t n)
{
    PpBegun *a = begin(c, k, in, out, work);
    int64_t first, own, piece;
    if (!a)
        return;
    a->n = n;
    own = owned(a, a->own, n, &first);
    piece = pp_collective_piece(n, a->members) * a->size;
    for (int j = 0; j < a->members - 1; j++) {
        int64_t theirs = owned(a, member_of(a, j), n, &first);
        set_receive(a, j, a->work + j * piece, own * a->size);
        set_send(a, j, a->in + first * a->size, theirs * a->size);
    }
    go(a, k, give_sums);
}

/* Part i of `members` along the middle dimension of [outer, members, block]. */
static Part middle(const PpBegun *a, int i)
{
    int64_t block = a->block * a->size;
    return (Part){i * block, a->outer, a->members * block, 1, block, block};
}

/* The part of each member's. */
typedef Part PartOf(const PpBegun *a, int member);

/* Of the operand each other member gets its part. */
static void give_parts(PpBegun *a, int k, PartOf *part, void (*then)(PpBegun *a))
{
    const Part own = part(a, a->own), one = packed(&own);
    const int64_t bytes = part_bytes(&own), room = align_up(bytes);
    const int others = a->members - 1;
    for (int j = 0; j < others; j++) {
        const Part theirs = part(a, member_of(a, j));
        copy_part(a, a->work + (others + j) * room, &one, a->in, &theirs);
        set_receive(a, j, a->work + j * room, bytes);
        set_send(a, j, a->work + (others + j) * room, bytes);
    }
    go(a, k, then);
}

/* What has come of each is its part of the result; own: where this member's is in the operand. */
static void join_parts(const PpBegun *a, PartOf *part, const Part *own, const Part *one)
{
    Part to = part(a, a->own);
    copy_part(a, a->out, &to, a->in, own);
    for (int j = 0; j < a->members - 1; j++) {
        to = part(a, member_of(a, j));
        copy_part(a, a->out, &to, a->work + j * align_up(part_bytes(one)), one);
    }
}

static void put_together(PpBegun *a)
{
    const Part own = middle(a, a->own), one = packed(&own);
    join_parts(a, middle, &one, &one);
}

void pp_all_gather(const PpCtx *c, int k, const void *in, void *out, void *work, int64_t outer,
                   int64_t block)
{
    PpBegun *a = out ? begin(c, k, in, out, work) : NULL;
    if (!a)
        return;
    a->outer = outer;
    a->block = block;
    Part own = middle(a, a->own);
    int64_t bytes = part_bytes(&own);
    for (int j = 0; j < a->members - 1; j++) {
        set_receive(a, j, a->work + j * align_up(bytes), bytes);
        set_send(a, j, a->in, bytes);
    }
    go(a, k, put_together);
}

static void add_scattered(PpBegun *a)
{
    Part own = middle(a, a->own), one = packed(&own);
    copy_part(a, a->out, &one, a->in, &own);
    copy(a, a->out, add_tree(a, a->out, a->work, align_up(part_bytes(&own)), a->outer * a->block),
         part_bytes(&own));
}

void pp_reduce_scatter(const PpCtx *c, int k, const void *in, void *out, void *work, int64_t outer,
                       int64_t block)
{
    PpBegun *a = begin(c, k, in, out, work);
    if (!a)
        return;
    a->outer = outer;
    a->block = block;
    give_parts(a, k, middle, add_scattered);
}

/* Of a tensor [a, d, b, e, f], 1 / members of dimension d or of dimension e: of the one that is
 * divided along the other.  As they are sent both are [a, d, b, e, f] with d and e divided. */
static Part along(const PpBegun *c, int by_d, int i)
{
    const PpAcross *s = &c->across;
    int64_t n = c->members, rows = s->d / n * s->b, run = s->e / n * s->f * c->size;
    return by_d ? (Part){i * rows * run, s->a, n * rows * run, rows, run, run}
                : (Part){i * run, s->a, rows * n * run, rows, n * run, run};
}

static Part across_in(const PpBegun *a, int i) { return along(a, !a->across.to_e, i); }
static Part across_out(const PpBegun *a, int i) { return along(a, a->across.to_e, i); }

static void put_across(PpBegun *a)
{
    const Part own = across_in(a, a->own), one = packed(&own);
    join_parts(a, across_out, &own, &one);
}

void pp_all_to_all(const PpCtx *c, int k, const void *in, void *out, void *work, PpAcross across)
{
    PpBegun *x = begin(c, k, in, out, work);
    if (!x)
        return;
    x->across = across;
    give_parts(x, k, across_in, put_across);
}

void pp_shard(const PpCtx *c, int k, const void *in, void *out, int64_t outer, int64_t block)
{
    PpBegun *a = begin(c, k, in, out, NULL);
    if (!a)
        return;
    a->outer = outer;
    a->block = block;
    Part own = middle(a, a->own), one = packed(&own);
    copy_part(a, a->out, &one, a->in, &own);
    a->busy = 0;
}
