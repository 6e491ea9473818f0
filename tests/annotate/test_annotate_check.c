/*
 * test_annotate_check.c - the checker of annotations: the examples of ONNXMultiDeviceProposal.md
 * and ShardingFormalism.md, then each rule broken once, by hand, and what is said of it.
 */
#include <string.h>
#include <unistd.h>

#include "annotate/annotate.h"
#include "annotated.h"
#include "tap.h"

static char path[64];

/* ---- what is said ---- */

typedef struct {
    FILE *to;
    uint32_t violations;
    Arena *a;
    bool verbose;
} Run;

static void check(void *of)
{
    Run *r = of;
    Limits lim = limits_default();
    r->violations = annotate_check(r->a, path, &lim, NULL, r->verbose, r->to);
}

/* Everything that is said, without the file's name. */
static uint32_t run(const Written *t, bool verbose, char *said, size_t size)
{
    char *text = NULL, *p;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    Run r = {f, NONE, arena_new(), verbose};
    write_model(t, path);
    FILE *before = diag_to(f);
    int code = diag_run(check, &r);
    diag_to(before);
    fclose(f);
    arena_free(r.a);
    *said = 0;
    for (char *save = NULL, *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        p = strstr(line, "error: ");
        snprintf(said + strlen(said), size - strlen(said), "%s\n",
                 !strncmp(line, path, strlen(path)) && p ? line + strlen(path) + 2 : line);
    }
    free(text);
    return code ? NONE : r.violations;
}

static void good(const char *what, const Written *t, uint32_t by_rule)
{
    char said[4096], rule[64];
    uint32_t n = run(t, false, said, sizeof said);
    snprintf(rule, sizeof rule, "  %u nodes checked by the rule", by_rule);
    if (!ok(n == 0 && strstr(said, rule), "%s", what))
        printf("# %s", said);
}

/* n violations, the first of which begins so. */
static void bad(const char *what, const Written *t, uint32_t n, const char *expected)
{
    char said[4096], *first;
    uint32_t found = run(t, false, said, sizeof said);
    for (first = said; !strncmp(first, "note: ", 6) || !strncmp(first, "hint: ", 6);)
        first = strchr(first, '\n') + 1;
    if (!ok(found == n && !strncmp(first, expected, strlen(expected)), "%s", what))
        printf("# %u: %s# not %s\n", found, said, expected);
}

/* ---- the document's examples ---- */

#define MODEL(inputs, values, nodes, devices)                                                      \
    &(Written) { inputs, values, nodes, devices, 11, NULL, NULL }

static void test_examples(void)
{
    good("a split of axis 0", MODEL("x[2,2]", "y[2,2]", "Relu x -> y {x 0:2 @ 0 1}", 2), 1);
    good("of two axes", MODEL("x[2,2]", "", "Relu x -> y {x 0:2 1:2 @ 0 1 2 3}", 4), 1);
    good("a broadcast", MODEL("x[2,2]", "", "Relu x -> y {x @ 0+1}", 2), 1);
    good("a split and a broadcast", MODEL("x[2,2]", "", "Relu x -> y {x 0:2 @ 0+1 2+3}", 4), 1);
    good("two broadcast axes are composed, and what follows is inferred from it",
         MODEL("a[4,1] b[1,6]", "y[4,6]",
               "Add a b -> y {a 0:2 @ 0+1 2+3; b 1:2 @ 0+2 1+3} & "
               "Add y c -> z {c 0:2 1:2 @ 0 1 2 3}",
               4),
         1);
    bad("they must meet",
        MODEL("a[4,1] b[1,6]", "", "Add a b -> y {a 0:2 @ 0+1 2+3; b 1:2 @ 0+1 2+3}", 4), 1,
        "node 0 (Add), input 1: error: 'b' axis 1 shard 1: no device holds it");
    bad("Add of a tensor in rows and one in columns",
        MODEL("a[32,1024] b[32,1024]", "", "Add a b -> y {a 0:2 @ 0 1; b 1:2 @ 0 1}", 2), 2,
        "node 0 (Add), input 1: error: axis 0 of 'b' is not divided, axis 0 of 'a', input 0, is in "
        "2 "
        "shards");
    good("a product over a divided sum",
         MODEL("a[4,6] b[6,8]", "y[4,8]", "MatMul a b -> y {a 1:2 @ 0 1; b 0:2 @ 0 1}", 2), 1);
    bad("whose operands must be divided alike",
        MODEL("a[4,6] b[6,8]", "", "MatMul a b -> y {a 1:2 @ 0 1; b @ 0+1}", 2), 1,
        "node 0 (MatMul), input 1: error: axis 0 of 'b' is not divided, axis 1 of 'a', input 0, is "
        "in 2 "
        "shards");
}

