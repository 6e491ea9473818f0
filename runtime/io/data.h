/*
 * data.h - the files of --data, and how their rows are cut into steps and microbatches: one per
 * process, the same on every rank.
 */
#ifndef PP_DATA_H
#define PP_DATA_H

#include "base/file/npy.h"
#include "base/file/sha256.h"
#include "core/core.h"
#include "options/options.h"

/* A file of an input: rows `first` to `first + rows` of the data. */
typedef struct {
    NpyFile npy;
    const char *path;
    int64_t first, rows;
    int set; /* of which option of the input it is */
    char sha256[SHA256_TEXT]; /* digest.c; "" before */
} DataFile;

/* What a model input is read from: files whose rows follow one another.  A row lies in `outer`
 * pieces of `inner` elements; an input without a batch dimension is one row. */
typedef struct {
    DataFile *file;
    int n; /* 0: not given */
    int sets; /* options that give it files */
    int64_t rows, outer, inner;
    /* --pad: what stands behind a row's places, of the input's type; a whole number: which */
    int padded;
    char pad[8];
    int64_t pad_number;
    /* The files are of rank 1 and hold integers of any width; row r of one begins at its element
     * r * outer * inner + shift. */
    int tokens, shift;
    /* Where lengths vary: rows lie one behind the other, each as long as it is.  The files are of
     * [places, ...]; the dimension behind the rows varies: which, and elements of one of its
     * length; 0: it is not so.  Such rows are padded. */
    int ragged;
    int64_t place;
} DataInput;

/* --mix: rows `first` to `first + rows`, and their share of all places */
typedef struct {
    double weight;
    int64_t first, rows;
} MixSet;

typedef struct {
    Pool pool; /* of what these point to */
    const PpPlan *model;
    const Options *opt;
    DataInput *input; /* per model input */
    int64_t rows;     /* samples in the files */
    MixSet *mix; /* --mix: [n_mix], or NULL */
    int n_mix;
    /* Where lengths vary: places that the files have along each of those dimensions, 0: not known
     * yet; how many of them each row has, NULL: all; how many those before it have; rows with such
     * lengths; are they documents, whose places a file of lengths says? */
    PpLength longest;
    int64_t *row_length[PP_LENGTHS], *row_start[PP_LENGTHS], length_rows;
    int documents;
    int microbatches; /* of a pass of the schedule, in each replica */
    int passes;       /* of a group: --accumulate */
    /* Rows of a step are divided among so many groups (--groups), whose gradients are added in
     * order; replica k has the groups k, k + replicas, ..., one after the other. */
    int groups, replicas, replica;
    int64_t batch, steps, steps_per_pass;
    /* [groups * passes * microbatches + 1]: first row of each microbatch in the minibatch, group
     * after group: where one ends the next one begins */
    int64_t *row0;
    /* Eval, infer: the same of the last step of a pass when the rows do not divide, or NULL */
    int64_t *row0_rest;
    int sampled;    /* sample: the input of tokens, and how many of them its rows begin with */
    int64_t prompt;
    /* where the run begins: steps done and rows seen by those before it, and the epoch's next row
     */
    struct {
        int64_t step, rows, epoch, row;
    } start;
} Data;

/* data.c */
PpStatus data_open(Data *d, const PpPlan *model, const Options *o);
PpStatus data_open_tokens(Data *d, const PpPlan *model, const Options *o); /* of --tokens alone */
void data_close(Data *d);

/* input.c */
/* The option that names the input's files: of tokens, or not */
const char *data_option(const Data *d, int tokens);
/* --OPTION NAME: its number, or what is wrong with it */
PpStatus data_find(const PpPlan *p, const char *option, const char *name, int *input);
/* Which of PpPlan.total the input is, -1: none, so data */
int data_total(const PpPlan *p, int input);
/* One more file of the input, which counts as its even if it cannot be opened. */
PpStatus data_add(Data *d, int input, const char *path, DataFile **added);
PpStatus data_count(DataInput *in, const DataFile *f, const char *name); /* its rows */
/* Where they are, for what is said of a file that was cut short */
void data_place(const DataInput *in, const DataFile *f);
const char *data_dtype_text(int dtype);

/* rows.c */
/* RowPiece o (below `outer`) of a row in its file, elements of *dtype, any alignment. */
const char *data_piece(const Data *d, int input, int64_t row, int64_t o, int *dtype);
/* So many elements of it are the row's. */
int64_t data_piece_size(const Data *d, int input, int64_t row);
/* Rows first to first + rows to dst, as a tensor of so many and of these lengths; order: which row
 * stands for each, NULL: itself */
void data_read(const Data *d, int input, const int64_t *order, int64_t first, int64_t rows,
               PpLength length, char *dst);
/* Of a row in a microbatch of these lengths: places that it has itself, and is not padded to */
PpLength data_there(const Data *d, int64_t row, PpLength length);
/* What a piece of a row is, in a microbatch of these lengths: along each dimension, elements in its
 * file, in the microbatch, and of these its own, not padded.  Those that all have whole are one
 * with the one before. */
