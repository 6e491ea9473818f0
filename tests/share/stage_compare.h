/*
 * stage_compare.h - what a stage's function left in memory against what the evaluator has for it.
 * In: a value and where its elements stand.  Out: StageRun.wrong and the first difference; whether
 * rounding alone explains it, because terms cancel (run_noise) or a step of a function is decided
 * by it (run_tie).
 */
#ifndef STAGE_COMPARE_H
#define STAGE_COMPARE_H

#include "stage_eval.h"

static const char *run_func_name(const Func *f)
{
    static const char *const name[] = {"forward", "infer", "backward", "backward_input",
                                       "backward_weight"};
    return f->kind < F_AGAIN ? name[f->kind] : "again";
}

static bool run_printed(const Group *k)
{
    return k->kind != G_NONE && (k->kind != G_NEST || k->nest);
}

static double run_number(Dtype t, const void *p, int64_t i)
{
    switch (t) {
    case DT_F32: return (double)((const float *)p)[i];
    case DT_F64: return ((const double *)p)[i];
    case DT_F16:
    case DT_BF16: return element_double(t, p, i);
    case DT_I32: return (double)((const int32_t *)p)[i];
    case DT_I64: return (double)((const int64_t *)p)[i];
    default: return (double)((const uint8_t *)p)[i];
    }
}

static double run_largest(StageRun *r, ValueId v)
{
    Tensor t = run_operand(r, v);
    double largest = 0;
    for (int64_t i = 0; i < shape_elements(&t.shape); i++) {
        double x = fabs(run_number(t.dtype, t.data, i));
        largest = isfinite(x) && x > largest ? x : largest;
    }
    return largest;
}

/* How large a value would be if nothing cancelled in the sums that it comes from, with a
 * hundredth's allowance. */
static double run_noise(StageRun *r, ValueId v, int depth)
{
    const Value *x = val(r->g, v);
    const Node *n = x->kind == V_NODE ? &r->g->node.at[x->node] : NULL;
    double most = 0;
    if (!n || depth == 0)
        return 0;
    if (n->op == OP_ReduceSum || n->op == OP_ReduceMean) {
        Tensor term = run_operand(r, n->in[0]), result = run_operand(r, v);
        int64_t terms = shape_elements(&term.shape), results = shape_elements(&result.shape);
        most =
            0.01 * run_largest(r, n->in[0]) * sqrt((double)(terms / (results > 0 ? results : 1)));
    }
    bool linear = op_is_view(n->op) || n->op == OP_Add || n->op == OP_Sub || n->op == OP_Neg ||
                  n->op == OP_Concat;
    for (uint32_t i = 0; linear && i < n->nin; i++)
        most = fmax(most, fmax(0.01 * run_largest(r, n->in[i]), run_noise(r, n->in[i], depth - 1)));
    return most;
}

/* Element i of a value that broadcasts to shape s. */
static double run_broadcast(StageRun *r, ValueId v, const Shape *s, int64_t i)
{
    Tensor t = run_operand(r, v);
    int64_t at = 0, stride = 1;
    for (int d = s->rank - 1, e = t.shape.rank - 1; e >= 0; d--, e--) {
        at += t.shape.d[e] == 1 ? 0 : i % s->d[d] * stride;
        i /= s->d[d];
        stride *= t.shape.d[e];
    }
    return run_number(t.dtype, t.data, at);
}

static bool run_near(const StageRun *r, double a, double b)
{
    return (r->narrow || a != 0 || b != 0) &&
           fabs(a - b) <= (r->narrow ? 1e-4 : 1e-9) * (fabs(a) + fabs(b) + 0.1);
}

/* Along the axis of a choice (ArgMax, TopK) there are two numbers that only rounding tells apart.
 */
