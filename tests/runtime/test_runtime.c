/* The runtime on a pipeline written by hand (runtime_plan.h), called as `out/pipeline` would be:
   every schedule and number of ranks gives the gradients that a plain double loop gives, and the
   same bits; training, checkpoints and inference follow. */
#include "runtime_plan.h"

#include "base/file/index.h"
#include "base/file/npy.h"
#include "core/core.h"
#include "io/store.h"
#include "net/group.h"
#include "runtime_params.h"
#include "runtime_reference.h"
#include "runtime_run.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const float *indexed(Index *from, const char *name)
{
    char err[INDEX_ERR];
    const IndexTensor *t = index_find(from, name);
    return t ? index_bytes(from, t, err, sizeof err) : NULL;
}

static void schedules(int which)
{
    static const struct {
        const char *schedule, *ranks;
        int stages;
    } run[] = {
        {"gpipe", "3", 3},           {"1f1b", "3", 3},      {"gpipe", "1", 3},
        {"zb-h1", "3", 3},           {"gpipe", "4", 4},     {"1f1b", "4", 4},
        {"interleaved1f1b", "2", 4}, {"loopedbfs", "2", 4}, {"interleavedzerobubble", "2", 4},
        {"zbvzerobubble", "2", 4},   {"dualpipev", "2", 4}, {"zb-h2", "4", 4},
    };
    const PpPlan *p = &plans[which];
    static const char *const names[] = {"a", "w", "b", "c"};
    static const int home[] = {0, 0, 1, 2};
    double g[4][D], y[N * D], pd[4][D];
    float first[4][D], first_y[N * D];
    int have = 0;
    for (int i = 0; i < 4 * D; i++)
        pd[i / D][i % D] = (double)par[i / D][i % D];
    double loss = reference(p->n_stage, g, y, pd), norm = 0;
    for (int i = 0; i < p->n_stage * D; i++)
        norm += g[i / D][i % D] * g[i / D][i % D];
    write_params(p, at("params"), par);
    for (unsigned k = 0; k < sizeof run / sizeof *run; k++) {
        if (run[k].stages != p->n_stage)
            continue;
        char data_x[500], data_t[500], out[500];
        snprintf(data_x, sizeof data_x, "x=%s", at("x.npy"));
        snprintf(data_t, sizeof data_t, "target=%s", at("t.npy"));
        snprintf(out, sizeof out, "y=%s", at("y.npy"));
        int s = command(p, "train", "--data", data_x, "--data", data_t, "--ranks", run[k].ranks,
                        "--schedule", run[k].schedule, "--params", at("params"), "--microbatches",
                        "6", "--dump-grads", at("grads"), "--log-json", at("log"), "--lr", "0",
                        "--output", out, NULL);
        int good = s == 0, same = 1;
        for (int j = 0; j < p->n_stage && good; j++) {
            StFile f = {0};
            const float *got = tensor(&f, at("grads"), home[j], names[j]);
            good &= near_all(got, g[j], D);
            if (good && !have)
                memcpy(first[j], got, D * 4);
            same &= good && !memcmp(first[j], got, D * 4);
            st_close(&f);
            if (j == 1) {
                const float *copy = tensor(&f, at("grads"), p->n_stage - 1, "w");
                good &= which % 2 ? copy && near_all(copy, g[1], D) : !copy;
                same &= !copy || !memcmp(copy, first[1], D * 4);
                st_close(&f);
            }
        }
        const char *log = slurp(at("log"));
        good &= fabs(field(log, "\"loss\"") - loss) < 1e-5 * loss &&
                fabs(field(log, "\"grad_norm\"") - sqrt(norm)) < 1e-5 * sqrt(norm);
        NpyFile f = {0};
        char err[ST_ERR];
        good &= !npy_open(&f, at("y.npy"), err, sizeof err) && f.dim[0] == N &&
                near_all((const float *)(const void *)f.data, y, N * D);
        if (good && !have)
            memcpy(first_y, f.data, sizeof first_y);
        same &= good && !memcmp(first_y, f.data, sizeof first_y);
        npy_close(&f);
        have |= good;
        /* its backward visits microbatches in another order */
        int looped = !strcmp(run[k].schedule, "loopedbfs");
        ok(good && (same || looped), "%s on %s ranks, %d stages, %s", run[k].schedule, run[k].ranks,
           p->n_stage, which % 2 ? "replicate" : "transmit");
        if (!good)
            printf("# exit %d: %s", s, slurp(at("err")));
    }
}


