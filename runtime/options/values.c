/*
 * values.c - in: the text of an option's value; out: the value in Options, or one line that says
 * what is wrong and what was meant.  And back: values as the command line takes them.
 */
#include "options/spec.h"

#include "base/cli/nearest.h"
#include "base/cli/options.h"
#include "base/file/memory.h"
#include "device/device.h"
#include "net/wires.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

PpStatus option_unknown(const char *what, const char *word, const char *const *list, int n)
{
    const char *meant = nearest_name(word, list, (size_t)n);
    char all[400] = "";
    for (int i = 0, at = 0; i < n && at < (int)sizeof all; i++)
        at += snprintf(all + at, sizeof all - (size_t)at, "%s%s", i ? ", " : "", list[i]);
    return pp_fail(PP_ERR_USAGE, "unknown %s '%s'%s%s%s (there are %s)", what, word,
                   meant ? "; did you mean '" : "", meant ? meant : "", meant ? "'?" : "", all);
}

static PpStatus unknown_optimizer(const char *word)
{
    const char *names[OPTIMIZERS];
    for (int i = 0; i < OPTIMIZERS; i++)
        names[i] = optimizers[i].name;
    return option_unknown("optimizer", word, names, OPTIMIZERS);
}

static PpStatus parse_number(const Spec *s, const char *v, void *at)
{
    char *end;
    errno = 0;
    if (kind_of(s) == K_REAL) {
        double x = strtod(v, &end);
        if (!*v || *end || errno || !(x >= s->min) || x > 1e300)
            return pp_fail(PP_ERR_USAGE, "--%s: '%s' is not a number from %g up", s->name, v,
                           s->min);
        memcpy(at, &x, sizeof x);
        return PP_OK;
    }
    int64_t n = strtoll(v, &end, 10), max = kind_of(s) == K_INT ? INT32_MAX : INT64_MAX;
    if (!*v || *end || errno || n < (int64_t)s->min || n > max)
        return pp_fail(PP_ERR_USAGE, "--%s: '%s' is not a whole number from %g up", s->name, v,
                       s->min);
    if (kind_of(s) == K_INT) {
        int small = (int)n;
        memcpy(at, &small, sizeof small);
    } else {
        memcpy(at, &n, sizeof n);
    }
    return PP_OK;
}

static PpStatus parse_bytes(const Spec *s, const char *v, void *at)
{
    int64_t n;
    if (!option_bytes(v, &n))
        return pp_fail(PP_ERR_USAGE,
                       "--%s: '%s' is not a number of bytes, as 24G (K, M, G, T: times 1024)",
                       s->name, v);
    memcpy(at, &n, sizeof n);
    return PP_OK;
}

static PpStatus parse_pair(Options *o, const Spec *s, const char *v, Pairs *list)
{
    const char *eq = strchr(v, '=');
    if (!eq || eq == v || !eq[1])
        return pp_fail(PP_ERR_USAGE, "--%s %s: expected %s", s->name, v, s->value);
    const NameFile one = {pool_text(&o->pool, v, (size_t)(eq - v)), eq + 1};
    if (!one.name)
        return pp_no_memory();
    int files = s->at == AT(data.files) || s->at == AT(data.tokens) || s->at == AT(eval.files) ||
                s->at == AT(eval.tokens); /* an input's follow one another */
    for (int i = 0; i < list->n && !files; i++)
        if (!strcmp(list->at[i].name, one.name))
            return pp_fail(PP_ERR_USAGE, "--%s %s is given twice", s->name, one.name);
    return pp_add(&o->pool, &list->at, &list->n, &one, sizeof one);
}

/* name(i): the names that the option takes, NULL past the end. */
static PpStatus choose(void *at, const char *what, const char *v, const char *(*name)(int))
{
    const char *list[16];
    int n = 0;
    for (const char *s; n < 16 && (s = name(n)) != NULL; n++) {
        list[n] = s;
        if (strcmp(v, s) != 0)
            continue;
        memcpy(at, &s, sizeof s);
        return PP_OK;
    }
    return option_unknown(what, v, list, n);
}

static const char *offload_name(int i)
{
    static const char *const name[] = {"stash", "params"};
    return i < 2 ? name[i] : NULL;
}

static const char *nonfinite_name(int i) { return i == 0 ? "stop" : i == 1 ? "skip" : NULL; }

