/*
 * runtime_train.h - runs of a pipeline written by hand that leave checkpoints, and whether two
 * checkpoints are of the same bits.
 */
#ifndef RUNTIME_TRAIN_H
#define RUNTIME_TRAIN_H

#include "base/file/index.h"
#include "runtime_run.h"

/* The same tensors, the same bytes, in whatever pieces. */
static int same_checkpoints(const char *a, const char *b)
{
    Index p = {0}, q = {0};
    char err[INDEX_ERR] = "";
    int same = !index_open(&p, a, err, sizeof err) && !index_open(&q, b, err, sizeof err) &&
               p.n_tensor == q.n_tensor && p.n_tensor > 0;
    for (int i = 0; same && i < p.n_tensor; i++) {
        const IndexTensor *s = &p.tensor[i], *t = &q.tensor[i];
        const void *u = index_bytes(&p, s, err, sizeof err),
                   *v = index_bytes(&q, t, err, sizeof err);
        same = u && v && !strcmp(s->name, t->name) && s->bytes == t->bytes &&
               !memcmp(u, v, (size_t)s->bytes);
    }
    if (!same)
        printf("# %s, %s: %s\n", a, b, err);
    index_close(&p);
    index_close(&q);
    return same;
}

/* Trains up to a step into the folder `to`; the loss and norm of the last step, as text. */
static const char *train(const PpPlan *p, int steps, const char *to, const char *how)
{
    static char numbers[2][200];
    static int k;
    char *last = numbers[k = !k], want[40];
    int s = command_line(p, "train --data x=%s --data target=%s --log-json %s --checkpoint %s "
                            "--steps %d %s", at("x.npy"), at("t.npy"), at("log"), at(to), steps,
                         how);
    snprintf(want, sizeof want, "\"step\": %d,", steps);
    const char *line = strstr(slurp(at("log")), want);
    last[0] = 0;
    if (line)
        snprintf(last, sizeof numbers[0], "%.*s",
                 (int)(strstr(line, "\"seconds\"") - line), line);
    if (s)
        printf("# exit %d: %s", s, slurp(at("err")));
    return last;
}

static void forget(const char *folder_in)
{
    char line[500];
    snprintf(line, sizeof line, "rm -rf %s", at(folder_in));
    if (system(line))
        printf("# left behind: %s\n", folder_in);
}

#endif
