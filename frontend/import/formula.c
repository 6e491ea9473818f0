/*
 * formula.c - what exporters write for a dimension that follows from others: "past + seq", "2*s0",
 * "(s0 + 1)//2", "Max(1, s0 - 1)", "floor(seq/2)".  In: the text, and what gives its symbols their
 * values.  Out: its value.  Whole numbers; a division is rounded down.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "bind.h"

enum { DEEPEST = 64 };

typedef struct {
    const char *at;
    Arena *a;
    SymbolValue *of;
    void *about;
    int depth;
    bool bad, unknown, any_symbol, any_operator;
} Reader;

static int64_t sum(Reader *r);

static bool starts_symbol(char c)
{
    return isalpha((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

/* The text, if it comes next. */
static bool take(Reader *r, const char *text)
{
    r->at += strspn(r->at, " ");
    bool is = !strncmp(r->at, text, strlen(text));
    r->at += is ? strlen(text) : 0;
    return is;
}

/* Of what is not known, or is no formula, the value is not used. */
static int64_t checked(Reader *r, bool wrong, int64_t value)
{
    r->bad |= wrong && !r->unknown;
    return wrong || r->bad ? 1 : value;
}

static int64_t combined(Reader *r, char op, int64_t x, int64_t y)
{
    int64_t z = 1;
    bool over = op == '*'   ? __builtin_mul_overflow(x, y, &z)
                : op == '+' ? __builtin_add_overflow(x, y, &z)
                            : __builtin_sub_overflow(x, y, &z);
    return checked(r, over, z);
}

static int64_t divided(Reader *r, int64_t x, int64_t y, bool rest)
{
    if (y <= 0)
        return checked(r, true, 1);
    int64_t down = x / y - (x % y < 0);
    return rest ? x - down * y : down;
}

/* Behind "(": Max, Min, floor and what sympy calls a division. */
static int64_t call(Reader *r, const char *name)
{
    int64_t x = sum(r);
    bool most = !strcasecmp(name, "max"), least = !strcasecmp(name, "min"),
         divide = !strcasecmp(name, "floordiv"), rest = !strcasecmp(name, "mod");
    r->bad |= !most && !least && !divide && !rest && strcasecmp(name, "floor");
    while (!r->bad && take(r, ",")) {
        int64_t y = sum(r);
        r->bad |= !strcasecmp(name, "floor");
        x = divide || rest ? divided(r, x, y, rest) : (most ? x > y : x < y) ? x : y;
    }
    r->bad |= !take(r, ")");
    r->any_operator = true;
    return x;
}

static int64_t operand(Reader *r)
{
    int64_t x = 1;
    char *end;
    if (++r->depth > DEEPEST)
        r->bad = true;
    if (r->bad)
        return 1;
    if (take(r, "-")) {
        x = -operand(r);
    } else if (take(r, "(")) {
        x = sum(r);
        r->bad |= !take(r, ")");
    } else if (isdigit((unsigned char)*r->at)) {
        x = strtoll(r->at, &end, 10);
        x = checked(r, x > INT32_MAX || starts_symbol(*end), x);
        r->at = end;
    } else if (starts_symbol(*r->at)) {
        const char *from = r->at;
        while (starts_symbol(*r->at) || isdigit((unsigned char)*r->at) || *r->at == '.')
            r->at++;
        const char *name = arena_strndup(r->a, from, (size_t)(r->at - from));
        if (take(r, "(")) {
            x = call(r, name);
        } else {
            x = r->of(r->about, name);
            r->unknown |= x < 0;
            r->any_symbol = true;
        }
    } else {
        r->bad = true;
    }
    r->depth--;
    return x;
}

static int64_t product(Reader *r)
{
    int64_t x = operand(r);
    for (;;) {
        if (take(r, "**") || take(r, "^"))
            r->bad = true;
        else if (take(r, "*"))
            x = combined(r, '*', x, operand(r));
        else if (take(r, "//") || take(r, "/"))
            x = divided(r, x, operand(r), false);
        else if (take(r, "%"))
            x = divided(r, x, operand(r), true);
        else
            return x;
        r->any_operator = true;
    }
}

static int64_t sum(Reader *r)
{
    int64_t x = product(r);
    for (;;) {
        if (take(r, "+"))
            x = combined(r, '+', x, product(r));
        else if (take(r, "-"))
            x = combined(r, '-', x, product(r));
        else
            return x;
        r->any_operator = true;
    }
}

bool formula_read(Arena *a, const char *text, SymbolValue *of, void *about, int64_t *value)
{
    Reader r = {.at = text, .a = a, .of = of, .about = about};
    int64_t x = sum(&r);
    r.at += strspn(r.at, " ");
    if (r.bad || *r.at || !r.any_symbol || !r.any_operator)
        return false;
    *value = r.unknown ? FORMULA_UNKNOWN : x;
    return true;
}
