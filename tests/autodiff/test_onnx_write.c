/*
 * test_onnx_write.c - stageN.onnx and stageN.backward.onnx say in standard operators what the
 * stage's lists say in core nodes.  For every case of vjp_cases.h, as a model of one stage whose
 * float inputs are parameters: both files are written, read back by the importer and evaluated;
 * outputs, stash and gradients must be those of the lists. With ONNX_KEEP=DIR the files stay there,
 * with the inputs and the expected values as .npy, for another runtime to check.
 */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file/npy.h"
#include "oracle/oracle.h"
#include "tap.h"
#include "vjp_cases.h"

typedef struct {
    T *t;
    Pipe *p;
    Tensor *at;
    const char *dir, *keep;
    char name[64];
    double worst;
    uint32_t compared;
} Check;

static Pipe *one_stage(T *t, ValueId loss_scale)
{
    Graph *g = t->g;
    Pipe *p = arena_new_of(g->arena, Pipe);
    p->graph = g;
    p->loss = t->loss;
    p->loss_scale = loss_scale;
    p->target = NONE;
    Stage s = {.index = 0};
    for (NodeId n = 0; n < g->node.n; n++)
        vec_push(g->arena, &s.forward, n);
    for (uint32_t i = 0; i < g->input.n; i++)
        if (g->input.at[i] != loss_scale) {
            StageInput in = {.value = g->input.at[i], .from = NONE};
            vec_push(g->arena, &s.input, in);
        }
    for (uint32_t i = 0; i < g->param.n; i++) {
        ParamUse u = {.param = i};
        vec_push(g->arena, &s.param, u);
    }
    for (uint32_t i = 0; i < t->y.n; i++) {
        bool seen = false;
        for (uint32_t j = 0; j < i; j++)
            seen |= t->y.at[j] == t->y.at[i];
        StageOutput o = {.value = t->y.at[i]};
        if (!seen && val(g, o.value)->kind == V_NODE)
            vec_push(g->arena, &s.output, o);
    }
    vec_push(g->arena, &p->stage, s);
    batch_analyse(g, 0, NULL, NULL);
    return p;
}

static void keep_file(Check *c, const char *what, const char *name, const Tensor *t)
{
    char path[512], err[256], flat[256];
    if (!c->keep)
        return;
    snprintf(flat, sizeof flat, "%s", name);
    for (char *s = flat; *s; s++)
        if (*s == '/')
            *s = '!';
    snprintf(path, sizeof path, "%s/%s.%s.%s.npy", c->keep, c->name, what, flat);
    if (npy_write(path, (int)t->dtype, t->shape.rank, t->shape.d, t->data, err, sizeof err) != 0)
        printf("# %s\n", err);
}

static double number(const Tensor *t, int64_t i)
{
    switch (t->dtype) {
    case DT_F32: return (double)((const float *)t->data)[i];
    case DT_F64: return ((const double *)t->data)[i];
    case DT_I64: return (double)((const int64_t *)t->data)[i];
    case DT_I32: return (double)((const int32_t *)t->data)[i];
    default: return (double)((const uint8_t *)t->data)[i];
    }
}

static void compare(Check *c, const char *name, const Tensor *got, const Tensor *want)
{
    bool fits = got->data && got->dtype == want->dtype && shape_equal(&got->shape, &want->shape);
    int64_t n = shape_elements(&want->shape);
    for (int64_t i = 0; i < n && fits; i++) {
        double a = number(got, i), b = number(want, i), e = fabs(a - b) / (1 + fabs(b));
        c->worst = e > c->worst || isnan(e) ? e : c->worst;
    }
    if (!fits) {
        printf("# %s: %s is not there or of another type\n", c->name, name);
        c->worst = HUGE_VAL;
    }
    c->compared++;
}

/* A value of this file by its name in the stage's graph. */
static const Tensor *by_name(const Check *c, const char *name)
{
    const Graph *g = c->t->g;
    for (uint32_t i = 0; i < g->param.n; i++)
        if (strcmp(g->param.at[i].name, name) == 0)
            return &c->at[g->param.at[i].value];
    ValueId v = strmap_get(&g->by_name, name);
    return v == NONE ? NULL : &c->at[v];
}

/* The gradient of a parameter, as its contributions say. */
static Tensor gradient(const Check *c, const char *name)
{
    const Stage *s = &c->p->stage.at[0];
    const Graph *g = c->t->g;
    Tensor sum = {0};
    for (uint32_t i = 0; i < s->param.n; i++) {
        if (strcmp(g->param.at[s->param.at[i].param].name, name) != 0)
            continue;
        for (uint32_t j = 0; j < s->param.at[i].grads.n; j++) {
            ValueId d = s->param.at[i].grads.at[j];
            Tensor next = c->at[d];
            if (val(g, d)->kind == V_CONST) {
                next = (Tensor){val(g, d)->dtype, val(g, d)->shape, NULL};
                memcpy(&next.data, &val(g, d)->data, sizeof next.data);
            }
            Tensor in[2] = {sum, next}, out = {.dtype = next.dtype, .shape = next.shape};
            if (sum.data)
                eval_node(g->arena, OP_Add, 2, in, &(Attr){0}, 1, &out);
            sum = sum.data ? out : next;
        }
    }
    return sum;
}

