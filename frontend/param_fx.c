/*
 * param_fx.c - parameters of a model exported by PyTorch's dynamo exporter.  In: nodes with the text of their fx
 * node, and the graph's signature: together they tell which parameter every operand was before the exporter's
 * optimizer renamed weights (val_0, transposed), merged equal ones, and dropped biases that are zero.
 *
 * ONNX nodes of one fx node form a group.  Within a group the %p_ arguments of the fx node are matched with the
 * initializers its nodes read: by exact name first, then by role (weight, bias, ...), then by order.
 * An initializer read through two arguments is two parameters; two initializers of one argument are one (a tie).
 */
#include <string.h>

#include "read.h"

/*
 * entry: of the signature, or NONE.  squeezed: the file holds a view of it with dims of 1 added; repeated: it holds it
 * as often as dim 0 says.  rows: how many from start on the operand is; 0: all of it.
 */
typedef struct { RawNode *node; uint32_t input, init, entry; bool flip, squeezed, repeated; int64_t start, rows; } Use;
typedef VEC(Use) Uses;
typedef struct { uint32_t entry; int role; bool taken; } Argument;
typedef VEC(Argument) Arguments;

typedef struct {
    FxNode fx;
    Uses use;
    Arguments arg;
    VEC(RawNode *) node;
} Group;

/* folded: what folding made of a parameter, by the initializer's name -> entry; claim: by entry, who may be tied to it. */
typedef struct { Params *p; Arena *a; const RawNodes *list; StrMap index, folded; VEC(Group) group; Uses loose; uint32_t *claim; } Fx;

/* Which of its arguments an aten operator takes as weight and bias. */
static int argument_role(const char *target, int position)
{
    static const struct { const char *target; int weight, bias, mean, var; } role[] = {
        {"aten.linear.", 1, 2, -1, -1},         {"aten.addmm.", 2, 0, -1, -1},
        {"aten.convolution.", 1, 2, -1, -1},    {"aten.conv1d.", 1, 2, -1, -1},
        {"aten.conv2d.", 1, 2, -1, -1},         {"aten.conv3d.", 1, 2, -1, -1},
        {"aten.conv_transpose1d.", 1, 2, -1, -1}, {"aten.conv_transpose2d.", 1, 2, -1, -1},
        {"aten.conv_transpose3d.", 1, 2, -1, -1}, {"aten.layer_norm.", 2, 3, -1, -1},
        {"aten.native_layer_norm.", 2, 3, -1, -1}, {"aten.group_norm.", 2, 3, -1, -1},
        {"aten.native_group_norm.", 1, 2, -1, -1}, {"aten.batch_norm.", 1, 2, 3, 4},
        {"aten._native_batch_norm", 1, 2, 3, 4}, {"aten.native_batch_norm.", 1, 2, 3, 4},
        {"aten.cudnn_batch_norm.", 1, 2, 3, 4}, {"aten.instance_norm.", 1, 2, 3, 4},
        {"aten.rms_norm.", 2, -1, -1, -1},      {"aten.embedding.", 0, -1, -1, -1},
        {"aten.prelu.", 1, -1, -1, -1},         {"aten._prelu_kernel.", 1, -1, -1, -1},
        {"aten.matmul.", 1, -1, -1, -1},        {"aten.mm.", 1, -1, -1, -1},
        {"aten.bmm.", 1, -1, -1, -1},           {"aten.baddbmm.", 2, 0, -1, -1},
    };
    if (position >= 0)
        for (size_t i = 0; i < sizeof role / sizeof *role; i++)
            if (!strncmp(target, role[i].target, strlen(role[i].target)))
                return position == role[i].weight ? ROLE_WEIGHT : position == role[i].bias ? ROLE_BIAS
                     : position == role[i].mean ? ROLE_MEAN : position == role[i].var ? ROLE_VAR : ROLE_ANY;
    return ROLE_ANY;
}

static bool is_target(const FxNode *fx, const char *target) { return !strncmp(fx->target, target, strlen(target)); }

static bool has_bias(const FxNode *fx)
{
    return is_target(fx, "aten.linear.") || is_target(fx, "aten.addmm.") || is_target(fx, "aten.conv");
}

