/*
 * conv_cuda.cu - convolutions on the device: 1 to 3 dimensions, any stride, dilation, padding,
 * groups; forward, gradient of the data (which is ConvTranspose's forward), gradient of the
 * weights.  In: a shape.  Out: an opened convolution, with the tables of its terms (conv_cuda.h) in
 * device memory, and calls that choose: cuDNN where it was there at build and takes the shape, else
 * tiles for groups of many channels, else one element a thread.
 *
 * Nothing here adds in an order that can change: results are the same bits every time, for the same
 * rows.
 */
#include "conv_gather.h"

#include "device/library.h"

#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <vector>

namespace {

enum { MANY = 16 };                                     /* channels from which tiles are worth it */

/* Of the stage that opens now. */
ConvScratch *stage_scratch()
{
    return pp_library ? static_cast<ConvScratch *>(pp_library->cuda) : nullptr;
}

void count_bytes(int64_t bytes) {
    if (pp_library)
        pp_library->bytes += bytes;
}

int64_t aligned(int64_t n) { return (n + 255) / 256 * 256; }
/* of an element, and of a sum */
int64_t size_of(int dtype) {
    return dtype == PP_F64 ? 8 : dtype == PP_BF16 || dtype == PP_F16 ? 2 : 4;
}
int64_t sum_size_of(int dtype) { return dtype == PP_F64 ? 8 : 4; }

/* ---- tables ---- */

struct Tables {
    std::vector<ConvTap> forward, data;
    std::vector<int> weight;
    /* forward's one, then the data gradient's */
    std::vector<ConvClass> cls;
    bool fits = true;                                   /* every distance in an int */

