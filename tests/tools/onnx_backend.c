/*
 * onnx_backend.c - runs ONNX's backend test cases (folders with model.onnx,
 * test_data_set_0/input_N.pb, output_N.pb) through the importers and the evaluator.  Usage:
 * onnx_backend [-v] CASE...; prints the cases that fail and, last, passed N wrong N refused N
 * crashed N A sequence of tensors is bound to its length and shapes (--bind NAME=N NAME.0.1=5).
 * Operands that must be static (shapes, axes) arrive as run-time inputs in these cases,
 * so a case is tried with none, then the integer ones, then all but the first, then all of its
 * inputs made initializers.  Each try is a process.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "autodiff/autodiff.h"
#include "frontend/frontend.h"
#include "onnx.pb-c.h"
#include "oracle/oracle.h"

enum { PASSED, WRONG, REFUSED, CRASHED, OUTCOMES };
enum { TRY_NONE, TRY_INTEGERS, TRY_REST, TRY_ALL, TRIES };

static uint8_t *slurp(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    uint8_t *at = malloc(*n + 1);
    if (fread(at, 1, *n, f) != *n)
        *n = 0;
    fclose(f);
    return at;
}

/* ---- tensors of the file as doubles ---- */

static double half(uint16_t h, int exponent_bits)
{
    int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    int e = (h >> fraction_bits) & ((1 << exponent_bits) - 1), f = h & ((1 << fraction_bits) - 1);
    double m = f / (double)(1 << fraction_bits), x;
    if (e == (1 << exponent_bits) - 1)
        x = f ? (double)NAN : (double)INFINITY;
    else
        x = e ? ldexp(1 + m, e - bias) : ldexp(m, 1 - bias);
    return h >> 15 ? -x : x;
}

/* A float of so many bits, exponent and fraction, from its code: OCP's tables, by enumeration. */
static double mini(int type, unsigned code)
{
    static const struct { int type, bits, fraction, bias; } formats[] = {
        {17, 8, 3, 7}, {18, 8, 3, 8}, {19, 8, 2, 15}, {20, 8, 2, 16}, {23, 4, 1, 1},
    };
    if (type == 24)
        return code == 255 ? (double)NAN : ldexp(1, (int)code - 127);
    if ((type == 17 && (code & 127) == 127) || ((type == 18 || type == 20) && code == 128) ||
        (type == 19 && (code & 127) > 124))
        return (double)NAN;
    if (type == 19 && (code & 127) == 124)
        return code & 128 ? -(double)INFINITY : (double)INFINITY;
    for (size_t k = 0; k < sizeof formats / sizeof *formats; k++) {
        if (formats[k].type != type)
            continue;
        int f = formats[k].fraction, top = formats[k].bits - 1, e = (int)(code & ((1u << top) - 1)) >> f,
            digits = (int)code & ((1 << f) - 1);
        double x = ldexp(digits + (e ? 1 << f : 0), (e ? e : 1) - formats[k].bias - f);
        return code >> top ? -x : x;
    }
    exit(REFUSED);
}

/* Element i of those that share bytes. */
static double shared(const uint8_t *raw, int bits, size_t i, bool is_signed)
{
    int code = raw[i * (size_t)bits / 8] >> (i * (size_t)bits % 8) & ((1 << bits) - 1);
    return is_signed && code >> (bits - 1) ? code - (1 << bits) : code;
}

/* Element i of n; integers beyond 2^53 lose their last bits, which no case minds. */
static const uint8_t *bytes_of(const Onnx__TensorProto *t)
{
    if (t->has_raw_data)
        return t->raw_data.data;
    uint8_t *bytes = malloc(t->n_int32_data + 1);
    for (size_t i = 0; i < t->n_int32_data; i++)
        bytes[i] = (uint8_t)t->int32_data[i];
    return bytes;
}

