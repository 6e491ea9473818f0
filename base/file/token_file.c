/*
 * token_file.c - in: a file of tokens; out: where in it they are, and of which type.
 *
 *     npy       rank 1, as numpy.save() writes it
 *     llm.c     256 int32: magic, version, count; then the tokens:
 *               magic 20240520, version 1, uint16 (GPT-2),
 *               or 20240801, version 7, uint32 (Llama 3)
 *     Megatron  NAME.bin, the tokens of all sequences one after the other,
 *               and NAME.idx: "MMIDIDX\0\0", u64 version 1, u8 type, u64 sequences, u64 documents,
 *               then int32 lengths[sequences], int64 offsets[sequences],
 *               int64 documents[documents]
 *
 * All are untrusted: the counts are those of the bytes that are there, and Megatron's sequences lie
 * one behind the other from the first byte to the last.
 */
#include "token_file.h"

#include "safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fail(char *err, size_t nerr, const char *path, const char *what)
{
    snprintf(err, nerr, "%s: %s", path, what);
    return -1;
}

static int ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n > k && !strcmp(s + n - k, end);
}

/* Bytes from `first` on of the mapped file as a tensor of rank 1 */
static int take(NpyFile *f, const char *path, FileMap *map, size_t first, int dtype, char *err,
                size_t nerr)
{
    size_t size = (size_t)st_dtype_size(dtype);
    *f = (NpyFile){.dtype = dtype, .rank = 1, .map = map};
    f->bytes = (int64_t)(map->bytes - first);
    f->data = map->at + first;
    f->dim[0] = f->bytes / (int64_t)size;
    if ((size_t)f->bytes % size == 0)
        return 0;
    npy_close(f);
    return fail(err, nerr, path, "not a whole number of tokens of its type");
}

/* ---- llm.c ---- */

enum { LLMC_HEADER = 256 * 4 };
static const struct {
    int32_t magic, version;
    int dtype; /* of uint32 as I32: no vocabulary needs the last bit, and one that does is refused
                */
} llmc[] = {{20240520, 1, NPY_U16}, {20240801, 7, NPY_I32}};

static int llmc_row(const FileMap *m)
{
    int32_t head[3];
    if (m->bytes < LLMC_HEADER)
        return -1;
    memcpy(head, m->at, sizeof head);
    for (size_t i = 0; i < sizeof llmc / sizeof *llmc; i++)
        if (head[0] == llmc[i].magic && head[1] == llmc[i].version)
            return (int)i;
    return -1;
}

static int is_llmc(const char *path, const FileMap *m)
{
    (void)path;
    return llmc_row(m) >= 0;
}

static int open_llmc(NpyFile *f, const char *path, FileMap *m, char *err, size_t nerr)
{
    int32_t count;
    memcpy(&count, m->at + 8, sizeof count);
    if (take(f, path, m, LLMC_HEADER, llmc[llmc_row(m)].dtype, err, nerr))
        return -1;
    if (count == f->dim[0])
        return 0;
    snprintf(err, nerr, "%s: its header says %" PRId32 " tokens, there are %" PRId64, path, count,
             f->dim[0]);
    npy_close(f);
    return -1;
}

/* ---- Megatron ---- */

enum { IDX_HEADER = 9 + 8 + 1 + 8 + 8 };

static char *beside(const char *path, const char *ending)
{
    char *other;
    const char *dot = strrchr(path, '.');
    return asprintf(&other, "%.*s%s", (int)(dot - path), path, ending) < 0 ? NULL : other;
}

static int is_megatron(const char *path, const FileMap *m)
{
    if (ends_with(path, ".idx"))
        return m->bytes >= 9 && !memcmp(m->at, "MMIDIDX\0", 9);
    char *index = ends_with(path, ".bin") ? beside(path, ".idx") : NULL;
    int is = index && access(index, F_OK) == 0;
    free(index);
    return is;
}

/* An index: the type of its tokens, or 0 and err; *n: its sequences */
static int read_head(const char *path, const FileMap *m, uint64_t *n, char *err, size_t nerr)
{
    static const int types[] = {0, NPY_U8, NPY_I8, NPY_I16, NPY_I32, NPY_I64, 0, 0, NPY_U16};
    uint64_t head[3], rest;
    uint8_t code;
    if (m->bytes < IDX_HEADER || memcmp(m->at, "MMIDIDX\0", 9) != 0)
        return fail(err, nerr, path, "no index of Megatron: it does not begin with MMIDIDX"), 0;
    memcpy(head, m->at + 9, 8);
    code = (uint8_t)m->at[17];
    memcpy(head + 1, m->at + 18, 16);
    int type = code < sizeof types / sizeof *types ? types[code] : 0;
    if (head[0] != 1 || !type)
        return fail(err, nerr, path, head[0] != 1 ? "a version other than 1"
                                                  : "tokens are whole numbers, these are not"), 0;
    uint64_t documents = head[2];
    *n = head[1];
    if (__builtin_mul_overflow(*n, 12, &rest) || __builtin_mul_overflow(documents, 8, &documents) ||
        __builtin_add_overflow(rest, documents, &rest) || rest != m->bytes - IDX_HEADER)
        return fail(err, nerr, path, "not as long as its sequences and documents ask for"), 0;
    return type;
}