/* What is inferred is held against a second operand that says what it ought to be. */
static void inferred(const char *what, const char *inputs, const char *nodes, const char *then)
{
    char text[512];
    snprintf(text, sizeof text, "%s & Sum y z -> end {z %s}", nodes, then);
    good(what, &(Written){inputs, "", text, 8, 11, NULL, NULL}, 2);
}

static void test_inference(void)
{
    inferred("columns of the second factor", "a[4,6] b[6,8] y[4,8] z[4,8]",
             "MatMul a b -> y {a @ 0+1; b 1:2 @ 0 1}", "1:2 @ 0 1");
    inferred("rows and columns", "a[4,6] b[6,8] y[4,8] z[4,8]",
             "MatMul a b -> y {a 0:2 @ 0+1 2+3; b 1:2 @ 0+2 1+3}", "0:2 1:2 @ 0 1 2 3");
    inferred("a divided sum is on all devices", "a[4,6] b[6,8] y[4,8] z[4,8]",
             "MatMul a b -> y {a 1:4 @ 0 1 2 3; b 0:4 @ 0 1 2 3}", "@ 3");
    bad("and on no other",
        MODEL("a[4,6] b[6,8] y[4,8] z[4,8]", "",
              "MatMul a b -> y {a 1:2 @ 0 1; b 0:2 @ 0 1} & Add y z -> end {z @ 2}", 4),
        1, "node 1 (Add), input 1: error: 'z': no device holds it");
    inferred("batches are broadcast", "a[2,3,4,6] b[3,6,8] y[2,3,4,8] z[2,3,4,8]",
             "MatMul a b -> y {a 1:3 @ 0 1 2; b 0:3 @ 0 1 2}", "1:3 @ 0 1 2");
    inferred("a vector", "a[6] b[6,8] y[8] z[8]", "MatMul a b -> y {a @ 0+1; b 1:2 @ 0 1}",
             "0:2 @ 0 1");
    inferred("Gemm, transposed, with a bias", "a[6,4] b[8,6] c[8] y[4,8] z[4,8]",
             "Gemm(transA=1|transB=1) a b c -> y {a @ 4+5; b 0:2 @ 4 5; c 0:2 @ 4 5}", "1:2 @ 4 5");
    inferred("Einsum", "a[2,4,6] b[2,8,6] y[2,4,8] z[2,4,8]",
             "Einsum(equation=bik,bjk->bij) a b -> y {a 0:2 @ 0 1; b 0:2 @ 0 1}", "0:2 @ 0 1");
    inferred("a sum over another axis", "a[4,6] y[4] z[4]",
             "ReduceSum(axes=1|keepdims=0) a -> y {a 0:2 @ 0 1}", "0:2 @ 0 1");
    inferred("a sum over the divided axis", "a[4,6] y[4,1] z[4,1]",
             "ReduceMax(axes=1) a -> y {a 1:3 @ 0 1 2}", "@ 2");
    inferred("an operand without a spec is as it is made", "a[4,6] e[4,6] y[4,6] z[4,6]",
             "Exp a -> e & Tanh e -> y {e 0:2 @ 6 7}", "0:2 @ 6 7");
    inferred("an axis of three parts, of which each is divided", "a[4,6] y[4,6] z[4,6]",
             "Neg a -> y {a 1:3*1.*2 @ 0 1}", "1:3*1.2*2 @ 0 1");
    bad("parts that are others",
        MODEL("a[4,6] b[4,6]", "", "Mul a b -> y {a 1:3*1.*2 @ 0 1; b 1:2 @ 0 1}", 2), 1,
        "node 0 (Mul), input 1: error: axis 1 of 'b' is in 2 shards, axis 1 of 'a', input 0, is in "
        "by "
        "parts 1 x 2 shards");
    good("what has no rule may be said",
         MODEL("x[4,6]", "y[4,6]",
               "Softmax x -> y {x 0:2 @ 0 1; y 1:2 @ 0 1} & "
               "Add y w -> z",
               2),
         0);
}

/* ---- a spec by itself ---- */

static void spec(const char *what, const char *text, const char *expected)
{
    char nodes[256], said[256];
    snprintf(nodes, sizeof nodes, "Softmax x -> y {%s}", text);
    snprintf(said, sizeof said, "node 0 (Softmax)%s", expected);
    bad(what, MODEL("x[4,6]", "y[4,n]", nodes, 4), 1, said);
}

