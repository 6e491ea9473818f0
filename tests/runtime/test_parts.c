/*
 * test_parts.c - members of a rank (PpPlan.tensor) divide parameters in `chunks` parts.  A program
 * written by hand, for 1, 2 or 4 members and one or two stages, whose parameters are cut along any
 * dimension, also along runs of one, used in one stage and in two: losses, norms, gradients,
 * checkpoints have the same bytes for all of them; a run that is interrupted goes on in any other
 * of them in the bits of one that was not.
 */
#include "plan/plan.h"
#include "runtime_run.h"
#include "runtime_train.h"

#include <inttypes.h>
#include <sys/stat.h>

enum { D = 3, ROWS = 4, N = 22, CHUNKS = 4, STAGES = 2, PARAMS = 7, MOST = 2 * PARAMS * CHUNKS };
static float x[N * D], target[D * N];

/* The model's parameters.  axis -1: not divided; shared: both stages use it */
typedef struct {
    const char *name;
    int rank;
    int64_t dim[3];
    int axis, groups, stage, shared, stat;
} Model;

static const Model parameters[PARAMS] = {
    {"scale", 1, {D}, -1, 1, 0, 0, 0},       {"columns", 2, {6, 8}, 1, 1, 0, 1, 0},
    {"packed", 2, {24, 3}, 0, 3, 0, 0, 0},   {"middle", 3, {5, 24, 2}, 1, 2, 0, 0, 0},
    {"mean", 1, {5}, -1, 1, 1, 0, 1},        {"rows", 1, {8}, 0, 1, 1, 0, 0},
    {"large", 2, {4, 20000}, 1, 1, 1, 0, 0}, /* blocks of a norm in each part */
};

/* ---- what it computes ---- */

static const PpPlan *running;

static void scale_forward(const PpCtx *c)
{
    const float *in = c->in[0], *scale = (const float *)(const void *)c->param;
    float *out = c->out[0];
    for (int64_t i = 0; i < c->rows * D; i++)
        out[i] = in[i] * scale[i % D];
}

/* loss: behind the inputs there are target and scale. */
static void error_forward(const PpCtx *c, const float *y, int target_at, float *out, float *loss)
{
    const float *t = c->in[target_at], *scale = c->in[target_at + 1];
    float sum = 0;
    for (int64_t i = 0; i < c->rows * D; i++) {
        float e = y[i] - t[i % D * c->rows + i / D];
        out[i] = y[i];
        sum += e * e;
    }
    *loss = sum * *scale;
}

static void both_forward(const PpCtx *c)
{
    scale_forward(c);
    error_forward(c, c->out[0], 1, c->out[0], c->out[1]);
}

static void last_forward(const PpCtx *c) { error_forward(c, c->in[0], 1, c->out[0], c->out[1]); }

static void error_backward(const PpCtx *c, float *dy)
{
    const float *t = c->in[1], *scale = c->in[2], *y = c->out[0];
    for (int64_t i = 0; i < c->rows * D; i++)
        dy[i] = 2 * (y[i] - t[i % D * c->rows + i / D]) * *scale;
}

static void scale_backward(const PpCtx *c, const float *dy)
{
    const float *in = c->in[0];
    float *d = (float *)(void *)c->grad;
    for (int64_t i = 0; i < c->rows * D; i++)
        d[i % D] += dy[i] * in[i];
}

/* The number in the model's parameter of element i of this member's part. */
static int64_t number_of(const PpParam *p, int member, int64_t i)
{
    int64_t at = 0, unit = 1, groups = p->groups;
    for (int k = p->t.rank; k-- > 0; i /= p->t.dim[k]) {
        int64_t own = i % p->t.dim[k], run = p->t.dim[k] / groups;
        if (k == p->axis)
            own = own / run * (p->whole / groups) + own % run + p->first + member * p->step;
        at += own * unit;
        unit *= k == p->axis ? p->whole : p->t.dim[k];
    }
    return at;
}

