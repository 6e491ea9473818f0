/*
 * fields.c - tables in memory as C.  In: a struct of pp.h, and a row for each of its members.  Out:
 * its initializer, in the order of the declaration, which C++ asks for.  What is 0 is left out, but
 * for a number whose 0 has a name.  A list stands before what points to it.
 */
#include "fields.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

typedef enum { INT, WIDE, HASH, TEXT, LETTER, TYPE, NAMED, STRUCT, LIST, TIMED } Kind;

/* Of an array the bytes are those of all elements.  A list's number of elements is another member,
 * of TIMED PP_TIMED; without fields it is printed elsewhere, under the same name. */
typedef struct {
    const char *name;               /* NULL: an element that is no struct */
    Kind kind;
    size_t at, bytes;
    const char *const *names;       /* NAMED: of each number */
    const Fields *fields;           /* STRUCT, LIST, TIMED: of an element */
    size_t count;                   /* LIST: where its number of elements is */
} Field;

struct Fields {
    const char *type;
    size_t bytes;
    const Field *field;
    size_t n;
};

#define KIND(x)                                                                                    \
    _Generic((x), int: INT, int *: INT, int64_t: WIDE, int64_t *: WIDE, uint64_t: HASH,            \
             const char *: TEXT)
#define AS(T, m, kind, names) {#m, kind, offsetof(T, m), sizeof((T *)0)->m, names, NULL, 0}
#define P(T, m) AS(T, m, KIND(((T *)0)->m), NULL)
#define IN(T, m, of) {#m, STRUCT, offsetof(T, m), sizeof((T *)0)->m, NULL, of, 0}
#define MANY(T, m, n, of) {#m, LIST, offsetof(T, m), sizeof(void *), NULL, of, offsetof(T, n)}
#define FIELDS(T, list) {#T, sizeof(T), list, sizeof list / sizeof *list}
/* Member m of a struct without a name, member x of T. */
#define AT(T, x, m) (offsetof(T, x.m) - offsetof(T, x))
#define AS_IN(T, x, m, kind, names) {#m, kind, AT(T, x, m), sizeof((T *)0)->x.m, names, NULL, 0}
#define P_IN(T, x, m) AS_IN(T, x, m, KIND(((T *)0)->x.m), NULL)
#define MANY_IN(T, x, m, n, of) {#m, LIST, AT(T, x, m), sizeof(void *), NULL, of, AT(T, x, n)}
#define FIELDS_IN(T, x, list) {"", sizeof((T *)0)->x, list, sizeof list / sizeof *list}

/* ---- structs --------------------------------------------------------------------------------- */

static const char *const meshes[] = {"PP_TENSOR", "PP_SEQUENCE", "PP_EXPERT"},
                         *const others[] = {"", "PP_SEQUENCE", "PP_EXPERT"},
                         *const uses[] = {"PP_OWN", "PP_TRANSMIT", "PP_REPLICATE"},
                         *const merges[] = {"PP_MERGE_LAST", "PP_MERGE_SUM", "PP_MERGE_MEAN",
                                            "PP_MERGE_NONE"},
                         *const losses[] = {"PP_LOSS_NONE", "PP_LOSS_SUM", "PP_LOSS_MEAN_ELEMENTS",
                                            "PP_LOSS_MEAN_TARGETS", "PP_LOSS_MEAN_ROWS"},
                         *const devices[] = {"PP_CPU", "PP_CUDA"},
                         *const meetings[] = {"PP_ALL_REDUCE", "PP_ALL_GATHER",
                                              "PP_REDUCE_SCATTER", "PP_ALL_TO_ALL", "PP_SHARD"};

static const Field text[] = {{NULL, TEXT, 0, sizeof(char *), NULL, NULL, 0}},
                   merge[] = {{NULL, NAMED, 0, sizeof(int), merges, NULL, 0}};
static const Fields of_text = {"char *const", sizeof(char *), text, 1},
                    of_merge = {"int", sizeof(int), merge, 1};

static const Field term[] = {P(PpTerm, dim), P(PpTerm, c), P(PpTerm, power)};
static const Fields of_term = FIELDS(PpTerm, term);

static const Field tensor[] = {
    P(PpTensor, name), AS(PpTensor, dtype, TYPE, NULL), P(PpTensor, rank),
    P(PpTensor, dim), P(PpTensor, batch_dim), P(PpTensor, bytes),
    P(PpTensor, n_term), MANY(PpTensor, term, n_term, &of_term)};
static const Fields of_tensor = FIELDS(PpTensor, tensor);

static const Field input[] = {IN(PpInput, t, &of_tensor), P(PpInput, from),
                              P(PpInput, from_output), P(PpInput, stashed),
                              P(PpInput, grads), P(PpInput, again)};