static bool is_norm(const FxNode *fx) { return strstr(fx->target, "batch_norm") != NULL; }

/* Norms over groups of channels: InstanceNormalization with ones and zeros, then Mul by the weight, Add of the bias. */
static bool is_decomposed_norm(const FxNode *fx)
{
    return strstr(fx->target, "group_norm") || is_target(fx, "aten.layer_norm.") || is_target(fx, "aten.native_layer_norm.")
           || strstr(fx->target, "rms_norm");
}

/* What an operand is: by its slot, or as the addend of a linear or convolution written as two nodes. */
static int use_role(const FxNode *fx, const RawNode *n, uint32_t input)
{
    int role = param_role(n, input);
    if (is_decomposed_norm(fx) && !strcmp(n->op_type, "InstanceNormalization"))
        return ROLE_ANY;
    if (is_decomposed_norm(fx) && role == ROLE_ANY)
        return !strcmp(n->op_type, "Mul") ? ROLE_WEIGHT : !strcmp(n->op_type, "Add") ? ROLE_BIAS : ROLE_ANY;
    if (is_norm(fx) && role == ROLE_WEIGHT && strcmp(n->op_type, "BatchNormalization"))
        return ROLE_ANY;                                /* a convolution the norm was folded into: not the norm's weight */
    if (role == ROLE_ANY && !strcmp(n->op_type, "Add") && has_bias(fx))
        return ROLE_BIAS;
    if (role == ROLE_ANY && !strcmp(n->op_type, "Transpose") && has_bias(fx))
        return ROLE_WEIGHT;
    return role;
}

/* Does the operand hold the parameter with its two dimensions exchanged? */
static bool is_flipped(const FxNode *fx, const RawNode *n, uint32_t input, const RawTensor *t)
{
    if (t->shape.rank != 2 || input != 1)
        return false;
    bool gemm = !strcmp(n->op_type, "Gemm"), exchanged = gemm && raw_int(n, "transB", 0);
    if (!gemm && strcmp(n->op_type, "MatMul"))
        return false;
    if (is_target(fx, "aten.linear."))
        return !exchanged;
    return gemm && exchanged;                           /* addmm, mm: the weight is [in, out] */
}

/* ---- collecting ---- */

static Group *group_of(Fx *x, const RawNode *n)
{
    FxNode fx;
    if (!n->fx_node || !meta_fx(x->a, n->fx_node, &fx))
        return NULL;
    uint32_t *slot = strmap_at(&x->index, fx.name);
    if (*slot != NONE)
        return &x->group.at[*slot];
    *slot = x->group.n;
    Group g = {.fx = fx};
    for (uint32_t i = 0; i < fx.n; i++) {
        uint32_t e = strmap_get(&x->p->sig.by_arg, fx.arg[i].name);
        if (e != NONE)
            vec_push(x->a, &g.arg, ((Argument){e, argument_role(fx.target, fx.arg[i].position), false}));
    }
    vec_push(x->a, &x->group, g);
    return &x->group.at[x->group.n - 1];
}

static void collect(Fx *x, const RawNodes *list)
{
    const Model *m = x->p->m;
    for (uint32_t i = 0; i < list->n; i++) {
        RawNode *n = list->at[i];
        if (n->dead)
            continue;
        Group *g = group_of(x, n);
        if (g)
            vec_push(x->a, &g->node, n);
        for (uint32_t j = 0; j < n->nin; j++) {
            uint32_t init = *n->in[j] ? strmap_get(&m->init_index, n->in[j]) : NONE;
            if (init != NONE && dtype_is_float(m->init.at[init].dtype) && m->init.at[init].bytes.length)
                vec_push(x->a, g ? &g->use : &x->loose, ((Use){.node = n, .input = j, .init = init, .entry = NONE}));
        }
    }
}

/* ---- matching ---- */

static int wide_dims(const Shape *s)
{
    int wide = 0;
    for (int i = 0; i < s->rank; i++)
        wide += s->d[i] > 1;
    return wide;
}

/* Parameters that are vectors in PyTorch, and that nodes want with dims of 1 behind the channels. */
static bool is_vector(const FxNode *fx)
{
    return strstr(fx->target, "group_norm") || strstr(fx->target, "batch_norm") || strstr(fx->target, "instance_norm")
           || strstr(fx->target, "prelu");
}

