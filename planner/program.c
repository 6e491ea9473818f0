/*
 * program.c - from a Pipe to the tables that planning a rank needs.
 *
 * Stages are taken through all passes of codegen but printing; their tables are those that would be
 * printed.  A cut has its program from when it is asked for.
 */
#include <string.h>

#include "codegen/plan/plan.h"
#include "codegen/tables.h"
#include "search.h"

/* launches: NULL: not asked for */
static const PpStage *table_of(Pipe *p, uint32_t stage, bool device, const StageLaunches **launches,
                               Arena *a)
{
    Arena *scratch = arena_within(a);
    StageGen *sg = cg_stage(scratch, p, stage, device ? TARGET_CUDA : TARGET_C);
    if (device)
        cg_scratch(sg);
    const PpStage *table = cg_stage_table(sg, a);
    if (launches)
        *launches = cg_launches(sg, a);
    arena_free(scratch);
    return table;
}

const PpStage *program_stage(Pipe *model, uint32_t stage, bool device, Arena *a)
{
    return table_of(model, stage, device, NULL, a);
}

Program *program_of(Pipe *p, bool device, Arena *a)
{
    Program *out = arena_new_of(a, Program);
    const PpStage **list = arena_array(a, const PpStage *, p->stage.n + 1);
    if (device)
        out->launches = arena_array(a, const StageLaunches *, p->stage.n + 1);
    for (uint32_t i = 0; i < p->stage.n; i++)
        list[i] = table_of(p, i, device, device ? &out->launches[i] : NULL, a);
    out->plan = cg_program_table(p, NULL, a);
    if (p->totals) /* made on the host */
        out->plan.totals.stage = table_of(p->totals, 0, false, NULL, a);
    out->plan.stage = list;
    out->plan.device = device ? PP_CUDA : PP_CPU;
    return out;
}

/* ---- other rows ------------------------------------------------------------------------------ */

typedef struct {
    int64_t rows, was;
    Arena *a;
} Scale;

static int64_t scaled(const Scale *s, int64_t bytes)
{
    return (int64_t)((double)bytes * (double)s->rows / (double)s->was);
}

static void scale_tensor(const Scale *s, PpTensor *t)
{
    if (t->batch_dim >= 0)
        t->bytes = scaled(s, t->bytes);
}

static const PpTensor *scale_list(const Scale *s, const PpTensor *list, int n)
{
    PpTensor *own = arena_array(s->a, PpTensor, n + 1);
    for (int i = 0; i < n; i++) {
        own[i] = list[i];
        scale_tensor(s, &own[i]);
    }
    return own;
}

static void scale_stage(const Scale *s, PpStage *to)
{
    PpInput *in = arena_array(s->a, PpInput, to->n_input + 1);
    PpOutput *out = arena_array(s->a, PpOutput, to->n_output + 1);
    PpAgain *again = arena_array(s->a, PpAgain, to->n_again + 1);
    for (int i = 0; i < to->n_input; i++)
        in[i] = to->input[i], scale_tensor(s, &in[i].t);
    for (int i = 0; i < to->n_output; i++)
        out[i] = to->output[i], scale_tensor(s, &out[i].t);
    PpCollective *meet = arena_array(s->a, PpCollective, to->mesh.n_collective + 1);
    for (int i = 0; i < to->mesh.n_collective; i++) {
        meet[i] = to->mesh.collective[i];
        if (meet[i].part)
            meet[i].bytes = scaled(s, meet[i].bytes);
    }
    to->mesh.collective = meet;
    for (int i = 0; i < to->n_again; i++)
        again[i] = (PpAgain){.bytes = scaled(s, to->again[i].bytes),
                             .flops = scaled(s, to->again[i].flops)};
    to->input = in;
    to->output = out;
    to->again = again;
    to->bytes.stash = scaled(s, to->bytes.stash);
    to->bytes.saved = scaled(s, to->bytes.saved);
    for (int k = 0; k < PP_WORKS; k++)
        to->bytes.work[k] = scaled(s, to->bytes.work[k]);
    to->flops.forward = scaled(s, to->flops.forward);
    to->flops.input = scaled(s, to->flops.input);
    to->flops.weight = scaled(s, to->flops.weight);
    to->twice.quick = scaled(s, to->twice.quick);
    to->twice.functions = scaled(s, to->twice.functions);
    to->twice.bytes = scaled(s, to->twice.bytes);
}

Program *program_resized(const Program *p, int64_t rows, Arena *a)
{
    Program *out = arena_new_of(a, Program);
    int n = p->plan.n_stage;
    Scale s = {rows, p->plan.rows, a};
    const PpStage **list = arena_array(a, const PpStage *, n + 1);
    *out = *p;
    PpStage *stage = arena_array(a, PpStage, n + 1);
    for (int i = 0; i < n; i++) {
        stage[i] = *p->plan.stage[i];
        scale_stage(&s, &stage[i]);
        list[i] = &stage[i];
    }
    if (p->plan.totals.stage) {
        PpStage *totals = arena_new_of(a, PpStage);
        *totals = *p->plan.totals.stage;
        scale_stage(&s, totals);
        out->plan.totals.stage = totals;
    }
    out->plan.rows = rows;
    out->plan.stage = list;
    out->plan.input = scale_list(&s, p->plan.input, p->plan.n_input);
    out->plan.output = scale_list(&s, p->plan.output, p->plan.n_output);
    return out;
}

