/*
 * sequence.c - sequences of tensors exist only at import: a raw value may be a list of values,
 * and what is taken from it is known by constant positions.  A loop that the data end appends to
 * one: of its elements some have a bool that says whether they are there.
 */
#include "frontend/onnx/onnx.h"
#include "frontend/low/low.h"
#include "frontend/ragged/ragged.h"

void import_sequence_construct(Import *im)
{
    Ids list = {0};
    for (uint32_t i = 0; i < im->nin; i++)
        vec_push(im->arena, &list, low_need(im, i));
    im_set_sequence(im, 0, list, (Ids){0});
}

/* split: a list of sizes, or one size for all parts but a smaller last one; absent: parts of 1. */
void import_split_to_sequence(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0);
    Shape s = low_shape(g, x);
    int64_t axis = low_axis(im, im_int(im, "axis", 0), s.rank), d = s.d[axis], *sizes = NULL, n = 0,
            at = 0;
    bool drop = im_in(im, 1) == NONE && im_int(im, "keepdims", 1) == 0;
    bool given = im_in(im, 1) != NONE, each = !given || low_shape(g, im->in[1]).rank == 0;
    if (given)
        im_const_ints(im, 1, &sizes, &n);
    int64_t one = given && each ? sizes[0] : 1;
    if (each && one < 1)
        low_fatal(im, 1, "parts of size %lld", (long long)one);
    if (each)
        n = (d + one - 1) / one;
    low_limit_nodes(im, n, 2, "parts");
    Ids list = {0};
    for (int64_t i = 0; i < n; i++) {
        int64_t size = each ? low_min(one, d - at) : sizes[i];
        if (size < 0 || size > d - at)
            low_fatal(im, 1, "the parts are larger than the dim of %lld", (long long)d);
        ValueId part = g_slice_axis(g, x, (int)axis, at, size);
        vec_push(im->arena, &list, drop ? low_squeeze(g, part, 1, &axis) : part);
        at += size;
    }
    if (at != d)
        low_fatal(im, 1, "the parts add up to %lld, the dim is %lld", (long long)at, (long long)d);
    im_set_sequence(im, 0, list, (Ids){0});
}

/* The last element that is there. */
static ValueId last_of(const Import *im, const Ids *list, const Ids *there)
{
    ValueId v = list->at[0];
    Shape first = low_shape(im->g, v);
    for (uint32_t i = 1; i < list->n; i++) {
        Shape s = low_shape(im->g, list->at[i]);
        if (!shape_equal(&s, &first))
            low_fatal(im, 0, "the last element is of several shapes");
        v = there->at[i] == NONE ? list->at[i] : g_where(im->g, there->at[i], list->at[i], v);
    }
    return v;
}

/* A position of operand i, in [-n, n - 1 + past], or `dflt` where it is not given. */
static uint32_t position(const Import *im, uint32_t i, uint32_t n, uint32_t past, uint32_t dflt)
{
    int64_t at = im_const_int(im, (int)i, dflt), k = at < 0 ? at + n : at;
    if (im_in(im, i) != NONE && (k < 0 || k >= (int64_t)n + past))
        low_fatal(im, (int)i, "position %lld of %u", (long long)at, n);
    return (uint32_t)k;
}

void import_sequence_at(Import *im)
{
    Ids list, there;
    im_sequence_there(im, 0, &list, &there);
    int64_t at = im_const_int(im, 1, 0);
    uint32_t i = position(im, 1, list.n, 0, 0);
    if (at < -1 && there.n)
        low_fatal(im, 1, "position %lld of a sequence whose length depends on the data",
                  (long long)at);
    im->out[0] = at == -1 && there.n ? last_of(im, &list, &there) : list.at[i];
}

void import_sequence_empty(Import *im)
{
    Ids none = {0};
    im_set_sequence(im, 0, none, none);
}

