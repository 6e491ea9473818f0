/*
 * steps_table.c - what each step of a stage's functions computes, for --profile.  In: the functions
 * with their steps.  Out: PpStage.steps: for each step the nodes of the model that it is of, and
 * whether it is F, I, W or, of the backward, both.
 */
#include "codegen/tables.h"

void cg_origins(const Func *f, uint32_t group, Ids *to)
{
    const Group *k = &f->group.at[group];
    for (uint32_t i = 0; i < k->member.n; i++) {
        const uint32_t origin = f->g->node.at[k->member.at[i].node].origin;
        if (origin < f->g->origin.n)
            ids_add(f->a, to, origin);
    }
}

int cg_step_part(const Func *f, const Step *s)
{
    bool weight = false, input = false;
    if (f->kind == F_FORWARD)
        return 'F';
    for (uint32_t i = 0; i < s->arg.n; i++) {
        weight |= s->arg.at[i].written && s->arg.at[i].role == ROLE_DW;
        input |= s->arg.at[i].written && s->arg.at[i].role != ROLE_DW;
    }
    return !weight ? 'I' : input ? 'B' : 'W';
}

const char *cg_step_nodes(const Func *f, const Step *s, Arena *a)
{
    Ids origin = {0};
    Text names = {.a = a};
    cg_origins(f, s->group, &origin);
    if (s->then)
        cg_origins(f, s->then->group, &origin);
    for (uint32_t i = 0; i < origin.n; i++)
        text_add(&names, "%s%s", i ? "\n" : "", graph_origin_name(f->g, origin.at[i], a));
    return text_all(&names);
}

/* What members tell one another is told from what the same node computes. */
static const char *called(const Func *f, const Step *s, Arena *a)
{
    const char *nodes = cg_step_nodes(f, s, a);
    if (s->kind != STEP_COLLECTIVE)
        return nodes;
    const char *op = op_name(f->g->node.at[s->node].op), *when = "";
    when = s->collective->part == BEGINS ? ", begun" : s->collective->part == ENDS ? ", ended" : "";
    return arena_printf(a, "%s of %s%s", op, nodes, when);
}

const PpSteps *cg_steps_table(const StageGen *sg, Arena *a)
{
    static const FuncKind kind[PP_TIMED] = {F_FORWARD, F_BACKWARD, F_INPUT, F_WEIGHT};
    PpSteps *list = arena_array(a, PpSteps, PP_TIMED);
    for (int t = 0; t < PP_TIMED; t++) {
        const Func *f = sg->func[kind[t]];
        PpStep *step = arena_array(a, PpStep, f ? f->step.n + 1 : 1);
        for (uint32_t i = 0; f && i < f->step.n; i++) {
            const Step *s = &f->step.at[i];
            step[i] = (PpStep){cg_step_part(f, s), called(f, s, a)};
        }
        list[t] = (PpSteps){f ? (int)f->step.n : 0, step};
    }
    return list;
}
