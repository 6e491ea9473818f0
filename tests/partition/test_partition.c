/*
 * test_partition.c - split points, what crosses, parameters, copies, and the reports, on graphs
 * built by hand.
 */
#include <libxml/parser.h>
#include <libxml/xmlschemas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "autodiff/autodiff.h"
#include "report/report.h"
#include "oracle/oracle.h"
#include "tap.h"

enum { B = 2, D = 4 };

typedef struct {
    Graph *g;
    PartitionOptions opt;
    Loss *loss;
    Pipe *p;
} Job;

static Arena *arena[256];
static int arenas;

static Graph *fresh(void)
{
    Graph *g = graph_new(arena[arenas++] = arena_new(), "dir/test.onnx");
    g->batch = B;
    return g;
}

static Origin *at(Graph *g, const char *scope, const char *name)
{
    Origin o = {
        .name = name, .type = "Op", .scope = scope, .index = g->origin.n, .pipeline_stage = -1};
    vec_push(g->arena, &g->origin, o);
    g->cur_origin = g->origin.n - 1;
    return &g->origin.at[g->cur_origin];
}

static ValueId param(Graph *g, const char *name, Shape s, bool trainable)
{
    return graph_param(g, (Param){.name = name,
                                  .initializer = name,
                                  .dtype = DT_F32,
                                  .shape = s,
                                  .trainable = trainable});
}

static ValueId linear(Graph *g, ValueId x, ValueId w, const char *scope, const char *name)
{
    at(g, scope, name);
    return g_matmul(g, x, w);
}

static void output(Graph *g, ValueId v, const char *name)
{
    vec_push(g->arena, &g->output, v);
    vec_push(g->arena, &g->output_name, name);
}

static void build(void *arg)
{
    Job *j = arg;
    j->p = pipe_build(j->g, &j->opt, j->loss);
    graph_verify(j->g);
    pipe_verify(j->p);
    pipe_costs(j->p);
}

