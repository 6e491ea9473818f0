/*
 * test_collective.c - stages of several members.  One network with every collective, with divided
 * parameters and random numbers, is written for 1, 2 and 4 members of 4 chunks and undivided; the
 * members run as threads (mesh_threads.c).  Loss and gradients are those of the network undivided,
 * and have the same bits for every number of members, for all rows and for fewer.
 */
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "autodiff/autodiff.h"
#include "codegen/cg.h"
#include "codegen/print/target.h"
#include "codegen/write/write.h"
#include "stage_build.h"
#include "tap.h"

enum { CHUNKS = 4, ROWS = 4, MOST_WHOLE = 200 };

/* ---- the network ----------------------------------------------------------------------------- */

typedef struct {
    Graph *g;
    bool whole;
    int k; /* chunks of a member */
} Spread;

typedef struct {
    ValueId of[CHUNKS];
} Parts;

#define S(...) ((Shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), {__VA_ARGS__}})

static double number(const char *name, int64_t i)
{
    return sin(1.7 * name[0] + 0.37 * (double)i + 0.011 * (double)(i * i));
}

/* axis -1: all have it */
static Parts param(Spread *n, const char *name, Shape s, int axis)
{
    Param p = {.name = name, .dtype = DT_F32, .shape = s, .whole = s, .trainable = true};
    Parts parts = {{0}};
    bool divided = axis >= 0 && !n->whole;
    float *all = arena_array(n->g->arena, float, shape_elements(&s));
    for (int64_t i = 0; i < shape_elements(&s); i++)
        all[i] = (float)number(name, i);
    p.bytes = (Payload){.at = (const uint8_t *)all, .length = (size_t)shape_elements(&s) * 4};
    if (divided)
        p.shape.d[axis] /= CHUNKS;
    for (int i = 0; i < (divided ? n->k : 1); i++) {
        p.divided = divided;
        p.box = chunks_none();
        if (divided)
            p.box.along[MESH_TENSOR] = (Chunk){axis, i, n->k, CHUNKS, 1};
        parts.of[i] = graph_param(n->g, p);
    }
    return parts;
}

static Parts vary(Spread *n, ValueId x)
{
    Parts p = {{0}};
    ValueId first = g_vary(n->g, x, n->k);
    for (int i = 0; i < n->k; i++)
        p.of[i] = graph_out(n->g, first, (uint32_t)i);
    return p;
}

static Parts split(Spread *n, ValueId x, int axis)
{
    Parts p = {{0}};
    int64_t size[CHUNKS];
    for (int i = 0; i < n->k; i++)
        size[i] = val(n->g, x)->shape.d[axis] / n->k;
    ValueId first = g_split(n->g, x, axis, n->k, size);
    for (int i = 0; i < n->k; i++)
        p.of[i] = graph_out(n->g, first, (uint32_t)i);
    return p;
}

static ValueId join(Spread *n, Parts p, int axis)
{
    return g_concat(n->g, (uint32_t)n->k, p.of, axis);
}

/* What is made for all of a member's chunks comes from one node of a file. */
static void from_one(Spread *n)
{
    n->g->cur_origin = n->g->origin.n;
    vec_push(n->g->arena, &n->g->origin, ((Origin){"", "", .scope = "", .pipeline_stage = -1}));
}

static Parts each(Spread *n, Op op, Parts x, Parts y)
{
    Parts p = {{0}};
    from_one(n);
    for (int i = 0; i < n->k; i++)
        p.of[i] = g_binary(n->g, op, x.of[i], y.of[i]);
    return p;
}

static Parts each_one(Spread *n, Op op, Parts x)
{
    Parts p = {{0}};
    for (int i = 0; i < n->k; i++)
        p.of[i] = g_unary(n->g, op, x.of[i]);
    return p;
}

static Parts random_parts(Spread *n, Op op, Parts x, int axis, int64_t key)
{
    Parts p = {{0}};
    for (int i = 0; i < n->k; i++) {
        Chunks at = chunks_none();
        at.along[MESH_TENSOR] = (Chunk){axis, i, n->k, CHUNKS, 1};
        p.of[i] = graph_node(
            n->g, op, 1, &x.of[i],
            (Attr){.ratio = 0.25, .key = key, .to = DT_F32, .piece = n->whole ? NULL : &at});
    }
    return p;
}

static ValueId sum_all(Spread *n, ValueId x) { return g_sum_to(n->g, x, &(Shape){0}); }

static ValueId over_all(Spread *n, Parts p)
{
    return g_all_reduce(n->g, g_tree_sum(n->g, (uint32_t)n->k, p.of), DT_F32);
}