/* Reads a file back, feeds its inputs, compares its outputs. */
static void read_back(Check *c, const char *path, const char *what)
{
    Arena *a = arena_new();
    ImportOptions opt = {.limits = limits_default()};
    Graph *g = import_models(a, 1, &path, &opt);
    Tensor *at = arena_array(a, Tensor, g->value.n);
    Ids list = {0};
    for (NodeId n = 0; n < g->node.n; n++)
        vec_push(a, &list, n);
    for (uint32_t i = 0; i < g->input.n; i++) {
        const Tensor *t = by_name(c, val(g, g->input.at[i])->name);
        if (t && t->data) {
            at[g->input.at[i]] = *t;
            keep_file(c, arena_printf(a, "%s.in", what), val(g, g->input.at[i])->name, t);
        } else {
            printf("# %s: the file's input %s is unknown\n", c->name, val(g, g->input.at[i])->name);
        }
    }
    for (uint32_t i = 0; i < g->param.n; i++) {
        Param *p = &g->param.at[i];
        at[p->value] = (Tensor){p->dtype, p->shape, arena_alloc(a, param_size(p))};
        param_bytes(p, at[p->value].data);
    }
    oracle_nodes(g, a, list.at, list.n, at);
    for (uint32_t i = 0; i < g->output.n; i++) {
        const char *name = g->output_name.at[i];
        Tensor sum, *got = &at[g->output.at[i]];
        const Tensor *want = by_name(c, name);
        if (val(g, g->output.at[i])->kind == V_CONST) {
            *got = (Tensor){val(g, g->output.at[i])->dtype, val(g, g->output.at[i])->shape, NULL};
            memcpy(&got->data, &val(g, g->output.at[i])->data, sizeof got->data);
        }
        if (strncmp(name, "grad/", 5) == 0) {
            sum = gradient(c, name + 5);
            want = &sum;
        }
        INSIST(want && want->data);
        compare(c, name, got, want);
        keep_file(c, arena_printf(a, "%s.out", what), name, want);
    }
    arena_free(a);
}

static char *write_file(Check *c, bool backward)
{
    char *path = arena_printf(c->t->g->arena, "%s/%s.%s.onnx", c->dir, c->name,
                              backward ? "backward" : "forward");
    FILE *f = fopen(path, "wb");
    if (!f)
        diag_fatal(EXIT_IO, WHERE_FILE(path), "cannot be written");
    (backward ? onnx_write_backward : onnx_write_forward)(c->p, 0, NULL, NULL, f);
    fclose(f);
    return path;
}

static void run(Check *c)
{
    T *t = c->t;
    Graph *g = t->g;
    make_loss(t);
    ValueId scale = graph_input(g, "loss_scale", t->real, &(Shape){0});
    t->loss = g_mul(g, t->loss, scale);
    c->p = one_stage(t, scale);
    autodiff(c->p);
    const Stage *s = &c->p->stage.at[0];
    c->at = arena_array(g->arena, Tensor, g->value.n);
    for (uint32_t i = 0; i < t->n; i++)
        c->at[t->x[i]] = t->data[i];
    double half = 0.5;
    Tensor wide = {.dtype = DT_F64, .data = &half};
    c->at[scale] = (Tensor){.dtype = t->real};
    eval_node(g->arena, OP_Cast, 1, &wide, &(Attr){.to = t->real}, 1, &c->at[scale]);
    oracle_nodes(g, g->arena, s->forward.at, s->forward.n, c->at);
    oracle_nodes(g, g->arena, s->backward.at, s->backward.n, c->at);
    char *forward = write_file(c, false), *backward = write_file(c, true);
    read_back(c, forward, "forward");
    read_back(c, backward, "backward");
    if (!c->keep) {
        unlink(forward);
        unlink(backward);
    }
}

int main(void)
{
    char dir[] = "/tmp/ppsplit-onnx-XXXXXX";
    const char *keep = getenv("ONNX_KEEP");
    if (!keep && !mkdtemp(dir)) {
        ok(0, "a temporary folder");
        return tap_done();
    }
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena *a = arena_new();
        T t = {.g = graph_new(a, "test"),
               .seed = i,
               .op = cases[i].op,
               .lo = cases[i].lo,
               .hi = cases[i].hi,
               .real = DT_F32,
               .params = true};
        Check c = {.t = &t, .dir = keep ? keep : dir, .keep = keep};
        snprintf(c.name, sizeof c.name, "%u.%s", i, op_name(t.op));
        cases[i].build(&t);
        run(&c);
        ok(c.worst <= 2e-6 && c.compared > 0, "%s%s%s: %u values read back, off by %.1e",
           op_name(t.op), *cases[i].what ? ", " : "", cases[i].what, c.compared, c.worst);
        arena_free(a);
    }
    if (!keep)
        rmdir(dir);
    return tap_done();
}