/* Any numbers, of which element it is, what it holds and which rows there are: one for each use. */
static void parts_backward(const PpCtx *c)
{
    const PpStage *st = running->stage[c->stage];
    for (int k = 0; k < st->n_param; k++) {
        const PpParam *p = &st->param[k];
        const float *value = (const float *)(void *)(c->param + p->offset);
        if (p->axis < 0)
            continue;
        for (int use = 0; use <= p->more; use++) {
            float *d = (float *)(void *)(c->grad + (use ? p->more_offset : p->grad_offset));
            int second = use || (c->stage && p->use == PP_REPLICATE);
            for (int64_t i = 0; i < p->t.bytes / 4; i++) {
                int64_t n = number_of(p, c->member[PP_TENSOR], i) * (second ? 7 : 3);
                d[i] += 0.01f * value[i] + (float)(n % 13 - 6) * (float)(c->row0 + 1) * 0.003f;
            }
        }
    }
}

static void first_backward(const PpCtx *c)
{
    scale_backward(c, c->dy[0]);
    parts_backward(c);
}

static void last_backward(const PpCtx *c)
{
    error_backward(c, c->dx[0]);
    parts_backward(c);
}

static void both_backward(const PpCtx *c)
{
    float dy[ROWS * D];
    error_backward(c, dy);
    scale_backward(c, dy);
    parts_backward(c);
}

/* ---- the program ---- */

#define ROW_TENSOR(n)                                                                              \
    {                                                                                              \
        .name = n, .dtype = PP_F32, .rank = 2, .dim = {ROWS, D}, .batch_dim = 0,                   \
        .bytes = ROWS * D * 4                                                                      \
    }
#define SCALAR(n)                                                                                  \
    {                                                                                              \
        .name = n, .dtype = PP_F32, .batch_dim = -1, .bytes = 4                                    \
    }
#define TARGET                                                                                     \
    {                                                                                              \
        .name = "target", .dtype = PP_F32, .rank = 2, .dim = {D, ROWS}, .batch_dim = 1,            \
        .bytes = ROWS * D * 4                                                                      \
    }

static const PpTensor inputs[] = {ROW_TENSOR("x"), TARGET}, outputs[] = {ROW_TENSOR("y")};
static const PpInput first_in[] = {{.t = ROW_TENSOR("x"), .from = -1, .stashed = 2}};
static const PpOutput first_out[] = {{.t = ROW_TENSOR("h"), .model_output = -1, .dys = 1}};
static const PpDy first_dy[] = {{.from = 1, .stashed = 1}};
static const PpInput last_in[] = {{.t = ROW_TENSOR("h"), .stashed = 2, .grads = 1},
                                  {.t = TARGET, .from = -1, .from_output = 1, .stashed = 2},
                                  {.t = SCALAR("loss_scale"), .from = -2, .stashed = 2}},
                     both_in[] = {{.t = ROW_TENSOR("x"), .from = -1, .stashed = 2},
                                  {.t = TARGET, .from = -1, .from_output = 1, .stashed = 2},
                                  {.t = SCALAR("loss_scale"), .from = -2, .stashed = 2}};
static const PpOutput last_out[] = {{.t = ROW_TENSOR("y"), .stashed = 2},
                                    {.t = SCALAR("loss"), .model_output = -1}};
static const PpMade made[] = {{"chunks", "4"}, {"chunks", "none"}};

typedef struct {
    PpPlan plan;
    PpStage stage[STAGES];
    const PpStage *list[STAGES];
    PpParam param[STAGES][MOST];
} Program;

static int64_t room(int64_t bytes) { return (bytes + PP_ALIGN - 1) / PP_ALIGN * PP_ALIGN; }

