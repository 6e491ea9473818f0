/*
 * bind.c - --bind NAME=N and --bind INPUT=VALUE.  In: the option, and what a file calls the
 * dimensions of its inputs.  Out: their sizes; constants that stand for inputs of one element.
 *
 * A name is one dimension wherever it stands.  What exporters write for a dimension that they know
 * nothing of ("?", "-1", "None", nothing at all) is no name: each is a dimension of its own, called
 * INPUT.DIM.
 */
#include "driver.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool bind_option(const char *option, const char *name, const char **text)
{
    const char *equals = strrchr(option, '=');
    if (!equals || (size_t)(equals - option) != strlen(name) || strncmp(option, name, strlen(name)))
        return false;
    *text = equals + 1;
    return true;
}

/* The option that names it, which is used from then on, or NULL. */
static const char *find_option(const ImportState *s, const char *name, const char **text)
{
    for (uint32_t i = 0; i < s->opt->bind.n; i++)
        if (bind_option(s->opt->bind.at[i], name, text)) {
            *strmap_at(&s->binds->used, s->opt->bind.at[i]) = 1;
            return s->opt->bind.at[i];
        }
    return NULL;
}

/* ---- names of dimensions ---- */

/* Without a letter it is no name, and neither are these words. */
static bool is_placeholder(const char *name)
{
    static const char *const words[] = {"none", "null", "unknown", "undefined"};
    bool letter = false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcasecmp(name, words[i]))
            return true;
    for (const char *p = name; *p; p++)
        letter |= isalpha((unsigned char)*p) || (unsigned char)*p >= 0x80;
    return !letter;
}

/* "16*OTHER": the other's name, NULL: it is none. */
static const char *multiple_said(const char *text, long long *times)
{
    char *end;
    *times = strtoll(text, &end, 10);
    return end != text && *end == '*' && *times > 0 && *times <= INT32_MAX ? end + 1 : NULL;
}

/* "8*batch", as torch.export writes a derived dimension. */
static bool is_multiple(const char *text, DimName *d)
{
    long long times;
    const char *other = multiple_said(text, &times), *p = other;
    while (p && (isalnum((unsigned char)*p) || *p == '_' || (unsigned char)*p >= 0x80))
        p++;
    if (!p || *p || is_placeholder(other))
        return false;
    *d = (DimName){other, times};
    return true;
}

DimName bind_name(const ImportState *s, const Onnx__TensorShapeProto__Dimension *d,
                  const char *input, int i)
{
    Arena *a = s->g->arena;
    const char *said;
    DimName name;
    if (d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && d->dim_value >= 0)
        return (DimName){NULL, 1};
    if (d->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM ||
        is_placeholder(d->dim_param))
        return (DimName){arena_printf(a, "%s.%d", input, i), 1};
    if (!find_option(s, d->dim_param, &said) && is_multiple(d->dim_param, &name))
        return name;
    return (DimName){d->dim_param, 1};
}

/* least: the smallest value that it may have */
static int64_t number(const ImportState *s, const char *name, int64_t least)
{
    const char *text, *option = find_option(s, name, &text), *other, *value;
    char *end;
    long long n;
    if (!option)
        return -1;
    other = multiple_said(text, &n);
    if (other) {
        if (!find_option(s, other, &value) || multiple_said(value, &n))
            diag_fatal(EXIT_USAGE, WHERE_NONE, "--bind %s: --bind %s=N gives '%s' a number", option,
                       other, other);
        (void)multiple_said(text, &n);
        int64_t size = number(s, other, 1);
        if (size > INT32_MAX / n)
            diag_fatal(EXIT_USAGE, WHERE_NONE, "--bind %s: it is more than 2147483647", option);
        return n * size;
    }
    n = strtoll(text, &end, 10);
    if (*end || end == text || n < least || n > INT32_MAX) {
        diag_hint("beside a number: LEAST..MOST and N@LEAST..MOST, of a length that varies, and "
                  "K*NAME, a multiple of a dimension that is bound");
        diag_fatal(EXIT_USAGE, WHERE_NONE,
                   "--bind %s: the value must be a number from %lld to 2147483647", option,
                   (long long)least);
    }
    return n;
}

