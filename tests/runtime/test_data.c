/* What --data and --tokens read: rows of several files that follow one another are those of one
   file, in any order of the rows, whatever dimension they lie in; windows of tokens are those that
   a loop cuts. */
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
                        data("target", "t0.npy"), "--data", data("x", "x1.npy"), "--data",
                        data("x", "x2.npy"), "--data", data("target", "t1.npy"), "--params",
                        at("params"), "--steps", "5", "--microbatches", how[k % 2][0], "--schedule",
                        how[k % 2][1], "--batch", how[k % 2][2], "--lr", "0.01", "--output",
                        data("y", "y.npy"), "--log-json", at("log"), shuffle, NULL);
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
    static const char usage[] = "Try 'pipeline --help' for more information.\n";
    const char *text = slurp(at("err")), *end = strchr(text, '\n');
    int good = got == status && strstr(text, says) && end &&
               !strcmp(end + 1, status == 2 ? usage : "");
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

/* ---- tokens ---- */

/* One stage that puts out what it is fed: ids [rows, S], the second time with rows last, and their
   target; its loss is the sum of the target. */
enum { S = 5, WINDOWS = 2 };
#define IDS(NAME, TYPE, SIZE)                                                                      \
    {                                                                                              \
        .name = NAME, .dtype = TYPE, .rank = 2, .dim = {WINDOWS, S}, .bytes = WINDOWS * S * SIZE   \
    }
#define TURNED                                                                                     \
    {                                                                                              \
        .name = "turned", .dtype = PP_I32, .rank = 2, .dim = {S, WINDOWS}, .batch_dim = 1,         \
        .bytes = WINDOWS * S * 4                                                                   \
    }

static void echo(const PpCtx *c)
{
    const int32_t *follows = c->in[2];
    float loss = 0;
    memcpy(c->out[0], c->in[0], (size_t)c->rows * S * 8);
    memcpy(c->out[1], c->in[1], (size_t)c->rows * S * 4);
    memcpy(c->out[2], follows, (size_t)c->rows * S * 4);
    for (int i = 0; i < c->rows * S; i++)
        loss += (float)follows[i];
    memcpy(c->out[3], &loss, sizeof loss);
}

static const PpTensor echo_inputs[] = {IDS("ids", PP_I64, 8), TURNED, IDS("target", PP_I32, 4)};
static const PpTensor echo_outputs[] = {IDS("seen", PP_I64, 8), TURNED, IDS("next", PP_I32, 4)};
static const PpInput echo_in[] = {{IDS("ids", PP_I64, 8), -1, 0, 0, 0, 0},
                                  {TURNED, -1, 1, 0, 0, 0},
                                  {IDS("target", PP_I32, 4), -1, 2, 0, 0, 0}};
static const PpOutput echo_out[] = {{IDS("seen", PP_I64, 8), 0, 0, 0, 0, 0},
                                    {TURNED, 1, 0, 0, 0, 0},
                                    {IDS("next", PP_I32, 4), 2, 0, 0, 0, 0},
                                    {SCALAR("loss"), -1, 0, 0, 0, 0}};
static const PpStage echo_stage = {.label = "echo",
                                   .n_input = 3,
                                   .n_output = 4,
                                   .input = echo_in,
                                   .output = echo_out,
                                   .call.forward = echo,
                                   .call.infer = echo};
static const PpStage *const echo_stages[] = {&echo_stage};
static const PpIndex classes = {2, 0, 1, S, 0, 999, 1, -100, NULL, 1000};
static const PpPlan echo_plan = {.model = "echo",
                                 .rows = WINDOWS,
                                 .uneven.ok = 1,
                                 .n_stage = 1,
                                 .n_input = 3,
                                 .n_output = 3,
                                 .stage = echo_stages,
                                 .input = echo_inputs,
                                 .output = echo_outputs,
                                 .loss.output = 3,
                                 .loss.kind = PP_LOSS_SUM,
                                 .loss.target = 2,
                                 .loss.ignore = -100,
                                 .n_index = 1,
                                 .index = &classes};

enum { FIRST = 4 * S + 3, SECOND_FILE = 2 * S + 1, TEXT_ROWS = 4 + 2 };
static uint16_t text[FIRST + SECOND_FILE];

