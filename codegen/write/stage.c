/*
 * stage.c - one stage as a file of C or of CUDA C: kernels, functions, tables.
 */
#include <inttypes.h>

#include "codegen/print/target.h"

static void print_inline_consts(const StageGen *sg, Text *t)
{
    for (uint32_t i = 0; i < sg->konst.n; i++) {
        const StageConst *c = &sg->konst.at[i];
        const Value *v = val(sg->g, c->value);
        if (!c->inlined)
            continue;
        int64_t n = shape_elements(&v->shape);
        text_add(t, "// %s %s\nstatic const %s c%u[] = {", shape_print(sg->a, v->dtype, &v->shape), cg_comment(sg->a, v->name),
                 cg_ctype(v->dtype), i);
        for (int64_t j = 0; j < n; j++) {
            int64_t whole;
            double x = cg_element(v, j, &whole);
            text_add(t, "%s%s", j ? ", " : "", cg_number(sg->a, v->dtype, x, whole));
        }
        text_add(t, n ? "};\n\n" : "0};\n\n");
    }
}

static void print_kept(const StageGen *sg, const char *what, const Ids *list, const int64_t *at, int64_t total, Text *t)
{
    if (list->n == 0)
        return;
    text_add(t, "// %s: %" PRId64 " bytes a microbatch\n", what, total);
    for (uint32_t i = 0; i < list->n; i++) {
        const Value *v = val(sg->g, list->at[i]);
        text_add(t, "//   t%-6u %10" PRId64 " %10" PRId64 "  %s %s\n", list->at[i], at[i], (i + 1 < list->n ? at[i + 1] : total) - at[i],
                 shape_print(sg->a, v->dtype, &v->shape), cg_comment(sg->a, v->name));
    }
    text_add(t, "//\n");
}

void cg_stage_functions(StageGen *sg, Target target)
{
    sg->target = target;
    for (int k = 0; k < F_COUNT; k++)
        if (sg->func[k] && !sg->func[k]->body[target].at)
            cg_function_print(sg->func[k]);
}

void cg_stage_print(StageGen *sg, Target target, Text *t)
{
    const Stage *s = sg->stage;
    const TargetRow *row = target_row(target);
    const KernelList *k = &sg->kernels[target];
    cg_stage_functions(sg, target);
    text_add(t, "// stage%u.%s - stage %u of %u: %s\n// Written by ppsplit from the model's graph.  rows: the samples of this microbatch, at most %"
             PRId64 ".\n//\n", s->index, row->ending, s->index, sg->pipe->stage.n, cg_comment(sg->a, s->label ? s->label : ""), sg->g->batch);
    text_add(t, "// parameters: %" PRId64 " bytes, gradients: %" PRId64 ", constants: %" PRId64 ", workspace: %" PRId64 "\n//\n",
             sg->bytes_param, sg->bytes_grad, sg->bytes_const + (row->device ? sg->bytes_inlined : 0), cg_bytes_work(sg, target));
    print_kept(sg, "stash (forward writes, backward reads)", &sg->stash, sg->stash_at.at, sg->bytes_stash, t);
    print_kept(sg, "saved (I writes, W reads)", &sg->saved, sg->saved_at.at, sg->bytes_saved, t);
    text_add(t, "#include \"%s\"\n\n", row->header);
    if (!row->device)
        print_inline_consts(sg, t);
    text_add(t, "// ---- kernels ----\n\n%s", k->text.at ? k->text.at : "");
    text_add(t, "// ---- functions ----\n\n");
    for (int i = 0; i < F_COUNT; i++)
        if (sg->func[i])
            text_add(t, "%s", sg->func[i]->body[target].at);
    text_add(t, "// ---- tables ----\n\n");
    if (row->device)
        print_inline_consts(sg, t);
    cg_tables_print(sg, target, t);
}
