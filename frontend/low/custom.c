/*
 * custom.c - in: a table of operations of the user's own (--ops); out: a CustomOp for each.
 *
 *     # one row: until the next `op'
 *     op = example.fused Rotary              # the node's domain and name
 *     inputs = x, cos, sin
 *     outputs = y
 *     shape y = [x.0, x.1, 64]               # without this line: the first input's
 *     rows = x, y                            # dimension 0 holds samples, each computed by itself
 *     numbers = scale                        # attributes of the node that the functions are given
 *     forward = rotary                       # C: void rotary(const PpCustom *); CUDA: rotary_cuda
 *     gradient = rotary_gradient(x)          # the gradients of these inputs
 *     sources = rotary.c, rotary.cu          # beside the table
 *
 * The table is the user's, as the functions are; what the model says only chooses a row.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/frontend.h"

enum { MOST_WORDS = 32 };

typedef struct {
    const char *path;
    uint32_t line;
    Arena *a;
    CustomOps *ops;
    CustomOp *row;                                      /* NULL: before the first `op' */
    Strings output, asked; /* names: of results, in the gradient */
    const char *gradient;
} Reader;

PRINTF_LIKE(2, 3) NORETURN static void wrong(const Reader *r, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    diag_fatal(EXIT_USAGE, WHERE_FILE(r->path), "line %u: %s", r->line, diag_escape(r->a, text));
}

/* ---- words ---- */

static const char *word(const Reader *r, const char *text, size_t n)
{
    while (n > 0 && isspace((unsigned char)*text))
        text++, n--;
    while (n > 0 && isspace((unsigned char)text[n - 1]))
        n--;
    return arena_strndup(r->a, text, n);
}

/* Words between commas. */
static Strings words(const Reader *r, const char *text)
{
    Strings list = {0};
    for (const char *at = text; *at;) {
        size_t length = strcspn(at, ",");
        if (list.n == MOST_WORDS)
            wrong(r, "more than 32 names");
        vec_push(r->a, &list, word(r, at, length));
        if (!*list.at[list.n - 1])
            wrong(r, "a name is missing between commas");
        at += length + (at[length] == ',');
    }
    return list;
}

static const char *identifier(const Reader *r, const char *text)
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    if (!n || text[n] || isdigit((unsigned char)*text))
        wrong(r, "'%s' is not the name of a C function", text);
    return text;
}

static uint32_t find(const Strings *names, const char *name)
{
    for (uint32_t i = 0; i < names->n; i++)
        if (!strcmp(names->at[i], name))
            return i;
    return NONE;
}

static uint32_t input(const Reader *r, const char *name)
{
    uint32_t i = find(&r->row->input, name);
    if (i == NONE)
        wrong(r, "'%s' is not one of its inputs", name);
    return i;
}

/* ---- values ---- */

static void read_inputs(Reader *r, const char *text)
{
    r->row->input = words(r, text);
    r->row->of.nin = r->row->input.n;
}

static void read_outputs(Reader *r, const char *text)
{
    CustomAttr *c = &r->row->of;
    r->output = words(r, text);
    c->nout = r->output.n;
    if (c->nout > MAX_RANK)
        wrong(r, "more outputs than 8");
    CustomShape *s = arena_array(r->a, CustomShape, c->nout + 1);
    for (uint32_t o = 0; o < c->nout; o++)
        s[o] = (CustomShape){.rank = -1};
    c->shape = s;
}

