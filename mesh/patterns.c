/*
 * patterns.c - --shard PATTERN=DIM[/GROUPS]|replicate: where the user wants a parameter to lie.
 *
 * In: the option's texts; parameters by their names.  Out: the place of a parameter, the last
 * pattern that fits deciding.  The rest of the graph follows (search.c).
 */
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "mesh.h"

typedef struct {
    const char *pattern;
    bool replicate;
    long dim, groups;
} Shard;

static Shard read_shard(Arena *a, const char *text)
{
    const char *eq = strrchr(text, '=');
    Shard s = {.pattern = eq ? arena_strndup(a, text, (size_t)(eq - text)) : NULL, .groups = 1};
    char *end = NULL;
    errno = 0;
    s.replicate = eq && !strcmp(eq + 1, "replicate");
    if (eq && !s.replicate) {
        s.dim = strtol(eq + 1, &end, 10);
        if (end != eq + 1 && *end == '/')
            s.groups = strtol(end + 1, &end, 10);
    }
    if (!eq || (!s.replicate && (end == eq + 1 || *end || errno || s.groups < 1)))
        diag_fatal(EXIT_USAGE, WHERE_NONE,
                   "--shard '%s': expected PARAMETER=DIM, PARAMETER=DIM/GROUPS or "
                   "PARAMETER=replicate",
                   text);
    return s;
}

bool mesh_asked(const Graph *g, const MeshOptions *opt, uint32_t param, Place *at)
{
    const Param *p = &g->param.at[param];
    bool said = mesh_of_file(g, opt, param, at);
    for (uint32_t i = 0; i < opt->shard.n; i++) {
        Shard s = read_shard(g->arena, opt->shard.at[i]);
        if (fnmatch(s.pattern, p->name, 0) != 0)
            continue;
        said = true;
        long dim = s.dim + (s.dim < 0 ? p->shape.rank : 0);
        *at = s.replicate ? (Place){PLACE_R, 1} : (Place){(int)dim, s.groups};
        if (s.replicate)
            continue;
        if (dim < 0 || dim >= p->shape.rank)
            diag_fatal(EXIT_USAGE, WHERE_FILE(g->file),
                       "--shard '%s': %s of '%s' has no dimension %ld", opt->shard.at[i],
                       shape_print(g->arena, p->dtype, &p->shape), p->name, s.dim);
        if (!place_fits(&p->shape, *at, opt->chunks))
            diag_fatal(
                EXIT_MODEL, WHERE_FILE(g->file),
                "--shard '%s': dimension %ld of %s of '%s' is not divisible in %ld x %d parts",
                opt->shard.at[i], dim, shape_print(g->arena, p->dtype, &p->shape), p->name,
                s.groups, opt->chunks);
    }
    return said;
}

void mesh_check(const Graph *g, const MeshOptions *opt)
{
    for (uint32_t i = 0; i < opt->shard.n; i++) {
        Shard s = read_shard(g->arena, opt->shard.at[i]);
        bool some = false;
        for (uint32_t k = 0; k < g->param.n && !some; k++)
            some = fnmatch(s.pattern, g->param.at[k].name, 0) == 0;
        if (some)
            continue;
        diag_hint("'ppsplit ls --parameters MODEL.onnx' shows the parameters");
        diag_fatal(EXIT_USAGE, WHERE_FILE(g->file), "--shard '%s': no parameter fits",
                   opt->shard.at[i]);
    }
}