/* Builds, with diagnostics caught in text. */
static int try_build(Job *j, char *text, size_t size)
{
    char path[] = "/tmp/ppsplit-test-XXXXXX";
    int file = mkstemp(path), old = dup(STDERR_FILENO);
    fflush(stderr);
    dup2(file, STDERR_FILENO);
    int code = diag_run(build, j);
    fflush(stderr);
    dup2(old, STDERR_FILENO);
    ssize_t n = pread(file, text, size - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    close(file);
    close(old);
    unlink(path);
    return code;
}

static Job job(Graph *g, const char *a, const char *b)
{
    Job j = {.g = g};
    if (a)
        vec_push(g->arena, &j.opt.split, a);
    if (b)
        vec_push(g->arena, &j.opt.split, b);
    return j;
}

/* x -> layers.0 (two products, relu) -> layers.1 -> layers.10 -> layers.1 again -> y. */
static Graph *chain(void)
{
    Graph *g = fresh();
    Shape xs = shape_of(2, (int64_t)B, (int64_t)D), ws = shape_of(2, (int64_t)D, (int64_t)D);
    ValueId x = graph_input(g, "x", DT_F32, &xs);
    ValueId w0 = param(g, "layers.0.a.weight", ws, true),
            w1 = param(g, "layers.1.weight", ws, true);
    ValueId w10 = param(g, "layers.10.weight", ws, true),
            wf = param(g, "blocks.f.weight", ws, true);
    ValueId h = linear(g, x, w0, "model.layers.0.a", "/a");
    at(g, "model.layers.0.act", "/act");
    h = g_unary(g, OP_Relu, h);
    graph_rename(g, h, "act:0");
    h = linear(g, h, w1, "model.layers.1", "/one");
    h = linear(g, h, w10, "model.layers.10", "/ten");
    at(g, "model.layers.1", "/one_1")->call = 1;
    h = g_matmul(g, h, w1);
    h = linear(g, h, wf, "f", "/f");
    at(g, "", "/last");
    h = g_unary(g, OP_Tanh, h);
    graph_rename(g, h, "y");
    output(g, h, "y");
    return g;
}

static const Stage *stage(const Job *j, uint32_t t) { return &j->p->stage.at[t]; }

static void split_points(void)
{
    char text[4096];
    Job j = job(chain(), "layers.1:begin", NULL);
    ok(try_build(&j, text, sizeof text) == 0 && j.p->stage.n == 3 && stage(&j, 0)->nodes.n == 2 &&
           stage(&j, 1)->nodes.n == 2,
       "a module called twice is cut at each call, and layers.1 is not layers.10");
    j = job(chain(), "layers.1:end", NULL);
    ok(try_build(&j, text, sizeof text) == 0 && j.p->stage.n == 3 && stage(&j, 0)->nodes.n == 3 &&
           stage(&j, 1)->nodes.n == 2,
       "the end of a module called twice");
    j = job(chain(), "layers.0:end", "layers.10:begin");
    ok(try_build(&j, text, sizeof text) == 0 && j.p->stage.n == 3 && stage(&j, 0)->nodes.n == 2 &&
           stage(&j, 1)->nodes.n == 1,
       "begin and end");
    j = job(chain(), "blocks.f:begin", NULL);
    ok(try_build(&j, text, sizeof text) == 0 && j.p->stage.n == 2 && stage(&j, 1)->nodes.n == 2,
       "a module found by its parameters");
    j = job(chain(), "/ten", NULL);
    ok(try_build(&j, text, sizeof text) == 0 && stage(&j, 0)->nodes.n == 3, "before a node");
    j = job(chain(), "act:0", NULL);
    ok(try_build(&j, text, sizeof text) == 0 && stage(&j, 0)->nodes.n == 2,
       "after a value, whose name has a colon");
    j = job(chain(), "/ten:end", NULL);
    ok(try_build(&j, text, sizeof text) == 0 && stage(&j, 0)->nodes.n == 4, "after a node");
    j = job(chain(), "layers.10:begin", "layers.10:begin");
    ok(try_build(&j, text, sizeof text) == 0 && j.p->stage.n == 2, "a point given twice is one");
}

static void split_errors(void)
{
    char text[4096];
    Job j = job(chain(), "layer.10:begin", NULL);
    ok(try_build(&j, text, sizeof text) == EXIT_USAGE &&
           strstr(text, "did you mean 'layers.10:begin'"),
       "a wrong path: did you mean");
    ok(strstr(text, "ppsplit ls") != NULL, "and where to look");
    j = job(chain(), "layers.0:end", "layers.1:begin");
    ok(try_build(&j, text, sizeof text) == EXIT_USAGE && strstr(text, "stage 1 would be empty") &&
           strstr(text, "'layers.0:end'"),
       "an empty stage is named");
    j = job(chain(), "layers.0:begin", NULL);
    ok(try_build(&j, text, sizeof text) == EXIT_USAGE && strstr(text, "stage 0 would be empty"),
       "an empty first stage");
    j = job(chain(), "y", NULL);
    ok(try_build(&j, text, sizeof text) == EXIT_USAGE && strstr(text, "stage 1 would be empty"),
       "an empty last stage");
    j = job(chain(), "layers.10", NULL);
    ok(try_build(&j, text, sizeof text) == EXIT_USAGE && strstr(text, "layers.10:begin"),
       "a module without begin or end");
    j = job(chain(), "x:end", NULL);
    ok(try_build(&j, text, sizeof text) == EXIT_USAGE, "an input is no place to cut");
    Graph *g = chain();
    at(g, "decoder.layers.0.b", "/b");
    output(g, g_unary(g, OP_Exp, g->output.at[0]), "z");
    j = job(g, "layers.0:end", NULL);
    ok(try_build(&j, text, sizeof text) == EXIT_USAGE && strstr(text, "'model.layers.0'") &&
           strstr(text, "'decoder.layers.0'"),
       "two matches are both listed");
    g = chain();
    at(g, "decoder.layers.0.b", "/b");
    output(g, g_unary(g, OP_Exp, g->output.at[0]), "z");
    j = job(g, "model.layers.0:end", NULL);
    ok(try_build(&j, text, sizeof text) == 0 && j.p->stage.n == 2, "more of the path decides");
}

static void inner_calls(void)
{
    char text[4096];
    Graph *g = fresh();
    Shape xs = shape_of(2, (int64_t)B, (int64_t)D), ws = shape_of(2, (int64_t)D, (int64_t)D);
    ValueId h = graph_input(g, "x", DT_F32, &xs), w = param(g, "l.a.weight", ws, true),
            v = param(g, "l.b.weight", ws, true);
    at(g, "", "/in");
    h = g_unary(g, OP_Abs, h);
    h = linear(g, h, w, "l.a", "/a");
    at(g, "l.act", "/act");
    h = g_unary(g, OP_Relu, h);
    h = linear(g, h, v, "l.b", "/b");
    at(g, "l.act", "/act_1")->call = 1;
    h = g_unary(g, OP_Relu, g_neg(g, h));
    output(g, h, "y");
    Job j = job(g, "l:begin", NULL);
    ok(try_build(&j, text, sizeof text) == 0 && j.p->stage.n == 2 && stage(&j, 0)->nodes.n == 1,
       "a second call of a module inside is no second call of the module");
}

static void markers(void)
{
    char text[4096];
    Graph *g = fresh();
    Shape xs = shape_of(2, (int64_t)B, (int64_t)D);
    ValueId h = graph_input(g, "x", DT_F32, &xs);
    at(g, "", "/a");
    h = g_unary(g, OP_Exp, h);
    at(g, "", "/split")->split_marker = true;
    at(g, "", "/b")->pipeline_stage = 3;
    h = g_unary(g, OP_Tanh, h);
    at(g, "", "/c")->pipeline_stage = 5;
    h = g_unary(g, OP_Sin, h);
    output(g, h, "y");
    Job j = job(g, NULL, NULL);
    ok(try_build(&j, text, sizeof text) == 0 && j.p->stage.n == 3,
       "a marker without nodes, and annotations");
    g = fresh();
    h = graph_input(g, "x", DT_F32, &xs);
    at(g, "", "/a")->pipeline_stage = 1;
    h = g_unary(g, OP_Exp, h);
    at(g, "", "/b")->pipeline_stage = 0;
    h = g_unary(g, OP_Tanh, h);
    output(g, h, "y");
    j = job(g, NULL, NULL);
    ok(try_build(&j, text, sizeof text) == EXIT_MODEL && strstr(text, "'/b'") &&
           strstr(text, "'/a'"),
       "annotations that go back are refused");
}

static const StageInput *stage_input(const Stage *s, ValueId v)
{
    for (uint32_t i = 0; i < s->input.n; i++)
        if (s->input.at[i].value == v)
            return &s->input.at[i];
    return NULL;
}

/* A skip from stage 0 to 2, a tied weight in 0 and 2 (transposed there), a mask from integer input
 * used everywhere. */
static Graph *skips(ValueId *skip, ValueId *mask)
{
    Graph *g = fresh();
    Shape xs = shape_of(2, (int64_t)B, (int64_t)D), ms = shape_of(2, (int64_t)B, (int64_t)D),
          ws = shape_of(2, (int64_t)D, (int64_t)D);
    ValueId x = graph_input(g, "x", DT_F32, &xs), m = graph_input(g, "mask", DT_I32, &ms);
    ValueId w = param(g, "wte.weight", ws, true), w1 = param(g, "b.weight", ws, true);
    at(g, "", "/mask");
    ValueId f = g_cast(g, m, DT_F32);
    ValueId big = g_mul(g, g_sub(g, g_like(g, f, 1), f), g_like(g, f, -1e9));
    *mask = big;
    ValueId h = linear(g, x, w, "a", "/a");
    *skip = h;
    at(g, "a", "/a/add");
    h = g_add(g, h, big);
    h = linear(g, h, w1, "b", "/b");
    at(g, "b", "/b/add");
    h = g_add(g, h, big);
    at(g, "c", "/c");
    h = g_add(g, g_add(g, h, *skip), big);
    ValueId inside = h;
    h = g_matmul(g, h, g_swap_last(g, w));
    output(g, h, "y");
    output(g, inside, "inside");
    output(g, *skip, "skip");
    return g;
}

static void crossing(void)
{
    char text[4096];
    ValueId skip, mask;
    Job j = job(skips(&skip, &mask), "b:begin", "c:begin");
    ok(try_build(&j, text, sizeof text) == 0 && j.p->stage.n == 3, "three stages");
    const StageInput *in = stage_input(stage(&j, 2), skip);
    ok(in && in->from == 0 && !stage_input(stage(&j, 1), skip),
       "a skip goes straight from stage 0 to 2");
    ok(!stage_input(stage(&j, 1), mask) && !stage_input(stage(&j, 2), mask),
       "the mask is made again where it is used");
    ok(stage_input(stage(&j, 2), j.g->input.at[1]) != NULL,
       "from the input, which a late stage reads too");
    const Stage *s = stage(&j, 2);
    ok(s->param.n == 1 && s->param.at[0].use == USE_TRANSMIT && s->param.at[0].from == 0,
       "a tied weight is sent, not its transpose");
    ok(stage(&j, 0)->param.at[0].use == USE_OWN, "and is stage 0's own");
    bool both = false;
    for (uint32_t i = 0; i < stage(&j, 0)->output.n; i++) {
        const StageOutput *o = &stage(&j, 0)->output.at[i];
        both |= o->value == skip && o->to.n == 1 && o->outputs.n == 1 && o->outputs.at[0] == 2;
    }
    ok(both, "an intermediate value is also a model output");
    ok(j.p->edge.n == 4 && j.p->edge.at[0].bytes == B * D * 4, "edges and their bytes");
    j = job(skips(&skip, &mask), "b:begin", "c:begin");
    vec_push(j.g->arena, &j.opt.multi_use, "wte.*=replicate");
    ok(try_build(&j, text, sizeof text) == 0 && stage(&j, 0)->param.at[0].use == USE_REPLICATE &&
           stage(&j, 2)->param.at[0].use == USE_REPLICATE && stage(&j, 2)->param.at[0].from == 0,
       "replicated by name");
    j = job(skips(&skip, &mask), "b:begin", "c:begin");
    vec_push(j.g->arena, &j.opt.multi_use, "wtf.weight=replicate");
    ok(try_build(&j, text, sizeof text) == EXIT_USAGE && strstr(text, "did you mean 'wte.weight'"),
       "an unknown parameter: did you mean");
}

/* Runs the stages in order on numbers (pipe_verify has seen that each reads only what enters it).
 */
static void run(const Pipe *p, Tensor *out)
{
    const Graph *g = p->graph;
    Arena *a = arena[arenas++] = arena_new();
    Tensor *at_all = arena_array(a, Tensor, g->value.n), *at = arena_array(a, Tensor, g->value.n);
    for (ValueId v = 0; v < g->value.n; v++) {
        const Value *x = val(g, v);
        Tensor t = {x->dtype, x->shape, NULL};
        int64_t n = shape_elements(&x->shape);
        if (x->kind == V_CONST) {
            t.data = arena_alloc(a, (size_t)value_bytes(g, v) + 1);
            memcpy(t.data, x->data, (size_t)value_bytes(g, v));
            at[v] = t;
        } else if (x->kind != V_NODE) {
            t.data = arena_alloc(a, (size_t)value_bytes(g, v) + 1);
            for (int64_t i = 0; i < n; i++)
                if (x->dtype == DT_F32)
                    ((float *)t.data)[i] = sinf((float)(i + 7 * (int64_t)v));
                else
                    ((int32_t *)t.data)[i] = (int32_t)(i & 1);
            at_all[v] = t;
        }
    }
    for (uint32_t s = 0; s < p->stage.n; s++) {
        const Stage *st = &p->stage.at[s];
        for (uint32_t i = 0; i < st->input.n; i++)
            at[st->input.at[i].value] = at_all[st->input.at[i].value];
        for (uint32_t i = 0; i < st->param.n; i++)
            at[g->param.at[st->param.at[i].param].value] =
                at_all[g->param.at[st->param.at[i].param].value];
        oracle_nodes(g, a, st->forward.at, st->forward.n, at);
        for (uint32_t i = 0; i < st->output.n; i++)
            at_all[st->output.at[i].value] = at[st->output.at[i].value];
    }
    for (uint32_t i = 0; i < g->output.n; i++)
        out[i] = at_all[g->output.at[i]];
}

static void same_numbers(void)
{
    static const char *const cuts[][2] = {
        {"b:begin", "c:begin"}, {"/a:end", NULL}, {"/mask:end", "/b"}, {"/a/add", "/b/add"}};
    char text[4096];
    ValueId skip, mask;
    Tensor want[3], got[3];
    Job whole = job(skips(&skip, &mask), NULL, NULL);
    (void)try_build(&whole, text, sizeof text);
    run(whole.p, want);
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        Job j = job(skips(&skip, &mask), cuts[c][0], cuts[c][1]);
        int code = try_build(&j, text, sizeof text);
        bool same = code == 0;
        if (same)
            run(j.p, got);
        for (int i = 0; i < 3 && same; i++)
            same = memcmp(want[i].data, got[i].data,
                          (size_t)shape_elements(&want[i].shape) * sizeof(float)) == 0;
        ok(same, "cut at %s: the same bits%s%s", cuts[c][0], code ? ": " : "", code ? text : "");
    }
}

