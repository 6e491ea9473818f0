/*
 * reader.c - the compiler as others ask for it.  In: Options.  Out: for planner/, the model of
 * other rows and members, cut elsewhere; for lengths that vary, the Pipe with other lengths.
 */
#include "annotate/annotate.h"
#include "command/passes.h"

#include <stdlib.h>
#include <string.h>

/* Models as they were read, each of other rows and lengths; then of a member. */
typedef struct {
    State whole;
    PlanMesh mesh;
    int64_t length[SYMBOLS]; /* 0: the greatest */
} PlanRead;
typedef struct {
    Options *o;
    VEC(PlanRead) read;
    bool keeps; /* what was imported last, as it was */
    const Graph *imported;
    const PlanSize *sample; /* whose sizes decide how members divide; NULL: as Options say */
} PlanReader;

/* ---- as planner/ asks for it ---- */

/* Members 0: of the whole. */
static const State *plan_have(const PlanReader *r, PlanSize size, const PlanMesh *m)
{
    for (uint32_t i = 0; i < r->read.n; i++) {
        const PlanRead *x = &r->read.at[i];
        if (x->whole.o->rows == size.rows && !memcmp(x->length, size.length, sizeof x->length) &&
            !memcmp(x->mesh.members, m->members, sizeof m->members) && x->mesh.parts == m->parts)
            return &x->whole;
    }
    return NULL;
}

static const State *plan_keep(PlanReader *r, State s, PlanSize size, PlanMesh m)
{
    PlanRead x = {.whole = s, .mesh = m};
    memcpy(x.length, size.length, sizeof x.length);
    vec_push(r->o->arena, &r->read, x);
    return &r->read.at[r->read.n - 1].whole;
}

static State plan_twin(const State *from, Arena *a)
{
    State s = {.o = arena_new_of(a, Options), .graph = graph_twin(from->graph, a)};
    s.loss = from->loss;
    *s.o = *from->o;
    s.o->arena = a;
    return s;
}

static void bind_lengths(Options *o, const int64_t *length)
{
    const Lengths *l = &o->lengths;
    const char **bind = arena_array(o->arena, const char *, o->import.bind.n + 1);
    memcpy(bind, o->import.bind.at, o->import.bind.n * sizeof *bind);
    o->import.bind.at = bind;
    for (int v = 0; v < l->symbols; v++)
        bind[l->symbol[v].bind] = bound_to(o->arena, &l->symbol[v], length[v]);
}

/* The passes before members and cuts, with these rows and lengths; once. */
static const State *plan_whole(PlanReader *r, PlanSize wanted)
{
    const PlanMesh none = {0};
    const State *have = plan_have(r, wanted, &none);
    if (have)
        return have;
    State s = {.o = arena_new_of(r->o->arena, Options)};
    *s.o = *r->o;
    s.o->rows = wanted.rows;
    if (wanted.length[0])
        bind_lengths(s.o, wanted.length);
    read_model(&s);
    r->imported = r->keeps ? graph_twin(s.graph, r->o->arena) : NULL;
    pass_rows(&s);
    pass_loss(&s);
    pass_autocast(&s);
    pass_attention(&s);
    return plan_keep(r, s, wanted, none);
}

/* Then a member's, once. */
static const State *plan_member(PlanReader *r, PlanSize wanted, const PlanMesh *members)
{
    const State *have = plan_have(r, wanted, members);
    if (have)
        return have;
    State s = plan_twin(plan_whole(r, wanted), r->o->arena);
    MeshOptions *m = &s.o->mesh;
    s.graph->other = r->sample ? plan_whole(r, *r->sample)->graph : r->o->other_whole;
    m->parts = members->parts;
    for (int x = 0; x < MESH_AXES; x++)
        if (!m->members[x])
            m->members[x] = m->chunks[x] = members->members[x];
    check_lengths(s.o);
    pass_mesh(&s);
    return plan_keep(r, s, wanted, *members);
}

static void read_sample(void *of)
{
    PlanReader *r = of;
    plan_whole(r, *r->sample);
}

