/*
 * loss.c - the loss as nodes of the graph.  In: the option's text and the model's outputs.  Out: a
 * scalar, the sum over the microbatch times the input loss_scale, which the runtime sets so that
 * the microbatches' losses add up to the loss of the whole minibatch, mean or sum, whatever the
 * chunks.  PyTorch's semantics.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "autodiff.h"

enum { IGNORE = -100 };             /* PyTorch's ignore_index */

/* --loss NAME[:ARGUMENT] */
typedef struct {
    const char *text, *argument;                        /* NULL: none */
    const ImportOptions *import;
} Request;

/* What the loss compares with the target: the model's first output of a float type, as f32 where it
   is a half. */
static ValueId prediction(Graph *g)
{
    for (uint32_t i = 0; i < g->output.n; i++)
        if (dtype_is_float(val(g, g->output.at[i])->dtype))
            return g_cast(g, g->output.at[i], dtype_sum(val(g, g->output.at[i])->dtype));
    diag_fatal(EXIT_MODEL, WHERE_FILE(g->file),
               "the model has no floating-point output to compute a loss from");
}

static void refuse_taken(Graph *g)
{
    if (strmap_get(&g->by_name, "target") != NONE) {
        diag_hint(
            "rename the model's own value, or let the model compute its loss: --loss output:NAME");
        diag_fatal(EXIT_MODEL, WHERE_FILE(g->file),
                   "--loss adds an input 'target', but the model has a value of that name");
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
    return graph_input(g, strmap_get(&g->by_name, "loss_scale") == NONE ? "loss_scale" : NULL, t,
                       &scalar);
}

static ValueId to_scalar(Graph *g, ValueId x) { return g_sum_to(g, x, &(Shape){0}); }

/* The sum of minus the log-probability of each target's class.  The class is picked by comparison
   with 0, 1, ..: no class is -100, so ignored targets add nothing and get no gradient, and all of
   it is one row kernel. */
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

static int class_axis(Graph *g, const Request *q, int rank)
{
    const char *text = q->text, *axis = q->argument;
    long a = -1;
    if (axis) {
        char *end;
        errno = 0;
        a = strtol(axis, &end, 10);
        if (*axis == '\0' || *end || errno)
            diag_fatal(EXIT_USAGE, WHERE_NONE, "--loss '%s': '%s' is not an axis", text, axis);
    }
    if (a < -rank || a >= rank)
        diag_fatal(EXIT_USAGE, WHERE_FILE(g->file),
                   "--loss '%s': the output has %d dimensions and no axis %ld", text, rank, a);
    return (int)(a < 0 ? a + rank : a);
}

/* Classes: the target is the output's shape without the class axis, of i64. */
static ValueId make_classes(Graph *g, Loss *l, const Request *q, ValueId x, int *axis)
{
    Shape s = val(g, x)->shape, t = {0};
    *axis = class_axis(g, q, s.rank);
    if (s.rank == 0)
        diag_fatal(EXIT_MODEL, WHERE_FILE(g->file), "--loss '%s' of an output without dimensions",
                   q->text);
    for (int i = 0; i < s.rank; i++)
        if (i != *axis)
            t.d[t.rank++] = s.d[i];
    l->ignore = IGNORE;
    l->classes = s.d[*axis];
    return l->target = make_target(g, DT_I64, &t);
}

static ValueId cross_entropy(Graph *g, Loss *l, const Request *q)
{
    int axis;
    ValueId x = prediction(g), target = make_classes(g, l, q, x, &axis);
    return pick_classes(g, g_log_softmax(g, x, axis), axis, target);
}

static ValueId nll(Graph *g, Loss *l, const Request *q)
{
    int axis;
    ValueId x = prediction(g), target = make_classes(g, l, q, x, &axis);
    return pick_classes(g, x, axis, target);
}

/* Elements: the target is as the output. */
static ValueId make_elements(Graph *g, Loss *l, ValueId x)
{
    Shape s = val(g, x)->shape;
    int64_t rows = g->batch > 0 ? g->batch : 1;
    if (shape_elements(&s) % rows != 0) {
        diag_hint("if its rows are in another dimension of an input, --chunk INPUT=DIM says which");
        diag_fatal(EXIT_MODEL, WHERE_FILE(g->file),
                   "the output %s has no dimension of the %lld rows of a microbatch",
                   shape_print(g->arena, val(g, x)->dtype, &s), (long long)rows);
    }
    return l->target = make_target(g, val(g, x)->dtype, &s);
}

static ValueId mse(Graph *g, Loss *l, const Request *q)
{
    ValueId x = prediction(g), d = g_sub(g, x, make_elements(g, l, x));
    (void)q;
    return to_scalar(g, g_mul(g, d, d));
}

static ValueId l1(Graph *g, Loss *l, const Request *q)
{
    ValueId x = prediction(g), d = g_sub(g, x, make_elements(g, l, x));
    (void)q;
    return to_scalar(g, g_unary(g, OP_Abs, d));
}

/* max(x, 0) - x t + log(1 + e^-|x|): softplus is the stable form of the outer two. */
static ValueId bce_with_logits(Graph *g, Loss *l, const Request *q)
{
    ValueId x = prediction(g), target = make_elements(g, l, x);
    ValueId product = g_mul(g, x, target), outer = g_unary(g, OP_Softplus, x);
    (void)q;
    return to_scalar(g, g_sub(g, outer, product));
}

/* A scalar that a model computed as its own mean: weighted by its rows when the microbatches' are
 * added. */
static ValueId own_loss(Graph *g, ValueId x, const char *what)
{
    const Value *v = val(g, x);
    if (!dtype_is_float(v->dtype) || shape_elements(&v->shape) != 1)
        diag_fatal(EXIT_MODEL, WHERE_FILE(g->file), "%s is %s, not a floating-point scalar", what,
                   shape_print(g->arena, v->dtype, &v->shape));
    Dtype t = dtype_sum(v->dtype);
    return g_cast(g, g_reshape(g, x, &(Shape){0}), t);
}

static ValueId output(Graph *g, Loss *l, const Request *q)
{
    const char *name = q->argument;
    (void)l;
    for (uint32_t i = 0; i < g->output.n; i++)
        if (strcmp(g->output_name.at[i], name) == 0)
            return own_loss(g, g->output.at[i], arena_printf(g->arena, "the output '%s'", name));
    if (!diag_meant(name, g->output_name.at, g->output_name.n))
        diag_hint("'ppsplit ls MODEL.onnx' shows the outputs");
    diag_fatal(EXIT_USAGE, WHERE_FILE(g->file), "--loss output:%s: the model has no such output",
               name);
}

static ValueId model(Graph *g, Loss *l, const Request *q)
{
    refuse_taken(g);
    return own_loss(g, import_loss_model(g, q->argument, q->import, prediction(g), &l->target),
                    "the loss model's output");
}

/* ---- the registry ---------------------------------------------------------------------------- */

/* One row each: the option's name and argument, what of it is the minibatch's loss, and its nodes:
 * the sum over a microbatch. */
static const struct {
    const char *name, *argument;
    bool needed;                                        /* the argument */
    LossScale scale;
    ValueId (*build)(Graph *g, Loss *l, const Request *q);
} losses[] = {
    {"mse", NULL, false, LOSS_MEAN_ELEMENTS, mse},
    {"l1", NULL, false, LOSS_MEAN_ELEMENTS, l1},
    {"cross_entropy", "AXIS", false, LOSS_MEAN_TARGETS, cross_entropy},
    {"nll", "AXIS", false, LOSS_MEAN_TARGETS, nll},
    {"bce_with_logits", NULL, false, LOSS_MEAN_ELEMENTS, bce_with_logits},
    {"output", "NAME", true, LOSS_MEAN_ROWS, output},
    {"model", "FILE.onnx", true, LOSS_MEAN_ROWS, model},
};
enum { LOSSES = sizeof losses / sizeof *losses };

static _Noreturn void bad_option(Graph *g, const char *text, const char *word)
{
    const char *names[LOSSES], *list = "";
    for (int i = 0; i < LOSSES; i++) {
        const char *argument = losses[i].argument;
        names[i] = losses[i].name;
        list = arena_printf(g->arena,
                            argument && !losses[i].needed ? "%s%s%s[:%s]"
                            : argument                    ? "%s%s%s:%s"
                                                          : "%s%s%s",
                            list, i ? ", " : "", losses[i].name, argument);
    }
    const char *near = nearest_name(word, names, LOSSES);
    if (near && strcmp(near, word) != 0)
        diag_hint("did you mean '%s'?", near);
    diag_hint("one of %s", list);
    diag_fatal(EXIT_USAGE, WHERE_NONE, "--loss: unknown loss '%s'", text);
}

/* The row of NAME[:ARGUMENT]; q->argument is set. */
static int find_loss(Graph *g, Request *q)
{
    const char *colon = strchr(q->text, ':');
    const char *word =
        arena_strndup(g->arena, q->text, colon ? (size_t)(colon - q->text) : strlen(q->text));
    q->argument = colon ? colon + 1 : NULL;
    for (int i = 0; i < LOSSES; i++)
        if (strcmp(losses[i].name, word) == 0) {
            bool wanting = losses[i].needed && (!q->argument || !*q->argument),
                 more = q->argument && !losses[i].argument;
            if (wanting || more)
                break;
            return i;
        }
    bad_option(g, q->text, word);
}

Loss loss_append(Graph *g, const LossOptions *opt, const ImportOptions *import)
{
    Loss l = {.loss = NONE,
              .loss_scale = NONE,
              .target = NONE,
              .scale = LOSS_NONE,
              .origin = NONE};
    if (!opt->loss)
        return l;
    Request q = {.text = opt->loss, .import = import};
    int row = find_loss(g, &q);
    Origin origin = {
        .name = "loss", .type = losses[row].name, .scope = "", .index = NONE, .pipeline_stage = -1};
    vec_push(g->arena, &g->origin, origin);
    uint32_t before = g->cur_origin;
    g->cur_origin = g->origin.n - 1;
    l.text = opt->loss;
    l.whole = opt->whole;
    l.origin = losses[row].build == output ? NONE : g->cur_origin;
    l.scale = opt->sum ? LOSS_SUM : losses[row].scale;
    ValueId sum = losses[row].build(g, &l, &q);
    g->cur_origin = g->origin.n - 1;
    l.loss_scale = make_scale(g, val(g, sum)->dtype);
    l.loss = g_mul(g, sum, l.loss_scale);
    if (strmap_get(&g->by_name, "loss") == NONE)
        graph_rename(g, l.loss, "loss");
    g->cur_origin = before;
    return l;
}