static void direct_outputs(void)
{
    char text[4096];
    Graph *g = fresh();
    Shape xs = shape_of(2, (int64_t)B, (int64_t)D);
    ValueId x = graph_input(g, "x", DT_F32, &xs),
            w = param(g, "w", shape_of(2, (int64_t)D, (int64_t)D), true);
    at(g, "", "/a");
    ValueId h = g_matmul(g, x, w), dead = g_unary(g, OP_Exp, h);
    (void)dead;
    output(g, h, "y");
    output(g, x, "same_x");
    output(g, w, "same_w");
    output(g, g_scalar(g, DT_F32, 3), "three");
    output(g, x, "again");
    Job j = job(g, NULL, NULL);
    ok(try_build(&j, text, sizeof text) == 0 && j.p->stage.n == 1,
       "outputs that are an input, a parameter, a constant");
    ok(stage(&j, 0)->forward.n == 4, "an Identity each, nothing dead: %u nodes",
       stage(&j, 0)->forward.n);
    ok(val(g, g->output.at[1])->batch == 0, "with the batch dimension of what they repeat");
}

static void phases(void)
{
    char text[4096];
    Graph *g = fresh();
    Shape xs = shape_of(2, (int64_t)B, (int64_t)D), ss = shape_of(2, (int64_t)1, (int64_t)D);
    ValueId x = graph_input(g, "x", DT_F32, &xs), w = param(g, "w", ss, true);
    ValueId mean = graph_param(g, (Param){.name = "running_mean",
                                          .initializer = "rm",
                                          .dtype = DT_F32,
                                          .shape = ss,
                                          .stat = true});
    at(g, "bn", "/bn");
    ValueId now = g_mean(g, x, 1, (int64_t[]){0});
    ValueId new_mean =
        g_add(g, g_mul(g, mean, g_like(g, mean, 0.9)), g_mul(g, now, g_like(g, now, 0.1)));
    StatUpdate u = {val(g, mean)->param, new_mean};
    vec_push(g->arena, &g->update, u);
    ValueId used = graph_node(g, OP_Phase, 2, (ValueId[]){now, mean}, (Attr){0});
    ValueId y = g_mul(g, g_sub(g, x, used), w);
    output(g, y, "y");
    ValueId scale = graph_input(g, "loss_scale", DT_F32, &(Shape){0});
    ValueId loss = g_mul(
        g, g_reshape(g, g_reduce(g, OP_ReduceSum, y, 2, (int64_t[]){0, 1}), &(Shape){0}), scale);
    Loss l = {
        .loss = loss, .loss_scale = scale, .target = NONE, .scale = LOSS_SUM, .text = "output:y"};
    Job j = {.g = g, .loss = &l};
    ok(try_build(&j, text, sizeof text) == 0, "a running statistic");
    const Stage *s = stage(&j, 0);
    ok(s->forward.n == s->infer.n + 4,
       "the mean and its update are of the training program alone: %u, %u", s->forward.n,
       s->infer.n);
    ok(j.p->mixes.n == 1 && strstr(j.p->mixes.at[0], "/bn"), "and the samples it mixes are named");
    ok(s->output.n == 2 && j.p->loss == loss, "the loss is an output of the last stage");
}

