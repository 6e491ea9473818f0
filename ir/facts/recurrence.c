/*
 * recurrence.c - where the rows are in the body of a Recurrence.
 */
#include "facts.h"

/* Finds the rows of the body's values, of which those of its inputs are in dimension dim[i]. */
static void place(Graph *body, int *dim, int64_t rows, Arena *a)
{
    RowsAt at = {.n = body->input.n, .rows = rows, .dim = dim};
    at.open = arena_array(a, bool, at.n + 1);
    body->rows.at.n = body->rows.at.cap = 0;
    body->rows.at.at = NULL;
    vec_push(a, &body->rows.at, at);
    body->rows.by = 0;
    body->batch = rows;
    batch_analyse(body, 0, NULL, NULL);
}

Graph *body_placed(const Graph *g, const Node *n, Arena *a)
{
    const Recurrence *r = n->attr.recurrence;
    Graph *body = graph_twin(r->body, a);
    int *dim = arena_array(a, int, body->input.n + 1);
    for (uint32_t i = 0; i < body->input.n; i++) {
        const int at = val(g, n->in[i])->batch;
        dim[i] = at < 0 ? BATCH_NONE : at - recurrence_is_sequence(r, i);
    }
    place(body, dim, g->batch, a);
    return body;
}

int *body_rows(Graph *body, const int *input, Arena *a)
{
    const uint32_t n = body->input.n;
    int *dim = arena_array(a, int, n + body->output.n + 1);
    int64_t rows = 1;
    for (uint32_t i = 0; i < n; i++) {
        dim[i] = input[i] < 0 ? BATCH_NONE : input[i];
        if (input[i] >= 0)
            rows = val(body, body->input.at[i])->shape.d[input[i]];
    }
    place(body, dim, rows, a);
    for (uint32_t o = 0; o < body->output.n; o++) {
        const int at = val(body, body->output.at[o])->batch;
        dim[n + o] = at < 0 ? -1 : at;
    }
    return dim;
}
