/* What the runtime does for stages that compute in half precision: copies of parameters, rounded
   before the first step, after each update and after each message; the scale of the loss: PyTorch's
   and Megatron's rules against their sequences, steps that are skipped by all ranks, numbers that
   are those of the unscaled loss. */
#include "runtime/api/pp_half.h"
#include "runtime/optim/loss_scale.h"
#include "runtime_plan.h"

#include "runtime_params.h"
#include "runtime_run.h"

enum { N = 22 };
static float x[N * D], target[D * N], par[4][D];

/* ---- the rules ---- */

/* events: C a clean step, I one whose gradients are not finite; want: the scale after each. */
static int follows(const char *rule, int window, double initial, const char *events,
                   const double *want)
{
    LossScale s;
    int good = loss_scale_of(&s, rule, window, initial) == PP_OK;
    for (int i = 0; events[i]; i++) {
        loss_scale_step(&s, events[i] == 'I');
        good &= s.scale == want[i];
    }
    return good;
}

static void rules(void)
{
    LossScale s;
    /* torch.amp.GradScaler(growth_interval=3) */
    ok(follows("dynamic", 3, 0, "CCCICCCC",
               (const double[]){65536, 65536, 131072, 65536, 65536, 65536, 131072, 131072}),
       "dynamic: PyTorch's sequence");
    /* DynamicGradScaler(growth_interval=3, hysteresis=2): the tracker is filled when it grows */
    ok(follows("megatron", 3, 0, "ICIICCCII",
               (const double[]){0x1p32, 0x1p32, 0x1p31, 0x1p30, 0x1p30, 0x1p30, 0x1p31, 0x1p31,
                                0x1p30}),
       "megatron: its own");
    ok(follows("megatron", 3, 2, "IIIII", (const double[]){2, 1, 1, 1, 1}),
       "megatron: not below 1");
    ok(follows("dynamic", 1, 0x1p126, "CCI", (const double[]){0x1p127, 0x1p127, 0x1p126}),
       "no scale that float32 does not hold");
    ok(follows("1024", 0, 0, "CICC", (const double[]){1024, 1024, 1024, 1024}),
       "a number stays what it is");
    static const double defaults[][2] = {{65536, 2000}, {0x1p32, 1000}};
    int good = 1;
    for (int k = 0; k < 2; k++)
        good &= loss_scale_of(&s, k ? "megatron" : "dynamic", 0, 0) == PP_OK &&
                s.scale == defaults[k][0] && s.window == (int)defaults[k][1];
    ok(good, "the defaults of both");
}

/* ---- stages that look at their half copies ---- */

/* Runs the stage's forward when every copy is what its parameter rounds to; else its outputs are
 * NaN, and the run ends. */
static void checked(const PpCtx *c, const PpStage *st, void (*forward)(const PpCtx *))
{
    int wrong = 0;
    for (int k = 0; k < st->n_param; k++) {
        const float *p = (const float *)(void *)(c->param + st->param[k].offset);
        const uint16_t *h = (const uint16_t *)(void *)(c->half + st->param[k].half_offset);
        for (int i = 0; i < D; i++)
            wrong |= h[i] != (st->half_type == PP_BF16 ? pp_to_bf16(p[i]) : pp_to_f16(p[i]));
    }
    forward(c);
    for (int o = 0; o < st->n_output && wrong; o++)
        for (int64_t i = 0; i < (st->output[o].t.rank ? c->rows * D : 1); i++)
            ((float *)c->out[o])[i] = NAN;
}

/* The last stage's gradients overflow where the loss is multiplied by more than this. */
static float bears = INFINITY;
static PpStage half_stage[3];
static PpParam half_param[3][2];
static void (*plain_forward[3])(const PpCtx *), (*plain_weight[3])(const PpCtx *);

static void forward_0(const PpCtx *c) { checked(c, &half_stage[0], plain_forward[0]); }
static void forward_1(const PpCtx *c) { checked(c, &half_stage[1], plain_forward[1]); }
static void forward_2(const PpCtx *c) { checked(c, &half_stage[2], plain_forward[2]); }

