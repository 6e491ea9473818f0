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
    int64_t d = r ? t->shape.d[r - 1] : 0, zeros = 0, ones = 0;
    double square = 0;
    if (t->dtype != DT_F32 || r < 2 || t->shape.d[r - 2] < 2 || d < 4 || d % 2 ||
        raw_number(t, 0) + raw_number(t, d - 1) != 1) /* so most are known by two numbers of them */
        return false;
    for (int64_t i = 0; i < d; i++) {
        zeros += raw_number(t, i) == 0;
        ones += raw_number(t, i) == 1;
        square += raw_number(t, d + i) * raw_number(t, d + i);
    }
    return zeros == d / 2 && ones == d / 2 && fabs(square - (double)(d / 2)) < 1e-3 * (double)d;
}

static const char *module_of(Arena *a, const char *name)
{
    return arena_strndup(a, name, (size_t)(fx_leaf(name) - name));
}

/* The cosines and sines of the same angles, one after the other in a module: a rotary embedding's
 * tables.  Ones and zeros (a norm's scale and shift) say nothing. */
static bool is_rotation(Arena *a, const RawTensor *t, const RawTensor *next)
{
    int64_t n = shape_elements(&t->shape), turned = 0;
    if (t->dtype != DT_F32 || next->dtype != DT_F32 || n < 4 || !t->bytes.length ||
        t->bytes.length != next->bytes.length || !shape_equal(&t->shape, &next->shape) ||
        strcmp(module_of(a, t->name), module_of(a, next->name)))
        return false;
    for (int64_t i = 0; i < n; i++) {
        double c = raw_number(t, i), s = raw_number(next, i);
        if (!(fabs(c * c + s * s - 1) < 1e-5))
            return false;
        turned += fabs(c) > 1e-3 && fabs(s) > 1e-3;
    }
    return turned > 0;
}

bool param_is_buffer_name(const char *name)
{
    // clang-format off
    static const char *const buffer[] = {
        "inv_freq", "original_inv_freq", "freqs", "running_mean", "running_var",
        "num_batches_tracked", "position_ids", "masked_bias", "attn_mask", "causal_mask",
        "cos_cached", "sin_cached", "cos_cache", "sin_cache", "freqs_cos", "freqs_sin", "freqs_cis",
        "relative_position_index", "relative_coords_table", "pe", "anchors", "mask", "tril", "triu",
        "alibi", "slopes", "alibi_slopes", "final_logits_bias", "pixel_mean", "pixel_std",
        "image_mean", "image_std", NULL};
    // clang-format on
    return is_one_of(fx_leaf(name), buffer);
}

/* Three numbers at most, as masks have, or one after the other, as frequencies and slopes are. */
static bool is_regular(const RawTensor *t)
{
    double seen[3];
    int64_t n = shape_elements(&t->shape), rising = 0, falling = 0, k = 0;
    bool few = true;
    for (int64_t i = 0; i < n && (few || rising == i - 1 || falling == i - 1); i++) {
        double v = raw_number(t, i);
        rising += i > 0 && v > raw_number(t, i - 1);
        falling += i > 0 && v < raw_number(t, i - 1);
        int64_t at = 0;
        while (at < k && seen[at] != v)
            at++;
        few = few && (at < k || k < 3);
        if (at == k && k < 3)
            seen[k++] = v;
    }
    return few || rising == n - 1 || falling == n - 1;
}

static bool is_whole(const RawTensor *t)
{
    for (int64_t i = 0; i < shape_elements(&t->shape); i++)
        if (raw_number(t, i) != nearbyint(raw_number(t, i)))
            return false;
    return !raw_is_constant(t);
}

/* Do the numbers say, too, that no one learned them?  named: beside a buffer's name less does. */
static bool is_plain_buffer(const Params *p, const RawTensor *t, bool named)
{
    return !dtype_is_float(t->dtype) || !t->bytes.length || is_sinusoidal(t) ||
           (named && is_regular(t)) || is_whole(t) || param_is_mask(p->g, t) ||
           (!raw_is_constant(t) && (param_is_table(p->g, t) || param_is_regular(p->g, t)));
}

/* So are parameters called: learned positions, frequencies, masks. */
static bool is_called_either(const char *name)
{
    static const char *const either[] = {"freqs", "pe",   "anchors", "mask",
                                         "tril",  "triu", "slopes",  NULL};
    return is_one_of(fx_leaf(name), either);
}

static bool is_running_statistic(const char *name)
{
    return !strncmp(fx_leaf(name), "running_", strlen("running_"));
}

/* A module's members are written parameters first: what comes after a buffer is one too.  Whole
 * numbers of a byte are weights. */
void param_find_buffers(Params *p)
{
    p->buffers = arena_new_of(p->m->arena, Buffers);
    p->buffers->buffer.arena = p->buffers->doubtful.arena = p->m->arena;
    StrMap begun = {.arena = p->m->arena};
    for (uint32_t i = 0; p->m->from_pytorch && i < p->m->init.n; i++) {
        const RawTensor *t = &p->m->init.at[i];
        const char *leaf = fx_leaf(t->name);
        if (param_is_made_up(t->name))
            continue;
        const char *module = module_of(p->m->arena, t->name);
        bool rotates = i + 1 < p->m->init.n && is_rotation(p->m->arena, t, &p->m->init.at[i + 1]);
        bool sine = t->bytes.length && is_sinusoidal(t), named = param_is_buffer_name(t->name);
        bool behind = strmap_get(&begun, module) != NONE;
        if (rotates || behind || sine)
            *strmap_at(&p->buffers->buffer, t->name) = i;
        bool plain = rotates || sine || !(named || behind) || is_running_statistic(t->name) ||
                     is_plain_buffer(p, t, named); /* of others no number is read */
        if (!plain)
            *strmap_at(&p->buffers->doubtful, t->name) = i;
        if ((!dtype_is_float(t->dtype) && dtype_bits(t->dtype) > 8) || rotates ||
            (named && (plain || !is_called_either(t->name)) && strcmp(leaf, "pe") &&
             strcmp(leaf, "mask")))
            *strmap_at(&begun, module) = i;
    }
}

/* What data are normalised with, and what weighs the classes of a loss: a member of PyTorch's
 * examples and of its losses, and no module's parameter. */
static bool is_statistic_name(const char *name)
{
    static const char *const statistic[] = {"mean", "std", "pos_weight", NULL};
    return is_one_of(fx_leaf(name), statistic);
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