static bool run_close_call(StageRun *r, const Node *n)
{
    Tensor t = run_operand(r, n->in[0]);
    int64_t inner = 1, len = t.shape.d[n->attr.axis], all = shape_elements(&t.shape);
    for (int d = (int)n->attr.axis + 1; d < t.shape.rank; d++)
        inner *= t.shape.d[d];
    for (int64_t i = 0; i < all; i++)
        for (int64_t k = i / inner % len + 1, j = i + inner; k < len; k++, j += inner)
            if (run_near(r, run_number(t.dtype, t.data, i), run_number(t.dtype, t.data, j)))
                return true;
    return false;
}

/* Does rounding decide element i of what the node makes? */
static bool run_on_edge(StageRun *r, const Node *n, const Shape *s, int64_t i)
{
    double a = run_broadcast(r, n->in[0], s, i),
           b = n->nin > 1 ? run_broadcast(r, n->in[1], s, i) : 0;
    switch (n->op) {
    case OP_Equal:
    case OP_Less:
    case OP_LessOrEqual:
    case OP_Greater:
    case OP_GreaterOrEqual: return run_near(r, a, b);
    case OP_Mod: case OP_Fmod: return run_near(r, a, b * round(a / b));
    case OP_Floor: case OP_Ceil: return run_near(r, a, round(a));
    case OP_Cast: return !dtype_is_float(n->attr.to) && run_near(r, a, round(a));
    case OP_Round: return run_near(r, a, floor(a) + 0.5);
    default: return false;
    }
}

/* Is there a step of a function among what makes this value, up to `depth` nodes back, that only
   rounding decides?  Then either answer is right, and all that follows. */
static bool run_tie(StageRun *r, ValueId v, int depth)
{
    const Value *x = val(r->g, v);
    const Node *n = x->kind == V_NODE ? &r->g->node.at[x->node] : NULL;
    if (!n || depth == 0)
        return false;
    for (uint32_t i = 0; i < n->nin; i++)
        if (n->in[i] != NONE && n->op != OP_Count && run_tie(r, n->in[i], depth - 1))
            return true;
    if (n->nin == 0 || !dtype_is_float(val(r->g, n->in[0])->dtype))
        return false;
    if (n->op == OP_ArgMax || n->op == OP_ArgMin || n->op == OP_TopK)
        return run_close_call(r, n);
    bool edges = n->op == OP_Mod || n->op == OP_Fmod || n->op == OP_Floor || n->op == OP_Ceil ||
                 n->op == OP_Round || n->op == OP_Cast || (x->dtype == DT_BOOL && op_is_map(n->op));
    Shape s = run_shape(r, v);
    for (int64_t i = 0; edges && i < shape_elements(&s); i++)
        if (run_on_edge(r, n, &s, i))
            return true;
    return false;
}

/* The elements at `base` with these strides (in elements) against the evaluator's; `plus`: what was
 * there before they were added. */
static bool run_compare(StageRun *r, ValueId v, const char *base, const int64_t *stride,
                        const char *plus, const char *where)
{
    Tensor want = run_operand(r, v);
    const Value *x = val(r->g, v);
    int64_t n = shape_elements(&want.shape), bad = 0, first = 0;
    double scale = 0, most = 0, seen = 0, expected = 0;
    bool floats = dtype_is_float(want.dtype);
    for (int64_t i = 0; i < n; i++) {
        double a = fabs(run_number(want.dtype, want.data, i));
        scale = isfinite(a) && a > scale ? a : scale;
    }
    scale = fmax(scale, r->noise);
    if (floats)
        scale = fmax(scale, run_noise(r, v, 6));
    double least = r->least > 0 ? r->least : 1e-4;
    double limit =
        floats ? r->tolerance * (want.dtype == DT_F64 && !r->narrow ? 1e-6 : 1) * (scale + least)
               : 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, at = 0;
        for (int d = want.shape.rank - 1; d >= 0; d--) {
            at += rest % want.shape.d[d] * stride[d];
            rest /= want.shape.d[d];
        }
        double got = run_number(want.dtype, base, at), w = run_number(want.dtype, want.data, i);
        if (plus)
            w += run_number(want.dtype, plus, at);
        double e = fabs(got - w);
        if (got == w || (isnan(got) && isnan(w)))
            continue;
        if (!(e <= most))
            most = e;
        if (!(e <= limit) && bad++ == 0) {
            first = i;
            seen = got;
            expected = w;
        }
    }
    r->compared++;
    if (limit > 0 && !(most / limit <= r->worst))
        r->worst = most / limit;
    if (bad == 0)
        return true;
    if (r->wrong == 0) {
        r->tie = run_tie(r, v, 8);
        r->first_off = limit > 0 ? most / limit : (double)INFINITY;
    }
    const char *node = x->kind == V_NODE ? cg_node_text(r->g, x->node) : "";
    run_wrong(r,
              "stage %d %s: %s t%u %s %s (%s %s): %lld of %lld wrong, element %lld is %.9g, not "
              "%.9g (rows %lld)",
              r->cur->table->index, r->func ? run_func_name(r->func) : "", where, v,
              shape_print(r->a, x->dtype, &want.shape), x->name,
              x->kind == V_NODE ? op_name(r->g->node.at[x->node].op) : "", node, (long long)bad,
              (long long)n, (long long)first, seen, expected, (long long)r->rows);
    return false;
}