/* The text as elements of `size` bytes, in two files, with or without a header. */
static void write_text(int dtype, int size, int raw)
{
    char wide[sizeof text * 4];
    for (int i = 0; i < FIRST + SECOND_FILE; i++) {
        int64_t v = text[i];
        memcpy(wide + i * size, &v, (size_t)size);
    }
    for (int k = 0; k < 2; k++) {
        const char *name = k ? "b.tokens" : "a.tokens", *from = wide + (k ? FIRST * size : 0);
        int64_t n = k ? SECOND_FILE : FIRST;
        FILE *f = raw ? fopen(at(name), "wb") : NULL;
        if (!raw)
            write_npy(name, dtype, 1, &n, from);
        else if (!f || fwrite(from, (size_t)size, (size_t)n, f) != (size_t)n)
            printf("# cannot write %s\n", name);
        if (f)
            fclose(f);
    }
}

static int windows_are_right(void)
{
    int64_t seen[TEXT_ROWS * S];
    int32_t turned[TEXT_ROWS * S], next[TEXT_ROWS * S];
    int good = rows_of("seen.npy", (char *)seen, sizeof seen) == sizeof seen &&
               rows_of("turned.npy", (char *)turned, sizeof turned) == sizeof turned &&
               rows_of("next.npy", (char *)next, sizeof next) == sizeof next;
    for (int r = 0; r < TEXT_ROWS && good; r++)
        for (int i = 0; i < S; i++) {
            const uint16_t *from = text + (r < 4 ? r * S : FIRST + (r - 4) * S) + i;
            good &= seen[r * S + i] == from[0] && next[r * S + i] == from[1] &&
                    turned[i * TEXT_ROWS + r] == from[0];
        }
    return good;
}

static void windows(void)
{
    static const struct {
        const char *type;
        int dtype, size, raw;
    } file[] = {{"u16", 4, 2, 0}, {"i32", PP_I32, 4, 0}, {"i64", PP_I64, 8, 0},
                {"u16", 4, 2, 1}, {"i32", PP_I32, 4, 1}, {"i64", PP_I64, 8, 1}};
    char type[40], turned[TEXT_ROWS * S * 4];
    for (int i = 0; i < FIRST + SECOND_FILE; i++)
        text[i] = (uint16_t)(i * 37 % 1000);
    for (int r = 0; r < TEXT_ROWS; r++)
        for (int i = 0; i < S; i++) {
            int32_t v = text[(r < 4 ? r * S : FIRST + (r - 4) * S) + i];
            memcpy(turned + (i * TEXT_ROWS + r) * 4, &v, 4);
        }
    write_npy("turned_in.npy", PP_I32, 2, (int64_t[]){S, TEXT_ROWS}, turned);
    for (unsigned k = 0; k < sizeof file / sizeof *file; k++) {
        write_text(file[k].dtype, file[k].size, file[k].raw);
        snprintf(type, sizeof type, "--dtype-of=ids=%s", file[k].type);
        int s = command(&echo_plan, "eval", "--tokens", data("ids", "a.tokens"), "--tokens",
                        data("ids", "b.tokens"), "--data", data("turned", "turned_in.npy"),
                        "--output", data("seen", "seen.npy"), "--output",
                        data("turned", "turned.npy"), "--output", data("next", "next.npy"),
                        "--batch", k % 2 ? "4" : "6", file[k].raw ? type : "--quiet", NULL);
        ok(s == 0 && windows_are_right(), "windows of %s tokens%s", file[k].type,
           file[k].raw ? " without a header" : "");
        if (s)
            printf("# %d %s", s, slurp(at("err")));
    }
    int s = command(&echo_plan, "infer", "--tokens", data("ids", "a.tokens"), "--tokens",
                    data("turned", "a.tokens"), "--dtype-of", "ids=i64", "--dtype-of", "turned=i64",
                    "--output", data("turned", "turned.npy"), NULL);
    int32_t got[4 * S], good = rows_of("turned.npy", (char *)got, sizeof got) == sizeof got;
    for (int i = 0; i < 4 * S; i++)
        good &= got[i] == text[i % 4 * S + i / 4];
    ok(s == 0 && good, "windows along the second dimension; infer needs no target");
}