/* `x', as it is, or `[x.0, 64]': sizes of inputs, numbers. */
static void read_shape(Reader *r, const char *of, const char *text)
{
    const CustomAttr *c = &r->row->of;
    uint32_t o = find(&r->output, of);
    if (o == NONE)
        wrong(r, "'%s' is not one of its outputs", of);
    CustomShape *s = (CustomShape *)(uintptr_t)&c->shape[o];
    size_t length = strlen(text);
    if (*text != '[') {
        s->like = input(r, text);
        return;
    }
    if (text[length - 1] != ']')
        wrong(r, "a shape must be an input or a list [sizes]");
    const Strings sizes = words(r, word(r, text + 1, length - 2));
    if (sizes.n > MAX_RANK)
        wrong(r, "more dimensions than 8");
    s->rank = (int)sizes.n;
    for (uint32_t d = 0; d < sizes.n; d++) {
        const char *size = sizes.at[d], *dot = strchr(size, '.');
        char *end;
        long long v = strtoll(dot ? dot + 1 : size, &end, 10);
        s->size[d].operand = dot ? (int)input(r, word(r, size, (size_t)(dot - size))) : -1;
        s->size[d].dim = v;
        if (*end || end == size || v < (dot ? 0 : 1) || v > INT32_MAX || (dot && v >= MAX_RANK))
            wrong(r, "'%s' is not a size: give INPUT.DIMENSION or a number", size);
    }
}

static void read_rows(Reader *r, const char *text)
{
    CustomAttr *c = &r->row->of;
    bool *rows = arena_array(r->a, bool, c->nin + c->nout + 1);
    const Strings names = words(r, text);
    for (uint32_t i = 0; i < names.n; i++) {
        uint32_t o = find(&r->output, names.at[i]);
        rows[o == NONE ? input(r, names.at[i]) : c->nin + o] = true;
    }
    for (uint32_t o = 0; o < c->nout; o++)
        if (!rows[c->nin + o])
            wrong(r, "if an input holds samples, all outputs must hold samples");
    c->rows = rows;
}

/* NAME(INPUT, ...) */
static void read_gradient(Reader *r, const char *text)
{
    const char *open = strchr(text, '(');
    size_t length = strlen(text);
    if (!open || text[length - 1] != ')')
        wrong(r, "expected FUNCTION(INPUT, ...), with the inputs whose gradients it computes");
    r->gradient = identifier(r, word(r, text, (size_t)(open - text)));
    r->asked = words(r, word(r, open + 1, length - (size_t)(open - text) - 2));
    if (r->asked.n == 0 || r->asked.n > MAX_RANK)
        wrong(r, "a gradient needs one to eight inputs");
    for (uint32_t i = 0; i < r->asked.n; i++)
        input(r, r->asked.at[i]);
}

static void read_sources(Reader *r, const char *text)
{
    const char *slash = strrchr(r->path, '/');
    const Strings names = words(r, text);
    for (uint32_t i = 0; i < names.n; i++) {
        const char *name = names.at[i], *dot = strrchr(name, '.');
        size_t safe =
            strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.");
        if (name[safe] || !dot || (strcmp(dot, ".c") && strcmp(dot, ".cu")))
            wrong(r, "'%s' is not a .c or .cu file beside the table", name);
        const char *path = arena_printf(r->a, "%.*s%s", slash ? (int)(slash + 1 - r->path) : 0,
                                        r->path, name);
        if (access(path, R_OK))
            wrong(r, "there is no file '%s'", path);
        vec_push(r->a, &r->row->source, path);
    }
}

/* ---- rows ---- */

/* Its operands: those of the operation, its results, and their gradients. */
static const CustomAttr *gradient_of(const Reader *r)
{
    const CustomAttr *c = &r->row->of;
    CustomAttr *g = arena_new_of(r->a, CustomAttr);
    const uint32_t asked = r->asked.n;
    CustomShape *shape = arena_array(r->a, CustomShape, asked);
    uint32_t *of = arena_array(r->a, uint32_t, asked);
    bool *rows = arena_array(r->a, bool, c->nin + 2 * c->nout + asked);
    *g = (CustomAttr){.domain = c->domain,
                      .function = r->gradient,
                      .nin = c->nin + 2 * c->nout,
                      .nout = asked,
                      .shape = shape,
                      .rows = rows,
                      .of = of};
    for (uint32_t i = 0; i < c->nin + c->nout; i++) {
        rows[i] = c->rows[i];
        if (i >= c->nin)
            rows[i + c->nout] = c->rows[i];
    }
    for (uint32_t k = 0; k < asked; k++) {
        of[k] = input(r, r->asked.at[k]);
        shape[k] = (CustomShape){.like = of[k], .rank = -1};
        rows[g->nin + k] = c->rows[of[k]];
    }
    return g;
}

