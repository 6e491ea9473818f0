/*
 * init.c - --init PATTERN=KIND: the numbers that parameters begin with, in place of a file's.
 *
 * In: a parameter's name, its shape in the whole model, the run's --seed, and the part of it that
 * is wanted.  Out: that part.  Element i is a function of seed, name and i alone (Philox,
 * pp_random.h), so splits, meshes, replicas and ranks have the same numbers, and none makes more
 * than its part.
 *
 * fan_in and fan_out are those of torch.nn.init: dimension 1, and dimension 0, times what is behind
 * them.  Bounds are those of xavier_uniform_ and kaiming_uniform_ (Glorot, Bengio 2010; He, Zhang,
 * Ren, Sun 2015), and with `default` those of nn.Linear and the convolutions: 1 / sqrt(fan_in), of
 * the weight beside it for a bias.
 */
#include "init.h"

#include "api/pp_math.h"
#include "api/pp_random.h"
#include "base/file/hash.h"
#include "base/file/safetensors.h"
#include "core/number.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { KIND_NORMAL, KIND_UNIFORM, KIND_ZEROS, KIND_ONES, KIND_XAVIER, KIND_KAIMING, KIND_DEFAULT };

/* argument: it takes one, and what it is without */
static const struct {
    const char *name;
    int argument;
    double otherwise;
} kinds[] = {
    [KIND_NORMAL] = {"normal", 1, 1},   [KIND_UNIFORM] = {"uniform", 1, 1},
    [KIND_ZEROS] = {"zeros", 0, 0},     [KIND_ONES] = {"ones", 0, 0},
    [KIND_XAVIER] = {"xavier", 0, 0},   [KIND_KAIMING] = {"kaiming", 0, 0},
    [KIND_DEFAULT] = {"default", 0, 0},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef struct {
    const char *text, *kind; /* the option; behind its last '=' */
    int number;
    double argument;
} Rule;

static PpStatus parse(const char *text, Rule *r)
{
    const char *equals = strrchr(text, '='), *colon;
    char *end;
    *r = (Rule){.text = text, .kind = equals ? equals + 1 : "", .number = -1};
    colon = strchr(r->kind, ':');
    size_t n = colon ? (size_t)(colon - r->kind) : strlen(r->kind);
    for (int i = 0; i < KINDS && equals > text; i++)
        if (strlen(kinds[i].name) == n && !strncmp(kinds[i].name, r->kind, n))
            r->number = i;
    if (r->number < 0)
        return pp_fail(PP_ERR_USAGE,
                       "--init %s: expected PATTERN=KIND, with a kind of normal:STD, uniform:A, "
                       "zeros, ones, xavier, kaiming or default",
                       text);
    r->argument = kinds[r->number].otherwise;
    if (!colon)
        return PP_OK;
    r->argument = strtod(colon + 1, &end);
    if (!kinds[r->number].argument || end == colon + 1 || *end || !(r->argument >= 0) ||
        r->argument > 1e30)
        return pp_fail(PP_ERR_USAGE,
                       kinds[r->number].argument ? "--init %s: '%s' is not a number of 0 or more"
                                                 : "--init %s: unexpected '%s' after the kind",
                       text, colon + 1);
    return PP_OK;
}

static int matches(const Rule *r, const char *name)
{
    size_t n = (size_t)(strrchr(r->text, '=') - r->text);
    char *pattern = strndup(r->text, n);
    int is = pattern && fnmatch(pattern, name, 0) == 0;
    free(pattern);
    return is;
}

/* ---- what a parameter begins with ---- */

typedef struct {
    double in, out;
} Fans;

static Fans fans_of(const PpParam *p)
{
    int64_t dim[PP_MAX_RANK];
    double behind = 1;
    param_shape(p, dim);
    for (int i = 2; i < p->t.rank; i++)
        behind *= (double)dim[i];
    return (Fans){(double)dim[1] * behind, (double)dim[0] * behind};
}

/* "h.0.fc.bias" is beside "h.0.fc.weight"; NULL: there is none of two dimensions. */
static const PpParam *weight_beside(const PpPlan *plan, const char *name)
{
    static const char bias[] = "bias", weight[] = "weight";
    size_t n = strlen(name), stem = n - (sizeof bias - 1);
    if (n < sizeof bias - 1 || strcmp(name + stem, bias) != 0)
        return NULL;
    for (ParamName i = {0}; param_next(plan, &i);)
        if (i.p->t.rank >= 2 && strlen(i.name) == stem + sizeof weight - 1 &&
            !strncmp(i.name, name, stem) && !strcmp(i.name + stem, weight))
            return i.p;
    return NULL;
}

static int ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

static double inverse_root(double x) { return x > 0 ? 1 / pp_sqrt(x) : 0; }

/* normal: of this deviation; uniform: within this bound; else all are `value` */
static void by_default(const PpPlan *plan, const PpParam *p, const char *name, Init *to)
{
    const PpParam *weight = p->t.rank >= 2 ? p : weight_beside(plan, name);
    to->uniform = weight != NULL;
    if (weight)
        to->spread = inverse_root(fans_of(weight).in);
    else
        to->value = ends_with(name, "weight") || ends_with(name, "var");
}

static PpStatus apply(const Rule *r, const PpPlan *plan, const PpParam *p, const char *name,
                      Init *to)
{
    int by_fan = r->number == KIND_XAVIER || r->number == KIND_KAIMING;
    Fans f = p->t.rank >= 2 ? fans_of(p) : (Fans){0};
    if (by_fan && p->t.rank < 2)
        return pp_fail(
            PP_ERR_USAGE,
            "--init %s: '%s' has %d dimension%s, %s needs two; add a later --init for it", r->text,
            name, p->t.rank, p->t.rank == 1 ? "" : "s", r->kind);
    to->uniform = r->number == KIND_UNIFORM || by_fan;
    to->normal = r->number == KIND_NORMAL;
    to->value = r->number == KIND_ONES;
    to->spread = r->number == KIND_XAVIER    ? pp_sqrt(6 / (f.in + f.out))
                 : r->number == KIND_KAIMING ? pp_sqrt(6 / f.in)
                                             : r->argument;
    if (r->number == KIND_DEFAULT)
        by_default(plan, p, name, to);
    return PP_OK;
}

PpStatus init_of(const Options *o, const PpPlan *plan, const PpParam *p, const char *name, Init *to)
{
    *to = (Init){.seed = o->data.seed, .name = hash_bytes(HASH_START, name, strlen(name))};
    for (int i = o->train.init.n; i-- > 0 && !to->given;) {
        Rule r;
        TRY(parse(o->train.init.at[i], &r));
        to->given = matches(&r, name) && (!p->stat || r.number == KIND_DEFAULT);
        if (to->given)
            TRY(apply(&r, plan, p, name, to));
    }
    return PP_OK;
}

PpStatus init_check(const Options *o, const PpPlan *plan)
{
    for (int i = 0; i < o->train.init.n; i++) {
        Rule r;
        int any = 0;
        TRY(parse(o->train.init.at[i], &r));
        for (ParamName k = {0}; param_next(plan, &k);)
            any |= matches(&r, k.name);
        if (!any)
            return pp_fail(PP_ERR_USAGE,
                           "--init %s: no parameter matches; `ppsplit ls --parameters' lists them",
                           r.text);
    }
    return PP_OK;
}

/* ---- numbers ---- */

/* Element i, to float32's precision in either type.  Four elements have a counter, which no step of
 * the run has; of each pair of its numbers two normal ones are made (Box, Muller 1958).  The
 * functions are ours, so that every machine has the same bits. */
static double number(const Init *x, int64_t i)
{
    static const uint64_t apart = UINT64_C(0x696e697469616c73);
    uint32_t bits[4];
    if (!x->normal && !x->uniform)
        return x->value;
    pp_philox(x->seed ^ apart, x->name >> 32, UINT64_MAX, (uint64_t)i / 4, (uint32_t)x->name, bits);
    int k = (int)(i % 4), pair = k & ~1;
    if (x->uniform)
        return x->spread * (2 * (double)pp_uniformf(bits[k]) - 1);
    float radius = pp_sqrtf(-2 * pp_logf(pp_uniformf(bits[pair]))),
          angle = 0x1.921fb6p+2f * pp_uniformf(bits[pair + 1]); /* 2 pi v */
    return x->spread * (double)(radius * (k & 1 ? pp_sinf(angle) : pp_cosf(angle)));
}

void init_fill(const Init *x, int dtype, const Box *part, char *to)
{
    int64_t size = st_dtype_size(dtype);
    for (int64_t i = 0, n, at; i < part->bytes; i += n) {
        n = box_run(part, i, &at);
        for (int64_t k = 0; k < n && at >= 0; k += size)
            number_put(to + i + k, 0, dtype, number(x, (at + k) / size));
    }
}
