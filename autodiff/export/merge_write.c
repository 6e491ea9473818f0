/*
 * merge_write.c - what merge writes.  In: files as lists of pieces, most of them bytes of the
 * skeleton and of the checkpoint where these are mapped.  Out: all of the files, or none.
 */
#include <string.h>
#include <unistd.h>

#include "merge.h"

static _Noreturn void cannot_write(const FileWhole *w)
{
    diag_fatal(EXIT_IO, WHERE_FILE(w->path), "cannot write: %s", w->why);
}

void merge_run(Merge *m, void (*f)(void *arg), void *arg)
{
    int code = diag_run(f, arg);
    for (uint32_t i = 0; code && i < m->file.n; i++)
        file_drop(&m->file.at[i].as);
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

void merge_write(Merge *m, const char *path, const Pieces *pieces)
{
    vec_push(m->arena, &m->file, (Written){0});
    FileWhole *w = &m->file.at[m->file.n - 1].as;
    bool good = file_begin(w, path) != NULL;
    for (uint32_t i = 0; good && i < pieces->piece.n; i++) {
        const Piece *p = &pieces->piece.at[i];
        good = p->rows ? write_transposed(m, w->f, p) : write_plain(w->f, p);
    }
    if (!w->f || file_finish(w))
        cannot_write(w);
}

void merge_place(Merge *m)
{
    for (uint32_t i = 0; i < m->file.n; i++)
        if (m->file.at[i].gone)
            unlink(m->file.at[i].gone);
        else if (file_place(&m->file.at[i].as))
            cannot_write(&m->file.at[i].as);
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
