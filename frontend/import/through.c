/*
 * through.c - straight-through estimators of files that do not say what was detached (Bengio,
 * Leonard, Courville 2013).  In: an Add, as its operands are known.  Out: where no gradient passes.
 *
 * y - x.detach() + x and x + (y - x).detach() have the numbers of y and the gradient of x; without
 * the detach(), which TorchScript's exporter drops, the gradients of x cancel.  Where y has none (a
 * one-hot row of the largest, a rounded number), both say the same, and nothing else can be meant:
 * as it stands the sum is y and nothing trains by it.  Where y has one, it may be either, or
 * neither.
 */
#include "driver.h"

/* Values of the graph are there in order. */
bool import_carries(ImportState *s, ValueId v)
{
    Graph *g = s->g;
    for (ValueId k = s->carries.n; k <= v; k++) {
        const Value *x = val(g, k);
        bool any = x->kind == V_PARAM && g->param.at[x->param].trainable;
        if (x->kind == V_NODE && op_differentiable(g->node.at[x->node].op))
            for (uint32_t i = 0; i < g->node.at[x->node].nin; i++)
                any |= g->node.at[x->node].in[i] < k && s->carries.at[g->node.at[x->node].in[i]];
        vec_push(g->arena, &s->carries, any && dtype_is_float(x->dtype));
    }
    return s->carries.at[v];
}

/* The y of y - x. */
static ValueId minuend(const Graph *g, ValueId difference, ValueId x)
{
    const Node *n = graph_made_by(g, difference, OP_Sub);
    return n && n->in[1] == x ? n->in[0] : NONE;
}

void through_mark(ImportState *s, const RawNode *n, ValueId *in)
{
    for (int k = 0; k < 2; k++) {
        ValueId y = minuend(s->g, in[k], in[1 - k]);
        if (y == NONE || !import_carries(s, in[1 - k]))
            continue;
        if (import_carries(s, y)) {
            import_note(&s->untold, n);
            continue;
        }
        in[k] = import_stopped(s, in[k]);
        import_note(&s->through, n);
    }
}

void through_block(ImportState *s, const RawNode *n, ValueId out)
{
    bool stopped = n->stop_out && n->stop_out[0];
    if (stop_is_block(n) && out != NONE && !stopped && import_carries(s, out))
        import_note(&s->block, n);
}

static void report_blocks(const ImportState *s)
{
    const Onnx__GraphProto *g = s->m->graph;
    if (s->block.n == 0 || s->opt->stop.n ||
        metadata_get(g->n_metadata_props, g->metadata_props, "ppsplit.no_grad"))
        return;
    diag_hint("if it is no_grad(), name its results with --stop-gradient");
    diag_warn(WHERE_FILE(s->m->path),
              "%u node%s (first '%.128s') in a block of torch.no_grad() or autocast: the file does "
              "not say which, so the gradient passes",
              s->block.n, s->block.n == 1 ? "" : "s", diag_escape(s->m->arena, s->block.first));
}

void through_report(const ImportState *s)
{
    Where w = WHERE_FILE(s->m->path);
    report_blocks(s);
    if (s->through.n)
        diag_warn(w,
                  "sums (y - x) + x such as '%.128s', where y has no gradient, are taken for y - "
                  "x.detach() + x: the gradient goes to x",
                  diag_escape(s->m->arena, s->through.first));
    if (!s->untold.n || s->opt->stop.n)                   /* the user has thought of it */
        return;
    diag_hint("name the results of detach() with --stop-gradient, here and elsewhere");
    diag_warn(w,
              "the sum (y - x) + x '%.128s' may be a straight-through estimator; the file does not "
              "say whether its source calls detach(), so the gradient passes",
              diag_escape(s->m->arena, s->untold.first));
}
