/*
 * then.c - nests that follow a convolution in the caches: its bias, its activation, the sum with a
 * residual.  In: groups in order with their nests.  Out: Group.image of such nests.
 *
 * A nest that comes right behind a convolution, reads its result element by element and is the only
 * one that does, may be run on any part of it, as soon as that part is complete.  The nest is then
 * laid over the samples, channels and elements of the images, of which a target's library asks for
 * parts (pp_conv_forward_then in pp.h); a target that cannot, runs the nest as it was.  What a
 * point computes stays as it is, and so do the bits.
 */
#include <string.h>

#include "plan.h"

enum { IMAGE_DIMS = 3 };            /* samples, channels, elements */

/* By buffer: how often groups read it. */
static uint32_t *count_readers(Func *f)
{
    uint32_t *n = arena_array(f->scratch, uint32_t, f->buf.n + 1);
    for (uint32_t o = 0; o < f->order.n; o++) {
        const Accesses *all = cg_accesses(f, o);
        for (uint32_t i = 0; i < all->n; i++)
            n[all->at[i].buf] += !all->at[i].written;
    }
    return n;
}

/* Which of the nest's dimensions is dimension t of the images, and one step along it in steps of
   that dimension; from: -1 where an image has no such extent. */
typedef struct { int from[IMAGE_DIMS]; int64_t step[IMAGE_DIMS]; } Cut;

/* From the innermost on, a dimension of the nest is one of the images, or several of them. */
static bool cut_dims(const Nest *n, const Lin *ext, Cut *c)
{
    int d = n->nd - 1;
    Lin left = d >= 0 ? n->ext[d] : lin(1);
    int64_t step = 1;
    for (int t = IMAGE_DIMS - 1; t >= 0; t--) {
        c->from[t] = -1;
        c->step[t] = step;
        if (lin_is(ext[t], 1))
            continue;
        c->from[t] = d;
        if (d >= 0 && lin_eq(left, ext[t])) {
            d--;
            left = d >= 0 ? n->ext[d] : lin(1);
            step = 1;
        } else if (d >= 0 && ext[t].b == 0 && lin_div(left, ext[t], &left)) {
            step *= ext[t].c;
        } else {
            return false;
        }
    }
    return d < 0;
}

static void lay_over_images(const Cut *c, Lin *stride)
{
    Lin out[IMAGE_DIMS];
    for (int t = 0; t < IMAGE_DIMS; t++)
        out[t] = c->from[t] < 0 ? lin(0) : lin_times(stride[c->from[t]], c->step[t]);
    memset(stride, 0, sizeof *stride * NEST_DIMS);
    memcpy(stride, out, sizeof out);
}

/* The nest over images of these extents; NULL: it is none. */
static Nest *over_images(Func *f, const Nest *n, const Lin *ext)
{
    Cut c;
    if (!cut_dims(n, ext, &c))
        return NULL;
    Nest *image = nest_copy(f->a, n);
    for (uint32_t i = 0; i < n->stmt.n; i++)
        lay_over_images(&c, image->stmt.at[i].stride);
    memset(image->ext, 0, sizeof image->ext);
    memcpy(image->ext, ext, sizeof *ext * IMAGE_DIMS);
    image->nd = IMAGE_DIMS;
    image->nouter = IMAGE_DIMS - 1;
    image->in_parts = true;
    nest_mark_rows(image);
    nest_schedule(image);
    return image;
}

/* Does a part read what the convolution made of the same part, and is nothing asked of the rows? */
static bool keeps_to_parts(const Nest *n, const Ref *y, const Lin *ext)
{
    Lin stride[IMAGE_DIMS] = {lin_times(ext[2], ext[1].c), ext[2], lin(1)};
    bool reads = false;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        if (s->nindex || s->nguard || s->acc || s->base.b != 0)
            return false;
        for (int d = 0; d < IMAGE_DIMS; d++)
            if (s->stride[d].b != 0)
                return false;
        if ((s->kind != S_LOAD && s->kind != S_STORE) || n->arg.at[s->arg].buf != y->buf)
            continue;
        if (s->kind == S_STORE || !lin_eq(n->arg.at[s->arg].offset, y->off) ||
            !lin_is(s->base, 0))
            return false;
        for (int d = 0; d < IMAGE_DIMS; d++)
            if (!lin_is(ext[d], 1) && !lin_eq(s->stride[d], stride[d]))
                return false;
        reads = true;
    }
    return reads;
}

static Nest *follows(Func *f, const Group *call, const Group *next, const uint32_t *readers)
{
    const Node *conv = &f->g->node.at[call->member.at[0].node];
    const Nest *n = next->nest;
    if (call->kind != G_CALL || conv->op != OP_Conv || next->kind != G_NEST || !n ||
        n->kind != NEST_POINT || n->passes != 1 || nest_makes_nothing(n))
        return NULL;
    const Ref *y = cg_ref(f, conv->out[0]);
    const Buffer *b = &f->buf.at[y->buf];
    if (b->cls != BUF_WORK || b->value != conv->out[0] || readers[y->buf] != 1 || y->rank < 3 ||
        !cg_is_dense(y))
        return NULL;
    Lin ext[IMAGE_DIMS] = {y->ext[0], y->ext[1], lin(1)};
    for (int d = 2; d < y->rank; d++)
        if (!lin_mul(ext[2], y->ext[d], &ext[2]))
            return NULL;
    if (ext[1].b != 0 || ext[2].b != 0 || ext[1].c < 1 || ext[2].c < 1)
        return NULL;
    Nest *image = over_images(f, n, ext);
    return image && image->passes == 1 && keeps_to_parts(image, y, ext) ? image : NULL;
}

void cg_then(Func *f)
{
    const uint32_t *readers = count_readers(f);
    for (uint32_t o = 0; o + 1 < f->order.n; o++) {
        Group *next = &f->group.at[f->order.at[o + 1]];
        next->image = follows(f, &f->group.at[f->order.at[o]], next, readers);
    }
}

bool cg_has_then(const Func *f, uint32_t o)
{
    return o + 1 < f->order.n && f->group.at[f->order.at[o + 1]].image;
}
