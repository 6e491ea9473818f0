/*
 * test_sides.c - transposes and sides of matrix products, which the library's order of additions
 * follows: those of a net in one stage, however it is cut, and in a backward of two parts those of
 * the whole one.  On a device rows of operands and results are multiples of 16 bytes apart, long
 * ones of 128, whatever the cut.  Nothing is compiled.
 */
#include <math.h>
#include <stdlib.h>

#include "codegen/plan/plan.h"
/* its networks are other tests' */
#pragma GCC diagnostic ignored "-Wunused-function"
#include "net_random.h"
#include "tap.h"

/* Tokens mixed by a product over their own axis, between transposes. */
static void net_mixer(Net *n)
{
    Graph *g = n->g;
    ValueId x = net_linear(n, net_input(n, "x", DT_F32, S(ROWS, 14, 6)), 6, 20, true);
    for (int i = 0; i < 2; i++) {
        ValueId t = net_cut(n, g_transpose(g, x, I(0, 2, 1)));
        t = net_cut(n, net_linear(n, t, 14, 10, true));
        t = net_linear(n, g_unary(g, OP_Tanh, t), 10, 14, true);
        x = net_cut(n, g_add(g, x, g_transpose(g, net_cut(n, t), I(0, 2, 1))));
        x = g_add(g, x, net_linear(n, x, 20, 20, true));
    }
    net_out(n, net_linear(n, x, 20, 3, true));
}

/* Heads with their keys transposed and their values last, as models write them. */
static void net_keys(Net *n)
{
    enum { TOKENS = 9, HEAD = 5, MANY = 3, C = HEAD * MANY };
    Graph *g = n->g;
    ValueId x = net_input(n, "x", DT_F32, S(ROWS, TOKENS, C)), h[3];
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 3; k++)
            h[k] = g_transpose(
                g, g_reshape(g, net_linear(n, x, C, C, true), &S(ROWS, TOKENS, MANY, HEAD)),
                k == 1 ? I(0, 2, 3, 1) : I(0, 2, 1, 3));
        net_cut(n, h[1]);
        ValueId p = g_softmax(g, g_matmul(g, h[0], h[1]), 3);
        ValueId y = net_cut(n, g_matmul(g, p, net_cut(n, h[2])));
        y = net_cut(n, g_reshape(g, g_transpose(g, y, I(0, 2, 1, 3)), &S(ROWS, TOKENS, C)));
        x = net_cut(n, g_add(g, x, net_linear(n, y, C, C, true)));
    }
    net_out(n, g_matmul(g, x, net_cut(n, g_transpose(g, x, I(0, 2, 1)))));
}

/* The sequence first, the batch second. */
static void net_first(Net *n)
{
    Graph *g = n->g;
    ValueId x = net_linear(n, net_input(n, "x", DT_F32, S(ROWS, 7, 6)), 6, 12, true);
    x = net_cut(n, g_transpose(g, x, I(1, 0, 2)));
    x = g_unary(g, OP_Tanh, net_cut(n, net_linear(n, x, 12, 12, true)));
    x = net_cut(n, g_transpose(g, net_linear(n, x, 12, 14, false), I(1, 2, 0)));
    net_out(n, net_linear(n, x, 7, 5, true));
}

/* ---- what products there are ----------------------------------------------------------------- */

enum { LONGEST = 4000 };
typedef struct { const char *at[LONGEST]; int n; } Sides;