static void test_specs(void)
{
    spec("an axis past the last", "x 2:2 @ 0 1",
         ", input 0: error: 'x': axis 2 is out of range: the rank is 2");
    spec("before the first", "x -3:2 @ 0 1",
         ", input 0: error: 'x': axis -3 is out of range: the rank is 2");
    spec("an axis twice", "x 1:2 -1:2 @ 0 1 2 3", ", input 0: error: 'x': axis -1 is given twice");
    spec("no shards", "x 0:0 @ 0", ", input 0: error: 'x': axis 0: num_shards is 0");
    spec("without simple_sharding", "x 0 @ 0",
         ", input 0: error: 'x': axis 0 has no simple_sharding");
    spec("more shards than elements", "x 0:5 @ 0 1 2 3 0",
         ", input 0: error: 'x': axis 0: 5 shards of 4 elements");
    spec("of an output", "y 0:5 @ 0 1 2 3 0",
         ": error: output 'y': axis 0: 5 shards of 4 elements");
    spec("another size", "x 0:3*1 @ 0",
         ", input 0: error: 'x': axis 0 has size 4, its parts have 3");
    spec("parts that are not the axis", "x 1:4*1.*2 @ 0 1",
         ", input 0: error: 'x': axis 1 has size 6, its parts have 4");
    spec("two parts without a size", "x 1:2.3 @ 0 1 2 3 0 1",
         ", input 0: error: 'x': axis 1 is 2 parts");
    spec("too few devices", "x 0:2 1:2 @ 0 1 2",
         ", input 0: error: 'x': 4 shards, but 3 devices or groups");
    spec("too many", "x @ 0 1",
         ", input 0: error: 'x': 1 shard, but 2 devices or groups of devices");
    spec("none", "x", ", input 0: error: 'x': 1 shard, but 0 devices or groups of devices");
    spec("a device that is not there", "x 0:2 @ 0 4",
         ", input 0: error: 'x': device 4 is out of range");
    spec("in a group", "x 0:2 @ 0 1+4", ", input 0: error: 'x': device 4 is out of range");
    spec("a key that is none", "x 0:2 @ 0 -7",
         ", input 0: error: 'x': device -7 is no key of index_to_device_group_map");
    spec("a device twice in a group", "x @ 1+1",
         ", input 0: error: 'x': group -1 has device 1 twice");
    spec("a tensor that the node has not", "w @ 0",
         ": error: a sharding spec for 'w', which it neither reads nor makes");
    spec("two specs for one tensor", "x @ 0; x @ 0", ": error: two sharding specs for 'x'");
    spec("another configuration", "as=d", ": error: the model has no configuration 'd'");
    bad("an older IR version", &(Written){"x[4]", "", "Relu x -> y {x @ 0}", 1, 10, NULL, NULL}, 1,
        "error: device configurations are of IR version 11, the file says 10");
    bad("no devices", MODEL("x[4]", "", "Relu x -> y", 0), 1,
        "error: configuration 'c': num_devices is 0");
}

/* ---- what is said but is no violation ---- */

static void says(const char *what, const Written *t, const char *expected)
{
    char said[4096];
    uint32_t n = run(t, true, said, sizeof said);
    if (!ok(n == 0 && strstr(said, expected), "%s", what))
        printf("# %s# not %s\n", said, expected);
}

static void test_words(void)
{
    says("what is not checked", MODEL("x[4,6]", "", "LayerNormalization x w -> y {x 0:2 @ 0 1}", 2),
         "1 not: LayerNormalization, no formal rule\n");
    says("sizes that are not known", MODEL("x[4,n] z[4,m]", "", "Add x z -> y {x @ 0}", 1),
         "1 not: Add, shapes not known\n");
    says("symbols are alike by their name",
         MODEL("x[4,n] z[4,n]", "", "Add x z -> y {x 1:2 @ 0 1; z 1:2 @ 0 1}", 2),
         "1 nodes checked by the rule");
    says("what is made without a rule",
         MODEL("x[4,6]", "y[4,6]", "Softmax x -> y {x 0:2 @ 0 1} & Relu y -> z {z @ 0}", 2),
         "1 not: Relu, how an input is divided is not known\n");
    says("shards of different sizes", MODEL("x[5]", "", "Relu x -> y {x 0:2 @ 0 1}", 2),
         "1 axes are divided in shards of different sizes");
    says("stages that go back",
         MODEL("x[5]", "", "Relu x -> y {stage=1} & Relu y -> z {stage=0}", 2),
         "warning: pipeline_stage 0: it reads what a later stage makes");
    says("nothing is annotated", &(Written){"x[5]", "", "Relu x -> y", -1, 8, NULL, NULL},
         "no annotations\n");
}

int main(void)
{
    snprintf(path, sizeof path, "/tmp/ppsplit-annotate.%d.onnx", (int)getpid());
    test_examples();
    test_inference();
    test_specs();
    test_words();
    unlink(path);
    return tap_done();
}
