/* Ranks of T members (T in the environment), written by hand as the compiler would write them.  `members_plan write DIR` writes
   data, parameters and what is to come.

   PLAN=collectives: stages that are collectives and nothing else, for the CPU and for CUDA alike, each of another element type.
   x is [rows, 2T, 3, 2T, F]; member i takes x[:, 2i:2i+2].  What comes out is x again, or the sum over the members, as
   computed here.
   PLAN=train: h = sum over chunks (x_c a_c), y = h b, of C = 4 chunks whatever T is: the same bits for T = 1, 2 and 4.

   DELAYS=SEED: members sleep before collectives.  STOPS=die|hang|fail: what rank 1 does in the second stage. */
#include "base/file/npy.h"
#include "base/file/safetensors.h"
#include "runtime/api/pp.h"
#include "runtime/net/mesh.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { F = 5, ROWS = 4, N = 11, B = 6, C = 4 };
static int members, x_columns;

/* ---- what may happen to a member ---- */

static void disturb(const PpCtx *c)
{
    const char *delays = getenv("DELAYS"), *stops = getenv("STOPS");
    if (delays) {
        uint64_t h = (uint64_t)atoi(delays) * 1000003 + (uint64_t)(c->member[PP_TENSOR] * 31 + c->stage * 7 + c->microbatch);
        h = (h ^ (h >> 15)) * 0x9e3779b97f4a7c15u;
        usleep((useconds_t)((h >> 40) % 3000));
    }
    if (!stops || c->stage != 1 || c->member[PP_TENSOR] != 1 || c->step == 0)
        return;
    if (!strcmp(stops, "die"))
        raise(SIGKILL);
    while (!strcmp(stops, "hang"))
        pause();
    c->mesh->status = pp_fail(PP_ERR_IO, "member 1 fails by hand");
}

/* ---- nothing but collectives ---- */

/* Elements of a row of x, and of a member's part of it. */
static int64_t x_size(const PpCtx *c) { return c->rows * x_columns; }
static int64_t part_size(const PpCtx *c) { return x_size(c) / members; }

static void first(const PpCtx *c)
{
    disturb(c);
    pp_shard(c, 0, c->in[0], c->out[0], c->rows, x_columns / members);
    pp_all_reduce(c, PP_BEGIN + 1, c->out[0], c->out[1], c->work, part_size(c));
    disturb(c);
    pp_end(c, 1);
}

static void second(const PpCtx *c)
{
    int64_t all = x_size(c) * 4, each = part_size(c) / members;
    char *work = c->work + 2 * (all + PP_ALIGN),
         *beside = work + pp_collective_work(PP_ALL_GATHER, members, 4, part_size(c)) +
                   pp_collective_work(PP_ALL_TO_ALL, members, 4, part_size(c));
    void *a = c->work, *b = c->work + all + PP_ALIGN;
    disturb(c);
    pp_all_gather(c, PP_BEGIN + 2, c->in[0], c->out[1], beside, c->rows,
                  part_size(c) / c->rows * 4); /* bool; under way beside the others */
    pp_reduce_scatter(c, 0, c->in[0], a, work, c->rows, each / c->rows);
    disturb(c);
    pp_all_gather(c, 1, a, c->out[0], work, c->rows, each / c->rows);
    disturb(c);
    pp_all_to_all(c, 3, c->in[0], a, work,
                  (PpAcross){c->rows, 2 * members, 3, 2 * members, 2 * F, 1}); /* bf16 */
    pp_all_to_all(c, 4, a, b, work,
                  (PpAcross){c->rows, 2 * members, 3, 2 * members, F, 0}); /* i32 */
    disturb(c);
    pp_all_gather(c, 5, b, c->out[2], work, c->rows, part_size(c) / c->rows);
    pp_end(c, 2);
    pp_all_gather(c, 6, a, c->out[3], work, c->rows * 2 * members * 3, 2 * F);
}

/* ---- training ---- */

static float *floats(void *p) { return p; }

/* Chunk k of this member, of the tensor [rows, C, B]. */
static const float *chunk_of(const PpCtx *c, const float *x, int64_t row, int k)
{
    return x + (row * C + c->member[PP_TENSOR] * (C / members) + k) * B;
}

/* The sum over the member's chunks, a tree, and over members. */
static void sum_chunks(const PpCtx *c, int row, float *part, float *out, int64_t n)
{
    int here = C / members;
    for (int of = 1; of < here; of *= 2)
        for (int k = 0; k + of < here; k += 2 * of)
            for (int64_t i = 0; i < n; i++)
                part[k * n + i] += part[(k + of) * n + i];
    disturb(c);
    if (members > 1) {
        pp_all_reduce(c, PP_BEGIN + row, part, out, part + C * n, n);
        disturb(c);
        pp_end(c, row);
    } else
        memcpy(out, part, (size_t)n * sizeof *out);
}

