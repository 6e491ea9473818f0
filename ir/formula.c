/*
 * formula.c - a formula becomes nodes.  In: its text, and what its names stand for.  Out: the
 * nodes, in the order in which they are written.
 *
 *     x, double alpha: up = x > 0; up ? x : alpha * (Exp(up ? 0 : x) - 1)
 *
 * Before the colon: the names, values of the graph, or numbers.  Then parts that get a name, each
 * up to a semicolon, and the result.  Operators and their precedence are C's (% is Mod); what looks
 * like a call is a core operation, by its name.  A number beside a value has its type, and numbers
 * among themselves are computed at once; nothing is multiplied with or divided by 1.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "ir.h"

enum { MOST_NAMES = 16 };

/* A value, or where there is none (NONE) a number. */
typedef struct {
    ValueId v;
    double number;
} Term;

typedef struct {
    const char *name;
    size_t length;
    Term is;
} Known;

typedef struct {
    Graph *g;
    const char *text, *at; /* the whole, what is left of it */
    uint32_t n;
    Known known[MOST_NAMES];
} Reader;

// clang-format off
static const struct Operator { char text[3]; int level; Op op; } operators[] = {
    {"||", 0, OP_Or},          {"&&", 1, OP_And},            {"==", 2, OP_Equal},
    {"<=", 2, OP_LessOrEqual}, {">=", 2, OP_GreaterOrEqual}, {"<",  2, OP_Less},
    {">",  2, OP_Greater},     {"+",  3, OP_Add},            {"-",  3, OP_Sub},
    {"*",  4, OP_Mul},         {"/",  4, OP_Div},            {"%",  4, OP_Mod},
};
// clang-format on
enum { LEVELS = 5 };

static _Noreturn void wrong(const Reader *r) { BUG("formula '%s', at '%s'", r->text, r->at); }

static bool take(Reader *r, const char *text)
{
    r->at += strspn(r->at, " ");
    bool is = !strncmp(r->at, text, strlen(text));
    r->at += is ? strlen(text) : 0;
    return is;
}

static void need(Reader *r, const char *text)
{
    if (!take(r, text))
        wrong(r);
}

/* The name that comes next; length 0: none does. */
static const char *word(Reader *r, size_t *length)
{
    const char *from = r->at += strspn(r->at, " ");
    while (isalpha((unsigned char)*from) && (isalnum((unsigned char)*r->at) || *r->at == '_'))
        r->at++;
    *length = (size_t)(r->at - from);
    return from;
}

static void know(Reader *r, const char *name, size_t length, Term is)
{
    INSIST(r->n < MOST_NAMES);
    r->known[r->n++] = (Known){name, length, is};
}

/* The term as a value, a number in the type of `like'. */
static ValueId value(const Reader *r, Term x, Term like)
{
    if (x.v == NONE && like.v == NONE)
        wrong(r);
    return x.v == NONE ? g_like(r->g, like.v, x.number) : x.v;
}

static Term computed(const Reader *r, Op op, double x, double y)
{
    switch (op) {
    case OP_Add: return (Term){NONE, x + y};
    case OP_Sub: return (Term){NONE, x - y};
    case OP_Mul: return (Term){NONE, x * y};
    case OP_Div: return (Term){NONE, x / y};
    default: wrong(r);
    }
}

static Term combined(const Reader *r, Op op, Term x, Term y)
{
    if (x.v == NONE && y.v == NONE)
        return computed(r, op, x.number, y.number);
    if (op == OP_Mul && x.v == NONE)
        return combined(r, op, y, x);
    if (y.v == NONE && y.number == 1 && (op == OP_Mul || op == OP_Div))
        return x;
    if (x.v == NONE && x.number == 1 && op == OP_Div)
        return (Term){.v = g_unary(r->g, OP_Reciprocal, y.v)};
    return (Term){.v = g_binary(r->g, op, value(r, x, y), value(r, y, x))};
}

static Term choice(Reader *r);

/* Behind "(". */
static Term call(Reader *r, const char *name, size_t length)
{
    enum { MOST = 2 };
    const Op op = op_find(arena_strndup(r->g->arena, name, length));
    Term x[MOST];
    ValueId in[MOST];
    uint32_t n = 0;
    do
        x[n++] = choice(r);
    while (n < MOST && take(r, ","));
    need(r, ")");
    for (uint32_t i = 0; i < n; i++)
        in[i] = value(r, x[i], x[n - 1 - i]);
    return (Term){.v = graph_node(r->g, op, n, in, (Attr){0})};
}

static Term operand(Reader *r)
{
    size_t length;
    char *end;
    if (take(r, "-")) {
        Term x = operand(r);
        return x.v == NONE ? (Term){NONE, -x.number} : (Term){.v = g_neg(r->g, x.v)};
    }
    if (take(r, "!"))
        return (Term){.v = g_unary(r->g, OP_Not, operand(r).v)};
    if (take(r, "(")) {
        Term x = choice(r);
        need(r, ")");
        return x;
    }
    const char *name = word(r, &length);
    if (length && take(r, "("))
        return call(r, name, length);
    for (uint32_t i = r->n; length && i-- > 0;)
        if (r->known[i].length == length && !strncmp(r->known[i].name, name, length))
            return r->known[i].is;
    Term number = {NONE, strtod(name, &end)}; /* inf and nan among them */
    if (end == name)
        wrong(r);
    r->at = end;
    return number;
}

static const struct Operator *operator_at(Reader *r, int level)
{
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (take(r, operators[i].text)) {
            if (operators[i].level == level)
                return &operators[i];
            r->at -= strlen(operators[i].text);
            return NULL;
        }
    return NULL;
}

static Term chain(Reader *r, int level)
{
    if (level == LEVELS)
        return operand(r);
    Term x = chain(r, level + 1);
    for (const struct Operator *o; (o = operator_at(r, level));)
        x = combined(r, o->op, x, chain(r, level + 1));
    return x;
}

static Term choice(Reader *r)
{
    Term condition = chain(r, 0);
    if (!take(r, "?"))
        return condition;
    Term x = choice(r);
    need(r, ":");
    Term y = choice(r);
    return (Term){.v = g_where(r->g, condition.v, value(r, x, y), value(r, y, x))};
}

ValueId g_formula(Graph *g, const char *text, ...)
{
    Reader r = {.g = g, .text = text, .at = text};
    size_t length;
    va_list ap;
    va_start(ap, text);
    do {
        bool number = take(&r, "double ");
        const char *name = word(&r, &length);
        know(&r, name, length,
             number ? (Term){NONE, va_arg(ap, double)} : (Term){.v = va_arg(ap, ValueId)});
    } while (take(&r, ","));
    va_end(ap);
    need(&r, ":");
    for (;;) {
        const char *from = r.at, *name = word(&r, &length);
        bool part = length && take(&r, "=") && *r.at != '=';
        if (!part) {
            r.at = from;
            break;
        }
        know(&r, name, length, choice(&r));
        need(&r, ";");
    }
    Term y = choice(&r);
    if (y.v == NONE || *r.at)
        wrong(&r);
    return y.v;
}
