/*
 * group.c - the ONNX nodes of one fx node, as a group with the parameters among its arguments, and
 * what an fx node tells of its operands; what names say: that of an fx node ("mul_3"), of a kind
 * and a number, and a parameter's path, seen from the scope of a node; how many steps of a kind
 * folding did.
 */
#include <string.h>

#include "fx.h"

/* ---- names ---- */

/* The length of a name without its number. */
static size_t base_length(const char *name)
{
    size_t n = strlen(name), k = n;
    while (k > 0 && name[k - 1] >= '0' && name[k - 1] <= '9')
        k--;
    return k < n && k > 1 && name[k - 1] == '_' ? k - 1 : n;
}

bool fx_is_one_of(const char *name, const char *const *base)
{
    for (; *base; base++)
        if (base_length(name) == strlen(*base) && !strncmp(name, *base, strlen(*base)))
            return true;
    return false;
}

bool fx_same_base(const char *a, const char *b)
{
    size_t n = base_length(a);
    return n == base_length(b) && !strncmp(a, b, n);
}

const char *fx_leaf(const char *target)
{
    const char *dot = strrchr(target, '.');
    return dot ? dot + 1 : target;
}

bool fx_is_own(const char *target, const char *scope)
{
    size_t n = (size_t)(fx_leaf(target) - target);
    n -= n > 0;
    return n == strlen(scope) && !strncmp(target, scope, n);
}

/* ---- steps ---- */

/* What the source says that changes something: no number of it, and nothing that the exporter put
 * below. */
static bool is_step(const char *name)
{
    static const char *const same[] = {
        "clone", "contiguous", "to", "_to_copy", "alias", "convert_element_type_default", NULL};
    return !param_is_made_up(name) && !fx_is_one_of(name, same) &&
           strncmp(name, "scalar_tensor", strlen("scalar_tensor"));
}

uint32_t fx_steps(const Fx *x, const Trace *t, const char *const *base)
{
    const MadeOf *o = &x->origin[t->use->init];
    uint32_t n = base ? fx_is_one_of(t->fx, base) : is_step(t->fx);
    for (uint32_t i = 0; i < o->step.n; i++)
        n += strcmp(o->step.at[i], t->fx) &&
             (base ? fx_is_one_of(o->step.at[i], base) : is_step(o->step.at[i]));
    return n;
}

/* ---- operands ---- */

/* Which of its arguments an aten operator takes as weight and bias. */
static int argument_role(const char *target, int position)
{
    static const struct {
        const char *target;
        int weight, bias, mean, var;
    } role[] = {
        {"aten.linear.", 1, 2, -1, -1},
        {"aten.addmm.", 2, 0, -1, -1},
        {"aten.conv", 1, 2, -1, -1},
        {"aten.layer_norm.", 2, 3, -1, -1},
        {"aten.native_layer_norm.", 2, 3, -1, -1},
        {"aten.group_norm.", 2, 3, -1, -1},
        {"aten.native_group_norm.", 1, 2, -1, -1},
        {"aten.batch_norm.", 1, 2, 3, 4},
        {"aten._native_batch_norm", 1, 2, 3, 4},
        {"aten.native_batch_norm.", 1, 2, 3, 4},
        {"aten.cudnn_batch_norm.", 1, 2, 3, 4},
        {"aten.instance_norm.", 1, 2, 3, 4},
        {"aten.rms_norm.", 2, -1, -1, -1},
        {"aten.embedding.", 0, -1, -1, -1},
        {"aten.prelu.", 1, -1, -1, -1},
        {"aten._prelu_kernel.", 1, -1, -1, -1},
        {"aten.matmul.", 1, -1, -1, -1},
        {"aten.mm.", 1, -1, -1, -1},
        {"aten.bmm.", 1, -1, -1, -1},
        {"aten.baddbmm.", 2, 0, -1, -1},
    };
    if (position >= 0)
        for (size_t i = 0; i < sizeof role / sizeof *role; i++)
            if (!strncmp(target, role[i].target, strlen(role[i].target)))
                return position == role[i].weight ? ROLE_WEIGHT
                       : position == role[i].bias ? ROLE_BIAS
                       : position == role[i].mean ? ROLE_MEAN
                       : position == role[i].var  ? ROLE_VAR
                                                  : ROLE_ANY;
    return ROLE_ANY;
}

bool fx_is_target(const FxNode *fx, const char *target)
{
    return !strncmp(fx->target, target, strlen(target));
}