/* Parts of one for a member, numbered from `first` on; uses: in this stage. */
static int add_parts(Program *g, int s, const Model *m, int first, int uses)
{
    PpStage *st = &g->stage[s];
    int chunks = g->plan.chunks[PP_TENSOR], n = m->axis < 0 ? 1 : chunks / g->plan.members[PP_TENSOR];
    for (int k = 0; k < n; k++) {
        PpParam *p = &g->param[s][st->n_param++];
        *p = (PpParam){
            .t = {.name = m->name, .dtype = PP_F32, .rank = m->rank, .batch_dim = -1, .bytes = 4},
            .param = first + k,
            .use = m->shared && g->plan.n_stage > 1 ? PP_REPLICATE : PP_OWN,
            .from = g->plan.n_stage > 1 ? m->stage : 0,
            .trainable = !m->stat,
            .stat = m->stat,
            .axis = m->axis,
            .groups = m->groups,
            .half_offset = -1,
            .more = uses - 1};
        for (int i = 0; i < m->rank; i++) {
            p->t.dim[i] = m->dim[i] / (i == m->axis ? chunks : 1);
            p->t.bytes *= p->t.dim[i];
        }
        if (m->axis >= 0) {
            p->whole = m->dim[m->axis];
            p->first = k * p->t.dim[m->axis] / m->groups;
            p->step = n * p->t.dim[m->axis] / m->groups;
        }
        p->offset = st->bytes.param;
        p->grad_offset = m->stat ? -1 : st->bytes.grad;
        p->more_offset = st->bytes.grad + room(p->t.bytes);
        st->bytes.param += room(p->t.bytes);
        st->bytes.grad += m->stat ? 0 : uses * room(p->t.bytes);
    }
    return n;
}

static void add_params(Program *g)
{
    for (int i = 0; i < PARAMS; i++) {
        const Model *m = &parameters[i];
        int both = g->plan.n_stage == 1,
            n = add_parts(g, both ? 0 : m->stage, m, g->plan.n_param, 1 + (both && m->shared));
        if (m->shared && !both)
            add_parts(g, 1, m, g->plan.n_param, 1);
        g->plan.n_param += n;
    }
}

static Program *program(int members, int stages, int chunks)
{
    Program *g = calloc(1, sizeof *g);
    if (!g)
        exit(3);
    g->plan = (PpPlan){.model = "by hand",
                       .members = {members},
                       .chunks = {chunks},
                       .program.hash = (uint64_t)(10 * members + stages),
                       .program.model_hash = 2,
                       .rows = ROWS,
                       .uneven.ok = 1,
                       .n_stage = stages,
                       .n_input = 2,
                       .n_output = 1,
                       .stage = g->list,
                       .input = inputs,
                       .output = outputs,
                       .loss.stage = stages - 1,
                       .loss.output = 1,
                       .loss.kind = PP_LOSS_MEAN_ELEMENTS,
                       .loss.ignore = -100,
                       .loss.target = 1,
                       .program.n_made = 1,
                       .program.made = chunks > 1 ? made : made + 1};
    g->stage[0] = stages == 1 ? (PpStage){.label = "both",
                                          .n_input = 3,
                                          .n_output = 2,
                                          .input = both_in,
                                          .output = last_out,
                                          .call.forward = both_forward,
                                          .call.infer = both_forward,
                                          .call.backward = both_backward}
                              : (PpStage){.label = "first",
                                          .n_input = 1,
                                          .n_output = 1,
                                          .n_dy = 1,
                                          .input = first_in,
                                          .output = first_out,
                                          .dy = first_dy,
                                          .call.forward = scale_forward,
                                          .call.infer = scale_forward,
                                          .call.backward = first_backward};
    g->stage[1] = (PpStage){.index = 1,
                            .label = "last",
                            .n_input = 3,
                            .n_output = 2,
                            .n_dx = 1,
                            .input = last_in,
                            .output = last_out,
                            .call.forward = last_forward,
                            .call.infer = last_forward,
                            .call.backward = last_backward};
    for (int s = 0; s < stages; s++) {
        g->list[s] = &g->stage[s];
        g->stage[s].param = g->param[s];
        g->stage[s].has_backward = 1;
    }
    add_params(g);
    return g;
}

/* ---- its files ---- */

static float *whole_of(const Model *m, int64_t *n)
{
    *n = 1;
    for (int i = 0; i < m->rank; i++)
        *n *= m->dim[i];
    float *p = malloc((size_t)*n * sizeof *p);
    if (!p)
        exit(3);
    for (int64_t i = 0; i < *n; i++)
        p[i] = 0.5f + (float)(i * 31 % 64) / 64;
    return p;
}

static int in_stage(const Model *m, int stages, int s)
{
    return stages == 1 || m->stage == s || m->shared;
}

