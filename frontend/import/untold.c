/*
 * untold.c - what exporters do not write of training, and how it is taken.  In: nodes, as their
 * operands are known.  Out: where no gradient passes, who has it; and what is said of it.
 *
 * Straight-through estimators (Bengio, Leonard, Courville 2013): y - x.detach() + x and
 * x + (y - x).detach() have the numbers of y and the gradient of x; without the detach(), which
 * TorchScript's exporter drops, the gradients of x cancel.  Where y has none (a one-hot row of the
 * largest, a rounded number), both say the same, and nothing else can be meant: as it stands the
 * sum is y and nothing trains by it.  Where y has one, it may be either, or neither.
 *
 * Equal elements: torch.maximum and amax share the gradient; max(dim) gives it to the element at
 * the index that it returns; a clamp by a number has none at its bound.
 *
 * nn.Embedding(padding_idx) fills the row with zeros, and as it gets no gradient, no step changes
 * it.  TorchScript's exporter drops the argument.  A table that was drawn or trained has no row of
 * zeros, so where one row alone is zeros, it is that row.
 */
#include <string.h>

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

/* ---- detach() and no_grad() ---- */

/* The y of y - x. */
static ValueId minuend(const Graph *g, ValueId difference, ValueId x)
{
    const Node *n = graph_made_by(g, difference, OP_Sub);
    return n && n->in[1] == x ? n->in[0] : NONE;
}

void untold_sum(ImportState *s, const RawNode *n, ValueId *in)
{
    for (int k = 0; k < 2; k++) {
        ValueId y = minuend(s->g, in[k], in[1 - k]);
        if (y == NONE || !import_carries(s, in[1 - k]))
            continue;
        bool either = import_carries(s, y);
        import_note(s, either ? UNTOLD_SUM : UNTOLD_STRAIGHT, n);
        if (!either)
            in[k] = import_stopped(s, in[k]);
    }
}

void untold_block(ImportState *s, const RawNode *n, ValueId out)
{
    const Onnx__GraphProto *g = s->m->graph;
    bool stopped = n->stop_out && n->stop_out[0];
    if (stop_is_block(n) && out != NONE && !stopped && import_carries(s, out) &&
        !metadata_get(g->n_metadata_props, g->metadata_props, "ppsplit.no_grad"))
        import_note(s, UNTOLD_BLOCK, n);
}

/* ---- equal elements ---- */

static bool calls_one_of(const char *fx, const char *const *target, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strstr(fx, target[i]))
            return true;
    return false;
}

/* A clamp by numbers is written with tensors too, which its arguments say. */
bool im_shares_ties(const Import *im)
{
    static const char *const of_tensors[] = {"aten.maximum.default]", "aten.minimum.default]",
                                             "aten.max.other]",       "aten.min.other]",
                                             "aten.clamp.Tensor]",    "aten.clamp_min.Tensor]",
                                             "aten.clamp_max.Tensor]"};
    const char *fx = im->node->fx_node;
    return fx && calls_one_of(fx, of_tensors, sizeof of_tensors / sizeof *of_tensors) &&
           !strstr(fx, "%scalar_tensor");
}

/* Both results of max(dim): an ArgMax of the same operand along the same axis. */
static bool has_arg(const Import *im, int axis, int rank)
{
    const char *arg = im->op == OP_ReduceMax ? "ArgMax" : "ArgMin";
    const RawNodes *list = im->state->list;
    for (uint32_t i = 0; list && i < list->n; i++) {
        const RawNode *n = list->at[i];
        if (strcmp(n->op_type, arg) || n->nin != 1 || strcmp(n->in[0], im->node->in[0]))
            continue;
        int64_t at = raw_int(n, "axis", 0);
        if ((at < 0 ? at + rank : at) == axis)
            return true;
    }
    return false;
}

bool im_has_index(const Import *im, int axis)
{
    static const char *const of_dim[] = {"target=torch.ops.aten.max.dim]",
                                         "target=torch.ops.aten.min.dim]"};
    ImportState *s = im->state;
    const char *fx = im->node->fx_node;
    if (!im->training || fx || !s->m->from_pytorch)
        return im->training && fx && calls_one_of(fx, of_dim, 2);
    if (has_arg(im, axis, val(im->g, im->in[0])->shape.rank))
        return true;
    if (import_carries(s, im->in[0]))
        import_note(s, UNTOLD_TIES, im->node);
    return false;
}

/* ---- which row of an embedding is padding ---- */

