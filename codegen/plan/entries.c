/*
 * entries.c - what runs entry by entry of a batch: attention's scores, their softmax and the
 * product with the values, head by head, and the same backward.  In: groups in order with their
 * nests.  Out: Group.entries and Group.entry of those in such a run.
 *
 * A run begins with a product over a batch.  Products and nests behind it belong to it while they
 * are over the same batch, and what one of them leaves for another is of the same entry: as far
 * from entry to entry for both, and farther than its elements reach.  Then all of them may come for
 * the first entry before the first of them comes for the second, and what is handed on stays in
 * the caches.  Each entry is computed as before, so bits do not depend on whether a cut falls
 * between.
 */
#include <string.h>

#include "plan.h"

/* Bytes that are handed on: from so many on the first-level cache does not keep those of all
   entries, up to so many the second level does those of one. */
enum { ENTRIES_FROM = 1 << 17, ENTRY_MOST = 1 << 21, RUN_MOST = 16 };

/* A group's access to a buffer: of the first entry the elements from `low` to `high`, of others as
   many, so far apart along each dimension. */
typedef struct {
    uint32_t buf;
    bool written;
    Lin low, high, apart[ENTRY_DIMS];
} Access;
typedef struct {
    const Nest *nest;               /* of one entry; NULL: a product */
    uint32_t n;                     /* by argument */
    Access *access;
} Part;

/* The search: all products of the function, and where what is tried is made. */
typedef struct {
    Func *f;
    const Step *const *product;     /* by place in the order; NULL: it is none */
    Arena *a;
} Look;

/* nobody knows where it ends */
static const Lin anywhere = {INT32_MAX, 1};

/* ---- one group ------------------------------------------------------------------------------- */

/* How a batch lies over the outermost dimensions of a group, each of which is one of the batch's or
   several of them: dimension d is in `from`, and one step along it is `step` of that. */
typedef struct { int from[ENTRY_DIMS]; int64_t step[ENTRY_DIMS]; } Laid;

/* Over how many dimensions; -1: it is another batch. */
static int lay(const Entries *b, const Lin *ext, int nd, Laid *l)
{
    int j = 0;
    for (int d = 0; d < b->nd; j++) {
        int end = d;
        if (j == nd)
            return -1;
        for (Lin all = b->count[d]; !lin_eq(all, ext[j]);)
            if (++end == b->nd || !lin_mul(all, b->count[end], &all))
                return -1;
        int64_t size = 1;
        for (int e = end; e >= d; e--) {
            l->from[e] = j;
            l->step[e] = size;
            if (e > d && b->count[e].b != 0)
                return -1;
            size *= b->count[e].c;
        }
        d = end + 1;
    }
    return j;
}

static void set_apart(const Entries *b, const Laid *l, const Lin *stride, Lin *apart)
{
    for (int d = 0; d < b->nd; d++)
        apart[d] = lin_times(stride[l->from[d]], l->step[d]);
}

/* One matrix of a product, of so many rows and columns as it is stored. */
static void side(const Step *s, const ProductSide *x, Lin rows, Lin cols, const Entries *b,
                 const Laid *l, Part *part)
{
    const StepArg *arg = &s->arg.at[x->arg];
    Access *to = &part->access[x->arg];
    Lin lines;
    *to = (Access){.buf = arg->buf, .written = arg->written, .low = arg->offset};
    to->high = lin_mul(lin_add(rows, lin(-1)), x->ld, &lines)
                   ? lin_add(lin_add(arg->offset, lines), lin_add(cols, lin(-1)))
                   : anywhere;
    set_apart(b, l, x->stride, to->apart);
}

static bool product(const Look *x, const Step *s, const Entries *b, Part *part)
{
    const Product *p = s->product;
    Laid l;
    if (p->packed != PACKED_NONE || p->biased || p->adds || lay(b, p->count, p->nb, &l) != p->nb)
        return false;
    part->n = s->arg.n;
    part->access = arena_array(x->a, Access, s->arg.n);
    bool ta = p->transposed_a, tb = p->transposed_b;
    side(s, &p->a, ta ? p->k : p->m, ta ? p->m : p->k, b, &l, part);
    side(s, &p->b, tb ? p->n : p->k, tb ? p->k : p->n, b, &l, part);
    side(s, &p->c, p->m, p->n, b, &l, part);
    return true;
}

