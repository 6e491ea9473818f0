/*
 * compare.c - the tests' judge: compares what a pipeline wrote with PyTorch's numbers, or two runs
 * bit by bit.
 *
 *   compare grads DIR REF.safetensors [TOL [NAME,NAME...]]
 *                                              gradients in DIR/stage*.safetensors against the
 * reference (relative L2); the named ones may be missing: the export folded these parameters away.
 *                                              A folder for REF.safetensors: another run's
 * gradients compare npy FILE REF [TOL]                 one tensor compare loss LOG.json VALUE [TOL]
 * the loss of the first line of a --log-json file compare same DIR DIR        all
 * tensors of all .safetensors, or of a checkpoint's index, bit by bit.  Prints the worst difference; exit 0 equal, 1 different,
 * 2 usage or unreadable.
 */
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file/index.h"
#include "base/file/npy.h"
#include "base/file/safetensors.h"

enum { MAX_FILES = 64 };
typedef struct { StFile file[MAX_FILES]; int n; } Folder;

static void fail(const char *what, const char *why)
{
    printf("# %s: %s\n", what, why);
    exit(2);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The tensors of a checkpoint, whose pieces may be in several files, as those of one. */
static void open_checkpoint(Folder *d, const char *path)
{
    static Index open[2];
    static int n;
    char err[INDEX_ERR];
    Index *x = &open[n++];
    if (index_open(x, path, err, sizeof err))
        fail(path, err);
    StFile *f = &d->file[0];
    d->n = 1;
    *f = (StFile){.tensor = calloc((size_t)x->n_tensor + 1, sizeof *f->tensor),
                  .by_name = calloc((size_t)x->n_tensor + 1, sizeof *f->by_name),
                  .n = x->n_tensor};
    for (int i = 0; i < f->n; i++) {
        const IndexTensor *t = &x->tensor[i];
        StTensor *to = &f->tensor[i];
        to->name = t->name;
        to->dtype = t->dtype;
        to->rank = t->rank;
        memcpy(to->dim, t->dim, sizeof to->dim);
        to->bytes = t->bytes;
        to->data = index_bytes(x, t, err, sizeof err);
        f->by_name[i] = i;
        if (!to->data)
            fail(path, err);
    }
}

static void open_folder(Folder *d, const char *path)
{
    char err[ST_ERR], name[4096], *names[MAX_FILES];
    if (index_there(path)) {
        open_checkpoint(d, path);
        return;
    }
    DIR *dir = opendir(path);
    if (!dir)
        fail(path, "cannot be opened");
    d->n = 0;
    for (struct dirent *e; (e = readdir(dir));)
        if (strstr(e->d_name, ".safetensors") && d->n < MAX_FILES)
            names[d->n++] = strdup(e->d_name);
    closedir(dir);
    qsort(names, (size_t)d->n, sizeof *names, by_text);
    for (int i = 0; i < d->n; i++) {
        snprintf(name, sizeof name, "%s/%s", path, names[i]);
        if (st_open(&d->file[i], name, err, sizeof err))
            fail(name, err);
        free(names[i]);
    }
}

static void open_reference(Folder *d, const char *path)
{
    char err[ST_ERR];
    size_t n = strlen(path);
    if (n < 12 || strcmp(path + n - 12, ".safetensors") != 0) {
        open_folder(d, path);
        return;
    }
    d->n = 1;
    if (st_open(&d->file[0], path, err, sizeof err))
        fail(path, err);
}

/* All tensors of a folder in turn: NULL before the first and after the last. */
static const StTensor *next_of(const Folder *d, const StTensor *t)
{
    for (int i = 0; i < d->n; i++) {
        const StTensor *first = d->file[i].tensor, *end = first + d->file[i].n;
        if (!t && first < end)
            return first;
        if (t && t >= first && t < end) {
            if (t + 1 < end)
                return t + 1;
            t = NULL;
        }
    }
    return NULL;
}

static const StTensor *find(const Folder *d, const char *name)
{
    for (int i = 0; i < d->n; i++) {
        const StTensor *t = st_find(&d->file[i], name);
        if (t)
            return t;
    }
    return NULL;
}

/* f16 with 10 bits of fraction, bf16 with 7; of numbers only. */
static double half_at(const char *data, int64_t i, int fraction)
{
    uint16_t h;
    memcpy(&h, data + i * 2, 2);
    int exponent = (h & 0x7fff) >> fraction, bias = (1 << (14 - fraction)) - 1;
    int bits = h & ((1 << fraction) - 1);
    double x = ldexp(exponent ? bits + (1 << fraction) : bits,
                     (exponent ? exponent : 1) - bias - fraction);
    return h >> 15 ? -x : x;
}

static double at(const char *data, int dtype, int64_t i)
{
    union { float f; double d; int32_t i; int64_t l; } u;
    switch (dtype) {
    case 1: memcpy(&u.f, data + i * 4, 4); return (double)u.f;
    case 11: memcpy(&u.d, data + i * 8, 8); return u.d;
    case 6: memcpy(&u.i, data + i * 4, 4); return u.i;
    case 7: memcpy(&u.l, data + i * 8, 8); return (double)u.l;
    case 9: return data[i];
    case 10: return half_at(data, i, 10);
    case 16: return half_at(data, i, 7);
    default: fail("tensor", "dtype that no test uses"); return 0;
    }
}

static double norm(const char *x, int dtype, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++)
        s += at(x, dtype, i) * at(x, dtype, i);
    return sqrt(s);
}