static void train_first(const PpCtx *c)
{
    const float *x = c->in[0], *a = floats(c->param);
    float *part = floats(c->work);
    int64_t n = c->rows * B;
    for (int k = 0; k < C / members; k++)
        for (int64_t i = 0; i < n; i++)
            part[k * n + i] = chunk_of(c, x, i / B, k)[i % B] * a[i % B];
    sum_chunks(c, 0, part, c->out[0], n);
}

/* Each chunk's part of the gradient of a, which all members have. */
static void train_first_weight(const PpCtx *c, const float *dh)
{
    const float *x = c->in[0];
    for (int k = 0; k < C / members; k++) {
        float *grad = floats(c->grad + k * PP_ALIGN);
        for (int64_t i = 0; i < c->rows * B; i++)
            grad[i % B] += dh[i] * chunk_of(c, x, i / B, k)[i % B];
    }
}

static void train_first_input(const PpCtx *c)
{
    memcpy(c->saved, c->dy[0], (size_t)(c->rows * B) * sizeof(float));
}
static void train_first_w(const PpCtx *c) { train_first_weight(c, floats(c->saved)); }
static void train_first_backward(const PpCtx *c) { train_first_weight(c, c->dy[0]); }

static void train_second(const PpCtx *c)
{
    const float *h = c->in[0], *t = c->in[1], *scale = c->in[2], *b = floats(c->param);
    float *y = c->out[0], *part = floats(c->work), *loss = c->out[1];
    int64_t n = c->rows * B;
    for (int64_t i = 0; i < n; i++)
        y[i] = h[i] * b[i % B];
    /* each chunk has a part of the sum, which it is given as a loss of one element */
    for (int k = 0; k < C / members; k++) {
        int64_t from = n * (c->member[PP_TENSOR] * (C / members) + k) / C,
                to = n * (c->member[PP_TENSOR] * (C / members) + k + 1) / C;
        part[k] = 0;
        for (int64_t i = from; i < to; i++)
            part[k] += (y[i] - t[i]) * (y[i] - t[i]) * *scale;
    }
    sum_chunks(c, 0, part, loss, 1);
}

/* dy is kept for W, or for the second half of B. */
static void second_input(const PpCtx *c, float *kept)
{
    const float *t = c->in[1], *scale = c->in[2], *b = floats(c->param), *y = c->out[0];
    float *dh = c->dx[0];
    for (int64_t i = 0; i < c->rows * B; i++) {
        kept[i] = 2 * (y[i] - t[i]) * *scale;
        dh[i] = kept[i] * b[i % B];
    }
}

static void second_weight(const PpCtx *c, const float *dy)
{
    const float *h = c->in[0];
    float *db = floats(c->grad);
    for (int64_t i = 0; i < c->rows * B; i++)
        db[i % B] += dy[i] * h[i];
}

static void train_second_input(const PpCtx *c) { second_input(c, floats(c->saved)); }
static void train_second_weight(const PpCtx *c) { second_weight(c, floats(c->saved)); }

static void train_second_backward(const PpCtx *c)
{
    second_input(c, floats(c->work));
    second_weight(c, floats(c->work));
}

/* ---- tables ---- */

static PpTensor rows_of(const char *name, int64_t columns)
{
    return (PpTensor){.name = name, .dtype = PP_F32, .rank = 2, .dim = {ROWS, columns}, .bytes = ROWS * columns * 4};
}

static PpTensor vector(const char *name, int rank)
{
    return (PpTensor){.name = name, .dtype = PP_F32, .rank = rank, .dim = {B}, .batch_dim = -1, .bytes = rank ? B * 4 : 4};
}

static PpStage stage[2];
static const PpStage *const stages[] = {&stage[0], &stage[1]};
static PpTensor inputs[2], outputs[5];
static PpInput in[2][3];
static PpOutput out[2][4];
static PpParam param[2];
static PpCollective rows[2][7];

static PpCollective row(int kind, const char *name, int dtype, int64_t bytes)
{
    return (PpCollective){.kind = kind, .mesh = PP_TENSOR, .name = name, .dtype = dtype, .bytes = bytes};
}

static PpPartial partial[] = {{.offset = PP_ALIGN, .along = {1}, .row = {1, -1, -1}}};
static const PpDy dy[] = {{0, 1, 0, 0, 1}};