static void training(void)
{
    const PpPlan *p = &plans[1];
    char data_x[500], data_t[500], out[500];
    snprintf(data_x, sizeof data_x, "x=%s", at("x.npy"));
    snprintf(data_t, sizeof data_t, "target=%s", at("t.npy"));
    snprintf(out, sizeof out, "y=%s", at("y.npy"));
    write_params(p, at("params"), par);
    /* AdamW by the book, in double */
    double pd[4][D], m[3][D] = {{0}}, v[3][D] = {{0}}, g[4][D], y[N * D], loss = 0;
    for (int i = 0; i < 4 * D; i++)
        pd[i / D][i % D] = (double)par[i / D][i % D];
    for (int t = 1; t <= 5; t++) {
        loss = reference(3, g, y, pd);
        double norm = 0;
        for (int i = 0; i < 3 * D; i++)
            norm += g[i / D][i % D] * g[i / D][i % D];
        double clip = 0.5 / (sqrt(norm) + 1e-6);
        for (int i = 0; i < 3 * D; i++) {
            double *q = &pd[i / D][i % D], *mi = &m[i / D][i % D], *vi = &v[i / D][i % D],
                   gi = g[i / D][i % D] * (clip < 1 ? clip : 1);
            *q *= 1 - 0.02 * 0.01;
            *mi = 0.9 * *mi + 0.1 * gi;
            *vi = 0.999 * *vi + 0.001 * gi * gi;
            *q -= 0.02 / (1 - pow(0.9, t)) * *mi / (sqrt(*vi) / sqrt(1 - pow(0.999, t)) + 1e-8);
        }
    }
    int s = command(p, "train", "--data", data_x, "--data", data_t, "--params", at("params"),
                    "--optimizer", "adamw", "--lr", "0.02", "--clip-norm", "0.5", "--steps", "5",
                    "--checkpoint", at("ckpt"), NULL);
    char *text = slurp(at("out"));
    const char *last = strstr(text, "step 5/5 loss ");
    ok(s == 0 && last && fabs(strtod(last + 14, NULL) - loss) < 1e-5 &&
           strstr(text, "rank 0 memory: "),
       "five steps of adamw with clipping: loss %.4f", loss);
    if (s)
        printf("# exit %d: %s", s, text);
    char err[INDEX_ERR], name[400];
    Index index;
    StFile file;
    ok(!index_open(&index, at("ckpt/step_5"), err, sizeof err) && index.step == 5 &&
           !strcmp(index_option(&index, "clip-norm"), "0.5") &&
           !strcmp(index_state(&index, "rows"), "110") &&
           access(at("ckpt/step_5.tmp"), F_OK) != 0,
       "the checkpoint can be opened, nothing temporary is left");
    ok(near_all(indexed(&index, "a"), pd[0], D) && near_all(indexed(&index, "w"), pd[1], D),
       "it holds the parameters, the replicated one once");
    ok(near_all(indexed(&index, "optimizer/exp_avg/a"), m[0], D) &&
           near_all(indexed(&index, "optimizer/exp_avg_sq/w"), v[1], D),
       "and the optimizer's state");
    const IndexTensor *w = index_find(&index, "w");
    snprintf(name, sizeof name, "ckpt/step_5/%s", w ? index.file[w->piece[0].file].name : "");
    const float *w_file = !st_open(&file, at(name), err, sizeof err)
                              ? (const float *)(const void *)st_find(&file, "w")->data
                              : NULL;
    ok(w_file && !memcmp(w_file, indexed(&index, "w"), D * 4), "its files are safetensors");
    st_close(&file);
    index_close(&index);
    double final = reference(3, g, y, pd);
    s = command(p, "eval", "--data", data_x, "--data", data_t, "--params", at("ckpt/step_5"),
                "--ranks", "2", "--schedule", "gpipe", "--log-json", at("log"), NULL);
    ok(s == 0 && fabs(field(slurp(at("log")), "\"loss\"") - final) < 1e-5 * final,
       "eval from the checkpoint");
    s = command(p, "infer", "--data", data_x, "--params", at("ckpt/step_5"), "--output", out,
                "--batch", "5", NULL);
    NpyFile f = {0};
    ok(s == 0 && !npy_open(&f, at("y.npy"), err, sizeof err) && f.dim[0] == N &&
           near_all((const float *)(const void *)f.data, y, N * D),
       "infer needs no target; rows of all steps in order, the last step a smaller one");
    npy_close(&f);
}