static void write_stages(int stages)
{
    char path[80];
    for (int s = 0; s < stages; s++) {
        StWriter w;
        stw_init(&w);
        for (int i = 0; i < PARAMS; i++)
            if (in_stage(&parameters[i], stages, s))
                stw_declare(&w, parameters[i].name, PP_F32, parameters[i].rank, parameters[i].dim);
        snprintf(path, sizeof path, "params%d/stage%d.safetensors", stages, s);
        if (stw_begin(&w, at(path)))
            exit(3);
        for (int i = 0; i < PARAMS; i++) {
            int64_t n;
            float *p = whole_of(&parameters[i], &n);
            if (in_stage(&parameters[i], stages, s))
                stw_write(&w, p, 4 * n);
            free(p);
        }
        if (stw_end(&w, 0))
            exit(3);
    }
}

/* Matrices are stored transposed. */
static void write_links(void)
{
    FILE *f = fopen(at("linked/stage0.link.json"), "w"), *b = fopen(at("linked/numbers"), "w");
    int64_t offset = 0;
    if (!f || !b)
        exit(3);
    for (int i = 0; i < PARAMS; offset = ftell(b), i++) {
        const Model *m = &parameters[i];
        int64_t n, rows = m->dim[0], columns = m->dim[1];
        float *p = whole_of(m, &n);
        for (int64_t k = 0; k < n; k++)
            fwrite(m->rank == 2 ? &p[k % rows * columns + k / rows] : &p[k], 4, 1, b);
        free(p);
        fprintf(f, "%s\"%s\": {\"dtype\": \"F32\", \"shape\": [", i ? ", " : "{", m->name);
        for (int k = 0; k < m->rank; k++)
            fprintf(f, "%s%" PRId64, k ? ", " : "", m->dim[k]);
        fprintf(f, "], \"file\": \"numbers\", \"offset\": %" PRId64 ", \"bytes\": %" PRId64 "%s}",
                offset, 4 * n, m->rank == 2 ? ", \"transposed\": true" : "");
    }
    fprintf(f, "}");
    if (fclose(f) || fclose(b))
        exit(3);
}

/* ---- runs ---- */

static const char common[] =
    "--optimizer adamw --lr 0.02 --clip-norm 0.5 --no-decay rows --microbatches 6";

static const char *run(const Program *g, int steps, const char *to, const char *how)
{
    char line[700];
    running = &g->plan;
    snprintf(line, sizeof line, "%s %s", common, how);
    return train(&g->plan, steps, to, line);
}

static const char *from_files(const Program *g)
{
    static char text[2][300];
    static int k;
    char path[20];
    snprintf(path, sizeof path, "params%d", g->plan.n_stage);
    snprintf(text[k = !k], sizeof text[0], "--params %s", at(path));
    return text[k];
}

static int same_gradients(const char *a, const char *b, int stages)
{
    char one[60], other[60], err[ST_ERR];
    int same = 1, found = 0;
    for (int s = 0; s < stages && same; s++)
        for (int t = 0; t < STAGES; t++) {
            StFile f = {0}, g = {0};
            snprintf(one, sizeof one, "%s/stage%d.safetensors", a, s);
            snprintf(other, sizeof other, "%s/stage%d.safetensors", b, t);
            if (access(at(one), F_OK) || access(at(other), F_OK))
                continue;
            same &=
                !st_open(&f, at(one), err, sizeof err) && !st_open(&g, at(other), err, sizeof err);
            for (int i = 0; same && i < f.n; i++) {
                const StTensor *p = &f.tensor[i], *q = st_find(&g, p->name);
                found += q != NULL;
                same = !q || (p->bytes == q->bytes && p->rank == q->rank &&
                              !memcmp(p->dim, q->dim, sizeof p->dim) &&
                              !memcmp(p->data, q->data, (size_t)p->bytes));
            }
            st_close(&f);
            st_close(&g);
        }
    return same && found >= PARAMS - 1;
}

/* The norm of each step of the last run, as text: an addition in another order shows in its last
 * digits, now and then. */
static const char *norms(void)
{
    static char text[2][1000];
    static int k;
    size_t n = 0;
    char *to = text[k = !k];
    to[0] = 0;
    for (const char *p = slurp(at("log")); (p = strstr(p, "\"grad_norm\": ")) != NULL; p++)
        n += (size_t)snprintf(to + n, sizeof text[0] - n, "%.*s ", (int)strcspn(p + 13, ","),
                              p + 13);
    return to;
}