static void set_work(PpStage *st, int64_t bytes)
{
    for (int k = 0; k < PP_WORKS; k++)
        st->bytes.work[k] = (bytes + PP_ALIGN - 1) / PP_ALIGN * PP_ALIGN;
}

static PpPlan collectives(void)
{
    static const char *const names[] = {"sum", "scattered", "gathered", "there_and_back", "between"};
    int64_t part = x_columns / members, bytes = ROWS * part * 4;
    inputs[0] = rows_of("x", x_columns);
    for (int k = 0; k < 5; k++)
        outputs[k] = rows_of(names[k], k < 2 ? part : x_columns);
    in[0][0] = (PpInput){.t = inputs[0], .from = -1};
    out[0][0] = (PpOutput){.t = rows_of("part", part), .model_output = -1};
    out[0][1] = (PpOutput){.t = outputs[0]};
    in[1][0] = (PpInput){.t = rows_of("part", part)};
    for (int k = 0; k < 4; k++)
        out[1][k] = (PpOutput){.t = outputs[k + 1], .model_output = k + 1};
    const PpCollective of_first[] = {row(PP_SHARD, "part", PP_F32, bytes * members), row(PP_ALL_REDUCE, "sum", PP_F32, bytes)};
    const PpCollective of_second[] = {row(PP_REDUCE_SCATTER, "scattered", PP_F32, bytes), row(PP_ALL_GATHER, "scattered", PP_F32, bytes / members),
                                      row(PP_ALL_GATHER, "gathered", PP_BOOL, bytes), row(PP_ALL_TO_ALL, "there", PP_BF16, bytes),
                                      row(PP_ALL_TO_ALL, "back", PP_I32, bytes), row(PP_ALL_GATHER, "there_and_back", PP_F32, bytes),
                                      row(PP_ALL_GATHER, "between", PP_F32, bytes)};
    memcpy(rows[0], of_first, sizeof of_first);
    memcpy(rows[1], of_second, sizeof of_second);
    stage[0] = (PpStage){.index = 0, .label = "first", .n_input = 1, .n_output = 2, .input = in[0], .output = out[0], .mesh.n_collective = 2, .mesh.collective = rows[0],
                         .call.forward = first, .call.infer = first};
    stage[1] = (PpStage){.index = 1, .label = "second", .n_input = 1, .n_output = 4, .input = in[1], .output = out[1], .mesh.n_collective = 7, .mesh.at_once = 2,
                         .mesh.collective = rows[1], .call.forward = second, .call.infer = second};
    set_work(&stage[0], pp_collective_work(PP_ALL_REDUCE, members, 4, ROWS * part));
    set_work(&stage[1], 2 * (ROWS * (int64_t)x_columns * 4 + PP_ALIGN) + pp_collective_work(PP_ALL_GATHER, members, 4, ROWS * part) +
                            pp_collective_work(PP_ALL_TO_ALL, members, 4, ROWS * part) +
                            pp_collective_work(PP_ALL_GATHER, members, 1, ROWS * part * 4));
    return (PpPlan){.model = "collectives", .members = {members}, .chunks = {members}, .program.hash = 1, .program.model_hash = 2, .rows = ROWS, .uneven.ok = 1, .n_stage = 2,
                    .n_input = 1, .n_output = 5, .stage = stages, .cpu_stage = stages, .cuda_stage = stages, .input = inputs, .output = outputs,
                    .loss.stage = -1, .loss.output = -1, .loss.target = -1};
}

