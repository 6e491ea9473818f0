/*
 * program.c - what a program says of the model.  In: the Pipe.  Out: a PpPlan: inputs and outputs,
 * how microbatches meet in them, how the loss follows from the microbatches, what whole numbers may
 * be.
 */
#include <string.h>

#include "codegen/tables.h"

static const PpTensor *inputs(const Pipe *p, const Lengths *l, Arena *a, int *n)
{
    const Graph *g = p->graph;
    PpTensor *list = arena_array(a, PpTensor, g->input.n + 1);
    *n = 0;
    for (uint32_t i = 0; i < g->input.n; i++)
        if (g->input.at[i] != p->loss_scale)
            list[(*n)++] = cg_tensor(g, g->input.at[i], NULL, l, a);
    return list;
}

static const PpTensor *outputs(const Pipe *p, const Lengths *l, Arena *a)
{
    const Graph *g = p->graph;
    PpTensor *list = arena_array(a, PpTensor, g->output.n + 1);
    for (uint32_t i = 0; i < g->output.n; i++) {
        const char *name = i < g->output_name.n ? g->output_name.at[i] : NULL;
        list[i] = cg_tensor(g, g->output.at[i], name, l, a);
    }
    return list;
}

/* How microbatches meet in outputs; *why: why they do not, NULL where they do in all. */
static const int *merges(const Pipe *p, Arena *a, const char *const **why)
{
    static const int as[] = {[MERGE_LAST] = PP_MERGE_LAST,
                             [MERGE_SUM] = PP_MERGE_SUM,
                             [MERGE_MEAN] = PP_MERGE_MEAN,
                             [MERGE_ROWS] = PP_MERGE_LAST,
                             [MERGE_NONE] = PP_MERGE_NONE};
    int *how = arena_array(a, int, p->merge.n + 1);
    const char **text = arena_array(a, const char *, p->merge.n + 1);
    *why = NULL;
    for (uint32_t i = 0; i < p->merge.n; i++) {
        how[i] = as[p->merge.at[i].how];
        if (p->merge.at[i].how == MERGE_NONE) {
            text[i] = arena_strdup(a, p->merge.at[i].why);
            *why = text;
        }
    }
    return how;
}

static int loss_output(const Pipe *p)
{
    const Stage *s = &p->stage.at[p->stage.n - 1];
    for (uint32_t i = 0; p->loss != NONE && i < s->output.n; i++)
        if (s->output.at[i].value == p->loss)
            return (int)i;
    if (p->loss != NONE)
        BUG("the last stage does not put out the loss");
    return -1;
}

/* ---- indices --------------------------------------------------------------------------------- */

static IndexBounds bounds_of(const Pipe *p)
{
    const Graph *g = p->graph;
    Ids nodes = {0};
    for (uint32_t i = 0; i < p->stage.n; i++) {
        const Stage *s = &p->stage.at[i];
        for (uint32_t k = 0; k < s->forward.n + s->infer.n; k++)
            vec_push(g->arena, &nodes,
                     k < s->forward.n ? s->forward.at[k] : s->infer.at[k - s->forward.n]);
    }
    return index_bounds(g, g->arena, &nodes);
}

static PpIndex index_of(const Pipe *p, const IndexBound *b, const char *table)
{
    return (PpIndex){.input = cg_input_number(p, b->input),
                     .first = b->first,
                     .step = b->step,
                     .count = b->count,
                     .least = b->least,
                     .most = b->most,
                     .has_other = b->replaced,
                     .other = b->other,
                     .table = table,
                     .rows = b->rows};
}

static PpIndex classes_of(const Pipe *p)
{
    const Value *target = val(p->graph, p->target);
    IndexBound b = {.input = p->target,
                    .step = 1,
                    .count = shape_elements(&target->shape) /
                             (target->batch >= 0 ? p->graph->batch : 1),
                    .most = p->loss_classes - 1,
                    .replaced = true,
                    .other = p->loss_ignore,
                    .rows = p->loss_classes};
    return index_of(p, &b, NULL);
}