bool fx_has_bias(const FxNode *fx)
{
    return fx_is_target(fx, "aten.linear.") || fx_is_target(fx, "aten.addmm.") ||
           fx_is_target(fx, "aten.conv");
}

bool fx_is_norm(const FxNode *fx) { return strstr(fx->target, "batch_norm") != NULL; }
bool fx_has_norm(const FxNode *fx, const RawNode *n)
{
    return fx_is_norm(fx) && strcmp(n->op_type, "BatchNormalization") && n->nin > 1 &&
           param_role(n, 1) == ROLE_WEIGHT;
}

/* Norms over groups of channels: InstanceNormalization with ones and zeros, then Mul by the weight,
 * Add of the bias. */
bool fx_is_decomposed_norm(const FxNode *fx)
{
    return strstr(fx->target, "group_norm") || fx_is_target(fx, "aten.layer_norm.") ||
           fx_is_target(fx, "aten.native_layer_norm.") || strstr(fx->target, "rms_norm");
}

/* What an operand is: by its slot, or as the addend of a linear or convolution written as two
 * nodes. */
int fx_use_role(const FxNode *fx, const RawNode *n, uint32_t input)
{
    int role = param_role(n, input);
    if (fx_is_decomposed_norm(fx) && !strcmp(n->op_type, "InstanceNormalization"))
        return ROLE_ANY;
    if (fx_is_decomposed_norm(fx) && role == ROLE_ANY)
        return !strcmp(n->op_type, "Mul")   ? ROLE_WEIGHT
               : !strcmp(n->op_type, "Add") ? ROLE_BIAS
                                            : ROLE_ANY;
    if (fx_is_norm(fx) && role == ROLE_WEIGHT && strcmp(n->op_type, "BatchNormalization"))
        return ROLE_ANY; /* a convolution the norm was folded into: not the norm's weight */
    if (role == ROLE_ANY && !strcmp(n->op_type, "Add") && fx_has_bias(fx))
        return ROLE_BIAS;
    if (role == ROLE_ANY && !strcmp(n->op_type, "Transpose") && fx_has_bias(fx))
        return ROLE_WEIGHT;
    return role;
}

bool fx_is_control(const FxNode *fx) { return strstr(fx->target, "higher_order.") != NULL; }

/* The entry of the signature that an argument of an fx node is, or NONE. */
static uint32_t entry_of(const Params *p, const char *name)
{
    uint32_t e = strmap_get(&p->body_arg, name);
    return e != NONE ? e : strmap_get(&p->sig.by_arg, name);
}

/* A body's placeholders are arg0_1, arg1_1, ... in the order of the operands, which stand behind
 * the names of the bodies; those of a cond are called as its operands are. */
StrMap param_enter(Params *p, const RawNode *n)
{
    StrMap before = p->body_arg, now = {.arena = p->m->arena};
    FxNode fx;
    uint32_t k = 0;
    bool known = n->fx_node && meta_fx(p->m->arena, n->fx_node, &fx) && fx_is_control(&fx);
    for (uint32_t i = 0; known && i < fx.n; i++) {
        const char *graph = strstr(fx.arg[i].name, "_graph_");
        if (k == 0 && graph)
            continue;
        uint32_t e = entry_of(p, fx.arg[i].name);
        if (e != NONE) {
            *strmap_at(&now, arena_printf(p->m->arena, "arg%u_1", k)) = e;
            *strmap_at(&now, fx.arg[i].name) = e;
        }
        k++;
    }
    p->body_arg = now;
    return before;
}

void param_leave(Params *p, StrMap before) { p->body_arg = before; }

uint32_t fx_group(Fx *x, const RawNode *n)
{
    FxNode fx;
    if (!n->fx_node || !meta_fx(x->a, n->fx_node, &fx))
        return NONE;
    uint32_t *slot = strmap_at(&x->index, fx.name);
    if (*slot != NONE)
        return *slot;
    *slot = x->group.n;
    Group g = {.fx = fx};
    for (uint32_t i = 0; i < fx.n; i++) {
        uint32_t e = entry_of(x->p, fx.arg[i].name);
        if (e != NONE)
            vec_push(x->a, &g.arg,
                     ((Argument){e, argument_role(fx.target, fx.arg[i].position), false}));
    }
    vec_push(x->a, &x->group, g);
    return x->group.n - 1;
}