static void take(Fx *x, Group *g, Use *u, uint32_t entry)
{
    const Shape *s = &x->p->m->init.at[u->init].shape;
    u->entry = entry;
    u->flip = g && is_flipped(&g->fx, u->node, u->input, &x->p->m->init.at[u->init]);
    u->squeezed = g && is_vector(&g->fx) && s->rank > 1 && wide_dims(s) <= 1;
    for (uint32_t i = 0; g && i < g->arg.n; i++)
        if (g->arg.at[i].entry == entry)
            g->arg.at[i].taken = true;
}

static void match_names(Fx *x, Group *g)
{
    for (uint32_t i = 0; i < g->use.n; i++) {
        Use *u = &g->use.at[i];
        uint32_t e = strmap_get(&x->p->sig.by_target, x->p->m->init.at[u->init].name);
        for (uint32_t k = 0; e != NONE && k < g->arg.n; k++)
            if (g->arg.at[k].entry == e) {
                take(x, g, u, e);
                break;
            }
    }
}

static void match_roles(Fx *x, Group *g)
{
    for (uint32_t i = 0; i < g->use.n; i++) {
        Use *u = &g->use.at[i];
        int role = use_role(&g->fx, u->node, u->input);
        if (u->entry != NONE || role == ROLE_ANY)
            continue;
        bool scalar = shape_elements(&x->p->m->init.at[u->init].shape) == 1;
        if (role == ROLE_WEIGHT && x->p->m->init.at[u->init].shape.rank == 0)
            continue;
        if (scalar && is_decomposed_norm(&g->fx))       /* an epsilon */
            continue;
        for (uint32_t k = 0; k < g->arg.n; k++)
            if (!g->arg.at[k].taken && g->arg.at[k].role == role) {
                take(x, g, u, g->arg.at[k].entry);
                break;
            }
    }
}

/* What is left goes by order: other parameters' initializers first, then tensors, then scalars. */
static void match_order(Fx *x, Group *g)
{
    const Params *p = x->p;
    for (int pass = 0; pass < 3; pass++)
        for (uint32_t i = 0; i < g->use.n; i++) {
            Use *u = &g->use.at[i];
            const RawTensor *t = &p->m->init.at[u->init];
            int kind = strmap_get(&p->sig.by_target, t->name) != NONE ? 0 : t->shape.rank > 0 ? 1 : 2;
            if (u->entry != NONE || kind != pass || param_role(u->node, u->input) != ROLE_ANY || is_norm(&g->fx))
                continue;
            for (uint32_t k = 0; k < g->arg.n; k++) {
                bool bias = has_bias(&g->fx) && g->arg.at[k].role == ROLE_BIAS;
                if (g->arg.at[k].taken || (bias && use_role(&g->fx, u->node, u->input) != ROLE_BIAS))
                    continue;
                take(x, g, u, g->arg.at[k].entry);
                break;
            }
        }
}

/* What folding did to a parameter, by the name of the fx node that was folded: "unsqueeze_3", "expand", "t". */
typedef enum { FOLD_NONE, FOLD_VIEW, FOLD_TURN, FOLD_REPEAT, FOLD_SUM } Fold;

static Fold fold_of(const char *name)
{
    static const struct { const char *name; Fold fold; } known[] = {
        {"view", FOLD_VIEW}, {"reshape", FOLD_VIEW}, {"unsqueeze", FOLD_VIEW}, {"_unsafe_view", FOLD_VIEW},
        {"t", FOLD_TURN}, {"permute", FOLD_TURN}, {"transpose", FOLD_TURN}, {"numpy_t", FOLD_TURN},
        {"expand", FOLD_REPEAT}, {"repeat", FOLD_REPEAT}, {"add", FOLD_SUM},
    };
    size_t n = strlen(name), k = n;
    while (k > 0 && name[k - 1] >= '0' && name[k - 1] <= '9')
        k--;
    n = k < n && k > 1 && name[k - 1] == '_' ? k - 1 : n;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].name) == n && !strncmp(known[i].name, name, n))
            return known[i].fold;
    return FOLD_NONE;
}