/* What integer inputs may hold: rows of the tables that they choose from, classes of the loss. */
static const PpIndex *indices(const Pipe *p, Arena *a, int *n)
{
    const Graph *g = p->graph;
    IndexBounds all = bounds_of(p);
    const Pipe *const others[] = {p->whole, p->totals};
    for (int k = 0; k < 2; k++) {
        IndexBounds more = others[k] ? bounds_of(others[k]) : (IndexBounds){0};
        for (uint32_t i = 0; i < more.n; i++)
            vec_push(g->arena, &all, more.at[i]);
    }
    PpIndex *list = arena_array(a, PpIndex, all.n + 1);
    *n = 0;
    for (uint32_t i = 0; i < all.n; i++) {
        const Value *of = val(g, all.at[i].table);
        const char *name = of->kind == V_PARAM ? g->param.at[of->param].name : of->name;
        list[(*n)++] = index_of(p, &all.at[i], arena_strdup(a, name));
    }
    if (p->loss_classes && p->target != NONE)
        list[(*n)++] = classes_of(p);
    return list;
}

/* ---- the program ----------------------------------------------------------------------------- */

static const char *text_or_none(Arena *a, const char *s) { return s ? arena_strdup(a, s) : NULL; }

static const PpTotal *totals(const Pipe *p, Arena *a)
{
    const Graph *g = p->graph;
    PpTotal *list = arena_array(a, PpTotal, g->total.n + 1);
    for (uint32_t i = 0; i < g->total.n; i++)
        list[i] = (PpTotal){.input = cg_input_number(p, g->total.at[i].input),
                            .mean = g->total.at[i].mean,
                            .level = g->total.at[i].level};
    return list;
}

static const char *const *split_of(const Pipe *p, Arena *a)
{
    const char **list = arena_array(a, const char *, p->split.n + 1);
    for (uint32_t i = 0; i < p->split.n; i++)
        list[i] = arena_strdup(a, p->split.at[i]);
    return list;
}

PpPlan cg_program_table(const Pipe *p, const Lengths *l, Arena *a)
{
    static const int kind[] = {PP_LOSS_NONE, PP_LOSS_SUM, PP_LOSS_MEAN_ELEMENTS,
                               PP_LOSS_MEAN_TARGETS, PP_LOSS_MEAN_ROWS};
    const Graph *g = p->graph;
    int loss = loss_output(p);
    PpPlan plan = {.model = arena_strdup(a, p->model_name ? p->model_name : ""),
                   .program.model_hash = g->files.hash,
                   .rows = g->batch > 0 ? g->batch : 1,
                   .uneven.ok = p->uneven.n == 0,
                   .uneven.why = text_or_none(a, p->uneven.n ? p->uneven.at[0] : NULL),
                   .n_stage = (int)p->stage.n,
                   .n_output = (int)g->output.n,
                   .n_param = (int)g->param.n,
                   .program.n_split = (int)p->split.n,
                   .program.split = split_of(p, a),
                   .output = outputs(p, l, a),
                   .loss.target_why = text_or_none(a, p->target_why),
                   .loss.why = text_or_none(a, p->loss_why),
                   .totals.n = p->totals ? (int)g->total.n : 0,
                   .totals.of = totals(p, a),
                   .loss.stage = loss < 0 ? -1 : (int)p->stage.n - 1,
                   .loss.output = loss,
                   .loss.kind = kind[p->loss == NONE ? 0 : p->scale],
                   .loss.ignore = p->loss_ignore,
                   .loss.target = p->target == NONE ? -1 : cg_input_number(p, p->target)};
    for (int x = 0; x < MESH_AXES; x++) {
        plan.members[x] = g->mesh[x].members;
        plan.chunks[x] = g->mesh[x].chunks;
    }
    if (p->whole) {
        plan.minibatch.rows = p->whole->graph->batch;
        plan.minibatch.why = text_or_none(a, p->uneven_loss.n ? p->uneven_loss.at[0] : NULL);
    }
    for (int v = 0; l && v < l->symbols; v++)
        plan.length[plan.n_length++] =
            (PpRange){l->symbol[v].name, l->symbol[v].least, l->symbol[v].most};
    plan.input = inputs(p, l, a, &plan.n_input);
    plan.output_merge = merges(p, a, &plan.output_why);
    plan.index = indices(p, a, &plan.n_index);
    return plan;
}
