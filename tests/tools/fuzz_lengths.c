/*
 * fuzz_lengths.c - random models with dimensions that vary, for fuzz/lengths.  Usage: fuzz_lengths
 * DIR FROM COUNT.  Out, in DIR/SEED: model.onnx, whose output `loss` is a sum over its samples, as
 * an exporter writes it: sizes are computed from Shape; plan: how its symbols are bound, lengths to
 * try, values at which it may be split; LENGTHS/in.NAME.npy.
 *
 * A dimension is a polynomial of the symbols b (the batch), s and t, so operations are drawn that
 * fit with every length; traps (`trap_`) are not affine: such a model has to be refused, or right.
 */
#include <sys/stat.h>

#include "base/file/npy.h"
#include "fuzz/sized_sums.h"

/* ---- what is not affine, or not always ------------------------------------------------------- */

static const char *with_mode(const char *x, const char *amount, const Val *v, int d)
{
    char all[512] = "";
    for (int k = 0; k < 2 * v->rank; k++)
        strcat(strcat(all, " "), k == v->rank + d ? amount : integer(0));
    attr_int("axis", 0);
    const char *pads = emit("Concat", all);
    return emit2("Pad", x, pads);
}

/* Padded to a multiple, and then a sum over it */
static Val trap_multiple(const Val *x, const Val *y)
{
    const int d = varied(x), k = 2 + below(3);
    Val v = *x;
    (void)y;
    const char *rest = emit2("Mod", emit2("Sub", integer(0), size(x->d[d])), integer(k)),
               *padded = with_mode(x->name, rest, x, d);
    v.d[d] = of(1);
    reduce_attrs(d, 1);
    return made(emit("ReduceMean", padded), &v);
}

/* The first few places, or as many as there are; the first half */
static Val trap_few(const Val *x, const Val *y)
{
    const int d = varied(x);
    Val v = *x;
    (void)y;
    const char *n = size(x->d[d]), *end = NULL;
    switch (below(4)) {
    case 0: end = integer(2 + below(6)); break;
    case 1: end = emit2("Min", n, integer(4)); break;
    case 2: end = emit2("Max", emit2("Sub", n, integer(3)), integer(1)); break;
    default: end = emit2("Div", emit2("Add", n, integer(1)), integer(2)); break;
    }
    const char *part = sliced(x->name, integer(0), end, d, 1);
    v.d[d] = of(1);
    reduce_attrs(d, 1);
    return made(emit("ReduceMean", part), &v);
}

/* Multiplied by a number that lengths decide */
static Val trap_number(const Val *x, const Val *y)
{
    const char *n = size(x->d[varied(x)]), *number = NULL;
    (void)y;
    switch (below(5)) {
    case 0: number = emit2("Mod", n, integer(2 + below(3))); break;
    case 1: number = emit2("Div", n, integer(2 + below(3))); break;
    case 2: number = emit2("Max", n, integer(5)); break;
    case 3: number = emit2("Equal", n, integer(1 + below(8))); break;
    default: number = emit2("Greater", n, integer(1 + below(12))); break;
    }
    number = as_float(number);
    return made(emit2("Mul", x->name, emit2("Add", number, real(1))), x);
}

/* Every second place of any number */
static Val trap_strides(const Val *x, const Val *y)
{
    const int d = varied(x);
    Val v = *x;
    (void)y;
    const char *part =
        sliced(x->name, integer(below(2) && least_of(x->d[d]) > 1), integer(1L << 40), d, 2);
    v.d[d] = of(1);
    reduce_attrs(d, 1);
    return made(emit("ReduceMean", part), &v);
}

static const struct {
    Make *make;
    int weight;
} operations[] = {
    {do_unary, 5},
    {do_binary, 8},
    {do_linear, 10},
    {do_transpose, 5},
    {do_reshape, 8},
    {do_flat, 4},
    {do_slice, 6},
    {do_concat, 6},
    {do_pad, 4},
    {do_pad_to, 2},
    {do_tile, 2},
    {do_expand, 3},
    {do_reduce, 7},
    {do_softmax, 5},
    {do_norm, 5},
    {do_group_norm, 2},
    {do_attention, 7},
    {do_product, 4},
    {do_conv, 6},
    {do_conv_transpose, 2},
    {do_pool, 4},
    {do_resize, 3},
    {do_cumsum, 3},
    {do_topk, 3},
    {do_where, 3},
    {do_positions, 5},
    {do_table, 4},
    {do_gather, 3},
    {do_gather_elements, 3},
    {do_scatter, 2},
    {do_scatter_nd, 2},
    {do_one_hot, 2},
    {do_split, 4},
    {do_unsqueeze, 2},
    {do_squeeze, 2},
    {trap_multiple, 1},
    {trap_few, 1},
    {trap_number, 1},
    {trap_strides, 1},
};