/* Of stage 1 alone: other ranks have to hear of it. */
static void overflowing(const PpCtx *c)
{
    const float *dy = c->dy[0];
    float most = 0;
    plain_weight[1](c);
    for (int64_t i = 0; i < c->rows * D; i++)
        most = fmaxf(most, fabsf(dy[i]));
    if (most > bears)
        *(float *)(void *)c->grad = INFINITY;
}

/* The pipeline of three stages, its parameters copied in half, w in both of its stages. */
static PpPlan half_plan(int replicate, int type)
{
    static void (*const forward[])(const PpCtx *) = {forward_0, forward_1, forward_2};
    static const PpStage *const stages[] = {&half_stage[0], &half_stage[1], &half_stage[2]};
    PpPlan plan = plans[replicate];
    for (int s = 0; s < 3; s++) {
        PpStage *st = &half_stage[s];
        *st = *plan.stage[s];
        for (int k = 0; k < st->n_param; k++) {
            half_param[s][k] = st->param[k];
            half_param[s][k].half_offset = 64 * k;
        }
        st->param = half_param[s];
        st->half_type = type;
        st->bytes.half = 64 * st->n_param;
        plain_forward[s] = st->call.forward;
        st->call.forward = forward[s];
    }
    plain_weight[1] = half_stage[1].call.backward;
    half_stage[1].call.backward = overflowing;
    plan.stage = stages;
    return plan;
}

static void clear(const char *dir)
{
    char text[700];
    snprintf(text, sizeof text, "rm -rf %s", dir);
    if (system(text))
        printf("# %s stays\n", dir);
}

static int train(const PpPlan *p, const char *ranks, const char *schedule, const char *steps,
                 const char *option, const char *value, const char *checkpoint)
{
    char data_x[500], data_t[500];
    clear(checkpoint);
    snprintf(data_x, sizeof data_x, "x=%s", at("x.npy"));
    snprintf(data_t, sizeof data_t, "target=%s", at("t.npy"));
    return command(p, "train", "--data", data_x, "--data", data_t, "--params", at("params"),
                   "--optimizer", "adamw", "--lr", "0.02", "--ranks", ranks, "--schedule", schedule,
                   "--steps", steps, "--checkpoint", checkpoint, "--log-json", at("log"), option,
                   value, NULL);
}

/* Parameters and gradients of two runs: the same bits? */
static int same_file(const char *a, const char *b, const char *name)
{
    char path[2][700], text[20000];
    snprintf(path[0], sizeof path[0], "%s/%s", a, name);
    snprintf(path[1], sizeof path[1], "%s/%s", b, name);
    snprintf(text, sizeof text, "cmp -s %s %s", path[0], path[1]);
    return system(text) == 0;
}

/* A tensor of a checkpoint of any number of ranks; 0: it is not there. */
static int saved(const char *dir, const char *name, float *to)
{
    int found = 0;
    for (int rank = 0; rank < 3 && !found; rank++) {
        char path[700], err[ST_ERR];
        StFile f = {0};
        snprintf(path, sizeof path, "%s/rank%d.safetensors", dir, rank);
        if (st_open(&f, path, err, sizeof err))
            continue;
        const StTensor *t = st_find(&f, name);
        found = t && t->bytes == D * 4;
        if (found)
            memcpy(to, t->data, D * 4);
        st_close(&f);
    }
    return found;
}

static int same_parameters(const char *a, const char *b)
{
    static const char *const prefix[] = {"", "optimizer/exp_avg/", "optimizer/exp_avg_sq/"};
    static const char *const name[] = {"a", "w", "b"};
    int same = 1;
    for (int i = 0; i < 9; i++) {
        char key[64];
        float x0[D], x1[D];
        snprintf(key, sizeof key, "%s%s", prefix[i / 3], name[i % 3]);
        same &= saved(a, key, x0) && saved(b, key, x1) && !memcmp(x0, x1, sizeof x0);
    }
    return same;
}

