/*
 * loss.c - the loss as nodes of the graph.  In: the option's text and the model's outputs.  Out: a scalar, the sum
 * over the microbatch times the input loss_scale, which the runtime sets so that the microbatches' losses add up to
 * the loss of the whole minibatch, mean or sum, whatever the chunks.  PyTorch's semantics.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "autodiff.h"

enum { IGNORE = -100 };             /* PyTorch's ignore_index */

static const char *const kinds[] = {"mse", "l1", "cross_entropy", "nll", "bce_with_logits", "output", "model"};
enum { MSE, L1, CROSS_ENTROPY, NLL, BCE, OUTPUT, MODEL, KINDS };

static int kind_of(const char *text, size_t n)
{
    for (int k = 0; k < KINDS; k++)
        if (strlen(kinds[k]) == n && memcmp(kinds[k], text, n) == 0)
            return k;
    return KINDS;
}

static _Noreturn void bad_option(Graph *g, const char *text)
{
    const char *word = arena_strndup(g->arena, text, strcspn(text, ":"));
    const char *near = nearest_name(word, kinds, KINDS);
    if (near && strcmp(near, word) != 0)
        diag_hint("did you mean '%s'?", near);
    diag_hint("one of mse, l1, cross_entropy[:AXIS], nll[:AXIS], bce_with_logits, output:NAME, model:FILE.onnx");
    diag_fatal(EXIT_USAGE, WHERE_NONE, "--loss '%s' is no loss", text);
}

/* What the loss compares with the target: the model's first output of a float type. */
static ValueId prediction(Graph *g)
{
    for (uint32_t i = 0; i < g->output.n; i++)
        if (dtype_is_float(val(g, g->output.at[i])->dtype))
            return g->output.at[i];
    diag_fatal(EXIT_MODEL, WHERE_FILE(g->file), "no output of a float type to compute a loss of");
}

static void refuse_taken(Graph *g)
{
    if (strmap_get(&g->by_name, "target") != NONE) {
        diag_hint("rename the model's own value, or let the model compute its loss: --loss output:NAME");
        diag_fatal(EXIT_MODEL, WHERE_FILE(g->file), "--loss adds an input 'target', but the model has a value of that name");
    }
}

static ValueId make_target(Graph *g, Dtype t, const Shape *s)
{
    refuse_taken(g);
    return graph_input(g, "target", t, s);
}

static ValueId make_scale(Graph *g, Dtype t)
{
    Shape scalar = {0};
    return graph_input(g, strmap_get(&g->by_name, "loss_scale") == NONE ? "loss_scale" : NULL, t, &scalar);
}

static ValueId to_scalar(Graph *g, ValueId x) { return g_sum_to(g, x, &(Shape){0}); }

/* The sum of minus the log-probability of each target's class.  The class is picked by comparison with 0, 1, ..: no
   class is -100, so ignored targets add nothing and get no gradient, and all of it is one row kernel. */
static ValueId pick_classes(Graph *g, ValueId log_p, int axis, ValueId target)
{
    Shape s = val(g, log_p)->shape, column = s;
    column.d[axis] = 1;
    ValueId number = g_iota(g, DT_I32, s.rank, axis, s.d[axis]);
    ValueId wanted = g_reshape(g, g_cast(g, target, DT_I32), &column);
    ValueId picked = g_where(g, g_binary(g, OP_Equal, number, wanted), log_p, g_like(g, log_p, 0));
    int64_t axes[1] = {axis};
    return g_neg(g, to_scalar(g, g_reduce(g, OP_ReduceSum, picked, 1, axes)));
}

static int class_axis(Graph *g, const char *text, const char *axis, int rank)
{
    long a = -1;
    if (axis) {
        char *end;
        errno = 0;
        a = strtol(axis, &end, 10);
        if (*axis == '\0' || *end || errno)
            diag_fatal(EXIT_USAGE, WHERE_NONE, "--loss '%s': '%s' is no axis", text, axis);
    }
    if (a < -rank || a >= rank)
        diag_fatal(EXIT_USAGE, WHERE_FILE(g->file), "--loss '%s': the output has %d dimensions, no axis %ld", text, rank, a);
    return (int)(a < 0 ? a + rank : a);
}

/* Classes: the target is the output's shape without the class axis, of i64. */
static ValueId class_loss(Graph *g, Loss *l, const char *text, const char *axis_text, bool logits)
{
    ValueId x = prediction(g);
    Shape s = val(g, x)->shape, t = {0};
    int axis = class_axis(g, text, axis_text, s.rank);
    if (s.rank == 0)
        diag_fatal(EXIT_MODEL, WHERE_FILE(g->file), "--loss '%s' of an output without dimensions", text);
    for (int i = 0; i < s.rank; i++)
        if (i != axis)
            t.d[t.rank++] = s.d[i];
    l->target = make_target(g, DT_I64, &t);
    l->scale = LOSS_MEAN_TARGETS;
    l->ignore = IGNORE;
    l->classes = s.d[axis];
    return pick_classes(g, logits ? g_log_softmax(g, x, axis) : x, axis, l->target);
}