/* Likewise, of a file of so many bytes */
static int read_idx(const char *path, const FileMap *m, uint64_t bytes, char *err, size_t nerr)
{
    uint64_t n = 0, at = 0;
    const int type = read_head(path, m, &n, err, nerr);
    const uint64_t size = type ? (uint64_t)st_dtype_size(type) : 0;
    if (!type)
        return 0;
    const char *length = m->at + IDX_HEADER, *offset = length + 4 * n;
    for (uint64_t i = 0; i < n; i++) {
        int32_t many;
        int64_t from;
        memcpy(&many, length + 4 * i, sizeof many);
        memcpy(&from, offset + 8 * i, sizeof from);
        if (many < 0 || from < 0 || (uint64_t)from != at || (uint64_t)many * size > bytes - at)
            return fail(err, nerr, path, "its sequences do not lie one behind the other in the "
                                         "file beside it"), 0;
        at += (uint64_t)many * size;
    }
    if (at != bytes)
        return fail(err, nerr, path, "the file beside it is longer than its sequences"), 0;
    return type;
}

static int open_megatron(NpyFile *f, const char *path, FileMap *m, char *err, size_t nerr)
{
    char why[FILE_WHY];
    int index = ends_with(path, ".idx");
    char *other_path = beside(path, index ? ".bin" : ".idx");
    FileMap *other = other_path ? file_map(other_path, why) : NULL;
    int type = 0, bad = -1;
    if (!other) {
        fail(err, nerr, other_path ? other_path : path, other_path ? why : "out of memory");
        file_unmap(m);
    } else {
        FileMap *idx = index ? m : other, *tokens = index ? other : m;
        type = read_idx(index ? path : other_path, idx, tokens->bytes, err, nerr);
        if (type)
            bad = take(f, index ? other_path : path, tokens, 0, type, err, nerr);
        else
            file_unmap(tokens);
        file_unmap(idx);
    }
    free(other_path);
    return bad;
}

int token_lengths_open(NpyFile *f, const char *path, int *index, char *err, size_t nerr)
{
    char why[FILE_WHY];
    uint64_t n;
    FileMap *m = ends_with(path, ".idx") ? file_map(path, why) : NULL;
    *index = m != NULL;
    if (!m) /* a .npy, or what can't be read */
        return npy_open(f, path, err, nerr);
    if (!read_head(path, m, &n, err, nerr))
        return file_unmap(m), -1;
    *f = (NpyFile){.dtype = NPY_I32, .rank = 1, .bytes = 4 * (int64_t)n, .map = m};
    f->data = m->at + IDX_HEADER;
    f->dim[0] = (int64_t)n;
    return 0;
}

/* ---- all ---- */

/* What numpy.save() writes, or what is none of the others: npy.c says what it is instead. */
static int is_any(const char *path, const FileMap *m)
{
    (void)path, (void)m;
    return 1;
}

static int open_npy(NpyFile *f, const char *path, FileMap *m, char *err, size_t nerr)
{
    int npy = m->bytes >= 6 && !memcmp(m->at, "\x93NUMPY", 6);
    file_unmap(m);
    int bad = npy_open(f, path, err, nerr);
    return bad && !npy ? 1 : bad;
}

/* is: what the file, mapped, is.  open: takes the mapping over, also where it fails. */
static const struct {
    int (*is)(const char *path, const FileMap *m);
    int (*open)(NpyFile *f, const char *path, FileMap *m, char *err, size_t nerr);
} formats[] = {
    {is_megatron, open_megatron},
    {is_llmc, open_llmc},
    {is_any, open_npy},
};

int token_file_open(NpyFile *f, const char *path, int raw, char *err, size_t nerr)
{
    char why[FILE_WHY];
    if (raw)
        return npy_open_raw(f, path, raw, err, nerr);
    FileMap *m = file_map(path, why);
    size_t i = 0;
    if (!m)
        return fail(err, nerr, path, why);
    while (!formats[i].is(path, m)) /* the last one is all that is left */
        i++;
    return formats[i].open(f, path, m, err, nerr);
}