/* A block of a transformer, as it were, with the sequence divided around it; runs of 16 numbers are
 * drawn together, of 3 they are not. */
static ValueId network(Spread *n, ValueId x)
{
    Graph *g = n->g;
    Parts gain = vary(n, param(n, "gain", S(8), -1).of[0]), by = param(n, "seq", S(8, 8), 0),
          in = param(n, "in", S(8, 12), 1), out = param(n, "wo", S(12, 8), 0);
    Parts h = each(n, OP_Mul, each(n, OP_Mul, split(n, g_shard(g, x, 1), 1), by), gain);
    ValueId shown = g_all_gather(g, join(n, h, 1), 1); /* read at the end alone */
    Parts drop = random_parts(n, OP_Dropout, h, 1, 1);
    Parts all = vary(n, g_all_gather(g, join(n, drop, 1), 1));
    Parts a = each_one(n, OP_Tanh, each(n, OP_MatMul, all, in));
    a = random_parts(n, OP_Dropout, a, 2, 2);
    Parts p = each(n, OP_MatMul, a, out);
    ValueId y = over_all(n, each(n, OP_MatMul, each_one(n, OP_Sigmoid, a), out));
    Parts r = split(n, g_reduce_scatter(g, g_tree_sum(g, (uint32_t)n->k, p.of), 1), 1);
    Parts c = split(n, g_all_to_all(g, join(n, r, 1), 1, 2), 2);
    for (int i = 0; i < n->k; i++)
        c.of[i] = g_softmax(g, c.of[i], 1);
    ValueId back = g_all_to_all(g, join(n, c, 2), 2, 1);
    Parts z = split(n, back, 1);
    z = each(n, OP_Mul, each(n, OP_Add, z, h), random_parts(n, OP_Random, h, 1, 3));
    back = g_all_gather(g, back, 1); /* of what is still under way where this could begin */
    for (int i = 0; i < n->k; i++)
        z.of[i] = sum_all(n, g_mul(g, z.of[i], z.of[i]));
    y = g_add(g, sum_all(n, g_mul(g, y, y)), sum_all(n, g_mul(g, shown, shown)));
    y = g_add(g, y, sum_all(n, g_mul(g, back, back)));
    return g_add(g, over_all(n, z), y);
}

/* ---- written and compiled -------------------------------------------------------------------- */

typedef struct {
    Arena *a;
    int members; /* 0: undivided */
    const char *dir;
    Pipe *p;
    StageGen *sg;
    const PpStage *table;
    float loss[2], grad[2][8][MOST_WHOLE]; /* by rows; by the model's parameters */
    const char *name[8];
    int params;
    bool alike;
} Program;

static void build(Program *x)
{
    Graph *g = graph_new(x->a, "test");
    Spread n = {.g = g, .whole = x->members == 0};
    g->mesh[MESH_TENSOR].members = x->members ? x->members : 1;
    g->mesh[MESH_TENSOR].chunks = n.whole ? 1 : CHUNKS;
    g->batch = ROWS;
    n.k = g->mesh[MESH_TENSOR].chunks / g->mesh[MESH_TENSOR].members;
    Loss l = {.target = NONE, .scale = LOSS_SUM, .text = "sum"};
    ValueId in = graph_input(g, "x", DT_F32, &S(ROWS, 8, 8));
    l.loss_scale = graph_input(g, "loss_scale", DT_F32, &(Shape){0});
    l.loss = g_mul(g, network(&n, in), l.loss_scale);
    vec_push(x->a, &g->output, l.loss);
    vec_push(x->a, &g->output_name, "loss");
    x->p = pipe_build(g, &(PartitionOptions){0}, &l);
    autodiff(x->p);
}

static void write_text(Program *x, const char *file, bool device)
{
    Text t = {.a = x->a};
    StageGen *sg = cg_stage(x->p->graph->arena, x->p, 0, device ? TARGET_CUDA : TARGET_C);
    if (device)
        text_add(&t, "#define PP_WITH_CUDA 1\n");
    cg_stage_print(sg, &t);
    text_add(&t, device ? "extern \"C\" {\n" : "");
    cg_tables_print(sg, NULL, &t);
    text_add(&t, device ? "}\n" : "");
    FILE *f = fopen(file, "w");
    INSIST(f);
    fwrite(t.at, 1, t.n, f);
    fclose(f);
    if (!device)
        x->sg = sg;
}