static void copies(void)
{
    static const char *const run[][2] = {{"1", "gpipe"}, {"3", "1f1b"}, {"3", "zb-h1"}};
    for (int type = 0; type < 2; type++)
        for (int k = 0; k < 6; k++) {
            PpPlan p = half_plan(k % 2, type ? PP_BF16 : PP_F16);
            write_params(&p, at("params"), par);
            int s = train(&p, run[k / 2][0], run[k / 2][1], "4", "--loss-scale", "1", at("copies"));
            char *out = slurp(at("out")), *memory = strstr(out, ", half copies ");
            long bytes = 0, want = k / 2 ? 128 : 256;
            if (memory)
                bytes = strtol(memory + 14, NULL, 10);
            ok(s == 0 && bytes == want,
               "%s, %s ranks, %s: copies are up to date, %ld bytes of rank 0",
               type ? "bf16" : "f16", run[k / 2][0], k % 2 ? "replicate" : "transmit", bytes);
            if (s)
                printf("# exit %d: %s", s, slurp(at("err")));
            ok(!strncmp(out, type ? "products of bf16: " : "products of f16: ", 16 + (size_t)type),
               "the first line says how products are computed");
        }
}

/* Of parameters that another replica has updated. */
static void divided_copies(void)
{
    for (int i = 0; i < 4; i++) {
        int k = i / 2, zero = i % 2 ? 3 : 1;
        PpPlan p = half_plan(k, PP_BF16);
        write_params(&p, at("params"), par);
        int s = command_line(&p,
                             "train --data x=%s --data target=%s --params %s --optimizer adamw "
                             "--lr 0.02 --loss-scale 1 --steps 4 --dp 2 --zero %d",
                             at("x.npy"), at("t.npy"), at("params"), zero);
        ok(s == 0, "--zero %d, %s: copies are up to date", zero, k ? "replicate" : "transmit");
        if (s)
            printf("# exit %d: %s", s, slurp(at("err")));
    }
}

/* ---- scaled runs ---- */

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, what)) != NULL; p++)
        n++;
    return n;
}

/* In the middle of a window, after a step was skipped; stops at step 3, goes on to 7. */
static void resumed(const PpPlan *p)
{
    char data_x[500], data_t[500], whole[400], parts[400], last[2][400];
    int s = 0;
    snprintf(data_x, sizeof data_x, "x=%s", at("x.npy"));
    snprintf(data_t, sizeof data_t, "target=%s", at("t.npy"));
    for (int k = 0; k < 3; k++) {
        if (k < 2)
            clear(at(k ? "parts" : "whole"));
        s |= command(p, "train", "--data", data_x, "--data", data_t, "--optimizer", "adamw", "--lr",
                     "0.02", "--ranks", k == 2 ? "3" : "1", "--steps", k == 1 ? "3" : "7",
                     "--log-json", at("log"), k == 2 ? "--resume" : "--params",
                     at(k == 2 ? "parts" : "params"), "--loss-scale-window", "2", "--checkpoint",
                     at(k ? "parts" : "whole"), NULL);
        if (k == 1)
            continue;
        const char *line = strstr(slurp(at("log")), "{\"step\": 7,"),
                   *end = line ? strstr(line, ", \"seconds\"") : NULL;
        snprintf(last[k / 2], sizeof last[0], "%.*s", end ? (int)(end - line) : 0,
                 line ? line : "");
    }
    snprintf(whole, sizeof whole, "%s/step_7", at("whole"));
    snprintf(parts, sizeof parts, "%s/step_7", at("parts"));
    ok(s == 0 && !strcmp(last[0], last[1]) && last[0][0] && same_parameters(whole, parts),
       "a resumed run has the scale, its counts and the bits of one that was not stopped");
}

