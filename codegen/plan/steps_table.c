/*
 * steps_table.c - what each step of a stage's functions computes, for --profile.  In: the functions
 * with their steps.  Out: PpStage.steps: for each step the nodes of the model that it is of, and
 * whether it is F, I, W or, of the backward, both.
 */
#include "codegen/tables.h"

/* Names of the nodes behind a group, each once, a line each, behind those that are seen. */
static const char *nodes_of(const Func *f, const Group *k, Arena *a, Ids *had, const char *text)
{
    Ids seen = *had;
    for (uint32_t i = 0; i < k->member.n; i++) {
        uint32_t origin = f->g->node.at[k->member.at[i].node].origin;
        bool again = origin >= f->g->origin.n;
        for (uint32_t j = 0; j < seen.n; j++)
            again |= seen.at[j] == origin;
        if (again)
            continue;
        vec_push(a, &seen, origin);
        text = arena_printf(a, "%s%s%s", text, *text ? "\n" : "",
                            graph_origin_name(f->g, origin, a));
    }
    *had = seen;
    return text;
}

/* Of the backward W is what goes into gradients of parameters, in whatever function. */
static int part_of(const Func *f, const Step *s)
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

const PpSteps *cg_steps_table(const StageGen *sg, Arena *a)
{
    static const FuncKind kind[PP_TIMED] = {F_FORWARD, F_BACKWARD, F_INPUT, F_WEIGHT};
    PpSteps *list = arena_array(a, PpSteps, PP_TIMED);
    for (int t = 0; t < PP_TIMED; t++) {
        const Func *f = sg->func[kind[t]];
        PpStep *step = arena_array(a, PpStep, f ? f->step.n + 1 : 1);
        for (uint32_t i = 0; f && i < f->step.n; i++) {
            const Step *s = &f->step.at[i];
            Ids seen = {0};
            const char *text = nodes_of(f, &f->group.at[s->group], a, &seen, "");
            if (s->then)
                text = nodes_of(f, &f->group.at[s->then->group], a, &seen, text);
            for (uint32_t j = 1; j < s->inner.n; j++)
                text = nodes_of(f, &f->group.at[s->inner.at[j].group], a, &seen, text);
            step[i] = (PpStep){part_of(f, s), text};
        }
        list[t] = (PpSteps){f ? (int)f->step.n : 0, step};
    }
    return list;
}
