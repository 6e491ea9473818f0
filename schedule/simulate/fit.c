/*
 * fit.c - in: samples of what some lengths take.  Out: the polynomial of lengths that is nearest.
 *
 * Least squares with coefficients of 0 and more: coordinate descent on the normal equations, each
 * column on the scale of its greatest element (Franc, Hlavac, Navara: Sequential coordinate-wise
 * algorithm for the non-negative least squares problem, 2005).
 */
#include "simulate.h"

int sched_terms(int n, const double *x, double *to)
{
    int k = 0;
    to[k++] = 1;
    for (int i = 0; i < n; i++)
        to[k++] = x[i];
    for (int i = 0; i < n; i++)
        for (int j = i; j < n; j++)
            to[k++] = x[i] * x[j];
    return k;
}

void sched_least(int m, const double *gram, const double *right, double *c)
{
    enum { SWEEPS = 4000 };
    double moved = 1, all = 1;
    for (int i = 0; i < m; i++)
        c[i] = 0;
    for (int sweep = 0; sweep < SWEEPS && moved > 1e-9 * all; sweep++) {
        moved = all = 0;
        for (int i = 0; i < m; i++) {
            double rest = right[i], was = c[i];
            for (int j = 0; j < m; j++)
                rest -= gram[i * m + j] * c[j];
            c[i] += gram[i * m + i] > 0 ? rest / gram[i * m + i] : 0;
            c[i] = c[i] > 0 ? c[i] : 0;
            moved += c[i] > was ? c[i] - was : was - c[i];
            all += c[i];
        }
    }
}

SchedFit sched_fit(int n, const double *x, const double *t, size_t samples)
{
    double gram[SCHED_TERMS * SCHED_TERMS] = {0}, right[SCHED_TERMS] = {0}, row[SCHED_TERMS],
                              most[SCHED_TERMS] = {0};
    SchedFit f = {{0}};
    int m = 0;
    for (size_t k = 0; k < samples; k++) {
        m = sched_terms(n, x + k * (size_t)n, row);
        for (int i = 0; i < m; i++)
            most[i] = row[i] > most[i] ? row[i] : most[i];
    }
    for (int i = 0; i < m; i++) /* of no length at all */
        most[i] = most[i] > 0 ? most[i] : 1;
    for (size_t k = 0; k < samples; k++) {
        sched_terms(n, x + k * (size_t)n, row);
        for (int i = 0; i < m; i++)
            for (int j = 0; j < m; j++)
                gram[i * m + j] += row[i] / most[i] * row[j] / most[j];
        for (int i = 0; i < m; i++)
            right[i] += row[i] / most[i] * t[k];
    }
    sched_least(m, gram, right, f.c);
    for (int i = 0; i < m; i++)
        f.c[i] /= most[i];
    return f;
}

double sched_fit_at(const SchedFit *f, int n, const double *x)
{
    double row[SCHED_TERMS], sum = 0;
    for (int i = sched_terms(n, x, row); i-- > 0;)
        sum += f->c[i] * row[i];
    return sum;
}
