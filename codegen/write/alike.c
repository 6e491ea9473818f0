/*
 * alike.c - in: the texts of one file, each of the program with other lengths.  Out: the one text
 * that has them all: where they have different numbers it has the polynomial of the lengths on
 * which all of them lie.  Two programs that differ in more than numbers are refused, with both
 * lines.
 *
 * So a microbatch of these lengths is computed by the very program that the model has when it is
 * bound to them, and any other by what all of these have in common: least
 * general generalisation (Plotkin, 1970), of token sequences.  What does not change a result may
 * differ and is taken from the first text: comments, pragmas and other lines of the preprocessor.
 */
#include "lengths.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- tokens ---------------------------------------------------------------------------------- */

typedef enum { T_END, T_WORD, T_NUMBER, T_FLOAT, T_STRING, T_COMMENT, T_LINE, T_SIGN } TokenKind;
typedef struct {
    TokenKind kind;
    const char *at;
    size_t n;
} Token;

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

static const char *line_end(const char *s)
{
    const char *end = strchr(s, '\n');
    return end ? end : s + strlen(s);
}

/* A literal that begins with a digit: 12, 1.5e-05f, 0x1f */
static Token literal(const char *s)
{
    Token t = {T_NUMBER, s, 0};
    for (;
         is_word(s[t.n]) || s[t.n] == '.' || (strchr("+-", s[t.n]) && s[t.n] && s[t.n - 1] == 'e');
         t.n++)
        t.kind = isdigit((unsigned char)s[t.n]) ? t.kind : T_FLOAT;
    return t;
}

static Token token(const char *begin, const char *s)
{
    bool first = s == begin;
    for (; isspace((unsigned char)*s); s++)
        first |= *s == '\n';
    if (!*s)
        return (Token){T_END, s, 0};
    if (first && *s == '#')
        return (Token){T_LINE, s, (size_t)(line_end(s) - s)};
    if (s[0] == '/' && s[1] == '/')
        return (Token){T_COMMENT, s, (size_t)(line_end(s) - s)};
    if (isdigit((unsigned char)*s))
        return literal(s);
    Token t = {is_word(*s) ? T_WORD : T_SIGN, s, 1};
    while (t.kind == T_WORD && is_word(s[t.n]))
        t.n++;
    if (*s == '"' || *s == '\'') {
        t.kind = T_STRING;
        for (; s[t.n] != *s; t.n++)
            t.n += s[t.n] == '\\';
        t.n++;
    }
    return t;
}

static bool is(const Token *t, const char *text)
{
    return t->n == strlen(text) && !memcmp(t->at, text, t->n);
}

static bool same(const Token *x, const Token *y)
{
    return x->kind == y->kind && x->n == y->n && !memcmp(x->at, y->at, x->n);
}

/* ---- the texts ------------------------------------------------------------------------------- */

/* Where one is read: the token, and the comments before it. */
typedef struct {
    const char *begin, *end;
    Token now;
    VEC(Token) comment;
} Reader;

typedef struct {
    Token name;
    unsigned reads;
} Taker;

typedef struct {
    const Lengths *l;
    Arena *a;
    const char *file;
    bool tables;
    Reader in[SAMPLES];
    Text out;
    Token before[3]; /* the last one first */
    int depth;
    bool code; /* inside a function */
    /* the function: its name, where its parameters and its body begin, has it a PpCtx, which
       lengths does it read?  A bit for each */
    Token name;
    size_t parameters, body;
    const char *context; /* its parameter that has the lengths, NULL: none */
    unsigned reads;
    bool kernel, wide;       /* of a device; with numbers of 64 bits */
    VEC(Taker) takes;        /* functions that take lengths */
    unsigned called, opened; /* the last token was one of them, or is before its arguments: which */
    unsigned launched;       /* one of them is the kernel of the launch that is read */
} Merge;

static void next(Merge *m, Reader *r)
{
    r->comment.n = 0;
    for (;;) {
        r->now = token(r->begin, r->end);
        r->end = r->now.at + r->now.n;
        if (r->now.kind == T_COMMENT)
            vec_push(m->a, &r->comment, r->now);
        else if (r->now.kind != T_LINE)
            return;
    }
}

static const char *line_of(Arena *a, const Reader *r)
{
    const char *s = r->now.at;
    while (s > r->begin && s[-1] != '\n')
        s--;
    return arena_strndup(a, s + strspn(s, " "), (size_t)(line_end(r->now.at) - s) - strspn(s, " "));
}

