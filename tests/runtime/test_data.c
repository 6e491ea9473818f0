/* What --data reads: rows of several files that follow one another are those of one file, in any
   order of the rows, whatever dimension they lie in. */
#include "runtime_plan.h"

#include "base/file/npy.h"
#include "runtime_params.h"
#include "runtime_run.h"

enum { N = 22 };
static float x[N * D], target[D * N], par[4][D];

static void write_npy(const char *name, int dtype, int rank, const int64_t *dim, const void *data)
{
    char err[ST_ERR];
    if (npy_write(at(name), dtype, rank, dim, data, err, sizeof err))
        printf("# %s\n", err);
}

/* Rows [from, end) of x [N, D] and of target [D, N]. */
static void write_part(const char *x_name, const char *t_name, int from, int end)
{
    float part[D * N];
    int n = end - from;
    if (x_name)
        write_npy(x_name, PP_F32, 2, (int64_t[]){n, D}, x + from * D);
    for (int d = 0; d < D; d++)
        memcpy(part + d * n, target + d * N + from, (size_t)n * sizeof *part);
    if (t_name)
        write_npy(t_name, PP_F32, 2, (int64_t[]){D, n}, part);
}

static const char *data(const char *name, const char *file)
{
    static char word[8][500];
    static int k;
    snprintf(word[k = (k + 1) % 8], sizeof word[0], "%s=%s", name, at(file));
    return word[k];
}

/* The rows of an output that a run has written, 0 if there are none. */
static size_t rows_of(const char *file, char *out, size_t size)
{
    NpyFile f = {0};
    char err[ST_ERR];
    size_t n = npy_open(&f, at(file), err, sizeof err) ? 0 : (size_t)f.bytes;
    if (n > size)
        n = 0;
    if (n)
        memcpy(out, f.data, n);
    npy_close(&f);
    return n;
}

static void several_files(void)
{
    const PpPlan *p = &plans[1];
    char want[sizeof x], got[sizeof x];
    write_part("x.npy", "t.npy", 0, N);
    write_part("x0.npy", NULL, 0, 7);
    write_part("x1.npy", NULL, 7, 7);
    write_part("x2.npy", NULL, 7, N);
    write_part(NULL, "t0.npy", 0, 10);
    write_part(NULL, "t1.npy", 10, N);
    write_params(p, at("params"), par);
    static const char *const how[][3] = {{"6", "1f1b", "22"}, {"2", "gpipe", "8"}};
    for (int k = 0; k < 4; k++) {
        const char *shuffle = k / 2 ? "--shuffle=3" : "--quiet";
        int s = command(p, "train", "--data", data("x", "x.npy"), "--data", data("target", "t.npy"),
                        "--params", at("params"), "--steps", "5", "--microbatches", how[k % 2][0],
                        "--schedule", how[k % 2][1], "--batch", how[k % 2][2], "--lr", "0.01",
                        "--output", data("y", "y.npy"), "--log-json", at("log"), shuffle, NULL);
        double loss = field(slurp(at("log")), "\"loss\"");
        size_t n = rows_of("y.npy", want, sizeof want);
        int t = command(p, "train", "--data", data("x", "x0.npy"), "--data",
                        data("target", "t0.npy"), "--data", data("x", "x1.npy"), "--data", data("x", "x2.npy"), "--data",
                        data("target", "t1.npy"), "--params", at("params"), "--steps", "5",
                        "--microbatches", how[k % 2][0], "--schedule", how[k % 2][1], "--batch",
                        how[k % 2][2], "--lr", "0.01", "--output", data("y", "y.npy"), "--log-json",
                        at("log"), shuffle, NULL);
        ok(s == 0 && t == 0 && isfinite(loss) && loss == field(slurp(at("log")), "\"loss\"") && n &&
               rows_of("y.npy", got, sizeof got) == n && !memcmp(want, got, n),
           "several files: the bits of one, batches of %s%s", how[k % 2][2],
           k / 2 ? ", shuffled" : "");
        if (s || t)
            printf("# %d %d %s", s, t, slurp(at("err")));
    }
}

static void refused(const char *what, int status, const char *says, int got)
{
    const char *text = slurp(at("err")), *end = strchr(text, '\n');
    int good = got == status && strstr(text, says) && end && !end[1];
    ok(good, "%s: refused in one line", what);
    if (!good)
        printf("# %d %s", got, text);
}

static void refused_files(void)
{
    const PpPlan *p = &plans[0];
    int64_t ints[2 * D] = {0};
    float wide[2 * (D + 1)] = {0};
    write_npy("i.npy", PP_I64, 2, (int64_t[]){2, D}, ints);
    write_npy("w.npy", PP_F32, 2, (int64_t[]){2, D + 1}, wide);
    refused("a second file of another shape", 1, "w.npy: shape [2, 4], the model wants [rows, 3]",
            command(p, "infer", "--data", data("x", "x.npy"), "--data", data("x", "w.npy"), NULL));
    refused("a second file of another type", 1, "i.npy: int64, the model wants float32",
            command(p, "infer", "--data", data("x", "x.npy"), "--data", data("x", "i.npy"), NULL));
    refused("files with other rows in all", 1, "target: its 2 files have 32 rows, but x has 22",
            command(p, "eval", "--data", data("x", "x.npy"), "--data", data("target", "t.npy"),
                    "--data", data("target", "t0.npy"), NULL));
}

int main(void)
{
    make_folder();
    uint32_t state = 7;
    float *all[] = {x, target, par[0]};
    int count[] = {N * D, N * D, 4 * D};
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < count[k]; i++) {
            state = state * 1664525u + 1013904223u;
            all[k][i] = (float)(state >> 8) / 16777216.0f + 0.25f;
        }
    several_files();
    refused_files();
    remove_folder();
    printf("1..%d\n", number);
    return failed;
}
