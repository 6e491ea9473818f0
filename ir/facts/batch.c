/*
 * batch.c - which dimension of every value holds the rows of the microbatch.
 *
 * In: a shaped graph.  Out: Value.batch of every value from `from` on, and in words what forbids
 * smaller chunks (uneven), what lets samples influence each other (mixes), and how microbatches
 * meet in each output. A forward dataflow over the nodes in order, one rule per core op
 * (batch_rules.c).  A value that does not depend on the data but has the batch's size where it
 * meets the batch (an Expand, a constant) is tagged on demand: the demand walks back to its source,
 * and the sweep is repeated until nothing changes.  A dimension may hold outer * rows * k elements
 * (torch's MultiheadAttention flattens [S, B, E] to [S * B, E] for a while): inside a stage only
 * its size matters; where rows are told apart (outputs, Dropout) outer has to be 1.  The target of
 * a loss is cut where the demand of what it is compared with finds it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "batch.h"

/* ---- inputs and reasons ---------------------------------------------------------------------- */

static void tag_inputs(Batch *b)
{
    Graph *g = b->g;
    const RowsAt *at = g->rows.at.n ? &g->rows.at.at[g->rows.by] : NULL;
    for (uint32_t i = 0; i < g->input.n; i++) {
        Value *v = &g->value.at[g->input.at[i]];
        bool told = at && i < at->n, target = g->input.at[i] == b->target;
        bool total = graph_is_total(g, g->input.at[i]);
        if (target || total || v->shape.rank == 0)
            v->batch = BATCH_NONE; /* a target's: found by what it is compared with */
        else if (told)
            v->batch = at->dim[i];
        else
            v->batch = v->shape.d[0] == b->rows ? 0 : BATCH_NONE;
        b->open[g->input.at[i]] = target || (told && at->open[i]);
    }
}

static void tag_option(Batch *b, const char *text)
{
    Graph *g = b->g;
    const char *eq = strrchr(text, '=');
    if (!eq)
        diag_fatal(EXIT_USAGE, WHERE_NONE, "--chunk '%s': expected INPUT=DIM or INPUT=replicate",
                   text);
    const char *name = arena_strndup(b->scratch, text, (size_t)(eq - text));
    const char **names = arena_array(b->scratch, const char *, g->input.n + 1);
    Value *v = NULL;
    for (uint32_t i = 0; i < g->input.n; i++) {
        names[i] = val(g, g->input.at[i])->name;
        if (strcmp(names[i], name) == 0)
            v = &g->value.at[g->input.at[i]];
    }
    if (!v) {
        if (!diag_meant(name, names, g->input.n))
            diag_hint("'ppsplit ls MODEL.onnx' shows the inputs");
        diag_fatal(EXIT_USAGE, WHERE_FILE(g->file), "--chunk: the model has no input '%s'", name);
    }
    b->open[v - g->value.at] = false;
    if (b->target != NONE && v == &g->value.at[b->target])
        b->target = NONE; /* said */
    if (strcmp(eq + 1, "replicate") == 0) {
        v->batch = BATCH_NONE;
        return;
    }
    char *end;
    errno = 0;
    long dim = strtol(eq + 1, &end, 10);
    if (*end || end == eq + 1 || errno || dim < -v->shape.rank || dim >= v->shape.rank)
        diag_fatal(EXIT_USAGE, WHERE_FILE(g->file), "--chunk '%s': %s has no dimension '%s'", text,
                   shape_print(b->scratch, v->dtype, &v->shape), eq + 1);
    dim += dim < 0 ? v->shape.rank : 0;
    if (v->shape.d[dim] % b->rows != 0)
        diag_fatal(
            EXIT_USAGE, WHERE_FILE(g->file),
            "--chunk '%s': dimension %ld of %s is not a multiple of the %lld rows of a microbatch",
            text, dim, shape_print(b->scratch, v->dtype, &v->shape), (long long)b->rows);
    v->batch = (int)dim;
}

