/*
 * runtime_reference.h - what the pipeline written by hand (runtime_plan.h) has to compute: a
 * minibatch, the parameters, and their gradients by a plain loop in double; the gradients that a
 * run has dumped.
 */
#ifndef RUNTIME_REFERENCE_H
#define RUNTIME_REFERENCE_H

#include "runtime_plan.h"

#include "base/file/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N = 22 }; /* rows of the minibatch: 6 chunks of 4 and 3 */
static float x[N * D], target[D * N], par[4][D];

/* The whole model and its gradients over all rows, in double. */
static inline double reference(int stages, double g[4][D], double y[N * D], double p[4][D])
{
    double loss = 0;
    memset(g, 0, sizeof(double) * 4 * D);
    for (int i = 0; i < N * D; i++) {
        int d = i % D;
        double a = p[0][d], w = p[1][d], b = p[2][d], c = stages == 4 ? p[3][d] : 1,
               X = (double)x[i];
        double h0 = X * a * w, h1 = h0 * h0 * b, h2 = stages == 4 ? h1 * h1 * c : h1, e;
        y[i] = h2 * w + X + a;
        e = y[i] - (double)target[d * N + i / D];
        loss += e * e / (N * D);
        double dy = 2 * e / (N * D), dh2 = dy * w, dh1 = stages == 4 ? dh2 * 2 * h1 * c : dh2,
               dh0 = dh1 * 2 * h0 * b;
        if (stages == 4)
            g[3][d] += dh2 * h1 * h1;
        g[2][d] += dh1 * h0 * h0;
        g[1][d] += dy * h2 + dh0 * X * a;
        g[0][d] += dh0 * X * w + dy;
    }
    return loss;
}

/* Gradients as dumped: file of the stage, name; NULL if not there. */
static inline const float *tensor(StFile *f, const char *dir, int stage, const char *name)
{
    char err[ST_ERR], path[500];
    snprintf(path, sizeof path, "%s/stage%d.safetensors", dir, stage);
    if (st_open(f, path, err, sizeof err))
        return NULL;
    const StTensor *t = st_find(f, name);
    return t ? (const float *)(const void *)t->data : NULL;
}

static inline int near_all(const float *a, const double *b, int n)
{
    for (int i = 0; i < n; i++)
        if (!a || !(fabs((double)a[i] - b[i]) < 2e-5 * (1 + fabs(b[i]))))
            return 0;
    return 1;
}

#endif
