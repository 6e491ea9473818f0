/*
 * target.h - what code is generated for: a row of properties and functions for each target, in a
 * file of its own (target_NAME.c).
 *
 * Out is a function of a stage while its text is made.  Steps are printed into it one after the
 * other; it notes what the text uses, so that only that is declared before it.
 */
#ifndef PPSPLIT_TARGET_H
#define PPSPLIT_TARGET_H

#include "codegen/plan/plan.h"

typedef struct TargetRow TargetRow;

typedef struct {
    Func *f;
    Arena *a;
    const TargetRow *target;
    Text text;                      /* its steps */
    Text fresh; /* declares the pointers that the next step is the first to use */
    /* names that the text uses; reads: a pointer; context: c in any other way */
    bool stream, convolutions, reads, context;
    bool *named;                    /* by buffer: its pointer is declared */
    /* behind the workspace: partial results that one kernel leaves for the next */
    int64_t bytes_scratch;
    const Repeat *repeat;           /* the text is one turn of it: pointers are fields */
    const char *const *field;       /* their names */
    const char **declaration;       /* what declares them in a turn, until it stands there; NULL */
    uint32_t at;                    /* which step of the turn */
    const char *(*lines)(Func *f);  /* of a body */
    uint32_t first_arg;             /* of the step that is printed, in that step's list */
} Out;

/* The field of Out.repeat that is that argument of the step. */
static inline uint32_t out_field(const Out *o, uint32_t arg)
{
    return o->repeat->arg_field.at[o->repeat->arg_of.at[o->at] + o->first_arg + arg];
}

struct TargetRow {
    const char *ending;             /* of a stage's file */
    const char *header;             /* that it includes */
    const char *table;              /* ending of the name of a stage's table */
    /* beginning of the name of the runtime's library calls, and what each is given first */
    const char *call, *context;
    const char *convolution;        /* the runtime's type of a prepared convolution */
    bool cplusplus;                 /* no designated initialisers, no void * as any pointer */
    /* a kernel is launched on a grid of threads; constants lie in the device's memory, also
       short ones */
    bool device;
    void (*nest)(Out *o, const Step *s, const char *comment);
    /* A convolution, call(head), and s->then in parts of its result; NULL: one after the other. */
    void (*then)(Out *o, const Step *s, const char *call, const char *head, const char *comment);
    /* Memory that a kernel is to find filled, with the bytes of `from` or with zeros (NULL); a
     * device only. */
    const char *(*fill)(Out *o, const char *to, const char *from, const char *bytes);
};

extern const TargetRow target_cpu, target_cuda;

/* target.c */
const TargetRow *target_row(Target t);

/* out.c */
const char *out_lin(const Out *o, Lin x);               /* of the function's rows */
const char *out_lins(const Out *o, const Lin *x, int n);      /* "rows, 4, 8" */
/* Prints const int i0 = e / 16 % 4; ..: what a linear index is of n dimensions, but of those whose
   name is NULL. */
void out_places(Text *t, const StageGen *sg, const char *type, const char *linear, int n,
                const char *const *name, const Lin *ext);
/* How many parts of so many n makes: a number, or what lengths make of it. */
const char *out_parts(Arena *a, const StageGen *sg, int64_t n, int many);
const char *out_straight(Out *o, uint32_t buf); /* a buffer's name, which is to be declared */
void out_fresh(Out *o, Text *t);                        /* what Out.fresh declares goes to t */
const char *out_pointer(Out *o, const Step *s, uint32_t arg);   /* "c_attn + 128" */
const char *out_arg(Out *o, const Step *s, ValueId v);  /* the argument that is this value */
const char *out_key(const Out *o, const Step *s);       /* of a Dropout: "17u", "key1[i]" */
/* lengths, rows, stream, conv as the text names them */
void out_declare(Out *o, Text *t);
/* A kernel: what it comes from, lines of its formula, and its text; index: the type of
   lengths and rows, its first parameters where the body names them; NULL: it declares them; named:
   the arguments of its nest that the text names; NULL: it is no nest's. */