static double element(const Onnx__TensorProto *t, size_t i)
{
    const uint8_t *raw = t->has_raw_data ? t->raw_data.data : NULL;
#define RAW(T) (double)((const T *)(const void *)raw)[i]
    switch (t->data_type) {
    case DT_F32: return raw ? RAW(float) : (double)t->float_data[i];
    case DT_F64: return raw ? RAW(double) : t->double_data[i];
    case DT_I64: return raw ? RAW(int64_t) : (double)t->int64_data[i];
    case DT_U64: return raw ? RAW(uint64_t) : (double)t->uint64_data[i];
    case DT_U32: return raw ? RAW(uint32_t) : (double)t->uint64_data[i];
    case DT_I32: return raw ? RAW(int32_t) : (double)t->int32_data[i];
    case DT_I16: return raw ? RAW(int16_t) : (double)t->int32_data[i];
    case DT_U16: return raw ? RAW(uint16_t) : (double)t->int32_data[i];
    case DT_I8: return raw ? RAW(int8_t) : (double)t->int32_data[i];
    case DT_U8:
    case DT_BOOL: return raw ? RAW(uint8_t) : (double)t->int32_data[i];
    case DT_F16:
        return half(raw ? ((const uint16_t *)(const void *)raw)[i] : (uint16_t)t->int32_data[i], 5);
    case DT_BF16:
        return half(raw ? ((const uint16_t *)(const void *)raw)[i] : (uint16_t)t->int32_data[i], 8);
    case DT_U4:
    case DT_I4: return shared(bytes_of(t), 4, i, t->data_type == DT_I4);
    case DT_U2:
    case DT_I2: return shared(bytes_of(t), 2, i, t->data_type == DT_I2);
    case DT_F4E2M1: return mini(t->data_type, (unsigned)shared(bytes_of(t), 4, i, false));
    default: return mini(t->data_type, bytes_of(t)[i]);
    }
#undef RAW
}

static Shape proto_shape(const Onnx__TensorProto *t)
{
    Shape s = {.rank = (int)t->n_dims};
    if (t->n_dims > MAX_RANK)
        exit(REFUSED);
    for (size_t i = 0; i < t->n_dims; i++)
        s.d[i] = t->dims[i];
    return s;
}

/* The tensor in the type that the graph computes in. */
static Tensor widened(Arena *a, const Onnx__TensorProto *p, Dtype t)
{
    Tensor x = {t, proto_shape(p), NULL};
    size_t n = (size_t)shape_elements(&x.shape);
    x.data = arena_alloc(a, n * 8 + 8);
    for (size_t i = 0; i < n; i++) {
        double v = element(p, i);
        if (dtype_is_float(t))
            element_set_double(t, x.data, (int64_t)i, v);
        else
            element_set_int(t, x.data, (int64_t)i, t == DT_BOOL ? v != 0 : (int64_t)v);
    }
    return x;
}

static double computed(const Tensor *x, size_t i)
{
    return element_double(x->dtype, x->data, (int64_t)i);
}

/* ---- one case ---- */

typedef struct {
    Arena *arena;
    const char *folder;
    Onnx__ModelProto *model;
    Onnx__TensorProto **input; /* by position; NULL: no tensor */
    VEC(Onnx__TensorProto *) element; /* of sequences: NAME.0, ... */
    size_t inputs;
    const char *path; /* where the model as it is tried goes */
    Graph *graph;
    ImportOptions options;
} Case;

/* Some cases keep the bits of bf16 as u16, against what the model says. */
static Onnx__TensorProto *read_tensor(const char *folder, const char *what, size_t i,
                                      const Onnx__ValueInfoProto *info)
{
    char path[4096];
    size_t n;
    snprintf(path, sizeof path, "%s/test_data_set_0/%s_%zu.pb", folder, what, i);
    uint8_t *at = slurp(path, &n);
    Onnx__TensorProto *t = at ? onnx__tensor_proto__unpack(NULL, n, at) : NULL;
    if (t && t->data_type == DT_U16 && info->type &&
        info->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE &&
        info->type->tensor_type->elem_type == DT_BF16)
        t->data_type = DT_BF16;
    return t;
}

static const Onnx__TypeProto *present(const Onnx__TypeProto *t)
{
    return t && t->value_case == ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE ? t->optional_type->elem_type
                                                                        : t;
}

static bool is_sequence(const Onnx__ValueInfoProto *v)
{
    const Onnx__TypeProto *t = present(v->type);
    return t && t->value_case == ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE;
}

typedef VEC(Onnx__TensorProto *) Tensors;

/* The tensors of a SequenceProto, or the one of an OptionalProto: field 3.  bare: where it is a
 * TensorProto instead, none. */
static Tensors read_sequence(const Case *c, const char *what, size_t i, const char *name, bool bare)
{
    char path[4096];
    size_t n;
    Tensors list = {0};
    snprintf(path, sizeof path, "%s/test_data_set_0/%s_%zu.pb", c->folder, what, i);
    uint8_t *at = slurp(path, &n);
    for (size_t p = 0; at && p < n;) {
        uint8_t key = at[p++];
        uint64_t length = 0;
        for (int shift = 0;; shift += 7) {
            length |= (uint64_t)(at[p] & 127) << shift;
            if (!(at[p++] & 128))
                break;
        }
        if (key == (2 << 3) && length == 0)
            exit(REFUSED);                              /* an optional value that is absent */
        if ((key & 7) == 0)
            continue;
        if ((key & 7) != 2 || length > n - p)
            exit(REFUSED);
        if (key >> 3 == 3) {
            Onnx__TensorProto *t = onnx__tensor_proto__unpack(NULL, length, at + p);
            if (!t)
                exit(REFUSED);
            t->name = arena_printf(c->arena, "%s.%u", name, list.n);
            vec_push(c->arena, &list, t);
        } else if (key >> 3 > 3) {
            if (!bare)
                exit(REFUSED);                          /* of something else than tensors */
            break;
        }
        p += length;
    }
    return list;
}

