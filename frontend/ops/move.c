/*
 * move.c - ONNX ops that move data without computing on it, to core views and copies.  Whatever
 * says where things go (shapes, starts, pads, repeats) must be constant here; gathers at constant
 * places become slices.
 */
#include "frontend/low/low.h"

#include <string.h>

void import_reshape(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0);
    Shape s = low_shape(g, x);
    int64_t *dims, n, total = shape_elements(&s);
    bool allowzero = im_int(im, "allowzero", 0) != 0;
    int infer = -1;
    low_ints_needed(im, "shape", 1, &dims, &n);
    Shape out = low_dims(im, 1, dims, n, -1);
    for (int d = 0; d < out.rank; d++) {
        if (out.d[d] == 0 && !allowzero) {
            if (d >= s.rank)
                low_fatal(im, 1, "dim %d is copied from an operand of rank %d", d, s.rank);
            out.d[d] = s.d[d];
        }
        if (dims[d] == -1 && infer >= 0)
            low_fatal(im, 1, "two dims are -1");
        if (dims[d] == -1)
            infer = d, out.d[d] = 1;
    }
    const int64_t known = shape_elements(&out);
    if (infer >= 0)
        out.d[infer] = known > 0 ? total / known : 0;
    im->out[0] = g_reshape(g, x, &out);
}

void import_flatten(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0);
    Shape s = low_shape(g, x);
    int64_t axis = im_int(im, "axis", 1);
    if (axis < -s.rank || axis > s.rank)
        low_fatal(im, -1, "axis %lld is out of range", (long long)axis);
    if (axis < 0)
        axis += s.rank;
    const Shape two =
        shape_of(2, shape_between(&s, 0, (int)axis), shape_between(&s, (int)axis, s.rank));
    im->out[0] = g_reshape(g, x, &two);
}

void import_squeeze(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0);
    Shape s = low_shape(g, x);
    int64_t *given, n, ones[MAX_RANK], *axes = ones;
    if (low_ints_either(im, "axes", 1, &given, &n)) {
        int64_t all = n;
        axes = low_axes(im, given, all, s.rank);
        n = 0;
        for (int64_t i = 0; i < all; i++)
            if (s.d[axes[i]] == 1)
                axes[n++] = axes[i];
            else if (!im_calls(im, "aten.squeeze.dim")) /* where others stay */
                low_fatal(im, -1, "dim %lld is %lld, not 1", (long long)axes[i],
                          (long long)s.d[axes[i]]);
    } else {
        n = 0;
        for (int d = 0; d < s.rank; d++)
            if (s.d[d] == 1)
                ones[n++] = d;
    }
    im->out[0] = low_squeeze(g, x, (int)n, axes);
}

void import_unsqueeze(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0);
    Shape s = low_shape(g, x), out = {0};
    int64_t *given, n;
    low_ints_needed(im, "axes", 1, &given, &n);
    if (n > MAX_RANK - s.rank)
        low_fatal(im, -1, "more than %d dims", MAX_RANK);
    out.rank = s.rank + (int)n;
    int64_t *axes = low_axes(im, given, n, out.rank);
    for (int d = 0, k = 0, from = 0; d < out.rank; d++) {
        if (k < n && axes[k] == d)
            k++, out.d[d] = 1;
        else
            out.d[d] = s.d[from++];
    }
    im->out[0] = g_reshape(g, x, &out);
}

void import_transpose(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0);
    int rank = low_shape(g, x).rank, n;
    int64_t *given, perm[MAX_RANK];
    for (int d = 0; d < rank; d++)
        perm[d] = rank - 1 - d;
    if (im_ints(im, "perm", &given, &n)) {
        if (n != rank)
            low_fatal(im, -1, "perm has %d entries for rank %d", n, rank);
        for (int d = 0; d < rank; d++)
            perm[d] = low_axis(im, given[d], rank);
    }
    im->out[0] = g_transpose(g, x, perm);
}

