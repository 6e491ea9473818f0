/*
 * merge.c - `ppsplit merge OUT CHECKPOINT -o M.onnx`: puts trained weights back into the model.
 *
 * In: OUT/model.skeleton (skeleton.c) and the safetensors of a checkpoint, under the parameters' names and in PyTorch's shapes.
 * Out: M.onnx, weights inside it while the file stays under 2 GB, else in M.onnx.data beside it; of several files in
 * sequence M.onnx, M1.onnx, ... from model.skeleton, model1.skeleton, ...  All appear whole or not at all.  Running statistics go
 * back like parameters.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file/manifest.h"
#include "base/file/safetensors.h"
#include "skeleton.h"

enum { MAX_SHARDS = 4096 };
static const uint64_t inline_limit = UINT64_C(1800) << 20;      /* protobuf ends at 2 GiB */

typedef struct { FILE *f; const char *temporary, *path; } Written;

typedef struct {
    Arena *arena;
    const char *out, *checkpoint, *target;              /* target: as it was given */
    VEC(Written) file;                                  /* temporaries, renamed when all are there */
    StFile *shard;
    int n_shard;
    char *manifest;                                     /* its text: the checkpoint's, with a CRC-32 of each tensor */
    FILE *data;                                         /* external weights, or NULL */
    const char *data_name;
    uint64_t data_at;
    int written;
} Merge;

static _Noreturn void io_error(const char *path) { diag_fatal(EXIT_IO, WHERE_FILE(path), "%s", strerror(errno)); }

/* ---- the checkpoint ---- */