/* The outermost `gone` dimensions leave the list. */
static void drop(Lin *list, int gone)
{
    memmove(list, list + gone, sizeof *list * (size_t)(NEST_DIMS - gone));
    memset(list + NEST_DIMS - gone, 0, sizeof *list * (size_t)gone);
}

static bool all_zero(const Lin *list, int n)
{
    for (int i = 0; i < n; i++)
        if (!lin_is(list[i], 0))
            return false;
    return true;
}

/* A statement of one entry; false: it asks which entry it is, or adds to what may be another's. */
static bool statement_of_one(Stmt *s, int gone, Arena *a)
{
    NestGuard *guard = arena_array(a, NestGuard, s->nguard + 1);
    if (s->acc || (s->kind == S_INDEX && !all_zero(s->stride, gone)))
        return false;
    for (uint32_t i = 0; i < s->nguard; i++) {
        guard[i] = s->guard[i];
        if (!all_zero(guard[i].coef, gone))
            return false;
        drop(guard[i].coef, gone);
    }
    s->guard = guard;
    drop(s->stride, gone);
    return true;
}

/* The nest of one entry, whose outermost `gone` dimensions are the batch's; NULL: there is none. */
static Nest *of_one(const Look *x, const Nest *n, int gone)
{
    Nest *one = arena_new_of(x->a, Nest);
    *one = *n;
    one->stmt.at = arena_array(x->a, Stmt, n->stmt.n);
    memcpy(one->stmt.at, n->stmt.at, sizeof *n->stmt.at * n->stmt.n);
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (!statement_of_one(&one->stmt.at[i], gone, x->a))
            return NULL;
    drop(one->ext, gone);
    one->nd -= gone;
    one->nouter -= gone;
    one->line -= n->banded ? gone : 0;
    one->cost = 1;
    for (int d = 0; d < one->nd; d++)
        one->cost *= lin_at(one->ext[d], x->f->g->batch);
    return one;
}

/* The last element that the statement reads or writes of the first entry. */
static Lin reaches(const Nest *one, const Stmt *s)
{
    Lin at = s->base, line;
    for (int d = 0; d < one->nd; d++) {
        if (s->nindex || !lin_mul(lin_add(one->ext[d], lin(-1)), s->stride[d], &line) ||
            line.b < 0 || line.c < 0)
            return anywhere;
        at = lin_add(at, line);
    }
    return at;
}

static Lin lesser(const Func *f, Lin x, Lin y)
{
    return lin_at(x, f->g->batch) < lin_at(y, f->g->batch) ? x : y;
}
static Lin greater(const Func *f, Lin x, Lin y)
{
    return lin_at(x, f->g->batch) > lin_at(y, f->g->batch) ? x : y;
}

static bool nest(const Look *look, const Nest *n, const Entries *b, Part *part)
{
    const Func *f = look->f;
    Laid l;
    int gone = n->kind == NEST_COLUMN || nest_makes_nothing(n) ? -1
                                                               : lay(b, n->ext, n->nouter, &l);
    if (gone < 0 || gone == n->nd || (n->banded && n->line < gone))
        return false;
    const Nest *one = part->nest = of_one(look, n, gone);
    if (!one)
        return false;
    part->n = n->arg.n;
    part->access = arena_array(look->a, Access, n->arg.n);
    bool *seen = arena_array(look->a, bool, n->arg.n);
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        if (s->kind != S_LOAD && s->kind != S_STORE)
            continue;
        const NestArg *arg = &n->arg.at[s->arg];
        Access *x = &part->access[s->arg], y = {.buf = arg->buf, .written = arg->written};
        y.low = lin_add(arg->offset, s->base);
        y.high = lin_add(arg->offset, reaches(one, &one->stmt.at[i]));
        set_apart(b, &l, s->stride, y.apart);
        if (seen[s->arg] && memcmp(x->apart, y.apart, sizeof y.apart) != 0)
            return false;
        y.low = seen[s->arg] ? lesser(f, x->low, y.low) : y.low;
        y.high = seen[s->arg] ? greater(f, x->high, y.high) : y.high;
        *x = y;
        seen[s->arg] = true;
    }
    for (uint32_t i = 0; i < n->arg.n; i++)
        INSIST(seen[i]);
    return true;
}

