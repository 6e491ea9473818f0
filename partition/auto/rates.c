/*
 * rates.c - the rates of a rank (ir/facts/rates.h) by name, and how they are changed.
 */
#include <stdlib.h>
#include <string.h>

#include "auto.h"

static const struct {
    const char *name, *what;
    size_t at;
    double builtin;
} rates[] = {
#define RATE(name, builtin, what) {#name, what, offsetof(Rates, name), builtin},
    RATES(RATE)
#undef RATE
};
enum { N_RATES = sizeof rates / sizeof *rates };

static double *rate_of(Rates *r, int i) { return (double *)(void *)((char *)r + rates[i].at); }

Rates rates_of_card(const Card *c)
{
    enum { SHORT = 5, DEAR = 24 }; /* as codegen/plan/nest.c prices them */
    Rates r = rates_builtin();
    const double scalar = c->rate[UNIT_SCALAR];
    r.products = r.convolutions = r.batched = c->rate[UNIT_PRODUCT32];
    r.products64 = c->rate[UNIT_PRODUCT64];
    r.products16 = c->rate[UNIT_TENSOR16];
    r.quick = scalar;
    r.slow = scalar / SHORT;
    r.functions = r.exponentials = r.softmax = scalar / DEAR;
    r.rows = scalar;
    r.operands = r.transposed = r.parameters = r.gradients = c->traffic;
    r.cached = r.traffic = r.left = r.moves = r.updates = c->traffic;
    r.steps = 1 / c->launch;
    r.link = c->link;
    return r;
}

const char *rates_name(int i, const char **what)
{
    *what = i < N_RATES ? rates[i].what : NULL;
    return i < N_RATES ? rates[i].name : NULL;
}

double *rates_find(Rates *r, const char *name)
{
    for (int i = 0; i < N_RATES; i++)
        if (strcmp(rates[i].name, name) == 0)
            return rate_of(r, i);
    return NULL;
}

/* One `NAME=VALUE`. */
static void set_one(Rates *r, const char *one, Arena *a)
{
    const char *eq = strchr(one, '='), *names[N_RATES];
    const char *name = rates_word(a, one, eq ? (size_t)(eq - one) : strlen(one));
    char *end = NULL;
    double v = eq ? strtod(eq + 1, &end) : 0;
    if (!eq || end == eq + 1 || *end || !(v > 0) || v > 1e300)
        diag_fatal(EXIT_USAGE, WHERE_NONE,
                   "--rates wants NAME=NUMBER, the number above 0, not '%s'", diag_escape(a, one));
    double *rate = rates_find(r, name);
    if (rate) {
        *rate = v;
        return;
    }
    for (int i = 0; i < N_RATES; i++)
        names[i] = rates[i].name;
    diag_meant(name, names, N_RATES);
    diag_fatal(EXIT_USAGE, WHERE_NONE, "--rates: unknown rate '%s'", diag_escape(a, name));
}

/* Items between commas and ends of lines, without spaces and remarks. */
static void set_text(Rates *r, const char *text, Arena *a)
{
    while (*text) {
        size_t n = strcspn(text, ",\n#");
        const char *one = rates_word(a, text, n);
        if (*one)
            set_one(r, one, a);
        text += n;
        if (*text == '#')
            text += strcspn(text, "\n");
        text += *text != '\0';
    }
}

void rates_set(Rates *r, const char *list, Arena *a)
{
    if (strchr(list, '=')) {
        set_text(r, list, a);
        return;
    }
    const char *text = rates_file(list, a);
    if (!text) {
        diag_hint("a list looks like products=90e9,link=1e9");
        diag_fatal(EXIT_IO, WHERE_FILE(list), "--rates: neither a file nor a list of rates");
    }
    set_text(r, text, a);
}

CutLink rates_link(const Rates *r)
{
    /* both ends of a message wait for it: a half each */
    CutLink l = {.in_message = .5 / r->messages, .in_byte = .5 / r->link};
    l.out_message = l.in_message;
    l.out_byte = l.in_byte;
    return l;
}
