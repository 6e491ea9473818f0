/*
 * buffers.c - which floats of a TorchScript export are buffers.  In: the initializers, whose names
 * and order are those of the modules' members.  Out: what is called as buffers are, what stands
 * behind one in its module, tables of sines; and which of these only a name says.
 */
#include <math.h>
#include <string.h>

#include "fx.h"

/* Initializers that are buffers; those of which only their names, or the names of others, say so.
 */
struct Buffers {
    StrMap buffer, doubtful;
};

static const char *leaf_of(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

static bool is_one_of(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (!strcmp(name, *list))
            return true;
    return false;
}

/* Row 0 is sin 0 and cos 0, row 1 lies on the unit circle: a table of sines that no one learned. */
static bool is_sinusoidal(const RawTensor *t)
{
    int r = t->shape.rank;
    if (t->dtype != DT_F32 || r < 2 || t->shape.d[r - 2] < 2 || t->shape.d[r - 1] < 4 ||
        t->shape.d[r - 1] % 2)
        return false;
    size_t d = (size_t)t->shape.d[r - 1], zeros = 0, ones = 0;
    double square = 0;
    float x, last;
    memcpy(&x, t->bytes.at, sizeof x);
    memcpy(&last, t->bytes.at + (d - 1) * sizeof last, sizeof last);
    if (x + last != 1) /* so most are known by two numbers of them */
        return false;
    for (size_t i = 0; i < 2 * d; i++) {
        memcpy(&x, t->bytes.at + i * sizeof x, sizeof x);
        zeros += i < d && x == 0;
        ones += i < d && x == 1;
        square += i < d ? 0 : (double)x * (double)x;
    }
    return zeros == d / 2 && ones == d / 2 && fabs(square - (double)d / 2) < 1e-3 * (double)d;
}

static const char *module_of(Arena *a, const char *name)
{
    return arena_strndup(a, name, (size_t)(leaf_of(name) - name));
}

bool param_is_buffer_name(const char *name)
{
    // clang-format off
    static const char *const buffer[] = {
        "inv_freq", "original_inv_freq", "freqs", "running_mean", "running_var",
        "num_batches_tracked", "position_ids", "masked_bias", "attn_mask", "causal_mask",
        "cos", "sin", "cos_cached", "sin_cached", "cos_cache", "sin_cache", "freqs_cos",
        "freqs_sin", "freqs_cis",
        "relative_position_index", "relative_coords_table", "pe", "anchors", "mask", "tril", "triu",
        "alibi", "slopes", "alibi_slopes", "final_logits_bias", "pixel_mean", "pixel_std",
        "image_mean", "image_std", NULL};
    // clang-format on
    return is_one_of(leaf_of(name), buffer);
}

/* So are parameters called: learned positions, frequencies, masks. */
static bool is_called_either(const char *name)
{
    static const char *const either[] = {"freqs", "pe",   "anchors", "mask",
                                         "tril",  "triu", "slopes",  NULL};
    return is_one_of(leaf_of(name), either);
}

static bool is_plain_buffer(const Params *p, const RawTensor *t)
{
    return !dtype_is_float(t->dtype) || !t->bytes.length || is_sinusoidal(t) ||
           param_is_mask(p->g, t) || param_is_regular(p->g, t);
}

/* A module's members are written parameters first: what comes after a buffer is one too.  Whole
 * numbers of a byte are weights. */
void param_find_buffers(Params *p)
{
    p->buffers = arena_new_of(p->m->arena, Buffers);
    p->buffers->buffer.arena = p->buffers->doubtful.arena = p->m->arena;
    StrMap begun = {.arena = p->m->arena}, perhaps = {.arena = p->m->arena};
    for (uint32_t i = 0; p->m->from_pytorch && i < p->m->init.n; i++) {
        const RawTensor *t = &p->m->init.at[i];
        const char *leaf = leaf_of(t->name);
        if (param_is_made_up(t->name))
            continue;
        const char *module = module_of(p->m->arena, t->name);
        bool either = is_called_either(t->name);
        bool plain = !either || is_plain_buffer(p, t); /* of others no number is read */
        bool sure = (!dtype_is_float(t->dtype) && dtype_bits(t->dtype) > 8) ||
                    (param_is_buffer_name(t->name) && strcmp(leaf, "pe") && strcmp(leaf, "mask"));
        bool behind = strmap_get(&perhaps, module) != NONE;
        if (behind || strmap_get(&begun, module) != NONE ||
            (t->bytes.length && is_sinusoidal(t)))
            *strmap_at(&p->buffers->buffer, t->name) = i;
        bool placed = behind && dtype_is_float(t->dtype) && strmap_get(&begun, module) == NONE;
        if (either ? !plain : placed)
            *strmap_at(&p->buffers->doubtful, t->name) = i;
        if (sure && plain)
            *strmap_at(either ? &perhaps : &begun, module) = i;
    }
}

/* What data are normalised with, and what weighs the classes of a loss: a member of PyTorch's
 * examples and of its losses, and no module's parameter. */
static bool is_statistic_name(const char *name)
{
    static const char *const statistic[] = {"mean", "std", "pos_weight", NULL};
    return is_one_of(leaf_of(name), statistic);
}

/* Taken for a buffer by its name, where its numbers are not those of one, or by its place behind
 * what is so called. */
bool param_is_doubtful_buffer(const Params *p, const char *name)
{
    return is_statistic_name(name) || strmap_get(&p->buffers->doubtful, name) != NONE;
}

bool param_is_buffer(const Params *p, const char *name)
{
    return param_is_buffer_name(name) || is_statistic_name(name) ||
           strmap_get(&p->buffers->buffer, name) != NONE;
}
