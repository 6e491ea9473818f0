/*
 * custom.c - an operation of the user's own: one call of the function that the table of --ops
 * names, with where its tensors are and how large.
 */
#include "target.h"

static void print_tensors(Out *o, const Step *s, const char *name, uint32_t from, uint32_t end)
{
    const Custom *c = s->custom;
    text_line(&o->text, "const PpCustomTensor %s[] = {", name);
    for (uint32_t k = from; k < end; k++)
        text_line(&o->text, "    {(void *)(%s), %d, %d, dim%u},", out_pointer(o, s, k),
                  (int)c->type[k], c->rank[k], k);
    text_line(&o->text, "};");
}

void print_custom(Out *o, const Step *s)
{
    const Custom *c = s->custom;
    const char *function =
        arena_printf(o->a, "%s%s", c->of->function, o->target->device ? "_cuda" : "");
    Text numbers = {.a = o->a};
    for (uint32_t k = 0; k < c->of->n_number; k++)
        text_item(&numbers, "%.17g", c->of->number[k]);
    o->context |= o->target->device;
    text_open(&o->text, "{");
    text_line(&o->text, "extern void %s(const PpCustom *);", function);
    for (uint32_t k = 0; k < s->arg.n; k++)
        text_line(&o->text, "const int64_t dim%u[] = {%s};", k, /* an array has one at least */
                  c->rank[k] ? out_lins(o, c->size[k], c->rank[k]) : "1");
    print_tensors(o, s, "in", 0, c->of->nin);
    print_tensors(o, s, "out", c->of->nin, s->arg.n);
    if (c->of->n_number)
        text_line(&o->text, "const double number[] = {%s};", text_all(&numbers));
    text_line(&o->text, "const PpCustom call = {%u, %u, %u, in, out, %s, %s};", c->of->nin,
              c->of->nout, c->of->n_number, c->of->n_number ? "number" : "NULL",
              o->target->device ? "c->stream" : "NULL");
    text_line(&o->text, "%s(&call);", function);
    text_close(&o->text);
}