/* ---- reports ---- */

static char *text_of(const Pipe *p, void (*write)(const Pipe *, FILE *))
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    write(p, f);
    fclose(f);
    return text;
}

static bool valid(const char *xml)
{
    xmlSchemaParserCtxtPtr parser = xmlSchemaNewParserCtxt("partition/print/pipe.xsd");
    xmlSchemaPtr schema = xmlSchemaParse(parser);
    xmlDocPtr doc = xmlReadMemory(xml, (int)strlen(xml), "pipe.xml", NULL, 0);
    xmlSchemaValidCtxtPtr check = schema ? xmlSchemaNewValidCtxt(schema) : NULL;
    bool good = check && doc && xmlSchemaValidateDoc(check, doc) == 0;
    if (check)
        xmlSchemaFreeValidCtxt(check);
    xmlFreeDoc(doc);
    xmlSchemaFree(schema);
    xmlSchemaFreeParserCtxt(parser);
    return good;
}

static void reports(void)
{
    char text[4096];
    ValueId skip, mask;
    Job j = job(skips(&skip, &mask), "b:begin", "c:begin");
    (void)try_build(&j, text, sizeof text);
    char *txt = text_of(j.p, print_pipe_txt), *xml = text_of(j.p, print_pipe_xml);
    ok(strstr(txt, "%submod_0 = call_stage[0](%x, %mask)") != NULL, "pipe.txt calls the stages");
    ok(strstr(txt, "= getitem(%submod_0, 0)") != NULL, "and takes their outputs apart");
    ok(strstr(txt, "wte.weight f32[4,4]") != NULL, "a transmitted parameter is seen");
    ok(valid(xml), "pipe.xml is valid by pipe.xsd");
    ok(strstr(xml, "<edge from=\"0\" to=\"2\" value=\"wte.weight\" dtype=\"f32\" shape=\"4,4\" "
                   "bytes=\"64\" "
                   "kind=\"parameter\" gradient=\"no\"/>") != NULL,
       "with the edge of the parameter");
    free(txt);
    free(xml);
}

