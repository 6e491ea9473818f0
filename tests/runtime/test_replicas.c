/*
 * test_replicas.c - replicas of a pipeline written by hand (runtime_plan.h): the gradients of all
 * rows, however they are divided, the same bits in each replica; training, inference, evaluation
 * and --until.
 */
#include "runtime_plan.h"

#include "base/file/npy.h"
#include "runtime_params.h"
#include "runtime_reference.h"
#include "runtime_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Gradients of a run over these rows alone, of a loss that is a sum. */
static int group_gradients(const PpPlan *p, int from, int end, float g[4][D])
{
    static const char *const names[] = {"a", "w", "b", "c"};
    static const int home[] = {0, 0, 1, 2};
    int64_t x_shape[] = {end - from, D}, t_shape[] = {D, end - from};
    float part[N * D];
    char err[ST_ERR], data_x[500], data_t[500], microbatches[20];
    for (int d = 0; d < D; d++)
        memcpy(part + d * (end - from), target + d * N + from, (size_t)(end - from) * sizeof *part);
    if (npy_write(at("px.npy"), PP_F32, 2, x_shape, x + from * D, err, sizeof err) ||
        npy_write(at("pt.npy"), PP_F32, 2, t_shape, part, err, sizeof err))
        return 0;
    snprintf(data_x, sizeof data_x, "x=%s", at("px.npy"));
    snprintf(data_t, sizeof data_t, "target=%s", at("pt.npy"));
    snprintf(microbatches, sizeof microbatches, "%d", end - from > 8 ? 3 : 2);
    int good = command(p, "train", "--data", data_x, "--data", data_t, "--ranks", "1", "--params",
                       at("params"), "--microbatches", microbatches, "--dump-grads", at("grads"),
                       "--lr", "0", NULL) == 0;
    for (int j = 0; j < p->n_stage && good; j++) {
        StFile f = {0};
        const float *got = tensor(&f, at("grads"), home[j], names[j]);
        good = got != NULL;
        if (good)
            memcpy(g[j], got, sizeof g[j]);
        st_close(&f);
    }
    return good;
}

/* dp replicas have the bits of as many runs whose gradients are added in order; the rows do not
 * divide evenly. */
static void replicas(int which, const char *dp, const char *const *ranks, const char *const *how)
{
    static const char *const names[] = {"a", "w", "b", "c"};
    static const int home[] = {0, 0, 1, 2};
    PpPlan p = plans[which];
    int d = atoi(dp), good = 1;
    float sum[4][D], part[4][D];
    char data_x[500], data_t[500], out[500];
    p.loss.kind = PP_LOSS_SUM;
    write_params(&p, at("params"), par);
    for (int k = 0, from = 0; k < d && good; k++) {
        int end = from + N / d + (k < N % d);
        good = group_gradients(&p, from, end, part);
        for (int i = 0; i < p.n_stage * D; i++)
            sum[i / D][i % D] = k ? sum[i / D][i % D] + part[i / D][i % D] : part[i / D][i % D];
        from = end;
    }
    ok(good, "%s groups, %d stages, %s: one after the other", dp, p.n_stage,
       which % 2 ? "replicate" : "transmit");
    snprintf(data_x, sizeof data_x, "x=%s", at("x.npy"));
    snprintf(data_t, sizeof data_t, "target=%s", at("t.npy"));
    snprintf(out, sizeof out, "y=%s", at("y.npy"));
    for (int i = 0; ranks[i]; i++) {
        int s = command(&p, "train", "--data", data_x, "--data", data_t, "--ranks", ranks[i],
                        "--dp", dp, "--schedule", how[i], "--params", at("params"), "--dump-grads",
                        at("grads"), "--lr", "0", "--output", out, NULL);
        good = s == 0;
        for (int j = 0; j < p.n_stage && good; j++) {
            StFile f = {0};
            const float *got = tensor(&f, at("grads"), home[j], names[j]);
            good = got && !memcmp(got, sum[j], sizeof sum[j]);
            st_close(&f);
            const float *copy = j == 1 ? tensor(&f, at("grads"), p.n_stage - 1, "w") : NULL;
            good &= !copy || !memcmp(copy, sum[1], sizeof sum[1]);
            if (j == 1)
                st_close(&f);
        }
        double g[4][D], y[N * D], pd[4][D];
        for (int k = 0; k < 4 * D; k++)
            pd[k / D][k % D] = (double)par[k / D][k % D];
        reference(p.n_stage, g, y, pd);
        NpyFile f = {0};
        char err[ST_ERR];
        good &= !npy_open(&f, at("y.npy"), err, sizeof err) && f.dim[0] == N &&
                near_all((const float *)(const void *)f.data, y, N * D);
        npy_close(&f);
        ok(good, "%s replicas, %s, %s ranks: their bits, and all rows in order", dp, how[i],
           ranks[i]);
        if (!good)
            printf("# exit %d: %s", s, slurp(at("err")));
    }
}

