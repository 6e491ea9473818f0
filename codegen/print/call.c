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
    const char *clear = o->target->device ? "pp_cuda_zeros(c, " : "pp_clear(",
               *ld = out_lin(o, p->c.ld);
    size_t size = dtype_size(p->result);
    if (p->packed == PACKED_M && !p->adds)
        text_line(&o->text, "%s%s, %s, %s, %s, 0, %s, %zu);", clear, c, ld, count,
                  out_lin(o, p->m), out_lin(o, p->n), size);
    if (p->packed == PACKED_N && !p->adds)
        text_line(&o->text, "%s%s, %s, 0, %s, %s, %s, %zu);", clear, c, ld,
                  out_lin(o, p->m), count, out_lin(o, p->n), size);
    if (o->target->device)
        return;
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

/* Of several at once; head: the arguments up to them.  C++ has no array literals. */
static void print_batch(Out *o, const char *function, const char *head, const Product *p)
{
    text_line(&o->text, "{");
    text_line(&o->text,
              "    const int64_t batch[] = {%s}, stride_a[] = {%s}, stride_b[] = {%s}, "
              "stride_c[] = {%s};",
              out_lins(o, p->count, p->nb), out_lins(o, p->a.stride, p->nb),
              out_lins(o, p->b.stride, p->nb), out_lins(o, p->c.stride, p->nb));
    text_line(&o->text, "    %s_batched(%s, %d, batch, stride_a, stride_b, stride_c);", function,
              head, p->nb);
    text_line(&o->text, "}");
}

/* gemm(.., m, n, k, alpha, a, lda, b, ldb, beta, c, ldc), or gemm_bias(.., m, n, k, a, lda, b, ldb,
   bias, c, ldc), or gemm_bias_relu of the same */
void print_product(Out *o, const Step *s)
{
    const Product *p = s->product;
    o->context |= *o->target->context != 0;
    const char *a = out_pointer(o, s, p->a.arg), *b = out_pointer(o, s, p->b.arg),
               *c = out_pointer(o, s, p->c.arg);
    const char *alpha = "", *before = "", *kind = "";
    if (p->n_known)
        ask_counts(o, s, p);
    const char *count = p->packed != PACKED_NONE ? open_packed(o, s, p) : NULL;
    const char *m = p->packed == PACKED_M ? count : out_lin(o, p->m),
               *n = p->packed == PACKED_N ? count : out_lin(o, p->n),
               *k = p->packed == PACKED_K ? count : out_lin(o, p->k);
    if (p->biased) {
        before = arena_printf(o->a, "%s, ", out_pointer(o, s, p->bias));
        kind = p->relu ? "_bias_relu" : "_bias";
    } else {
        alpha = arena_printf(o->a, "%s, ", cg_number(o->a, p->type, 1, 0));
        before = arena_printf(o->a, "%s, ", cg_number(o->a, p->type, p->adds, 0));
    }
    const char *head =
        arena_printf(o->a, "%s%d, %d, %s, %s, %s, %s%s, %s, %s, %s, %s%s, %s", o->target->context,
                     p->transposed_a, p->transposed_b, m, n, k, alpha, a, out_lin(o, p->a.ld), b,
                     out_lin(o, p->b.ld), before, c, out_lin(o, p->c.ld));
    const char *function =
        arena_printf(o->a, "%s%s%sgemm%s", o->target->call, type_library(p->type),
                     p->result == p->type ? "" : type_library(p->result), kind);
    if (p->nb == 0)
        text_line(&o->text, "%s(%s);", function, head);
    else
        print_batch(o, function, head, p);
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