    int distance(int64_t n) {
        if (n > INT_MAX || n < -INT_MAX)
            fits = false;
        return static_cast<int>(n);
    }
};

/* One dimension of the data's gradient: positions first, first + stride, ... below `in`, and the
 * taps that meet them. */
struct Remainder {
    int first, count;
    /* tap, and the output position it adds to j */
    std::vector<std::pair<int, int>> taps;
};

std::vector<Remainder> remainders(const ConvGather &f, int kernel, int dilation, int i) {
    std::vector<Remainder> all;
    const int stride = f.step[i], pad = f.pad[i], in = f.source[i];
    for (int first = 0; first < stride && first < in; first++) {
        Remainder r = {first, (in - 1 - first) / stride + 1, {}};
        for (int t = 0; t < kernel; t++)
            if ((first + pad - t * dilation) % stride == 0)
                r.taps.push_back({t, (first + pad - t * dilation) / stride});
        all.push_back(r);
    }
    return all;
}

void data_class(Tables &t, const PpCudaConv &v, const int *kernel, const Remainder &d,
                const Remainder &h, const Remainder &w)
{
    const ConvGather &f = v.forward;
    const int64_t plane = static_cast<int64_t>(f.dest[1]) * f.dest[2];
    ConvClass c = {{d.first, h.first, w.first},
                   {d.count, h.count, w.count},
                   static_cast<int>(t.data.size()),
                   0};
    for (int m = 0; m < v.mg; m++)
        for (const auto &i : d.taps)
            for (const auto &j : h.taps)
                for (const auto &k : w.taps) {
                    t.data.push_back(
                        {t.distance(m * v.out_size + i.second * plane +
                                    static_cast<int64_t>(j.second) * f.dest[2] + k.second),
                         i.second, j.second, k.second});
                    t.weight.push_back(t.distance(static_cast<int64_t>(m) * v.cg * v.taps +
                                                  (i.first * kernel[1] + j.first) * kernel[2] +
                                                  k.first));
                    c.taps++;
                }
    t.cls.push_back(c);
}

/* The forward's terms are a channel's taps after the other's, as weights lie. */
Tables tables_of(const PpCudaConv &v, const int *kernel, const int *dilation) {
    Tables t;
    const ConvGather &f = v.forward;
    for (int c = 0; c < v.cg; c++)
        for (int k = 0; k < v.taps; k++) {
            const int d = k / (kernel[1] * kernel[2]) * dilation[0],
                      h = k / kernel[2] % kernel[1] * dilation[1], w = k % kernel[2] * dilation[2];
            t.forward.push_back(
                {t.distance(c * v.in_size +
                            (static_cast<int64_t>(d) * f.source[1] + h) * f.source[2] + w),
                 d, h, w});
        }
    t.cls.push_back({{0, 0, 0}, {f.dest[0], f.dest[1], f.dest[2]}, 0, v.cg * v.taps});
    const std::vector<Remainder> all[3] = {remainders(f, kernel[0], dilation[0], 0),
                                           remainders(f, kernel[1], dilation[1], 1),
                                           remainders(f, kernel[2], dilation[2], 2)};
    for (const Remainder &d : all[0])
        for (const Remainder &h : all[1])
            for (const Remainder &w : all[2])
                data_class(t, v, kernel, d, h, w);
    return t;
}

int64_t table_bytes(const Tables &t) {
    return aligned(static_cast<int64_t>((t.forward.size() + t.data.size()) * sizeof(ConvTap) +
                                        t.cls.size() * sizeof(ConvClass) +
                                        t.weight.size() * sizeof(int)));
}

/* ---- shapes ---- */

/* Everything but device memory; the shape in three dimensions. */
bool normalise(PpCudaConv *v, const PpConvShape *s, int64_t rows, Tables *t) {
    int kernel[3], dilation[3];
    const int lead = 3 - s->spatial;
    ConvGather &f = v->forward, &b = v->data;
    v->shape = *s;
    v->rows = rows;
    v->cg = static_cast<int>(s->c / s->group);
    v->mg = static_cast<int>(s->m / s->group);
    v->taps = 1;
    v->in_size = v->out_size = 1;
    for (int i = 0; i < 3; i++) {
        const int k = i - lead;
        f.source[i] = b.dest[i] = k < 0 ? 1 : static_cast<int>(s->in[k]);
        f.dest[i] = b.source[i] = k < 0 ? 1 : static_cast<int>(s->out[k]);
        kernel[i] = k < 0 ? 1 : static_cast<int>(s->kernel[k]);
        dilation[i] = k < 0 ? 1 : static_cast<int>(s->dilation[k]);
        f.step[i] = b.spread[i] = k < 0 ? 1 : static_cast<int>(s->stride[k]);
        f.pad[i] = k < 0 ? 0 : static_cast<int>(s->pad_begin[k]);
        f.spread[i] = b.step[i] = 1;
        b.pad[i] = 0;
        v->taps *= kernel[i];
        v->in_size *= f.source[i];
        v->out_size *= f.dest[i];
    }
    const int64_t one = static_cast<int64_t>(v->cg) * v->taps;
    if (s->c * v->in_size > INT_MAX || s->m * v->out_size > INT_MAX || s->m * one > INT_MAX)
        return false;
    f.source_sample = b.dest_sample = s->c * v->in_size;
    f.dest_sample = b.source_sample = s->m * v->out_size;
    f.source_group = v->cg * v->in_size;
    b.source_group = v->mg * v->out_size;
    f.rows = v->mg;
    b.rows = v->cg;
    f.group = b.group = static_cast<int>(s->group);
    f.weight_row = one;
    b.weight_row = v->taps;
    f.weight_group = b.weight_group = v->mg * one;
    *t = tables_of(*v, kernel, dilation);
    f.classes = 1;
    f.most = static_cast<int>(v->out_size);
    b.classes = static_cast<int>(t->cls.size()) - 1;
    for (const ConvClass &c : t->cls)
        if (&c != t->cls.data() && c.count[0] * c.count[1] * c.count[2] > b.most)
            b.most = c.count[0] * c.count[1] * c.count[2];
    return t->fits;
}

bool weight_is_tiled(const PpCudaConv &v) { return v.mg >= MANY && v.cg * v.taps >= MANY; }

int64_t scratch_bytes(const PpCudaConv &v) {
    const int64_t parts = weight_is_tiled(v) ? conv_weight_parts(v, v.rows) : 1;
    int64_t need = parts > 1 ? parts * v.shape.m * v.cg * v.taps * sum_size_of(v.shape.dtype) : 0;
#ifdef PP_WITH_CUDNN
    if (v.dnn && conv_cudnn_bytes(v.dnn) > need)
        need = conv_cudnn_bytes(v.dnn);
#endif
    return aligned(need);
}

/* ---- device memory ---- */

/* The room that there is; in the stream's order.  Such a copy returns when the bytes have left host
 * memory. */
bool fill_tables(PpCudaConv *v, const Tables &t, cudaStream_t stream) {
    char *at = static_cast<char *>(v->tables);
    auto put = [&at, stream](const void *from, size_t bytes) {
        char *to = at;
        at += bytes;
        const bool good = bytes == 0 || PP_CUDA(cudaMemcpyAsync(to, from, bytes,
                                                                cudaMemcpyHostToDevice, stream));
        return good ? to : nullptr;
    };
    v->forward.tap = reinterpret_cast<const ConvTap *>(
        put(t.forward.data(), t.forward.size() * sizeof(ConvTap)));
    v->data.tap =
        reinterpret_cast<const ConvTap *>(put(t.data.data(), t.data.size() * sizeof(ConvTap)));
    v->forward.cls =
        reinterpret_cast<const ConvClass *>(put(t.cls.data(), t.cls.size() * sizeof(ConvClass)));
    v->data.cls = v->forward.cls + 1;
    v->data.weight =
        reinterpret_cast<const int *>(put(t.weight.data(), t.weight.size() * sizeof(int)));
    return v->forward.tap && v->data.tap && v->forward.cls && v->data.weight;
}

/* Streams that do not wait for the default one could read too early. */
bool put_tables(PpCudaConv *v, const Tables &t) {
    if (!PP_CUDA(cudaMalloc(&v->tables, static_cast<size_t>(table_bytes(t)))))
        return false;
    count_bytes(table_bytes(t));
    return fill_tables(v, t, nullptr) && PP_CUDA(cudaStreamSynchronize(nullptr));
}

bool grow_scratch(ConvScratch *s, int64_t need) {
    if (need <= s->bytes)
        return true;
    PP_CUDA(cudaFree(s->p));
    s->p = nullptr;
    count_bytes(need - s->bytes);
    s->bytes = need;
    return PP_CUDA(cudaMalloc(&s->p, static_cast<size_t>(need)));
}

void leave_scratch(ConvScratch *s) {
    if (--s->users > 0)
        return;
    if (s == stage_scratch())
        pp_library->cuda = nullptr;
    PP_CUDA(cudaFree(s->p));
#ifdef PP_WITH_CUDNN
    conv_cudnn_close_handle(s->dnn);
#endif
    delete s;
}

cudaStream_t stream_of(const PpCtx *c) { return static_cast<cudaStream_t>(c->stream); }

/* For a profile: products of pairs, and the tensors once. */
void tell_work(const PpCudaConv &v, const char *kind, int64_t rows) {
    const double in = static_cast<double>(v.shape.c * v.in_size),
                 out = static_cast<double>(v.shape.m * v.out_size), n = static_cast<double>(rows);
    const double weights = static_cast<double>(v.shape.m) * v.cg * v.taps;
    PP_WORK(kind, 2 * n * out * v.cg * v.taps,
            (n * (in + out) + weights) * static_cast<double>(size_of(v.shape.dtype)));
}

}   // namespace