static Fold use_fold(const Group *g, const RawTensor *t)
{
    Fold fold = fold_of(t->name);
    for (uint32_t i = 0; i < g->fx.n && fold == FOLD_NONE && param_is_made_up(t->name); i++)
        if (g->fx.arg[i].position >= 0 && fold_of(g->fx.arg[i].name) == FOLD_VIEW)
            fold = FOLD_VIEW;
    return fold;
}

/* Are the bytes those of the first row, again and again? */
static bool is_repeated(const RawTensor *t)
{
    if (t->shape.rank < 2 || t->shape.d[0] < 1)
        return false;
    size_t row = t->bytes.length / (size_t)t->shape.d[0];
    return !memcmp(t->bytes.at, t->bytes.at + row, t->bytes.length - row);
}

static bool fits_fold(const RawTensor *t, const RawNode *n, Fold fold)
{
    switch (fold) {
    case FOLD_VIEW: return t->shape.rank >= 2 && wide_dims(&t->shape) == 1;
    case FOLD_TURN: return t->shape.rank == 2;
    case FOLD_REPEAT: return is_repeated(t) && wide_dims(&t->shape) > 0;
    case FOLD_SUM: return t->shape.rank == 1 && t->shape.d[0] > 1 && !strcmp(n->op_type, "Mul");
    default: return false;
    }
}

/*
 * The parameter of the module itself that nothing reads: the only one, or, of several, the one called as the node's
 * operator suggests; else NONE.
 */
static uint32_t unread(const Params *p, const RawNode *node, const bool *used)
{
    const char *scope = node->scope, *leaf = !strcmp(node->op_type, "Add") ? "bias" : "weight";
    uint32_t found = NONE, named = NONE, count = 0;
    size_t n = strlen(scope);
    for (uint32_t e = 0; e < p->sig.n; e++) {
        const char *t = p->sig.entry[e].target;
        bool own = n ? !strncmp(t, scope, n) && t[n] == '.' && !strchr(t + n + 1, '.') : !strchr(t, '.');
        if (!own || used[e] || p->sig.entry[e].kind != SIG_PARAMETER)
            continue;
        found = e;
        count++;
        if (!strcmp(n ? t + n + 1 : t, leaf))
            named = e;
    }
    return count == 1 ? found : named;
}

/*
 * gamma.view(1, -1, 1, 1), weight.t(), cls.expand(n, -1, -1) or 1 + weight was folded: the operand is what became of a
 * parameter, in the module that lacks one.
 */
static bool match_fold(Fx *x, Group *g, Use *u, bool *used)
{
    const RawTensor *t = &x->p->m->init.at[u->init];
    Fold fold = use_fold(g, t);
    uint32_t *known = strmap_at(&x->folded, t->name), e = *known;
    if (!fits_fold(t, u->node, fold))
        return false;
    if (e == NONE)
        e = unread(x->p, u->node, used);
    if (e == NONE)
        return false;
    *known = e;
    take(x, g, u, e);
    u->flip = fold == FOLD_TURN;
    u->squeezed = fold == FOLD_VIEW;
    u->repeated = fold == FOLD_REPEAT;
    used[e] = true;
    return true;
}

/* A node without an fx node reads a parameter of another module: it was merged with the like-named one of its own. */
static uint32_t merged_into(const Fx *x, const Use *u, uint32_t entry, const bool *used)
{
    const char *target = x->p->sig.entry[entry].target, *dot = strrchr(target, '.'), *scope = u->node->scope;
    if (!dot || !*scope || (!strncmp(target, scope, strlen(scope)) && target[strlen(scope)] == '.'))
        return NONE;
    uint32_t e = strmap_get(&x->p->sig.by_target, arena_printf(x->a, "%s%s", scope, dot));
    return e != NONE && !used[e] && x->p->sig.entry[e].kind == SIG_PARAMETER ? e : NONE;
}

/*
 * Equal zero biases were merged and then their Splits too: what the node makes is read in modules that lack a parameter
 * of this name themselves.  One gradient for all of them would be wrong: see separate().
 */