static int compile(Program *x)
{
    const char *c = arena_printf(x->a, "%s/m%d.c", x->dir, x->members),
               *so = arena_printf(x->a, "%s/m%d.so", x->dir, x->members);
    write_text(x, c, false);
    int failed = system(arena_printf(
        x->a,
        "cc -std=gnu11 -O1 -ffp-contract=off -fno-math-errno -fwrapv -Wall -Wextra -Werror "
        "-Wno-unknown-pragmas -Wno-unused-function -fPIC -shared -Wl,-Bsymbolic -I. -Iruntime "
        "-Iruntime/api -o %s %s tests/share/mesh_threads.c %s -lm -lpthread",
        so, c, run_file(x->a, "libpp.so")));
    void *h = failed ? NULL : dlopen(so, RTLD_NOW | RTLD_LOCAL);
    if (!h)
        return -1;
    x->table = dlsym(h, "pp_stage0");
    void (*mesh)(int, const PpStage *);
    *(void **)&mesh = dlsym(h, "mesh_open");
    mesh(x->members ? x->members : 1, x->table);
    return 0;
}

/* ---- run by all members ---------------------------------------------------------------------- */

typedef struct {
    PpCtx c;
    const PpStage *table;
    pthread_t thread;
} Runner;

static void *block(Arena *a, int64_t bytes, int fill)
{
    char *p = arena_alloc(a, (size_t)bytes + 2 * PP_ALIGN);
    p += (PP_ALIGN - (uintptr_t)p % PP_ALIGN) % PP_ALIGN;
    return memset(p, fill, (size_t)bytes + PP_ALIGN);
}

static int64_t spanned(const PpTensor *t, int from, int to)
{
    int64_t n = 1;
    for (int d = from; d < to; d++)
        n *= t->dim[d];
    return n;
}

/* A member's part of a whole parameter, or back. */
static void cut(const PpParam *q, int member, float *whole, float *part, bool back)
{
    if (q->axis < 0) {
        memcpy(back ? whole : part, back ? part : whole, (size_t)q->t.bytes);
        return;
    }
    int64_t outer = spanned(&q->t, 0, q->axis), inner = spanned(&q->t, q->axis + 1, q->t.rank),
            here = q->t.dim[q->axis];
    for (int64_t o = 0; o < outer; o++) {
        float *x = whole + (o * q->whole + q->first + member * q->step) * inner,
              *y = part + o * here * inner;
        memcpy(back ? x : y, back ? y : x, (size_t)(here * inner) * sizeof *x);
    }
}

static int number_of(Program *x, const char *name)
{
    for (int i = 0; i < x->params; i++)
        if (!strcmp(x->name[i], name))
            return i;
    x->name[x->params] = name;
    return x->params++;
}

static void prepare(Program *x, Runner *m, int member, int64_t rows)
{
    const PpStage *t = x->table;
    Arena *a = x->a;
    int64_t work = 0;
    void **in = arena_array(a, void *, t->n_input + 1),
         **out = arena_array(a, void *, t->n_output + 1);
    for (int k = 0; k < PP_WORKS; k++)
        work = t->bytes.work[k] > work ? t->bytes.work[k] : work;
    m->table = t;
    m->c = (PpCtx){.rows = rows, .seed = 5, .step = 3, .row0 = 2, .member = {member}};
    m->c.param = block(a, t->bytes.param, 0xff);
    m->c.grad = block(a, t->bytes.grad, 0);
    m->c.constants = block(a, t->bytes.constants, 0);
    m->c.stash = block(a, t->bytes.stash + (1 << 16), 0xff);
    m->c.saved = block(a, t->bytes.saved, 0xff);
    m->c.work = block(a, work, 0xff);
    int64_t at = t->bytes.stash;
    for (int k = 0; k < t->n_again; at += t->again[k++].bytes)
        m->c.again[k] = m->c.stash + at;
    for (int i = 0; i < t->n_input; i++) {
        in[i] = block(a, t->input[i].t.bytes, 0);
        float *to = in[i];
        int64_t n = t->input[i].from == -2 ? 1 : rows * 64;
        for (int64_t k = 0; k < n; k++)
            to[k] = n == 1 ? 0.5f : (float)number("x", k);
    }
    for (int i = 0; i < t->n_output; i++)
        out[i] = block(a, t->output[i].t.bytes, 0xff);
    m->c.in = in;
    m->c.out = out;
    for (int i = 0; i < t->n_param; i++) {
        const PpParam *q = &t->param[i];
        float whole[MOST_WHOLE];
        for (int k = 0; k < MOST_WHOLE; k++)
            whole[k] = (float)number(q->t.name, k);
        cut(q, member, whole, (float *)(void *)(m->c.param + q->offset), false);
    }
}

