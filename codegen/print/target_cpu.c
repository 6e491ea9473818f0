/*
 * target_cpu.c - C for the CPU: a nest is a function that is called, its rows in an OpenMP loop
 * (c.c), or, behind a convolution, one that the library calls for parts of the result.
 */
#include "print.h"

static void nest(Out *o, const Step *s, const char *comment)
{
    const Nest *n = nest_present(o->a, s->nest);
    const char **name = argument_names(o, s);
    Text body = {.a = o->a, .indent = 1};
    const char *formula = nest_print_c(o->a, n, name, &body);
    const Parameters p = out_parameters(o, s, name, text_all(&body));
    const KernelText kernel = {comment, formula, text_all(&p.params), text_all(&body), "int64_t",
                               &p.named};
    out_call(o, s, &kernel, text_all(&p.args));
}

/* The formula, for a library that knows it. */
static const char *after(Out *o, const Step *t, const After *a)
{
    const char *of = arena_printf(o->a, ".out = %s", out_pointer(o, t, a->out));
    of = a->bias != NONE
             ? arena_printf(o->a, "%s, .bias = %s", of, out_pointer(o, t, a->bias))
             : arena_printf(o->a, "%s, .plus = %s", of, cg_number(o->a, DT_F32, a->plus, 0));
    if (a->sum != NONE)
        of = arena_printf(o->a, "%s, .sum = %s", of, out_pointer(o, t, a->sum));
    const char *first = cg_number(o->a, DT_F32, a->swish ? a->scale : a->low, 0),
               *second = cg_number(o->a, DT_F32, a->swish ? a->shift : a->high, 0);
    return arena_printf(o->a, ", &(PpAfter){%s, .%s = %s, .%s = %s}", of,
                        a->swish ? "scale" : "low", first, a->swish ? "shift" : "high", second);
}

/* call_then(head, &(PpFollow){kernel, what it reads, what it writes, formula}) */
static void then(Out *o, const Step *s, const char *call, const char *head, const char *comment)
{
    const Step *t = s->then;
    const Nest *n = nest_present(o->a, s->image);
    const char **name = argument_names(o, t), *list[2] = {"", ""};
    uint32_t count[2] = {0, 0};
    Ids named = {0};
    Text body = {.a = o->a, .indent = 1};
    o->first_arg = THEN_ARGS;
    for (uint32_t i = 0; i < n->arg.n; i++) {
        const NestArg *x = &n->arg.at[i];
        vec_push(o->a, &named, i);
        text_line(&body, "%s%s *%s = %s[%u];", x->written ? "" : "const ", cg_ctype(x->type),
                  name[i], x->written ? "out" : "in", count[x->written]);
        list[x->written] = arena_printf(o->a, "%s%s%s", list[x->written],
                                        count[x->written]++ ? ", " : "", out_pointer(o, t, i));
    }
    const char *form = s->after ? after(o, t, s->after) : ", NULL";
    const char *formula = nest_print_c(o->a, n, name, &body);
    Text all = {.a = o->a, .indent = 1};
    out_symbols(&all, body.at, "of");
    text_add(&all, "%s", body.at);
    const KernelText kernel = {comment, formula,
                               "const PpPart *of, const void *const *in, void *const *out",
                               all.at, NULL, &named};
    const char *kernel_name = out_kernel(o, t, &kernel);
    o->first_arg = 0;
    text_line(&o->text,
              "%s_then(%s, &(PpFollow){%s, (const void *const[]){%s}, (void *const[]){%s}%s});",
              call, head, kernel_name, list[0], list[1], form);
}

const TargetRow target_cpu = {
    .ending = "c",
    .header = "pp_kernel.h",
    .table = "",
    .call = "pp_",
    .context = "",
    .convolution = "PpConv",
    .nest = nest,
    .then = then,
};