static void scaled(void)
{
    char plain[400], other[400];
    PpPlan p = half_plan(0, PP_BF16);
    write_params(&p, at("params"), par);
    snprintf(plain, sizeof plain, "%s/step_3", at("plain"));
    snprintf(other, sizeof other, "%s/step_3", at("other"));
    int s = train(&p, "1", "gpipe", "3", "--dump-grads", at("g1"), at("plain"));
    char *log = strdup(slurp(at("log")));
    double loss = field(log, "\"loss\""), norm = field(log, "\"grad_norm\"");
    ok(s == 0 && !strstr(log, "loss_scale"), "bf16: no scale by default");
    free(log);
    char grads[400], scaled_grads[400];
    snprintf(grads, sizeof grads, "%s", at("g1"));
    snprintf(scaled_grads, sizeof scaled_grads, "%s", at("g2"));
    char data_x[500], data_t[500];
    snprintf(data_x, sizeof data_x, "x=%s", at("x.npy"));
    snprintf(data_t, sizeof data_t, "target=%s", at("t.npy"));
    clear(at("other"));
    s = command(&p, "train", "--data", data_x, "--data", data_t, "--params", at("params"),
                "--optimizer", "adamw", "--lr", "0.02", "--ranks", "3", "--schedule", "1f1b",
                "--steps", "3", "--checkpoint", at("other"), "--log-json", at("log"),
                "--loss-scale", "16384", "--dump-grads", scaled_grads, NULL);
    log = slurp(at("log"));
    ok(s == 0 && field(log, "\"loss\"") == loss && field(log, "\"grad_norm\"") == norm &&
           field(log, "\"loss_scale\"") == 16384,
       "a scale changes no bit of the loss and of the norm");
    ok(same_parameters(plain, other) && same_file(grads, scaled_grads, "stage0.safetensors") &&
           same_file(grads, scaled_grads, "stage1.safetensors"),
       "nor of the dumped gradients, the parameters and the moments");
    s = train(&p, "1", "gpipe", "1", "--loss-scale", "3", at("other"));
    ok(s == 2 && strstr(slurp(at("err")), "power of two"), "a scale that rounds is refused");

    /* f16 scales by itself; stage 1 bears what a scale of 2^14 makes of its gradients, so 2 steps
       are skipped: the parameters are those of a run of as many steps less */
    p = half_plan(0, PP_F16);
    s = train(&p, "1", "gpipe", "3", "--quiet", NULL, at("plain"));
    log = slurp(at("log"));
    ok(s == 0 && count(log, "\"loss_scale\": 65536") == 3 && count(log, "\"skipped\": false") == 3,
       "f16: dynamic by default");
    bears = 0x1p9f;
    static const char *const run[][2] = {{"1", "gpipe"}, {"3", "1f1b"}, {"3", "zb-h2"}};
    for (int k = 0; k < 2; k++) {
        s = train(&p, run[k][0], run[k][1], "5", "--loss-scale", "dynamic", at("other"));
        log = slurp(at("log"));
        int skipped = count(log, "\"skipped\": true");
        double last = 0;
        for (const char *q = log; (q = strstr(q, "\"loss_scale\"")) != NULL; q++)
            last = field(q, "\"loss_scale\"");
        ok(s == 0 && skipped == 2 && last == 16384 && strstr(slurp(at("out")), " skipped "),
           "%s ranks: what one rank's gradients do not bear is skipped by all, scale %g", run[k][0],
           last);
        if (s)
            printf("# exit %d: %s%s", s, slurp(at("err")), log);
        snprintf(other, sizeof other, "%s/step_5", at("other"));
        ok(same_parameters(plain, other), "parameters, moments and their step stayed as they were");
    }
    resumed(&p);
    bears = 0;
    s = train(&p, "3", "1f1b", "60", "--loss-scale", "megatron", at("never"));
    ok(s == 4 && strstr(slurp(at("err")), "the gradient's norm is inf") &&
           count(slurp(at("log")), "\"skipped\": true") == 33,
       "gradients that are never finite end the run when the scale is at its least");
    s = train(&p, "3", "1f1b", "5", "--loss-scale", "1024", at("never"));
    ok(s == 4, "a fixed scale skips nothing");
    bears = INFINITY;
}

/* ---- data of half types ---- */

/* y = the sum over rows and columns of x, a single number of a half type: what microbatches yield
 * is added in float32. */
static int data_type;

static float read_half(uint16_t h)
{
    return data_type == PP_BF16 ? pp_from_bf16(h) : pp_from_f16(h);
}

