/*
 * test_box.c - parts of tensors (base/file/box.h) against the definition, element by element; and
 * checkpoints whose tensors are parts: what index.json says is put together, whatever it was cut
 * along, and what does not make the tensor is refused.
 */
#include "base/file/box.h"
#include "base/file/index.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint32_t state = 1;

static int any(int n)
{
    state = state * 1664525u + 1013904223u;
    return (int)(state >> 16) % n;
}

/* ---- against the definition ---- */

enum { MOST = 8000 };

/* Two bytes an element. */
typedef struct {
    int64_t dim[3];
    int rank;
} Tensor;

static Tensor tensor(void)
{
    Tensor t = {.rank = 1 + any(3)};
    for (int i = 0; i < t.rank; i++)
        t.dim[i] = 1 + any(12);
    return t;
}

static int64_t elements(const Tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->dim[i];
    return n;
}

/* A part of it; list: its elements in their order, -1: of a gap. */
static Box part(const Tensor *t, int64_t *list, int64_t *n)
{
    int axis = any(t->rank);
    int64_t groups = 1, inner = 1, count = 0;
    for (int g = 2; g <= t->dim[axis]; g++)
        if (t->dim[axis] % g == 0 && any(2))
            groups = g;
    int64_t run = t->dim[axis] / groups, at = any((int)run), size = 1 + any((int)(run - at));
    int64_t gap = any(2) * any(4);
    for (int i = axis + 1; i < t->rank; i++)
        inner *= t->dim[i];
    for (int64_t e = 0; e < elements(t); e++) {
        int64_t along = e / inner % t->dim[axis] % run;
        if (along >= at && along < at + size)
            list[count++] = e;
        for (int g = 0; g < gap && along == at + size - 1 && e % inner == inner - 1; g++)
            list[count++] = -1;
    }
    Box x = box_along(t->rank, t->dim, axis, groups, at, size, 2);
    x.gap = 2 * gap;
    x.bytes = 2 * count;
    int64_t first = any((int)count), many = any((int)(count - first) + 1);
    if (any(2)) {
        x.first = 2 * first;
        x.bytes = 2 * many;
        memmove(list, list + first, (size_t)many * sizeof *list);
        count = many;
    }
    *n = count;
    return x;
}

static int alike(void)
{
    static int64_t mine[MOST], theirs[MOST];
    uint16_t to[MOST], from[MOST], want[MOST];
    Tensor t = tensor();
    int64_t n, m, both = 0, there = 0;
    Box x = part(&t, mine, &n), y = part(&t, theirs, &m);
    for (int64_t i = 0; i < n; i++)
        to[i] = want[i] = 9999;
    for (int64_t j = 0; j < m; j++)
        from[j] = (uint16_t)theirs[j];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++)
            if (mine[i] == theirs[j] && mine[i] >= 0) {
                want[i] = from[j];
                both++;
            }
    Box dense = box_dense(&x);
    for (int64_t i = 0; i < n; i++)
        there += mine[i] >= 0;
    return x.bytes == 2 * n && dense.bytes == 2 * there &&
           box_copy(&x, to, &y, from) == 2 * both && !memcmp(to, want, 2 * (size_t)n) &&
           box_copy(&dense, to, &y, from) == 2 * both;
}

/* ---- checkpoints ---- */

static char folder[] = "/tmp/test_box.XXXXXX";

static void sha_text(const void *at, size_t n, char text[SHA256_TEXT])
{
    sha256_of(at, n, text);
}

static FILE *create(const char *name)
{
    char path[100];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    if (!f)
        exit(3);
    return f;
}

/* A float32 tensor [4, 6] of 0, 1, 2, ..; `shape`: up to its pieces; `box`: of each of `n` pieces
 * that hold `bytes` bytes, what stands before the checksum. */
static void write_checkpoint(const char *shape, int n, const char *const *box, const int *bytes,
                             const float *data)
{
    char text[4000], sha[SHA256_TEXT];
    int at = 0, offset = 0;
    sha_text("", 0, sha);
    at += snprintf(
        text + at, sizeof text - (size_t)at,
        "{\"format\": \"ppsplit checkpoint 2\", \"model\": \"m\", \"step\": 1, \"files\": {\"a\": "
        "{\"bytes\": 96, \"header\": 0, \"sha256\": \"%s\"}}, \"tensors\": {\"w\": {\"dtype\": "
        "\"F32\", %s, \"pieces\": [",
        sha, shape);
    for (int i = 0; i < n; offset += bytes[i++]) {
        sha_text((const char *)data + offset, (size_t)bytes[i], sha);
        at += snprintf(text + at, sizeof text - (size_t)at,
                       "%s{\"file\": \"a\", \"offset\": %d, \"bytes\": %d, %s\"sha256\": \"%s\"}",
                       i ? ", " : "", offset, bytes[i], box[i], sha);
    }
    at += snprintf(text + at, sizeof text - (size_t)at, "]}}");
    sha_text(text, (size_t)at, sha);
    FILE *f = create("index.json");
    fprintf(f, "%s,\n  \"index_sha256\": \"%s\"\n}\n", text, sha);
    fclose(f);
    f = create("a");
    fwrite(data, 1, 96, f);
    fclose(f);
}