static void bind_sequence(Case *c, size_t i)
{
    const char *name = c->model->graph->input[i]->name;
    Tensors list = read_sequence(c, "input", i, name, false);
    vec_push(c->arena, &c->options.bind, arena_printf(c->arena, "%s=%u", name, list.n));
    const Onnx__TypeProto *whole = present(c->model->graph->input[i]->type),
                          *type = whole ? whole->sequence_type->elem_type : NULL;
    const Onnx__TensorShapeProto *shape =
        type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ? type->tensor_type->shape
                                                                        : NULL;
    for (uint32_t k = 0; k < list.n; k++) {
        vec_push(c->arena, &c->element, list.at[k]);
        for (size_t d = 0; d < list.at[k]->n_dims; d++)
            if (shape && d < shape->n_dim &&
                shape->dim[d]->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE)
                vec_push(c->arena, &c->options.bind,
                         arena_printf(c->arena, "%s.%zu=%lld", list.at[k]->name, d,
                                      (long long)list.at[k]->dims[d]));
    }
}

static void read_case(Case *c)
{
    char path[4096];
    size_t n;
    snprintf(path, sizeof path, "%s/model.onnx", c->folder);
    uint8_t *at = slurp(path, &n);
    c->model = at ? onnx__model_proto__unpack(NULL, n, at) : NULL;
    if (!c->model || !c->model->graph)
        exit(REFUSED);
    Onnx__GraphProto *g = c->model->graph;
    /* Old cases: what they use of opset 6 means the same in 7. */
    for (size_t i = 0; i < c->model->n_opset_import; i++)
        if (c->model->opset_import[i]->version < 7 &&
            (!c->model->opset_import[i]->domain || !*c->model->opset_import[i]->domain))
            c->model->opset_import[i]->version = 7;
    c->inputs = g->n_input;
    c->input = arena_array(c->arena, Onnx__TensorProto *, g->n_input + 1);
    for (size_t i = 0; i < g->n_input; i++) {
        if (is_sequence(g->input[i])) {
            bind_sequence(c, i);
            continue;
        }
        const Onnx__TypeProto *type = present(g->input[i]->type);
        if (!type || type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
            exit(REFUSED);
        c->input[i] = read_tensor(c->folder, "input", i, g->input[i]);
        if (type != g->input[i]->type) {
            Tensors one = read_sequence(c, "input", i, g->input[i]->name, true);
            c->input[i] = one.n ? one.at[0] : c->input[i];
        }
    }
}

static bool integer(const Onnx__TensorProto *t)
{
    return t->data_type == DT_I64 || t->data_type == DT_I32;
}

/* Writes the model with some of its inputs turned into initializers; false when that changes
 * nothing. */
static bool write_variant(Case *c, int try)
{
    Onnx__GraphProto *g = c->model->graph;
    size_t kept = 0, was = g->n_initializer;
    Onnx__TensorProto **init = arena_array(c->arena, Onnx__TensorProto *, was + g->n_input + 1);
    if (was)
        memcpy(init, g->initializer, was * sizeof *init);
    g->initializer = init;
    for (size_t i = 0; i < c->inputs; i++) {
        Onnx__TensorProto *t = c->input[i];
        bool constant = t && (try == TRY_ALL ||
                              (i > 0 && (try == TRY_REST || (try == TRY_INTEGERS && integer(t)))));
        if (constant) {
            t->name = g->input[i]->name;
            init[g->n_initializer++] = t;
        } else {
            g->input[kept] = g->input[i];
            c->input[kept++] = t;
        }
    }
    g->n_input = c->inputs = kept;
    size_t n = onnx__model_proto__get_packed_size(c->model);
    uint8_t *at = malloc(n + 1);
    onnx__model_proto__pack(c->model, at);
    FILE *f = fopen(c->path, "wb");
    if (!f || fwrite(at, 1, n, f) != n || fclose(f) != 0)
        exit(CRASHED);
    return try == TRY_NONE || g->n_initializer > was;
}

static void import_case(void *arg)
{
    Case *c = arg;
    c->graph = import_models(c->arena, 1, &c->path, &c->options);
}

/* A parameter's bytes, in the shape the graph gives it. */
static Tensor param_tensor(const Case *c, const Param *p)
{
    Tensor x = {p->dtype, p->shape, NULL};
    size_t n = (size_t)shape_elements(&p->shape), size = dtype_size(p->dtype);
    uint8_t *to = arena_alloc(c->arena, n * size + 8);
    size_t rows = p->transposed ? (size_t)p->shape.d[1] : 1, cols = rows ? n / rows : 0;
    for (size_t i = 0; p->bytes.at && i < n; i++)
        memcpy(to + (p->transposed ? i % cols * rows + i / cols : i) * size, p->bytes.at + i * size,
               size);
    x.data = to;
    return x;
}

static void fill(const Case *c, Tensor *at)
{
    const Graph *g = c->graph;
    for (ValueId v = 0; v < g->value.n; v++) {
        const Value *x = val(g, v);
        if (x->kind == V_CONST) {
            size_t n = (size_t)shape_elements(&x->shape) * dtype_size(x->dtype);
            at[v] = (Tensor){x->dtype, x->shape, arena_alloc(c->arena, n + 8)};
            if (n)
                memcpy(at[v].data, x->data, n);
        } else if (x->kind == V_PARAM) {
            at[v] = param_tensor(c, &g->param.at[x->param]);
        }
    }
    for (size_t i = 0; i < c->inputs + c->element.n; i++) {
        const Onnx__TensorProto *t =
            i < c->inputs ? c->input[i] : c->element.at[i - c->inputs];
        const char *name = i < c->inputs ? c->model->graph->input[i]->name : t->name;
        ValueId v = strmap_get(&g->by_name, name);
        if (v == NONE || val(g, v)->kind != V_INPUT)
            continue;
        if (!t)
            exit(REFUSED);
        at[v] = widened(c->arena, t, val(g, v)->dtype);
        if (!shape_equal(&at[v].shape, &val(g, v)->shape))
            exit(REFUSED);
    }
}

/* Of float32 sums that cancel: what is rounded away beside the largest element. */
static double floor_of(const Onnx__TensorProto *want, size_t n)
{
    double largest = 1;
    for (size_t i = 0; i < n; i++)
        if (isfinite(element(want, i)) && fabs(element(want, i)) > largest)
            largest = fabs(element(want, i));
    return want->data_type == DT_F32 || want->data_type == DT_F64 ? 1e-7 * fmin(largest, 1e3)
                                                                  : 1e-7;
}

static bool agree(const Onnx__TensorProto *want, const Tensor *got)
{
    Shape s = proto_shape(want);
    if (!shape_equal(&s, &got->shape)) {
        fprintf(stdout, "# shapes differ\n");
        return false;
    }
    double rtol = want->data_type == DT_BF16 ? 2e-2 : want->data_type == DT_F16 ? 2e-3 : 1e-3;
    double least = floor_of(want, (size_t)shape_elements(&s));
    for (size_t i = 0; i < (size_t)shape_elements(&s); i++) {
        double w = element(want, i), x = computed(got, i);
        if ((isnan(w) && isnan(x)) || (isinf(w) && isinf(x) && (w > 0) == (x > 0)) ||
            fabs(x - w) <= least + rtol * fabs(w))
            continue;
        fprintf(stdout, "# element %zu: %.9g, not %.9g\n", i, x, w);
        return false;
    }
    return true;
}

/* What the case wants, sequences one after the other; n: how many, up to the first that is not
 * there. */
static Onnx__TensorProto **wanted(const Case *c, uint32_t *n, bool *all)
{
    *all = false;
    const Onnx__GraphProto *g = c->model->graph;
    Tensors list = {0};
    for (size_t i = 0; i < g->n_output; i++) {
        if (is_sequence(g->output[i])) {
            Tensors s = read_sequence(c, "output", i, g->output[i]->name, false);
            for (uint32_t k = 0; k < s.n; k++)
                vec_push(c->arena, &list, s.at[k]);
            continue;
        }
        Onnx__TensorProto *t = read_tensor(c->folder, "output", i, g->output[i]);
        if (!t) {
            *n = list.n;
            return list.at;
        }
        vec_push(c->arena, &list, t);
    }
    *all = true;
    *n = list.n;
    return list.at;
}

/* Is output i the number of places that the one before it has? */
static bool counts(const Graph *g, uint32_t i)
{
    const char *name = g->output_name.at[i - 1], *count = g->output_name.at[i];
    size_t n = strlen(name);
    return !strncmp(name, count, n) && !strcmp(count + n, ".count");
}

/* The places that are there, in the dim that has more than is wanted: zeros are behind them. */
static Tensor cut(const Case *c, const Onnx__TensorProto *want, const Tensor *x, double count)
{
    Shape s = proto_shape(want);
    int dim = 0;
    if (shape_equal(&s, &x->shape) || s.rank != x->shape.rank)
        return *x;
    while (dim < s.rank - 1 && s.d[dim] == x->shape.d[dim])
        dim++;
    Tensor y = {x->dtype, x->shape, NULL};
    y.shape.d[dim] = (int64_t)count;
    size_t inner = dtype_size(x->dtype), outer = 1, n = (size_t)x->shape.d[dim], m = (size_t)count;
    for (int d = 0; d < s.rank; d++)
        *(d < dim ? &outer : &inner) *= d == dim ? 1 : (size_t)x->shape.d[d];
    y.data = arena_alloc(c->arena, outer * n * inner + 8);
    for (size_t o = 0; o < outer; o++) {
        const char *from = (const char *)x->data + o * n * inner;
        memcpy((char *)y.data + o * m * inner, from, m * inner);
        for (size_t i = m * inner; i < n * inner; i++)
            if (from[i])
                exit(WRONG);
    }
    return y;
}

static int try_case(Case *c)
{
    if (diag_run(import_case, c) != 0)
        return REFUSED;
    const Graph *g = c->graph;
    graph_verify(g);
    Tensor *at = arena_array(c->arena, Tensor, g->value.n + 1);
    NodeId *list = arena_array(c->arena, NodeId, g->node.n + 1);
    for (NodeId n = 0; n < g->node.n; n++)
        list[n] = n;
    fill(c, at);
    oracle_nodes(g, c->arena, list, g->node.n, at);
    uint32_t n, o = 0;
    bool all;
    Onnx__TensorProto **want = wanted(c, &n, &all);
    for (uint32_t i = 0; i < n; i++) {
        if (o == g->output.n)
            return WRONG;
        Tensor got = at[g->output.at[o++]];
        if (o < g->output.n && counts(g, o))
            got = cut(c, want[i], &got, computed(&at[g->output.at[o++]], 0));
        if (!agree(want[i], &got))
            return WRONG;
    }
    if (all && o < g->output.n)
        return WRONG;
    return n ? PASSED : REFUSED;
}

static int run_case(const char *folder, const char *path, bool loud)
{
    int outcome = REFUSED;
    for (int try = 0; try < TRIES && outcome == REFUSED; try++) {
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            Case c = {.arena = arena_new(),
                      .folder = folder,
                      .path = path,
                      .options.limits = limits_default(),
                      .options.gradient = grad_nodes};
            c.options.training = strstr(folder, "training") != NULL;
            if (!loud && !freopen("/dev/null", "w", stderr))
                exit(CRASHED);
            read_case(&c);
            exit(write_variant(&c, try) ? try_case(&c) : REFUSED);
        }
        int status;
        waitpid(pid, &status, 0);
        outcome =
            WIFEXITED(status) && WEXITSTATUS(status) < OUTCOMES ? WEXITSTATUS(status) : CRASHED;
    }
    return outcome;
}