static const Fields of_input = FIELDS(PpInput, input);

static const Field output[] = {IN(PpOutput, t, &of_tensor), P(PpOutput, model_output),
                               P(PpOutput, stashed), P(PpOutput, dys),
                               P(PpOutput, again), P(PpOutput, optional)};
static const Fields of_output = FIELDS(PpOutput, output);

static const Field dy[] = {P(PpDy, output), P(PpDy, from), P(PpDy, input), P(PpDy, index),
                           P(PpDy, stashed)};
static const Fields of_dy = FIELDS(PpDy, dy);

static const Field outer[] = {AS_IN(PpParam, outer, mesh, NAMED, others),
                              P_IN(PpParam, outer, dim), P_IN(PpParam, outer, whole),
                              P_IN(PpParam, outer, first), P_IN(PpParam, outer, step)};
static const Fields of_outer = FIELDS_IN(PpParam, outer, outer);
static const Field each[] = {
    AS_IN(PpParam, each, mesh, NAMED, others), P_IN(PpParam, each, n),
    P_IN(PpParam, each, first), P_IN(PpParam, each, step),
    MANY_IN(PpParam, each, name, n, &of_text)};
static const Fields of_each = FIELDS_IN(PpParam, each, each);
static const Field param[] = {
    IN(PpParam, t, &of_tensor), P(PpParam, param), AS(PpParam, use, NAMED, uses),
    P(PpParam, from), P(PpParam, trainable), P(PpParam, stat), P(PpParam, offset),
    P(PpParam, grad_offset), P(PpParam, half_offset), P(PpParam, more), P(PpParam, more_offset),
    AS(PpParam, mesh, NAMED, others), P(PpParam, axis), P(PpParam, groups), P(PpParam, whole),
    P(PpParam, first), P(PpParam, step), IN(PpParam, outer, &of_outer),
    IN(PpParam, each, &of_each)};
static const Fields of_param = FIELDS(PpParam, param);

static const Field constant[] = {IN(PpConst, t, &of_tensor), P(PpConst, offset)};
const Fields fields_const = FIELDS(PpConst, constant);

static const Field collective[] = {
    AS(PpCollective, kind, NAMED, meetings), AS(PpCollective, mesh, NAMED, meshes),
    P(PpCollective, name), AS(PpCollective, dtype, TYPE, NULL), P(PpCollective, bytes),
    AS(PpCollective, half, TYPE, NULL), AS(PpCollective, part, LETTER, NULL)};
static const Fields of_collective = FIELDS(PpCollective, collective);

static const Field partial[] = {P(PpPartial, param), P(PpPartial, use), P(PpPartial, offset),
                                P(PpPartial, along), P(PpPartial, row)};
static const Fields of_partial = FIELDS(PpPartial, partial);

static const Field again[] = {P(PpAgain, bytes), P(PpAgain, flops)};
const Fields fields_again = FIELDS(PpAgain, again);

static const Field kept[] = {P(PpKept, name), AS(PpKept, dtype, TYPE, NULL), P(PpKept, part),
                             P(PpKept, output), P(PpKept, offset), P(PpKept, bytes)};
static const Fields of_kept = FIELDS(PpKept, kept);

static const Field step[] = {AS(PpStep, part, LETTER, NULL), P(PpStep, nodes)};
static const Fields of_step = FIELDS(PpStep, step);
static const Field steps[] = {P(PpSteps, n), MANY(PpSteps, step, n, &of_step)};
static const Fields of_steps = FIELDS(PpSteps, steps);

static const Field conv[] = {
    AS(PpConvShape, dtype, TYPE, NULL), P(PpConvShape, spatial), P(PpConvShape, group),
    P(PpConvShape, c), P(PpConvShape, m), P(PpConvShape, in), P(PpConvShape, out),
    P(PpConvShape, kernel), P(PpConvShape, stride), P(PpConvShape, dilation),
    P(PpConvShape, pad_begin), P(PpConvShape, pad_end)};
const Fields fields_conv = FIELDS(PpConvShape, conv);

static const Field bytes[] = {
    P_IN(PpStage, bytes, param), P_IN(PpStage, bytes, grad), P_IN(PpStage, bytes, constants),
    P_IN(PpStage, bytes, half), P_IN(PpStage, bytes, stash), P_IN(PpStage, bytes, saved),
    P_IN(PpStage, bytes, work)};
static const Fields of_bytes = FIELDS_IN(PpStage, bytes, bytes);
static const Field flops[] = {P_IN(PpStage, flops, forward), P_IN(PpStage, flops, input),
                              P_IN(PpStage, flops, weight)};
static const Fields of_flops = FIELDS_IN(PpStage, flops, flops);
static const Field twice[] = {P_IN(PpStage, twice, quick), P_IN(PpStage, twice, functions),
                              P_IN(PpStage, twice, bytes)};