/* A checkpoint folder, or the newest step_N in it. */
static const char *newest_step(Merge *m, const char *path)
{
    DIR *d = opendir(path);
    if (!d)
        io_error(path);
    long best = -1;
    char *end;
    for (struct dirent *e; (e = readdir(d));)
        if (!strncmp(e->d_name, "step_", 5)) {
            long n = strtol(e->d_name + 5, &end, 10);
            if (!*end && n > best)
                best = n;
        }
    closedir(d);
    return best < 0 ? path : arena_printf(m->arena, "%s/step_%ld", path, best);
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* The manifest is written last: without one the checkpoint is unfinished. */
static void read_manifest(Merge *m, const char *folder)
{
    const char *path = arena_printf(m->arena, "%s/manifest.json", folder);
    m->manifest = manifest_read(path);
    if (!m->manifest) {
        diag_hint("CHECKPOINT is the folder given to --checkpoint, or a step_N in it");
        io_error(path);
    }
}

static void check_crc(const Merge *m, const char *name, const StTensor *t)
{
    int known = manifest_confirms(m->manifest, name, t->data, t->bytes);
    if (known < 0)
        diag_fatal(EXIT_IO, WHERE_NONE, "out of memory");
    if (!known)
        diag_fatal(EXIT_MODEL, WHERE_FILE(m->checkpoint), "damaged: the bytes of '%s' do not have the manifest's checksum", name);
}

static void open_shards(Merge *m)
{
    const char *folder = newest_step(m, m->checkpoint), **name = arena_array(m->arena, const char *, MAX_SHARDS);
    read_manifest(m, folder);
    DIR *d = opendir(folder);
    if (!d)
        io_error(folder);
    int n = 0;
    for (struct dirent *e; (e = readdir(d));) {
        size_t length = strlen(e->d_name);
        if (length > 12 && !strcmp(e->d_name + length - 12, ".safetensors") && n < MAX_SHARDS)
            name[n++] = arena_printf(m->arena, "%s/%s", folder, e->d_name);
    }
    closedir(d);
    if (n == 0)
        diag_fatal(EXIT_MODEL, WHERE_FILE(folder), "no .safetensors here: this is no checkpoint");
    qsort(name, (size_t)n, sizeof *name, by_text);
    m->shard = arena_array(m->arena, StFile, n);
    for (int i = 0; i < n; i++) {
        char err[ST_ERR];
        if (st_open(&m->shard[i], name[i], err, sizeof err))
            diag_fatal(EXIT_MODEL, WHERE_FILE(name[i]), "%s", err);
        m->n_shard = i + 1;
    }
}

static const StTensor *find_parameter(const Merge *m, const char *name)
{
    for (int i = 0; i < m->n_shard; i++) {
        const StTensor *t = st_find(&m->shard[i], name);
        if (!t)
            continue;
        check_crc(m, name, t);
        return t;
    }
    diag_hint("give a checkpoint of a program that this output folder built");
    diag_fatal(EXIT_MODEL, WHERE_FILE(m->checkpoint), "the checkpoint has no parameter '%s'", name);
}

/* ---- the model ---- */

typedef struct { Shape shape; uint64_t dtype; const char *name, *parameter; bool transposed; } Slot;

static const char *text_of(Merge *m, WireSpan s) { return arena_strndup(m->arena, (const char *)s.at, (size_t)(s.end - s.at)); }

static void read_slot(Merge *m, WireSpan body, Slot *s)
{
    for (WireField f; wire_next(&body, &f);) {
        const char *key = "", *value = "";
        WireSpan entry = f.body;
        switch (f.number) {
        case 1:
            if (s->shape.rank < MAX_RANK)
                s->shape.d[s->shape.rank++] = (int64_t)f.value;
            break;
        case 2: s->dtype = f.value; break;
        case 8: s->name = text_of(m, f.body); break;
        case 13:
            for (WireField e; wire_next(&entry, &e);)
                *(e.number == 1 ? &key : &value) = text_of(m, e.body);
            if (!strcmp(key, SKELETON_PARAMETER))
                s->parameter = value;
            s->transposed |= !strcmp(key, SKELETON_TRANSPOSED);
            break;
        default: break;
        }
    }
}

/* The tensor's bytes in the file's layout. */
static const char *slot_bytes(Merge *m, const Slot *s, const StTensor *t, size_t *length)
{
    Shape want = s->shape;
    if (s->transposed) {
        want.d[0] = s->shape.d[1];
        want.d[1] = s->shape.d[0];
    }
    if (t->dtype != (int)s->dtype || t->rank != want.rank || memcmp(t->dim, want.d, (size_t)want.rank * sizeof want.d[0]))
        diag_fatal(EXIT_MODEL, WHERE_FILE(m->checkpoint), "parameter '%s' has another type or shape than the model's", s->parameter);
    *length = (size_t)t->bytes;
    if (!s->transposed)
        return t->data;
    size_t size = (size_t)st_dtype_size(t->dtype), rows = (size_t)want.d[0], columns = (size_t)want.d[1];
    char *turned = arena_alloc(m->arena, (size_t)t->bytes);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            memcpy(turned + (j * rows + i) * size, t->data + (i * columns + j) * size, size);
    return turned;
}

static void put_trained(Merge *m, FILE *graph, const Slot *s)
{
    const StTensor *t = find_parameter(m, s->parameter);
    size_t length;
    const char *bytes = slot_bytes(m, s, t, &length);
    WireMessage out;
    wire_open(&out);
    for (int i = 0; i < s->shape.rank; i++)
        wire_put_int(out.f, 1, (uint64_t)s->shape.d[i]);
    wire_put_int(out.f, 2, s->dtype);
    wire_put_string(out.f, 8, s->name);
    if (m->data) {
        wire_put_entry(out.f, "location", m->data_name);
        wire_put_entry(out.f, "offset", arena_printf(m->arena, "%llu", (unsigned long long)m->data_at));
        wire_put_entry(out.f, "length", arena_printf(m->arena, "%zu", length));
        wire_put_int(out.f, 14, 1);
        fwrite(bytes, 1, length, m->data);
        m->data_at += length;
    } else
        wire_put_bytes(out.f, 9, bytes, length);
    wire_close(&out, graph, 5);
    m->written++;
}

static void put_model(Merge *m, FILE *f, WireSpan body, uint32_t level)
{
    for (WireField w; wire_next(&body, &w);) {
        Slot s = {0};
        if (level == 0 && w.number == 7) {
            WireMessage g;
            wire_open(&g);
            put_model(m, g.f, w.body, 1);
            wire_close(&g, f, 7);
            continue;
        }
        if (level == 1 && w.number == 5)
            read_slot(m, w.body, &s);
        if (s.parameter)
            put_trained(m, f, &s);
        else
            fwrite(w.start, 1, (size_t)(w.end - w.start), f);
    }
}

static uint64_t parameter_bytes(const Merge *m)
{
    uint64_t n = 0;
    for (int i = 0; i < m->n_shard; i++)
        for (int j = 0; j < m->shard[i].n; j++)
            if (strncmp(m->shard[i].tensor[j].name, "optimizer/", 10))
                n += (uint64_t)m->shard[i].tensor[j].bytes;
    return n;
}

/* A temporary file, to be renamed to path at the end. */
static FILE *begin_file(Merge *m, const char *path)
{
    Written w = {NULL, arena_printf(m->arena, "%s.tmp", path), path};
    if (!(w.f = fopen(w.temporary, "wbe")))
        io_error(path);
    vec_push(m->arena, &m->file, w);
    return w.f;
}

static void finish_files(Merge *m)
{
    for (uint32_t i = 0; i < m->file.n; i++) {
        Written *w = &m->file.at[i];
        FILE *f = w->f;
        w->f = NULL;
        bool bad = fflush(f) || ferror(f) || fsync(fileno(f));
        int error = errno;
        bad |= fclose(f) != 0;
        if (bad) {
            errno = error;
            io_error(w->path);
        }
    }
    for (uint32_t i = 0; i < m->file.n; i++)
        if (rename(m->file.at[i].temporary, m->file.at[i].path))
            io_error(m->file.at[i].path);
}

static void remove_temporaries(Merge *m)
{
    for (uint32_t i = 0; i < m->file.n; i++) {
        if (m->file.at[i].f)
            fclose(m->file.at[i].f);
        unlink(m->file.at[i].temporary);
    }
}

/* "trained.onnx", "trained1.onnx", "trained2.onnx" */
static const char *target_name(Merge *m, int i)
{
    const char *dot = strrchr(m->target, '.'), *slash = strrchr(m->target, '/');
    if (i == 0)
        return m->target;
    if (!dot || (slash && dot < slash))
        dot = m->target + strlen(m->target);
    return arena_printf(m->arena, "%.*s%d%s", (int)(dot - m->target), m->target, i, dot);
}

/* One model: false when there is no skeleton of that number. */
static bool merge_model(Merge *m, int i)
{
    const char *skeleton = arena_printf(m->arena, i ? "%s/model%d.skeleton" : "%s/model.skeleton", m->out, i);
    int fd = open(skeleton, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 && errno == ENOENT && i > 0)
        return false;
    if (fd < 0 || fstat(fd, &st)) {
        diag_hint("OUT is the folder that `ppsplit MODEL -o OUT' wrote");
        io_error(skeleton);
    }
    const uint8_t *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (at == MAP_FAILED)
        io_error(skeleton);
    const char *target = target_name(m, i);
    if (i == 0)
        open_shards(m);
    m->data = NULL;
    if (parameter_bytes(m) + (uint64_t)st.st_size > inline_limit) {
        const char *path = arena_printf(m->arena, "%s.data", target), *slash = strrchr(path, '/');
        m->data_name = slash ? slash + 1 : path;
        m->data_at = 0;
        m->data = begin_file(m, path);
    }
    WireMessage whole;                                  /* in memory until everything is known to fit together */
    wire_open(&whole);
    put_model(m, whole.f, (WireSpan){at, at + st.st_size, false}, 0);
    if (fclose(whole.f))
        diag_fatal(EXIT_IO, WHERE_NONE, "out of memory");
    fwrite(whole.bytes, 1, whole.n, begin_file(m, target));
    free(whole.bytes);
    munmap((void *)(uintptr_t)at, (size_t)st.st_size);
    return true;
}

static void merge(void *arg)
{
    Merge *m = arg;
    int n = 0;
    while (merge_model(m, n))
        n++;
    finish_files(m);
    printf("merged %d parameters into %s", m->written, m->target);
    for (int i = 1; i < n; i++)
        printf(", %s", target_name(m, i));
    printf("\n");
}

static const char merge_usage[] =
    "Usage: ppsplit merge OUT CHECKPOINT -o M.onnx\n"
    "Put trained weights back into the model.\n"
    "\n"
    "OUT is the folder that ppsplit wrote, CHECKPOINT a folder that its program wrote with --checkpoint\n"
    "(or one step_N in it).  M.onnx opens in any ONNX runtime and computes what the pipeline computed.\n"
    "Of several models in sequence the first is M.onnx, the next ones M1.onnx, M2.onnx, ..., a model named twice once.\n"
    "\n"
    "Examples:\n"
    "  ppsplit merge out checkpoints -o trained.onnx\n"
    "  ppsplit merge out checkpoints/step_200 -o step200.onnx\n";

int merge_main(int argc, char **argv)
{
    Merge m = {.arena = arena_new()};
    const char *operand[2] = {NULL, NULL};
    int n = 0, bad = 0;
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help")) {
            fputs(merge_usage, stdout);
            arena_free(m.arena);
            return 0;
        } else if ((!strcmp(argv[i], "-o") || !strcmp(argv[i], "--output")) && i + 1 < argc)
            m.target = argv[++i];
        else if (!strncmp(argv[i], "--output=", 9))
            m.target = argv[i] + 9;
        else if (argv[i][0] == '-' || n == 2)
            bad = i;
        else
            operand[n++] = argv[i];
    if (bad || n != 2 || !m.target) {
        if (bad)
            fprintf(stderr, "ppsplit: merge: unexpected '%s'", argv[bad]);
        else
            fprintf(stderr, "ppsplit: merge: missing %s", n < 1 ? "operand: OUT" : n < 2 ? "operand: CHECKPOINT" : "option: -o M.onnx");
        fprintf(stderr, "\nTry 'ppsplit merge --help' for more information.\n");
        arena_free(m.arena);
        return EXIT_USAGE;
    }
    m.out = operand[0];
    m.checkpoint = operand[1];
    int code = diag_run(merge, &m);
    if (code != 0)
        remove_temporaries(&m);
    for (int i = 0; i < m.n_shard; i++)
        st_close(&m.shard[i]);
    free(m.manifest);
    arena_free(m.arena);
    return code;
}
