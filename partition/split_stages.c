/*
 * split_stages.c - from cuts to stages: those of the model's own markers and annotations join the
 * others; none may leave a stage empty.
 */
#include <stdlib.h>
#include <string.h>

#include "split_int.h"

/* ---- what the model itself says -------------------------------------------------------------- */

static const char *quoted(const Split *s, const char *what, const char *name)
{
    return *name ? arena_printf(s->a, "%s '%s'", what, name) : what;
}

static void cut_markers(Split *s)
{
    const Graph *g = s->g;
    for (uint32_t o = 0; o < g->origin.n; o++)
        if (g->origin.at[o].split_marker)
            split_cut(s, split_after(s, o), quoted(s, "the marker", g->origin.at[o].name));
}

static void cut_annotations(Split *s)
{
    const Graph *g = s->g;
    int stage = -1;
    NodeId before = NONE;
    for (NodeId n = 0; n < g->node.n; n++) {
        uint32_t o = g->node.at[n].origin;
        int is = o < g->origin.n && split_on_data(s, n) ? g->origin.at[o].pipeline_stage : -1;
        if (is < 0)
            continue;
        if (is < stage) {
            const Origin *b = &g->origin.at[g->node.at[before].origin];
            diag_note("node %u '%s' before it has pipeline_stage %d", b->index, b->name, stage);
            diag_fatal(EXIT_MODEL, graph_where(g, o, -1),
                       "pipeline_stage %d: stages may not go back along the graph", is);
        }
        if (is > stage && stage >= 0)
            split_cut(s, n, arena_printf(s->a, "pipeline_stage %d", is));
        stage = is;
        before = n;
    }
}

/* Both. */
void split_cut_model(Split *s)
{
    uint32_t before = s->cut.n;
    cut_markers(s);
    cut_annotations(s);
    for (uint32_t i = before; i < s->cut.n; i++)
        s->cut.at[i].of_model = true;
}

/* ---- the stages ------------------------------------------------------------------------------ */

static int by_position(const void *x, const void *y)
{
    const Cut *a = x, *b = y;
    return a->at != b->at ? (a->at < b->at ? -1 : 1) : strcmp(a->text, b->text);
}

/* Is anything computed in stage k? */
static bool is_stage(const Split *s, uint32_t k)
{
    const Graph *g = s->g;
    NodeId from = k ? s->cut.at[k - 1].at : 0, to = k < s->cut.n ? s->cut.at[k].at : g->node.n;
    for (NodeId n = from; n < to && n < g->node.n; n++)
        if (s->live[n] && split_on_data(s, n))
            return true;
    return false;
}

/* 'h.*:begin' of a model that begins with h.0, ':end' of one that ends with the last. */
static void drop_outermost(Split *s)
{
    if (s->cut.n > 0 && s->cut.at[0].of_pattern && !is_stage(s, 0))
        memmove(s->cut.at, s->cut.at + 1, --s->cut.n * sizeof *s->cut.at);
    if (s->cut.n > 0 && s->cut.at[s->cut.n - 1].of_pattern && !is_stage(s, s->cut.n))
        s->cut.n--;
}

static void check_empty(const Split *s)
{
    const Cut *cut = s->cut.at;
    for (uint32_t k = 0; k <= s->cut.n; k++) {
        const char *where = k == 0          ? arena_printf(s->a, "before %s", cut[0].text)
                            : k == s->cut.n ? arena_printf(s->a, "after %s", cut[k - 1].text)
                                            : arena_printf(s->a, "between %s and %s",
                                                           cut[k - 1].text, cut[k].text);
        if (!is_stage(s, k))
            diag_fatal(EXIT_USAGE, WHERE_FILE(s->g->file),
                       "stage %u would be empty: nothing is computed %s", k, where);
    }
}

/* Pure functions of constants and parameters stand with their first consumer. */
static void place_pure(const Split *s, uint32_t *stage_of)
{
    const Graph *g = s->g;
    uint32_t *first = arena_none(s->a, g->value.n);
    for (NodeId n = g->node.n; n-- > 0;) {
        const Node *x = &g->node.at[n];
        if (!split_on_data(s, n)) {
            uint32_t stage = NONE;
            for (uint32_t i = 0; i < x->nout; i++)
                stage = first[x->out[i]] < stage ? first[x->out[i]] : stage;
            stage_of[n] = stage == NONE ? s->cut.n : stage;
        }
        for (uint32_t i = 0; i < x->nin && s->live[n]; i++)
            if (x->in[i] != NONE && stage_of[n] < first[x->in[i]])
                first[x->in[i]] = stage_of[n];
    }
}

/* A stage for every node, by the cuts so far. */
uint32_t *split_stages(Split *s, Arena *a)
{
    const Graph *g = s->g;
    if (s->cut.n > 1)
        qsort(s->cut.at, s->cut.n, sizeof *s->cut.at, by_position);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->cut.n; i++) /* the same point given twice is one point */
        if (kept == 0 || s->cut.at[i].at != s->cut.at[kept - 1].at ||
            !(s->cut.at[i].of_pattern || s->cut.at[kept - 1].of_pattern ||
              s->cut.at[i].of_model || s->cut.at[kept - 1].of_model ||
              strcmp(s->cut.at[i].text, s->cut.at[kept - 1].text) == 0))
            s->cut.at[kept++] = s->cut.at[i];
    s->cut.n = kept;
    drop_outermost(s);
    if (s->cut.n > 0)
        check_empty(s);
    uint32_t *stage_of = arena_array(a, uint32_t, g->node.n + 1), stage = 0;
    for (NodeId n = 0; n < g->node.n; n++) {
        while (stage < s->cut.n && s->cut.at[stage].at <= n)
            stage++;
        stage_of[n] = stage;
    }
    place_pure(s, stage_of);
    return stage_of;
}
