/*
 * place.c - where parameters live.
 *
 * In: which parameters each stage reads, and --multi-use.  Out: Stage.param.  A parameter used in
 * one stage is its own; one used in several is sent from the first of them each step and its
 * gradients come back (TRANSMIT, PiPPy's default), or each stage holds a copy and their gradients
 * are summed (REPLICATE).  What does not train is copied unless it is asked for by name: nothing
 * ever has to be sent again.
 */
#include <fnmatch.h>
#include <string.h>

#include "pipe_int.h"

typedef struct {
    const char *pattern;
    Use use;
    uint32_t hits;
} Rule;

static Use parse_use(const char *word, const char *text)
{
    if (strcmp(word, "transmit") == 0)
        return USE_TRANSMIT;
    if (strcmp(word, "replicate") == 0)
        return USE_REPLICATE;
    static const char *const words[] = {"transmit", "replicate"};
    diag_meant(word, words, 2);
    diag_fatal(EXIT_USAGE, WHERE_NONE,
               "--multi-use '%s': expected transmit, replicate, NAME=transmit or NAME=replicate",
               text);
}

static Rule parse_rule(Arena *a, const char *text)
{
    const char *eq = strrchr(text, '=');
    Rule r = {.use = parse_use(eq ? eq + 1 : text, text)};
    if (eq)
        r.pattern = arena_strndup(a, text, (size_t)(eq - text));
    return r;
}

static bool fits(const Rule *r, const char *name)
{
    return !r->pattern || strcmp(r->pattern, name) == 0 || fnmatch(r->pattern, name, 0) == 0;
}

static _Noreturn void no_such(const Build *b, const char *pattern)
{
    const Graph *g = b->g;
    const char **names = arena_array(b->a, const char *, g->param.n + 1);
    for (uint32_t i = 0; i < g->param.n; i++)
        names[i] = g->param.at[i].name;
    diag_meant(pattern, names, g->param.n);
    diag_fatal(EXIT_USAGE, WHERE_FILE(g->file), "--multi-use: the model has no parameter '%s'",
               pattern);
}

/* The use asked for each parameter. */
static Use *wishes(const Build *b)
{
    const Graph *g = b->g;
    Use *use = arena_array(b->a, Use, g->param.n + 1);
    for (uint32_t i = 0; i < g->param.n; i++)
        use[i] = g->param.at[i].trainable || g->param.at[i].stat ? USE_TRANSMIT : USE_REPLICATE;
    for (uint32_t k = 0; b->opt && k < b->opt->multi_use.n; k++) {
        Rule r = parse_rule(b->a, b->opt->multi_use.at[k]);
        for (uint32_t i = 0; i < g->param.n; i++) {
            if (!fits(&r, g->param.at[i].name))
                continue;
            r.hits++;
            if (r.pattern || g->param.at[i].trainable)
                use[i] = r.use;
        }
        if (r.pattern && r.hits == 0)
            no_such(b, r.pattern);
    }
    return use;
}

void params_place(Build *b, const Ids *of_stage)
{
    const Graph *g = b->g;
    const Use *wish = wishes(b);
    uint32_t *first = arena_array(b->a, uint32_t, g->param.n + 1),
             *uses = arena_array(b->a, uint32_t, g->param.n + 1);
    for (uint32_t t = b->stages; t-- > 0;)
        for (uint32_t i = 0; i < of_stage[t].n; i++) {
            first[of_stage[t].at[i]] = t;
            uses[of_stage[t].at[i]]++;
        }
    for (uint32_t t = 0; t < b->stages; t++)
        for (uint32_t i = 0; i < of_stage[t].n; i++) {
            uint32_t k = of_stage[t].at[i];
            ParamUse u = {.param = k, .use = USE_OWN, .from = t};
            if (uses[k] > 1 && wish[k] == USE_REPLICATE)
                u.use = USE_REPLICATE;
            else if (first[k] != t)
                u.use = USE_TRANSMIT;
            if (u.use != USE_OWN)
                u.from = first[k];
            vec_push(b->a, &b->p->stage.at[t].param, u);
        }
}