/* The comment above what is read, whose first line names nodes of the model. */
static const char *title_of_line(Arena *a, const Reader *r)
{
    const char *found = NULL;
    for (const char *s = r->now.at; s > r->begin; s--) {
        if (s[-1] != '\n')
            continue;
        bool comment = s[strspn(s, " ")] == '/';
        if (found && !comment)
            break;
        found = comment ? s + strspn(s, " /") : found;
    }
    return found ? arena_strndup(a, found, (size_t)(line_end(found) - found)) : "its begin";
}

NORETURN static void refuse(const Merge *m, int k, const char *why)
{
    const Lengths *l = m->l;
    diag_note("%s, with %s: %s", m->file, cg_lengths_text(m->a, l, l->at[0]),
              line_of(m->a, &m->in[0]));
    diag_note("%s, with %s: %s", m->file, cg_lengths_text(m->a, l, l->at[k]),
              line_of(m->a, &m->in[k]));
    lengths_refuse(l, WHERE_FILE(l->pipe[0]->graph->file),
                   arena_printf(m->a, "%s at %s", why, title_of_line(m->a, &m->in[0])));
}

/* ---- numbers --------------------------------------------------------------------------------- */

static const char *const names[SYMBOLS] = {"length", "length1", "length2"};

/* "length", "(2 * length * length1 - 1)" */
static const char *polynomial_text(Arena *a, const Polynomial *p)
{
    Text t = {.a = a};
    for (int i = TERMS - 1; i >= 0; i--) {
        int64_t c = p->c[i], size = c < 0 ? -c : c;
        if (c == 0)
            continue;
        text_add(&t, "%s", t.n ? (c < 0 ? " - " : " + ") : c < 0 ? "-" : "");
        bool any = i == 0 || size != 1;
        if (any)
            text_add(&t, "%" PRId64, size);
        for (int v = 0; v < SYMBOLS; v++)
            for (int k = cg_power(i, v); k > 0; k--, any = true)
                text_add(&t, "%s%s", any ? " * " : "", names[v]);
    }
    const char *text = text_all(&t);
    return strchr(text, ' ') || *text == '-' ? arena_printf(a, "(%s)", text) : text;
}

/* Which lengths it has. */
static unsigned lengths_in(const Polynomial *p)
{
    unsigned in = 0;
    for (int i = 0; i < TERMS; i++)
        for (int v = 0; v < SYMBOLS; v++)
            in |= p->c[i] && cg_power(i, v) ? 1u << v : 0;
    return in;
}

/* With the greatest lengths, has it a part that is no int? */
static bool is_large(const Lengths *l, const Polynomial *p)
{
    double all = 0;
    for (int i = 0; i < TERMS; i++) {
        double part = fabs((double)p->c[i]);
        for (int v = 0; v < l->symbols; v++)
            part *= pow((double)l->symbol[v].most, cg_power(i, v));
        all += part;
    }
    return all > INT32_MAX;
}

/* What stands for numbers; NULL: they lie on no polynomial.  reads: the lengths that it has are
   added. */
static const char *number_text(Merge *m, const int64_t *v, unsigned *reads)
{
    Polynomial p;
    if (!cg_fit(m->l, v, &p))
        return NULL;
    m->wide |= is_large(m->l, &p);
    if (reads)
        *reads |= lengths_in(&p);
    return reads ? polynomial_text(m->a, &p)
                 : arena_printf(m->a, "%" PRId64, cg_value_most(m->l, &p, false));
}

/* Strings and comments: their numbers are taken one by one; NULL: they differ in more. */
static const char *words(Merge *m, const Token *t, unsigned *reads)
{
    const char *s[SAMPLES] = {0};
    Text out = {.a = m->a};
    for (int k = 0; k < m->l->n; k++)
        s[k] = arena_strndup(m->a, t[k].at, t[k].n);
    while (*s[0]) {
        bool number = isdigit((unsigned char)*s[0]) && (!out.n || !is_word(out.at[out.n - 1]));
        int64_t v[SAMPLES];
        bool varies = false;
        for (int k = 0; k < m->l->n; k++) {
            char *end;
            if (!number ? *s[k] != *s[0] : !isdigit((unsigned char)*s[k]))
                return NULL;
            v[k] = number ? strtoll(s[k], &end, 10) : 0;
            varies |= v[k] != v[0];
        }
        const char *text = varies ? number_text(m, v, reads) : NULL;
        if (varies && !text)
            return NULL;
        size_t digits = number ? strspn(s[0], "0123456789") : 1;
        if (text)
            text_add(&out, "%s", text);
        else
            text_add(&out, "%.*s", (int)digits, s[0]);
        for (int k = 0; k < m->l->n; k++)
            s[k] += number ? strspn(s[k], "0123456789") : 1;
    }
    for (int k = 1; k < m->l->n; k++)
        if (*s[k])
            return NULL;
    return text_all(&out);
}

