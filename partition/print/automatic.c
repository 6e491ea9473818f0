/*
 * automatic.c - what `--stages` found, for people: what the stages cost by the model, and the
 * options that say the same.
 */
#include "print.h"

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

void print_automatic(const AutoCut *c, Arena *outer, FILE *f)
{
    const AutoOptions *o = c->options;
    Arena *a = arena_within(outer);
    stages(c, a, f);
    fprintf(f, "%s %s by %s costs\n",
            o->microbatches ? arena_printf(a, "step of %u microbatches", o->microbatches)
                            : "slowest stage",
            time_text(a, o->microbatches ? c->cut.step : c->cut.slowest),
            o->measured ? "measured" : "modelled");
    for (uint32_t i = 0; i < o->measured_clock.n; i++)
        fprintf(f, "%s\n", diag_escape(a, o->measured_clock.at[i]));
    fputs(c->split.n > 0 ? "the same cut:" : "", f);
    for (uint32_t i = 0; i < c->split.n; i++)
        fprintf(f, " --split %s", shell_word(a, diag_escape(a, c->split.at[i])));
    fputs(c->split.n > 0 ? "\n" : "", f);
    arena_free(a);
}
