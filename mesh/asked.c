/*
 * asked.c - where a parameter is to lie, as --shard PATTERN=DIM[/GROUPS]|replicate says, or else
 * the model's file.
 *
 * The last pattern that fits a parameter's name decides.  The rest of the graph follows (search.c).
 */
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "mesh.h"

const char *const mesh_option[MESH_AXES] = {"--tensor", "--sequence", "--expert"};

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

static const char *param_text(const Graph *g, const Param *p)
{
    return shape_print(g->arena, p->dtype, &p->shape);
}

/* who: the option, or the spec, that says so. */
static void check_fits(const Graph *g, const MeshOptions *opt, const Param *p, const char *who,
                       Place at)
{
    if (place_fits_uneven(&p->shape, at, opt->chunks[MESH_TENSOR]))
        return;
    diag_hint("--shard '%s=replicate' leaves it whole", diag_escape(g->arena, p->name));
    diag_fatal(EXIT_MODEL, WHERE_FILE(g->file),
               "%s: dimension %d of %s of '%s' is not divisible in %lld x %d parts", who, at.dim,
               param_text(g, p), p->name, (long long)at.groups, opt->chunks[MESH_TENSOR]);
}

static bool of_file(const Graph *g, const MeshOptions *opt, uint32_t param, Place *at)
{
    for (uint32_t i = 0; i < opt->asked.n; i++)
        if (opt->asked.at[i].param == param) {
            *at = opt->asked.at[i].at;
            check_fits(g, opt, &g->param.at[param], "its sharding spec", *at);
            return true;
        }
    return false;
}

bool mesh_asked(const Graph *g, const MeshOptions *opt, uint32_t param, Place *at)
{
    const Param *p = &g->param.at[param];
    bool said = of_file(g, opt, param, at);
    for (uint32_t i = 0; i < opt->shard.n; i++) {
        Shard s = read_shard(g->arena, opt->shard.at[i]);
        if (fnmatch(s.pattern, p->name, 0) != 0)
            continue;
        said = true;
        long dim = s.dim + (s.dim < 0 ? p->shape.rank : 0);
        *at = s.replicate ? place_r() : place_s((int)dim, s.groups);
        if (s.replicate)
            continue;
        if (dim < 0 || dim >= p->shape.rank)
            diag_fatal(EXIT_USAGE, WHERE_FILE(g->file),
                       "--shard '%s': %s of '%s' has no dimension %ld", opt->shard.at[i],
                       param_text(g, p), p->name, s.dim);
        check_fits(g, opt, p, arena_printf(g->arena, "--shard '%s'", opt->shard.at[i]), *at);
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
        diag_fatal(EXIT_USAGE, WHERE_FILE(g->file), "--shard '%s': no parameter matches",
                   opt->shard.at[i]);
    }
}