/* Broadcasting both ways: a dim of 1 in the new shape keeps the operand's. */
void import_expand(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0);
    int64_t *dims, n;
    im_const_ints(im, 1, &dims, &n);
    const Shape to = low_dims(im, 1, dims, n, 0);
    im->out[0] = g_expand(g, x, &to);
}

/* ---- Slice, Split, Concat, Pad ---- */

/* One dim of a slice, by Python's rules. */
static void slice_dim(int64_t d, int64_t *start, int64_t end, int64_t *step, int64_t *size)
{
    if (*step < -INT64_MAX)
        *step = -INT64_MAX;
    if (*start < 0)
        *start += d;
    if (end < 0)
        end += d;
    if (*step > 0) {
        *start = low_min(low_max(*start, 0), d);
        end = low_min(low_max(end, 0), d);
        *size = end > *start ? (end - *start - 1) / *step + 1 : 0;
    } else {
        *start = low_min(low_max(*start, 0), d - 1);
        end = low_min(low_max(end, -1), d - 1);
        *size = *start > end ? (*start - end - 1) / -*step + 1 : 0;
    }
    if (*size <= 1 && (*step > INT32_MAX || *step < -INT32_MAX))
        *step = 1;
    if (*size == 0)
        *start = 0, *step = 1;
}

void import_slice(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0);
    Shape s = low_shape(g, x);
    int64_t *starts, *ends, *axes = NULL, *steps = NULL, n, ne, na = 0, ns = 0;
    low_ints_needed(im, "starts", 1, &starts, &n);
    low_ints_needed(im, "ends", 2, &ends, &ne);
    bool some = low_ints_either(im, "axes", 3, &axes, &na);
    if (im_in(im, 4) != NONE)
        im_const_ints(im, 4, &steps, &ns);
    if (n != ne || (some && na != n) || (steps && ns != n) || n > s.rank)
        low_fatal(im, -1, "starts, ends, axes and steps differ in length");
    int64_t start[MAX_RANK] = {0}, size[MAX_RANK], step[MAX_RANK];
    for (int d = 0; d < s.rank; d++)
        size[d] = s.d[d], step[d] = 1;
    const int *which = low_which(im, some ? axes : NULL, n, s.rank);
    for (int64_t i = 0; i < n; i++) {
        int d = which[i];
        start[d] = starts[i];
        step[d] = steps ? steps[i] : 1;
        if (step[d] == 0)
            low_fatal(im, 4, "step 0");
        slice_dim(s.d[d], &start[d], ends[i], &step[d], &size[d]);
    }
    im->out[0] = g_slice(g, x, start, size, step);
}

/* The sizes of a Split's parts: given, or equal, the last one smaller where opset 18 allows it. */
static int64_t *split_sizes(const Import *im, int64_t d, int64_t *n)
{
    int64_t *sizes, sum = 0;
    if (low_ints_either(im, "split", 1, &sizes, n)) {
        for (int64_t i = 0; i < *n; i++) {
            if (sizes[i] < 0 || sizes[i] > d)
                low_fatal(im, -1, "a part of size %lld", (long long)sizes[i]);
            sum += sizes[i];
        }
        if (sum != d)
            low_fatal(im, -1, "the parts add up to %lld, the dim is %lld", (long long)sum,
                      (long long)d);
        return sizes;
    }
    *n = im_int(im, "num_outputs", im->nout);
    if (*n < 1 || *n > (int64_t)low_max(d, 1))
        low_fatal(im, -1, "%lld parts of a dim of %lld", (long long)*n, (long long)d);
    int64_t part = (d + *n - 1) / *n;
    if (d % *n && im->opset < 18)
        low_fatal(im, -1, "a dim of %lld in %lld equal parts", (long long)d, (long long)*n);
    if (part * (*n - 1) > d)
        low_fatal(im, -1, "a dim of %lld in %lld parts of %lld", (long long)d, (long long)*n,
                  (long long)part);
    sizes = arena_array(im->arena, int64_t, *n);
    for (int64_t i = 0; i < *n; i++)
        sizes[i] = i < *n - 1 ? part : d - part * (*n - 1);
    return sizes;
}