typedef struct {
    const char *comment, *formula, *params, *body, *index;
    const Ids *named;
} KernelText;
/* Prints a kernel once per distinct text; returns its name. */
const char *out_kernel(Out *o, const Step *s, const KernelText *x);
/* Prints a call of it as well. */
void out_call(Out *o, const Step *s, const KernelText *x, const char *args);
/* The same for the device. */
typedef struct {
    int threads;                    /* of a block at most */
    int blocks;                     /* that a multiprocessor holds; 0: the compiler chooses */
    const char *grid, *block;
} Grid;
/* PP_LAUNCH(name, grid, block, 0, stream, args); cut where it is long. */
void out_launch(Out *o, const Step *s, const KernelText *x, const Grid *g, const char *args);
/* Declares the lengths and rows that code names, which `context` has: "c". */
void out_symbols(Text *t, const char *code, const char *context);

void cg_kernels_print(StageGen *sg); /* all of the stage, once its functions are printed */

/* argument.c: what a kernel's text calls the arguments of the step's nest */
const char **argument_names(const Out *o, const Step *s);
/* Another call of the kernel; named: those of the step's arguments that its text names. */
void argument_join(const Out *o, const Step *s, const Ids *named, StageKernel *k);
/* its text under the names that all its calls give it */
const char *argument_text(Arena *a, const StageKernel *k, const char *text);

/* title.c: "softmax_dx"; "layernorm" of LayerNormalization */
const char *title_of(const Out *o, const Step *s);
const char *title_plain(Arena *a, const char *op);
/* "dx"; "dw" where it makes gradients of weights alone; "" */
const char *title_direction(const Step *s);
/* The name of the value of which it is the gradient, or a part or another shape of that; NULL: of
   none. */
const char *title_gradient_of(Arena *a, const Value *x);
/* for a comment: " NAME", " gradient of NAME"; of what has no name in the model " in NODE" */
const char *out_value_text(Arena *a, const Graph *g, ValueId v);

/* names.c: what buffers are called */
const char *out_name(const Func *f, uint32_t buf);      /* "ln_1_weight", "d_c_attn" */
/* of a parameter, of its gradient or its copy: "transformer.h.2.ln_1.weight" */
const char *names_param(const Func *f, const Buffer *b);
/* a buffer of the stage, or of its bodies, has it */
bool names_has(StageGen *sg, const char *name);
const char **names_of_fields(const Out *o, const Repeat *r);

/* place.c: where a buffer stands */
/* the part of the stash that it is in, NONE */
uint32_t place_part(const Func *f, const Buffer *b);
bool place_is_pointer(BufClass c);                      /* the context has a list of pointers */
bool place_in_source(const Out *o, uint32_t buf);       /* a constant that stands in the file */
/* bytes in its block; which of the pointers */
int64_t place_at(const Func *f, uint32_t buf);
/* "(float *)(c->stash + 4096)", "c->in[0]": `at` in the block of a buffer; type: of the pointer */
const char *place_text(const Out *o, uint32_t buf, const char *type, const char *at);
/* the same where the buffer itself stands */
const char *place_whole(const Out *o, uint32_t buf, const char *type);
void place_declare(const Out *o, uint32_t buf, Text *t);        /* its pointer */

/* program.c: a function of the stage, into Func.body */
const char *cg_function_name(const StageGen *sg, FuncKind kind);
void cg_function_print(Func *f);

/* steps.c */
/* twin: the same step of the next turn; NONE: none */
void print_step(Out *o, uint32_t i, uint32_t twin);

/* turn.c */
void print_repeat(Out *o, uint32_t number);             /* of Func.repeat */

/* target_cpu.c, target_cuda.c: see TargetRow */
/* call.c, kernels.c: library calls, and kernels of their own kind */
void print_product(Out *o, const Step *s);
/* then: the comment of what follows it */
void print_convolution(Out *o, const Step *s, const char *then);
void print_kernel(Out *o, const Step *s);
/* collective.c: of all members; the number of the chunk that a part is */
void print_collective(Out *o, const Step *s);
const char *out_chunk(Out *o, const Chunk *of, int mesh);

/* custom.c */
void print_custom(Out *o, const Step *s);
/* loop.c; comment: what it comes from */
void print_loop(Out *o, const Step *s, const char *comment);
/* attention.c */
void print_attention(Out *o, const Step *s);

#endif
