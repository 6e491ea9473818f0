/*
 * out.c - what the printers of steps share: names of pointers and arguments, kernels that are
 * printed once, launches.
 */
#include <inttypes.h>
#include <string.h>

#include "print.h"

/* The symbols of sizes: lengths, then rows. */
enum { ROWS = SYMBOLS, ALL_SYMBOLS };
static const char *symbol(int v) { return v == ROWS ? "rows" : cg_length_name[v]; }

void out_symbols(Text *t, const char *code, const char *context)
{
    for (int v = 0; v < ALL_SYMBOLS; v++)
        if (text_has(code, symbol(v)))
            text_line(t, "const int64_t %s = %s->%s;", symbol(v), context,
                      v == ROWS ? "rows" : arena_printf(t->a, "length.of[%d]", v));
}

/* Those that the kernel takes, before the rest of a list: "int length, int rows, ..". */
static const char *with_symbols(Arena *a, const KernelText *x, bool types, const char *rest)
{
    Text t = {.a = a};
    const char *type = !x->index                      ? ""
                       : types                        ? arena_printf(a, "%s ", x->index)
                       : strcmp(x->index, "int") == 0 ? "(int)"
                                                      : "";
    for (int v = 0; v < ALL_SYMBOLS && x->index; v++)
        if (text_has(x->body, symbol(v)))
            text_item(&t, "%s%s", type, symbol(v));
    if (*rest)
        text_item(&t, "%s", rest);
    return text_all(&t);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

const char *out_lin(const Out *o, Lin x) { return lin_text(o->a, o->f->sg, x); }

const char *out_lins(const Out *o, const Lin *x, int n)
{
    Text t = {.a = o->a};
    for (int i = 0; i < n; i++)
        text_item(&t, "%s", out_lin(o, x[i]));
    return text_all(&t);
}

void out_places(Text *t, const StageGen *sg, const char *type, const char *linear, int n,
                const char *const *name, const Lin *ext)
{
    Lin size = lin(1);
    for (int d = n - 1; d >= 0; size = lin_product(size, ext[d--])) {
        if (!name[d])
            continue;
        const char *by = lin_is(size, 1) ? ""
                                         : arena_printf(t->a, " / %s", lin_factor(t->a, sg, size)),
                   *of = d == 0 ? "" : arena_printf(t->a, " %% %s", lin_factor(t->a, sg, ext[d]));
        text_line(t, "const %s %s = %s%s%s;", type, name[d], linear, by, of);
    }
}

const char *out_parts(Arena *a, const StageGen *sg, int64_t n, int many)
{
    if (cg_varies(sg, n))
        return arena_printf(a, "((%s + %d) / %d)", cg_size(a, sg, n), many - 1, many);
    return arena_printf(a, "%" PRId64, (n + many - 1) / many);
}

/* ---- pointers -------------------------------------------------------------------------------- */

const char *out_straight(Out *o, uint32_t buf)
{
    if (!o->named[buf] && !place_in_source(o, buf))
        place_declare(o, buf, &o->fresh);
    o->reads |= !place_in_source(o, buf);
    o->named[buf] = true;
    return out_name(o->f, buf);
}

/* The field of the repeated sequence that is argument `arg` of the step in print. */
static const char *field(Out *o, uint32_t arg)
{
    const uint32_t i = out_field(o, arg);
    text_add(&o->fresh, "%s", o->declaration[i] ? o->declaration[i] : "");
    o->declaration[i] = NULL;
    return o->field[i];
}

const char *out_pointer(Out *o, const Step *s, uint32_t arg)
{
    const StepArg *x = &s->arg.at[arg];
    const char *name = o->repeat ? field(o, arg) : out_straight(o, x->buf);
    if (!lin_is(x->offset, 0))
        name = arena_printf(o->a, "%s + %s", name, out_lin(o, x->offset));
    return name;
}

void out_fresh(Out *o, Text *t)
{
    text_add(t, "%s", text_all(&o->fresh));
    o->fresh = (Text){.a = o->a, .indent = o->fresh.indent};
}

const char *out_arg(Out *o, const Step *s, ValueId v)
{
    for (uint32_t i = 0; i < s->arg.n; i++)
        if (s->arg.at[i].value == v)
            return out_pointer(o, s, i);
    BUG("value %u is no argument of the step", v);
}

const char *out_key(const Out *o, const Step *s)
{
    for (uint32_t i = 0; o->repeat && i < o->repeat->keyed.n; i++)
        if (o->repeat->keyed.at[i] == o->at)
            return arena_printf(o->a, "key%u[i]", i + 1);
    return arena_printf(o->a, "%uu", s->key);
}

void out_declare(Out *o, Text *t)
{
    const char *type = o->target->convolution;
    out_symbols(t, text_all(&o->text), "c");
    if (o->stream)
        text_line(t, "const cudaStream_t stream = (cudaStream_t)c->stream;");
    if (o->convolutions)
        text_line(t, "%s *const *conv = %s;", type,
                  o->f->sg->lengths      ? "convolutions(c)"
                  : o->target->cplusplus ? arena_printf(o->a, "(%s *const *)c->state", type)
                                         : "c->state");
}

Parameters out_parameters(Out *o, const Step *s, const char *const *name, const char *body)
{
    Parameters p = {{.a = o->a}, {.a = o->a}, {0}};
    for (uint32_t i = 0; i < s->nest->arg.n; i++) {
        const NestArg *x = &s->nest->arg.at[i];
        const char *only = o->target->device && !s->shared[i] ? "__restrict__ " : "";
        if (!text_has(body, name[i]))
            continue;
        text_item(&p.params, "%s%s *%s%s", x->written ? "" : "const ", cg_ctype(x->type), only,
                  name[i]);
        text_item(&p.args, "%s", out_pointer(o, s, i));
        vec_push(o->a, &p.named, i);
    }
    return p;
}

/* ---- kernels --------------------------------------------------------------------------------- */

void cg_kernels_print(StageGen *sg)
{
    KernelList *list = sg->print.kernels;
    list->text = (Text){.a = sg->a};
    for (uint32_t i = 0; i < list->all.n; i++) {
        const StageKernel *k = &list->all.at[i];
        Text t = {.a = sg->a};
        text_line(&t, "// %s", k->comment);
        text_add(&t, "%s", k->formula);
        text_line(&t, "%s %s(%s)", k->head, k->name, k->params);
        text_add(&t, "{\n%s}\n\n", k->body);
        text_lines(&list->text, argument_text(sg->a, k, text_all(&t)));
    }
}

/* What the comments of two callers have in common; where they differ in more than numbers the first
 * one stands for others, too: "Add /h.#/attn/proj/Add; ..  f32[16]". */
static const char *comment_of_both(Arena *a, const char *x, const char *y)
{
    const char *both = text_pattern(a, x, y), *shape = strstr(x, "  ");
    if (both != x || strcmp(x, y) == 0 || !shape || strstr(x, "; ..  "))
        return both;
    return arena_printf(a, "%.*s; ..%s", (int)(shape - x), x, shape);
}

/* head: up to the name.  A nest's text has names for its arguments once all of its callers are
 * known. */
static const char *kernel(Out *o, const Step *s, const KernelText *x, const char *head)
{
    StageGen *sg = o->f->sg;
    while (sg->loops.within)
        sg = sg->loops.within;
    KernelList *list = sg->print.kernels;
    const char *all = with_symbols(o->a, x, true, x->params), *params = *all ? all : "void";
    uint32_t *slot = strmap_at(&list->of, arena_printf(o->a, "%s|%s|%s", head, params, x->body));
    if (*slot == NONE) {
        *slot = list->all.n;
        const char *title = title_of(o, s), *name;
        uint32_t *next = strmap_at(&list->titles, title);
        do {
            *next = *next == NONE ? 1 : *next + 1;
            name = arena_printf(o->a, "%s_%u", title, *next);
        } while (names_has(sg, name));
        vec_push(sg->a, &list->all,
                 ((StageKernel){.name = name, .comment = x->comment, .formula = x->formula,
                                .head = head, .params = params, .body = x->body}));
    }
    StageKernel *k = &list->all.at[*slot];
    if (x->named) {
        k->comment = comment_of_both(o->a, k->comment, x->comment);
        argument_join(o, s, x->named, k);
    }
    return k->name;
}

const char *out_kernel(Out *o, const Step *s, const KernelText *x)
{
    return kernel(o, s, x, "static void");
}

void out_call(Out *o, const Step *s, const KernelText *x, const char *args)
{
    const char *name = out_kernel(o, s, x);
    text_line(&o->text, "%s(%s);", name, with_symbols(o->a, x, false, args));
}

void out_launch(Out *o, const Step *s, const KernelText *x, const Grid *g, const char *args)
{
    enum { LONGEST = 120 };
    const char *bounds = g->blocks ? arena_printf(o->a, "%d, %d", g->threads, g->blocks)
                                   : arena_printf(o->a, "%d", g->threads),
               *name = kernel(o, s, x,
                              arena_printf(o->a,
                                           "static __global__ void "
                                           "__launch_bounds__(%s)",
                                           bounds)),
               *head =
                   arena_printf(o->a, "PP_LAUNCH(%s, %s, %s, 0, stream,", name, g->grid, g->block);
    args = with_symbols(o->a, x, false, args);
    o->stream = true;
    if (strlen(head) + strlen(args) < LONGEST) {
        text_line(&o->text, "%s %s);", head, args);
        return;
    }
    text_line(&o->text, "%s", head);
    text_line(&o->text, "          %s);", args);
}
