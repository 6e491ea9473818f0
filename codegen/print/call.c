/*
 * call.c - steps that are library calls: matrix products and convolutions.
 */
#include <inttypes.h>

#include "target.h"

/* "PP_BAND_A, -127, 0, "; on the device all of it is computed. */
static const char *band(const Out *o, const Product *p)
{
    static const char *const of[] = {"", "PP_BAND_A", "PP_BAND_B", "PP_BAND_C"};
    if (p->banded == BANDED_NONE || o->target->device)
        return "";
    return arena_printf(o->a, "%s, %" PRId64 ", %" PRId64 ", ", of[p->banded], p->band.below,
                        p->band.above);
}

/* Rows that the data choose: how many there are, then the product of these.  The device computes
   all of them, for its library takes sizes from the host: those that are not there are zeros. */
static void open_packed(Out *o, const Step *s, const Product *p)
{
    Lin side = p->packed == PACKED_M ? p->m : p->packed == PACKED_N ? p->n : p->k;
    text_line(&o->text, "{");
    o->text.indent++;
    text_line(&o->text, "const int64_t count = pp_count(%s, %s);", out_pointer(o, s, p->mask),
              out_lin(o, side));
}

static void close_packed(Out *o, const Product *p, const char *c)
{
    const char *size = arena_printf(o->a, "%zu", dtype_size(p->result)), *ld = out_lin(o, p->c.ld);
    if (p->packed == PACKED_M && !p->adds)
        text_line(&o->text, "pp_clear(%s, %s, count, %s, 0, %s, %s);", c, ld, out_lin(o, p->m),
                  out_lin(o, p->n), size);
    if (p->packed == PACKED_N && !p->adds)
        text_line(&o->text, "pp_clear(%s, %s, 0, %s, count, %s, %s);", c, ld, out_lin(o, p->m),
                  out_lin(o, p->n), size);
    o->text.indent--;
    text_line(&o->text, "}");
}

/* gemm(.., m, n, k, alpha, a, lda, b, ldb, beta, c, ldc), or gemm_bias(.., m, n, k, a, lda, b, ldb,
   bias, c, ldc) */
void print_product(Out *o, const Step *s)
{
    const Product *p = s->product;
    o->context |= *o->target->context != 0;
    bool packed = p->packed != PACKED_NONE && !o->target->device;
    const char *m = out_lin(o, p->m), *n = out_lin(o, p->n), *k = out_lin(o, p->k);
    const char *a = out_pointer(o, s, p->a.arg), *b = out_pointer(o, s, p->b.arg),
               *c = out_pointer(o, s, p->c.arg);
    const char *alpha = "", *before = "", *kind = "";
    if (p->biased) {
        before = arena_printf(o->a, "%s, ", out_pointer(o, s, p->bias));
        kind = "_bias";
    } else {
        alpha = arena_printf(o->a, "%s, ", cg_number(o->a, p->type, 1, 0));
        before = arena_printf(o->a, "%s, ", cg_number(o->a, p->type, p->adds, 0));
        kind = *band(o, p) ? "_band" : "";
    }
    const char *head =
        arena_printf(o->a, "%s%s%d, %d, %s, %s, %s, %s%s, %s, %s, %s, %s%s, %s", o->target->context,
                     band(o, p), p->transposed_a, p->transposed_b,
                     packed && p->packed == PACKED_M ? "count" : m,
                     packed && p->packed == PACKED_N ? "count" : n,
                     packed && p->packed == PACKED_K ? "count" : k, alpha, a, out_lin(o, p->a.ld), b,
                     out_lin(o, p->b.ld), before, c, out_lin(o, p->c.ld));
    const char *function =
        arena_printf(o->a, "%s%s%sgemm%s", o->target->call, type_library(p->type),
                     p->result == p->type ? "" : type_library(p->result), kind);
    if (packed)
        open_packed(o, s, p);
    if (p->nb == 0)
        text_line(&o->text, "%s(%s);", function, head);
    else
        o->target->batch(o, function, head, p);
    if (packed)
        close_packed(o, p, c);
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