/* The mean over the whole minibatch, whatever a replica's share of it. */
static void replicated_training(void)
{
    const PpPlan *p = &plans[0];
    char data_x[500], data_t[500];
    double loss[3], norm[3];
    snprintf(data_x, sizeof data_x, "x=%s", at("x.npy"));
    snprintf(data_t, sizeof data_t, "target=%s", at("t.npy"));
    write_params(p, at("params"), par);
    static const char *const dp[] = {"1", "3"}, *const ranks[] = {"3", "9"};
    for (int i = 0; i < 2; i++) {
        int s = command(p, "train", "--data", data_x, "--data", data_t, "--params", at("params"),
                        "--optimizer", "adamw", "--lr", "0.02", "--steps", "5", "--ranks", ranks[i],
                        "--dp", dp[i], "--log-json", at("log"), "--checkpoint", at(dp[i]), NULL);
        const char *last = strstr(slurp(at("log")), "\"step\": 5");
        loss[i] = s == 0 && last ? field(last, "\"loss\"") : (double)NAN;
        norm[i] = s == 0 && last ? field(last, "\"grad_norm\"") : (double)NAN;
    }
    ok(fabs(loss[0] - loss[1]) < 1e-5 * loss[0] && fabs(norm[0] - norm[1]) < 1e-4 * norm[0],
       "five steps of 3 replicas: loss %.6f, of one %.6f", loss[1], loss[0]);
    int s = command(p, "train", "--data", data_x, "--data", data_t, "--dp", "2", "--ranks", "3",
                    NULL);
    ok(s == 2 && strstr(slurp(at("err")), "3 ranks cannot be divided"), "ranks that dp does not divide");
    s = command(p, "train", "--data", data_x, "--data", data_t, "--dp", "4", "--microbatches", "6",
                NULL);
    ok(s == 1 && strstr(slurp(at("err")), "only 5 rows in a replica"),
       "more microbatches than a replica has rows");
}

static int same_file(const char *a, const char *b)
{
    char one[400], other[400];
    NpyFile f = {0}, g = {0};
    char err[ST_ERR];
    snprintf(one, sizeof one, "%s", at(a));
    snprintf(other, sizeof other, "%s", at(b));
    int same = !npy_open(&f, one, err, sizeof err) && !npy_open(&g, other, err, sizeof err) &&
               f.bytes == g.bytes && !memcmp(f.data, g.data, (size_t)f.bytes);
    npy_close(&f);
    npy_close(&g);
    return same;
}

/* Rows divided in steps of 8, 8 and 6: of the last one the last replica has fewer. */
static void replicated_inference(void)
{
    const PpPlan *p = &plans[1];
    double loss[2] = {0, 0};
    int s = 0;
    write_params(p, at("params"), par);
    for (int i = 0; i < 2; i++) {
        const char *dp = i ? "--dp 3 --ranks 9 --microbatches 2" : "--dp 1 --microbatches 4";
        s |= command_line(p, "infer --data x=%s --params %s --batch 8 --output y=%s %s",
                          at("x.npy"), at("params"), at(i ? "y3.npy" : "y1.npy"), dp);
        s |= command_line(p, "eval --data x=%s --data target=%s --params %s --batch 8 %s",
                          at("x.npy"), at("t.npy"), at("params"), dp);
        const char *mean = strstr(slurp(at("out")), "mean loss ");
        loss[i] = mean && strstr(mean, "over 22 rows") ? strtod(mean + 10, NULL) : (double)NAN;
    }
    ok(s == 0 && same_file("y1.npy", "y3.npy"), "infer, three replicas: all rows in order");
    ok(s == 0 && fabs(loss[0] - loss[1]) < 2e-6, "eval: the mean over all rows, %.6f", loss[1]);
    if (s)
        printf("# %s", slurp(at("err")));
}