static uint16_t write_half(float v) { return data_type == PP_BF16 ? pp_to_bf16(v) : pp_to_f16(v); }

static void sum_rows(const PpCtx *c)
{
    const uint16_t *from = c->in[0];
    float sum = 0;
    for (int64_t i = 0; i < c->rows * D; i++)
        sum += read_half(from[i]);
    *(uint16_t *)c->out[0] = write_half(sum);
}

static void half_data(void)
{
    PpTensor in = ROW_TENSOR("x"), out = SCALAR("y");
    static const int merge[] = {PP_MERGE_SUM};
    uint16_t rows[N * D];
    for (int k = 0; k < 2; k++) {
        char err[ST_ERR], input[500], output[500];
        data_type = k ? PP_BF16 : PP_F16;
        in.dtype = out.dtype = data_type;
        in.bytes = ROWS * D * 2, out.bytes = 2;
        PpInput inputs[] = {{.t = in, .from = -1}};
        PpOutput outputs[] = {{.t = out}};
        PpStage stage = {.label = "sum", .n_input = 1, .n_output = 1, .input = inputs,
                         .output = outputs, .call.infer = sum_rows};
        const PpStage *stages[] = {&stage};
        PpPlan p = {.model = "a sum", .rows = ROWS, .uneven.ok = 1, .n_stage = 1, .n_input = 1,
                    .n_output = 1, .stage = stages, .input = &in, .output = &out,
                    .output_merge = merge, .loss.stage = -1, .loss.output = -1, .loss.target = -1};
        /* chunks of 12 numbers: the first sums to 256 (f16: 2048), the others to 1 or less, which a
           sum in the type itself would never see */
        const float large = k ? 256 : 2048;
        double exact = 0;
        for (int i = 0; i < N * D; i++) {
            rows[i] = write_half(i == 0 ? large : i < 12 ? 0 : 0.0625f);
            exact += (double)read_half(rows[i]);
        }
        npy_write(at("h.npy"), data_type, 2, (int64_t[]){N, D}, rows, err, sizeof err);
        snprintf(input, sizeof input, "x=%s", at("h.npy"));
        snprintf(output, sizeof output, "y=%s", at("hy.npy"));
        int status;
        for (int dp = 1; dp < 3; dp++) {
            status = command(&p, "infer", "--data", input, "--output", output, "--batch", "22",
                             "--microbatches", dp == 1 ? "6" : "3", "--dp", dp == 1 ? "1" : "2",
                             NULL);
            NpyFile f = {0};
            uint16_t got = 0;
            if (!npy_open(&f, at("hy.npy"), err, sizeof err) && f.bytes == 2)
                memcpy(&got, f.data, 2);
            ok(status == 0 && f.dtype == data_type && got == write_half((float)exact),
               "%s, %d replicas: rows are read, a number is summed over microbatches and written",
               k ? "bf16" : "f16", dp);
            if (status)
                printf("# exit %d: %s", status, slurp(at("err")));
            npy_close(&f);
        }
        snprintf(input, sizeof input, "x=%s", at("x.npy"));
        status = command(&p, "infer", "--data", input, NULL);
        ok(status == 1 && strstr(slurp(at("err")), k ? "float32, the model wants bfloat16"
                                                      : "float32, the model wants float16"),
           "%s: rows of float32 are refused", k ? "bf16" : "f16");
    }
}

int main(void)
{
    char err[ST_ERR];
    make_folder();
    uint32_t state = 7;
    float *all[] = {x, target, par[0]};
    int numbers[] = {N * D, N * D, 4 * D};
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < numbers[k]; i++) {
            state = state * 1664525u + 1013904223u;
            all[k][i] = (float)(state >> 8) / 16777216.0f + 0.25f;
        }
    npy_write(at("x.npy"), PP_F32, 2, (int64_t[]){N, D}, x, err, sizeof err);
    npy_write(at("t.npy"), PP_F32, 2, (int64_t[]){D, N}, target, err, sizeof err);
    rules();
    copies();
    divided_copies();
    scaled();
    half_data();
    remove_folder();
    printf("1..%d\n", number);
    return failed;
}