static void reset(Batch *b)
{
    Graph *g = b->g;
    for (ValueId v = b->from; v < g->value.n; v++)
        g->value.at[v].batch = BATCH_NONE;
    if (b->from == 0)
        tag_inputs(b);
    for (NodeId n = 0; n < g->node.n && b->from > 0; n++)
        if (g->node.at[n].out[0] < b->from)
            (void)batch_sweep_node(b, n);
}

/* What the user knows of an output: --merge OUTPUT=DIM, where the rows are. */
static void read_merges(Batch *b, const BatchOptions *opt)
{
    const Graph *g = b->g;
    for (uint32_t i = 0; opt && i < opt->merge.n; i++) {
        const char *text = opt->merge.at[i], *eq = strrchr(text, '=');
        for (uint32_t k = 0; eq && k < g->output.n && k < g->output_name.n; k++) {
            const Value *v = val(g, g->output.at[k]);
            const char *name = g->output_name.at[k];
            if (strlen(name) != (size_t)(eq - text) ||
                strncmp(name, text, (size_t)(eq - text)) != 0)
                continue;
            char *end;
            long dim = strtol(eq + 1, &end, 10);
            if (end != eq + 1 && !*end && dim >= 0 && dim < v->shape.rank &&
                v->shape.d[dim] % b->rows == 0)
                b->said[g->output.at[k]] = (int)dim;
        }
    }
}

/* What the file says of its outputs. */
static void read_outputs(Batch *b)
{
    const Graph *g = b->g;
    const RowsAt *at = g->rows.at.n ? &g->rows.at.at[g->rows.by] : NULL;
    for (uint32_t i = 0; at && i < at->out.n; i++)
        for (uint32_t k = 0; k < g->output.n && k < g->output_name.n; k++)
            if (!strcmp(g->output_name.at[k], at->out.at[i].name) &&
                at->out.at[i].dim < val(g, g->output.at[k])->shape.rank)
                b->told[g->output.at[k]] = at->out.at[i].dim;
}

/* What is made of the target and constants alone is cut as the target is. */
static void find_labels(Batch *b)
{
    const Graph *g = b->g;
    if (b->target == NONE)
        return;
    b->labels[b->target] = true;
    for (NodeId id = 0; id < g->node.n; id++) {
        const Node *n = &g->node.at[id];
        bool some = false, other = false;
        for (uint32_t i = 0; i < n->nin; i++) {
            some |= b->labels[n->in[i]];
            other |= !b->labels[n->in[i]] && val(g, n->in[i])->kind != V_CONST;
        }
        for (uint32_t i = 0; i < n->nout && some && !other; i++)
            b->labels[n->out[i]] = true;
    }
}

/* A target that nothing of known rows was compared with is cut along its first dimension. */
static bool settle_target(Batch *b)
{
    Value *v = b->target == NONE ? NULL : &b->g->value.at[b->target];
    if (!v || v->batch != BATCH_NONE || v->shape.rank == 0 || v->shape.d[0] % b->rows != 0)
        return false;
    v->batch = 0;
    return true;
}

/*
 * What sums over the batch and then goes back into single samples mixes them; a sum that only ends
 * in the loss does not.  at[v]: the node that mixed what v holds.
 */
static void find_mixes(Batch *b, NodeId id, NodeId *at, bool *said, BatchNotes *notes)
{
    Graph *g = b->g;
    const Node *n = &g->node.at[id];
    bool lost = b->why && g->value.at[n->out[0]].batch == BATCH_MIXED && b->row[n->out[0]] < 0;
    NodeId from = b->mixing || b->sums || lost ? id : NONE;
    for (uint32_t i = 0; i < n->nin && from == NONE; i++)
        from = at[n->in[i]];
    if (from == NONE || n->op == OP_Count)
        return;
    bool back = b->mixing || lost;
    for (uint32_t i = 0; i < n->nout; i++)
        back |= g->value.at[n->out[i]].batch >= 0;
    uint32_t origin = g->node.at[from].origin < g->origin.n ? g->node.at[from].origin : g->origin.n;
    if (!back) {
        for (uint32_t i = 0; i < n->nout; i++)
            at[n->out[i]] = from;
    } else if (!said[origin]) {
        said[origin] = true;
        vec_push(g->arena, &notes->mixes, batch_mixed_text(b, from, id));
        vec_push(g->arena, &notes->mixes_at, id);
    }
}

