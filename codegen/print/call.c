/*
 * call.c - steps that are library calls: matrix products and convolutions.
 */
#include <inttypes.h>

#include "target.h"

/* Rows that the data choose: how many there are, then the product of these, and zeros where the
   others would be.  On the device the host has asked before (plan/count.c). */
static const char *open_packed(Out *o, const Step *s, const Product *p)
{
    Lin side = p->packed == PACKED_M ? p->m : p->packed == PACKED_N ? p->n : p->k;
    if (o->target->device)
        return arena_printf(o->a, "*%s", out_pointer(o, s, p->taken));
    text_open(&o->text, "{");
    text_line(&o->text, "const int64_t count = pp_count(%s, %s);", out_pointer(o, s, p->mask),
              out_lin(o, side));
    return "count";
}

static void close_packed(Out *o, const Product *p, const char *c, const char *count)
{
    const bool rows = p->packed == PACKED_M;
    const char *ld = out_lin(o, p->c.ld), *m = out_lin(o, p->m), *n = out_lin(o, p->n);
    if (p->packed != PACKED_K && !p->adds)
        text_line(&o->text, "%szeros(%s%s + %s%s%s, %s, %s%s%s, %s%s%s, %zu);", o->target->call,
                  o->target->context, c, count, rows ? " * " : "", rows ? ld : "", ld, m,
                  rows ? " - " : "", rows ? count : "", n, rows ? "" : " - ", rows ? "" : count,
                  dtype_size(p->result));
    if (!o->target->device)
        text_close(&o->text);
}

/* The host asks for the numbers of some masks at once. */
static void ask_counts(Out *o, const Step *s, const Product *p)
{
    text_line(&o->text, "{   // how many rows the data leave: the host waits for the device");
    o->text.indent++;
    text_line(&o->text, "const PpMask mask[] = {");
    for (uint32_t k = 0; k < p->n_known; k++)
        text_line(&o->text, "    {%s, %s},", out_pointer(o, s, p->known + 2 * k),
                  out_lin(o, p->length[k]));
    text_line(&o->text, "};");
    text_line(&o->text, "int64_t *const to[] = {");
    for (uint32_t k = 0; k < p->n_known; k++)
        text_line(&o->text, "    %s,", out_pointer(o, s, p->known + 2 * k + 1));
    text_line(&o->text, "};");
    text_line(&o->text, "%scounts(%s%u, mask, to);", o->target->call, o->target->context,
              p->n_known);
    text_close(&o->text);
}

/* A field of the call's PpGemm. */
static void field(const Out *o, Text *fields, const char *name, const char *value)
{
    text_item(fields, "%s%s = %s", o->target->cplusplus ? "g." : ".", name, value);
}

/* One that is 0 where it is not said. */
static void flag(const Out *o, Text *fields, const char *name, bool value)
{
    if (value)
        field(o, fields, name, "1");
}

/* From row to row, unless rows are dense: of so many elements.  Where the program of other sizes is
   to have the same text, always. */
static void distance(Out *o, Text *fields, const char *name, Lin ld, Lin dense)
{
    if (o->f->sg->lengths || !lin_eq(ld, dense))
        field(o, fields, name, out_lin(o, ld));
}

static void batch(Out *o, Text *fields, const Product *p)
{
    static const char *const name[] = {"count", "stride_a", "stride_b", "stride_c"};
    const Lin *const list[] = {p->count, p->a.stride, p->b.stride, p->c.stride};
    field(o, fields, "dims", arena_printf(o->a, "%d", p->nb));
    for (int i = 0; i < 4; i++) {
        const char *numbers = out_lins(o, list[i], p->nb);
        if (o->target->cplusplus) /* which has no array literals */
            text_line(&o->text, "const int64_t %s[] = {%s};", name[i], numbers);
        field(o, fields, name[i], o->target->cplusplus
                                      ? name[i]
                                      : arena_printf(o->a, "(const int64_t[]){%s}", numbers));
    }
}

/* gemm(&(PpGemm){.type = PP_F32, .m = rows, .n = 64, ..}) */
void print_product(Out *o, const Step *s)
{
    const Product *p = s->product;
    Text g = {.a = o->a};
    o->context |= *o->target->context != 0;
    const char *a = out_pointer(o, s, p->a.arg), *b = out_pointer(o, s, p->b.arg),
               *c = out_pointer(o, s, p->c.arg);
    if (p->n_known)
        ask_counts(o, s, p);
    const char *count = p->packed != PACKED_NONE ? open_packed(o, s, p) : NULL;
    if (o->target->cplusplus)
        text_open(&o->text, "{");
    field(o, &g, "type", type_runtime(p->type));
    if (p->result != p->type)
        field(o, &g, "result", type_runtime(p->result));
    flag(o, &g, "ta", p->transposed_a);
    flag(o, &g, "tb", p->transposed_b);
    field(o, &g, "m", p->packed == PACKED_M ? count : out_lin(o, p->m));
    field(o, &g, "n", p->packed == PACKED_N ? count : out_lin(o, p->n));
    field(o, &g, "k", p->packed == PACKED_K ? count : out_lin(o, p->k));
    field(o, &g, "a", a);
    distance(o, &g, "lda", p->a.ld, count ? lin(0) : p->transposed_a ? p->m : p->k);
    field(o, &g, "b", b);
    distance(o, &g, "ldb", p->b.ld, count ? lin(0) : p->transposed_b ? p->k : p->n);
    if (p->biased)
        field(o, &g, "bias", out_pointer(o, s, p->bias));
    flag(o, &g, "adds", p->adds);
    field(o, &g, "c", c);
    distance(o, &g, "ldc", p->c.ld, count ? lin(0) : p->n);
    if (p->nb)
        batch(o, &g, p);
    if (o->target->cplusplus) {
        text_line(&o->text, "PpGemm g = {};");
        text_line(&o->text, "%s;", text_all(&g));
        text_line(&o->text, "%sgemm(%s&g);", o->target->call, o->target->context);
        text_close(&o->text);
    } else {
        text_line(&o->text, "%sgemm(&(PpGemm){%s});", o->target->call, text_all(&g));
    }
    if (count)
        close_packed(o, p, c, count);
}

/* What follows, as a step of its own: its arguments are among the convolution's. */
static void print_then(Out *o, const Step *s, const char *comment)
{
    o->first_arg = THEN_ARGS;
    o->target->nest(o, s->then, comment);
    o->first_arg = 0;
}

void print_convolution(Out *o, const Step *s, const char *then)
{
    const Convolution *v = s->convolution;
    o->convolutions = true;
    const char *call = o->target->call, *context = o->target->context, *rows = out_lin(o, v->rows);
    const char *x = out_pointer(o, s, 0), *w = out_pointer(o, s, 1), *y = out_pointer(o, s, 2);
    if (v->op == OP_ConvWeightGrad)
        text_line(&o->text, "%sconv_backward_weight(%sconv[%u], %s, %s, %s, %s, %d);", call,
                  context, v->shape, rows, x, w, y, v->adds);
    else {
        const char *name = arena_printf(o->a, "%sconv_%s", call,
                                        v->op == OP_Conv ? "forward" : "backward_data"),
                   *head = arena_printf(o->a, "%sconv[%u], %s, %s, %s, %s", context, v->shape, rows,
                                        x, w, y);
        if (s->then && o->target->then) {
            o->target->then(o, s, name, head, then);
            return;
        }
        text_line(&o->text, "%s(%s);", name, head);
        if (s->then)
            print_then(o, s, then);
    }
}