static void *run(void *arg)
{
    Runner *m = arg;
    m->table->call.forward(&m->c);
    m->table->call.backward_input(&m->c);
    m->table->call.backward_weight(&m->c);
    return NULL;
}

/* Of use q->use of a parameter the sum of a member's chunk. */
static float *chunk_sum(const Runner *m, const PpPartial *q, int64_t chunk)
{
    const PpParam *p = &m->table->param[q->param];
    char *at = m->c.grad + (chunk    ? q->offset + (chunk - 1) * align_up(p->t.bytes)
                            : q->use ? p->more_offset + (q->use - 1) * align_up(p->t.bytes)
                                     : p->grad_offset);
    return (float *)(void *)at;
}

/* What a step's end does with gradients that chunks of members have parts of: a tree over all of
 * them, whose sum every member gets. */
static void add_partials(const Runner *m, int members)
{
    int here = CHUNKS / members;
    for (int i = 0; i < m->table->mesh.n_partial; i++) {
        const PpPartial *q = &m->table->mesh.partial[i];
        int64_t n = m->table->param[q->param].t.bytes / 4;
        float *all[CHUNKS];
        for (int k = 0; k < CHUNKS; k++)
            all[k] = chunk_sum(&m[k / here], q, k % here);
        for (int of = 1; of < CHUNKS; of *= 2)
            for (int k = 0; k < CHUNKS; k += 2 * of)
                for (int64_t e = 0; e < n; e++)
                    all[k][e] += all[k + of][e];
        for (int k = 1; k < members; k++)
            memcpy(all[k * here], all[0], (size_t)n * sizeof(float));
    }
}

/* The uses of a parameter, the last one first. */
static const float *gradient(Program *x, const Runner *m, const PpParam *q)
{
    int64_t n = q->t.bytes / 4;
    float *sum = arena_array(x->a, float, n);
    INSIST(q->grad_offset >= 0);
    for (int use = q->more; use >= 0; use--) {
        const char *at =
            m->c.grad + (use ? q->more_offset + (use - 1) * align_up(q->t.bytes) : q->grad_offset);
        const float *own = (const float *)(const void *)at;
        for (int64_t i = 0; i < n; i++)
            sum[i] = use == q->more ? own[i] : own[i] + sum[i];
    }
    return sum;
}

static void run_members(Program *x, int which, int64_t rows)
{
    int n = x->members ? x->members : 1;
    Runner m[CHUNKS];
    for (int i = 0; i < n; i++)
        prepare(x, &m[i], i, rows);
    for (int i = 0; i < n; i++)
        pthread_create(&m[i].thread, NULL, run, &m[i]);
    for (int i = 0; i < n; i++)
        pthread_join(m[i].thread, NULL);
    if (x->members)
        add_partials(m, n);
    x->loss[which] = *(float *)m[0].c.out[0];
    for (int i = 0; i < n; i++) {
        x->alike &= *(float *)m[i].c.out[0] == x->loss[which];
        for (int k = 0; k < x->table->n_param; k++) {
            const PpParam *q = &x->table->param[k];
            float *to = x->grad[which][number_of(x, q->t.name)], from[MOST_WHOLE];
            memcpy(from, gradient(x, &m[i], q), (size_t)q->t.bytes);
            if (q->axis < 0 && i > 0)
                x->alike &= !memcmp(to, from, (size_t)q->t.bytes);
            cut(q, i, to, from, true);
        }
    }
}

/* ---- the checks ------------------------------------------------------------------------------ */

static double apart(double x, double y) { return fabs(x - y) / (1 + fabs(y)); }

static void compare(const Program *x, const Program *whole, const Program *one)
{
    double worst = 0;
    bool same = x->alike && x->params == whole->params;
    for (int r = 0; r < 2; r++) {
        worst = fmax(worst, apart((double)x->loss[r], (double)whole->loss[r]));
        same &= x->loss[r] == one->loss[r];
        for (int i = 0; i < x->params; i++) {
            int k = number_of((Program *)(uintptr_t)whole, x->name[i]);
            for (int e = 0; e < MOST_WHOLE; e++)
                worst = fmax(worst, apart((double)x->grad[r][i][e], (double)whole->grad[r][k][e]));
            same &= !memcmp(x->grad[r][i], one->grad[r][i], sizeof x->grad[r][i]);
        }
    }
    ok(worst < 2e-5 && !isnan((double)x->loss[0]) && x->params == 4,
       "%d members: as undivided, off by %.1e", x->members, worst);
    ok(same, "%d members: the bits of one", x->members);
}