void import_split(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0);
    Shape s = low_shape(g, x);
    int axis = low_axis(im, im_int(im, "axis", 0), s.rank);
    int64_t n, *sizes = split_sizes(im, s.d[axis], &n), at = 0;
    if (n != im->nout)
        low_fatal(im, -1, "%lld parts but %u outputs", (long long)n, im->nout);
    if (n > 1 && val(g, x)->kind != V_CONST) {
        ValueId first = g_split(g, x, axis, (int)n, sizes);
        for (uint32_t i = 0; i < im->nout; i++)
            im->out[i] = graph_out(g, first, i);
        return;
    }
    for (uint32_t i = 0; i < im->nout; at += sizes[i], i++)
        im->out[i] = g_slice_axis(g, x, axis, at, sizes[i]);
}

void import_concat(Import *im)
{
    Graph *g = im->g;
    ValueId *part = arena_array(im->arena, ValueId, im->nin);
    uint32_t n = 0;
    int rank = low_shape(g, low_need(im, 0)).rank;
    if (!im_has(im, "axis") && im->opset >= 4)
        low_fatal(im, -1, "attribute 'axis' is missing");
    int axis = low_axis(im, im_int(im, "axis", 1), rank);
    for (uint32_t i = 0; i < im->nin; i++) {
        Shape s = low_shape(g, low_need(im, i));
        if (s.rank != rank)
            low_fatal(im, (int)i, "rank %d, operand 0 has rank %d", s.rank, rank);
        if (s.d[axis] != 0 || (n == 0 && i + 1 == im->nin))
            part[n++] = im->in[i];
    }
    im->out[0] = n == 1 ? part[0] : g_concat(g, n, part, axis);
}

/* Negative pads cut: a Slice first. */
static ValueId pad_cut(const Import *im, ValueId x, int64_t *begin, int64_t *end)
{
    Graph *g = im->g;
    Shape s = low_shape(g, x);
    int64_t start[MAX_RANK], size[MAX_RANK];
    for (int d = 0; d < s.rank; d++) {
        if (begin[d] < -s.d[d] || end[d] < -s.d[d])
            low_fatal(im, -1, "pads cut more than dim %d has", d);
        start[d] = -low_min(begin[d], 0);
        size[d] = s.d[d] - start[d] + low_min(end[d], 0);
        begin[d] = low_max(begin[d], 0);
        end[d] = low_max(end[d], 0);
    }
    return g_slice(g, x, start, size, NULL);
}

void import_pad(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0);
    static const int modes[] = {PAD_CONSTANT, PAD_REFLECT, PAD_EDGE, PAD_WRAP};
    int rank = low_shape(g, x).rank,
        mode = modes[low_choice(im, "mode", "constant", "constant reflect edge wrap")];
    int64_t *pads, *axes = NULL, n, na = rank, begin[MAX_RANK] = {0}, end[MAX_RANK] = {0};
    low_ints_needed(im, "pads", 1, &pads, &n);
    double value = im->opset >= 11 ? im_const_double(im, 2, 0) : im_float(im, "value", 0);
    if (im_in(im, 3) != NONE)
        im_const_ints(im, 3, &axes, &na);
    const int *which = low_which(im, axes, na, rank);
    if (n != 2 * na)
        low_fatal(im, 1, "%lld pads for %lld dims", (long long)n, (long long)na);
    for (int64_t i = 0; i < na; i++)
        begin[which[i]] = pads[i], end[which[i]] = pads[na + i];
    x = pad_cut(im, x, begin, end);
    im->out[0] = g_pad(g, x, begin, end, mode, value);
}

/* ---- gathers and scatters ---- */

/* What the gradient of an embedding is divided by, no node of the file says. */
static void need_plain_gradient(const Import *im)
{
    double scaled;
    if (im->training && im_told(im, "aten.embedding.default", 3, "scale_grad_by_freq", &scaled) &&
        scaled != 0)
        low_fatal(im, -1, "scale_grad_by_freq, which the model's embedding has, is not supported");
}

