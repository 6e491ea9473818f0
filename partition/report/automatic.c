/*
 * automatic.c - what `--stages` found, for people: what the stages cost by the model, how far that
 * is from the best, and the options that say the same.
 */
#include <string.h>

#include "report.h"

/* Three digits, in the unit that fits. */
static const char *time_text(Arena *a, double s)
{
    static const char *const unit[] = {"s", "ms", "us"};
    int u = s >= 1 || s <= 0 ? 0 : s >= 1e-3 ? 1 : 2;
    for (int i = 0; i < u; i++)
        s *= 1e3;
    return arena_printf(a, s < 99.95 ? "%.3g %s" : "%.0f %s", s, unit[u]);
}

/* For a shell: as it is, or in single quotes. */
static const char *word(Arena *a, const char *s)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:-+@%,=";
    const char *text = "'";
    if (*s && strspn(s, plain) == strlen(s))
        return s;
    for (size_t n; *s; s += n) {
        n = strcspn(s, "'");
        text = arena_printf(a, "%s%.*s%s", text, (int)n, s, s[n] ? "'\\''" : "");
        n += s[n] != '\0';
    }
    return arena_printf(a, "%s'", text);
}

static void stages(const AutoCut *c, Arena *a, FILE *f)
{
    bool limited = c->options->memory > 0;
    fprintf(f, "%-6s %11s %11s %11s %11s %11s %11s%s\n", "cost", "F", "I", "W", "messages",
            "received", "stash", limited ? "      memory" : "");
    for (uint32_t s = 0; s < c->cut.stages; s++) {
        const CutStage *x = &c->cut.stage[s];
        fprintf(f, "%-6u %11s %11s %11s %11s %11s %11s", s, time_text(a, x->forward),
                time_text(a, x->input), time_text(a, x->weight), time_text(a, x->link),
                bytes_text(a, x->received), bytes_text(a, x->stash));
        if (limited)
            fprintf(f, " %11s", bytes_text(a, x->memory));
        putc('\n', f);
    }
}

void report_automatic(const AutoCut *c, FILE *f)
{
    const AutoOptions *o = c->options;
    Arena *a = arena_new();
    stages(c, a, f);
    fprintf(f, "%s %s by %s costs; no cut is below %s: at most %.2f%% above the best\n",
            o->microbatches ? arena_printf(a, "step of %u microbatches", o->microbatches)
                            : "slowest stage",
            time_text(a, o->microbatches ? c->cut.step : c->cut.slowest),
            o->measured ? "measured" : "modelled", time_text(a, c->bound), 100 * c->gap);
    fputs(c->split.n > 0 ? "the same cut:" : "", f);
    for (uint32_t i = 0; i < c->split.n; i++)
        fprintf(f, " --split %s", word(a, diag_escape(a, c->split.at[i])));
    fputs(c->split.n > 0 ? "\n" : "", f);
    arena_free(a);
}
