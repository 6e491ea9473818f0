/*
 * machine.c - what a machine is, in a small file:
 *
 *     ranks = 8               # processes, all replicas together
 *     threads = 4             # of each
 *     memory = 16G            # that each may take
 *     products = 170e9        # and any other rate, as --rates has them
 *     latency = 20e-6         # seconds of a message: messages = 50e3 in other words
 *     card = h100             # each has one: its rates and its memory, where no line says others
 *     efficiency = 0.8        # kernels reach so much of the card's rates; links are as they are
 *     node = 8                # ranks that the fast link joins; others are reached over
 *     network = 45e9          # this, in bytes/s of each rank, and
 *     network-latency = 5e-6  # seconds of a message
 */
#include <stdlib.h>
#include <string.h>

#include "base/cli/nearest.h"
#include "base/cli/options.h"
#include "planner.h"

typedef struct {
    const char *path;
    uint32_t line;
    Machine *m;
    StrMap seen;
    Arena *a;
} Reader;

static NORETURN void wrong(const Reader *r, const char *what)
{
    diag_fatal(EXIT_USAGE, WHERE_FILE(r->path), "line %u: %s", r->line, what);
}

static double number(const Reader *r, const char *name, const char *text)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !(v >= 1e-300) || v > 1e300)
        wrong(r, arena_printf(r->a, "'%s' wants a number above 0, not '%s'", name,
                              diag_escape(r->a, text)));
    return v;
}

static NORETURN void unknown(const Reader *r, const char *name)
{
    enum { MOST = 64 };
    const char *names[MOST] = {"ranks", "threads", "memory",  "latency",
                               "card",  "node",    "network", "network-latency", "efficiency"},
               *what;
    size_t n = 10;
    for (int i = 0; rates_name(i, &what); i++)
        names[n++] = rates_name(i, &what);
    diag_meant(name, names, n);
    wrong(r, arena_printf(r->a, "unknown name '%s'", diag_escape(r->a, name)));
}

/* Messages and latency are one number. */
static void once(Reader *r, const char *name)
{
    const char *key = !strcmp(name, "latency") ? "messages" : name;
    uint32_t *at = strmap_at(&r->seen, key);
    if (*at != NONE)
        wrong(r, arena_printf(r->a, "'%s' is repeated; it is in line %u already", name, *at));
    *at = r->line;
}

/* Rates that a line has said stay. */
static void read_card(Reader *r, const char *text)
{
    enum { MOST = 64 };
    const char *names[MOST], *what;
    char meant[400];
    size_t n = 0;
    r->m->card = card_find(text);
    while (n < MOST && card_name((int)n))
        names[n] = card_name((int)n), n++;
    if (!r->m->card) {
        nearest_text(text, names, n, meant, sizeof meant);
        wrong(r, arena_printf(r->a, "unknown card '%s'%s", diag_escape(r->a, text), meant));
    }
    Rates of = rates_of_card(r->m->card);
    for (int i = 0; rates_name(i, &what); i++)
        if (*strmap_at(&r->seen, rates_name(i, &what)) == NONE)
            *rates_find(&r->m->rates, rates_name(i, &what)) =
                *rates_find(&of, rates_name(i, &what));
}

static void read_one(Reader *r, const char *name, const char *text)
{
    double *rate = rates_find(&r->m->rates, name);
    int *count = !strcmp(name, "ranks")     ? &r->m->ranks
                 : !strcmp(name, "threads") ? &r->m->threads
                 : !strcmp(name, "node")    ? &r->m->network.node
                                            : NULL;
    if (!strcmp(name, "network"))
        rate = &r->m->network.link;
    else if (!strcmp(name, "network-latency"))
        rate = &r->m->network.latency;
    else if (!strcmp(name, "efficiency"))
        rate = &r->m->efficiency;
    if (!rate && !count && strcmp(name, "memory") && strcmp(name, "latency") &&
        strcmp(name, "card"))
        unknown(r, name);
    once(r, name);
    if (!strcmp(name, "card")) {
        read_card(r, text);
    } else if (rate) {
        *rate = number(r, name, text);
    } else if (!strcmp(name, "latency")) {
        *rates_find(&r->m->rates, "messages") = 1 / number(r, name, text);
    } else if (!strcmp(name, "memory")) {
        if (!option_bytes(text, &r->m->memory))
            wrong(r, arena_printf(r->a,
                                  "'memory' wants a number of bytes, with K, M, G or T, not '%s'",
                                  diag_escape(r->a, text)));
    } else {
        enum { MOST = 1 << 16 };
        double n = number(r, name, text);
        if (n > MOST || n != (double)(int)n)
            wrong(r, arena_printf(r->a, "'%s' wants a whole number up to 65536", name));
        *count = (int)n;
    }
}

static void read_line(Reader *r, const char *line, size_t n)
{
    const char *one = rates_word(r->a, line, n), *eq = strchr(one, '=');
    if (!*one)
        return;
    if (!eq || eq == one || !eq[1])
        wrong(r, arena_printf(r->a, "expected NAME = NUMBER, not '%s'", diag_escape(r->a, one)));
    read_one(r, rates_word(r->a, one, (size_t)(eq - one)),
             rates_word(r->a, eq + 1, strlen(eq + 1)));
}

/* Its kernels reach a part of what it has. */
static void slow_down(Machine *m, Arena *a)
{
    Card *own = arena_new_of(a, Card);
    *own = *m->card;
    own->traffic *= m->efficiency;
    own->tensor32 *= m->efficiency;
    for (int u = 0; u < UNIT_COUNT; u++)
        own->rate[u] *= u == UNIT_LINK ? 1 : m->efficiency;
    m->card = own;
}

Machine machine_read(const char *path, Arena *a)
{
    Machine m = {.rates = rates_builtin()};
    Reader r = {.path = path, .m = &m, .seen = {.arena = a}, .a = a};
    const char *text = rates_file(path, a);
    if (!text) {
        diag_hint("`pipeline measure' of any program writes one for its machine");
        diag_fatal(EXIT_IO, WHERE_FILE(path), "--machine: no such file");
    }
    for (const char *at = text; *at;) {
        size_t length = strcspn(at, "\n");
        r.line++;
        read_line(&r, at, strcspn(at, "\n#"));
        at += length + (at[length] == '\n');
    }
    const Network *n = &m.network;
    if ((n->node > 0) != (n->link > 0) || (n->latency > 0 && !n->node))
        diag_fatal(EXIT_USAGE, WHERE_FILE(path),
                   "'node' (ranks that one link joins) and 'network' (bytes/s to the others) must "
                   "be given together");
    if (n->node && !(n->latency > 0))
        m.network.latency = 1 / m.rates.messages;
    if (m.efficiency > 0 && !m.card)
        diag_fatal(EXIT_USAGE, WHERE_FILE(path), "'efficiency' needs `card'");
    if (m.efficiency > 0)
        slow_down(&m, a);
    if (m.card && m.memory == 0)
        m.memory = (int64_t)m.card->memory;
    return m;
}