void bind_add(Symbols *s, Arena *a, const char *name)
{
    if (*strmap_at(&s->seen, name) != NONE)
        return;
    *strmap_at(&s->seen, name) = 1;
    vec_push(a, &s->name, name);
}

/* ---- formulas, as exporters write them: "past + seq", "2*s0", "(s0 + 1)//2" ---- */

/* Does a dimension of an input have this name, and no more? */
static bool stands_alone(const Model *m, const char *name)
{
    for (size_t i = 0; i < m->graph->n_input; i++) {
        const Onnx__TensorShapeProto *s = raw_shape(m->graph->input[i]);
        for (size_t k = 0; s && k < s->n_dim; k++) {
            const Onnx__TensorShapeProto__Dimension *d = s->dim[k];
            if (d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM &&
                !strcmp(d->dim_param, name))
                return true;
        }
    }
    return false;
}

/* foreign: a symbol that is no dimension; unknown: one that is not bound; wrong: too large, or
 * divided by 0 */
typedef struct {
    const ImportState *s;
    const char *at;
    Symbols symbol;
    bool bad, foreign, unknown, wrong;
    uint32_t operators, depth;
} Formula;

static int64_t terms(Formula *f, bool factors);

static bool take(Formula *f, const char *text)
{
    f->at += strspn(f->at, " ");
    bool is = !strncmp(f->at, text, strlen(text));
    f->at += is ? strlen(text) : 0;
    return is;
}

static int64_t in_brackets(Formula *f)
{
    int64_t x = terms(f, false);
    f->bad |= !take(f, ")");
    return x;
}

/* Whole numbers; a division is rounded down. */
static int64_t apply(Formula *f, char op, int64_t x, int64_t y)
{
    f->operators++;
    if (op == '/' || op == '%') {
        f->wrong |= y <= 0;
        int64_t down = y <= 0 ? 0 : x / y - (x % y < 0);
        return op == '/' ? down : x - down * y;
    }
    f->wrong |= op == '*'   ? __builtin_mul_overflow(x, y, &x)
                : op == '+' ? __builtin_add_overflow(x, y, &x)
                            : __builtin_sub_overflow(x, y, &x);
    return x;
}

/* Behind "NAME(": Max, Min, floor. */
static int64_t call(Formula *f, const char *name)
{
    bool most = !strcasecmp(name, "max"), least = !strcasecmp(name, "min");
    int64_t x = terms(f, false);
    f->bad |= !most && !least && strcasecmp(name, "floor") != 0;
    while (!f->bad && (most || least) && take(f, ",")) {
        int64_t y = terms(f, false);
        x = (most ? x > y : x < y) ? x : y;
    }
    f->operators++;
    f->bad |= !take(f, ")");
    return x;
}

static int64_t operand(Formula *f)
{
    enum { DEEPEST = 64 };
    f->bad |= f->depth == DEEPEST;
    if (f->bad)
        return 1;
    if (take(f, "("))
        return in_brackets(f);
    if (isdigit((unsigned char)*f->at)) {
        char *end;
        long long n = strtoll(f->at, &end, 10);
        f->at = end;
        f->bad |= n > INT32_MAX;
        return n;
    }
    size_t length = strcspn(f->at, " +-*/%(),^");
    const char *name = arena_strndup(f->s->g->arena, f->at, length);
    f->at += length;
    f->bad |= length == 0;
    if (take(f, "("))
        return call(f, name);
    int64_t n = f->bad ? 1 : number(f->s, name, 1);
    bind_add(&f->symbol, f->s->g->arena, name);
    f->unknown |= n < 0;
    f->foreign |= n < 0 && !stands_alone(f->s->m, name);
    return n < 0 ? 1 : n;
}

