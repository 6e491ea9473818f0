/*
 * test_token_file.c - files of tokens (base/file/token_file.h), made by hand as their formats say: each
 * gives the same tokens; a header that says more or less than is there, an index whose sequences do not
 * tile the file beside it, and sizes that overflow are refused.
 */
#include "base/file/token_file.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/ppsplit-token-XXXXXX";
enum { N = 10 };

typedef struct {
    unsigned char at[4096];
    size_t n;
} Bytes;

static void put(Bytes *b, const void *at, size_t n)
{
    memcpy(b->at + b->n, at, n);
    b->n += n;
}

static void put_int(Bytes *b, uint64_t v, size_t bytes) { put(b, &v, bytes); } /* little-endian */

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void save(const char *name, const Bytes *b)
{
    FILE *f = fopen(path_of(name), "w");
    if (!f || fwrite(b->at, 1, b->n, f) != b->n || fclose(f))
        abort();
}

/* Tokens 7, 10, 13, ... */
static Bytes tokens(size_t bytes)
{
    Bytes b = {.n = 0};
    for (int i = 0; i < N; i++)
        put_int(&b, (uint64_t)(7 + 3 * i), bytes);
    return b;
}

static Bytes llmc(int32_t magic, int32_t version, int32_t count, size_t bytes)
{
    Bytes b = {.n = 0}, t = tokens(bytes);
    put_int(&b, (uint64_t)magic, 4);
    put_int(&b, (uint64_t)version, 4);
    put_int(&b, (uint64_t)count, 4);
    b.n = 1024;
    put(&b, t.at, t.n);
    return b;
}

typedef struct {
    uint64_t version, sequences, documents;
    int code, length[3];
    int64_t offset[3];
} Idx;

static Bytes megatron(const Idx *x)
{
    Bytes b = {.n = 0};
    put(&b, "MMIDIDX\0", 9);
    put_int(&b, x->version, 8);
    put_int(&b, (uint64_t)x->code, 1);
    put_int(&b, x->sequences, 8);
    put_int(&b, x->documents, 8);
    for (int i = 0; i < 3; i++)
        put_int(&b, (uint64_t)x->length[i], 4);
    for (int i = 0; i < 3; i++)
        put_int(&b, (uint64_t)x->offset[i], 8);
    put_int(&b, 0, 8);
    put_int(&b, 3, 8);
    return b;
}

static void reads(const char *name, int raw, size_t bytes)
{
    NpyFile f;
    char err[600] = "";
    const Bytes want = tokens(bytes);
    int good = !token_file_open(&f, path_of(name), raw, err, sizeof err);
    ok(good && f.rank == 1 && f.dim[0] == N && f.bytes == (int64_t)want.n &&
           !memcmp(f.data, want.at, want.n),
       "%s: its tokens %s", name, err);
    if (good)
        npy_close(&f);
}

static void refused(const char *what, const char *name, const char *why)
{
    NpyFile f;
    char err[600] = "";
    int bad = token_file_open(&f, path_of(name), 0, err, sizeof err);
    ok(bad && strstr(err, why), "refused: %s: %s", what, bad ? err + strlen(folder) : "");
    if (!bad)
        npy_close(&f);
}

/* Of a good index with one thing changed. */
static void refused_idx(const char *what, Idx x, const char *why)
{
    Bytes b = megatron(&x);
    save("m.idx", &b);
    refused(what, "m.bin", why);
}

static void check_megatron(void)
{
    const Idx good = {1, 3, 2, 8, {4, 0, 6}, {0, 8, 8}};
    Bytes bin = tokens(2), idx = megatron(&good);
    Idx x;
    save("m.bin", &bin);
    save("m.idx", &idx);
    reads("m.bin", 0, 2);
    reads("m.idx", 0, 2);
    refused_idx("another version", (x = good, x.version = 2, x), "version");
    refused_idx("floats", (x = good, x.code = 6, x), "whole numbers");
    refused_idx("no type", (x = good, x.code = 200, x), "whole numbers");
    refused_idx("a hole", (x = good, x.offset[2] = 10, x), "one behind the other");
    refused_idx("too long", (x = good, x.length[2] = 7, x), "one behind the other");
    refused_idx("negative", (x = good, x.length[1] = -1, x), "one behind the other");
    refused_idx("too short", (x = good, x.length[2] = 5, x), "longer than its sequences");
    refused_idx("more sequences", (x = good, x.sequences = 4, x), "not as long as");
    refused_idx("sizes that overflow", (x = good, x.sequences = UINT64_MAX / 12 + 2, x), "not as long");
    refused_idx("documents that overflow", (x = good, x.documents = UINT64_C(1) << 61, x), "not as long");
    idx.n = 20;
    save("m.idx", &idx);
    refused("cut short", "m.bin", "does not begin with");
    unlink(path_of("m.bin"));
    idx = megatron(&good);
    save("m.idx", &idx);
    refused("nothing beside it", "m.idx", "m.bin: No such file");
}

static void check_llmc(void)
{
    Bytes b = llmc(20240520, 1, N, 2);
    save("gpt2.bin", &b);
    reads("gpt2.bin", 0, 2);
    b = llmc(20240801, 7, N, 4);
    save("llama.bin", &b);
    reads("llama.bin", 0, 4);
    b = llmc(20240520, 1, N + 1, 2);
    save("gpt2.bin", &b);
    refused("more in the header", "gpt2.bin", "says 11 tokens, there are 10");
    b = llmc(20240520, 1, -1, 2);
    save("gpt2.bin", &b);
    refused("a negative count", "gpt2.bin", "says -1 tokens");
    b = llmc(20240520, 1, N, 2);
    b.n--;
    save("gpt2.bin", &b);
    refused("half a token", "gpt2.bin", "not a whole number");
    b = llmc(20240520, 9, N, 2);
    save("gpt2.bin", &b);
    refused("another version", "gpt2.bin", "neither a .npy file");
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    check_llmc();
    check_megatron();
    Bytes raw = tokens(1);
    save("raw", &raw);
    reads("raw", 2, 1);
    refused("numbers alone, of no type", "raw", "neither a .npy file");
    refused("not there", "gone", "No such file");
    ok(npy_holds(NPY_I32, INT32_MIN) && !npy_holds(NPY_I32, INT64_C(1) + UINT32_MAX) &&
           npy_holds(NPY_U8, 255) && !npy_holds(NPY_U8, -1) && npy_holds(NPY_I64, INT64_MAX),
       "what a type holds");
    static const char *const all[] = {"gpt2.bin", "llama.bin", "m.idx", "raw"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        unlink(path_of(all[i]));
    rmdir(folder);
    return tap_done();
}
