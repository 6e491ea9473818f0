/*
 * merge_write.c - what merge writes.  In: files as lists of pieces, most of them bytes of the
 * skeleton and of the checkpoint where these are mapped.  Out: all of the files, or none.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/file/replace.h"
#include "merge.h"

static _Noreturn void io_error(const char *path, const char *what)
{
    diag_fatal(EXIT_IO, WHERE_FILE(path), "%s: %s", what, strerror(errno));
}

void merge_run(Merge *m, void (*f)(void *arg), void *arg)
{
    int code = diag_run(f, arg);
    for (uint32_t i = 0; code && i < m->file.n; i++)
        if (m->file.at[i].temporary)
            unlink(m->file.at[i].temporary);
    index_close(&m->index);
    if (code)
        diag_raise(code);
}

void merge_add(Arena *a, Pieces *to, Piece p)
{
    vec_push(a, &to->piece, p);
    to->n += p.n;
}

/* f32 as the piece's half type, to nearest even. */
static bool write_rounded(FILE *f, const Piece *p)
{
    enum { BLOCK = 4096 };
    uint16_t block[BLOCK];
    const float *from = p->at;
    for (size_t i = 0, n = p->n / sizeof *block; i < n; i += BLOCK) {
        size_t some = n - i < BLOCK ? n - i : BLOCK;
        for (size_t k = 0; k < some; k++)
            element_copy(p->half, block, DT_F32, from + i, (int64_t)k);
        if (fwrite(block, sizeof *block, some, f) != some)
            return false;
    }
    return true;
}

static bool write_plain(FILE *f, const Piece *p)
{
    if (p->half != DT_NONE)
        return write_rounded(f, p);
    return p->n == 0 || file_put(p->at, p->n, f) == p->n;
}

static bool write_transposed(Merge *m, FILE *f, const Piece *p)
{
    size_t size = p->half != DT_NONE ? dtype_size(DT_F32) : p->n / (p->rows * p->columns);
    const char *from = p->at;
    char *line = arena_calloc(m->arena, p->rows, size);
    for (size_t j = 0; j < p->columns; j++) {
        for (size_t i = 0; i < p->rows; i++)
            memcpy(line + i * size, from + (i * p->columns + j) * size, size);
        Piece row = {.at = line, .half = p->half};
        row.n = p->n / p->columns;
        if (!write_plain(f, &row))
            return false;
    }
    return true;
}

static bool write_pieces(Merge *m, FILE *f, const Pieces *pieces)
{
    for (uint32_t i = 0; i < pieces->piece.n; i++) {
        const Piece *p = &pieces->piece.at[i];
        if (p->rows ? !write_transposed(m, f, p) : !write_plain(f, p))
            return false;
    }
    return fflush(f) == 0 && fsync(fileno(f)) == 0;
}

void merge_write(Merge *m, const char *path, const Pieces *pieces)
{
    Written w = {arena_printf(m->arena, "%s.tmp", path), path};
    char why[FILE_WHY];
    if (file_try(path, why))
        diag_fatal(EXIT_IO, WHERE_FILE(path), "cannot write: %s", why);
    FILE *f = arena_file_new(m->arena, w.temporary);
    if (!f)
        io_error(path, "cannot write");
    vec_push(m->arena, &m->file, w);
    bool good = write_pieces(m, f, pieces);
    int error = errno; /* of what failed first: closing may fail too, and differently */
    if (arena_fclose(m->arena, f) && good) {
        good = false;
        error = errno;
    }
    errno = error;
    if (!good)
        io_error(path, "cannot write");
}

void merge_rename(Merge *m)
{
    for (uint32_t i = 0; i < m->file.n; i++)
        if (!m->file.at[i].temporary)
            unlink(m->file.at[i].path);
        else if (rename(m->file.at[i].temporary, m->file.at[i].path))
            io_error(m->file.at[i].path, "cannot write");
}

const char *merge_target(Merge *m, const char *name, uint32_t i)
{
    const char *dot = strrchr(name, '.'), *slash = strrchr(name, '/');
    if (i == 0)
        return name;
    if (!dot || (slash && dot < slash))
        dot = name + strlen(name);
    return arena_printf(m->arena, "%.*s%u%s", (int)(dot - name), name, i, dot);
}
