/*
 * test_mix.c - --mix (runtime/io/mix.c): at any place of an epoch each dataset has had its share, to
 * one row; its rows come in their order and over epochs as if there were no epochs; what the option
 * cannot say is refused.
 */
#include "runtime/core/core.h"
#include "runtime/io/data.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SETS = 3, ROWS = 1000, EPOCHS = 4 };

/* 7 rows in two files, 900, 93: less and more than their shares */
static DataFile files[] = {{.first = 0, .rows = 3, .set = 0},
                           {.first = 3, .rows = 4, .set = 0},
                           {.first = 7, .rows = 900, .set = 1},
                           {.first = 907, .rows = 93, .set = 2}};
static DataInput input = {.file = files, .n = 4, .sets = SETS, .rows = ROWS};
static const PpTensor tensor = {.name = "x"};
static const PpPlan plan = {.n_input = 1, .input = &tensor};

static PpStatus open(Data *d, const char *weights)
{
    static NameFile mix;
    static Options o;
    mix = (NameFile){"x", weights};
    o = (Options){.data.mixes = {&mix, 1}};
    *d = (Data){.model = &plan, .opt = &o, .input = &input, .rows = ROWS};
    return mix_open(d);
}

static void check_order(const char *weights, const double *share)
{
    static int64_t order[ROWS];
    Data d;
    int64_t next[SETS] = {0};
    int shares = open(&d, weights) == PP_OK, ordered = shares;
    for (int64_t epoch = 0; epoch < EPOCHS && shares; epoch++) {
        double had[SETS] = {0};
        ordered &= mix_order(&d, epoch, order) == PP_OK;
        for (int64_t i = 0; i < ROWS; i++) {
            int k = order[i] >= 907 ? 2 : order[i] >= 7;
            int64_t first = d.mix[k].first, rows = d.mix[k].rows;
            ordered &= order[i] == first + next[k] % rows;
            next[k]++;
            had[k]++;
            for (int j = 0; j < SETS; j++)
                shares &= fabs(had[j] - share[j] * (double)(i + 1)) < 1 + 1e-9;
        }
    }
    ok(shares, "%s: at any place each has had its share, to one row", weights);
    ok(ordered, "%s: rows in their order, from the beginning again, over epochs", weights);
    pool_free(&d.pool);
}

static void refused(const char *weights, const char *why)
{
    Data d;
    int bad = open(&d, weights) == PP_ERR_USAGE;
    ok(bad && strstr(pp_failure_text(), why), "%s: %s", weights, bad ? pp_failure_text() : "");
    pp_failure_forget();
    pool_free(&d.pool);
}

int main(void)
{
    check_order("1,2,1", (const double[]){0.25, 0.5, 0.25});
    check_order("0.7,0.1,0.2", (const double[]){0.7, 0.1, 0.2});
    check_order("1e-3,1,1", (const double[]){1e-3 / 2.001, 1 / 2.001, 1 / 2.001});
    refused("1,2", "2 weights, but 3 options");
    refused("1,2,3,4", "4 weights, but 3 options");
    refused("1,2,x", "positive numbers");
    refused("1,2,", "positive numbers");
    refused("1,2,0", "positive numbers");
    refused("1,2,-1", "positive numbers");
    refused("1,2,nan", "positive numbers");
    refused("", "0 weights");
    return tap_done();
}