/* As of the program (pass_lengths) */
static void plan_sample(PlanReader *r, int64_t rows)
{
    Lengths *l = &r->o->lengths;
    const bool may_fail = choose_lengths(l, false);
    PlanSize *sample = arena_new_of(r->o->arena, PlanSize);
    sample->rows = rows;
    memcpy(sample->length, l->at[0], sizeof sample->length);
    r->sample = sample;
    FILE *quiet = may_fail ? fopen("/dev/null", "w") : NULL,
         *before = quiet ? diag_to(quiet) : NULL;
    if (quiet && diag_run(read_sample, r)) {
        choose_lengths(l, true);
        memcpy(sample->length, l->at[0], sizeof sample->length);
    }
    if (quiet) {
        diag_to(before);
        fclose(quiet);
    }
}

static int64_t plan_rows(void *of, PlanMesh *mesh)
{
    PlanReader *r = of;
    const State *s = plan_whole(r, (PlanSize){.rows = r->o->rows});
    r->o->lengths = s->o->lengths;
    r->o->settled = true;
    check_lengths(r->o);
    if (r->o->lengths.symbols)
        plan_sample(r, s->o->rows);
    MeshOptions own = r->o->mesh;
    (void)annotate_read(s->graph, &own);
    const bool given = r->o->mesh.members[MESH_TENSOR] || own.members[MESH_TENSOR] > 1;
    *mesh = (PlanMesh){.parts = own.parts};
    for (int x = 0; x < MESH_AXES && given; x++)
        mesh->members[x] = own.members[x] ? own.members[x] : 1;
    return s->o->rows;
}

/* A copy in this arena; mesh: NULL: of the whole. */
static State plan_read(PlanReader *r, PlanSize wanted, const PlanMesh *members,
                       const Strings *split, Arena *a)
{
    State s = plan_twin(members ? plan_member(r, wanted, members) : plan_whole(r, wanted), a);
    s.graph->other = r->o->other;
    if (split) {
        s.o->partition.split.n = s.o->partition.split.cap = 0;
        for (uint32_t i = 0; i < split->n; i++)
            vec_push(a, &s.o->partition.split, split->at[i]);
    }
    return s;
}

static Graph *plan_graph(void *of, PlanSize wanted, const PlanMesh *members, Loss *made, Arena *a)
{
    State s = plan_read(of, wanted, members, NULL, a);
    *made = s.loss;
    return s.graph;
}

static Pipe *plan_pipe(void *of, PlanSize wanted, const PlanMesh *members, const Strings *split,
                       Arena *a)
{
    State s = plan_read(of, wanted, members, split, a);
    pass_partition(&s);
    reverse_stages(s.pipe);
    pass_stash(&s);
    pass_divide(&s);
    pass_again(&s);
    return s.pipe;
}

PlanModel plan_model(Options *o)
{
    PlanReader *r = arena_new_of(o->arena, PlanReader);
    r->o = o;
    return (PlanModel){r, plan_rows, plan_graph, plan_pipe};
}

/* ---- lengths that vary ---- */

typedef struct {
    const Options *o;
    const Strings *split;
    const int64_t *length;
    const PlanMesh *mesh; /* NULL: members do not divide it */
    Pipe *pipe;
    const Graph *whole, *imported;
} Sample;

static void sample(void *arg)
{
    Sample *x = arg;
    Options o = *x->o;
    const Lengths *l = &x->o->lengths;
    bind_lengths(&o, x->length);
    o.other = l->pipe[0] ? l->pipe[0]->graph : NULL;
    o.partition.automatic.stages = 0;
    PlanReader r = {.o = &o, .keeps = true};
    const PlanSize size = {.rows = o.rows};
    x->whole = plan_whole(&r, size)->graph;
    x->imported = r.imported;
    if (x->split)
        x->pipe = plan_pipe(&r, size, x->mesh, x->split, o.arena);
}