static void refusals(void)
{
    static const struct {
        const char *what, *args[8];
        int status;
        const char *says;
    } bad[] = {
        {"an unknown option",
         {"train", "--mikrobatches", "3"},
         2,
         "did you mean '--microbatches'?"},
        {"a missing input", {"train", "--data", "x=@x.npy"}, 2, "input 'target' is missing"},
        {"an input the model lacks", {"train", "--data", "xx=@x.npy"}, 2, "did you mean 'x'?"},
        {"a wrong shape",
         {"train", "--data", "x=@t.npy"},
         1,
         "shape [3, 22], the model wants [rows, 3]"},
        {"a wrong dtype", {"train", "--data", "x=@i.npy"}, 1, "int64, the model wants float32"},
        {"too few rows",
         {"train", "--data", "x=@x.npy", "--data", "target=@t.npy", "--batch", "23"},
         1,
         "too few rows"},
        {"too large microbatches",
         {"train", "--data", "x=@x.npy", "--data", "target=@t.npy", "--microbatches", "5"},
         1,
         "give --microbatches 6 or more"},
        {"too many ranks",
         {"train", "--data", "x=@x.npy", "--data", "target=@t.npy", "--ranks", "9"},
         1,
         "9 ranks are more"},
        {"a schedule that is none",
         {"train", "--data", "x=@x.npy", "--data", "target=@t.npy", "--schedule", "gpip"},
         -1,
         "gpip"},
        {"a file that is none", {"train", "--data", "x=@nothing.npy"}, 3, "No such file"},
    };
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        char arg[8][500] = {{0}};
        for (int k = 0; k < 8 && bad[i].args[k]; k++) {
            const char *from = strchr(bad[i].args[k], '@');
            if (from)
                snprintf(arg[k], sizeof arg[k], "%.*s%s", (int)(from - bad[i].args[k]),
                         bad[i].args[k], at(from + 1));
            else
                snprintf(arg[k], sizeof arg[k], "%s", bad[i].args[k]);
        }
#define ARG(k) (arg[k][0] ? arg[k] : NULL)
        int s = command(&plans[0], arg[0], ARG(1), ARG(2), ARG(3), ARG(4), ARG(5), ARG(6), ARG(7),
                        NULL);
        const char *text = slurp(at("err"));
        const char *end = strchr(text, '\n');
        /* a wrong use may have a second line, which names --help */
        ok((bad[i].status < 0 ? s != 0 : s == bad[i].status) && strstr(text, bad[i].says) && end &&
               (!end[1] || (s == 2 && !strncmp(end + 1, "Try '", 5))),
           "%s: refused in one line", bad[i].what);
        if (!strstr(text, bad[i].says))
            printf("# %d %s", s, text);
    }
}

/* Parameters in a file: bytes per step by hand.  Four stages with 128, 64, 64 and 64 bytes of
   parameters and as many of gradients on one rank, 6 microbatches, one stage in memory at a time.

   LoopedBFS: F of each stage, then B of each; the last one stays in between.  Parameters come 2 S - 1
   times, gradients go once and never come.

   1F1B: all stages for each microbatch.  The last stage stays from F to B (6 times it comes), the
   first from B to the next F (7 times), the others come for F and for B.  Gradients go after each of
   6 backwards and come before 5 of them. */
static void shards(void)
{
    static const struct {
        const char *schedule, *window;
        long in, out, most;
    } run[] = {
        {"loopedbfs", "1", 2 * 320 - 64, 320, 2 * 128},
        {"1f1b", "1", 7 * 128 + 6 * 64 + 2 * 12 * 64 + 5 * 320, 6 * 320, 2 * 128},
        {"1f1b", "4", 320, 320, 2 * 320},
        {"forward", "1", 6 * 320, 0, 128},
    };
    enum { STEPS = 3 };
    char data_x[500], data_t[500];
    const PpPlan *p = &plans[2];
    snprintf(data_x, sizeof data_x, "x=%s", at("x.npy"));
    snprintf(data_t, sizeof data_t, "target=%s", at("t.npy"));
    write_params(p, at("params"), par);
    for (unsigned k = 0; k < sizeof run / sizeof *run; k++) {
        long in = 0, out = 0, came = 0, went = 0, all = 0, most = 0;
        int eval = !strcmp(run[k].schedule, "forward"),
            s = command(p, eval ? "eval" : "train", "--data", data_x, "--data", data_t, "--ranks",
                        "1", "--params", at("params"), "--microbatches", "6", "--steps", "3",
                        "--batch", eval ? "6" : "22", "--offload", "params", "--offload-dir",
                        folder, "--unshard", run[k].window, "--verbose", "--schedule",
                        eval ? "gpipe" : run[k].schedule, NULL);
        const char *text = slurp(at("out")), *plan = strstr(text, "rank 0 offload: parameters"),
                   *count = plan ? strstr(plan + 10, "rank 0 offload: ") : NULL;
        int good = s == 0 && count &&
                   sscanf(strstr(plan, " are ") + 5, "%ld", &all) == 1 &&
                   sscanf(strstr(plan, "at most ") + 8, "%ld of them in memory; %ld bytes in and %ld",
                          &most, &in, &out) == 3 &&
                   sscanf(count, "rank 0 offload: %ld bytes came and %ld went", &came, &went) == 2;
        ok(good && in == run[k].in && out == run[k].out,
           "%s, %s in memory: %ld bytes in and %ld out a step", run[k].schedule, run[k].window, in,
           out);
        ok(good && came == STEPS * in && went == STEPS * out && most == run[k].most && most <= all,
           "so many have come and gone; %ld are there at once", most);
        if (!good)
            printf("# exit %d: %s%s\n", s, text, slurp(at("err")));
    }
    Store *none = NULL;
    Device d = {.op = &device_cpu};
    const StoreWish w = {.option = "--offload-dir", .folder = folder, .shared = 1};
    ok(store_open(&none, &d, 0, &w) == PP_OK && !store_memory(none),
       "a rank whose stages have no parameters has a file of nothing");
    store_close(none);
}