static void hostile_names(void)
{
    char text[4096];
    Graph *g = fresh();
    Shape xs = shape_of(2, (int64_t)B, (int64_t)D);
    ValueId x = graph_input(g, "<x>&\"';\x01\n\xff-->", DT_F32, &xs),
            w = param(g, "</pipe>\\\"\xef\xbf\xbf", shape_of(2, (int64_t)D, (int64_t)D), true);
    ValueId h = linear(g, x, w, "a<script>", "/a\x1b[2J");
    at(g, "b\"", "/b");
    h = g_unary(g, OP_Relu, h);
    output(g, h, "y\n%submod_0");
    Job j = job(g, "/b", NULL);
    ok(try_build(&j, text, sizeof text) == 0, "names of every kind");
    char *xml = text_of(j.p, print_pipe_xml), *dot = text_of(j.p, print_pipe_dot);
    char *txt = text_of(j.p, print_pipe_txt), *sum = text_of(j.p, print_summary);
    ok(valid(xml), "pipe.xml stays valid");
    const char *html = report_program(j.p, g->arena);
    ok(!strstr(html, "<script>") && !strstr(html, "<x>") && !strchr(html, '\x01'),
       "pipe.html is escaped");
    ok(!strchr(txt, '\x1b') && !strchr(sum, '\x1b') && !strstr(txt, "\n%submod"),
       "text has no control bytes");
    ok(strstr(dot, "\\\"") != NULL && !strchr(dot, '\x01'), "pipe.dot is quoted");
    free(xml);
    free(dot);
    free(txt);
    free(sum);
}

