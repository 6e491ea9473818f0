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
    const Graph *imported; /* as the files have it */
    PlanMesh mesh;
    int64_t length[SYMBOLS]; /* 0: the greatest */
} PlanRead;
/* The few lengths by which members divide a model of so many rows. */
typedef struct {
    int64_t rows;
    MeshLengths *lengths;
} PlanSized;
typedef struct {
    Options *o;
    VEC(PlanRead) read;
    VEC(PlanSized) sized;
    bool quiet; /* what a model with other lengths is warned of is not said */
    Lengths whole; /* PlanModel.whole */
} PlanReader;

/* ---- with other lengths ---- */

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

/* What fails with these lengths says that they are not the user's. */
static void with_lengths(const PlanReader *r, const int64_t *length, void (*run)(void *), void *arg)
{
    char *said;
    const int code = diag_quietly(run, arg, &said);
    const char *why = code ? indented(r->o->arena, said) : "";
    free(said);
    if (!code)
        return;
    diag_hint("--bind NAME=N makes a program of one length; one of any length is what programs of "
              "several lengths have in common, which have to differ and to be more than 16 at the "
              "most, even where the range ends before");
    diag_fatal(code, WHERE_FILE(r->o->model.at[0]),
               "the lengths of --bind cannot vary: with %s, which others are compared with, the "
               "model is refused%s",
               cg_lengths_text(r->o->arena, &r->o->lengths, length), why);
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

/* ---- as planner/ asks for it ---- */

/* Members 0: of the whole. */
static const PlanRead *plan_have(const PlanReader *r, PlanSize size, const PlanMesh *m)
{
    for (uint32_t i = 0; i < r->read.n; i++) {
        const PlanRead *x = &r->read.at[i];
        if (x->whole.o->rows == size.rows && !memcmp(x->length, size.length, sizeof x->length) &&
            !memcmp(x->mesh.members, m->members, sizeof m->members) && x->mesh.parts == m->parts)
            return x;
    }
    return NULL;
}

static const PlanRead *plan_keep(PlanReader *r, PlanRead x, PlanSize size)
{
    memcpy(x.length, size.length, sizeof x.length);
    vec_push(r->o->arena, &r->read, x);
    return &r->read.at[r->read.n - 1];
}

static State plan_twin(const State *from, Arena *a)
{
    State s = {.o = arena_new_of(a, Options), .graph = graph_twin(from->graph, a)};
    s.loss = from->loss;
    *s.o = *from->o;
    s.o->arena = a;
    return s;
}

typedef struct {
    PlanReader *r;
    PlanSize size;
} Reading;

/* The passes before members and cuts. */
static void read_whole(void *arg)
{
    const Reading *x = arg;
    Arena *a = x->r->o->arena;
    State s = {.o = arena_new_of(a, Options)};
    *s.o = *x->r->o;
    s.o->rows = x->size.rows;
    if (x->size.length[0])
        bind_lengths(s.o, x->size.length);
    read_model(&s);
    const Graph *imported = x->r->quiet ? graph_twin(s.graph, a) : NULL;
    pass_rows(&s);
    pass_loss(&s);
    pass_autocast(&s);
    pass_attention(&s);
    plan_keep(x->r, (PlanRead){.whole = s, .imported = imported}, x->size);
}

/* With these rows and lengths; once. */
static const PlanRead *plan_whole(PlanReader *r, PlanSize wanted)
{
    const PlanMesh none = {0};
    const PlanRead *have = plan_have(r, wanted, &none);
    Reading x = {r, wanted};
    if (have)
        return have;
    if (r->quiet)
        with_lengths(r, wanted.length, read_whole, &x);
    else
        read_whole(&x);
    return &r->read.at[r->read.n - 1];
}

/* As members divide it with any length: those of the first sample, and each of them one less. */
static MeshLengths *plan_lengths(PlanReader *r, int64_t rows)
{
    const Lengths *l = &r->o->lengths;
    for (uint32_t i = 0; i < r->sized.n; i++)
        if (r->sized.at[i].rows == rows)
            return r->sized.at[i].lengths;
    MeshLengths *m = l->symbols ? arena_new_of(r->o->arena, MeshLengths) : NULL;
    for (int k = 0; m && k <= l->symbols; k++) {
        PlanSize size = {.rows = rows};
        memcpy(size.length, l->at[0], sizeof size.length);
        if (k)
            size.length[k - 1]--;
        const State *s = &plan_whole(r, size)->whole;
        m->at[m->n++] = s->graph;
        memcpy(m->kept[k], (ValueId[]){s->loss.loss, s->loss.loss_scale, s->loss.target},
               sizeof m->kept[k]);
    }
    vec_push(r->o->arena, &r->sized, ((PlanSized){rows, m}));
    return m;
}

/* Then a member's, once. */
static const State *plan_member(PlanReader *r, PlanSize wanted, const PlanMesh *members)
{
    const PlanRead *have = plan_have(r, wanted, members);
    if (have)
        return &have->whole;
    State s = plan_twin(&plan_whole(r, wanted)->whole, r->o->arena);
    MeshOptions *m = &s.o->mesh;
    *m = r->o->mesh;
    m->lengths = plan_lengths(r, wanted.rows);
    m->parts = members->parts;
    for (int x = 0; x < MESH_AXES; x++)
        if (!m->members[x])
            m->members[x] = m->chunks[x] = members->members[x];
    check_lengths(s.o);
    pass_mesh(&s);
    return &plan_keep(r, (PlanRead){.whole = s, .mesh = *members}, wanted)->whole;
}

/* A copy in this arena; mesh: NULL: of the whole. */
static State plan_read(PlanReader *r, PlanSize wanted, const PlanMesh *members,
                       const Strings *split, Arena *a)
{
    State s =
        plan_twin(members ? plan_member(r, wanted, members) : &plan_whole(r, wanted)->whole, a);
    s.graph->lengths.other = r->o->other;
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

static void try_sample(void *arg)
{
    const Reading *x = arg;
    const Strings uncut = {0};
    plan_pipe(x->r, x->size, NULL, &uncut, x->r->o->arena);
}

/* Where the model is refused with the longest, as beyond the end of a table, fewer suit. */
static void choose_samples(PlanReader *r, int64_t rows, bool few)
{
    Lengths *l = &r->o->lengths;
    Reading x = {r, {.rows = rows}};
    bool refused = true;
    for (int tries = few, more = true; more && refused; tries++) {
        more = choose_lengths(l, tries);
        memcpy(x.size.length, l->at[l->all - 1], sizeof x.size.length);
        refused = (more || tries > 1) && diag_quietly(try_sample, &x, NULL);
    }
    if (refused)
        choose_lengths(l, 1);
}

static int64_t plan_rows(void *of, PlanMesh *mesh)
{
    PlanReader *r = of;
    const State *s = &plan_whole(r, (PlanSize){.rows = r->o->rows})->whole;
    r->o->lengths = s->o->lengths;
    r->o->settled = true;
    check_lengths(r->o);
    MeshOptions own = r->o->mesh;
    (void)annotate_read(s->graph, &own);
    bool divided = false;
    for (int x = 0; x < MESH_AXES; x++)
        divided |= mesh_has(&own, (MeshAxis)x);
    if (r->o->lengths.symbols)
        choose_samples(r, s->o->rows, r->o->lengths.symbols > 1 && !divided);
    r->whole = r->o->lengths;
    if (r->o->lengths.symbols > 1)
        choose_samples(r, s->o->rows, false);
    const bool given = r->o->mesh.members[MESH_TENSOR] || own.members[MESH_TENSOR] > 1;
    *mesh = (PlanMesh){.parts = own.parts};
    for (int x = 0; x < MESH_AXES && given; x++)
        mesh->members[x] = own.members[x] ? own.members[x] : 1;
    return s->o->rows;
}

PlanModel plan_model(Options *o)
{
    PlanReader *r = arena_new_of(o->arena, PlanReader);
    r->o = o;
    return (PlanModel){r, plan_rows, plan_graph, plan_pipe, &r->whole};
}

/* ---- lengths that vary ---- */

typedef struct {
    PlanReader r;
    Strings split;
    PlanMesh mesh;
    bool divided; /* by members */
} Sampler;

typedef struct {
    Sampler *of;
    PlanSize size;
    Pipe *pipe;
} Sample;

static void sample(void *arg)
{
    Sample *x = arg;
    Sampler *s = x->of;
    x->pipe = plan_pipe(&s->r, x->size, s->divided ? &s->mesh : NULL, &s->split, s->r.o->arena);
}

static PlanSize size_of(const Sampler *s, const int64_t *length)
{
    PlanSize size = {.rows = s->r.o->rows};
    memcpy(size.length, length, sizeof size.length);
    return size;
}

/* The same with other lengths, cut where that is. */
static Pipe *pipe_of(Sampler *s, const int64_t *length)
{
    Sample x = {s, size_of(s, length), NULL};
    plan_whole(&s->r, x.size);
    with_lengths(&s->r, length, sample, &x);
    return x.pipe;
}

static const Pipe *pipe_with(void *of, const int64_t *length) { return pipe_of(of, length); }

/* Before the mesh: which lengths are samples, and those of which members divide. */
void pass_sizes(State *s)
{
    Options *o = s->o;
    if (!o->lengths.symbols)
        return;
    check_lengths(o);
    Sampler *x = arena_new_of(o->arena, Sampler);
    x->r = (PlanReader){.o = arena_new_of(o->arena, Options), .quiet = true};
    *x->r.o = *o;
    x->r.o->partition.automatic.stages = 0;
    x->r.o->partition.automatic.memory = 0;
    MeshOptions asked = o->mesh; /* or by the file */
    annotate_read(s->graph, &asked);
    for (int i = 0; i < MESH_AXES; i++)
        x->divided |= mesh_has(&asked, (MeshAxis)i);
    /* products of several lengths grow; members' parts want sizes that nothing divides */
    choose_samples(&x->r, o->rows, o->lengths.symbols > 1 && !x->divided);
    if (x->divided)
        o->mesh.lengths = plan_lengths(&x->r, o->rows);
    o->lengths = x->r.o->lengths;
    if (o->lengths.symbol[0].only) { /* the model is bound; the rest was to divide it */
        o->lengths.symbols = 0;
        return;
    }
    o->lengths.with = pipe_with;
    o->lengths.of = x;
}

void pass_lengths(State *s)
{
    Lengths *l = &s->o->lengths;
    Sampler *x = l->of;
    int64_t most[SYMBOLS] = {0};
    check_rows(s->o, s->pipe);
    if (!l->symbols || !s->o->codegen.dir)
        return;
    for (uint32_t i = 0; i < s->pipe->split.n; i++)
        vec_push(s->o->arena, &x->split, s->pipe->split.at[i]);
    x->r.o->mesh = s->o->mesh;
    x->mesh.parts = s->o->mesh.parts;
    memcpy(x->mesh.members, s->o->mesh.members, sizeof x->mesh.members);
    for (int k = 0; k < l->all; k++) {
        if (k < l->n)
            l->pipe[k] = pipe_of(x, l->at[k]);
        l->imported[k] = plan_whole(&x->r, size_of(x, l->at[k]))->imported;
        x->r.o->other = l->pipe[0]->graph;
    }
    cg_longest(l, false, most);
    l->most =
        memcmp(most, l->at[l->all - 1], sizeof most) ? pipe_of(x, l->at[l->all - 1]) : s->pipe;
    s->o->codegen.lengths = l;
}