/* The same bits, whoever has which part. */
static void alike(Program *const *all, int n)
{
    char first[1000] = "", how[600];
    for (int k = 0; k < n; k++) {
        const PpPlan *p = &all[k]->plan;
        snprintf(how, sizeof how, "%s --dump-grads %s", from_files(all[k]), at(k ? "g2" : "g1"));
        const char *last = run(all[k], 20, k ? "other" : "straight", how), *each = norms();
        if (!k)
            snprintf(first, sizeof first, "%s", each);
        ok(*last && !strcmp(first, each) &&
               (!k || same_checkpoints(at("straight/step_20"), at("other/step_20"))),
           "%d members, %d stages: the same losses, norms, parameters and states", p->members[PP_TENSOR],
           p->n_stage);
        ok(!k || same_gradients("g1", "g2", all[0]->plan.n_stage),
           "%d members, %d stages: the same gradients", p->members[PP_TENSOR], p->n_stage);
        if (k)
            forget("other"), forget("g2");
    }
}

/* What is said of them beside: the same bits with other options. */
static void options(const Program *g, const char *const *how)
{
    char line[600];
    for (int i = 0; how[i]; i++) {
        snprintf(line, sizeof line, "%s --offload-dir %s %s", from_files(g), folder, how[i]);
        const char *last = run(g, 5, "other", line);
        ok(*last && same_checkpoints(at("straight/step_5"), at("other/step_5")),
           "%d members, %d stages, %s: the same bits", g->plan.members[PP_TENSOR], g->plan.n_stage, how[i]);
        forget("other");
    }
}

/* Interrupted after steps 1 and 3, each time into another. */
static void resumed(const Program *a, const char *with_a, const Program *b, const char *with_b,
                    const Program *c)
{
    char line[600];
    snprintf(line, sizeof line, "%s %s", from_files(a), with_a);
    run(a, 1, "one", line);
    snprintf(line, sizeof line, "--resume %s %s", at("one"), with_b);
    run(b, 3, "two", line);
    snprintf(line, sizeof line, "--resume %s", at("two"));
    run(c, 5, "three", line);
    ok(same_checkpoints(at("straight/step_5"), at("three/step_5")),
       "%d members in %d stages%s%s, %d in %d%s%s, %d in %d: the bits of a run that was not "
       "interrupted",
       a->plan.members[PP_TENSOR], a->plan.n_stage, *with_a ? ", " : "", with_a, b->plan.members[PP_TENSOR],
       b->plan.n_stage, *with_b ? ", " : "", with_b, c->plan.members[PP_TENSOR], c->plan.n_stage);
    forget("one"), forget("two"), forget("three");
}

/* A program whose sums are not of so many parts: another's checkpoint is refused, either way. */
static void other_sums(const Program *g)
{
    const Program *plain = program(1, 1, 1);
    char line[600];
    run(g, 1, "one", from_files(g));
    run(plain, 1, "two", from_files(plain));
    for (int back = 0; back < 2; back++) {
        const Program *to = back ? g : plain;
        snprintf(line, sizeof line, "--resume %s", at(back ? "two" : "one"));
        run(to, 2, "three", line);
        ok(strstr(slurp(at("err")), back ? "with --chunks: none, this one with: 4"
                                         : "with --chunks: 4, this one with: none") != NULL,
           "a sum of %s parts: refused", back ? "one, and now four" : "four, and now one");
        strcat(line, " --accept chunks");
        ok(*run(to, 2, "three", line), "or accepted");
        forget("three");
    }
    int s = command_line(&plain->plan, "eval --data x=%s --data target=%s --params %s", at("x.npy"),
                         at("t.npy"), at("one"));
    ok(s == 0, "its parameters begin another run");
}