static Make *drawn(void)
{
    int all = 0, at;
    for (int i = 0; i < COUNT(operations); i++)
        all += operations[i].weight;
    at = below(all);
    for (int i = 0;; i++)
        if ((at -= operations[i].weight) < 0)
            return operations[i].make;
}

/* ---- the file -------------------------------------------------------------------------------- */

static void describe(int field, const Val *v)
{
    static const char *const name[SYMBOLS] = {"b", "s", "t"};
    Buf shape = {0}, tensor = {0}, kind = {0}, info = {0};
    for (int i = 0; i < v->rank; i++) {
        Buf one = {0};
        for (int k = 0; k < SYMBOLS; k++)
            if (same(v->d[i], of_model(k)))
                put_string(&one, 2, name[k]);
        if (!one.n && fixed(v->d[i]))
            put_int(&one, 1, v->d[i].c[0]);
        put_message(&shape, 1, &one);
    }
    put_int(&tensor, 1, v->type);
    put_message(&tensor, 2, &shape);
    put_message(&kind, 1, &tensor);
    put_string(&info, 1, v->name);
    put_message(&info, 2, &kind);
    put_message(&graph, field, &info);
}

static void add(Val v)
{
    for (int k = 0; k < n_known; k++)
        if (!strcmp(known[k].name, v.name))
            return;
    known[n_known++] = v;
}

static void draw_inputs(void)
{
    n_symbols = chance(40) ? 2 : 1;
    for (int v = S; v <= T; v++)
        twice[v] = chance(30) ? 2 : 1, least[v] = chance(70) ? 1 : 2 + below(3),
        most[v] = (v == S ? 50 + below(10) : 40 + below(15)) / twice[v];
    for (int v = S; v < S + n_symbols; v++) {
        Val x = {.type = F32, .rank = 3, .d = {symbol(B), of_model(v), of(2 * (1 + below(4)))}};
        if (v == S && chance(20)) /* pictures */
            x = (Val){
                .type = F32, .rank = 3, .d = {symbol(B), of(2 * (1 + below(3))), of_model(v)}};
        snprintf(x.name, sizeof x.name, "x%d", v - S);
        describe(11, &x);
        add(x);
    }
    n_input = n_known;
    if (chance(40)) { /* numbers of a table */
        Val id = {.type = I64, .rank = 2, .d = {symbol(B), of_model(S)}};
        snprintf(id.name, sizeof id.name, "ids");
        describe(11, &id);
        Val x = {.type = F32, .rank = 3, .d = {symbol(B), of_model(S), of(6)}};
        const char *table = weights_of(2, (long[]){9, 6});
        add(made(emit2("Gather", table, id.name), &x));
        n_input++;
    }
}

/* Half the sum of squares, over each sample and then over all */
static void draw_loss(void)
{
    const char *sum = NULL;
    for (int i = 0; i < n_known; i++) {
        if (!output[i])
            continue;
        const char *y = bounded(&known[i]).name, *square = emit2("Mul", y, y);
        attr_int("keepdims", 0);
        const char *part = emit("ReduceSum", emit2("Mul", square, real(0.5)));
        sum = sum ? emit2("Add", sum, part) : part;
    }
    node("", "_loss", "Identity", "loss", sum);
    Val loss = {.type = F32};
    snprintf(loss.name, sizeof loss.name, "loss");
    describe(12, &loss);
}

static const Val *value(int k) { return &known[k % MOST_VALUES]; }