static ValueId element_loss(Graph *g, Loss *l, int kind)
{
    ValueId x = prediction(g);
    Shape s = val(g, x)->shape;
    int64_t n = shape_elements(&s), rows = g->batch > 0 ? g->batch : 1;
    if (n % rows != 0)
        diag_fatal(EXIT_MODEL, WHERE_FILE(g->file), "the output %s has no dimension of the %lld rows of a microbatch",
                   shape_print(g->arena, val(g, x)->dtype, &s), (long long)rows);
    l->target = make_target(g, val(g, x)->dtype, &s);
    l->scale = LOSS_MEAN_ELEMENTS;
    l->per_row = n / rows;
    ValueId d = kind == BCE ? NONE : g_sub(g, x, l->target), each;
    if (kind == MSE)
        each = g_mul(g, d, d);
    else if (kind == L1)
        each = g_unary(g, OP_Abs, d);
    else                            /* max(x, 0) - x t + log(1 + e^-|x|): softplus is the stable form of the outer two */
        each = g_sub(g, g_unary(g, OP_Softplus, x), g_mul(g, x, l->target));
    return to_scalar(g, each);
}

/* A scalar that a model computed as its own mean: weighted by its rows when the microbatches' are added. */
static ValueId own_loss(Graph *g, Loss *l, ValueId x, const char *what)
{
    const Value *v = val(g, x);
    if (!dtype_is_float(v->dtype) || shape_elements(&v->shape) != 1)
        diag_fatal(EXIT_MODEL, WHERE_FILE(g->file), "%s is %s, and no float scalar", what,
                   shape_print(g->arena, v->dtype, &v->shape));
    l->scale = LOSS_MEAN_ROWS;
    return g_reshape(g, x, &(Shape){0});
}

static ValueId output_loss(Graph *g, Loss *l, const char *name)
{
    for (uint32_t i = 0; i < g->output.n; i++)
        if (strcmp(g->output_name.at[i], name) == 0)
            return own_loss(g, l, g->output.at[i], arena_printf(g->arena, "the output '%s'", name));
    const char *near = nearest_name(name, g->output_name.at, g->output_name.n);
    if (near)
        diag_hint("did you mean '%s'?", near);
    diag_fatal(EXIT_USAGE, WHERE_FILE(g->file), "--loss output:%s: the model has no such output", name);
}

static ValueId model_loss(Graph *g, Loss *l, const char *path, const ImportOptions *import)
{
    refuse_taken(g);
    ValueId loss = import_loss_model(g, path, import, prediction(g), &l->target);
    return own_loss(g, l, loss, "the loss model's output");
}

Loss loss_append(Graph *g, const LossOptions *opt, const ImportOptions *import)
{
    Loss l = {.loss = NONE, .loss_scale = NONE, .target = NONE, .scale = LOSS_NONE};
    if (!opt->loss)
        return l;
    const char *colon = strchr(opt->loss, ':'), *rest = colon ? colon + 1 : NULL;
    int kind = kind_of(opt->loss, colon ? (size_t)(colon - opt->loss) : strlen(opt->loss));
    bool takes = kind == CROSS_ENTROPY || kind == NLL, needs = kind == OUTPUT || kind == MODEL;
    if (kind == KINDS || (rest && !takes && !needs) || (needs && (!rest || !*rest)))
        bad_option(g, opt->loss);

    Origin origin = {.name = "loss", .type = arena_strdup(g->arena, kinds[kind]), .scope = "", .index = NONE, .pipeline_stage = -1};
    vec_push(g->arena, &g->origin, origin);
    uint32_t before = g->cur_origin;
    g->cur_origin = g->origin.n - 1;
    l.text = opt->loss;
    ValueId sum = takes           ? class_loss(g, &l, opt->loss, rest, kind == CROSS_ENTROPY)
                  : kind == OUTPUT ? output_loss(g, &l, rest)
                  : kind == MODEL  ? model_loss(g, &l, rest, import)
                                   : element_loss(g, &l, kind);
    g->cur_origin = g->origin.n - 1;
    if (opt->sum)
        l.scale = LOSS_SUM;
    l.loss_scale = make_scale(g, val(g, sum)->dtype);
    l.loss = g_mul(g, sum, l.loss_scale);
    if (strmap_get(&g->by_name, "loss") == NONE)
        graph_rename(g, l.loss, "loss");
    g->cur_origin = before;
    return l;
}