/* The only row of zeros, or -1.  Of a row with other numbers only the first are read. */
static int64_t zero_row(const Param *p)
{
    int64_t rows = p->shape.d[0], found = -1;
    size_t each = p->bytes.length / (size_t)rows;
    for (int64_t r = 0; r < rows; r++) {
        const uint8_t *row = p->bytes.at + (size_t)r * each;
        if (row[0] || memcmp(row, row + 1, each - 1))
            continue;
        if (found >= 0)
            return -1;
        found = r;
    }
    return found;
}

/* Is it a table that trains, in which data choose rows? */
static bool is_embedding(const Import *im, const Param *p)
{
    int64_t *at, n;
    return p->trainable && !p->transposed && p->shape.rank == 2 && p->shape.d[0] > 2 &&
           p->shape.d[1] > 1 && p->bytes.at && !param_thawed(im->state->params, p->name) &&
           !g_const_ints(im->g, im->in[1], im->arena, &at, &n);
}

static int64_t untold_row(const Import *im)
{
    ImportState *s = im->state;
    const Recipe *made = im->node->made ? im->node->made[0] : NULL;
    bool turned;
    if (!s->m->from_pytorch || !made || !recipe_is_plain(made, &turned) || turned)
        return -1;
    const Param *p = &im->g->param.at[recipe_only_param(made)];
    if (!is_embedding(im, p))
        return -1;
    int64_t row = p->bytes.absent ? -1 : zero_row(p);
    if (p->bytes.absent)
        import_note_name(s, UNTOLD_ROWS, p->name);
    else if (row >= 0)
        import_note_name(s, UNTOLD_PADDING,
                         arena_printf(im->arena, "%s (row %lld)", p->name, (long long)row));
    return row;
}

int64_t im_padding_row(const Import *im)
{
    double row;
    if (!im->training)
        return -1;
    if (!im->node->fx_node)
        return untold_row(im);
    bool told = im_told(im, "aten.embedding.default", 2, "padding_idx", &row);
    return told && row >= 0 && row < 0x1p53 ? (int64_t)row : -1;
}

/* ---- what is said ---- */

/* settled: by an option that the user has thought of */
static const struct {
    const char *hint, *what;
    enum { NEVER, BY_STOPS, BY_DROPOUT } settled;
} words[UNTOLDS] = {
    [UNTOLD_BLOCK] = {"if it is no_grad(), name its results with --stop-gradient",
                      "nodes in a block of torch.no_grad() or autocast, the file does not say "
                      "which, so the gradient passes",
                      BY_STOPS},
    [UNTOLD_STRAIGHT] = {NULL,
                         "sums (y - x) + x, where y has no gradient, are taken for y - x.detach() "
                         "+ x, whose gradient goes to x",
                         NEVER},
    [UNTOLD_SUM] = {"name the results of detach() with --stop-gradient, here and elsewhere",
                    "sums (y - x) + x may be straight-through estimators; the file does not say "
                    "whether its source calls detach(), so the gradient passes",
                    BY_STOPS},
    [UNTOLD_DROPS] = {"--dropout=as-written turns them off",
                      "Dropouts without a training mode drop as the others do, as PyTorch's "
                      "exporters lose the mode of attention's dropout",
                      BY_DROPOUT},
    [UNTOLD_STAYS] = {"export in training mode, or turn dropout on with --dropout=train",
                      "Dropouts will not drop, as the file has no training mode", BY_DROPOUT},
    [UNTOLD_TIES] = {"if elements can be equal, export with dynamo=True, which records which one "
                     "it is",
                     "equal elements share the gradient of ReduceMax and ReduceMin, as in amax; if "
                     "the model calls max(dim), one of them should have it, but TorchScript's file "
                     "does not say so",
                     NEVER},
    [UNTOLD_PADDING] = {"export with dynamo=True, which records padding_idx; --train NAME: all "
                        "rows train",
                        "embeddings of TorchScript with one row of zeros, which is taken for "
                        "padding_idx and gets no gradient from there",
                        NEVER},
    [UNTOLD_ROWS] = {"export with dynamo=True, which records padding_idx",
                     "embeddings of TorchScript without weights, so it is not known whether one "
                     "row is padding_idx and all rows train",
                     NEVER},
};

void untold_report(const ImportState *s)
{
    for (int k = 0; k < UNTOLDS; k++)
        if (words[k].settled == NEVER ||
            (words[k].settled == BY_STOPS ? s->opt->stop.n == 0
                                          : s->opt->dropout == DROPOUT_OF_ATTENTION))
            param_say(s->m, words[k].hint, words[k].what, &s->untold[k]);
}