typedef struct {
    int rank;
    int64_t file[PP_MAX_RANK], here[PP_MAX_RANK], own[PP_MAX_RANK];
} RowPiece;
RowPiece data_piece_of(const Data *d, int input, int64_t row, PpLength length);
/* line() is called for each run of the piece's last dimension: its elements in the file, where it
 * begins, among those of the microbatch, where it begins, and how many of here[] it has itself. */
typedef void RowLine(void *of, int64_t file, int64_t here, int64_t own);
void data_lines(const RowPiece *p, RowLine *line, void *of);
int data_file(const Data *d, int input, int64_t row); /* the number of the one it is in */
/* PP_ERR_IO where a file of the input has fewer bytes than when it was opened */
PpStatus data_whole(const Data *d, int input, int file);

/* indices.c: integers that choose rows of tables, in all of the files; process `part` of `parts`
 * looks at its share of their rows */
PpStatus data_check(const Data *d, int part, int parts);

/* lengths.c */
PpStatus lengths_read(Data *d); /* --lengths */
const char *lengths_option(const Data *d); /* its name here */
/* Are the rows of an input's file one behind the other?  Then how many it has, by --lengths. */
int ragged_is(const Data *d, int input, const NpyFile *f);
PpStatus ragged_rows(const Data *d, int input, DataFile *f);
PpStatus lengths_open(Data *d); /* once all rows are known */
/* A hash of the rows' lengths along a dimension, and what a checkpoint calls it */
void lengths_digest(const Data *d, int v, char *key, size_t n, char digest[SHA256_TEXT]);
/* Of a microbatch of rows first to end, where lengths vary */
PpLength data_length(const Data *d, const int64_t *order, int64_t first, int64_t end);

/* digest.c: what the files hold, for checkpoints */
void data_digest(Data *d);
/* What a checkpoint calls the digest of this file of the input; 0: it has none, as past the last */
int data_digest_key(const Data *d, int input, int file, char *key, size_t n);

/* tokens.c: --tokens, once --data are open */
PpStatus tokens_open(Data *d);

/* tokens_write.c: `pipeline tokens`, which runs nothing; d is to be closed */
PpStatus tokens_write(Data *d, const PpPlan *p, const Options *o);

/* prompt.c: sample's rows, once all others are open */
PpStatus prompt_open(Data *d);
void prompt_put(char *at, int dtype, int64_t token); /* an element of that input */
int64_t prompt_tokens(const Data *d, int64_t columns); /* of the logits: that the input takes */

/* mix.c */
PpStatus mix_open(Data *d); /* once the files are open */
/* Which row is the i-th of an epoch, of all d->rows */
PpStatus mix_order(const Data *d, int64_t epoch, int64_t *order);

/* order.c */
int order_is_own(const Data *d); /* is it another one than that of the files? */
int order_by_length(const Data *d); /* do rows of near lengths make a microbatch? */
/* Which row is the i-th of an epoch, of all d->rows */
PpStatus order_rows(const Data *d, int64_t epoch, int64_t *order);

/* cut.c */
/* Outputs of all steps are kept, one behind the other; else those of the last one */
static inline int data_keeps_outputs(const Data *d)
{
    return d->opt->mode != MODE_TRAIN && !d->opt->sample.on;
}
PpStatus data_cut(Data *d);
Data data_of(const Data *d, int replica); /* its microbatches; d keeps the memory */
int data_rounds(const Data *d); /* groups of a replica in a step */
int data_passes(const Data *d); /* of the schedule in a step: of all of them */
/* First row of each microbatch of a pass, and where the last one ends */
const int64_t *data_pass(const Data *d, int64_t step, int pass);
/* Rows [row[0], row[1]) of a step that this replica has in a round */
void data_round(const Data *d, int64_t step, int round, int64_t row[2]);
/* Of microbatch m of a replica's step, from 0 over all its passes: its rows are from here to the
 * next number */
const int64_t *data_chunk(const Data *d, int64_t step, int m);
/* Rows that it computes with, from its own first one on or, masked, from the step's */
int64_t data_computed(const Data *d, int64_t step, int m);
int64_t data_before(const Data *d, int64_t step, int m); /* of them, before its own */
int data_chunks(const Data *d);                        /* microbatches of a step, in a replica */
int64_t data_step_rows(const Data *d, int64_t step);   /* of all replicas */
int64_t data_rows_before(const Data *d, int64_t step); /* rows of all steps before it, in a pass */
/* The epoch of a step and its first row there */
void data_position(const Data *d, int64_t step, int64_t *epoch, int64_t *row);
int64_t data_rows_seen(const Data *d, int64_t step); /* by all steps before it, of all runs */
int64_t data_tokens(const Data *d); /* tokens of a step, each row as long as the files are */
/* First row of each microbatch of a step, of all replicas, and how many they are */
const int64_t *data_step(const Data *d, int64_t step, int64_t *n);

#endif