static void end_row(Reader *r)
{
    CustomOp *row = r->row;
    if (!row)
        return;
    CustomAttr *c = &row->of;
    if (!c->nin || !c->nout || !c->function || !row->source.n)
        wrong(r, "the row before this line needs `inputs', `outputs', `forward' and `sources'");
    if (!c->rows)
        c->rows = arena_array(r->a, bool, c->nin + c->nout + 1);
    if (r->gradient)
        c->gradient = gradient_of(r);
    vec_push(r->a, &r->ops->op, row);
}

static void begin_row(Reader *r, const char *text)
{
    const char *space = strchr(text, ' ');
    if (!space)
        wrong(r, "expected DOMAIN NAME, as in the model's node");
    end_row(r);
    r->row = arena_new_of(r->a, CustomOp);
    r->row->path = r->path;
    r->row->of.domain = word(r, text, (size_t)(space - text));
    r->row->of.name = word(r, space, strlen(space));
    r->gradient = NULL;
    for (uint32_t i = 0; i < r->ops->op.n; i++)
        if (!strcmp(r->ops->op.at[i]->of.domain, r->row->of.domain) &&
            !strcmp(r->ops->op.at[i]->of.name, r->row->of.name))
            wrong(r, "it already has a row");
}

static void read_numbers(Reader *r, const char *text)
{
    const Strings names = words(r, text);
    r->row->of.n_number = names.n;
    r->row->of.number_name = names.at;
}

static void read_forward(Reader *r, const char *text) { r->row->of.function = identifier(r, text); }

static void read_line(Reader *r, const char *line, size_t n)
{
    static const struct {
        const char *name;
        void (*read)(Reader *r, const char *text);
    } key[] = {{"inputs", read_inputs},   {"outputs", read_outputs}, {"rows", read_rows},
               {"numbers", read_numbers}, {"forward", read_forward}, {"gradient", read_gradient},
               {"sources", read_sources}};
    const char *one = word(r, line, n), *eq = strchr(one, '=');
    if (!*one)
        return;
    if (!eq)
        wrong(r, "expected NAME = VALUE, not '%s'", one);
    const char *name = word(r, one, (size_t)(eq - one)), *text = word(r, eq + 1, strlen(eq + 1));
    if (!*text)
        wrong(r, "a value is missing");
    if (!strcmp(name, "op")) {
        begin_row(r, text);
        return;
    }
    if (!r->row)
        wrong(r, "a row must begin with `op = DOMAIN NAME'");
    if (!strncmp(name, "shape ", 6)) {
        read_shape(r, word(r, name + 6, strlen(name + 6)), text);
        return;
    }
    for (size_t k = 0; k < sizeof key / sizeof *key; k++)
        if (!strcmp(name, key[k].name)) {
            key[k].read(r, text);
            return;
        }
    wrong(r, "a row cannot have '%s'", name);
}

void custom_read(CustomOps *ops, const char *path, Arena *a)
{
    const FileMap *f = arena_file(a, path);
    Reader r = {.path = path, .a = a, .ops = ops};
    for (const char *at = f->at, *end = at + f->bytes; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at)), *remark;
        stop = stop ? stop : end;
        remark = memchr(at, '#', (size_t)(stop - at));
        r.line++;
        read_line(&r, at, (size_t)((remark ? remark : stop) - at));
        at = stop < end ? stop + 1 : end;
    }
    end_row(&r);
}