/* Files of narrower integers than the model's. */
static void narrow(void)
{
    static const struct {
        int dtype, size, sign;
    } file[] = {{2, 1, 0}, {3, 1, 1}, {4, 2, 0}, {5, 2, 1}, {PP_I32, 4, 1}};
    enum { COUNT = 4 * S };
    for (unsigned k = 0; k < sizeof file / sizeof *file; k++) {
        char ids[COUNT * 4], turned[COUNT * 4];
        int64_t seen[COUNT];
        int32_t back[COUNT], good = 1;
        int size = file[k].size < 4 ? file[k].size : 2, type = file[k].size < 4 ? file[k].dtype : 5;
        for (int i = 0; i < COUNT; i++) { /* little-endian: the low bytes come first */
            int v = i * 41 % 100 - file[k].sign * 50;
            memcpy(ids + i * file[k].size, &v, (size_t)file[k].size);
            memcpy(turned + i * size, &v, (size_t)size);
        }
        write_npy("ids.npy", file[k].dtype, 2, (int64_t[]){4, S}, ids);
        write_npy("turned_in.npy", type, 2, (int64_t[]){S, 4}, turned);
        int s = command(&echo_plan, "infer", "--data", data("ids", "ids.npy"), "--data",
                        data("turned", "turned_in.npy"), "--output", data("seen", "seen.npy"),
                        "--output", data("turned", "turned.npy"), "--quiet", NULL);
        good = s == 0 && rows_of("seen.npy", (char *)seen, sizeof seen) == sizeof seen &&
               rows_of("turned.npy", (char *)back, sizeof back) == sizeof back;
        for (int i = 0; i < COUNT && good; i++)
            good = seen[i] == i * 41 % 100 - file[k].sign * 50 && back[i] == seen[i];
        ok(good, "rows of narrower integers, type %d", file[k].dtype);
    }
}

static void refused_tokens(void)
{
    const PpPlan *p = &echo_plan;
    int64_t few[S] = {0}, many[S + 1] = {0};
    many[3] = 1000;
    write_npy("few.npy", PP_I64, 1, (int64_t[]){S}, few);
    write_npy("many.npy", PP_I64, 1, (int64_t[]){S + 1}, many);
    write_npy("one.npy", PP_I32, 2, (int64_t[]){S, 1}, (int32_t[S]){0});
    write_npy("flat.npy", PP_I64, 2, (int64_t[]){1, S}, few);
    const char *ids = "ids";
#define EVAL(...) command(p, "eval", __VA_ARGS__, NULL)
#define TURNED_ROWS "--data", data("turned", "turned_in.npy")
    refused("too few tokens", 1, "5 tokens, a row and its target take 6",
            EVAL("--tokens", data(ids, "few.npy")));
    refused("tokens in two dimensions", 1, "rank 2, but a file of tokens has rank 1",
            EVAL("--tokens", data(ids, "flat.npy")));
    refused("tokens without a header and type", 3, "--dtype-of says",
            EVAL("--tokens", data(ids, "a.tokens")));
    refused("a .npy said to be without a header", 3, "a .npy file, which says its type itself",
            EVAL("--tokens", data(ids, "many.npy"), "--dtype-of", "ids=u16"));
    refused("a type that is none", 2, "expected u8, u16, i32 or i64",
            EVAL("--tokens", data(ids, "many.npy"), "--dtype-of", "ids=u4"));
    refused("a type of nothing", 2, "there is no --tokens turned=FILE",
            EVAL("--tokens", data(ids, "many.npy"), "--dtype-of", "turned=u16"));
    refused("tokens as the target", 2, "this is the target",
            EVAL("--tokens", data("target", "many.npy")));
    refused("tokens of an input with --data", 2, "its rows are given by --data",
            EVAL(TURNED_ROWS, "--tokens", data("turned", "many.npy")));
    refused("two inputs that a target could follow", 2, "which one does the target follow?",
            EVAL("--tokens", data(ids, "many.npy"), "--tokens", data("turned", "many.npy")));
    refused(
        "a token that is no class", 1,
        "row 0, position 2 (token 3 of the file) is class 1000, the model has 1000 classes: 0 to "
        "999, or -100, which is ignored",
        command(p, "eval", "--tokens", data(ids, "many.npy"), "--data", data("turned", "one.npy"),
                NULL));
    refused("tokens for numbers", 1, "the model wants float32 of rank 2",
            command(&plans[0], "eval", "--tokens", data("x", "many.npy"), NULL));
}

/* ---- integers that choose rows of a table ---- */

/* One wrong element of many rows, in the second of two files; with ids [rows, S], places 1 and 3 of
   a row choose from a table; turned [S, rows] as a whole from another. */