static void costs(void)
{
    Graph *g = fresh();
    Shape xs = shape_of(3, (int64_t)2, (int64_t)3, (int64_t)5),
          is = shape_of(4, (int64_t)2, (int64_t)3, (int64_t)8, (int64_t)8);
    ValueId x = graph_input(g, "x", DT_F32, &xs),
            w = param(g, "w", shape_of(2, (int64_t)5, (int64_t)7), true);
    ValueId y = g_matmul(g, x, w);
    ValueId im = graph_input(g, "im", DT_F32, &is),
            k = param(g, "k", shape_of(4, (int64_t)6, (int64_t)3, (int64_t)3, (int64_t)3), true);
    Attr a = {.n = 2,
              .group = 1,
              .stride = (int64_t[]){1, 1},
              .dilation = (int64_t[]){1, 1},
              .pad = (int64_t[]){1, 1, 1, 1}};
    ValueId c = graph_node(g, OP_Conv, 2, (ValueId[]){im, k}, a);
    ok(cost_flops(g, val(g, y)->node) == 2 * 2 * 3 * 5 * 7, "FLOPs of a product are 2 m n k");
    ok(cost_flops(g, val(g, c)->node) == 2LL * 2 * 6 * 8 * 8 * 3 * 3 * 3, "and of a convolution");
    ok(value_bytes(g, c) == 2 * 6 * 8 * 8 * 4, "bytes of a value");
}

