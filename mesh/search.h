/*
 * search.h - a search for a plan (search.c), the ways to compute a node (choices.c), and its states
 * (states.c).  Private to mesh/.
 */
#ifndef PPSPLIT_SEARCH_H
#define PPSPLIT_SEARCH_H

#include "mesh.h"

enum {
    MOST = 1024, /* states at once */
    PLACES = 20  /* ways to be divided that are looked at of a value */
};

/* The forms in which a value is read: whole; varied, which is whole for a use of each chunk, so
 * that its gradient is a sum over them; or divided as place[form - DIVIDED].  It is made whole, as
 * partial sums, or divided; which of its forms have been brought about, bits tell beside that. */
enum { WHOLE, VARIED, DIVIDED };
enum { MADE_WHOLE, MADE_PARTIAL, MADE_DIVIDED };
typedef uint32_t Label;
static inline Label label_of(int made, unsigned forms) { return (unsigned)made | forms << 5; }
static inline int label_made(Label l) { return (int)(l & 31); }
static inline unsigned label_forms(Label l) { return l >> 5; }

typedef struct {
    Place place[PLACES];
    int places;
    bool plain;  /* made of constants and inputs alone at little cost: whole, divided for nothing */
    bool grad;   /* a gradient comes back to it */
    bool whole;  /* it is needed whole whoever reads it */
    bool once;   /* a parameter, or what is made of one where it is read: the gradients of its uses
                    are added up once a step */
    NodeId last; /* the node that reads it last, or makes it */
    int slot;    /* of its label in a state; -1: states do not tell of it */
    double sum, gather; /* bytes of a partial sum of it, and of itself */
    double kept;        /* what it costs to keep all of it for backward */
} About;

/* Of one way to compute a node: the forms it reads, how its results are made. */
typedef struct {
    ValueId v;
    int form;
} Need;
typedef struct {
    const SpreadWay *way; /* NULL: everything whole */
    Need *need;
    int needs, *made;
    uint32_t denied; /* specs of the file that say otherwise (MeshOptions.asked) */
    double price;
} Choice;
typedef VEC(Choice) Choices;
enum { PARTIAL = -1 }; /* Need.form: the operand as partial sums, as it is made */

/* What became of a state: of which one before, by which choice. */
typedef struct {
    uint32_t from, choice;
} Past;
typedef struct {
    NodeId node;
    ValueId param;
    const Choice *choice;
    const Past *past;
} Stage;

/* States after so many stages; they differ in their labels, of which each has `width`.  The best
 * one denies the fewest specs, and of those is the cheapest. */
typedef struct {
    uint32_t denied;
    double price;
    Past past;
} State;
typedef struct {
    Arena *a;
    VEC(State) state;
    VEC(Label) label;
    uint32_t width;
    IdMap of; /* by a hash of the labels */
} States;

typedef struct {
    const Graph *g;
    Arena *a;
    const MeshOptions *opt;
    MeshAxis axis;
    int chunks;
    SpreadOf of;
    About *about;          /* by value */
    const bool *of_params; /* by value: made of parameters and constants alone */
    const bool *front;     /* by value: divided in dimension 0; NULL: none is */
    IdMap asked;           /* by node of the file, the first of MeshOptions.asked */
    Choices *ways;         /* by node */
    double work, between;  /* price of an operation of a product, of another one (0: its places are
                              divided along another axis) */
    double updated;        /* ... of a byte of a parameter */
    double least;          /* what a collective costs, however short */
    Ids live;              /* values that the labels of a state tell of, in their order */
    States now, next;
    VEC(Stage) stage;
} Search;

static inline bool is_front(const Search *s, ValueId v) { return s->front && s->front[v]; }

/* ---- search.c ---- */
/* How places of a graph are to be along an axis. */
SpreadOf mesh_spread(const Graph *g, Arena *a, MeshAxis axis, int chunks, const BatchNotes *notes);
/* by value, where it is made */
const Place *mesh_made(const Graph *g, const SpreadWay *const *way, const Place *param, Arena *a);

/* ---- choices.c ---- */
double choices_sent(const Search *s, double bytes);
/* Operations of a node, forward and backward, as bytes; what members along another axis send. */
double choices_work(const Search *s, NodeId id);
Choices choices_of(Search *s, NodeId id);
/* Are the parameters that a product reads several matrices, as those of experts are? */
bool choices_experts(const Search *s, const Node *n, ValueId v);
/* The number of a place among those of a value; -1: there are too many. */
int choices_place(About *b, Place p);

/* ---- rows.c ---- */
/* by value, the place of rows, which is divided inside them alone */
const Place *rows_places(const Graph *g, Arena *a, const int64_t *outer);
/* By value, whether it holds rows of images, which may be divided; NULL: none does. */
const bool *rows_of_images(const Graph *g, Arena *a, const BatchNotes *notes, int chunks);
bool is_convolution(Op op);

/* ---- states.c ---- */
Label *states_labels(const States *t, uint32_t i);
void states_open(States *t, Arena *outer, uint32_t width);
/* The better one of two states with the same labels stays. */
void states_add(States *t, const Label *l, State x);
/* The stage is over: its states become those at hand, the best first, and what is behind them is
   noted. */
void states_end(Search *s, Stage stage);
/* What it costs to bring value b, made and brought so far as l says, into one more form: forward,
   and where it has a gradient backward. */
double states_price(const Search *s, const About *b, Label l, int form);
/* ... a state's values into the forms that a choice reads; its labels change.  False: it reads
   partial sums where there are none. */
bool states_bring(const Search *s, const Choice *c, Label *l, double *price);

#endif
