/*
 * others.c - lengths that are no samples.  In: the model with samples, which are primes, and
 * neither few nor, most of them, many.  Out: nothing, or the model is refused: with the least
 * lengths, or with those that many numbers divide, it is not what follows from the samples.  So it
 * is where it has a branch, a remainder or the lesser of two sizes.
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

/* Sizes of 1 may make another operation of it. */
static const char *shape_alone(Arena *a, const char *text)
{
    return arena_strndup(a, text, strcspn(text, "="));
}

typedef struct {
    const Lengths *l;
    const int64_t *length;
    const Graph *with, *most; /* the model with these, and with the greatest */
} Other;

static void check_node(const Other *o, NodeId id, NodeId own)
{
    const Lengths *l = o->l;
    const int64_t *length = o->length;
    const Graph *g = l->imported[0], *with = o->with;
    const Node *n = &g->node.at[id], *x = &with->node.at[own];
    const char *text[SAMPLES], *mine = node_text(with, own, g->arena);
    for (int k = 0; k < l->n; k++)
        text[k] = node_text(l->imported[k], id, g->arena);
    for (int k = 0; k < l->n && n->op != x->op; k++)
        text[k] = shape_alone(g->arena, text[k]);
    mine = n->op == x->op ? mine : shape_alone(g->arena, mine);
    bool same = follows(l, text, mine, length);
    for (uint32_t i = 0; i < n->nin && i < x->nin && n->op == x->op && same; i++)
        same = lengths_constant(l, n->in[i], length, val(with, x->in[i]), o->most);
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
static void check_length(const Lengths *l, const int64_t *length, const Graph *most)
{
    const Graph *g = l->imported[0];
    const Other o = {l, length, l->imported_with(l->of, length), most};
    for (NodeId n = 0; n < o.with->node.n; n++) {
        const Value *x = val(o.with, o.with->node.at[n].out[0]);
        const ValueId is = x->made ? NONE : strmap_get(&g->by_name, x->name);
        if (!x->made && is == NONE)
            lengths_refuse(l, graph_where(o.with, o.with->node.at[n].origin, -1),
                           arena_printf(g->arena, "with %s alone it is computed",
                                        cg_lengths_text(g->arena, l, length)));
        if (is != NONE && val(g, is)->kind == V_NODE && !val(g, is)->made)
            check_node(&o, val(g, is)->node, n);
    }
}

/* That most numbers divide. */
static int64_t divided_most(const Symbol *s)
{
    enum { ALL = 720720 };
    int64_t best = s->most;
    for (int64_t n = s->most; n >= s->least && cg_gcd(best, ALL) < ALL; n--)
        best = cg_gcd(n, ALL) > cg_gcd(best, ALL) ? n : best;
    return best;
}

void lengths_others(const Lengths *l)
{
    int64_t least[SYMBOLS], length[SYMBOLS];
    cg_longest(l, true, length);
    const Graph *most = l->imported_with(l->of, length);
    for (int v = 0; v < l->symbols; v++) {
        memcpy(length, l->at[0], sizeof length);
        least[v] = length[v] = l->symbol[v].least;
        check_length(l, length, most);
        length[v] = divided_most(&l->symbol[v]);
        check_length(l, length, most);
    }
    if (l->symbols > 1)
        check_length(l, least, most);
}