/* Between steps, as a checkpoint's is. */
static void replicated_evaluation(void)
{
    const PpPlan *p = &plans[1];
    double loss[2] = {0, 1};
    write_params(p, at("params"), par);
    int s = command_line(p, "train --data x=%s --data target=%s --eval-data x=%s --eval-data "
                            "target=%s --params %s --batch 14 --steps 2 --lr 0.01 --dp 2 "
                            "--checkpoint %s --log-json %s", at("x.npy"), at("t.npy"), at("x.npy"),
                         at("t.npy"), at("params"), at("dp"), at("log"));
    const char *line = strstr(slurp(at("log")), "{\"eval_loss\"");
    loss[0] = line ? field(line, "\"eval_loss\"") : (double)NAN;
    s |= command_line(p, "eval --data x=%s --data target=%s --params %s --batch 14 --dp 2 "
                         "--log-json %s", at("x.npy"), at("t.npy"), at("dp"), at("log"));
    line = strstr(slurp(at("log")), "\"mean_loss\"");
    loss[1] = line ? field(line, "\"mean_loss\"") : (double)NAN;
    ok(s == 0 && loss[0] == loss[1], "two replicas, --eval-data: %.17g", loss[0]);
    if (s || loss[0] != loss[1])
        printf("# %.17g %s", loss[1], slurp(at("err")));
}

/* Replicas stop at the same action: replica 0's gradients are those of its rows alone. */
static void replicated_until(void)
{
    PpPlan p = plans[0];
    char err[ST_ERR];
    float some[D * N];
    static const char *const action[] = {"1B1", "0B2", "0REDUCE_GRAD", "2WAIT_REDUCE_GRAD"};
    p.loss.kind = PP_LOSS_SUM;
    write_params(&p, at("params"), par);
    for (int d = 0; d < D; d++)
        memcpy(some + d * N / 2, target + d * N, N / 2 * sizeof *some);
    npy_write(at("px.npy"), PP_F32, 2, (int64_t[]){N / 2, D}, x, err, sizeof err);
    npy_write(at("pt.npy"), PP_F32, 2, (int64_t[]){D, N / 2}, some, err, sizeof err);
    for (int k = 0; k < 4; k++) {
        int s = command_line(&p, "train --data x=%s --data target=%s --params %s --microbatches 3 "
                                 "--until %s --dump-grads %s", at("px.npy"), at("pt.npy"),
                             at("params"), k == 3 ? "0WAIT_REDUCE_GRAD" : action[k], at("one"));
        s |= command_line(&p, "train --data x=%s --data target=%s --params %s --microbatches 3 "
                              "--until %s --dump-grads %s --dp 2", at("x.npy"), at("t.npy"),
                          at("params"), action[k], at("two"));
        int good = s == 0 && strstr(slurp(at("out")), "each of 2 replicas alike");
        for (int j = 0; j < 3 && good && k < 3; j++) {
            static const char *const names[] = {"a", "b"};
            StFile f = {0}, g = {0};
            const float *a = j < 2 ? tensor(&f, at("one"), j, names[j]) : NULL,
                        *b = j < 2 ? tensor(&g, at("two"), j, names[j]) : NULL;
            good = j == 2 || (a && b && !memcmp(a, b, D * sizeof *a));
            st_close(&f);
            st_close(&g);
        }
        ok(good, "two replicas until %s", action[k]);
        if (!good)
            printf("# exit %d: %s%s", s, slurp(at("err")), slurp(at("out")));
    }
}

int main(void)
{
    char err[ST_ERR];
    make_folder();
    fill(x, N * D, 7), fill(target, N * D, 8), fill(par[0], 4 * D, 9);
    int64_t ints[N * D] = {0};
    npy_write(at("x.npy"), PP_F32, 2, (int64_t[]){N, D}, x, err, sizeof err);
    npy_write(at("t.npy"), PP_F32, 2, (int64_t[]){D, N}, target, err, sizeof err);
    npy_write(at("i.npy"), PP_I64, 2, (int64_t[]){N, D}, ints, err, sizeof err);
    static const char *const ranks[] = {"6", "6", "2", "6", NULL},
                      *const how[] = {"gpipe", "1f1b", "gpipe", "zb-h1", NULL},
                      *const ranks3[] = {"9", "3", NULL}, *const how3[] = {"1f1b", "gpipe", NULL},
                      *const ranks4[] = {"4", "8", NULL},
                      *const how4[] = {"zbvzerobubble", "1f1b", NULL};
    replicas(0, "2", ranks, how);
    replicas(1, "2", ranks, how);
    replicas(1, "3", ranks3, how3);
    replicas(3, "2", ranks4, how4);
    replicated_training();
    replicated_inference();
    replicated_evaluation();
    replicated_until();
    remove_folder();
    printf("1..%d\n", number);
    return failed;
}