void import_gather(Import *im)
{
    ValueId x = low_need(im, 0), index = low_need(im, 1);
    Shape s = low_shape(im->g, x);
    int axis = low_axis(im, im_int(im, "axis", 0), s.rank);
    need_plain_gradient(im);
    int64_t row = axis == 0 ? im_padding_row(im) : -1;
    if (row >= s.d[0])
        row = -1;
    im->out[0] = low_gather(im, x, index, &(Attr){.axis = axis, .padding_row = row + 1});
}

/* Gather along the last axis, which classifiers' labels are picked by. */
void import_array_feature_extractor(Import *im)
{
    Graph *g = im->g;
    Shape s = low_shape(g, low_need(im, 0)), n = low_shape(g, low_need(im, 1));
    if (s.rank == 0)
        low_fatal(im, 0, "ArrayFeatureExtractor of a number");
    Shape pick = shape_of(1, shape_elements(&n)), matrix = shape_of(2, (int64_t)1, pick.d[0]);
    ValueId in[2] = {im->in[0], g_reshape(g, im->in[1], &pick)};
    ValueId y = graph_node(g, OP_Gather, 2, in, (Attr){.axis = s.rank - 1});
    im->out[0] = s.rank == 1 ? g_reshape(g, y, &matrix) : y;
}

/* GatherElements. */
void import_axis(Import *im)
{
    ValueId in[2] = {low_need(im, 0), low_need(im, 1)};
    int axis = low_axis(im, im_int(im, "axis", 0), low_shape(im->g, in[0]).rank);
    im->out[0] = graph_node(im->g, im->op, 2, in, (Attr){.axis = axis});
}

void import_gather_nd(Import *im)
{
    ValueId in[2] = {low_need(im, 0), low_need(im, 1)};
    int64_t batch = im_int(im, "batch_dims", 0);
    if (batch < 0 || batch > MAX_RANK)
        low_fatal(im, -1, "batch_dims is out of range");
    im->out[0] = graph_node(im->g, OP_GatherND, 2, in, (Attr){.batch_dims = batch});
}

void import_scatter(Import *im)
{
    static const int modes[] = {SCATTER_NONE, SCATTER_ADD, SCATTER_MUL, SCATTER_MAX, SCATTER_MIN};
    ValueId in[3] = {low_need(im, 0), low_need(im, 1), low_need(im, 2)};
    Attr attr = {.reduction = modes[low_choice(im, "reduction", "none", "none add mul max min")]};
    if (attr.reduction == SCATTER_NONE && im_calls(im, "aten.scatter_reduce.") &&
        im_calls(im, ", mean)")) {
        diag_hint("compute it as index_add of the values divided by index_add of ones");
        low_fatal(im, -1,
                  "the model computes scatter_reduce's mean, but the file keeps the last value: "
                  "ONNX has no such reduction, and the exporter wrote none");
    }
    if (im->training && im_calls(im, "target=torch.ops.aten.embedding_renorm.")) {
        diag_hint("export without max_norm, or let the model divide the rows by their norm");
        low_fatal(im, -1,
                  "max_norm changes the embedding's table in place when it is read, which is not "
                  "supported");
    }
    Op op = im->op == OP_Scatter ? OP_ScatterElements : im->op; /* its name before opset 11 */
    if (op == OP_ScatterElements)
        attr.axis = low_axis(im, im_int(im, "axis", 0), low_shape(im->g, in[0]).rank);
    im->out[0] = graph_node(im->g, op, 3, in, attr);
}

/* ---- rearrangements ---- */

