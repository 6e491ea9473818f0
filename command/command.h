/*
 * command.h - the command line of ppsplit: its options and what its smaller commands do.
 *
 * ppsplit.c has main() and the order of the passes (passes.h).  None of this is in libppsplit: it
 * may print usage and end the process.
 */
#ifndef PPSPLIT_COMMAND_H
#define PPSPLIT_COMMAND_H

#include "base/cli/options.h"
#include "mesh/mesh.h"
#include "planner/planner.h"
#include "ppsplit.h"

/* ---- options.c: `ppsplit`, `ppsplit ls`, `ppsplit plan` and `ppsplit annotate` ---- */

typedef enum { COMMAND_SPLIT, COMMAND_LS, COMMAND_PLAN, COMMAND_ANNOTATE } Command;

/* Options of plan, as they were written */
typedef struct {
    const char *machine, *threads, *batch, *dp, *optimizer, *recompute, *offload, *zero, *csv,
        *microbatch_rows, *rank_stages;
    SchedRows data;    /* --lengths and the like */
    const char *words; /* model and options of the command that makes a program */
} PlanText;

typedef struct {
    Arena *arena;
    Strings model;
    ImportOptions import;
    MeshOptions mesh;
    int chunks; /* --chunks C, of no axis by name; 0: not given */
    PartitionOptions partition;
    AutoText automatic;
    LossOptions loss;
    CodegenOptions codegen;
    Dtype dtype;                    /* --dtype; DT_NONE: as the model */
    Strings ops;          /* --ops: tables of the user's own operations */
    /* --rows, --loss-over minibatch=ROWS; 0: as the model */
    int64_t rows, minibatch;
    const char *dump;
    bool quiet, parameters;
    bool check, verbose; /* of annotate */
    VEC(Symbol) range;   /* each --bind that is one */
    Lengths lengths;     /* of the ranges that are not one of rows */
    bool settled;        /* which they are */
    const Symbol *rows_vary; /* the range of the rows; NULL: none */
    const Graph *other; /* the model with the lengths of the first sample; NULL: this is it */
    Command command;
    PlanText plan;
} Options;

/* Ends the process with EXIT_USAGE if something is wrong, and with 0 after --help and --version. */
void read_command_line(Options *o, int argc, char **argv);

/* ---- lengths.c ---- */

/* A --bind that is a range is one to the greatest length from now on. */
void read_lengths(Options *o);
const char *bound_to(Arena *a, const Symbol *s, int64_t length); /* the option that says so */
/* Which of the ranges is that of the rows, and which are those of lengths. */
void settle_lengths(Options *o, const Graph *g);
/* Which lengths are samples; after so many tries with which the model is refused, as beyond the end
 * of a table.  false: no further try has others that suit. */
bool choose_lengths(Lengths *l, int tries);
void check_rows(const Options *o, const Pipe *p); /* where they vary, any number is taken */
/* Options that a model of any length does not go with are fatal. */
void check_lengths(const Options *o);

/* ---- runtime.c ---- */

/* The PREFIX of the compiled runtime that belongs to this ppsplit; NULL: there is none. */
const char *compiled_runtime(Arena *a);

/* ---- plan.c ---- */

extern const char plan_usage[];
/* Ends the process with EXIT_USAGE if something that plan needs is missing. */
void plan_check(Options *o);
/* All but the model. */
PlanOptions plan_options(Options *o);

/* ---- annotate.c ---- */

extern const char annotate_usage[];
/* Ends the process with EXIT_USAGE if annotate cannot do what is asked. */
void annotate_options(const Options *o);
/* `ppsplit annotate --check`: exits with EXIT_MODEL if there are violations. */
void annotate_checked(Options *o);

/* ---- usage.c ---- */

extern const char report_to[];      /* the end of every --help */

/* Prints "ppsplit SUB: error: ..." and where help is, and exits with EXIT_USAGE.  command: "ppsplit" or
   "ppsplit merge". */
NORETURN void bad_usage(const char *command, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Call this before reporting a missing option: a file that does not exist is reported first, with
   EXIT_IO. */
void operands_there(uint32_t n, const char *const *path);

/* The index of word among n words; if it is none of them, prints them and exits with EXIT_USAGE. */
uint32_t one_of(const char *command, const char *option, const char *word,
                const char *const *words, uint32_t n);
/* The command line of a smaller command: options that are texts, or, without a value, true. */
typedef struct {
    OptionName is;
    size_t at; /* in what is read into */
} ArgumentRow;
typedef struct {
    const char *name, *head, *tail; /* "ppsplit merge"; of its --help, around the options */
    const ArgumentRow *row;
    int n;
} Arguments;
/* Reads it into *of; returns its operands, at most so many.  Ends the process if something is
   wrong, and after --help. */
Strings read_arguments(const Arguments *a, void *of, uint32_t most, Arena *arena, int argc,
                       char **argv);

#define ONE_OF(command, option, word, ...)                                          \
    one_of(command, option, word, (const char *const[]){__VA_ARGS__},               \
           sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

/* ---- merge.c, report.c, ops.c, forecast.c ---- */
/* argv[0] is the command's name; the exit status */

int merge_main(int argc, char **argv);
int report_main(int argc, char **argv);
int ops_main(int argc, char **argv);
int forecast_main(int argc, char **argv);

#endif
