/*
 * params.c - the parameters of a stage beside the program.  Out: params/stageN.safetensors; or,
 * with --params link, params/stageN.link.json, which says where in the model's own files each one
 * stands, and stageN.bin for what stands nowhere as it is (restored zeros, unpacked arrays).
 * Constants are apart from them: autodiff/export/outside.c.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file/safetensors.h"
#include "write.h"

/* What a stage's file has: of a parameter that is divided the whole, once, where its first part is;
 * of one of several all of them.  number: in the graph; NONE: one of several */
typedef struct {
    const Param *p;
    uint32_t number;
} Stored;
typedef VEC(Stored) StoredList;

static StoredList stored(const StageGen *sg)
{
    const Stage *s = sg->stage;
    StoredList list = {0};
    for (uint32_t i = 0; i < s->param.n; i++) {
        const Param *p = &sg->g->param.at[s->param.at[i].param];
        bool first = s->param.at[i].use != USE_TRANSMIT;
        for (uint32_t j = 0; j < i && first && p->divided; j++)
            first = strcmp(sg->g->param.at[s->param.at[j].param].name, p->name) != 0;
        if (first && !p->n_each)
            vec_push(sg->a, &list, ((Stored){p, s->param.at[i].param}));
        for (int k = 0; first && k < p->n_each; k++)
            vec_push(sg->a, &list, ((Stored){&p->each[k], NONE}));
    }
    return list;
}

/* A parameter's bytes in PyTorch's layout; NULL at: zeros. */
static const void *dense(Arena *a, const Param *p, int64_t bytes)
{
    if (p->bytes.at == NULL)
        return arena_alloc(a, (size_t)bytes + 1);
    if ((int64_t)p->bytes.length < bytes)
        BUG("parameter '%s' has %zu bytes of %" PRId64, p->name, p->bytes.length, bytes);
    if (!p->transposed)
        return p->bytes.at;
    uint8_t *to = arena_alloc(a, (size_t)bytes + 1);
    param_turn(to, p->bytes.at, param_whole(p)->d[1], param_whole(p)->d[0], dtype_size(p->dtype));
    return to;
}

static int64_t bytes_of(const Shape *s, Dtype t)
{
    return shape_elements(s) * (int64_t)dtype_size(t);
}

static void abandon(void *w) { stw_abandon(w); }

static void write_copy(StageGen *sg, const char *dir, OnnxWeight *weight)
{
    /* after so many bytes the mapped pages are given back */
    enum { FILES_REST = 16 << 20 };
    int64_t read = 0;
    const Stage *s = sg->stage;
    const StoredList list = stored(sg);
    const char *path = arena_printf(sg->a, "%s/stage%u.safetensors", dir, s->index);
    StWriter *w = arena_new_of(sg->a, StWriter);
    stw_init(w);
    arena_hold(sg->a, abandon, w);
    for (uint32_t i = 0; i < list.n; i++) {
        const Param *p = list.at[i].p;
        stw_declare(w, p->name, (int)p->dtype, p->shape.rank, param_whole(p)->d);
    }
    if (stw_begin(w, path))
        write_error(path);
    for (uint32_t i = 0; i < list.n; i++) {
        const Param *p = list.at[i].p;
        const uint32_t number = list.at[i].number;
        int64_t bytes = bytes_of(param_whole(p), p->dtype);
        write_unless_ended();
        if (number != NONE && !weight[number].file)
            weight[number] =
                (OnnxWeight){arena_printf(sg->g->arena, "params/stage%u.safetensors", s->index),
                             (int64_t)ftello(w->f)};
        Arena *scratch = arena_within(sg->a);
        stw_write(w, dense(scratch, p, bytes), bytes);
        arena_free(scratch);
        read += bytes;
        if (read >= FILES_REST) {
            models_rest(sg->g);
            read = 0;
        }
    }
    arena_drop(sg->a, w);
    if (stw_end(w, 0))
        write_error(path);
}

/* ---- link ------------------------------------------------------------------------------------ */

/* The way from folder `from` to file `to`, both absolute. */
static const char *relative(Arena *a, const char *from, const char *to)
{
    size_t same = 0;
    for (size_t i = 0; from[i] && from[i] == to[i]; i++)
        if (from[i] == '/')
            same = i + 1;
    const char *up = "";
    size_t n = strlen(from);
    if (strncmp(from, to, n) == 0 && to[n] == '/')
        return to + n + 1;
    for (const char *p = from + same; *p; p = strchr(p, '/') ? strchr(p, '/') + 1 : p + strlen(p))
        up = arena_printf(a, "%s../", up);
    return arena_printf(a, "%s%s", up, to + same);
}

typedef struct { FILE *index, *bin; int64_t at; bool first; } Link;

static void entry(Link *l, const char *name, Dtype t, const Shape *s, const char *file,
                  int64_t offset, bool transposed)
{
    fprintf(l->index, "%s\n", l->first ? "" : ",");
    l->first = false;
    JsonOut o = {.f = l->index};
    json_begin(&o, name, '{');
    json_put_text(&o, "dtype", st_dtype_name((int)t));
    json_put_integers(&o, "shape", s->d, s->rank);
    json_put_text(&o, "file", file);
    json_put(&o, "offset", "%" PRId64, offset);
    json_put(&o, "bytes", "%" PRId64, bytes_of(s, t));
    if (transposed)
        json_put(&o, "transposed", "true");
    json_end(&o, "}");
}

static void beside(Link *l, const char *name, Dtype t, const Shape *s, const void *data,
                   const char *file)
{
    int64_t bytes = bytes_of(s, t);
    entry(l, name, t, s, file, l->at, false);
    file_put(data, (size_t)bytes, l->bin);
    l->at += bytes;
}

static void write_link(StageGen *sg, const char *dir, const char *final_dir)
{
    const Stage *s = sg->stage;
    const char *index = arena_printf(sg->a, "%s/stage%u.link.json", dir, s->index);
    const char *bin = arena_printf(sg->a, "%s/stage%u.bin", dir, s->index),
               *bin_name = arena_printf(sg->a, "stage%u.bin", s->index);
    Link l = {.index = arena_fopen(sg->a, index, "w"),
              .bin = arena_fopen(sg->a, bin, "w"),
              .first = true};
    if (!l.index || !l.bin)
        write_error(index);
    const StoredList list = stored(sg);
    fprintf(l.index, "{");
    for (uint32_t i = 0; i < list.n; i++) {
        const Param *p = list.at[i].p;
        if (p->bytes.at == NULL || p->bytes.converted || !p->bytes.file) {
            Arena *scratch = arena_within(sg->a);
            beside(&l, p->name, p->dtype, param_whole(p),
                   dense(scratch, p, bytes_of(param_whole(p), p->dtype)), bin_name);
            arena_free(scratch);
            continue;
        }
        char *real = realpath(p->bytes.file, NULL);
        const char *file = arena_strdup(sg->a, real ? real : p->bytes.file);
        free(real);
        entry(&l, p->name, p->dtype, param_whole(p), relative(sg->a, final_dir, file),
              (int64_t)p->bytes.offset, p->transposed);
    }
    fprintf(l.index, "\n}\n");
    bool bad = ferror(l.index) || ferror(l.bin);
    bad |= arena_fclose(sg->a, l.index) != 0;
    bad |= arena_fclose(sg->a, l.bin) != 0;
    if (bad)
        write_error(index);
}

void cg_params_write(StageGen *sg, const char *dir, const char *final_dir, bool link,
                     OnnxWeight *weight)
{
    if (link)
        write_link(sg, dir, final_dir);
    else
        write_copy(sg, dir, weight);
}