/* The file that a store has open, by its number in this process; -1: none. */
static int store_descriptor(void)
{
    for (int fd = 3; fd < 64; fd++) {
        char link[64], name[500];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, name, sizeof name - 1);
        name[n > 0 ? n : 0] = 0;
        if (strstr(name, "/.ppsplit."))
            return fd;
    }
    return -1;
}

/* Bytes go to the file and come back, in order, while the caller goes on; what fails is said. */
static void store(void)
{
    enum { COPIES = 40, BYTES = 3000 };
    static char out[COPIES][BYTES], back[COPIES][BYTES];
    Device d = {.op = &device_cpu};
    Store *s = NULL;
    StoreWish w = {COPIES * BYTES, 2 * COPIES, 3, 0, 0, "--offload-dir", folder, 0};
    int good = store_open(&s, &d, 0, &w) == PP_OK;
    for (int k = 0; k < COPIES; k++) {
        memset(out[k], k + 1, BYTES);
        store_copy(s, k, 1, (int64_t)k * BYTES, out[k], BYTES);
        store_copy(s, COPIES + k, 0, (int64_t)k * BYTES, back[k], BYTES);
    }
    for (int k = COPIES; k-- > 0;)
        good &= store_wait(s, COPIES + k) == PP_OK && !memcmp(out[k], back[k], BYTES);
    ok(good, "a store: bytes out and back, in order");
    double begin, end, first;
    store_span(s, 0, &first, &end);
    store_span(s, COPIES, &begin, &end);
    ok(first > 0 && begin >= first && end >= begin, "and when");
    fflush(stdout);
    store_close(s);
    pid_t child = fork();
    if (child == 0) {
        if (!freopen(at("err"), "w", stderr) || store_open(&s, &d, 0, &w) != PP_OK ||
            ftruncate(store_descriptor(), BYTES))
            _exit(1);
        store_copy(s, 1, 0, BYTES / 2, back[0], BYTES);
        PpStatus st = store_wait(s, 1);
        pp_failure_print();
        fflush(stderr);
        _exit((int)st);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ok(WEXITSTATUS(status) == PP_ERR_IO && strstr(slurp(at("err")), "reading 3000 bytes: cut short"),
       "a file that ends too early: %.80s", slurp(at("err")));
    child = fork();
    if (child == 0) {
        struct rlimit small = {BYTES, BYTES};
        signal(SIGXFSZ, SIG_IGN);
        if (!freopen(at("err"), "w", stderr) || setrlimit(RLIMIT_FSIZE, &small))
            _exit(1);
        PpStatus st = store_open(&s, &d, 0, &w);
        pp_failure_print();
        fflush(stderr);
        _exit((int)st);
    }
    waitpid(child, &status, 0);
    ok(WEXITSTATUS(status) == PP_ERR_IO &&
           strstr(slurp(at("err")), "File too large: it takes 120000 bytes"),
       "no room for the file: %.80s", slurp(at("err")));
    ok(store_descriptor() < 0, "the file is gone");
}

/* What two ranks gather, of which the first has no room for it. */
static void *gathers(void *group)
{
    Group *g = group;
    int mine = 0;
    void *all;
    POOL(room);
    g->stride = (int)group_gather(g, &mine, g->rank ? sizeof mine : SIZE_MAX, &room, &all);
    return NULL;
}

static void gather(void)
{
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        LocalHub *h = local_hub_new(2, 2);
        Group g[2] = {local_group(h, 0), local_group(h, 1)};
        pthread_t other;
        if (!freopen(at("err"), "w", stderr) || pthread_create(&other, NULL, gathers, &g[1]))
            _exit(1);
        alarm(10);
        gathers(&g[0]);
        pthread_join(other, NULL);
        fflush(stderr);
        _exit(g[0].stride == PP_ERR_IO && g[1].stride == PP_ERR_PEER ? 0 : 1);
    }
    waitpid(child, &status, 0);
    ok(status == 0 && !strcmp(slurp(at("err")), "pipeline: error: out of memory\n"),
       "a rank that cannot gather ends the others: %.80s", slurp(at("err")));
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
    for (int k = 0; k < 4; k++)
        schedules(k);
    training();
    refusals();
    store();
    gather();
    shards();
    remove_folder();
    printf("1..%d\n", number);
    return failed;
}
