/*
 * attention.c - FlashAttention and its gradient as a step: where its matrices stand, as strides
 * over a batch that all of them share, and where its elements are in the random numbers of a
 * Dropout.
 */
#include "plan.h"

bool cg_is_attention(const Node *n)
{
    return n->op == OP_FlashAttention || n->op == OP_FlashAttentionGrad;
}

bool cg_is_attended(const Node *n, uint32_t i)
{
    const uint32_t others = n->op == OP_FlashAttentionGrad ? 6 : 3;
    return cg_is_attention(n) && i < others && i != 4;
}

/* The value at a side; NONE: there is none. */
static ValueId value_at(const Node *n, int side)
{
    const AttentionAttr *at = n->attr.attention;
    bool back = n->op == OP_FlashAttentionGrad;
    uint32_t others = back ? 6 : 3;
    switch (side) {
    case SIDE_Q:
    case SIDE_K:
    case SIDE_V: return n->in[side - SIDE_Q];
    case SIDE_Y:
    case SIDE_STATS: return back ? n->in[3 + side - SIDE_Y] : n->out[side - SIDE_Y];
    case SIDE_DY: return back ? n->in[5] : NONE;
    case SIDE_BIAS: return at->bias ? n->in[others] : NONE;
    case SIDE_MASK: return at->mask ? n->in[others + at->bias] : NONE;
    default: return back ? n->out[side - SIDE_DQ] : NONE;
    }
}

/* The stride of a dimension, the last but `back`; 0 where there is none, or one of 1. */
static bool stride_of(const Wide *w, int back, Lin *stride)
{
    int d = w->rank - 1 - back, parts = d < 0 ? 0 : w->first[d + 1] - w->first[d];
    *stride = parts == 1 ? w->stride[w->first[d]] : lin(0);
    return parts <= 1;
}

/* Dimension d of the scores: y's, with a column for each key. */
static Lin extent(const Func *f, const Node *n, int d)
{
    ValueId y = value_at(n, SIDE_Y), k = value_at(n, SIDE_K);
    bool last = d == val(f->g, y)->shape.rank - 1;
    return last ? cg_ext(f, k, val(f->g, k)->shape.rank - 1) : cg_ext(f, y, d);
}

/* Where v has a matrix for several of y's, dimensions have a part more, along which it stays. */
static bool stays(const Func *f, const Node *n, ValueId v, Wide *w)
{
    ValueId y = value_at(n, SIDE_Y);
    for (int d = w->rank - 3; d >= 0; d--) {
        Lin own = cg_ext(f, v, d), many;
        if (lin_is(own, 1) ||
            lin_eq(own, cg_ext(f, y, d + val(f->g, y)->shape.rank - w->rank)))
            continue;
        if (!lin_div(cg_ext(f, y, d + val(f->g, y)->shape.rank - w->rank), own, &many) ||
            w->n == WIDE_PARTS)
            return false;
        for (int i = w->n++; i > w->first[d + 1]; i--) {
            w->ext[i] = w->ext[i - 1];
            w->stride[i] = w->stride[i - 1];
        }
        w->ext[w->first[d + 1]] = many;
        w->stride[w->first[d + 1]] = lin(0);
        for (int e = d + 1; e <= w->rank; e++)
            w->first[e]++;
    }
    return true;
}

/* A dimension's part, the innermost so far, of rows and of elements. */
static void add_part(Wide *row, Wide *element, Lin ext, Lin of_rows, Lin of_elements)
{
    if (lin_is(ext, 1))
        return;
    row->ext[row->n] = element->ext[element->n] = ext;
    row->stride[row->n++] = of_rows;
    element->stride[element->n++] = of_elements;
}

/* The axis of the mesh along which dimension d is divided; MESH_AXES: it is not. */
static int mesh_of(const Chunks *p, int d)
{
    int x = 0;
    while (p && x < MESH_AXES && p->along[x].axis != d)
        x++;
    return p ? x : MESH_AXES;
}

/* Rows of the microbatch and elements of a row of the scores, as Dropout counts them: two operands
 * whose strides are these numbers.  Elements are those of the whole where the scores are a chunk:
 * dimension `axis` is `groups` runs, between which the other chunks' lie. */
static bool random_places(const Func *f, const Node *n, AttentionStep *t, Wide *row, Wide *element)
{
    const Value *v = val(f->g, value_at(n, SIDE_Y));
    int64_t rows = f->g->batch;
    bool batched = v->batch >= 0 && rows > 0 && v->shape.d[v->batch] % rows == 0;
    Lin step = lin(1), many = f->sg->fixed ? lin(rows) : (Lin){0, 1};
    Lin run[MAX_RANK], groups[MAX_RANK], apart[MAX_RANK], of[MAX_RANK];
    *row = *element = (Wide){.rank = v->shape.rank};
    for (int d = v->shape.rank - 1; d >= 0; d--) {
        const bool has_rows = batched && d == v->batch;
        const int x = mesh_of(t->chunk, d);
        const Chunk *part = x < MESH_AXES ? &t->chunk->along[x] : NULL;
        run[d] = extent(f, n, d);
        of[d] = step;
        groups[d] = lin(part ? part->groups / (has_rows ? rows : 1) : 1);
        if ((has_rows && !lin_div(run[d], many, &run[d])) || !lin_div(run[d], groups[d], &run[d]) ||
            !lin_mul(step, run[d], &step))
            return false;
        if (part)
            t->random_chunk[x] = step.c;
        apart[d] = step = lin_times(step, part ? part->chunks : 1);
        if (!lin_mul(step, groups[d], &step))
            return false;
    }
    for (int d = 0; d < v->shape.rank; d++) {
        row->first[d] = element->first[d] = row->n;
        if (batched && d == v->batch)
            add_part(row, element, many, lin(1), lin(0));
        add_part(row, element, groups[d], lin(0), apart[d]);
        add_part(row, element, run[d], lin(0), of[d]);
    }
    row->first[v->shape.rank] = element->first[v->shape.rank] = row->n;
    return true;
}