static bool is_shared(const Fx *x, const Use *u, const bool *used)
{
    const char *dot = strrchr(x->p->m->init.at[u->init].name, '.');
    for (uint32_t i = 0; dot && i < x->list->n; i++) {
        const RawNode *n = x->list->at[i];
        bool reads = false;
        for (uint32_t j = 0; !n->dead && j < n->nin && *n->in[j]; j++)
            for (uint32_t k = 0; k < u->node->nout && !reads; k++)
                reads = !strcmp(n->in[j], u->node->out[k]);
        if (!reads || !strcmp(n->scope, u->node->scope))
            continue;
        uint32_t e = strmap_get(&x->p->sig.by_target, arena_printf(x->a, "%s%s", n->scope, dot));
        if (e != NONE && !used[e])
            return true;
    }
    return false;
}

/* The rows of output k of a Split along dim 0. */
static bool split_rows(const Fx *x, const Use *u, uint32_t k, int64_t *start, int64_t *rows)
{
    const RawNode *n = u->node;
    const Model *m = x->p->m;
    int64_t all = m->init.at[u->init].shape.d[0], each = (all + n->nout - 1) / n->nout;
    uint32_t init = n->nin > 1 && *n->in[1] ? strmap_get(&m->init_index, n->in[1]) : NONE;
    if (strcmp(n->op_type, "Split") || u->input != 0 || raw_int(n, "axis", 0) != 0 || m->init.at[u->init].shape.rank < 1)
        return false;
    if (n->nin > 1 && (init == NONE || m->init.at[init].dtype != DT_I64 || m->init.at[init].bytes.length != n->nout * sizeof(int64_t)))
        return false;
    for (uint32_t i = 0, at = 0; i <= k; i++, at += (uint32_t)*rows) {
        *start = at;
        *rows = each;
        if (init != NONE)
            memcpy(rows, m->init.at[init].bytes.at + i * sizeof *rows, sizeof *rows);
        if (*rows < 1 || *rows > all - *start)
            return false;
    }
    return true;
}

/* Each reader of a shared Split gets its rows of the parameter of its own module, and the Split is gone.  False: some reader has none. */
static bool separate(Fx *x, const Use *u, bool *used, Uses *all)
{
    const char *dot = strrchr(x->p->m->init.at[u->init].name, '.');
    Uses own = {0};
    for (uint32_t i = 0; i < x->list->n; i++) {
        RawNode *n = x->list->at[i];
        for (uint32_t j = 0; !n->dead && j < n->nin; j++)
            for (uint32_t k = 0; k < u->node->nout; k++) {
                Use part = {.node = n, .input = j, .init = u->init};
                if (!*n->in[j] || strcmp(n->in[j], u->node->out[k]))
                    continue;
                part.entry = strmap_get(&x->p->sig.by_target, arena_printf(x->a, "%s%s", n->scope, dot));
                if (part.entry == NONE || used[part.entry] || !split_rows(x, u, k, &part.start, &part.rows))
                    return false;
                vec_push(x->a, &own, part);
            }
    }
    for (uint32_t i = 0; i < own.n; i++) {
        used[own.at[i].entry] = true;
        vec_push(x->a, all, own.at[i]);
    }
    u->node->dead = own.n > 0;
    return own.n > 0;
}

/* Operands the arguments do not explain: by their own name, else by the module they stand in. */
static void match_scope(Fx *x, Group *g, Use *u, bool *used, Uses *all)
{
    static const char *const leaf[] = {NULL, "weight", "bias", NULL, NULL};
    const Params *p = x->p;
    const RawTensor *t = &p->m->init.at[u->init];
    uint32_t e = strmap_get(&p->sig.by_target, t->name);
    uint32_t own = e == NONE || g ? NONE : merged_into(x, u, e, used);
    if (e != NONE && !g && is_shared(x, u, used)) {
        separate(x, u, used, all);
        return;
    }
    if (e != NONE && (own != NONE || !used[e] || !g)) {
        take(x, g, u, own != NONE ? own : e);
        u->flip = false;
        return;
    }
    if (g && match_fold(x, g, u, used))
        return;
    int role = g ? use_role(&g->fx, u->node, u->input) : param_role(u->node, u->input);
    if (!leaf[role] || !*u->node->scope || !param_is_made_up(t->name) || t->shape.rank == 0)
        return;
    e = strmap_get(&p->sig.by_target, arena_printf(x->a, "%s.%s", u->node->scope, leaf[role]));
    if (e == NONE || used[e])
        return;
    take(x, g, u, e);
    bool product = !strcmp(u->node->op_type, "MatMul") || !strcmp(u->node->op_type, "Gemm");
    u->flip = product && role == ROLE_WEIGHT && t->shape.rank == 2 && !raw_int(u->node, "transB", 0);
}