/* Literals with a fraction: a length itself as one, or 1 divided by it, as they are rounded. */
static const char *float_text(Merge *m)
{
    int64_t whole[SAMPLES], below[SAMPLES];
    const Token *t = &m->in[0].now;
    bool single = t->at[t->n - 1] == 'f', is_whole = true, is_below = true;
    const char *type = single ? "float" : "double";
    for (int k = 0; k < m->l->n; k++) {
        const Token *x = &m->in[k].now;
        double v = strtod(arena_strndup(m->a, x->at, x->n), NULL);
        whole[k] = v < 1e9 ? (int64_t)v : 0;
        below[k] = v > 1e-9 && v < 1 ? (int64_t)(1 / v + .5) : 1;
        double again = 1 / (double)below[k];
        is_whole &= (double)whole[k] == v;
        is_below &= is(
            x, cg_number(m->a, single ? DT_F32 : DT_F64, single ? (double)(float)again : again, 0));
    }
    const char *text = is_whole   ? number_text(m, whole, &m->reads)
                       : is_below ? number_text(m, below, &m->reads)
                                  : NULL;
    return !text      ? NULL
           : is_whole ? arena_printf(m->a, "(%s)%s", type, text)
                      : arena_printf(m->a, "(%s)(1.0 / (double)%s)", type, text);
}

/* ---- functions ------------------------------------------------------------------------------- */

/* Of a function lengths are parameters, or its PpCtx or PpPart has them. */
static void insert(Merge *m, size_t at, size_t gone, const char *text)
{
    Text t = {.a = m->a};
    text_add(&t, "%.*s%s%s", (int)at, m->out.at, text, m->out.at + at + gone);
    m->out = t;
}

/* "length, length1" with `each` before them */
static const char *lengths_list(Arena *a, unsigned which, const char *each)
{
    Text t = {.a = a};
    for (int v = 0; v < SYMBOLS; v++)
        if (which >> v & 1)
            text_add(&t, "%s%s%s", t.n ? ", " : "", each, names[v]);
    return text_all(&t);
}

static void end_function(Merge *m)
{
    const char *first = m->out.at + m->parameters,
               *list = lengths_list(m->a, m->reads, m->kernel && !m->wide ? "int " : "int64_t ");
    Text read = {.a = m->a};
    for (int v = 0; v < SYMBOLS; v++)
        if (m->reads >> v & 1 && m->context)
            text_add(&read, "\n    const int64_t %s = %s->length.of[%d];", names[v], m->context, v);
    if (!m->reads)
        return;
    if (m->context)
        insert(m, m->body, 0, text_all(&read));
    else if (!strncmp(first, "void)", 5))
        insert(m, m->parameters, 4, list);
    else
        insert(m, m->parameters, 0, arena_printf(m->a, "%s, ", list));
    if (!m->context)
        vec_push(m->a, &m->takes, ((Taker){m->name, m->reads}));
}

static unsigned takes_lengths(const Merge *m, const Token *t)
{
    for (uint32_t i = 0; i < m->takes.n; i++)
        if (same(&m->takes.at[i].name, t))
            return m->takes.at[i].reads;
    return 0;
}

/* A size in a declaration, as in float p[63], is that of the greatest length. */
static bool is_declared(const Merge *m)
{
    const Token *b = m->before;
    return is(&b[0], "[") && b[1].kind == T_WORD && b[2].kind == T_WORD && !is(&b[2], "return") &&
           !is(&b[2], "else");
}

/* Before the token is printed. */
static void enter(Merge *m, const Token *t)
{
    if (m->called && !is(t, "("))
        refuse(m, 1, "a function that follows another one reads a length");
    if (m->opened)
        text_add(&m->out, "%s%s", lengths_list(m->a, m->opened, ""), is(t, ")") ? "" : ", ");
    const unsigned takes = m->code && t->kind == T_WORD ? takes_lengths(m, t) : 0;
    const bool launch = is(&m->before[1], "PP_LAUNCH");
    m->reads |= takes;
    m->opened = m->called;
    m->called = launch ? 0 : takes;
    if (launch)
        m->launched = takes;
    if (is(t, "{") && m->depth++ == 0)
        m->code = is(&m->before[0], ")");
    if (m->depth == 0 && (is(t, ";") || is(t, "}")))
        m->parameters = 0;
    if (m->depth == 0 && (is(t, "PpCtx") || is(t, "PpPart")))
        m->context = is(t, "PpCtx") ? "c" : "of";
    if (m->depth == 0 && is(t, "__global__"))
        m->kernel = true;
    m->wide |= is(t, "pp_thread_wide") || (is(t, "blockIdx") && is(&m->before[2], "int64_t"));
}