/* False: no common batch, or a row or column of several strides. */
static bool lay_out(Func *f, const Node *n, AttentionStep *t)
{
    Wide wide[SIDES + 2];
    const Wide *operand[SIDES + 2];
    int of[SIDES], operands = 0;
    Batches b;
    for (int i = 0; i < SIDES; i++) {
        ValueId v = value_at(n, i);
        Lin row, col;
        of[i] = -1;
        if (v == NONE)
            continue;
        if (!cg_wide(f, v, &wide[operands]) || !stays(f, n, v, &wide[operands]) ||
            !stride_of(&wide[operands], 1, &row) ||
            !stride_of(&wide[operands], 0, &col))
            return false;
        bool turned = i == SIDE_K || i == SIDE_DK; /* of the model's product: q k */
        t->side[i].row = turned ? col : row;
        t->side[i].col = turned ? row : col;
        of[i] = operands;
        operand[operands] = &wide[operands];
        operands++;
    }
    int random = operands;
    if (t->ratio > 0) {
        if (!random_places(f, n, t, &wide[random], &wide[random + 1]))
            return false;
        operand[operands] = &wide[random];
        operand[operands + 1] = &wide[random + 1];
        operands += 2;
    }
    if (!cg_batches(f, operand, operands, value_at(n, SIDE_Y), &b))
        return false;
    cg_batches_fold(&b, operands);
    if (b.n > ATTENTION_DIMS)
        return false;
    t->nb = b.n;
    for (int d = 0; d < b.n; d++) {
        t->count[d] = b.count[d];
        for (int i = 0; i < SIDES; i++)
            t->side[i].batch[d] = of[i] < 0 ? lin(0) : b.stride[of[i]][d];
        t->random_row[d] = t->ratio > 0 ? b.stride[random][d] : lin(0);
        t->random_element[d] = t->ratio > 0 ? b.stride[random + 1][d] : lin(0);
    }
    return true;
}

static AttentionStep begin(const Func *f, const Node *n)
{
    const AttentionAttr *at = n->attr.attention;
    return (AttentionStep){.attr = at,
                           .back = n->op == OP_FlashAttentionGrad,
                           .ratio = func_trains(f) ? at->ratio : 0,
                           .chunk =
                               at->step || (func_trains(f) && at->ratio > 0) ? n->attr.piece : NULL,
                           .room = NONE};
}

bool cg_attention_fits(Func *f, const Node *n)
{
    AttentionStep t = begin(f, n);
    return lay_out(f, n, &t);
}

bool cg_attention_reads(Func *f, const Node *n, uint32_t i)
{
    return f->sg->device || !cg_is_attended(n, i) || cg_product_reads(f, n->in[i]);
}

bool cg_attention_writes(const Func *f, const Node *n, const Ref *r)
{
    return f->sg->device || cg_product_stands(f, r, val(f->g, n->out[0])->dtype);
}

void cg_attention(Func *f, const Node *n, Step *s)
{
    AttentionStep *t = arena_new_of(f->a, AttentionStep);
    const Value *q = val(f->g, n->in[0]), *v = val(f->g, n->in[2]);
    int rank = val(f->g, value_at(n, SIDE_Y))->shape.rank;
    *t = begin(f, n);
    if (!lay_out(f, n, t))
        BUG("an attention whose operands have no batch in common");
    t->type = q->dtype;
    t->rows = extent(f, n, rank - 2);
    t->keys = extent(f, n, rank - 1);
    t->width = q->shape.d[q->shape.rank - 1];
    t->width_v = v->shape.d[v->shape.rank - 1];
    for (int i = 0; i < SIDES; i++) {
        ValueId x = value_at(n, i);
        t->side[i].arg = NONE;
        if (x == NONE || (!t->back && i == SIDE_STATS && !f->needed[x]))
            continue;
        bool written = t->back ? i >= SIDE_DQ : i == SIDE_Y || i == SIDE_STATS;
        t->side[i].arg = cg_step_arg(f, s, x, written);
    }
    if (n->nout > (t->back ? 3 : 2))
        t->room = cg_step_arg(f, s, n->out[n->nout - 1], true);
    t->bias_type = t->attr->bias ? val(f->g, value_at(n, SIDE_BIAS))->dtype : DT_F32;
    s->keyed = t->ratio > 0;
    s->key = s->keyed ? (uint32_t)t->attr->key : 0;
    s->attention = t;
}
