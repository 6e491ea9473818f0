/*
 * formula.c - what a nest computes, for a reader.  In: its statements.  Out: a line for each
 * result, and before it one for each value that deserves a name: reductions, what is known to be a
 * mean or a deviation, and what several lines read.
 */
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "print.h"

typedef struct { const char *text; PrintBinds binds; } Expr;

typedef struct {
    Arena *a;
    const Nest *n;
    const char *const *arg, **role;
    /* by statement: what it is called once it has had its line; NULL: written out */
    const char **name;
    uint32_t *uses;
    uint32_t letters;
} Formula;

static Expr expression(Formula *f, uint32_t i);

static const char *within(Formula *f, uint32_t i, PrintBinds least)
{
    Expr e = expression(f, i);
    return e.binds >= least ? e.text : arena_printf(f->a, "(%s)", e.text);
}

/* "0.5", "3"; "1/768" of what is the inverse of a whole number */
static Expr number(Formula *f, const Stmt *s)
{
    enum { FEWEST = 8, MOST = 1 << 24 };
    if (!dtype_is_float(s->type))
        return (Expr){cg_size(f->a, f->n->sized, s->ki), s->ki < 0 ? BINDS_SUM : BINDS_ATOM};
    const char *decimal = arena_printf(f->a, "%.6g", s->k);
    double whole = s->k != 0 ? nearbyint(1 / fabs(s->k)) : 0;
    if (f->n->sized && fabs(s->k) < MOST && s->k == nearbyint(s->k))
        decimal = cg_size(f->a, f->n->sized, (int64_t)s->k);
    if (whole >= FEWEST && whole <= MOST && (float)(1 / whole) == fabsf((float)s->k) &&
        (cg_varies(f->n->sized, (int64_t)whole) || strlen(decimal) > 5))
        return (Expr){arena_printf(f->a, "%s1/%s", s->k < 0 ? "-" : "",
                                   cg_size(f->a, f->n->sized, (int64_t)whole)),
                      s->k < 0 ? BINDS_SUM : BINDS_PRODUCT};
    return (Expr){decimal, s->k < 0 ? BINDS_SUM : BINDS_ATOM};
}

static Expr binary(Formula *f, const Stmt *s, const PrintSign *sign)
{
    const char *x = within(f, s->in[0], sign->binds), *y = within(f, s->in[1], sign->binds + 1);
    return (Expr){arena_printf(f->a, "%s %s %s", x, sign->text, y), sign->binds};
}

