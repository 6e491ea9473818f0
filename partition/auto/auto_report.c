/*
 * auto_report.c - what `--stages` found, for people: the stages' times and bytes, the bound, and
 * the command line that says the same.
 */
#include <string.h>

#include "auto.h"

static double mib(int64_t bytes) { return (double)bytes / (1 << 20); }

/* For a shell: as it is, or in single quotes. */
static void print_word(Arena *a, const char *s, FILE *f)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:-+@%";
    s = diag_escape(a, s);
    if (*s && strspn(s, plain) == strlen(s)) {
        fputs(s, f);
        return;
    }
    putc('\'', f);
    for (; *s; s++)
        if (*s == '\'')
            fputs("'\\''", f);
        else
            putc(*s, f);
    putc('\'', f);
}

void auto_report(const AutoCut *c, FILE *f)
{
    const AutoOptions *o = c->options;
    Arena *a = arena_new();
    fprintf(f, "%u stages by %s cost\n", o->stages, o->measured ? "measured" : "modelled");
    fprintf(f, "%-6s %10s %10s %10s %10s %12s %12s %12s\n", "stage", "F ms", "I ms", "W ms",
            "messages", "receives MiB", "stash MiB", "memory MiB");
    for (uint32_t s = 0; s < c->cut.stages; s++) {
        const CutStage *x = &c->cut.stage[s];
        fprintf(f, "%-6u %10.3f %10.3f %10.3f %10.3f %12.2f %12.2f %12.2f\n", s, 1e3 * x->forward,
                1e3 * x->input, 1e3 * x->weight, 1e3 * x->link, mib(x->received), mib(x->stash),
                mib(x->memory));
    }
    if (o->microbatches)
        fprintf(f, "step of %u microbatches %.3f ms, ", o->microbatches, 1e3 * c->cut.step);
    else
        fprintf(f, "slowest stage %.3f ms, ", 1e3 * c->cut.slowest);
    fprintf(f, "no cut below %.3f ms: at most %.2f%% above the best\n", 1e3 * c->bound,
            100 * c->gap);
    fputs("the same cut:", f);
    for (uint32_t i = 0; i < c->split.n; i++) {
        fputs(" --split ", f);
        print_word(a, c->split.at[i], f);
    }
    putc('\n', f);
    arena_free(a);
}