/* After it was printed. */
static void leave(Merge *m, const Token *t)
{
    if (m->depth == 0 && is(t, "(") && !m->parameters && !is(&m->before[0], "__launch_bounds__")) {
        m->name = m->before[0];
        m->parameters = m->out.n;
        m->context = NULL;
        m->reads = 0;
        m->wide = false;
    }
    if (m->launched && is(t, ",") && is(&m->before[0], "stream")) {
        m->opened = m->launched;
        m->launched = 0;
    }
    if (m->depth == 1 && m->code && is(t, "{"))
        m->body = m->out.n;
    if (is(t, "}") && --m->depth == 0) {
        if (m->code)
            end_function(m);
        m->code = m->kernel = false;
        m->parameters = 0;
    }
    m->before[2] = m->before[1];
    m->before[1] = m->before[0];
    m->before[0] = *t;
}

/* ---- one text -------------------------------------------------------------------------------- */

/* What stands before the token: spaces, comments, lines of the preprocessor. */
static void print_gap(Merge *m, const char *from)
{
    const Reader *r = &m->in[0];
    for (uint32_t i = 0; i < r->comment.n; i++) {
        Token t[SAMPLES];
        bool all = true;
        for (int k = 0; k < m->l->n; k++) {
            all &= m->in[k].comment.n == r->comment.n;
            t[k] = all ? m->in[k].comment.at[i] : r->comment.at[i];
        }
        unsigned said = 0;
        const char *text = all ? words(m, t, &said) : NULL;
        text_add(&m->out, "%.*s", (int)(t[0].at - from), from);
        text_add(&m->out, "%.*s", (int)(text ? strlen(text) : t[0].n), text ? text : t[0].at);
        from = t[0].at + t[0].n;
    }
    text_add(&m->out, "%.*s", (int)(r->now.at - from), from);
}

/* A sample that has another token than the first one. */
static int differs(const Merge *m)
{
    int k = 1;
    while (k + 1 < m->l->n && same(&m->in[k].now, &m->in[0].now))
        k++;
    return k;
}

/* The tokens, where they are not all the same. */
static const char *varying(Merge *m)
{
    const Token *first = &m->in[0].now;
    Token t[SAMPLES];
    int64_t v[SAMPLES];
    for (int k = 0; k < m->l->n; k++) {
        t[k] = m->in[k].now;
        if (t[k].kind != first->kind || t[k].kind == T_WORD || t[k].kind == T_SIGN)
            refuse(m, differs(m), "the program is another one");
        v[k] = first->kind == T_NUMBER ? strtoll(t[k].at, NULL, 10) : 0;
    }
    const char *text = NULL;
    bool value = !m->code || is_declared(m);
    if (!m->code && first->kind == T_FLOAT && first->at[1] == 'x')
        return arena_strndup(m->a, first->at, first->n); /* a hash */
    if (first->kind == T_NUMBER)
        text = number_text(m, v, value ? NULL : &m->reads);
    else if (first->kind == T_STRING)
        text = words(m, t, NULL);
    else if (m->code)
        text = float_text(m);
    if (!text || (!m->code && !m->tables))
        refuse(m, differs(m), "a number is no polynomial of the lengths");
    return text;
}

const char *lengths_text(Arena *a, const Lengths *l, const Text *text, const char *file)
{
    Merge m = {
        .l = l, .a = a, .file = file, .tables = !strcmp(file, "pipeline.c"), .out = {.a = a}};
    for (int k = 0; k < l->n; k++)
        m.in[k].begin = m.in[k].end = text_all(&text[k]);
    for (bool more = true; more;) {
        const char *from = m.in[0].end;
        bool alike = true;
        for (int k = 0; k < l->n; k++) {
            next(&m, &m.in[k]);
            alike &= same(&m.in[k].now, &m.in[0].now);
        }
        const Token t = m.in[0].now;
        more = t.kind != T_END;
        print_gap(&m, from);
        enter(&m, &t);
        const char *other = alike ? NULL : varying(&m);
        if (other)
            text_add(&m.out, "%s", other);
        else
            text_add(&m.out, "%.*s", (int)t.n, t.at);
        leave(&m, &t);
    }
    return text_all(&m.out);
}
