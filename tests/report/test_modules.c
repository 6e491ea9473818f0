/*
 * test_modules.c - the boxes of a page: no more modules than there is room for, which have all nodes
 * and parameters of their stages, and what goes between stages is what the edges of the Pipe say.
 * And the page around them: names are escaped, none is a mark.
 */
#include <string.h>

#include "ppsplit.h"
#include "report/marks.h"
#include "report/modules.h"
#include "tap.h"

typedef struct {
    const char *model, *loss, *split, *multi_use;
    Arena *a;
    Pipe *p;
} Case;

static void build(void *of)
{
    Case *c = of;
    const char *path = arena_printf(c->a, "models/%s/model.onnx", c->model);
    ImportOptions import = {.limits = limits_default()};
    LossOptions loss = {.loss = c->loss};
    PartitionOptions partition = {0};
    vec_push(c->a, &partition.split, c->split);
    if (c->multi_use)
        vec_push(c->a, &partition.multi_use, c->multi_use);
    Graph *g = import_models(c->a, 1, &path, &import);
    Loss made = loss_append(g, &loss, &import);
    c->p = pipe_build(g, &partition, &made);
    autodiff(c->p);
    pipe_costs(c->p);
}

/* Bytes from each stage to each other, of activations and of what is shared. */
enum { STAGES = 8, KINDS = 2 };
typedef int64_t Traffic[STAGES][STAGES][KINDS];

static void boxes(Case c)
{
    c.a = arena_new();
    if (!ok(diag_run(build, &c) == 0, "%s: splits", c.model))
        return;
    ModuleGraph m = module_graph(c.p, c.a);
    Traffic said = {0}, is = {0};
    int64_t nodes[STAGES] = {0}, parameters[STAGES] = {0};
    bool same = true;
    for (uint32_t i = 0; i < m.box.n; i++) {
        nodes[m.box.at[i].stage] += m.box.at[i].nodes;
        parameters[m.box.at[i].stage] += m.box.at[i].parameters;
    }
    for (uint32_t t = 0; t < c.p->stage.n; t++)
        same &= nodes[t] == c.p->stage.at[t].forward.n &&
                parameters[t] == c.p->stage.at[t].cost.parameters;
    ok(m.box.n > 3 && m.box.n <= 30 && same, "%s: %u boxes, which have all of their stages", c.model,
       m.box.n);
    for (uint32_t i = 0; i < m.flow.n; i++)
        said[m.box.at[m.flow.at[i].from].stage][m.flow.at[i].stage][m.flow.at[i].shared] +=
            m.flow.at[i].bytes;
    /* of a shared parameter, which is copied, no edge tells: only what is sent is compared */
    for (uint32_t i = 0; i < c.p->edge.n; i++) {
        const Edge *e = &c.p->edge.at[i];
        is[e->from][e->to][e->kind != EDGE_ACTIVATION] += e->bytes;
    }
    same = true;
    for (int i = 0; i < STAGES * STAGES * KINDS; i++)
        same &= !(&is[0][0][0])[i] || (&is[0][0][0])[i] == (&said[0][0][0])[i];
    ok(same && c.p->edge.n > 0, "%s: what crosses is what edges say", c.model);
    arena_free(c.a);
}

static void *hostile(Arena *a, Case *c)
{
    c->a = a;
    if (diag_run(build, c))
        return NULL;
    c->p->model_name = "<b>" MARK_FACTS MARK_END ".onnx";
    c->p->stage.at[0].label = "<script>\"&";
    for (uint32_t i = 0; i < c->p->edge.n; i++)
        c->p->graph->value.at[c->p->edge.at[i].value].name = "<script>" MARK_END;
    return c->p;
}

static int times(const char *text, const char *what)
{
    int n = 0;
    while ((text = strstr(text, what)) != NULL)
        n++, text++;
    return n;
}

static void names(void)
{
    Arena *a = arena_new();
    Case c = {"doc-ts", "cross_entropy", "layers.1:begin", NULL, NULL, NULL};
    const Pipe *p = hostile(a, &c);
    const char *text = p ? report_program(p, a) : "";
    ok(!strstr(text, "<script") && !strstr(text, "<b>.onnx") &&
           strstr(text, "&lt;script&gt;&quot;"),
       "names are escaped");
    ok(times(text, MARK_FACTS) == 1 && times(text, MARK_RUNS_BEGIN) == 1 &&
           times(text, MARK_END) == 1,
       "and none is a mark");
    arena_free(a);
}

int main(void)
{
    boxes(
        (Case){"gpt-ts", "cross_entropy", "h.0.mlp:begin,h.1:begin,h.1.mlp:end", NULL, NULL, NULL});
    boxes((Case){"unet-ts", "mse", "d2:begin,mid:begin,u1:begin", NULL, NULL, NULL});
    boxes((Case){"encdec-ts", "cross_entropy", "encoder.1:begin,decoder.0:begin,decoder.1:begin",
                 "replicate", NULL, NULL});
    boxes((Case){"resnet-ts", "mse", "layer2:begin", NULL, NULL, NULL});
    names();
    return tap_done();
}