/* Once a node of the file, or the model.  told: by origin, then of the model */
static void note_uneven(const Batch *b, NodeId n, bool *told, BatchNotes *notes)
{
    Graph *g = b->g;
    const uint32_t of = g->node.at[n].origin, all = g->origin.n,
                   at = b->why == batch_handed_on ? all + 1
                        : of < all                ? of
                                                  : all;
    if (!b->why || told[at])
        return;
    told[at] = true;
    vec_push(g->arena, &notes->uneven,
             arena_printf(g->arena, "%s: %s", batch_node_text(g, n), b->why));
    vec_push(g->arena, &notes->uneven_at, n);
}

/* Rounds until no tag changes. */
static void sweep(Batch *b)
{
    for (int round = 0; round < 100; round++) {
        bool changed = false;
        b->changed = false;
        for (NodeId n = 0; n < b->g->node.n; n++)
            if (b->g->node.at[n].nout > 0 && b->g->node.at[n].out[0] >= b->from)
                changed |= batch_sweep_node(b, n);
        if (!changed && !b->changed && !settle_target(b))
            break;
    }
}

/* Which nodes lead to the outputs or the loss: others compute nothing that anybody sees.  NULL:
   all, of the backward or where there is neither. */
static const bool *live_nodes(const Batch *b, const BatchNotes *notes)
{
    const Ids root = graph_results(b->g, b->scratch, notes->loss);
    return b->from > 0 || root.n == 0 ? NULL : graph_live(b->g, b->scratch, 0, &root, 1);
}

void batch_analyse(Graph *g, ValueId from, const BatchOptions *opt, BatchNotes *notes)
{
    Batch b = {.g = g,
               .scratch = g->arena,
               .from = from,
               .rows = g->batch > 0 ? g->batch : 1,
               .values = g->value.n};
    b.target = notes && from == 0 ? notes->target : NONE;
    b.known = notes ? notes->known : NULL;
    b.labels = arena_array(b.scratch, bool, b.values + 1);
    b.open = arena_array(b.scratch, bool, b.values + 1);
    b.said = arena_array(b.scratch, int, b.values + 1);
    b.row = arena_array(b.scratch, int64_t, b.values + 1);
    b.told = arena_array(b.scratch, int, b.values + 1);
    for (ValueId v = 0; v < b.values; v++) {
        b.said[v] = b.told[v] = BATCH_NONE;
        b.row[v] = -1;
    }
    reset(&b);
    for (uint32_t i = 0; from == 0 && opt && i < opt->chunk.n; i++)
        tag_option(&b, opt->chunk.at[i]);
    if (from == 0) {
        read_merges(&b, opt);
        read_outputs(&b);
        find_labels(&b);
    }
    if (from == 0 && b.rows == 1)
        batch_one(&b);
    sweep(&b);
    if (!notes)
        return;
    NodeId *at = arena_none(b.scratch, g->value.n + 1);
    bool *said = arena_array(b.scratch, bool, g->origin.n + 1);
    bool *told = arena_array(b.scratch, bool, g->origin.n + 2);
    b.fate = batch_fates(&b);
    const bool *live = live_nodes(&b, notes);
    for (NodeId n = 0; n < g->node.n; n++) {
        if (g->node.at[n].nout == 0 || g->node.at[n].out[0] < from || (live && !live[n]))
            continue;
        batch_sweep_node(&b, n);
        note_uneven(&b, n, told, notes);
        if (from == 0) {
            find_mixes(&b, n, at, said, notes);
            batch_fate(&b, n, notes);
        }
    }
    if (from == 0)
        batch_meet(&b, notes);
    notes->fate = b.fate;
    notes->outer = arena_array(g->arena, int64_t, g->value.n + 1);
    for (ValueId v = 0; v < g->value.n; v++)
        notes->outer[v] = batch_outer(&b, v);
}
