/*
 * launches.c - launches.tsv: what the program launches on a device, for `ppsplit forecast' and for
 * whoever puts it beside a profile (PP_PROFILE).  In: the launches of each stage.  Out: a line
 * each, its numbers those of a microbatch with all its rows.
 */
#include <inttypes.h>
#include <string.h>

#include "codegen/tables.h"
#include "write.h"

void cg_launches_head(int64_t rows, Text *t)
{
    text_add(t, "rows\t%" PRId64 "\n", rows);
    text_add(t, "stage\tfunction\tonce\tpart\tkind\tunit\tlaunches\toperations\tbytes\tm\tn\tk\t"
                "count\todd\tnear\tnodes\n");
}

/* Names of nodes, side by side. */
static const char *one_line(const char *nodes, Arena *a)
{
    Text t = {.a = a};
    while (*nodes) {
        size_t n = strcspn(nodes, "\n");
        text_add(&t, "%s%s", t.n ? "; " : "", diag_escape(a, arena_strndup(a, nodes, n)));
        nodes += n + (nodes[n] == '\n');
    }
    return text_all(&t);
}

void cg_launches_print(const StageLaunches *s, uint32_t stage, int64_t rows, Arena *a, Text *t)
{
    for (int k = 0; k < LAUNCHES; k++)
        for (uint32_t i = 0; i < s->of[k].n; i++) {
            const Launch *x = &s->of[k].at[i];
            const Work *w = &x->work;
            const double r = (double)rows;
            text_add(
                t, "%u\t%s\t%d\t%c\t%s\t%s\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%d\t%.0f\t%s\n",
                stage, cg_launches_name(k, a), s->once, x->part, x->kind, unit_name[w->unit],
                w->launches, per_rows(w->operations, r), per_rows(w->bytes, r), per_rows(w->m, r),
                per_rows(w->n, r), per_rows(w->k, r), per_rows(w->count, r), w->odd,
                per_rows(w->near, r), one_line(x->nodes, a));
        }
}