/* Four products under names as given; where --stages 2 cuts: the node before which. */
static const char *cut_of_names(const char *const *name, const char *scope)
{
    Graph *g = fresh();
    Shape xs = shape_of(2, (int64_t)B, (int64_t)D), ws = shape_of(2, (int64_t)D, (int64_t)D);
    ValueId h = graph_input(g, "x", DT_F32, &xs);
    for (int i = 0; i < 4; i++) {
        ValueId w = param(g, arena_printf(g->arena, "w%d", i), ws, true);
        h = linear(g, h, w, scope, name[i]);
        graph_rename(g, h, arena_printf(g->arena, "%s'", name[i]));
    }
    output(g, h, "y");
    Job j = job(g, NULL, NULL);
    j.opt.automatic = (AutoOptions){.stages = 2, .rates = rates_builtin()};
    j.opt.joint = autodiff_joint(g, &j.opt, &(Loss){NONE, NONE, NONE, .origin = NONE});
    char text[2000];
    bool cut = try_build(&j, text, sizeof text) == 0 && j.p->split.n == 1;
    return cut ? j.p->split.at[0] : text[0] ? arena_strdup(g->arena, text) : "";
}

/* No name decides whether there is a cut, or where: law 6. */
static void any_names(void)
{
    static const char *const names[][4] = {
        {"a", "b", "c", "d"},
        {"%a", "%b", "%c", "%d"},
        {"a%", "b%d", "%5", "%grad/x"},
        {"a:begin", "b:begin", "c:begin", "d:begin"},
        {"a:end", "b,c", "c*:end", "."},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *at = cut_of_names(names[i], "");
        ok(!strcmp(at, names[i][2]), "--stages 2 cuts before '%s': %s", names[i][2], at);
    }
    static const char *const scopes[] = {".", "..", ".a", "a..b", "a."};
    for (size_t i = 0; i < sizeof scopes / sizeof *scopes; i++)
        ok(!strcmp(cut_of_names(names[0], scopes[i]), "c"), "and in module '%s'", scopes[i]);
}

int main(void)
{
    split_points();
    any_names();
    split_errors();
    inner_calls();
    markers();
    crossing();
    same_numbers();
    direct_outputs();
    phases();
    reports();
    hostile_names();
    costs();
    while (arenas > 0)
        arena_free(arena[--arenas]);
    return tap_done();
}