/* A sum of products, or a product of factors. */
static int64_t terms(Formula *f, bool factors)
{
    f->depth++;
    bool minus = !factors && take(f, "-");
    int64_t x = factors ? operand(f) : terms(f, true);
    x = minus ? -x : x;
    while (!f->bad) {
        f->at += strspn(f->at, " ");
        char op = *f->at;
        if (!op || !strchr(factors ? "*/%" : "+-", op))
            break;
        f->at += op == '/' && f->at[1] == '/' ? 2 : 1;
        x = apply(f, op, x, factors ? operand(f) : terms(f, true));
    }
    f->depth--;
    return x;
}

/* "past + seq", where past and seq are dimensions of their own or are bound: "batch-size" may be a
 * name.  A --bind of the whole is meant before. */
static bool is_formula(Formula *f, DimName d, int64_t *value)
{
    const char *said;
    f->symbol.seen.arena = f->s->g->arena;
    f->at = d.name;
    if (find_option(f->s, d.name, &said))
        return false;
    *value = terms(f, false);
    f->at += strspn(f->at, " ");
    return !*f->at && !f->bad && !f->foreign && f->operators && f->symbol.name.n &&
           (f->unknown || !f->wrong);
}

int64_t bind_size(const ImportState *s, DimName d)
{
    Formula f = {.s = s};
    int64_t n = number(s, d.name, 1), value;
    if (n < 0 && is_formula(&f, d, &value) && !f.unknown) {
        if (value < 1 || value > INT32_MAX)
            diag_fatal(EXIT_USAGE, WHERE_FILE(s->m->path), "dimension '%s' is %lld",
                       diag_escape(s->g->arena, d.name), (long long)value);
        n = value;
    }
    return n < 0 ? -1 : n * d.times;
}

void bind_add_names(const ImportState *s, Symbols *to, DimName d, bool unbound)
{
    Formula f = {.s = s};
    int64_t value;
    bool formula = is_formula(&f, d, &value);
    if (!formula || !unbound)
        bind_add(to, s->g->arena, d.name);
    for (uint32_t i = 0; formula && i < f.symbol.name.n; i++)
        if (!unbound || number(s, f.symbol.name.at[i], 1) < 0)
            bind_add(to, s->g->arena, f.symbol.name.at[i]);
}

int64_t bind_count(const ImportState *s, const char *name) { return number(s, name, 0); }

/* ---- values of inputs ---- */

/* Between which whole numbers one of a type is; 64 bits: all that are read. */
static bool fits(Dtype t, long long n)
{
    int bits = dtype_bits(t);
    long long most = bits >= 64 ? INT64_MAX : (1LL << (dtype_is_signed(t) ? bits - 1 : bits)) - 1;
    return t == DT_BOOL ? n == 0 || n == 1 : n <= most && n >= (dtype_is_signed(t) ? -most - 1 : 0);
}

static bool read_value(Dtype declared, const char *text, Tensor *to)
{
    char *end;
    errno = 0;
    if (dtype_is_float(to->dtype)) {
        double x = strtod(text, &end);
        element_set_double(to->dtype, to->data, 0, x);
        return end != text && !*end;
    }
    if (declared == DT_BOOL && (!strcasecmp(text, "true") || !strcasecmp(text, "false")))
        text = tolower((unsigned char)*text) == 't' ? "1" : "0";
    long long n = strtoll(text, &end, 10);
    element_set_int(to->dtype, to->data, 0, n);
    return end != text && !*end && !errno && fits(declared, n);
}

ValueId bind_value(ImportState *s, const char *name, Dtype declared, const Shape *shape, Where w)
{
    Graph *g = s->g;
    const char *text, *option = find_option(s, name, &text);
    bool one = shape_elements(shape) == 1,
         dimension = strmap_get(&s->binds->dimension.seen, name) != NONE;
    if (option && one && dimension)
        diag_warn(
            w, "--bind %s sets the dimension of that name; the input of that name remains an input",
            option);
    if (!option || dimension) {
        if (one)
            bind_add(&s->binds->value, g->arena, name);
        return NONE;
    }
    const char *type = shape_print(g->arena, declared, shape);
    if (!one) {
        diag_hint("other inputs are given to the run: --data %s=FILE.npy", name);
        diag_fatal(
            EXIT_USAGE, w,
            "--bind %s: the input is %s, but only an input of one element can be given a value",
            option, type);
    }
    Tensor t = {.dtype = dtype_held(declared), .shape = *shape};
    t.data = arena_alloc(g->arena, dtype_size(t.dtype));
    if (!read_value(declared, text, &t))
        diag_fatal(EXIT_USAGE, w, "--bind %s: '%s' is not a value of type %s", option, text, type);
    bind_add(&s->binds->value, g->arena, name);
    vec_push(g->arena, &g->files.bound,
             arena_printf(g->arena, "%s %s = %s", diag_escape(g->arena, name), type,
                          diag_escape(g->arena, text)));
    return graph_const(g, strmap_get(&g->by_name, name) == NONE ? name : NULL, t);
}

