/*
 * test_annotate_specs.c - a placement as sharding specs: written, accepted by the checker, read
 * again as the same placement.  And files by hand: what of their specs is of a tensor axis, what is
 * ignored.
 */
#include <string.h>
#include <unistd.h>

#include "annotate/annotate.h"
#include "annotated.h"
#include "ir/build.h"
#include "tap.h"

static char path[64], copy[64];

typedef struct {
    Arena *a;
    const char *file;
    Graph *g;
    MeshOptions mesh;
    bool known;
    Annotations what;
    uint32_t violations;
    char *said;
} Run;

static void import(void *of)
{
    Run *r = of;
    ImportOptions opt = {.limits = limits_default(), .training = true};
    r->g = import_models(r->a, 1, &r->file, &opt);
    r->known = annotate_read(r->g, &r->mesh);
    annotate_ask(r->g, &r->mesh);
}

/* What is said in it goes to r->said. */
static int run(void (*fn)(void *), Run *r)
{
    free(r->said);
    return diag_quietly(fn, r, &r->said);
}

static void write_specs(void *of)
{
    Run *r = of;
    annotate_write(r->g, &r->what, copy);
}

static void check(void *of)
{
    Run *r = of;
    Limits lim = limits_default();
    FILE *f = fopen("/dev/null", "w");
    r->violations = annotate_check(r->a, copy, &lim, NULL, false, f);
    fclose(f);
}

static const MeshAsked *asked(const Run *r, const char *name)
{
    for (uint32_t i = 0; i < r->mesh.asked.n; i++) {
        const MeshAsked *s = &r->mesh.asked.at[i];
        if (s->param != NONE && !strcmp(r->g->param.at[s->param].initializer, name))
            return s;
    }
    return NULL;
}

static void lies(const Run *r, const char *name, int dim, int64_t groups)
{
    const MeshAsked *s = asked(r, name);
    if (!ok(s && place_is(s->at, place_s(dim, groups)), "'%s' is divided along %d in %d groups",
            name, dim, (int)groups))
        printf("# %d, %d\n", s ? s->at.dim : -9, s ? (int)s->at.groups : -9);
}

/* ---- there and back ---- */

enum { MEMBERS = 2, CHUNKS = 4 };

/* x w = h, relu(h) v = y, h in columns of so many groups, v in rows; y is a sum. */
static MeshPlan plan_of(const Run *r, int64_t groups)
{
    const Graph *g = r->g;
    Place *made = arena_array(r->a, Place, g->value.n), *param = arena_array(r->a, Place, 2),
          *in = arena_array(r->a, Place, 2), *out = arena_array(r->a, Place, 2);
    SpreadWay *of = arena_array(r->a, SpreadWay, 3);
    const SpreadWay **way = arena_array(r->a, const SpreadWay *, g->node.n);
    in[0] = place_r();
    in[1] = out[0] = place_s(1, groups);
    out[1] = place_p();
    of[0] = (SpreadWay){.in = in, .out = out};
    of[1] = (SpreadWay){.in = out, .out = out};
    for (ValueId v = 0; v < g->value.n; v++)
        made[v] = place_r();
    for (uint32_t p = 0; p < 2; p++) {
        int dim = strcmp(g->param.at[p].initializer, "w") ? 0 : 1;
        param[p] = place_s(g->param.at[p].transposed ? 1 - dim : dim, groups);
        made[g->param.at[p].value] = param[p];
    }
    Place *in_v = arena_array(r->a, Place, 2);
    in_v[0] = out[0];
    in_v[1] = place_s(0, groups);
    of[2] = (SpreadWay){.in = in_v, .out = out + 1};
    for (NodeId n = 0; n < g->node.n; n++) {
        const char *name = val(g, g->node.at[n].out[0])->name;
        way[n] = !strcmp(name, "h")   ? &of[0]
                 : !strcmp(name, "r") ? &of[1]
                 : !strcmp(name, "y") ? &of[2]
                                      : NULL;
        if (way[n])
            made[g->node.at[n].out[0]] = way[n]->out[0];
    }
    return (MeshPlan){MESH_TENSOR, MEMBERS,        CHUNKS,      .of = g,
                      .way = way,  .param = param, .made = made};
}

