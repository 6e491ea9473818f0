/* Ranks of a run are started with the same options: each option but those that are a rank's own is
   compared by its value, or, of files whose contents are, by what it is given for. */
#include "runtime_plan.h"

#include "options/options.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name, *value, *with[4]; /* what it needs beside it */
} Sample;

static const Sample samples[] = {
    {"ranks", "8", {0}},
    {"dp", "2", {0}},
    {"groups", "2", {0}},
    {"bucket", "1M", {0}},
    {"zero", "3", {0}},
    {"shard-optimizer", NULL, {0}},
    {"schedule", "gpipe", {0}},
    {"costs", "trace.json", {"--schedule=auto"}},
    {"placement", "v", {0}},
    {"microbatches", "4", {0}},
    {"buffers", "2", {0}},
    {"send-budget", "2", {0}},
    {"defer", NULL, {0}},
    {"recompute", "always", {0}},
    {"device", "cuda", {0}},
    {"transport", "mpi", {0}},
    {"tf32", NULL, {0}},
    {"offload", "stash", {"--offload-dir=."}},
    {"unshard", "3", {"--zero=3"}},
    {"offload-time", "2", {0}},
    {"memory", "1G", {"--schedule=auto"}},
    {"data", "x=x.npy", {0}},
    {"tokens", "x=x.npy", {0}},
    {"dtype-of", "x=u16", {0}},
    {"mix", "x=1,2", {0}},
    {"eval-data", "x=x.npy", {0}},
    {"lengths", "t=n.npy", {0}},
    {"eval-lengths", "t=n.npy", {0}},
    {"pad", "x=0", {0}},
    {"by-length", "50", {0}},
    {"eval-tokens", "x=x.npy", {0}},
    {"negative-ids", NULL, {0}},
    {"eval-every", "2", {"--eval-data=x=x.npy"}},
    {"output", "y=y.npy", {0}},
    {"batch", "8", {0}},
    {"shuffle", "0", {0}},
    {"params", "ck", {0}},
    {"states", "s.safetensors", {0}},
    {"init", "*=ones", {0}},
    {"resume", "ck", {0}},
    {"accept", "cpu", {0}},
    {"steps", "9", {0}},
    {"epochs", "2", {0}},
    {"optimizer", "adam", {"--lr=0.01"}},
    {"lr", "0.125", {0}},
    {"momentum", "0.5", {"--optimizer=momentum"}},
    {"beta1", "0.5", {"--optimizer=adam"}},
    {"beta2", "0.5", {"--optimizer=adam"}},
    {"eps", "0.5", {"--optimizer=adam"}},
    {"weight-decay", "0.25", {"--optimizer=adamw"}},
    {"nesterov", NULL, {"--optimizer=momentum"}},
    {"lr-schedule", "cosine", {0}},
    {"warmup", "2", {0}},
    {"min-lr-factor", "0.5", {"--lr-schedule=cosine"}},
    {"decay-ratio", "0.5", {"--lr-schedule=cosine"}},
    {"no-decay", "*.bias", {0}},
    {"accumulate", "2", {0}},
    {"clip-norm", "1", {0}},
    {"loss-scale", "megatron", {0}},
    {"loss-scale-window", "5", {"--loss-scale=dynamic"}},
    {"loss-scale-initial", "4", {"--loss-scale=dynamic"}},
    {"on-nonfinite", "skip", {0}},
    {"seed", "3", {0}},
    {"checkpoint", "ck", {0}},
    {"every", "2", {"--checkpoint=ck"}},
    {"keep", "2", {"--checkpoint=ck"}},
    {"save-timeout", "60", {"--checkpoint=ck"}},
    {"dump-grads", "g", {0}},
    {"log-json", "log", {0}},
    {"tensorboard", "tb", {0}},
    {"trace", "t.json", {0}},
    {"until", "1B3", {0}},
    {"watchdog", "9", {0}},
    {"debug-mask-minibatches", NULL, {0}},
    {"verbose", NULL, {0}},
    {"prompt", "a", {"sample"}},
    {"prompt-ids", "1,2", {"sample"}},
    {"temperature", "0.5", {"sample"}},
    {"top-k", "3", {"sample"}},
};
enum { N_SAMPLES = sizeof samples / sizeof *samples };

static const Sample *sample_of(const char *name)
{
    for (int i = 0; i < N_SAMPLES; i++)
        if (!strcmp(samples[i].name, name))
            return &samples[i];
    return NULL;
}

/* `train`, or what a sample names, with what it needs, and, added, with it; its options in o. */
static int parse(Options *o, const Sample *s, int added, char word[8][100])
{
    char *argv[8];
    int n = 0;
    snprintf(word[n++], sizeof word[0], "pipeline");
    int named = s && s->with[0] && s->with[0][0] != '-';
    if (!named)
        snprintf(word[n++], sizeof word[0], "train");
    for (int i = 0; s && i < 4 && s->with[i]; i++)
        snprintf(word[n++], sizeof word[0], "%s", s->with[i]);
    if (added)
        snprintf(word[n++], sizeof word[0], "--%s%s%s", s->name, s->value ? "=" : "",
                 s->value ? s->value : "");
    for (int i = 0; i < n; i++)
        argv[i] = word[i];
    return options_parse(o, n, argv, &plans[1]) == PP_OK;
}

/* Is the option's text another with it? */
static int differs(const Sample *s)
{
    char words[2][8][100];
    Options o[2];
    NumberOption a, b;
    POOL(pool);
    int good = parse(&o[0], s, 0, words[0]) && parse(&o[1], s, 1, words[1]), found = 0;
    for (int i = 0, j = 0; good && options_next_shared(&o[0], &i, &a, &pool) &&
                           options_next_shared(&o[1], &j, &b, &pool);)
        found |= !strcmp(a.name, s->name) && strcmp(a.value, b.value) != 0;
    options_free(&o[0]), options_free(&o[1]);
    return found;
}

int main(void)
{
    static const char *const own[] = {"threads", "offload-dir", "quiet"};
    char words[8][100];
    Options o;
    NumberOption one;
    POOL(pool);
    int listed = 0, owned = 0;
    parse(&o, NULL, 0, words);
    for (int i = 0; options_next_shared(&o, &i, &one, &pool); listed++) {
        const Sample *s = sample_of(one.name);
        ok(s && differs(s), "--%s differs: seen", one.name);
        for (int k = 0; k < 3; k++)
            owned += !strcmp(own[k], one.name);
    }
    options_free(&o);
    ok(listed == N_SAMPLES && !owned, "%d options, and not a rank's own", listed);
    ok(!parse(&o, &(Sample){"unshard", "3", {"--zero=1"}}, 1, words),
       "--unshard where nothing comes and goes is refused");
    ok(!parse(&o, &(Sample){"unshard", "4", {"--zero=2"}}, 1, words) &&
           parse(&o, &(Sample){"unshard", "1", {"--zero=2"}}, 1, words),
       "and with --zero 2 all but 1, which has sums wait for nothing");
    options_free(&o);
    return tap_done();
}