static char *run_address(const StageRun *r, const Ref *ref)
{
    const RunStage *s = r->cur;
    const Buffer *b = &r->func->buf.at[ref->buf];
    char *base = NULL;
    switch (b->cls) {
    case BUF_PARAM: base = s->block[BLOCK_PARAM].at + s->sg->params.at.at[b->index]; break;
    case BUF_GRAD: base = s->block[BLOCK_GRAD].at + cg_grad_at(s->sg, b->index); break;
    case BUF_STASH: base = s->block[BLOCK_STASH].at + s->sg->stash.at.at[b->index]; break;
    case BUF_SAVED: base = s->block[BLOCK_SAVED].at + s->sg->saved.at.at[b->index]; break;
    case BUF_WORK: base = s->block[BLOCK_WORK].at + b->offset; break;
    case BUF_IN: base = s->in[b->index].at; break;
    case BUF_OUT: base = s->out[b->index].at; break;
    case BUF_DY: base = s->dy[b->index].at; break;
    case BUF_DX: base = s->dx[b->index].at; break;
    default: BUG("no address in class %d", (int)b->cls);
    }
    return base + lin_at(ref->off, r->rows) * (int64_t)dtype_size(b->type);
}

static bool run_compare_ref(StageRun *r, ValueId v, const Ref *ref, const char *where)
{
    int64_t stride[MAX_RANK];
    for (int d = 0; d < ref->rank; d++)
        stride[d] = lin_at(ref->stride[d], r->rows);
    return run_compare(r, v, run_address(r, ref), stride, NULL, where);
}

/* After step `i` of the function: what its group put into memory. */
__attribute__((unused)) static void run_check_step(StageRun *r, uint32_t step)
{
    const Func *f = r->func;
    uint32_t at = 0, o = 0;
    for (; o < f->order.n; o++)
        if (run_printed(&f->group.at[f->order.at[o]]) && (o == 0 || !cg_has_then(f, o - 1)) &&
            at++ == step)
            break;
    /* of several groups the last result is there, and may be in its operand's place */
    while (cg_has_then(f, o))
        o++;
    uint32_t g = f->order.at[o];
    const Group *k = &f->group.at[g];
    for (uint32_t m = 0; m < k->member.n; m++) {
        const Node *n = &f->g->node.at[k->member.at[m].node];
        for (uint32_t i = 0; i < n->nout; i++) {
            ValueId v = n->out[i];
            if (v >= f->def.n || !f->needed[v] || f->group_of.at[v] != g || f->acc.at[v] ||
                f->def.at[v] != k->member.at[m].node)
                continue;
            Func *w = (Func *)(uintptr_t)f;
            const Ref *ref = cg_ref(w, v);
            if (ref->root != v || ref->buf == NONE)
                continue;
            char where[64];
            snprintf(where, sizeof where, "step %u of %u, %s", step, f->order.n,
                     k->kind == G_CALL ? "call" : "nest");
            run_compare_ref(r, v, ref, where);
        }
    }
}

#endif