/* ---- what is said ---- */

/* Of a --bind of a word that names no dimension. */
static void hint_placeholder(const ImportOptions *opt)
{
    for (uint32_t i = 0; i < opt->bind.n; i++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(opt->bind.at[i], "="), opt->bind.at[i]);
        if (!is_placeholder(name))
            continue;
        diag_note("'%s' is not a name; a dimension without a name is called INPUT.DIM", name);
        return;
    }
}

void bind_refuse_unbound(const ImportState *s, const Symbols *unbound)
{
    Arena *a = s->g->arena;
    const char *list = "", *hint = "";
    if (unbound->name.n == 0)
        return;
    for (uint32_t i = 0; i < unbound->name.n && i < 32; i++) {
        const char *name = unbound->name.at[i],
                   *quote = strpbrk(name, " *?[]()&;|<>$`\"\\~#") ? "'" : "";
        list = arena_printf(a, "%s%s'%s'", list, i ? ", " : "", name);
        hint = arena_printf(a, "%s --bind %s%s=N%s", hint, quote, name, quote);
    }
    hint_placeholder(s->opt);
    diag_hint("shapes are those of one microbatch: add%s", hint);
    diag_fatal(EXIT_MODEL, WHERE_FILE(s->m->path), "dimensions without a value: %s", list);
}

/* Of two options for one name neither is meant more than the other. */
static void refuse_twice(const ImportOptions *opt, uint32_t i)
{
    const char *option = opt->bind.at[i], *equals = strrchr(option, '=');
    const size_t name = equals ? (size_t)(equals - option) + 1 : 0;
    for (uint32_t j = 0; j < i && equals; j++)
        if (strncmp(opt->bind.at[j], option, name) == 0 && !strchr(opt->bind.at[j] + name, '='))
            diag_fatal(EXIT_USAGE, WHERE_NONE, "--bind %.*s is given twice: %s and %s",
                       (int)name - 1, option, opt->bind.at[j] + name, option + name);
}

void bind_check(const ImportState *s)
{
    const ImportOptions *opt = s->opt;
    const Binds *all = s->binds;
    for (uint32_t i = 0; i < opt->bind.n; i++) {
        refuse_twice(opt, i);
        if (strmap_get(&all->used, opt->bind.at[i]) != NONE)
            continue;
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(opt->bind.at[i], "="), opt->bind.at[i]);
        const char *near = nearest_name(name, all->dimension.name.at, all->dimension.name.n);
        if (!near)
            near = nearest_name(name, all->value.name.at, all->value.name.n);
        if (near)
            diag_hint("did you mean '%s'?", near);
        else if (all->dimension.name.n == 0)
            diag_hint(
                "all dimensions of the model have a size; --rows N sets the rows of a microbatch");
        hint_placeholder(opt);
        for (uint32_t j = 0; j < all->dimension.name.n && j < 8 && !near; j++)
            diag_note("it has '%s'", all->dimension.name.at[j]);
        for (uint32_t j = 0; j < all->value.name.n && j < 8 && !near; j++)
            diag_note("its input '%s' can be given a value", all->value.name.at[j]);
        diag_fatal(EXIT_USAGE, WHERE_NONE, "--bind %s: the model has no such dimension%s", name,
                   all->value.name.n ? ", nor an input of one element" : "");
    }
}
