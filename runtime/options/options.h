/*
 * options.h - the command line of out/pipeline as a value.
 */
#ifndef PP_RUN_OPTIONS_H
#define PP_RUN_OPTIONS_H

#include "base/file/json.h"
#include "api/pp.h"
#include "base/file/memory.h"
#include "core/status.h"
#include "optim/loss_scale.h"
#include "optim/lr.h"
#include "optim/optim.h"
#include "schedule/schedule.h"

/* What is not on the device all the time. */
enum { OFFLOAD_STASH = 1, OFFLOAD_PARAMS = 2 };
/* Sampling is inference with a loop around it: MODE_INFER, with Options.sample.on */
typedef enum { MODE_TRAIN, MODE_EVAL, MODE_INFER, MODE_MEASURE, MODE_SAMPLE, MODE_TOKENS } Mode;
typedef struct {
    const char *name, *file;
} NameFile;

typedef struct {
    NameFile *at;
    int n;
} Pairs;

typedef struct {
    const char **at;
    int n;
} Words;

enum { OPTIONS_MAX = 128 };

typedef struct {
    Pool pool; /* of its lists */
    Mode mode;
    struct {
        char folder[4096]; /* where the program lies: params/ is there */
        int argc;          /* the command line */
        char *const *argv;
        unsigned char given[OPTIONS_MAX]; /* by the option's number: it was there */
    } command;
    struct {
        int ranks;   /* 0: one per stage of each replica */
        int dp;      /* replicas of the pipeline */
        int groups;  /* of a step's rows, for the sums of gradients; 0: dp, or the checkpoint's */
        int threads; /* of a rank; 0: cores / ranks of the machine */
        const char *device, *transport; /* NULL: what there is */
        int tf32;
    } machine;
    struct {
        const char *name;
        const char *costs; /* auto: a trace with the times of actions; NULL: operations */
        int placement;     /* SCHED_PLACE_* */
        int microbatches;  /* 0: as many as the model's rows ask for */
        int accumulate;    /* passes before an update; 0: one */
        int buffers, send_budget, defer;
        int64_t bucket; /* bytes of gradients that replicas sum at a time */
    } schedule;
    struct {
        int64_t limit;         /* --memory: bytes that a rank's step may be planned with; 0: any */
        const char *recompute; /* NULL: never */
        int zero; /* what replicas divide: 1 optimizer state, 2 gradients, 3 parameters too */
        int offload; /* OFFLOAD_* */
        const char *offload_dir;
        double offload_time; /* all copies one way beside all forwards */
        const char *unshard; /* --offload params, --zero 3: stages in memory, and on their way:
                                sched_unshard(); --zero 2: "1" has sums wait for nothing */
    } memory;
    struct {
        int64_t batch, steps; /* 0: all rows; 0: one pass (eval, infer), 1 (train) */
        int64_t epochs;       /* 0: --steps says */
        Pairs files, output, tokens;
        Pairs lengths;     /* where they vary, of each row */
        Pairs pads;        /* a value in place of a file */
        int64_t by_length; /* steps whose rows go by length; 0: none do */
        Pairs dtype_of; /* of files of tokens without a header: u16, i32, i64 in place of a file */
        Pairs mixes;    /* of an input's files, weights in place of a file */
        int mask;       /* --debug-mask-minibatches */
        int shuffle;
        uint64_t shuffle_seed, seed;
        int negative_ids; /* counted from a table's end */
    } data;
    struct {
        Pairs files, tokens, lengths; /* of evaluation passes in a training */
        int64_t every; /* steps from one to the next; 0: one after the last */
        int on;        /* these options are those of such passes: exec/evaluate.c */
    } eval;
    struct {
        OptimKind optimizer;
        OptimOptions optim;
        LrOptions lr;           /* how the rate changes from step to step */
        double clip_norm;       /* 0: none */
        const char *scale_rule; /* --loss-scale; NULL: what the model's type asks for */
        int scale_window;       /* 0: the rule's */
        double scale_initial;   /* 0: the rule's */
        LossScale scale;  /* before the first step; 1 and fixed where none is needed */
        Words init;       /* PATTERN=KIND: what parameters begin with */
        Words no_decay;   /* patterns of parameters without weight decay */
        const char *on_nonfinite; /* stop or skip */
    } train;
    struct {
        const char *params, *states, *checkpoint, *resume;
        int64_t every; /* steps from one checkpoint to the next; 0: one after the last */
        int keep;      /* checkpoints; 0: all */
        int timeout;   /* seconds; 0: none */
        Words accept; /* options of ppsplit that may differ from those of the checkpoint */
    } save;
    struct {
        const char *dump_grads, *trace, *until, *log_json, *tensorboard;
        int watchdog; /* seconds; 0: none */
        int quiet, verbose;
    } report;
    struct {
        int on; /* each step draws the next token of every row */
        double temperature;
        int top_k;                       /* 0: all */
        const char *prompt, *prompt_ids; /* bytes, or numbers with commas; NULL */
    } sample;
} Options;

/* PP_ERR_USAGE after a message; ends the process for --help. */
PpStatus options_parse(Options *o, int argc, char **argv, const PpPlan *plan);
void options_free(Options *o);

/* An option that changes the numbers of a run, with its value as the command line takes it: "none"
 * where it is off. */
typedef struct {
    const char *name;
    int given; /* it was on the command line */
    int flag;  /* it takes no value */
    const char *value; /* in the pool; NULL: out of memory */
} NumberOption;
/* The next of them from number *i on, which starts at 0; 0: there are no more */
int options_next_number(const Options *o, int *i, NumberOption *n, Pool *pool);
/* All of them, as members of an object that is open */
PpStatus options_put_numbers(const Options *o, JsonOut *to);
/* Likewise of all that ranks of a run have to be given alike, as far as they have to */
int options_next_shared(const Options *o, int *i, NumberOption *n, Pool *pool);

#endif