static void refused_rows(void)
{
    enum { MANY = 3000 };
    static int64_t ids[MANY * S], many[MANY * S];
    static int8_t bytes[MANY * S];
    static int32_t turned[S * MANY];
    static const PpIndex bound[] = {{0, 1, 2, 2, -50, 49, 0, 0, "wte.weight", 50},
                                    {1, 0, 1, S, 1, 20, 1, -1, "wpe.weight", 20}};
    PpPlan p = echo_plan;
    p.n_index = 2;
    p.index = bound;
    for (int i = 0; i < MANY * S; i++) {
        ids[i] = i % S % 2 ? i * 7 % 100 - 50 : 1000000;
        turned[i] = i % 9 ? i % 20 + 1 : -1;
    }
    static const struct {
        int at, input;
        int32_t value;
        const char *says;
    } wrong[] = {
        {-1, 0, 0, NULL},
        {2999 * S + 3, 0, 50,
         "b.npy: row 2999, position 3 is 50, an index into 'wte.weight', which has 50 rows: "
         "allowed are -50 to 49"},
        {1, 0, -51, "b.npy: row 0, position 1 is -51, an index"},
        {1234 * S + 1, 0, 1 << 30, "b.npy: row 1234, position 1 is 1073741824, an index"},
        {4 * MANY + 2997, 1, 0,
         "b.npy: row 2997, position 4 is 0, an index into 'wpe.weight', which has 20 rows: "
         "allowed are 1 to 20, or -1"},
        {2, 1, 21, "b.npy: row 2, position 0 is 21, an index"},
    };
    for (unsigned k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        int at = wrong[k].at;
        write_npy("a.npy", PP_I64, 2, (int64_t[]){MANY, S}, ids);
        write_npy("c.npy", PP_I32, 2, (int64_t[]){S, MANY}, turned);
        memcpy(many, ids, sizeof many);
        if (at >= 0 && wrong[k].input == 0)
            many[at] = wrong[k].value;
        int32_t was = at < 0 ? 0 : turned[at];
        if (at >= 0 && wrong[k].input == 1)
            turned[at] = wrong[k].value;
        write_npy("b.npy", wrong[k].input ? PP_I32 : PP_I64, 2,
                  wrong[k].input ? (int64_t[]){S, MANY} : (int64_t[]){MANY, S},
                  wrong[k].input ? (void *)turned : many);
        turned[at < 0 ? 0 : at] = at < 0 ? turned[0] : was;
        int s = command(&p, "infer", "--data", data("ids", "a.npy"), "--data",
                        data("ids", wrong[k].input ? "a.npy" : "b.npy"), "--data",
                        data("turned", "c.npy"), "--data",
                        data("turned", wrong[k].input ? "b.npy" : "c.npy"), "--batch", "2",
                        "--steps", "1", "--quiet", "--negative-ids", NULL);
        if (wrong[k].says)
            refused("an index beyond its table", 1, wrong[k].says, s);
        else
            ok(s == 0, "indices of all rows of their tables, from both ends, and what is replaced");
    }
    refused("a negative index", 1,
            "a.npy: row 0, position 1 is -43, an index into 'wte.weight', which has "
            "50 rows: allowed are 0 to 49; --negative-ids counts it from the end",
            command(&p, "infer", "--data", data("ids", "a.npy"), "--data", data("turned", "c.npy"),
                    "--batch", "2", "--steps", "1", "--quiet", NULL));
    for (int i = 0; i < MANY * S; i++)
        bytes[i] = (int8_t)(ids[i] + (i == 1 ? -51 - ids[i] : 0));
    write_npy("d.npy", 3, 2, (int64_t[]){MANY, S}, bytes);
    refused("an index of a narrower type", 1, "d.npy: row 0, position 1 is -51, an index",
            command(&p, "infer", "--data", data("ids", "d.npy"), "--data", data("turned", "c.npy"),
                    "--batch", "2", "--steps", "1", "--quiet", "--negative-ids", NULL));
}

int main(void)
{
    make_folder();
    fill(x, N * D, 7), fill(target, N * D, 8), fill(par[0], 4 * D, 9);
    several_files();
    refused_files();
    windows();
    narrow();
    refused_tokens();
    refused_rows();
    remove_folder();
    printf("1..%d\n", number);
    return failed;
}