/* ---- making ---- */

static Shape true_shape(const RawTensor *t, const Use *u)
{
    Shape s = t->shape;
    if (u->squeezed)
        return shape_of(1, shape_elements(&s));
    if (u->repeated)
        s.d[0] = 1;
    if (u->flip) {
        s.d[0] = t->shape.d[1];
        s.d[1] = t->shape.d[0];
    }
    return s;
}

/* The unread entry called like this use's parameter, but of the module the node stands in (level 0) or the one around it. */
static uint32_t other_name(const Fx *x, const Use *u, int level, const bool *used)
{
    const Params *p = x->p;
    const char *dot = u->entry == NONE ? NULL : strrchr(p->sig.entry[u->entry].target, '.');
    char *module = arena_strdup(x->a, u->node->scope);
    for (int i = 0; i < level && *module; i++) {
        char *up = strrchr(module, '.');
        *(up ? up : module) = '\0';
    }
    if (!dot || !*module)
        return NONE;
    uint32_t other = strmap_get(&p->sig.by_target, arena_printf(x->a, "%s%s", module, dot));
    bool free_name = other != NONE && other != u->entry && !used[other] && p->sig.entry[other].kind == SIG_PARAMETER;
    return free_name ? other : NONE;
}

/* A head's bias is tied to the bias of the module around it: when one parameter alone in there may be that. */
static void find_claims(Fx *x, const Uses *use, const bool *used)
{
    const uint32_t several = NONE - 1;
    x->claim = arena_array(x->a, uint32_t, x->p->sig.n + 1);
    for (uint32_t e = 0; e <= x->p->sig.n; e++)
        x->claim[e] = NONE;
    for (uint32_t i = 0; i < use->n; i++) {
        uint32_t other = other_name(x, &use->at[i], 1, used);
        if (other != NONE)
            x->claim[other] = x->claim[other] == NONE || x->claim[other] == use->at[i].entry ? use->at[i].entry : several;
    }
}

/* The other name of a tied parameter: declared, read by no one, and the module it belongs to reads this one. */
static uint32_t first_name(const Fx *x, const Uses *use, uint32_t entry, const bool *used, bool *alias)
{
    uint32_t best = entry;
    for (uint32_t i = 0; i < use->n; i++)
        for (int level = 0; level < 2 && use->at[i].entry == entry; level++) {
            uint32_t other = other_name(x, &use->at[i], level, used);
            if (other == NONE || (level == 1 && x->claim[other] != entry))
                continue;
            alias[other] = true;
            best = other < best ? other : best;
        }
    return best;
}

static bool is_stat(const Use *u)
{
    int role = param_role(u->node, u->input);
    return (role == ROLE_MEAN || role == ROLE_VAR) && raw_int(u->node, "training_mode", 0);
}

static void make(Fx *x, const Uses *use, uint32_t entry, const bool *used, bool *alias)
{
    Params *p = x->p;
    const Use *primary = NULL;
    bool stat = false;
    for (uint32_t i = 0; i < use->n; i++) {
        const Use *u = &use->at[i];
        if (u->entry != entry)
            continue;
        stat = stat || is_stat(u);
        if (!primary || (primary->flip && !u->flip))
            primary = u;
    }
    if (!primary || (p->sig.entry[entry].kind != SIG_PARAMETER && !stat))
        return;
    uint32_t id = p->sig_param[entry];
    if (id == NONE) {
        uint32_t named = first_name(x, use, entry, used, alias);
        id = param_new(p, p->sig.entry[named].target, primary->init, primary->flip, true, stat);
        if (primary->squeezed)
            param_squeeze(p, id);
        if (primary->repeated)
            param_first_row(p, id);
        p->sig_param[entry] = id;
        for (uint32_t e = 0; e < p->sig.n; e++)
            if (alias[e] && p->sig_param[e] == NONE)
                p->sig_param[e] = id;
    }
    for (uint32_t i = 0; i < use->n; i++) {
        const Use *u = &use->at[i];
        Shape s = true_shape(&p->m->init.at[u->init], u);
        if (u->entry != entry || !shape_equal(&s, &p->g->param.at[id].shape))
            continue;
        param_use(p, u->node, u->input, id, u->flip);
        if (u->rows)
            param_use_rows(p, u->node, u->input, u->start, u->rows);
    }
}

