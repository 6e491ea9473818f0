/*
 * steps.c - a step as text: a comment with the model's nodes behind it, and a call.
 */
#include <string.h>

#include "codegen/tables.h"
#include "target.h"

/* "LayerNormalization /ln_1; Add /add": the model's nodes behind a group, each once; where there
 * are none, our operations. */
static const char *group_text(const Func *f, uint32_t group)
{
    enum { MOST = 4 };
    const Group *k = &f->group.at[group];
    Ids origin = {0};
    Text t = {.a = f->a};
    cg_origins(f, group, &origin);
    for (uint32_t i = 0; i < origin.n && i < MOST; i++) {
        const Origin *o = &f->g->origin.at[origin.at[i]];
        text_add(&t, "%s%s %s", i ? "; " : "", cg_comment(f->a, o->type ? o->type : ""),
                 cg_comment(f->a, o->name ? o->name : ""));
    }
    text_add(&t, "%s", origin.n > MOST ? "; .." : "");
    for (uint32_t i = 0; i < k->member.n && i <= MOST && !origin.n; i++) {
        const Node *n = &f->g->node.at[k->member.at[i].node];
        text_item(&t, "%s", i == MOST ? ".." : cg_is_copy(n) ? "copy" : op_name(n->op));
    }
    return text_all(&t);
}

static const char *step_text(const Out *o, const Step *s)
{
    const Value *y = s->result == NONE ? NULL : val(o->f->g, s->result);
    const char *nodes = group_text(o->f, s->group);
    if (s->then) {
        const char *then = group_text(o->f, s->then->group);
        bool said = strncmp(then, nodes, strlen(nodes)) == 0;
        nodes = said ? then : arena_printf(o->a, "%s; %s", nodes, then);
    }
    if (s->kind == STEP_COLLECTIVE) {
        const Node *n = &o->f->g->node.at[s->node];
        const char *what = s->collective->part == ENDS ? "the end of " : "";
        nodes = arena_printf(o->a, "%s%s, %s, of %s", what, op_name(n->op), node_placement(o->a, n),
                             nodes);
    }
    const char *of = s->kind == STEP_COLLECTIVE ? "" : title_direction(s);
    return arena_printf(o->a, "%s%s%s  %s", of, *of ? " of " : "", nodes,
                        y ? cg_shape(o->a, o->f->sg, y->dtype, &y->shape) : "");
}

static void print_kind(Out *o, const Step *s, const char *comment)
{
    switch (s->kind) {
    case STEP_NEST: o->target->nest(o, s, comment); break;
    case STEP_PRODUCT: print_product(o, s); break;
    case STEP_CONVOLUTION: print_convolution(o, s, comment); break;
    case STEP_ATTENTION: print_attention(o, s); break;
    case STEP_KERNEL: print_kernel(o, s); break;
    case STEP_COLLECTIVE: print_collective(o, s); break;
    case STEP_CUSTOM: print_custom(o, s); break;
    case STEP_LOOP: print_loop(o, s, comment); break;
    }
}

void print_step(Out *o, uint32_t i, uint32_t twin)
{
    const Step *s = &o->f->step.at[i], *t = twin == NONE ? NULL : &o->f->step.at[twin];
    cg_sizes_part(o->f->sg->sizes);
    if (o->f->sg->print.probe)
        text_line(&o->text, "%s", o->f->sg->print.probe);
    const char *comment = step_text(o, s);
    if (t)
        comment = text_pattern(o->a, comment, step_text(o, t));
    Text before = o->text;
    o->text = (Text){.a = o->a, .indent = before.indent};
    if (!s->empty)
        print_kind(o, s, comment);
    Text step = o->text;
    o->text = before;
    if (o->fresh.n && before.n && before.at[before.n - 2] != '{')
        text_add(&o->text, "\n");
    text_line(&o->text, "// %s", comment);
    out_fresh(o, &o->text);
    text_add(&o->text, "%s", text_all(&step));
}