PpStatus option_apply(Options *o, const Spec *s, const char *v)
{
    void *at = (char *)o + s->at;
    switch (kind_of(s)) {
    case K_TEXT: memcpy(at, &v, sizeof v); return PP_OK;
    case K_FLAG: *(int *)at = 1; return PP_OK;
    case K_PAIR: return parse_pair(o, s, v, at);
    case K_OPTIMIZER: return optim_find(v, &o->train.optimizer) ? PP_OK : unknown_optimizer(v);
    case K_PLACEMENT:
        o->schedule.placement = !strcmp(v, "v") ? SCHED_PLACE_V : SCHED_PLACE_LOOP;
        return !strcmp(v, "v") || !strcmp(v, "loop")
                   ? PP_OK
                   : pp_fail(PP_ERR_USAGE, "--placement: expected loop or v, not '%s'", v);
    case K_DEVICE: return choose(at, "device", v, device_name);
    case K_TRANSPORT: return choose(at, "transport", v, transport_name);
    case K_OFFLOAD: {
        const char *what = "";
        TRY(choose(&what, "thing to offload", v, offload_name));
        o->memory.offload |= *what == 's' ? OFFLOAD_STASH : OFFLOAD_PARAMS;
        return PP_OK;
    }
    case K_LR_SCHEDULE: return choose(at, "schedule of the learning rate", v, lr_schedule_name);
    case K_NONFINITE: return choose(at, "way on", v, nonfinite_name);
    case K_LIST: return pp_add(&o->pool, &((Words *)at)->at, &((Words *)at)->n, &v, sizeof v);
    case K_SEED: o->data.shuffle |= s->at == AT(data.shuffle_seed); return parse_number(s, v, at);
    case K_INT:
    case K_LONG:
    case K_REAL: return parse_number(s, v, at);
    case K_BYTES: return parse_bytes(s, v, at);
    case K_GROUP: break;
    }
    return PP_ERR_BUG;
}

/* ---- values as text ---- */

/* The fewest digits that read back as x. */
static void put_real(FILE *f, double x)
{
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    fputs(text, f);
}

/* In the order in which they were given, which changes nothing but this text. */
static void put_pairs(FILE *f, const Pairs *list, int names)
{
    for (int i = 0; i < list->n; i++)
        fprintf(f, "%s%s%s%s", i ? " " : "", list->at[i].name, names ? "" : "=",
                names ? "" : list->at[i].file);
    fputs(list->n ? "" : "none", f);
}

static void put_words(FILE *f, const Words *list)
{
    for (int i = 0; i < list->n; i++)
        fprintf(f, "%s%s", i ? " " : "", list->at[i]);
    fputs(list->n ? "" : "none", f);
}

static const char *offload_text(int which)
{
    static const char *const text[] = {"none", "stash", "params", "stash params"};
    return text[which & (OFFLOAD_STASH | OFFLOAD_PARAMS)];
}

static const char *placement_text(int which)
{
    return which == SCHED_PLACE_V ? "v" : which == SCHED_PLACE_LOOP ? "loop" : "none";
}

static const char *value_name(const Options *o, const Spec *s, int names)
{
    const void *at = (const char *)o + s->at;
    const int *small = at;
    const char *const *text = at;
    switch (kind_of(s)) {
    case K_FLAG: return *small > 0 ? "yes" : "none";
    case K_OPTIMIZER: return optimizers[o->train.optimizer].name;
    case K_PLACEMENT: return placement_text(*small);
    case K_OFFLOAD: return offload_text(*small);
    default: return !*text ? "none" : names ? s->value : *text;
    }
}

static void put_value(FILE *f, const Options *o, const Spec *s, int names)
{
    const void *at = (const char *)o + s->at;
    const double *real = at;
    const int64_t *whole = at;
    const int *small = at;
    switch (kind_of(s)) {
    case K_PAIR: put_pairs(f, at, names); break;
    case K_LIST: put_words(f, at); break;
    case K_INT: fprintf(f, "%d", *small); break;
    case K_BYTES:
    case K_LONG: fprintf(f, "%" PRId64, *whole); break;
    case K_REAL:
        if (*real >= 0)
            put_real(f, *real);
        else
            fputs("none", f);
        break;
    case K_SEED:
        if (s->at != AT(data.shuffle_seed) || o->data.shuffle)
            fprintf(f, "%" PRId64, *whole);
        else
            fputs("none", f);
        break;
    default: fputs(value_name(o, s, names), f);
    }
}

const char *option_text(const Options *o, const Spec *s, int names, Pool *pool)
{
    Memory text;
    FILE *f = memory_open(&text);
    if (f)
        put_value(f, o, s, names);
    if (memory_close(f, &text))
        return NULL;
    const char *kept = pool_text(pool, text.at, text.n);
    free(text.at);
    return kept;
}