static int compare(const void *x, const void *y)
{
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

/* Does a fast kernel read rows so far apart? */
static bool fast(Lin ld, Dtype t)
{
    int64_t bytes = ld.c * (int64_t)dtype_size(t);
    return ld.b != 0 || bytes % (bytes > 1024 ? 128 : 16) == 0;
}

static void add(Arena *a, Sides *all, const StageGen *sg, FuncKind kind)
{
    const Func *f = sg->func[kind];
    for (uint32_t i = 0; f && i < f->step.n; i++) {
        const Product *p = f->step.at[i].kind == STEP_PRODUCT ? f->step.at[i].product : NULL;
        if (!p || all->n == LONGEST || lin_is(p->k, 1)) /* of one term there is no order */
            continue;
        bool good = fast(p->a.ld, p->type) && fast(p->b.ld, p->type) && fast(p->c.ld, p->result);
        all->at[all->n++] =
            sg->device ? (good ? "fast" : "!")
                       : arena_printf(a, "%c%c %lldx%lldx%lld", p->transposed_a ? 'T' : 'N',
                                      p->transposed_b ? 'T' : 'N', (long long)lin_at(p->m, ROWS),
                                      (long long)lin_at(p->n, ROWS), (long long)lin_at(p->k, ROWS));
    }
}

/* Each once, in order. */
static const char *text_of(Arena *a, Sides *all)
{
    const char *text = "";
    qsort(all->at, (size_t)all->n, sizeof *all->at, compare);
    for (int i = 0; i < all->n; i++)
        if (i == 0 || strcmp(all->at[i], all->at[i - 1]))
            text = arena_printf(a, "%s %s", text, all->at[i]);
    return text;
}

typedef struct {
    void (*build)(Net *);
    uint64_t seed;
    uint32_t cuts;                  /* at how many of its places, from the first on */
    bool device;
    Arena *a;
    const char *text;
    bool parts;                     /* I and W have the products of B */
} Job;

static void look(void *arg)
{
    Job *j = arg;
    Sides *all = arena_new_of(j->a, Sides);
    Pipe *p = net_pipe(j->a, j->build, j->seed, j->cuts);
    j->parts = true;
    for (uint32_t s = 0; s < p->stage.n; s++) {
        const StageGen *sg = cg_stage(j->a, p, s, j->device);
        Sides *b = arena_new_of(j->a, Sides), *parts = arena_new_of(j->a, Sides);
        add(j->a, b, sg, F_BACKWARD);
        add(j->a, parts, sg, F_INPUT);
        add(j->a, parts, sg, F_WEIGHT);
        j->parts &= !strcmp(text_of(j->a, b), text_of(j->a, parts));
        add(j->a, all, sg, F_FORWARD);
        add(j->a, all, sg, F_BACKWARD);
    }
    j->text = text_of(j->a, all);
}

static void check(const char *name, void (*build)(Net *), uint64_t seeds, uint32_t most,
                  bool device)
{
    uint32_t same = 0, differ = 0, products = 0;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        const char *whole = NULL;
        Arena *a = arena_new();
        for (uint32_t cuts = 0; cuts <= most; cuts++) {
            Job j = {.build = build, .seed = seed, .cuts = cuts, .device = device, .a = a};
            if (diag_run(look, &j) != 0)
                continue; /* a stage would be empty */
            whole = cuts == 0 ? j.text : whole;
            bool good = j.parts && whole && !strcmp(j.text, whole) && !strchr(j.text, '!');
            same += good;
            differ += !good;
            products += *j.text != 0;
            if (!good)
                printf("# %s %llu, %u cuts%s:%s\n# whole:%s\n", name, (unsigned long long)seed, cuts,
                     j.parts ? "" : ", I and W", j.text, whole ? whole : "");
        }
        arena_free(a);
    }
    ok(differ == 0 && same > seeds && products > 0, "%s%s: %u nets as in one stage", name,
       device ? " on a device" : "", same);
}

int main(void)
{
    FILE *unread = fopen("/dev/null", "w"); /* what batches cannot be put together is no matter here */
    diag_to(unread);
    for (int device = 0; device < 2; device++) {
        check("mixer", net_mixer, 1, 8, device);
        check("keys", net_keys, 1, 11, device);
        check("sequence first", net_first, 1, 3, device);
        check("shuffled", net_shuffled, 40, 2, device);
    }
    diag_to(NULL);
    if (unread)
        fclose(unread);
    return tap_done();
}