/* ---- several --------------------------------------------------------------------------------- */

/* All that the parts do with a buffer; same: from entry to entry it is as far for each. */
typedef struct { bool written, read, same; Access all; uint32_t parts; } Sharing;

static Sharing shared(const Func *f, const Part *part, uint32_t n, const Access *x)
{
    Sharing u = {.same = true, .all = *x};
    for (uint32_t j = 0; j < n; j++) {
        bool here = false;
        for (uint32_t k = 0; k < part[j].n; k++) {
            const Access *y = &part[j].access[k];
            if (y->buf != x->buf)
                continue;
            here = true;
            u.written |= y->written;
            u.read |= !y->written;
            u.same &= memcmp(x->apart, y->apart, sizeof x->apart) == 0;
            u.all.low = lesser(f, u.all.low, y->low);
            u.all.high = greater(f, u.all.high, y->high);
        }
        u.parts += here;
    }
    return u;
}

/* Do entries not reach into one another?  From the innermost dimension to the outermost. */
static bool keep_apart(const Entries *b, const Access *x)
{
    Lin need = lin_add(x->high, (Lin){1 - x->low.c, -x->low.b});
    for (int d = b->nd - 1; d >= 0; d--) {
        if (need.b != 0 || x->apart[d].b != 0 || x->apart[d].c < need.c)
            return false;
        if (d > 0 && !lin_mul(x->apart[d], b->count[d], &need))
            return false;
    }
    return true;
}

/* May the last part join those before it?  Where several only write, each has elements of its own
   anyway. */
static bool joins(const Func *f, const Entries *b, const Part *part, uint32_t n)
{
    for (uint32_t i = 0; i < part[n - 1].n; i++) {
        Sharing u = shared(f, part, n, &part[n - 1].access[i]);
        if (u.parts > 1 && u.written && (!u.same || (u.read && !keep_apart(b, &u.all))))
            return false;
    }
    return true;
}

/* of: parts that hand something on to one another have the same number. */
typedef struct {
    Entries batch;
    Part part[RUN_MOST];
    uint32_t of[RUN_MOST], n;
    int64_t bytes;
} Run;

static bool writes(const Part *part, uint32_t buf)
{
    for (uint32_t k = 0; k < part->n; k++)
        if (part->access[k].buf == buf && part->access[k].written)
            return true;
    return false;
}

/* Bytes that part n reads of what those before it have made, to whom it then belongs. */
static int64_t handed_on(const Func *f, Run *r, uint32_t n)
{
    int64_t bytes = 0;
    r->of[n] = n;
    for (uint32_t i = 0; i < r->part[n].n; i++) {
        const Access *x = &r->part[n].access[i];
        bool made = false;
        for (uint32_t j = 0; j < n && !x->written; j++) {
            if (!writes(&r->part[j], x->buf))
                continue;
            made = true;
            uint32_t old = r->of[j];
            for (uint32_t k = 0; k <= n; k++)
                r->of[k] = r->of[k] == old ? r->of[n] : r->of[k];
        }
        bytes += made ? f->buf.at[x->buf].bytes : 0;
    }
    return bytes;
}

/* The product that group o is; NULL: it is none. */
static const Step *product_of(Func *f, uint32_t o)
{
    const Group *k = &f->group.at[f->order.at[o]];
    const Node *n = k->kind == G_CALL ? &f->g->node.at[k->member.at[0].node] : NULL;
    if (!n || !cg_is_product(f, n) || shape_elements(&val(f->g, n->out[0])->shape) == 0)
        return NULL;
    Step *s = arena_new_of(f->scratch, Step);
    s->result = NONE;
    cg_product(f, n, s);
    return s;
}