static const Fields of_twice = FIELDS_IN(PpStage, twice, twice);
static const Field look[] = {P_IN(PpStage, look, n_kept),
                             MANY_IN(PpStage, look, kept, n_kept, &of_kept),
                             {"steps", TIMED, AT(PpStage, look, steps), sizeof(void *), NULL,
                              &of_steps, 0}};
static const Fields of_look = FIELDS_IN(PpStage, look, look);
static const Field mesh[] = {
    P_IN(PpStage, mesh, n_collective), P_IN(PpStage, mesh, at_once),
    P_IN(PpStage, mesh, n_partial),
    MANY_IN(PpStage, mesh, collective, n_collective, &of_collective),
    MANY_IN(PpStage, mesh, partial, n_partial, &of_partial)};
static const Fields of_mesh = FIELDS_IN(PpStage, mesh, mesh);

/* Up to what the stage's file defines. */
static const Field stage[] = {
    P(PpStage, index), P(PpStage, label), P(PpStage, n_input), P(PpStage, n_output),
    P(PpStage, n_dy), P(PpStage, n_dx), P(PpStage, n_param), P(PpStage, n_const),
    MANY(PpStage, input, n_input, &of_input), MANY(PpStage, output, n_output, &of_output),
    MANY(PpStage, dy, n_dy, &of_dy), MANY(PpStage, param, n_param, &of_param),
    MANY(PpStage, constants, n_const, NULL), AS(PpStage, half_type, TYPE, NULL),
    IN(PpStage, bytes, &of_bytes), IN(PpStage, flops, &of_flops), IN(PpStage, twice, &of_twice),
    P(PpStage, n_again), MANY(PpStage, again, n_again, NULL), IN(PpStage, look, &of_look),
    P(PpStage, has_backward), IN(PpStage, mesh, &of_mesh)};
const Fields fields_stage = FIELDS(PpStage, stage);

static const Field range[] = {P(PpRange, name), P(PpRange, least), P(PpRange, most)};
static const Fields of_range = FIELDS(PpRange, range);

static const Field total[] = {P(PpTotal, input), P(PpTotal, mean), P(PpTotal, level)};
const Fields fields_total = FIELDS(PpTotal, total);

static const Field rows[] = {P(PpIndex, input), P(PpIndex, first), P(PpIndex, step),
                             P(PpIndex, count), P(PpIndex, least), P(PpIndex, most),
                             P(PpIndex, has_other), P(PpIndex, other), P(PpIndex, table),
                             P(PpIndex, rows)};
static const Fields of_rows = FIELDS(PpIndex, rows);

static const Field made[] = {P(PpMade, option), P(PpMade, value)};
static const Fields of_made = FIELDS(PpMade, made);

static const Field program[] = {
    P_IN(PpPlan, program, hash), P_IN(PpPlan, program, model_hash),
    P_IN(PpPlan, program, written), P_IN(PpPlan, program, n_split),
    P_IN(PpPlan, program, n_made), MANY_IN(PpPlan, program, split, n_split, &of_text),
    MANY_IN(PpPlan, program, made, n_made, &of_made)};
static const Fields of_program = FIELDS_IN(PpPlan, program, program);
static const Field uneven[] = {P_IN(PpPlan, uneven, ok), P_IN(PpPlan, uneven, why)};
static const Fields of_uneven = FIELDS_IN(PpPlan, uneven, uneven);
static const Field loss[] = {
    P_IN(PpPlan, loss, stage), P_IN(PpPlan, loss, output), AS_IN(PpPlan, loss, kind, NAMED, losses),
    P_IN(PpPlan, loss, target), P_IN(PpPlan, loss, ignore), P_IN(PpPlan, loss, target_why),
    P_IN(PpPlan, loss, why)};
static const Fields of_loss = FIELDS_IN(PpPlan, loss, loss);
static const Field minibatch[] = {P_IN(PpPlan, minibatch, rows), P_IN(PpPlan, minibatch, why)};
static const Fields of_minibatch = FIELDS_IN(PpPlan, minibatch, minibatch);

/* But for its stages, and the totals, which one of them makes. */
static const Field plan[] = {
    P(PpPlan, model), P(PpPlan, members), P(PpPlan, chunks), IN(PpPlan, program, &of_program),
    P(PpPlan, rows), IN(PpPlan, uneven, &of_uneven), P(PpPlan, n_length),
    IN(PpPlan, length, &of_range), P(PpPlan, n_stage), P(PpPlan, n_input), P(PpPlan, n_output),
    P(PpPlan, n_param), MANY(PpPlan, input, n_input, &of_tensor),
    MANY(PpPlan, output, n_output, &of_tensor), MANY(PpPlan, output_merge, n_output, &of_merge),
    MANY(PpPlan, output_why, n_output, &of_text), IN(PpPlan, loss, &of_loss),
    IN(PpPlan, minibatch, &of_minibatch), P(PpPlan, n_index),
    MANY(PpPlan, index, n_index, &of_rows), AS(PpPlan, device, NAMED, devices)};
