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
    Annotations what;
    uint32_t violations;
    char *said;
    size_t n;
} Run;

static void import(void *of)
{
    Run *r = of;
    ImportOptions opt = {.limits = limits_default(), .training = true};
    r->g = import_models(r->a, 1, &r->file, &opt);
    annotate_read(r->g, &r->mesh);
}

/* What is said in it goes to r->said. */
static int run(void (*fn)(void *), Run *r)
{
    free(r->said);
    FILE *f = open_memstream(&r->said, &r->n), *before = diag_to(f);
    int code = diag_run(fn, r);
    diag_to(before);
    fclose(f);
    return code;
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
        const char *is =
            s->param != NONE ? r->g->param.at[s->param].initializer : val(r->g, s->value)->name;
        if (!strcmp(is, name))
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

/* x w = h, relu(h) v = y, h in columns of two groups, v in rows; y is a sum. */
static void test_round(void)
{
    enum { MEMBERS = 2, CHUNKS = 4 };
    const Place in_w[2] = {place_r(), place_s(1, 2)}, in_v[2] = {place_s(1, 2), place_s(0, 2)},
                columns[1] = {place_s(1, 2)}, partial[1] = {place_p()};
    const SpreadWay way_w = {.in = in_w, .out = columns}, way_v = {.in = in_v, .out = partial},
                    way_relu = {.in = columns, .out = columns};
    Run r = {.a = arena_new(), .file = path};
    write_model(&(Written){"x[4,6]", "", "MatMul x w -> h & Relu h -> r & MatMul r v -> y", -1, 8,
                           "w[6,8] v[8,6]", "y[4,6]"},
                path);
    ok(run(import, &r) == 0 && r.g->param.n == 2, "a model of two products");
    const Graph *g = r.g;
    Place *made = arena_array(r.a, Place, g->value.n), *param = arena_array(r.a, Place, 2);
    const SpreadWay **way = arena_array(r.a, const SpreadWay *, g->node.n);
    for (ValueId v = 0; v < g->value.n; v++)
        made[v] = place_r();
    for (NodeId n = 0; n < g->node.n; n++) {
        const char *out = val(g, g->node.at[n].out[0])->name;
        way[n] = !strcmp(out, "h")   ? &way_w
                 : !strcmp(out, "r") ? &way_relu
                 : !strcmp(out, "y") ? &way_v
                                     : NULL;
        if (way[n])
            made[g->node.at[n].out[0]] = way[n]->out[0];
    }
    for (uint32_t p = 0; p < 2; p++) {
        int dim = strcmp(g->param.at[p].initializer, "w") ? 0 : 1;
        param[p] = place_s(g->param.at[p].transposed ? 1 - dim : dim, 2);
        made[g->param.at[p].value] = param[p];
    }
    const uint32_t stage[3] = {0, 0, 1};
    MeshPlan plan = {MESH_TENSOR, MEMBERS, CHUNKS, .of = g, .way = way, .param = param, .made = made};
    r.what = (Annotations){2, stage, g, {&plan, 1, 1}};
    ok(run(write_specs, &r) == 0, "is written");
    ok(run(check, &r) == 0 && r.violations == 0, "and passes the checker");
    Run again = {.a = arena_new(), .file = copy};
    ok(run(import, &again) == 0 && !*again.said, "and is read without a word");
    ok(again.mesh.members[MESH_TENSOR] == MEMBERS && again.mesh.chunks[MESH_TENSOR] == CHUNKS, "two members, four chunks");
    for (uint32_t p = 0; p < 2; p++) {
        const Param *q = &g->param.at[p];
        lies(&again, q->initializer, param[p].dim, 2);
    }
    lies(&again, "h", 1, 2);
    lies(&again, "r", 1, 2);
    lies(&again, "y", -1, 1);
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
    lies(&r, "y", 1, 1);
    done(&r);
    r = read_text("MatMul x w -> y {w 1:4 @ 0 1 0 1}", 2);
    ok(r.mesh.chunks[MESH_TENSOR] == 1 && strstr(r.said, "warning: 1 sharding spec is ignored"),
       "shards that are no neighbours are ignored, which is said");
    done(&r);
    r = read_text("MatMul x w -> y {w 0:2 1:2 @ 0 1 2 3}", 4);
    ok(strstr(r.said, "1 sharding spec is ignored (the first is of 'w'") != NULL, "so are two axes");
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