/* ---- biases that were dropped because they are zero ---- */

static bool bias_shape(const Fx *x, const Group *g, RawNode **at, Shape *s, Dtype *type)
{
    for (uint32_t i = 0; i < g->node.n; i++) {
        RawNode *n = g->node.at[i];
        bool transposed = !strcmp(n->op_type, "ConvTranspose"), conv = transposed || !strcmp(n->op_type, "Conv");
        if ((!conv && strcmp(n->op_type, "MatMul") && strcmp(n->op_type, "Gemm")) || n->nin < 2 || !n->param
            || n->param[1] == NONE || n->bias != NONE)
            continue;
        const Param *w = &x->p->g->param.at[n->param[1]];
        bool last = is_target(&g->fx, "aten.addmm.");
        int64_t out = w->shape.d[last ? w->shape.rank - 1 : transposed ? 1 : 0];
        if (transposed && __builtin_mul_overflow(out, raw_int(n, "group", 1), &out))
            return false;
        *s = shape_of(1, out);
        *type = w->dtype;
        *at = n;
        return true;
    }
    return false;
}

static void restore(Fx *x, const Group *g)
{
    Params *p = x->p;
    for (uint32_t k = 0; k < g->arg.n; k++) {
        uint32_t e = g->arg.at[k].entry;
        RawNode *n;
        Shape s;
        Dtype type;
        if (g->arg.at[k].taken || g->arg.at[k].role != ROLE_BIAS || p->sig.entry[e].kind != SIG_PARAMETER
            || !(has_bias(&g->fx) || is_norm(&g->fx)) || g->fx.scaled || !bias_shape(x, g, &n, &s, &type))
            continue;
        if (p->sig_param[e] == NONE) {
            p->sig_param[e] = p->g->param.n;
            param_zero(p, p->sig.entry[e].target, type, &s);
        }
        if (!shape_equal(&p->g->param.at[p->sig_param[e]].shape, &s))
            continue;
        n->bias = p->sig_param[e];
        if (!n->inlined)
            vec_push(x->a, &p->g->param.at[n->bias].use, ((FileUse){p->file, n->index, NONE, false}));
    }
}

void param_from_signature(Params *p, const RawNodes *list)
{
    Fx x = {.p = p, .a = p->m->arena, .list = list, .index.arena = p->m->arena, .folded.arena = p->m->arena};
    Uses all = {0};
    collect(&x, list);
    for (uint32_t i = 0; i < x.group.n; i++) {
        match_names(&x, &x.group.at[i]);
        match_roles(&x, &x.group.at[i]);
        match_order(&x, &x.group.at[i]);
    }
    bool *used = arena_array(x.a, bool, p->sig.n + 1), *alias = arena_array(x.a, bool, p->sig.n + 1);
    for (uint32_t i = 0; i < x.group.n; i++)
        for (uint32_t k = 0; k < x.group.at[i].arg.n; k++)
            used[x.group.at[i].arg.at[k].entry] = true;
    for (uint32_t i = 0; i <= x.group.n; i++) {
        Group *g = i < x.group.n ? &x.group.at[i] : NULL;
        Uses *use = g ? &g->use : &x.loose;
        for (uint32_t k = 0; k < use->n; k++) {
            if (use->at[k].entry == NONE)
                match_scope(&x, g, &use->at[k], used, &all);
            vec_push(x.a, &all, use->at[k]);
        }
    }
    find_claims(&x, &all, used);
    for (uint32_t e = 0; e < p->sig.n; e++)
        make(&x, &all, e, used, alias);
    for (uint32_t i = 0; i < x.group.n; i++)
        restore(&x, &x.group.at[i]);
}
