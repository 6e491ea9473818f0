/*
 * pieces.c - nn.MultiheadAttention in a folded TorchScript export.  In: MatMuls and Adds of
 * one module whose weights are slices that folding cut out of in_proj_weight (query apart, key and
 * value together; or all three). Out: in_proj_weight and in_proj_bias put together again, each
 * operand some rows of them; or, where keys have a width of their own, q_proj_weight,
 * k_proj_weight, v_proj_weight.
 *
 * Three products of one value are no slices, nn.MultiheadAttention makes one product of that: they
 * are projections of their own, given to its function (WavLM, fairseq): q_proj.weight, q_proj.bias,
 * ... Of their names the file has nothing, so that is said.
 *
 * The module is known by its out_proj, which is called as a function and so stands in the
 * attention's own scope.
 */
#include <string.h>

#include "params.h"

enum { MOST = 3 };

typedef struct { RawNode *node; uint32_t input, init; } Piece;
typedef struct {
    /* of the module; NULL: no attention found */
    const char *path;
    int64_t width;
    uint32_t n, n_bias;
    Piece weight[MOST], bias[MOST];
} Attention;

static const RawTensor *piece_tensor(const Params *p, const Piece *w)
{
    return &p->m->init.at[w->init];
}

/* The initializer an operand is, directly or through an Identity. */
static uint32_t initializer_of(const Params *p, const char *name)
{
    uint32_t init = strmap_get(&p->m->init_index, name);
    return init != NONE ? init : strmap_get(&p->copied, name);
}

static bool is_folded(const Params *p, const char *name, int rank, uint32_t *init)
{
    *init = strstr(name, "::") ? initializer_of(p, name) : NONE;
    if (*init == NONE)
        return false;
    const RawTensor *t = &p->m->init.at[*init];
    return t->shape.rank == rank && dtype_is_float(t->dtype) && t->bytes.length;
}

static void see_projection(const Params *p, RawNode *n, Attention *at)
{
    static const char end[] = ".out_proj.weight";
    for (uint32_t j = 0; j < n->nin; j++) {
        size_t k = strlen(n->in[j]), e = sizeof end - 1, scope = strlen(n->scope);
        uint32_t init = k > e + scope || k == e + scope ? initializer_of(p, n->in[j]) : NONE;
        if (init == NONE || strcmp(n->in[j] + k - e, end) ||
            strncmp(n->in[j] + k - e - scope, n->scope, scope))
            continue;
        at->path = arena_strndup(p->m->arena, n->in[j], k - e);
        at->width = p->m->init.at[init].shape.d[0];
    }
}

static void see_piece(const Params *p, RawNode *n, Attention *at)
{
    uint32_t init;
    if (!strcmp(n->op_type, "MatMul") && is_folded(p, n->in[1], 2, &init)) {
        if (at->n < MOST)
            at->weight[at->n] = (Piece){n, 1, init};
        at->n++;
    }
    for (uint32_t j = 0; !strcmp(n->op_type, "Add") && j < 2; j++)
        if (at->n && at->n <= MOST && at->n_bias == at->n - 1 && is_folded(p, n->in[j], 1, &init)
            && !strcmp(n->in[1 - j], at->weight[at->n - 1].node->out[0]))
            at->bias[at->n_bias++] = (Piece){n, j, init};
}

/* Rows of the parameter that a piece of it holds: columns of a weight in the file, elements of a
 * bias. */
static int64_t rows_of(const RawTensor *t) { return t->shape.d[t->shape.rank - 1]; }

static bool is_whole(const Params *p, const Attention *at)
{
    static const char *const own[] = {"in_proj_weight", "in_proj_bias", "q_proj_weight",
                                      "q_proj.weight"};
    int64_t rows = 0, bias = 0;
    if (!at->path || at->n < 2 || at->n > MOST || (at->n_bias && at->n_bias != at->n))
        return false;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        const char *name = arena_printf(p->m->arena, "%s.%s", at->path, own[i]);
        if (initializer_of(p, name) != NONE || strmap_get(&p->by_name, name) != NONE)
            return false;
    }
    for (uint32_t i = 0; i < at->n; i++) {
        const RawTensor *t = piece_tensor(p, &at->weight[i]);
        rows += rows_of(t);
        if (at->n_bias && rows_of(piece_tensor(p, &at->bias[i])) != rows_of(t))
            return false;
        bias += rows_of(t);
        if (t->dtype != piece_tensor(p, &at->weight[0])->dtype)
            return false;
    }
    return rows == 3 * at->width && bias == rows;
}

static bool has_one_input(const Params *p, const Attention *at)
{
    for (uint32_t i = 0; i < at->n; i++)
        if (piece_tensor(p, &at->weight[i])->shape.d[0] != at->width)
            return false;
    return true;
}