const Fields fields_plan = FIELDS(PpPlan, plan);

/* ---- their text ------------------------------------------------------------------------------ */

static size_t bytes_of(const Field *f)
{
    static const size_t size[] = {
        [INT] = sizeof(int), [WIDE] = 8, [HASH] = 8, [TEXT] = sizeof(char *),
        [LETTER] = sizeof(int), [TYPE] = sizeof(int), [NAMED] = sizeof(int),
        [LIST] = sizeof(void *), [TIMED] = sizeof(void *)};
    return f->kind == STRUCT ? f->fields->bytes : size[f->kind];
}

void fields_list(const Fields *x, const char *name, const void *at, int n, FieldSizes how,
                 Text *t)
{
    Text all = {.a = t->a};
    for (int i = 0; i < n; i++) {
        const char *of = (const char *)at + (size_t)i * x->bytes,
                   *row = fields_text(x, arena_printf(all.a, "%s%d", name, i), of, how, t);
        text_add(&all, x->field[0].name ? "    {%s},\n" : "    %s,\n", *row ? row : "0");
    }
    text_add(t, "static const %s %s[] = {\n%s};\n\n", x->type, name, text_all(&all));
}

static const char *number(Arena *a, FieldSizes how, int64_t n)
{
    return how.within ? cg_size_text(a, how.sizes, n)
                      : arena_printf(a, "%" PRId64, cg_size_outside(how.sizes, n));
}

/* An element; "": it is 0. */
static const char *element(const Field *f, const char *name, const char *at, int n, FieldSizes how,
                           Text *before)
{
    Arena *a = before->a;
    const int whole = *(const int *)(const void *)at;
    const void *const *to = (const void *)at;
    int64_t wide;
    switch (f->kind) {
    case INT: return whole ? number(a, how, whole) : "";
    case NAMED: return f->names[whole];
    case LETTER: return whole ? arena_printf(a, "'%c'", whole) : "";
    case TYPE: return whole ? type_runtime((Dtype)whole) : "";
    case TEXT: return *to ? cg_string(a, *to) : "";
    case WIDE:
    case HASH:
        memcpy(&wide, at, sizeof wide);
        return !wide           ? ""
               : f->kind == WIDE ? number(a, how, wide)
                                 : arena_printf(a, "0x%016" PRIx64 "u", (uint64_t)wide);
    case STRUCT:
        name = fields_text(f->fields, name, at, how, before);
        return *name ? arena_printf(a, "{%s}", name) : "";
    case LIST:
    case TIMED:
        if (n && *to && f->fields)
            fields_list(f->fields, name, *to, n, how, before);
        return n && *to ? name : "";
    }
    return "";
}

/* Of an array the elements up to the last one that is not 0; "": there is none. */
static const char *value(const Field *f, const char *name, const char *of, FieldSizes how,
                         Text *before)
{
    const char *x[PP_MAX_RANK];
    const size_t n = f->bytes / bytes_of(f);
    const int count = f->kind == LIST ? *(const int *)(const void *)(of + f->count) : PP_TIMED;
    size_t end = 0;
    Text all = {.a = before->a};
    INSIST(n <= PP_MAX_RANK);
    for (size_t i = 0; i < n; i++) {
        x[i] = element(f, name, of + f->at + i * bytes_of(f), count, how, before);
        end = *x[i] ? i + 1 : end;
    }
    for (size_t i = 0; i < end; i++)
        text_item(&all, "%s", *x[i] ? x[i] : "0");
    return n > 1 && end ? arena_printf(all.a, "{%s}", text_all(&all)) : text_all(&all);
}

const char *fields_text(const Fields *x, const char *name, const void *of, FieldSizes how,
                        Text *before)
{
    enum { LINE = 100 };
    Text all = {.a = before->a};
    size_t line = 0;
    if (!x->field[0].name) {
        const char *only = value(&x->field[0], name, of, how, before);
        return *only ? only : "NULL";
    }
    for (size_t i = 0; i < x->n; i++) {
        const Field *f = &x->field[i];
        const char *is = value(f, arena_printf(all.a, "%s_%s", name, f->name), of, how, before);
        if (!*is)
            continue;
        const bool cut = all.n && all.n - line + strlen(is) > LINE;
        text_add(&all, "%s.%s = %s", !all.n ? "" : cut ? ",\n     " : ", ", f->name, is);
        line = cut ? all.n - strlen(is) : line;
    }
    return text_all(&all);
}