static double distance(const char *x, int dx, const char *y, int dy, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = at(x, dx, i) - at(y, dy, i);
        s += d * d;
    }
    return sqrt(s);
}

static int same_shape(int ra, const int64_t *a, int rb, const int64_t *b)
{
    return ra == rb && !memcmp(a, b, (size_t)ra * sizeof *a);
}

static int listed(const char *names, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = names; p && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (!strncmp(p, name, n) && (p[n] == ',' || !p[n]))
            return 1;
    return 0;
}

/* A gradient much smaller than the whole is compared on the scale of 1e-3 of the whole: its own
 * rounding noise is not. */
static int grads(const char *dir, const char *reference, double tol, const char *folded)
{
    Folder got, ref;
    open_folder(&got, dir);
    open_reference(&ref, reference);
    double whole = 0, worst = 0;
    const char *worst_name = "";
    int count = 0;
    for (const StTensor *t = next_of(&ref, NULL); t; t = next_of(&ref, t)) {
        double e = norm(t->data, t->dtype, t->bytes / st_dtype_size(t->dtype));
        whole += e * e;
        count++;
    }
    whole = sqrt(whole);
    for (const StTensor *t = next_of(&ref, NULL); t; t = next_of(&ref, t)) {
        const StTensor *g = find(&got, t->name);
        int64_t n = t->bytes / st_dtype_size(t->dtype);
        if (!g && listed(folded, t->name))
            continue;
        double scale = norm(t->data, t->dtype, n), e = (double)INFINITY;
        if (g && same_shape(g->rank, g->dim, t->rank, t->dim))
            e = distance(g->data, g->dtype, t->data, t->dtype, n) /
                (scale > 1e-3 * whole ? scale : 1e-3 * whole);
        else
            printf("# %s: %s\n", t->name, g ? "another shape" : "no gradient");
        if (!(e <= worst)) {
            worst = e;
            worst_name = t->name;
        }
    }
    printf("# gradients: worst %.2e (%s) of %d\n", worst, worst_name, count);
    return !(worst <= tol) || count == 0;
}

static int npy(const char *path, const char *reference, double tol)
{
    NpyFile a, b;
    char err[ST_ERR];
    if (npy_open(&a, path, err, sizeof err))
        fail(path, err);
    if (npy_open(&b, reference, err, sizeof err))
        fail(reference, err);
    if (!same_shape(a.rank, a.dim, b.rank, b.dim)) {
        printf("# %s: another shape than %s\n", path, reference);
        return 1;
    }
    int64_t n = b.bytes / st_dtype_size(b.dtype);
    double scale = norm(b.data, b.dtype, n),
           e = distance(a.data, a.dtype, b.data, b.dtype, n) / (scale > 0 ? scale : 1);
    printf("# output: %.2e\n", e);
    return !(e <= tol);
}

static int loss(const char *log, double want, double tol)
{
    char line[4096];
    FILE *f = fopen(log, "r");
    int found = 0;
    while (f && !found && fgets(line, sizeof line, f))
        found = !strncmp(line, "{\"step\"", 7); /* the configuration comes before */
    if (!found)
        fail(log, "no line of a step");
    fclose(f);
    const char *p = strstr(line, "\"loss\":");
    double got = p ? strtod(p + 7, NULL) : (double)NAN;
    printf("# loss %.9g, reference %.9g\n", got, want);
    return !(fabs(got - want) <= tol * fmax(1, fabs(want)));
}

static int64_t ulps(const char *a, const char *b, int64_t n)
{
    int64_t worst = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t x, y;
        memcpy(&x, a + 4 * i, 4);
        memcpy(&y, b + 4 * i, 4);
        int64_t p = x < 0 ? -(int64_t)(x & INT32_MAX) : x,
                q = y < 0 ? -(int64_t)(y & INT32_MAX) : y;
        worst = llabs(p - q) > worst ? llabs(p - q) : worst;
    }
    return worst;
}

static int same(const char *a, const char *b)
{
    Folder x, y;
    open_folder(&x, a);
    open_folder(&y, b);
    int bad = 0, count = 0;
    for (int i = 0; i < x.n; i++)
        for (int j = 0; j < x.file[i].n; j++) {
            const StTensor *t = &x.file[i].tensor[j], *u = find(&y, t->name);
            count++;
            int64_t n = t->bytes / st_dtype_size(t->dtype);
            if (u && u->bytes == t->bytes && !memcmp(u->data, t->data, (size_t)t->bytes))
                continue;
            int64_t d =
                u && u->bytes == t->bytes && t->dtype == 1 ? ulps(t->data, u->data, n) : INT64_MAX;
            printf("# %s: %s", t->name, u ? "differs" : "missing");
            printf(d == INT64_MAX ? "\n" : " by %lld ulp\n", (long long)d);
            bad++;
        }
    printf("# %d tensors, %d differ\n", count, bad);
    return bad > 0 || count == 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 3 ? argv[1] : "";
    double tol = argc > 4 ? strtod(argv[4], NULL) : 1e-4;
    if (!strcmp(what, "grads"))
        return grads(argv[2], argv[3], tol, argc > 5 ? argv[5] : "");
    if (!strcmp(what, "npy"))
        return npy(argv[2], argv[3], tol);
    if (!strcmp(what, "loss"))
        return loss(argv[2], strtod(argv[3], NULL), argc > 4 ? tol : 2e-5);
    if (!strcmp(what, "same"))
        return same(argv[2], argv[3]);
    fprintf(stderr, "usage: compare grads|npy|loss|same A B [TOL [NAMES]]\n");
    return 2;
}