/* Of four members and, along the other axis, two: bytes and messages by the formulas of pp.h. */
static void test_exchanges(void)
{
    const PpCollective rows[] = {
        {.kind = PP_ALL_REDUCE, .mesh = PP_TENSOR, .dtype = PP_F32, .bytes = 64, .part = 'F'},
        {.kind = PP_ALL_REDUCE,
         .mesh = PP_TENSOR,
         .dtype = PP_F32,
         .bytes = 64,
         .half = PP_BF16,
         .part = 'I'},
        {.kind = PP_ALL_GATHER, .mesh = PP_SEQUENCE, .dtype = PP_F16, .bytes = 10, .part = 'F'},
        {.kind = PP_REDUCE_SCATTER, .mesh = PP_TENSOR, .dtype = PP_F32, .bytes = 16, .part = 'W'},
        {.kind = PP_ALL_TO_ALL, .mesh = PP_TENSOR, .dtype = PP_F32, .bytes = 160, .part = 'W'},
        {.kind = PP_SHARD, .mesh = PP_TENSOR, .dtype = PP_F32, .bytes = 99, .part = 'I'},
        {.kind = PP_ALL_REDUCE, .mesh = PP_SEQUENCE, .dtype = PP_F32, .bytes = 8}};
    const PpStage st = {.mesh.n_collective = 7, .mesh.collective = rows};
    const PpPlan model = {.members = {4, 2, 1}, .chunks = {4, 2, 1}};
    const struct {
        int part;
        Exchanges want;
    } of[] = {{'F', {2, 6 + 1, 64 * 2 * 3 / 4 + 10}},
              {'I', {1, 6, 64 * 3 / 4 + 32 * 3 / 4}},
              {'W', {2, 3 + 3, 16 * 3 / 4 + 160 * 3 / 4}},
              {0, {1, 2, 8}}};
    for (int k = 0; k < 4; k++) {
        const Exchanges is = plan_exchanges(&model, &st, of[k].part);
        ok(is.calls == of[k].want.calls && is.messages == of[k].want.messages &&
               is.bytes == of[k].want.bytes,
           "what members tell one another in %c", of[k].part ? of[k].part : 'S');
    }
}

int main(void)
{
    char err[ST_ERR];
    make_folder();
    for (int i = 0; i < N * D; i++) {
        x[i] = 0.25f + (float)(i * 37 % 101) / 101;
        target[i] = 0.5f + (float)(i * 53 % 97) / 97;
    }
    npy_write(at("x.npy"), PP_F32, 2, (int64_t[]){N, D}, x, err, sizeof err);
    npy_write(at("t.npy"), PP_F32, 2, (int64_t[]){D, N}, target, err, sizeof err);
    mkdir(at("params1"), 0777), mkdir(at("params2"), 0777), mkdir(at("linked"), 0777);
    write_stages(1), write_stages(2), write_links();

    Program *of[5][3] = {{0}}; /* [members][stages] */
    for (int t = 1; t <= CHUNKS; t *= 2)
        for (int s = 1; s <= STAGES; s++)
            of[t][s] = program(t, s, CHUNKS);
    alike((Program *const[]){of[1][2], of[1][1], of[2][2], of[4][2], of[4][1]}, 5);
    char linked[400];
    snprintf(linked, sizeof linked, "--params %s", at("linked"));
    for (int t = 1; t <= CHUNKS; t *= 2) {
        run(of[t][1], 20, "other", linked);
        ok(same_checkpoints(at("straight/step_20"), at("other/step_20")),
           "%d members, files that are linked to, transposed", t);
        forget("other");
    }
    forget("straight");
    /* two replicas, or two groups of one */
    char two[400];
    snprintf(two, sizeof two, "%s --dp 2", from_files(of[4][2]));
    run(of[4][2], 5, "straight", two);
    options(of[4][2], (const char *const[]){"--dp 2 --shard-optimizer",
                                            "--dp 2 --shard-optimizer --offload params",
                                            "--dp 2 --offload params", NULL});
    options(of[1][1], (const char *const[]){"--dp 2 --zero 3 --bucket 20K", NULL});
    resumed(of[4][2], "--dp 2", of[1][1], "", of[4][2]);
    resumed(of[2][1], "--dp 2 --zero 3 --every 1", of[4][1], "", of[1][2]);
    resumed(of[1][2], "--groups 2", of[2][2], "--dp 2 --zero 2", of[4][1]);

    other_sums(of[4][2]);
    remove_folder();
    test_exchanges();
    printf("1..%d\n", number);
    return failed;
}