static uint32_t count(const char *text, const char *what)
{
    uint32_t n = 0;
    for (const char *p = text; (p = strstr(p, what)); p++)
        n++;
    return n;
}

static bool overlap(const Buffer *x, const Buffer *y)
{
    return x->cls == BUF_WORK && y->cls == BUF_WORK
               ? x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes
               : x->cls == y->cls && x->cls != BUF_WORK && x->index == y->index;
}

/* Steps that write where a collective that is under way reads or writes; begun: how many there
 * are. */
static uint32_t disturbed(const Func *f, uint32_t *begun)
{
    uint32_t bad = 0;
    for (uint32_t i = 0; i < f->step.n; i++) {
        const Step *s = &f->step.at[i], *t = s + 1;
        if (s->kind != STEP_COLLECTIVE || s->collective->part != BEGINS)
            continue;
        ++*begun;
        for (; t->kind != STEP_COLLECTIVE || t->collective->part != ENDS || t->key != s->key; t++)
            for (uint32_t k = 0; k < t->arg.n; k++)
                for (uint32_t j = 0; j < s->arg.n; j++)
                    bad += (t->arg.at[k].written || j > 0) &&
                           overlap(&f->buf.at[t->arg.at[k].buf], &f->buf.at[s->arg.at[j].buf]);
    }
    return bad;
}

static void check_begun(const Program *x)
{
    uint32_t begun = 0, bad = 0;
    for (int k = 0; k < F_COUNT; k++)
        bad += x->sg->func[k] ? disturbed(x->sg->func[k], &begun) : 0;
    ok(begun > 0 && bad == 0, "%d members: nothing disturbs what is under way", x->members);
}

/* Each collective once and its gradient's: those of Shard and the sum that only one reads is
 * scattered. */
static void check_text(Program *x)
{
    static const struct {
        const char *call;
        uint32_t forward, all;
    } calls[] = {{"pp_shard(c", 1, 0},
                 {"pp_all_gather(c", 3, 0},
                 {"pp_all_reduce(c", 2, 0},
                 {"pp_reduce_scatter(c", 1, 0},
                 {"pp_all_to_all(c", 2, 0}};
    Text t = {.a = x->a};
    cg_stage_print(x->sg, &t);
    const char *forward = strstr(t.at, "stage0_forward(const PpCtx *c)\n{"),
               *end = forward ? strstr(forward, "\n}\n") : NULL;
    bool good = end != NULL;
    char *body = good ? arena_strndup(x->a, forward, (size_t)(end - forward)) : NULL;
    for (size_t i = 0; i < sizeof calls / sizeof *calls && good; i++) {
        good = count(body, calls[i].call) == calls[i].forward;
        if (!good)
            printf("# %u %s\n", count(body, calls[i].call), calls[i].call);
    }
    ok(good, "a call for each collective");
    ok(good && strstr(body, "P to S(1)") && strstr(body, "S(2) to S(1)"),
       "the comment says how it lies");
    const char *cu = arena_printf(x->a, "%s/m.cu", x->dir);
    write_text(x, cu, true);
    ok(system(arena_printf(x->a,
                           "g++ -x c++ -std=c++17 -fsyntax-only -Wall -Wextra -Werror "
                           "-Wno-missing-field-initializers -Wno-unknown-pragmas "
                           "-Itests/cuda_shim -I. -Iruntime -Iruntime/api %s",
                           cu)) == 0,
       "the CUDA C compiles");
}

int main(void)
{
    char dir[] = "/tmp/ppsplit-collective.XXXXXX";
    Program x[4] = {{.members = 0}, {.members = 1}, {.members = 2}, {.members = 4}};
    if (!mkdtemp(dir))
        return 1;
    run_shared(arena_new(), "libpp.so");
    for (int i = 0; i < 4; i++) {
        x[i].a = arena_new();
        x[i].dir = dir;
        x[i].alike = true;
        build(&x[i]);
        if (compile(&x[i]) != 0)
            return ok(0, "%d members: it compiles", x[i].members), tap_done();
        for (int r = 0; r < 2; r++)
            run_members(&x[i], r, ROWS - r);
        if (i > 0)
            compare(&x[i], &x[0], &x[1]);
    }
    check_begun(&x[2]);
    check_begun(&x[3]);
    check_text(&x[2]);
    if (system(arena_printf(x[0].a, "rm -r %s", dir)) != 0)
        printf("# cannot remove %s\n", dir);
    return tap_done();
}