void pp_cuda_conv_separate(void) {
    if (pp_library)
        pp_library->cuda = nullptr;
}

int64_t pp_cuda_conv_bytes(const PpConvShape *s, int64_t rows) {
    PpCudaConv v = {};
    Tables t;
    if (!normalise(&v, s, rows, &t))
        return 0;                                       /* open() says why */
#ifdef PP_WITH_CUDNN
    void *handle = nullptr;
    v.dnn = conv_cudnn_open(&handle, s, rows);
#endif
    const int64_t bytes = table_bytes(t) + scratch_bytes(v);
#ifdef PP_WITH_CUDNN
    conv_cudnn_close(v.dnn);
    conv_cudnn_close_handle(handle);
#endif
    return bytes;
}

static void too_large(const char *call)
{
    pp_cuda_note(call, "a convolution one sample of which has more than 2^31 elements", __FILE__,
                 __LINE__);
}

PpCudaConv *pp_cuda_conv_open(const PpConvShape *s, int64_t rows) {
    Tables t;
    PpCudaConv *v = new PpCudaConv();
    if (!normalise(v, s, rows, &t)) {
        too_large("pp_cuda_conv_open");
        delete v;
        return nullptr;
    }
    v->scratch = stage_scratch();
    if (!v->scratch)
        v->scratch = new ConvScratch();
    if (pp_library)
        pp_library->cuda = v->scratch;
    v->scratch->users++;
#ifdef PP_WITH_CUDNN
    v->dnn = conv_cudnn_open(&v->scratch->dnn, s, rows);
#endif
    if (put_tables(v, t) && grow_scratch(v->scratch, scratch_bytes(*v)))
        return v;
    pp_cuda_conv_close(v);
    return nullptr;
}

