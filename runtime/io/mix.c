/*
 * mix.c - --mix INPUT=WEIGHT,WEIGHT,...: rows of several texts, or of other files, in given shares.
 *
 * In: the datasets of an input, one for each of its options, whose rows follow one another, and
 * their weights.  Out: which row is the i-th of an epoch.  Place i goes to the dataset that lags
 * most behind its share of i + 1 places, the first of several (as Megatron-LM blends datasets), so
 * at any time each has had its share, to one row.  A dataset's rows come in their order and from
 * the beginning again, over epochs too: where a run stands follows from its epoch and row, and a
 * resumed one goes on there.
 */
#include "data.h"

#include "core/core.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The numbers of the text, separated by commas, as shares of their sum */
static PpStatus parse_weights(const NameFile *mix, MixSet *set, int n)
{
    const char *at = mix->file;
    double sum = 0;
    int k = 0;
    for (char *end; *at; at = *end ? end + 1 : end, k++) {
        double w = strtod(at, &end);
        if (end == at || (*end && *end != ',') || (*end && !end[1]) || !(w > 0 && w < 1e9))
            return pp_fail(PP_ERR_USAGE,
                           "--mix %s=%s: expected positive numbers separated by commas", mix->name,
                           mix->file);
        if (k < n)
            set[k].weight = w;
        sum += w;
    }
    for (int i = 0; i < n && k == n; i++)
        set[i].weight /= sum;
    return k == n ? PP_OK
                  : pp_fail(PP_ERR_USAGE,
                            "--mix %s=%s: %d weight%s, but %d option%s it files: give one "
                            "weight for each",
                            mix->name, mix->file, k, k == 1 ? "" : "s", n,
                            n == 1 ? " gives" : "s give");
}

PpStatus mix_open(Data *d)
{
    const NameFile *mix = d->opt->data.mixes.at;
    int input;
    if (!d->opt->data.mixes.n || d->opt->eval.on)
        return PP_OK;
    if (d->opt->data.mixes.n > 1)
        return pp_fail(PP_ERR_USAGE, "--mix %s and %s: only one input can have weights",
                       mix[0].name, mix[1].name);
    TRY(data_find(d->model, "mix", mix->name, &input));
    const DataInput *in = &d->input[input];
    TRY(pp_take(&d->pool, &d->mix, in->sets, sizeof *d->mix));
    TRY(parse_weights(mix, d->mix, in->sets));
    for (int k = in->n; k-- > 0;) {
        MixSet *set = &d->mix[in->file[k].set];
        set->first = in->file[k].first;
        set->rows += in->file[k].rows;
    }
    for (int k = 0; k < in->sets; k++)
        if (!d->mix[k].rows)
            return pp_fail(PP_ERR_MODEL, "--mix %s: its option number %d gives no rows", mix->name,
                           k + 1);
    d->n_mix = in->sets;
    return PP_OK;
}

/* The dataset of place i, when so many places before it were theirs. */
static int next(const Data *d, int64_t i, const int64_t *taken)
{
    int best = 0;
    double most = -1;
    for (int k = 0; k < d->n_mix; k++) {
        double lags = d->mix[k].weight * (double)(i + 1) - (double)taken[k];
        if (lags > most) {
            best = k;
            most = lags;
        }
    }
    return best;
}

/* Each epoch has the same places for a dataset: those of epochs before are so many times as many.
 */
PpStatus mix_order(const Data *d, int64_t epoch, int64_t *order)
{
    int64_t *taken;
    POOL(room);
    TRY(pp_take(&room, &taken, d->n_mix, sizeof *taken));
    for (int64_t i = 0; i < d->rows; i++) {
        int k = next(d, i, taken);
        taken[k]++;
        order[i] = k; /* for now */
    }
    for (int k = 0; k < d->n_mix; k++) {
        const MixSet *set = &d->mix[k];
        int64_t each = taken[k] % set->rows, at = each * (epoch % set->rows) % set->rows;
        taken[k] = at;
    }
    for (int64_t i = 0; i < d->rows; i++) {
        int k = (int)order[i];
        order[i] = d->mix[k].first + taken[k];
        taken[k] = taken[k] + 1 == d->mix[k].rows ? 0 : taken[k] + 1;
    }
    return PP_OK;
}