static void test_round(void)
{
    Run r = {.a = arena_new(), .file = path};
    write_model(&(Written){"x[4,6]", "", "MatMul x w -> h & Relu h -> r & MatMul r v -> y", -1, 8,
                           "w[6,8] v[8,6]", "y[4,6]"},
                path);
    ok(run(import, &r) == 0 && r.g->param.n == 2, "a model of two products");
    const uint32_t stage[3] = {0, 0, 1};
    MeshPlan plan = plan_of(&r, 2);
    const MeshOptions mesh = {.keep = .25};
    r.what = (Annotations){2, stage, r.g, &mesh, {&plan, 1, 1}};
    ok(run(write_specs, &r) == 0, "is written");
    ok(run(check, &r) == 0 && r.violations == 0, "and passes the checker");
    Run again = {.a = arena_new(), .file = copy};
    ok(run(import, &again) == 0 && !*again.said && again.known, "and is read without a word");
    ok(again.mesh.members[MESH_TENSOR] == MEMBERS && again.mesh.chunks[MESH_TENSOR] == CHUNKS &&
           again.mesh.keep > .2,
       "two members, four chunks, the price of memory");
    for (uint32_t p = 0; p < 2; p++)
        lies(&again, r.g->param.at[p].initializer, plan.param[p].dim, 2);
    MeshPlan same = plan_of(&again, 2), other = plan_of(&again, 1);
    ok(annotate_follows(again.g, &(MeshPlans){&same, 1, 1}, false), "the plan follows it");
    ok(!annotate_follows(again.g, &(MeshPlans){&other, 1, 1}, false),
       "one of other groups does not");
    free(r.said);
    free(again.said);
    arena_free(r.a);
    arena_free(again.a);
}

/* ---- by hand ---- */

static Run read_text(const char *nodes, int devices)
{
    Run r = {.a = arena_new(), .file = path};
    write_model(&(Written){"x[4,6]", "", nodes, devices, 11, "w[6,8]", "y[4,8]"}, path);
    (void)run(import, &r);
    return r;
}

static void done(Run *r)
{
    free(r->said);
    arena_free(r->a);
}

static void test_read(void)
{
    Run r = read_text("MatMul x w -> y {w -1:2 @ 5 3; y 1:2 @ 5 3}", 6);
    ok(r.mesh.members[MESH_TENSOR] == 2 && r.mesh.chunks[MESH_TENSOR] == 2, "a device a shard");
    lies(&r, "w", 1, 1);
    done(&r);
    r = read_text("MatMul x w -> y {w 1:4 @ 0 1 0 1}", 2);
    ok(r.mesh.chunks[MESH_TENSOR] == 1 && strstr(r.said, "warning: 1 sharding spec is ignored"),
       "shards that are no neighbours are ignored, which is said");
    done(&r);
    r = read_text("MatMul x w -> y {w 0:2 1:2 @ 0 1 2 3}", 4);
    ok(strstr(r.said, "1 sharding spec is ignored (the first is of 'w'") != NULL,
       "so are two axes");
    done(&r);
    r = read_text("MatMul x w -> y {w 1:2 @ 0+1 2+3}", 4);
    ok(strstr(r.said, "1 sharding spec is ignored") != NULL,
       "and shards that several devices have");
    done(&r);
    r = read_text("MatMul x w -> h {w 1:2 @ 0 1} & Relu h -> y {y 1:4 @ 0 1 2 3}", 4);
    ok(strstr(r.said, "others are in 2 on 2") != NULL, "two numbers of devices are no axis");
    done(&r);
    r = read_text("MatMul x w -> y {w 1:2 @ 0 1}", 3);
    ok(strstr(r.said, "is on 2 devices, the configuration has 3") != NULL,
       "nor is one that does not divide the devices");
    done(&r);
    r = read_text("MatMul x w -> y {as=d; w 1:2 @ 0 1}", 3);
    ok(r.g && r.mesh.asked.n == 0, "another configuration than the first does not count");
    done(&r);
}

int main(void)
{
    snprintf(path, sizeof path, "/tmp/ppsplit-specs.%d.onnx", (int)getpid());
    snprintf(copy, sizeof copy, "/tmp/ppsplit-specs.%d.copy.onnx", (int)getpid());
    test_round();
    test_read();
    unlink(path);
    unlink(copy);
    return tap_done();
}