static PpPlan training(void)
{
    int64_t n = ROWS * B * 4;
    inputs[0] = rows_of("x", C * B);
    inputs[1] = rows_of("target", B);
    outputs[0] = rows_of("y", B);
    in[0][0] = (PpInput){.t = inputs[0], .from = -1, .stashed = 2};
    out[0][0] = (PpOutput){.t = rows_of("h", B), .model_output = -1, .dys = 1};
    in[1][0] = (PpInput){.t = rows_of("h", B), .stashed = 2, .grads = 1};
    in[1][1] = (PpInput){.t = inputs[1], .from = -1, .from_output = 1, .stashed = 1};
    in[1][2] = (PpInput){.t = vector("loss_scale", 0), .from = -2, .stashed = 1};
    out[1][0] = (PpOutput){.t = outputs[0], .stashed = 1};
    out[1][1] = (PpOutput){.t = vector("loss", 0), .model_output = -1};
    for (int k = 0; k < 2; k++)
        param[k] = (PpParam){.t = vector(k ? "b" : "a", 1), .param = k, .from = k, .trainable = 1, .half_offset = -1};
    rows[0][0] = row(PP_ALL_REDUCE, "h", PP_F32, n);
    rows[0][1] = row(PP_ALL_REDUCE, "grad_a", PP_F32, B * 4);
    rows[1][0] = row(PP_ALL_REDUCE, "loss", PP_F32, 4);
    for (int k = 0; k < 2; k++) {
        stage[k] = (PpStage){.index = k, .label = "stage", .input = in[k], .output = out[k], .n_param = 1, .param = &param[k], .mesh.collective = rows[k],
                             .bytes.param = PP_ALIGN, .bytes.grad = PP_ALIGN, .bytes.saved = n, .has_backward = 1};
        set_work(&stage[k], 2 * C * n + PP_ALIGN + pp_collective_work(PP_ALL_REDUCE, C, 4, n));
    }
    stage[0].n_input = stage[0].n_output = stage[0].n_dy = 1;
    stage[0].dy = dy;
    stage[0].mesh.n_collective = 2;
    stage[0].bytes.grad = C / members * PP_ALIGN;
    stage[0].mesh.n_partial = 1;
    stage[0].mesh.partial = partial;
    partial[0].row[PP_TENSOR] = members > 1 ? 1 : -1;
    stage[0].call.forward = stage[0].call.infer = train_first;
    stage[0].call.backward = train_first_backward;
    stage[0].call.backward_input = train_first_input;
    stage[0].call.backward_weight = train_first_w;
    stage[1].n_input = 3;
    stage[1].n_output = 2;
    stage[1].n_dx = stage[1].mesh.n_collective = 1;
    stage[1].call.forward = stage[1].call.infer = train_second;
    stage[1].call.backward = train_second_backward;
    stage[1].call.backward_input = train_second_input;
    stage[1].call.backward_weight = train_second_weight;
    return (PpPlan){.model = "training", .members = {members}, .chunks = {C}, .program.hash = 1, .program.model_hash = 2, .rows = ROWS, .uneven.ok = 1, .n_stage = 2, .n_input = 2,
                    .n_output = 1, .n_param = 2, .stage = stages, .input = inputs, .output = outputs, .loss.stage = 1, .loss.output = 1,
                    .loss.kind = PP_LOSS_MEAN_ELEMENTS, .loss.ignore = -100, .loss.target = 1};
}

/* ---- data ---- */

static float *numbers(int64_t n)
{
    static uint32_t seed = 1;
    float *to = malloc((size_t)n * sizeof *to);
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)((seed = seed * 1664525u + 1013904223u) >> 8) / (1 << 23) - 1;
    return to;
}

static void write_rows(const char *dir, const char *name, const float *data, int64_t columns)
{
    char path[500], err[ST_ERR];
    const int64_t dim[] = {N, columns};
    snprintf(path, sizeof path, "%s/%s.npy", dir, name);
    if (npy_write(path, PP_F32, 2, dim, data, err, sizeof err))
        exit(3);
}

/* The sum over members, neighbours in pairs, level by level. */
static float tree(const float *x, int from, int n, int64_t apart)
{
    int left = 1;
    while (left * 2 < n)
        left *= 2;
    return n == 1 ? x[from * apart] : tree(x, from, left, apart) + tree(x, from + left, n - left, apart);
}

static void write_all(const char *dir)
{
    int64_t part = x_columns / members, train = C * B;
    float *x = numbers((int64_t)N * x_columns), *sum = malloc((size_t)(N * part) * sizeof *sum);
    mkdir(dir, 0777);
    for (int64_t r = 0; r < N; r++)
        for (int64_t i = 0; i < part; i++)
            sum[r * part + i] = tree(x + r * x_columns + i, 0, members, part);
    write_rows(dir, "x", x, x_columns);
    write_rows(dir, "sum", sum, part);
    write_rows(dir, "train", numbers(N * train), train);
    write_rows(dir, "target", numbers(N * B), B);
    for (int k = 0; k < 2; k++) {
        char path[500];
        StWriter w;
        stw_init(&w);
        stw_declare(&w, param[k].t.name, PP_F32, 1, param[k].t.dim);
        snprintf(path, sizeof path, "%s/stage%d.safetensors", dir, k);
        if (stw_begin(&w, path))
            exit(3);
        stw_write(&w, numbers(B), B * 4);
        if (stw_end(&w, 0))
            exit(3);
    }
}

int main(int argc, char **argv)
{
    const char *t = getenv("T"), *plan = getenv("PLAN");
    members = t ? atoi(t) : 2;
    x_columns = 2 * members * 3 * 2 * members * F;
    PpPlan p = training();
    if (argc == 3 && !strcmp(argv[1], "write")) {
        write_all(argv[2]);
        return 0;
    }
    if (!plan || strcmp(plan, "train") != 0)
        p = collectives();
    return pp_main(argc, argv, &p);
}
