/*
 * others.c - lengths that are no samples.  In: the model with samples, which are primes, and
 * neither few nor, most of them, many; and with others, as the least and such as many numbers
 * divide.  Out: nothing, or the model is refused: it is not what follows from the samples.  So it
 * is where it has a branch, a remainder or the lesser of two sizes.
 *
 * Numbers that are equal with one length alone, which no other shows, are found by how far they are
 * apart.
 *
 * Nodes are compared as texts (ir/dump.c), number by number: those of samples are a polynomial, on
 * which the other one has to lie.
 */
#include "lengths.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The next number of a text, or its next character. */
typedef struct {
    bool number;
    double v;
    const char *end;
} Part;

static Part part(const char *s)
{
    char *end = NULL;
    const bool number = isdigit((unsigned char)s[*s == '-']);
    const double v = number ? strtod(s, &end) : *s;
    return (Part){number, v, number ? end : s + (*s != 0)};
}

/* Do all samples and `own`, of other lengths, have a number of one polynomial there?  What samples
 * decide in any other way is not known. */
static bool goes_on(const Lengths *l, const Part *of, double own, const int64_t *length)
{
    int64_t whole[SAMPLES];
    Polynomial p;
    bool same = true, any = false;
    for (int k = 0; k < l->n; k++) {
        same &= of[k].v == of[0].v;
        any |= !(fabs(of[k].v) < 0x1p53) || of[k].v != floor(of[k].v);
        whole[k] = any ? 0 : (int64_t)of[k].v;
    }
    if (same || any || !cg_fit(l, whole, &p))
        return !same || own == of[0].v;
    return own == (double)cg_value(l, &p, length);
}

/* Is that what it is with these lengths, after what it is with those of the samples? */
static bool follows(const Lengths *l, const char *const *text, const char *own,
                    const int64_t *length)
{
    const char *at[SAMPLES];
    memcpy(at, text, (size_t)l->n * sizeof *at);
    while (*at[0]) {
        Part of[SAMPLES] = {{0}}, mine = part(own);
        for (int k = 0; k < l->n; k++) {
            of[k] = part(at[k]);
            at[k] = of[k].end;
            if (of[k].number != of[0].number || (!of[k].number && of[k].v != of[0].v))
                return true;
        }
        if (mine.number != of[0].number || !goes_on(l, of, mine.v, length))
            return false;
        own = mine.end;
    }
    return !*own;
}

/* Has the operand as many elements?  Then what is left out with these lengths alone, as a Pad that
 * adds nothing, does as the rest of it says. */
static bool elements_follow(const Lengths *l, ValueId v, const int64_t *length, const Value *own)
{
    int64_t n[SAMPLES];
    Polynomial p;
    for (int k = 0; k < l->n; k++)
        n[k] = shape_elements(&val(l->imported[k], v)->shape);
    return !cg_fit(l, n, &p) || cg_value(l, &p, length) == shape_elements(&own->shape);
}

/* Sizes of 1 may make another operation of it. */
static const char *shape_alone(Arena *a, const char *text)
{
    return arena_strndup(a, text, strcspn(text, "="));
}

static void check_node(const Lengths *l, int other, NodeId id, NodeId own)
{
    const int64_t *length = l->at[other];
    const Graph *g = l->imported[0], *with = l->imported[other];
    const Node *n = &g->node.at[id], *x = &with->node.at[own];
    const char *text[SAMPLES], *mine = node_text(with, own, g->arena);
    for (int k = 0; k < l->n; k++)
        text[k] = node_text(l->imported[k], id, g->arena);
    for (int k = 0; k < l->n && n->op != x->op; k++)
        text[k] = shape_alone(g->arena, text[k]);
    mine = n->op == x->op ? mine : shape_alone(g->arena, mine);
    bool same = follows(l, text, mine, length);
    for (uint32_t i = 0; i < n->nin && i < x->nin && n->op == x->op && same; i++)
        same = (val(with, x->in[i])->kind == V_CONST ||
                elements_follow(l, n->in[i], length, val(with, x->in[i]))) &&
               lengths_constant(l, n->in[i], length, val(with, x->in[i]));
    if (same)
        return;
    for (int k = 0; k < 2; k++)
        diag_note("with %s: %s", cg_lengths_text(g->arena, l, l->at[k]), text[k]);
    diag_note("with %s: %s", cg_lengths_text(g->arena, l, length), mine);
    lengths_refuse(l, graph_where(g, n->origin, -1),
                   arena_printf(g->arena, "with %s it is not what follows from other lengths",
                                cg_lengths_text(g->arena, l, length)));
}

/* What names of the file stand for is compared: sizes of 1 leave out what they make needless. */
static void check_length(const Lengths *l, int other)
{
    const Graph *g = l->imported[0], *with = l->imported[other];
    for (NodeId n = 0; n < with->node.n; n++) {
        const Value *x = val(with, with->node.at[n].out[0]);
        const ValueId is = x->made ? NONE : strmap_get(&g->by_name, x->name);
        if (!x->made && is == NONE)
            lengths_refuse(l, graph_where(with, with->node.at[n].origin, -1),
                           arena_printf(g->arena, "with %s alone it is computed",
                                        cg_lengths_text(g->arena, l, l->at[other])));
        if (is != NONE && val(g, is)->kind == V_NODE && !val(g, is)->made)
            check_node(l, other, val(g, is)->node, n);
    }
}

/* ---- one length alone ------------------------------------------------------------------------ */

/* Of one length, c n + b is 0 with the whole n = -b / c alone, which may be compared. */
static bool may_be_zero(const Lengths *l, const Polynomial *p)
{
    double low, high;
    cg_bounds(l, p, 1, &low, &high); /* the least lengths are compared */
    if (low > 0 || high < 0)
        return false;
    if (p->degree > 1 || l->symbols > 1)
        return true;
    bool compared = p->c[0] % p->c[1] != 0;
    for (int k = l->n; k < l->all; k++)
        compared |= l->at[k][0] == -p->c[0] / p->c[1];
    return !compared;
}

/* Sizes that are equal with one length, which is no sample, as in `if n == 512'. */
static void check_apart(const Lengths *l)
{
    const Graph *g = l->imported[0];
    for (uint32_t i = 0; i < g->lengths.apart.n; i++) {
        int64_t by[SAMPLES];
        Polynomial p;
        bool known = true;
        for (int k = 0; k < l->n && known; k++) {
            const Apart *at = l->imported[k]->lengths.apart.at;
            known = i < l->imported[k]->lengths.apart.n &&
                    at[i].origin == g->lengths.apart.at[i].origin;
            by[k] = known ? at[i].by : 0;
        }
        if (known && cg_fit(l, by, &p) && p.degree > 0 && may_be_zero(l, &p))
            lengths_refuse(l, graph_where(g, g->lengths.apart.at[i].origin, -1),
                           "what it compares is equal with some length, with which the model may "
                           "be another one");
    }
}

void lengths_others(const Lengths *l)
{
    check_apart(l);
    for (int k = l->n; k < l->all; k++)
        check_length(l, k);
}