void pp_cuda_conv_size(const PpCtx *c, PpCudaConv *v, const PpConvShape *s) {
    if (!v || !memcmp(&v->shape, s, offsetof(PpConvShape, length)))
        return;
#ifdef PP_WITH_CUDNN
    conv_cudnn_close(v->dnn);
    v->dnn = nullptr;
#endif
    Tables t;
    if (!normalise(v, s, v->rows, &t))
        too_large("pp_cuda_conv_size");
    else if (fill_tables(v, t, stream_of(c)) && !c->stream)
        PP_CUDA(cudaStreamSynchronize(nullptr)); /* as put_tables() has it */
}

void pp_cuda_conv_close(PpCudaConv *v) {
    if (!v)
        return;
#ifdef PP_WITH_CUDNN
    conv_cudnn_close(v->dnn);
#endif
    PP_CUDA(cudaFree(v->tables));
    leave_scratch(v->scratch);
    delete v;
}

void pp_cuda_conv_forward(const PpCtx *c, PpCudaConv *v, int64_t rows, const void *x, const void *w,
                          void *y)
{
    if (!v)
        return;
    tell_work(*v, "convolution", rows);
#ifdef PP_WITH_CUDNN
    if (v->dnn && conv_cudnn_forward(stream_of(c), *v, rows, x, w, y))
        return;
#endif
    (v->mg >= MANY ? conv_tiled : conv_direct)(stream_of(c), v->shape.dtype, v->forward, rows, x, w,
                                               y);
}

void pp_cuda_conv_backward_data(const PpCtx *c, PpCudaConv *v, int64_t rows, const void *dy,
                                const void *w, void *dx)
{
    if (!v)
        return;
    tell_work(*v, "convolution", rows);
#ifdef PP_WITH_CUDNN
    if (v->dnn && conv_cudnn_data(stream_of(c), *v, rows, dy, w, dx))
        return;
#endif
    (v->cg >= MANY ? conv_tiled : conv_direct)(stream_of(c), v->shape.dtype, v->data, rows, dy, w,
                                               dx);
}

void pp_cuda_conv_backward_weight(const PpCtx *c, PpCudaConv *v, int64_t rows, const void *x,
                                  const void *dy, void *dw, int accumulate)
{
    if (!v)
        return;
    tell_work(*v, "convolution", rows);
#ifdef PP_WITH_CUDNN
    if (v->dnn && conv_cudnn_weight(stream_of(c), *v, rows, x, dy, dw, accumulate))
        return;
#endif
    (weight_is_tiled(*v) ? conv_weight_tiled : conv_weight_direct)(stream_of(c), *v, rows, x, dy,
                                                                   dw, accumulate);
}