static void draw_steps(FILE *plan)
{
    const int steps = 3 + below(chance(30) ? 14 : 7);
    for (int i = 0; i < steps && n_known < MOST_VALUES; i++) {
        const int near = n_known < 4 ? n_known : 4;
        const int back = chance(70) ? below(near) : below(n_known);
        const Val *x = value(n_known - 1 - back), *y = value(below(n_known));
        const Val v = drawn()(x, y);
        attributes.n = 0;
        if (fits(&v) && v.rank > 1)
            add(v);
    }
    add(made(emit2("Mul", known[n_known - 1].name, fitting(&known[n_known - 1])),
             &known[n_known - 1]));
    output[n_known - 1] = true;
    for (int i = n_input; i < n_known; i++)
        output[i] |= chance(12);
    fprintf(plan, "cuts='");
    for (int i = n_input; i + 1 < n_known; i++)
        if (strchr("v", known[i].name[0]))
            fprintf(plan, "%s ", known[i].name);
    fprintf(plan, "'\noutputs='");
    for (int i = 0; i < n_known; i++)
        if (output[i] && known[i].name[0] == 'v')
            describe(12, &known[i]), fprintf(plan, "%s ", known[i].name);
    fprintf(plan, "'\n");
}

/* ---- data ------------------------------------------------------------------------------------ */

static void write_input(const char *dir, const Val *v, const long *n)
{
    int64_t dim[MOST_RANK], all = 1;
    char path[4096], err[256];
    for (int d = 0; d < v->rank; d++)
        all *= dim[d] = at_lengths(v->d[d], n) * (d == 0 ? MICROBATCHES : 1);
    float *x = malloc((size_t)all * 8);
    int64_t *id = (int64_t *)(void *)x;
    for (int64_t i = 0; i < all && x; i++)
        if (v->type == F32)
            x[i] = (float)below(2001) / 1000 - 1;
        else
            id[i] = below(9);
    snprintf(path, sizeof path, "%s/in.%s.npy", dir, v->name);
    if (!x || npy_write(path, v->type, v->rank, dim, x, err, sizeof err))
        exit(3);
    free(x);
}

static void write_lengths(const char *dir, FILE *plan)
{
    long few[][2] = {{least[S], least[T]},
                     {least[S] + 1, least[T] + 2},
                     {3, 5},
                     {8, 4},
                     {16, 7},
                     {13, 16},
                     {24, 29},
                     {most[S], most[T]}};
    fprintf(plan, "range='--bind b=%d", ROWS);
    for (int v = S; v < S + n_symbols; v++) {
        if (twice[v] > 1)
            fprintf(plan, " --bind %c=%d*%c", "bst"[v], twice[v], "bnm"[v]);
        fprintf(plan, " --bind %c=%ld..%ld", twice[v] > 1 ? "bnm"[v] : "bst"[v], least[v], most[v]);
    }
    fprintf(plan, "'\nlengths='");
    for (int k = 0; k < COUNT(few); k++) {
        char at[4096];
        long n[SYMBOLS] = {ROWS, 1, 1};
        for (int v = S; v <= T; v++)
            n[v] = few[k][v - S] < least[v]  ? least[v]
                   : few[k][v - S] > most[v] ? most[v]
                                             : few[k][v - S];
        fprintf(plan, n_symbols > 1 ? "%ld,%ld " : "%ld ", n[S] * twice[S], n[T] * twice[T]);
        snprintf(at, sizeof at, n_symbols > 1 ? "%s/%ld,%ld" : "%s/%ld", dir, n[S] * twice[S],
                 n[T] * twice[T]);
        mkdir(at, 0777);
        for (int i = 0; i < n_symbols; i++)
            write_input(at, &known[i], n);
        if (n_input > n_symbols)
            write_input(at, &(Val){"ids", I64, 2, {symbol(B), of_model(S)}}, n);
    }
    fprintf(plan, "'\n");
}

static void one(const char *dir, uint64_t number)
{
    char path[4096], file[4200];
    random_state = number * UINT64_C(0x2545f4914f6cdd1d) + 7;
    snprintf(path, sizeof path, "%s/%llu", dir, (unsigned long long)number);
    mkdir(path, 0777);
    snprintf(file, sizeof file, "%s/plan", path);
    FILE *plan = fopen(file, "w");
    if (!plan)
        exit(3);
    draw_inputs();
    draw_steps(plan);
    draw_loss();
    snprintf(file, sizeof file, "%s/model.onnx", path);
    model_end(file);
    write_lengths(path, plan);
    if (fclose(plan))
        exit(3);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    const uint64_t from = strtoull(argv[2], NULL, 10), count = strtoull(argv[3], NULL, 10);
    for (uint64_t i = from; i < from + count; i++) {
        graph = attributes = (Buf){0};
        n_known = n_input = n_name = n_weight = 0;
        memset(output, 0, sizeof output);
        one(argv[1], i);
    }
    return 0;
}