/* Each repeated dim d becomes [1, d], is expanded to [r, d] and merged. */
void import_tile(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0);
    Shape s = low_shape(g, x), apart = {0}, wide = {0}, out = s;
    int64_t *r, n;
    im_const_ints(im, 1, &r, &n);
    if (n != s.rank)
        low_fatal(im, 1, "%lld repeats for rank %d", (long long)n, s.rank);
    for (int d = 0; d < s.rank; d++) {
        if (r[d] < 0)
            low_fatal(im, 1, "a repeat of %lld", (long long)r[d]);
        bool split = r[d] != 1 && s.d[d] != 1;
        if (apart.rank + 1 + split > MAX_RANK)
            low_fatal(im, 1, "too many dims are repeated");
        if (split) {
            apart.d[apart.rank++] = 1;
            wide.d[wide.rank++] = r[d];
        }
        apart.d[apart.rank++] = s.d[d];
        wide.d[wide.rank++] = s.d[d] == 1 ? r[d] : s.d[d];
        if (__builtin_mul_overflow(s.d[d], r[d], &out.d[d]))
            low_fatal(im, 1, "the result is too large");
    }
    shape_elements(&out);
    im->out[0] = g_reshape(g, g_expand(g, g_reshape(g, x, &apart), &wide), &out);
}

/* Reshape, transpose, reshape. */
static ValueId shuffle(Graph *g, ValueId x, Shape apart, const int64_t *perm, Shape out)
{
    return g_reshape(g, g_transpose(g, g_reshape(g, x, &apart), perm), &out);
}

void import_depth_to_space(Import *im)
{
    Shape s = low_need_rank(im, 0, 4, 4);
    int64_t b = im_int(im, "blocksize", 0);
    bool crd = low_choice(im, "mode", "DCR", "DCR CRD");
    if (b < 1 || b > INT32_MAX || s.d[1] % (b * b))
        low_fatal(im, -1, "blocksize %lld does not fit", (long long)b);
    int64_t c = s.d[1] / (b * b);
    static const int64_t perm[2][6] = {{0, 3, 4, 1, 5, 2}, {0, 1, 4, 2, 5, 3}};
    Shape apart = crd ? shape_of(6, s.d[0], c, b, b, s.d[2], s.d[3])
                      : shape_of(6, s.d[0], b, b, c, s.d[2], s.d[3]);
    im->out[0] =
        shuffle(im->g, im->in[0], apart, perm[crd], shape_of(4, s.d[0], c, s.d[2] * b, s.d[3] * b));
}

void import_space_to_depth(Import *im)
{
    Shape s = low_need_rank(im, 0, 4, 4);
    int64_t b = im_int(im, "blocksize", 0);
    static const int64_t perm[2][6] = {{0, 3, 5, 1, 2, 4}, {0, 1, 3, 5, 2, 4}};
    if (b < 1 || b > INT32_MAX || s.d[2] % b || s.d[3] % b)
        low_fatal(im, -1, "blocksize %lld does not fit", (long long)b);
    im->out[0] =
        shuffle(im->g, im->in[0], shape_of(6, s.d[0], s.d[1], s.d[2] / b, b, s.d[3] / b, b),
                perm[low_choice(im, "mode", "DCR", "DCR CRD")],
                shape_of(4, s.d[0], s.d[1] * b * b, s.d[2] / b, s.d[3] / b));
}

/* Keeps column c of row r where c - r >= k (upper) or <= k. */
void import_trilu(Import *im)
{
    Graph *g = im->g;
    Shape s = low_need_rank(im, 0, 2, MAX_RANK);
    bool upper = im_int(im, "upper", 1) != 0;
    int64_t rows = s.d[s.rank - 2], cols = s.d[s.rank - 1],
            k = low_max(low_min(im_const_int(im, 1, 0), cols + 1), -rows - 1);
    ValueId r = g_add(g, g_iota(g, DT_I64, 2, 0, rows), g_scalar(g, DT_I64, (double)k)),
            c = g_iota(g, DT_I64, 2, 1, cols);
    im->out[0] = g_formula(g, upper ? "x, c, r: c >= r ? x : 0" : "x, c, r: c <= r ? x : 0",
                           im->in[0], c, r);
}