void import_sequence_insert(Import *im)
{
    Ids list, there, out = {0}, out_there = {0};
    im_sequence_there(im, 0, &list, &there);
    if (there.n && im_in(im, 2) != NONE)
        low_fatal(im, 2, "a position in a sequence whose length depends on the data");
    uint32_t at = position(im, 2, list.n, 1, list.n);
    for (uint32_t i = 0; i < list.n; i++) {
        if (i == at)
            vec_push(im->arena, &out, low_need(im, 1));
        vec_push(im->arena, &out, list.at[i]);
    }
    if (at == list.n)
        vec_push(im->arena, &out, low_need(im, 1));
    for (uint32_t i = 0; i < there.n; i++)
        vec_push(im->arena, &out_there, there.at[i]);
    if (there.n)
        vec_push(im->arena, &out_there, NONE);
    im_set_sequence(im, 0, out, out_there);
}

void import_sequence_erase(Import *im)
{
    Ids list, out = {0};
    im_sequence(im, 0, &list);
    if (list.n == 0)
        low_fatal(im, 0, "the sequence is empty");
    uint32_t at = position(im, 1, list.n, 0, list.n - 1);
    for (uint32_t i = 0; i < list.n; i++)
        if (i != at)
            vec_push(im->arena, &out, list.at[i]);
    im_set_sequence(im, 0, out, (Ids){0});
}

void import_sequence_length(Import *im)
{
    Graph *g = im->g;
    Ids list, there;
    im_sequence_there(im, 0, &list, &there);
    uint32_t certain = list.n;
    ValueId more = NONE;
    for (uint32_t i = 0; i < there.n; i++)
        if (there.at[i] != NONE) {
            ValueId one = g_cast(g, there.at[i], DT_I64);
            more = more == NONE ? one : g_add(g, more, one);
            certain--;
        }
    im->out[0] = g_scalar(g, DT_I64, certain);
    if (more != NONE)
        im->out[0] = g_add(g, im->out[0], more);
}

/* An optional value is there or is not when the model is read. */
void import_optional(Import *im)
{
    Ids list;
    if (im->nin == 0)
        low_fatal(im, -1, "an optional value that is absent is not supported");
    if (im->in[0] != NONE) {
        im->out[0] = im->in[0];
        return;
    }
    im_sequence(im, 0, &list);
    im_set_sequence(im, 0, list, (Ids){0});
}

void import_optional_has_element(Import *im)
{
    im->out[0] = g_scalar(im->g, DT_BOOL, im->nin > 0 && *im->node->in[0]);
}

void import_concat_from_sequence(Import *im)
{
    Graph *g = im->g;
    Ids list, there;
    im_sequence_there(im, 0, &list, &there);
    if (list.n == 0)
        low_fatal(im, 0, "the sequence is empty");
    if (!im_has(im, "axis"))
        low_fatal(im, -1, "attribute 'axis' is missing");
    bool fresh = im_int(im, "new_axis", 0) != 0;
    int rank = low_shape(g, list.at[0]).rank + fresh;
    if (rank > MAX_RANK)
        low_fatal(im, 0, "more than %d dims", MAX_RANK);
    int axis = low_axis(im, im_int(im, "axis", 0), rank);
    ValueId *part = arena_array(im->arena, ValueId, list.n);
    for (uint32_t i = 0; i < list.n; i++) {
        if (low_shape(g, list.at[i]).rank != rank - fresh)
            low_fatal(im, 0, "elements of several ranks");
        part[i] = fresh ? low_unsqueeze(g, list.at[i], axis) : list.at[i];
    }
    im->out[0] = list.n == 1 ? part[0] : g_concat(g, list.n, part, axis);
    for (uint32_t i = 1; i < there.n; i++)
        if (low_shape(g, part[i]).d[axis] != low_shape(g, part[0]).d[axis])
            low_fatal(im, 0, "parts of several sizes, of which the data decide how many");
    if (there.n)
        im->out[0] = ragged_of_trips(im->state, im->out[0], &there, axis);
}