/* What it says where it opens and its elements are 0, 1, 2, ..: "". */
static const char *opened(void)
{
    static char err[INDEX_ERR];
    Index x = {0};
    snprintf(err, sizeof err, "%s", "");
    if (index_open(&x, folder, err, sizeof err))
        return strrchr(err, ':') ? strrchr(err, ':') + 2 : err;
    const float *w = index_bytes(&x, &x.tensor[0], err, sizeof err);
    for (int i = 0; i < 24 && w && !err[0]; i++)
        if (w[i] != (float)i)
            snprintf(err, sizeof err, "element %d is %g", i, (double)w[i]);
    index_close(&x);
    return err;
}

static void check(const char *what, const char *want, const char *shape, int n,
                  const char *const *box, const int *bytes, const float *data)
{
    write_checkpoint(shape, n, box, bytes, data);
    const char *have = opened();
    if (!ok(strstr(have, want) && (*want || !*have), "%s", what))
        printf("# %s\n", have);
}

static void checkpoints(void)
{
    static const char plain[] = "\"shape\": [4, 6]";
    float whole[24], columns[24], runs[24];
    for (int i = 0; i < 24; i++)
        whole[i] = (float)i;
    for (int k = 0, n = 0; k < 3; k++) /* two columns each */
        for (int i = 0; i < 8; i++)
            columns[n++] = (float)(i / 2 * 6 + 2 * k + i % 2);
    for (int k = 0, n = 0; k < 2; k++) /* of each half of the rows one */
        for (int i = 0; i < 12; i++)
            runs[n++] = (float)((i / 6 * 2 + k) * 6 + i % 6);
    check("two pieces without a box", "", plain, 2, (const char *[]){"", ""}, (int[]){40, 56},
          whole);
    static const char *const thirds[] = {"\"start\": [0, 0], \"size\": [4, 2], ",
                                         "\"start\": [0, 2], \"size\": [4, 2], ",
                                         "\"start\": [0, 4], \"size\": [4, 2], "};
    check("three boxes of columns", "", plain, 3, thirds, (int[]){32, 32, 32}, columns);
    const char *const four[] = {thirds[0], thirds[0], thirds[1], thirds[2]};
    check("the first of them in two pieces", "", plain, 4, four, (int[]){20, 12, 32, 32}, columns);
    check("two of each run of rows", "", "\"shape\": [4, 6], \"view\": [2, 2, 6]", 2,
          (const char *[]){"\"start\": [0, 0, 0], \"size\": [2, 1, 6], ",
                           "\"start\": [0, 1, 0], \"size\": [2, 1, 6], "},
          (int[]){48, 48}, runs);

    check("a box twice, and a hole", "longer than its box", plain, 3,
          (const char *[]){thirds[0], thirds[0], thirds[2]}, (int[]){32, 32, 32}, columns);
    check("boxes that overlap", "do not follow", plain, 3,
          (const char *[]){thirds[0], "\"start\": [0, 1], \"size\": [4, 2], ", thirds[2]},
          (int[]){32, 32, 32}, columns);
    check("a box that is not all there", "do not follow", plain, 3, thirds, (int[]){28, 32, 32},
          columns);
    check("the last one missing", "do not make its 96 bytes", plain, 2, thirds, (int[]){32, 32},
          columns);
    check("one along the other dimension", "do not follow", plain, 3,
          (const char *[]){thirds[0], thirds[1], "\"start\": [2, 0], \"size\": [2, 6], "},
          (int[]){32, 32, 32}, columns);
    check("a box along two dimensions", "written by a newer program", plain, 1,
          (const char *[]){"\"start\": [0, 0], \"size\": [2, 2], "}, (int[]){16}, columns);
    check("a box that is not in the tensor", "is not in it", plain, 1,
          (const char *[]){"\"start\": [0, 5], \"size\": [4, 2], "}, (int[]){32}, columns);
    check("a box of another rank", "another rank", plain, 1,
          (const char *[]){"\"start\": [0], \"size\": [4], "}, (int[]){96}, columns);
    check("a view of another size", "is not its shape", "\"shape\": [4, 6], \"view\": [2, 3, 6]", 1,
          (const char *[]){""}, (int[]){96}, columns);
    check("a view that no number counts", "is not its shape",
          "\"shape\": [4, 6], \"view\": [4611686018427387904, 4]", 1, (const char *[]){""},
          (int[]){96}, columns);
    columns[9] = -1;
    write_checkpoint(plain, 3, thirds, (int[]){32, 32, 32}, columns);
    FILE *f = create("a");
    columns[9] = 0;
    fwrite(columns, 1, 96, f);
    fclose(f);
    ok(strstr(opened(), "do not have the index's checksum") != NULL,
       "a byte of a box that was flipped");
}

int main(void)
{
    int good = 0, tries = 20000;
    for (int i = 0; i < tries; i++)
        good += alike();
    ok(good == tries, "what two parts have in common, %d of %d times", good, tries);
    if (!mkdtemp(folder))
        return 3;
    checkpoints();
    char path[100];
    snprintf(path, sizeof path, "%s/index.json", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/a", folder);
    unlink(path);
    rmdir(folder);
    return tap_done();
}
