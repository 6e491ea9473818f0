/*
 * meet.c - how microbatches meet in each output.  In: what the analysis of the rows found, the
 * loss,
 * --merge.  Out: Pipe.merge, Pipe.target_why; warnings of outputs, losses and targets whose rows
 * are not known.
 */
#include <stdlib.h>
#include <string.h>

#include "pipe_int.h"

/* --merge OUTPUT=DIM|sum|mean: DIM can only confirm where the rows are. */
static void merge_option(Pipe *p, const char *text)
{
    const Graph *g = p->graph;
    const char *eq = strrchr(text, '=');
    if (!eq)
        diag_fatal(EXIT_USAGE, WHERE_NONE,
                   "--merge wants OUTPUT=DIM, OUTPUT=sum or OUTPUT=mean, not '%s'", text);
    const char *name = arena_strndup(g->arena, text, (size_t)(eq - text));
    uint32_t i = 0;
    while (i < g->output.n && strcmp(g->output_name.at[i], name))
        i++;
    if (i == g->output.n) {
        if (!diag_meant(name, g->output_name.at, g->output_name.n))
            diag_hint("'ppsplit ls MODEL.onnx' shows the outputs");
        diag_fatal(EXIT_USAGE, WHERE_FILE(g->file), "--merge: the model has no output '%s'", name);
    }
    int rows = val(g, g->output.at[i])->batch;
    OutputMeeting *meet = &p->merge.at[i];
    bool sum = !strcmp(eq + 1, "sum"), mean = !strcmp(eq + 1, "mean");
    char *end;
    long dim = strtol(eq + 1, &end, 10);
    if (sum || mean) {
        if (rows >= 0)
            diag_fatal(EXIT_MODEL, WHERE_FILE(g->file),
                       "--merge: output '%s' has a row for every sample, which %s would mix", name,
                       eq + 1);
        if (!dtype_is_float(val(g, g->output.at[i])->dtype))
            diag_fatal(EXIT_MODEL, WHERE_FILE(g->file),
                       "--merge: output '%s' is not floating-point: %s", name, eq + 1);
        *meet = (OutputMeeting){sum ? MERGE_SUM : MERGE_MEAN, NULL};
    } else if (*end || end == eq + 1)
        diag_fatal(EXIT_USAGE, WHERE_NONE,
                   "--merge wants OUTPUT=DIM, OUTPUT=sum or OUTPUT=mean, not '%s'", text);
    else if (dim != rows) {
        if (meet->why)
            diag_note("%s", meet->why);
        diag_fatal(EXIT_MODEL, WHERE_FILE(g->file),
                   rows >= 0 ? "--merge: output '%s' has its rows in dimension %d"
                             : "--merge: output '%s' has no rows to put one after the other",
                   name, rows);
    }
}

/* Where the rows of the inputs are was told by their sizes alone. */
static void note_sizes(const Graph *g)
{
    enum { MOST = 8 };
    const RowsAt *at = g->rows.at.n ? &g->rows.at.at[g->rows.by] : NULL;
    const char *list = "";
    uint32_t n = 0;
    for (uint32_t i = 0; at && i < at->n; i++) {
        const Value *v = val(g, g->input.at[i]);
        if (!at->open[i] || v->shape.rank == 0 || n++ >= MOST)
            continue;
        const char *name = diag_escape(g->arena, v->name);
        list = v->batch < 0
                   ? arena_printf(g->arena, "%s%s%s=replicate", list, n > 1 ? ", " : "", name)
                   : arena_printf(g->arena, "%s%s%s=%d", list, n > 1 ? ", " : "", name, v->batch);
    }
    if (n > 0)
        diag_hint("the file does not say which dimension of these inputs has the rows; ppsplit "
                  "assumes --chunk %s%s; use --chunk INPUT=replicate|DIM if that is wrong",
                  list, n > MOST ? " and so on" : "");
}

/* Outputs in which microbatches cannot meet, a warning for each reason. */
static void warn_apart(const Pipe *p)
{
    enum { MOST = 8 }; /* names in one */
    const Graph *g = p->graph;
    bool *said = arena_array(g->arena, bool, p->merge.n + 1);
    for (uint32_t i = 0; i < p->merge.n; i++) {
        const char *names = "", *name = diag_escape(g->arena, g->output_name.at[i]);
        uint32_t n = 0;
        for (uint32_t k = i; k < p->merge.n && p->merge.at[i].how == MERGE_NONE; k++) {
            const Value *v = val(g, g->output.at[k]);
            if (p->merge.at[k].how != MERGE_NONE || said[k] ||
                strcmp(p->merge.at[k].why, p->merge.at[i].why) != 0)
                continue;
            said[k] = true;
            if (n++ < MOST)
                names = arena_printf(g->arena, "%s%s'%s' %s", names, n > 1 ? ", " : "",
                                     diag_escape(g->arena, g->output_name.at[k]),
                                     shape_print(g->arena, v->dtype, &v->shape));
        }
        if (n == 0)
            continue;
        diag_note("%s", p->merge.at[i].why);
        diag_hint("say how with --merge %s=DIM|sum|mean, or make the whole batch one microbatch: "
                  "export for that size, or --bind it",
                  name);
        note_sizes(g);
        diag_warn(WHERE_FILE(g->file),
                  "output%s %s%s: the results of several microbatches cannot be put together",
                  n > 1 ? "s" : "", names,
                  n > MOST ? arena_printf(g->arena, " and %u more", n - MOST) : "");
    }
}

void meet_choose(Pipe *p, const PartitionOptions *opt, const BatchNotes *notes, const bool *part)
{
    const Graph *g = p->graph;
    const char *loss =
        p->loss_text && strncmp(p->loss_text, "output:", 7) == 0 ? p->loss_text + 7 : NULL;
    for (uint32_t i = 0; i < g->output.n; i++) {
        vec_push(g->arena, &p->merge, notes->output.at[i]);
        if (loss && strcmp(g->output_name.at[i], loss) == 0)
            p->merge.at[i] = (OutputMeeting){p->scale == LOSS_SUM ? MERGE_SUM : MERGE_MEAN, NULL};
        if (part && part[val(g, g->output.at[i])->node])
            p->merge.at[i] = (OutputMeeting){MERGE_LAST, NULL};
    }
    for (uint32_t i = 0; opt && i < opt->batch.merge.n; i++)
        merge_option(p, opt->batch.merge.at[i]);
    if (p->alone)
        return;
    warn_apart(p);
    if (p->loss_why) {
        note_sizes(g);
        loss_warn(p);
    } else if (notes->loss_why && !notes->target_why && !part) {
        diag_note("%s", notes->loss_why);
        diag_hint("to train on the whole batch, make it one microbatch: export for that size, or "
                  "--bind it");
        note_sizes(g);
        diag_warn(WHERE_FILE(g->file), "with several microbatches the loss is not that of the "
                                       "minibatch: each microbatch is a batch of its own");
    }
    p->target_why = notes->target_why;
    if (p->target_why) {
        diag_note("%s", p->target_why);
        diag_hint("say where they are with --chunk target=DIM, or with --merge OUTPUT=DIM for the "
                  "output it is compared with; without that, only --microbatches 1 trains");
        note_sizes(g);
        diag_warn(WHERE_FILE(g->file), "it is not known which rows of the target belong to a "
                                       "microbatch: only a single microbatch trains");
    }
}