/* From group o on, over this batch; as far as something of what the first part made is handed on:
   what has nothing to do with it would only hold its own buffers at the same time. */
static void follow(const Look *x, uint32_t o, Run *r)
{
    const Func *f = x->f;
    r->n = 0;
    r->bytes = 0;
    for (uint32_t n = 0; n < RUN_MOST && o + n < f->order.n; n++) {
        const Step *made = x->product[o + n];
        const Nest *inner = f->group.at[f->order.at[o + n]].nest;
        r->part[n] = (Part){0};
        if (!(made    ? product(x, made, &r->batch, &r->part[n])
              : inner ? nest(x, inner, &r->batch, &r->part[n])
                      : false) ||
            !joins(f, &r->batch, r->part, n + 1))
            return;
        int64_t bytes = handed_on(f, r, n);
        if (bytes > 0 && r->of[n] == r->of[0]) {
            r->n = n + 1;
            r->bytes += bytes;
        }
    }
}

/* The batch of the product that group o is. */
static bool batch_of(const Look *x, uint32_t o, Entries *b)
{
    const Step *s = x->product[o];
    if (!s || s->product->nb == 0 || s->product->nb > ENTRY_DIMS)
        return false;
    b->nd = s->product->nb;
    memcpy(b->count, s->product->count, sizeof *b->count * (size_t)b->nd);
    return true;
}

static bool pays(const Func *f, const Run *r)
{
    int64_t entries = 1;
    for (int d = 0; d < r->batch.nd; d++)
        entries *= lin_at(r->batch.count[d], f->g->batch);
    return r->n > 1 && entries > 1 && r->bytes >= ENTRIES_FROM && r->bytes / entries <= ENTRY_MOST;
}

static void keep(Func *f, uint32_t o, const Run *r)
{
    Entries *b = arena_new_of(f->a, Entries);
    *b = r->batch;
    for (uint32_t i = 0; i < r->n; i++) {
        Group *k = &f->group.at[f->order.at[o + i]];
        Entry *e = arena_new_of(f->a, Entry);
        Lin (*apart)[ENTRY_DIMS] = arena_calloc(f->a, r->part[i].n, sizeof *apart);
        for (uint32_t j = 0; j < r->part[i].n; j++)
            memcpy(apart[j], r->part[i].access[j].apart, sizeof *apart);
        *e = (Entry){r->part[i].nest, apart, i == 0, i + 1 == r->n};
        k->entry = e;
        k->entries = b;
    }
}

/* The batch of the longest run from group o on. */
static bool longest(const Look *x, uint32_t o, Entries *batch)
{
    Run best = {.n = 0}, r;
    if (!batch_of(x, o, &r.batch))
        return false;
    /* a product behind it may have the batch in more dimensions */
    for (uint32_t i = o; i < x->f->order.n && i < o + RUN_MOST; i++) {
        if (!batch_of(x, i, &r.batch))
            continue;
        follow(x, o, &r);
        if (r.n > best.n)
            best = r;
    }
    *batch = best.batch;
    return pays(x->f, &best);
}

void cg_entries(Func *f)
{
    const Step **product = arena_array(f->scratch, const Step *, f->order.n + 1);
    for (uint32_t o = 0; o < f->order.n; o++)
        product[o] = product_of(f, o);
    for (uint32_t o = 0; o < f->order.n; o++) {
        Arena *trial = arena_within(f->scratch);
        Run r;
        if (longest(&(Look){f, product, trial}, o, &r.batch)) {
            follow(&(Look){f, product, f->a}, o, &r);
            keep(f, o, &r);
            o += r.n - 1;
        }
        arena_free(trial);
    }
}

bool cg_goes_on(const Func *f, uint32_t o)
{
    const Group *k = &f->group.at[f->order.at[o]];
    return cg_has_then(f, o) || (k->entry && !k->entry->last);
}