/* ---- of a cut -------------------------------------------------------------------------------- */

enum { COMPILED = 25 }; /* as much work as so many actions that are planned, for each node */

static Pipe *cut_pipe(Search *x, Cut *c, PlanSize size, Arena *scratch)
{
    const PlanOptions *o = x->o;
    x->effort += (uint64_t)COMPILED / 2 * split_search_cuts(c->of->most.own)->cut.nodes;
    c->points = split_search_points(c->of->most.own, c->found);
    return o->model.pipe(o->model.of, size, &c->of->mesh, &c->points, scratch);
}

static const Program *compiled(Search *x, Cut *c, PlanSize size)
{
    Arena *scratch = arena_new();
    const Program *p = program_of(cut_pipe(x, c, size, scratch), x->o->device, x->a);
    arena_free(scratch);
    x->effort += (uint64_t)COMPILED / 2 * split_search_cuts(c->of->most.own)->cut.nodes;
    return p;
}

/* Constants of which the program has one for each length. */
static void add_tables(Search *x, Cut *c, const Lengths *l, PlanSize size, PpStage *own)
{
    Arena *scratch = arena_new();
    PlanSize sample = size;
    Loss loss;
    memcpy(sample.length, l->at[0], sizeof sample.length);
    const PlanMesh *mesh = &c->of->mesh;
    if (lengths_tabulates(x->o->model.graph(x->o->model.of, size, mesh, &loss, scratch),
                          x->o->model.graph(x->o->model.of, sample, mesh, &loss, scratch))) {
        Pipe *p = cut_pipe(x, c, size, scratch), *q = cut_pipe(x, c, sample, scratch);
        const Target target = x->o->device ? TARGET_CUDA : TARGET_C;
        for (uint32_t i = 0; i < p->stage.n; i++)
            own[i].bytes.constants += lengths_tables(l, cg_stage(scratch, p, i, target),
                                                     cg_stage(scratch, q, i, target));
    }
    arena_free(scratch);
}

/* With the greatest length.  Where the program is made of samples that are longer, its constants
   are laid out for the longest of them. */
static const Program *compiled_most(Search *x, Cut *c, PlanSize size)
{
    const Program *p = compiled(x, c, size);
    const Lengths *l = c->of->members > 1 ? x->o->ranges : x->o->model.whole;
    int64_t most[SYMBOLS] = {0};
    cg_longest(l, false, most);
    cg_longest(l, true, size.length);
    if (l->symbols == 0)
        return p;
    const Program *longest = memcmp(most, size.length, (size_t)l->symbols * sizeof *most)
                                 ? compiled(x, c, size)
                                 : p;
    Program *out = arena_new_of(x->a, Program);
    PpStage *own = arena_array(x->a, PpStage, p->plan.n_stage);
    const PpStage **list = arena_array(x->a, const PpStage *, p->plan.n_stage);
    *out = *p;
    out->plan.stage = list;
    for (int i = 0; i < p->plan.n_stage; i++) {
        own[i] = *p->plan.stage[i];
        own[i].bytes.constants = longest->plan.stage[i]->bytes.constants;
        list[i] = &own[i];
    }
    add_tables(x, c, l, size, own);
    return out;
}

const Program *cut_program(Search *x, Cut *c)
{
    if (!c->program)
        c->program = compiled_most(x, c, c->of->most.size);
    return c->program;
}

const Program *cut_program_rows(Search *x, Cut *c, int64_t rows)
{
    if (rows == x->own_rows)
        return cut_program(x, c);
    if (c->exact_rows != rows)
        c->exact = compiled_most(x, c, (PlanSize){.rows = rows});
    c->exact_rows = rows;
    return c->exact;
}

const Program *cut_program_knot(Search *x, Cut *c, uint32_t k)
{
    if (!c->knot)
        c->knot = arena_array(x->a, const Program *, x->n_knot);
    if (!c->knot[k])
        c->knot[k] = compiled(x, c, x->knot[k]);
    return c->knot[k];
}

const PpStage *cut_largest(Search *x, Cut *c)
{
    uint32_t most = 0;
    if (c->largest)
        return c->largest;
    for (uint32_t s = 0; s < c->stages; s++)
        most = c->found->stage[s].stash > c->found->stage[most].stash ? s : most;
    Arena *scratch = arena_new();
    c->largest = c->program ? c->program->plan.stage[most]
                            : program_stage(cut_pipe(x, c, c->of->most.size, scratch), most,
                                            x->o->device, x->a);
    arena_free(scratch);
    return c->largest;
}