/* A diagnostic's lines as lines of another. */
static const char *indented(Arena *a, const char *said)
{
    const char *text = "";
    for (size_t n; said && *said; said += n + (said[n] == '\n')) {
        n = strcspn(said, "\n");
        text = arena_printf(a, "%s\n  %.*s", text, (int)n, said);
    }
    return text;
}

/* The same with other lengths, cut at these points, if any are given; without a Pipe: not if it may
 * fail.  What is warned of is so already. */
static Sample sample_of(const State *s, const Strings *split, const int64_t *length,
                        bool may_fail)
{
    PlanMesh mesh = {.parts = s->o->mesh.parts};
    bool divided = false;
    for (int i = 0; i < MESH_AXES; i++) {
        mesh.members[i] = s->o->mesh.members[i];
        divided |= s->graph->mesh[i].chunks > 1;
    }
    Sample x = {s->o, split, length, divided ? &mesh : NULL, NULL, NULL, NULL};
    char *said = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&said, &n), *before = to ? diag_to(to) : NULL;
    int code = to ? diag_run(sample, &x) : EXIT_IO;
    if (to) {
        diag_to(before);
        fclose(to);
    }
    const char *why = code && !may_fail ? indented(s->o->arena, said) : "";
    free(said);
    if (code && !may_fail) {
        diag_hint("--bind NAME=N makes a program of one length");
        diag_fatal(code, WHERE_FILE(s->graph->file),
                   "the lengths of --bind cannot vary: with %s, which others are compared with, "
                   "the model is refused%s",
                   cg_lengths_text(s->o->arena, &s->o->lengths, length), why);
    }
    if (!s->o->other_whole)
        s->o->other_whole = x.whole;
    if (code)
        x.pipe = NULL;
    return x;
}

/* Where samples are beyond the greatest lengths, constants are as long as theirs. */
static Pipe *longest_pipe(const State *s, const Strings *split)
{
    const Lengths *l = &s->o->lengths;
    int64_t most[SYMBOLS], own[SYMBOLS];
    cg_longest(l, true, most);
    cg_longest(l, false, own);
    return memcmp(most, own, (size_t)l->symbols * sizeof *most)
               ? sample_of(s, split, most, false).pipe
               : s->pipe;
}

typedef struct {
    State s;
    Strings split;
} Sampler;

static const Pipe *pipe_with(const void *of, const int64_t *length)
{
    const Sampler *x = of;
    return sample_of(&x->s, &x->split, length, false).pipe;
}

static const Graph *imported_with(const void *of, const int64_t *length)
{
    return sample_of(&((const Sampler *)of)->s, NULL, length, false).imported;
}

static bool take_sample(const State *s, const Strings *split, int k, bool may_fail)
{
    Lengths *l = &s->o->lengths;
    const Sample x = sample_of(s, split, l->at[k], may_fail);
    l->pipe[k] = x.pipe;
    l->imported[k] = x.imported;
    return x.pipe != NULL;
}

void pass_lengths(State *s)
{
    Options *o = s->o;
    Lengths *l = &o->lengths;
    Sampler *all = arena_new_of(o->arena, Sampler);
    Strings *split = &all->split;
    check_rows(o, s->pipe);
    if (!l->symbols || !o->codegen.dir)
        return;
    check_lengths(o);
    for (uint32_t i = 0; i < s->pipe->split.n; i++)
        vec_push(o->arena, split, s->pipe->split.at[i]);
    all->s = *s;
    l->with = pipe_with;
    l->imported_with = imported_with;
    l->of = all;
    /* products of several lengths grow; members' parts want sizes that nothing divides */
    bool few = l->symbols > 1;
    for (int x = 0; x < MESH_AXES; x++)
        few &= s->graph->mesh[x].chunks < 2;
    const bool may_fail = choose_lengths(l, few);
    if (!take_sample(s, split, 0, may_fail)) {
        choose_lengths(l, true);
        take_sample(s, split, 0, false);
    }
    for (int k = 1; k < l->n; k++)
        take_sample(s, split, k, false);
    l->most = longest_pipe(s, split);
    o->codegen.lengths = l;
}