/* The rows of all pieces under each other, as PyTorch holds them. */
static uint32_t assemble(Params *p, const char *name, const Piece *piece, uint32_t n, Shape s)
{
    const RawTensor *first = piece_tensor(p, &piece[0]);
    size_t size = dtype_size(first->dtype), at = 0;
    Payload all = {
        .length = (size_t)shape_elements(&s) * size, .file = p->m->path, .converted = true};
    uint8_t *out = arena_alloc(p->m->arena, all.length);
    for (uint32_t i = 0; i < n; i++) {
        const RawTensor *t = piece_tensor(p, &piece[i]);
        size_t rows = (size_t)rows_of(t), cols = t->bytes.length / size / (rows ? rows : 1);
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < cols; c++, at += size)
                memcpy(out + at, t->bytes.at + (c * rows + r) * size, size);
    }
    all.at = out;
    return param_put(p, name, first->dtype, &s, all);
}

static void use_rows(Params *p, const Piece *piece, uint32_t n, uint32_t id, bool flip)
{
    int64_t start = 0;
    for (uint32_t i = 0; i < n; i++) {
        RawNode *node = piece[i].node;
        int64_t rows = rows_of(piece_tensor(p, &piece[i]));
        param_use_rows(p, node, piece[i].input, id, flip, start, rows);
        start += rows;
    }
}

/* An Identity that only a piece read has nothing to do any more. */
static void retire(const RawNodes *list, const Piece *piece, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const char *name = piece[i].node->in[piece[i].input];
        RawNode *made = NULL;
        bool read = false;
        for (uint32_t k = 0; k < list->n; k++) {
            RawNode *other = list->at[k];
            if (other->nout == 1 && !strcmp(other->out[0], name))
                made = other;
            for (uint32_t j = 0; other != piece[i].node && j < other->nin; j++)
                read = read || !strcmp(other->in[j], name);
        }
        if (made && !read)
            made->dead = true;
    }
}

static bool reads_one_value(const Attention *at)
{
    bool one = at->n == MOST;
    for (uint32_t i = 1; i < at->n; i++)
        one &= !strcmp(at->weight[i].node->in[0], at->weight[0].node->in[0]);
    return one;
}

static void make_own(Params *p, const Attention *at)
{
    static const char *const leaf[MOST] = {"q_proj", "k_proj", "v_proj"};
    Arena *a = p->m->arena;
    for (uint32_t i = 0; i < at->n; i++) {
        const Piece *w = &at->weight[i], *b = &at->bias[i];
        const char *name = arena_printf(a, "%s.%s.weight", at->path, leaf[i]);
        param_use(p, w->node, w->input, param_new(p, name, w->init, true, true, false), true);
        vec_push(a, &p->placed, name);
        if (at->n_bias == 0)
            continue;
        name = arena_printf(a, "%s.%s.bias", at->path, leaf[i]);
        param_use(p, b->node, b->input, param_new(p, name, b->init, false, true, false), false);
        vec_push(a, &p->placed, name);
    }
}

/* False when its slices do not tell what they are slices of. */
static bool make(Params *p, const Attention *at)
{
    static const char *const apart[MOST] = {"q_proj_weight", "k_proj_weight", "v_proj_weight"};
    Arena *a = p->m->arena;
    if (reads_one_value(at)) {
        make_own(p, at);
        return true;
    }
    if (has_one_input(p, at)) {
        const char *name = arena_printf(a, "%s.in_proj_weight", at->path);
        uint32_t id = assemble(p, name, at->weight, at->n, shape_of(2, 3 * at->width, at->width));
        use_rows(p, at->weight, at->n, id, true);
    } else if (at->n == MOST) {
        for (int i = 0; i < MOST; i++) {
            const Piece *w = &at->weight[i];
            uint32_t id = param_new(p, arena_printf(a, "%s.%s", at->path, apart[i]), w->init, true,
                                    true, false);
            param_use(p, w->node, w->input, id, true);
        }
    } else {
        return false;
    }
    if (at->n_bias == 0)
        return true;
    const char *bias = arena_printf(a, "%s.in_proj_bias", at->path);
    use_rows(p, at->bias, at->n_bias,
             assemble(p, bias, at->bias, at->n_bias, shape_of(1, 3 * at->width)), false);
    return true;
}

void param_pieces(Params *p, const RawNodes *list)
{
    StrMap index = {.arena = p->m->arena};
    VEC(Attention) all = {0};
    /* modules first, then what stands in them */
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < list->n; i++) {
            RawNode *n = list->at[i];
            if (n->dead || n->call || !*n->scope)
                continue;
            Attention found = {0};
            uint32_t *slot = pass ? NULL : strmap_at(&index, n->scope);
            if (!pass)
                see_projection(p, n, &found);
            if (found.path && *slot == NONE) {
                *slot = all.n;
                vec_push(p->m->arena, &all, found);
            }
            uint32_t at = pass && n->nin == 2 ? strmap_get(&index, n->scope) : NONE;
            if (at != NONE)
                see_piece(p, n, &all.at[at]);
        }
    for (uint32_t i = 0; i < all.n; i++)
        if (is_whole(p, &all.at[i]) && make(p, &all.at[i])) {
            retire(list, all.at[i].weight, all.at[i].n);
            retire(list, all.at[i].bias, all.at[i].n_bias);
        }
}