static Expr function(Formula *f, const Stmt *s)
{
    char *name = arena_strdup(f->a, op_name(s->op));
    const char *args = "";
    for (char *p = name; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    for (uint32_t i = 0; i < s->nin; i++)
        args = arena_printf(f->a, "%s%s%s", args, i ? ", " : "", expression(f, s->in[i]).text);
    return (Expr){arena_printf(f->a, "%s(%s)", name, args), BINDS_ATOM};
}

static Expr operation(Formula *f, const Stmt *s)
{
    PrintSign sign;
    if (s->op == OP_Mul && s->in[0] == s->in[1])
        return (Expr){arena_printf(f->a, "%s^2", within(f, s->in[0], BINDS_ATOM)), BINDS_UNARY};
    if (print_sign(s->op, &sign) && sign.binds >= BINDS_LOGIC)
        return binary(f, s, &sign);
    switch (s->op) {
    case OP_Neg:
        return (Expr){arena_printf(f->a, "-%s", within(f, s->in[0], BINDS_UNARY)), BINDS_UNARY};
    case OP_Reciprocal:
        return (Expr){arena_printf(f->a, "1 / %s", within(f, s->in[0], BINDS_UNARY)),
                      BINDS_PRODUCT};
    case OP_Cast: return expression(f, s->in[0]);
    case OP_Where: {
        const char *x = within(f, s->in[0], BINDS_COMPARE), *y = within(f, s->in[1], BINDS_COMPARE),
                   *z = within(f, s->in[2], BINDS_CHOICE);
        return (Expr){arena_printf(f->a, "%s ? %s : %s", x, y, z), BINDS_CHOICE};
    }
    default: return function(f, s);
    }
}

/* What an element of an argument is called that is one for a row, "rstd" of rstds; NULL: nothing,
 * or the nest has another value of that name. */
static const char *scalar_of(const Formula *f, const Stmt *s)
{
    const bool row = s->row && f->n->kind != NEST_COLUMN;
    const char *one = row ? role_one(f->a, f->arg[s->arg]) : NULL;
    for (uint32_t i = 0; one && i < f->n->stmt.n; i++)
        if (f->role[i] && strcmp(f->role[i], one) == 0)
            return NULL;
    return one;
}

static Expr load(Formula *f, const Stmt *s)
{
    const char *x = scalar_of(f, s), *at = "";
    x = x ? x : f->arg[s->arg];
    for (uint32_t i = 0; i < s->nindex; i++)
        at = arena_printf(f->a, "%s%s%s", at, i ? ", " : "", expression(f, s->index[i].in).text);
    if (s->nindex)
        x = arena_printf(f->a, "%s[%s]", x, at);
    return (Expr){s->nguard ? arena_printf(f->a, "pad(%s)", x) : x, BINDS_ATOM};
}

static Expr expression(Formula *f, uint32_t i)
{
    const Stmt *s = &f->n->stmt.at[i];
    if (f->name[i])
        return (Expr){f->name[i], BINDS_ATOM};
    switch (s->kind) {
    case S_CONST: return number(f, s);
    case S_LIN: return (Expr){lin_text(f->a, f->n->sized, s->base), BINDS_SUM};
    case S_INDEX: return (Expr){"index", BINDS_ATOM};
    case S_LOAD: return load(f, s);
    case S_OP: return operation(f, s);
    case S_REDUCE:
        return (Expr){
            arena_printf(f->a, "%s(%s)", print_fold_name(s->op), expression(f, s->in[0]).text),
            BINDS_ATOM};
    default: BUG("a formula of a statement of kind %d", (int)s->kind);
    }
}

static bool is_mean(const Nest *n, uint32_t i)
{
    const char *role = role_of(n, i);
    return role && (strcmp(role, "mean") == 0 || strcmp(role, "var") == 0);
}

/* The value as a line of its own, after which it has a name. */
static void define(Formula *f, uint32_t i, const char *name, Text *t)
{
    const Stmt *s = &f->n->stmt.at[i];
    const char *text =
        is_mean(f->n, i)
            ? arena_printf(f->a, "mean(%s)", expression(f, f->n->stmt.at[s->in[0]].in[0]).text)
            : expression(f, i).text;
    text_line(t, "// %s = %s", name, text);
    f->name[i] = name;
}

/* Only the mean is read, not the sum that it is made of. */
static bool hidden_in_mean(const Formula *f, uint32_t i)
{
    for (uint32_t j = i + 1; f->uses[i] == 1 && j < f->n->stmt.n; j++) {
        const Stmt *s = &f->n->stmt.at[j];
        if (s->nin > 0 && s->in[0] == i && is_mean(f->n, j))
            return true;
    }
    return false;
}

static bool is_leaf(const Stmt *s) { return s->kind != S_OP && s->kind != S_REDUCE; }

/* How many statements an expression has, up to `most`. */
static int size(const Formula *f, uint32_t i, int most)
{
    const Stmt *s = &f->n->stmt.at[i];
    int n = 1;
    if (f->name[i] || is_leaf(s))
        return 1;
    for (uint32_t j = 0; j < s->nin && n < most; j++)
        n += size(f, s->in[j], most - n);
    return n;
}

/* The result that is this value, when it has one of its own: then it is called by that. */
static const char *stored_as(const Formula *f, uint32_t i)
{
    for (uint32_t j = i + 1; j < f->n->stmt.n; j++) {
        const Stmt *s = &f->n->stmt.at[j];
        if (s->kind == S_STORE && s->in[0] == i && !s->acc)
            return f->arg[s->arg];
    }
    return NULL;
}

static void store(Formula *f, const Stmt *s, Text *t)
{
    const uint32_t v = s->in[0];
    const char *arg = f->arg[s->arg], *one = role_one(f->a, arg);
    if (f->name[v] && (strcmp(f->name[v], arg) == 0 || (one && strcmp(f->name[v], one) == 0)))
        return;
    text_line(t, "// %s %s %s", arg, s->acc ? "+=" : "=", expression(f, v).text);
    if (!s->acc && !is_leaf(&f->n->stmt.at[v]) && !f->name[v])
        f->name[v] = arg;
}

static const char *letter(Formula *f) { return print_letter(f->a, f->letters++); }

static Formula explain(Arena *a, const Nest *n, const char *const *arg_name, Text *t)
{
    enum { LARGE = 3, HUGE_LINE = 24 };
    const char **role = role_names(a, n);
    Formula f = {.a = a, .n = n, .arg = arg_name, .role = role};
    if (n->there)
        text_line(t, "// of rows where %s holds; the others are 0", arg_name[n->there->arg]);
    f.name = arena_array(a, const char *, n->stmt.n + 1);
    f.uses = arena_array(a, uint32_t, n->stmt.n + 1);
    for (uint32_t i = 0; i < n->stmt.n; i++)
        for (uint32_t j = 0; j < stmt_reads(&n->stmt.at[i]); j++)
            f.uses[stmt_read(&n->stmt.at[i], j)]++;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        bool named = role[i] && !(s->kind == S_REDUCE && hidden_in_mean(&f, i));
        if (s->kind == S_STORE)
            store(&f, s, t);
        else if (f.name[i] || is_leaf(s))
            continue;
        else if (named && (f.uses[i] > 1 || s->kind != S_REDUCE || n->kind == NEST_ROW))
            define(&f, i, n->kind == NEST_COLUMN ? letter(&f) : role[i], t);
        else if ((f.uses[i] > 1 && size(&f, i, LARGE) >= LARGE) ||
                 size(&f, i, HUGE_LINE) >= HUGE_LINE)
            define(&f, i, stored_as(&f, i) ? stored_as(&f, i) : letter(&f), t);
    }
    return f;
}

/* "x_j"; of one for a row "x_i"; of rstds "rstd" */
static const char *element_name(Arena *a, const char *arg, bool row)
{
    const char *one = role_one(a, arg);
    return one ? one : arena_printf(a, row ? "%s_i" : "%s_j", arg);
}

PrintNames formula_names(Arena *a, const Nest *n, const char *const *arg_name)
{
    Text text = {.a = a};
    const Formula f = explain(a, n, arg_name, &text);
    const char **role = role_names(a, n);
    StrMap of_arg = {.arena = a}, taken = {.arena = a};
    for (uint32_t i = 0; i < n->arg.n; i++)
        *strmap_at(&of_arg, arg_name[i]) = i;
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (role[i])
            *strmap_at(&taken, f.name[i] = role[i]) = i;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        const char *base = s->kind == S_LOAD ? arg_name[s->arg] : f.name[i];
        if (role[i] || !base || strmap_get(&of_arg, base) == NONE)
            continue;
        f.name[i] = base = element_name(a, base, s->row && n->kind != NEST_COLUMN);
        for (int k = 2; strmap_get(&taken, f.name[i]) != NONE; k++)
            f.name[i] = arena_printf(a, "%s%d", base, k);
        *strmap_at(&taken, f.name[i]) = i;
    }
    return (PrintNames){text_all(&text), f.name, f.letters};
}