/* These draw random numbers. */
static bool random_case(const char *folder)
{
    static const char *const names[] = {"training_dropout", "training_dropout_default",
                                        "training_dropout_mask", "training_dropout_default_mask",
                                        "bernoulli", "bernoulli_double", "bernoulli_seed",
                                        "bernoulli_expanded", "bernoulli_double_expanded",
                                        "bernoulli_seed_expanded"};
    const char *name = strstr(folder, "/test_");
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (strcmp(name + 6, names[i]) == 0)
            return true;
    return false;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"passed", "wrong", "refused", "crashed"};
    int count[OUTCOMES] = {0}, i = 1;
    char path[] = "/tmp/onnx_backend.XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0)
        return CRASHED;
    close(fd);
    bool loud = argc > 1 && strcmp(argv[1], "-v") == 0;
    for (i += loud; i < argc; i++) {
        int outcome = random_case(argv[i]) ? REFUSED : run_case(argv[i], path, loud);
        count[outcome]++;
        if (outcome != PASSED)
            printf("%s %s\n", names[outcome], argv[i]);
    }
    unlink(path);
    printf("passed %d wrong %d refused %d crashed %d\n", count[PASSED], count[WRONG],
           count[REFUSED], count[CRASHED]);
    return count[WRONG] + count[CRASHED] > 0;
}
