/*
 * convolutions.cu - pp_cuda_conv_* against the CPU's in float64 (conv.c, which test_conv.c checks):
 * 1 to 3 dimensions, strides, dilations, uneven padding, groups, few channels and many; forward,
 * both gradients, accumulation, fewer rows; and the same bits twice.
 *
 * Tolerance: sums of at most 7,000 products of numbers in [-1, 1], compared on the scale of the
 * largest result: float32 rounds each by 2^-24 of a partial sum, which grows as a random walk, and
 * so do the errors: below 1e-5 of the result; float64 alike with 1e-13.  cuDNN may use Winograd's
 * F(4x4, 3x3), whose transforms make the largest error about seven times a plain sum's, here some
 * 1e-6 (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", table 6): below 3e-5;
 * TF32 would be beyond 1e-4.
 */
#include "device/library.h"
#include "lib.h"
#include "runtime/api/pp_half.h"

static PpConvShape shape(int64_t group, int64_t c, int64_t m, std::vector<int64_t> in,
                         std::vector<int64_t> kernel, std::vector<int64_t> stride,
                         std::vector<int64_t> dilation, std::vector<int64_t> begin,
                         std::vector<int64_t> end)
{
    PpConvShape s = {};
    s.spatial = static_cast<int>(in.size());
    s.group = group;
    s.c = c;
    s.m = m;
    for (size_t i = 0; i < in.size(); i++) {
        s.in[i] = in[i], s.kernel[i] = kernel[i], s.stride[i] = stride[i],
        s.dilation[i] = dilation[i], s.pad_begin[i] = begin[i], s.pad_end[i] = end[i];
        s.out[i] = (in[i] + begin[i] + end[i] - dilation[i] * (kernel[i] - 1) - 1) / stride[i] + 1;
    }
    return s;
}

static int64_t volume(const PpConvShape &s, const int64_t *extent) {
    int64_t n = 1;
    for (int i = 0; i < s.spatial; i++)
        n *= extent[i];
    return n;
}

static std::vector<double> doubles(const std::vector<double> &v) { return v; }
static std::vector<double> doubles(const std::vector<float> &v)
{
    return std::vector<double>(v.begin(), v.end());
}

/* The worst difference in units of the tolerance; of the first n elements. */
template <class T>
static double off(const std::vector<T> &got, const std::vector<double> &want, size_t n)
{
    double e = 0, scale = 1;
    for (size_t i = 0; i < n; i++) {
        const double d = std::fabs(static_cast<double>(got[i]) - want[i]);
        scale = std::fmax(scale, std::fabs(want[i]));
        e = d <= e ? e : d;
    }
#ifdef PP_WITH_CUDNN
    const double single = 3e-5;
#else
    const double single = 1e-5;
#endif
    return e / scale / (sizeof(T) == 8 ? 1e-13 : single);
}

/* bf16 and f16: sums of float32, y and dx rounded once, dw float32; the CPU's in float64 of the same
 * operands; the same bits twice.  Adds to dw what stands there. */
static bool of_half(const Context &x, PpConvShape s, int64_t rows, int dtype) {
    const int64_t nx = rows * s.c * volume(s, s.in), ny = rows * s.m * volume(s, s.out),
                  nw = s.m * s.c / s.group * volume(s, s.kernel);
    const double unit = dtype == PP_BF16 ? 0x1p-8 : 0x1p-11;
    const auto rounded = [&](int64_t n, std::vector<double> *value) {
        std::vector<uint16_t> bits(static_cast<size_t>(n));
        value->resize(static_cast<size_t>(n));
        for (size_t i = 0; i < bits.size(); i++) {
            const float f = static_cast<float>(uniform());
            bits[i] = dtype == PP_BF16 ? pp_to_bf16(f) : pp_to_f16(f);
            (*value)[i] =
                static_cast<double>(dtype == PP_BF16 ? pp_from_bf16(bits[i]) : pp_from_f16(bits[i]));
        }
        return bits;
    };
    std::vector<double> vx, vw, vdy, y(static_cast<size_t>(ny)), dx(static_cast<size_t>(nx));
    const std::vector<uint16_t> in = rounded(nx, &vx), w = rounded(nw, &vw), dy = rounded(ny, &vdy);
    const std::vector<float> dw0 = numbers<float>(nw);
    std::vector<double> dw = doubles(dw0);
    s.dtype = PP_F64;
    PpConv *cpu = pp_conv_open(&s, 1);
    pp_conv_forward(cpu, rows, vx.data(), vw.data(), y.data());
    pp_conv_backward_data(cpu, rows, vdy.data(), vw.data(), dx.data());
    pp_conv_backward_weight(cpu, rows, vx.data(), vdy.data(), dw.data(), 1);
    pp_conv_close(cpu);
    s.dtype = dtype;
    Dev<uint16_t> din(in), dw_(w), ddy(dy), out(dy), gx(in), out2(dy), gx2(in);
    Dev<float> gw(dw0), gw2(dw0);
    PpCudaConv *v = pp_cuda_conv_open(&s, rows);
    need(v, "pp_cuda_conv_open");
    for (int again = 0; again < 2; again++) {
        pp_cuda_conv_forward(&x.c, v, rows, din.p, dw_.p, again ? out2.p : out.p);
        pp_cuda_conv_backward_data(&x.c, v, rows, ddy.p, dw_.p, again ? gx2.p : gx.p);
        pp_cuda_conv_backward_weight(&x.c, v, rows, din.p, ddy.p, again ? gw2.p : gw.p, 1);
    }
    const auto far = [&](const std::vector<uint16_t> &got, const std::vector<double> &want) {
        double e = 0, scale = 1;
        for (size_t i = 0; i < got.size(); i++) {
            const float f = dtype == PP_BF16 ? pp_from_bf16(got[i]) : pp_from_f16(got[i]);
            const double d = std::fabs(static_cast<double>(f) - want[i]);
            scale = std::fmax(scale, std::fabs(want[i]));
            e = d <= e ? e : d;
        }
        return e / scale / (unit + 3e-5);
    };
    const std::vector<uint16_t> got_y = out.get(x.stream), got_dx = gx.get(x.stream);
    const std::vector<float> got_dw = gw.get(x.stream);
    const bool good = far(got_y, y) < 1 && far(got_dx, dx) < 1 && off(got_dw, dw, dw.size()) < 1 &&
                      out2.get(x.stream) == got_y && gx2.get(x.stream) == got_dx &&
                      gw2.get(x.stream) == got_dw;
    pp_cuda_conv_close(v);
    return good && !pp_cuda_error()[0];
}

template <class T> static bool one(const Context &x, PpConvShape s, int64_t rows) {
    const int64_t nx = s.c * volume(s, s.in), ny = s.m * volume(s, s.out),
                  nw = s.m * s.c / s.group * volume(s, s.kernel);
    const std::vector<T> in = numbers<T>(rows * nx), w = numbers<T>(nw), dy = numbers<T>(rows * ny),
                         dw0 = numbers<T>(nw);
    std::vector<double> y(static_cast<size_t>(rows * ny)), dx(static_cast<size_t>(rows * nx)),
        dw = doubles(dw0);
    s.dtype = PP_F64;
    PpConv *cpu = pp_conv_open(&s, 1);
    pp_conv_forward(cpu, rows, doubles(in).data(), doubles(w).data(), y.data());
    pp_conv_backward_data(cpu, rows, doubles(dy).data(), doubles(w).data(), dx.data());
    pp_conv_backward_weight(cpu, rows, doubles(in).data(), doubles(dy).data(), dw.data(), 1);
    pp_conv_close(cpu);

    s.dtype = sizeof(T) == 8 ? PP_F64 : PP_F32;
    const std::vector<T> no_x(in.size(), static_cast<T>(NAN)), no_y(dy.size(), static_cast<T>(NAN));
    Dev<T> din(in), dw_(w), ddy(dy), out(no_y), out2(no_y), gx(no_x), gx2(no_x), gw(dw0), gw2(dw0);
    PpLibrary library = {};
    pp_library = &library;
    /* opened last: nothing but its own care orders its tables before the kernels */
    PpCudaConv *v = pp_cuda_conv_open(&s, rows);
    pp_library = nullptr;
    need(v, "pp_cuda_conv_open");
    const bool bytes = library.bytes == pp_cuda_conv_bytes(&s, rows);
    for (int again = 0; again < 2; again++) {
        pp_cuda_conv_forward(&x.c, v, rows, din.p, dw_.p, again ? out2.p : out.p);
        pp_cuda_conv_backward_data(&x.c, v, rows, ddy.p, dw_.p, again ? gx2.p : gx.p);
        pp_cuda_conv_backward_weight(&x.c, v, rows, din.p, ddy.p, again ? gw2.p : gw.p, 1);
    }
    const std::vector<T> got_y = out.get(x.stream), got_dx = gx.get(x.stream),
                         got_dw = gw.get(x.stream);
    bool good = bytes && off(got_y, y, y.size()) < 1 && off(got_dx, dx, dx.size()) < 1 &&
                off(got_dw, dw, dw.size()) < 1;
    good = good && out2.get(x.stream) == got_y && gx2.get(x.stream) == got_dx &&
           gw2.get(x.stream) == got_dw;

    /* the last row alone, not accumulated, and the rows before it added to that */
    out.put(no_y);
    pp_cuda_conv_forward(&x.c, v, rows - 1, din.p, dw_.p, out.p);
    pp_cuda_conv_backward_weight(&x.c, v, 1, din.p + (rows - 1) * nx, ddy.p + (rows - 1) * ny, gw.p,
                                 0);
    pp_cuda_conv_backward_weight(&x.c, v, rows - 1, din.p, ddy.p, gw.p, 1);
    const std::vector<T> some = out.get(x.stream);
    for (size_t i = 0; i < dw.size(); i++)
        dw[i] -= static_cast<double>(dw0[i]);
    good = good && off(some, y, static_cast<size_t>((rows - 1) * ny)) < 1 &&
           std::isnan(some.back()) && off(gw.get(x.stream), dw, dw.size()) < 1;
    pp_cuda_conv_close(v);
    return good && !pp_cuda_error()[0];
}

int main() {
    // clang-format off
    static const struct { const char *what; int64_t rows; PpConvShape s; } cases[] = {
        //                                     group  c   m   in            kernel     stride     dilation   padding
        {"1-d",                          3, shape(1,  3,  5, {17},         {4},       {2},       {1},       {1},       {2})},
        {"1-d, many channels",           3, shape(1, 20, 40, {50},         {3},       {1},       {2},       {2},       {2})},
        {"2-d 3x3 same",                 3, shape(1,  8, 16, {14, 14},     {3, 3},    {1, 1},    {1, 1},    {1, 1},    {1, 1})},
        {"2-d 7x7 stride 2",             3, shape(1,  3,  8, {33, 31},     {7, 7},    {2, 2},    {1, 1},    {3, 3},    {3, 3})},
        {"2-d 7x7 stride 2, tiled",      2, shape(1,  3, 64, {21, 23},     {7, 7},    {2, 2},    {1, 1},    {3, 3},    {3, 3})},
        {"2-d 1x1",                      3, shape(1, 16,  8, {9, 7},       {1, 1},    {1, 1},    {1, 1},    {0, 0},    {0, 0})},
        {"2-d 1x1, many channels",       2, shape(1, 70, 66, {5, 7},       {1, 1},    {1, 1},    {1, 1},    {0, 0},    {0, 0})},
        {"2-d 1x1 stride 2",             3, shape(1, 16, 18, {9, 7},       {1, 1},    {2, 2},    {1, 1},    {0, 0},    {0, 0})},
        {"2-d dilated, uneven",          3, shape(1,  5,  6, {15, 12},     {3, 2},    {1, 2},    {2, 3},    {0, 2},    {3, 1})},
        {"2-d dilated, uneven, tiled",   3, shape(1, 17, 19, {15, 12},     {3, 2},    {2, 3},    {2, 3},    {0, 2},    {3, 1})},
        {"2-d groups",                   3, shape(2, 16, 12, {8, 8},       {3, 3},    {1, 1},    {1, 1},    {1, 1},    {1, 1})},
        {"2-d groups of many",           3, shape(3, 48, 51, {7, 8},       {3, 3},    {2, 1},    {1, 1},    {1, 1},    {1, 1})},
        {"2-d depthwise",                3, shape(8,  8, 16, {20, 19},     {3, 3},    {1, 1},    {1, 1},    {1, 1},    {1, 1})},
        {"2-d depthwise stride 2",       3, shape(8,  8,  8, {21, 40},     {5, 5},    {2, 2},    {1, 1},    {2, 2},    {2, 2})},
        {"2-d patches of 8",             3, shape(1,  3, 32, {32, 32},     {8, 8},    {8, 8},    {1, 1},    {0, 0},    {0, 0})},
        {"2-d patches, many channels",   3, shape(1, 16, 24, {9, 9},       {3, 3},    {3, 3},    {1, 1},    {0, 0},    {0, 0})},
        {"2-d stride beyond the kernel", 3, shape(1, 16, 16, {13, 11},     {2, 1},    {3, 4},    {1, 1},    {1, 0},    {1, 2})},
        {"2-d wide padding",             3, shape(1,  2,  3, {2, 2},       {3, 3},    {1, 1},    {3, 3},    {5, 5},    {5, 5})},
        {"2-d large",                    2, shape(1, 16, 16, {24, 25},     {3, 3},    {1, 1},    {1, 1},    {1, 1},    {1, 1})},
        {"3-d",                          3, shape(1,  3,  4, {6, 7, 9},    {3, 2, 3}, {1, 2, 1}, {2, 1, 1}, {1, 0, 1}, {2, 1, 1})},
        {"3-d, many channels",           2, shape(1, 16, 18, {4, 5, 6},    {2, 3, 2}, {2, 2, 1}, {1, 1, 2}, {1, 1, 0}, {1, 1, 2})},
    };
    // clang-format on
    {
        Context x;
        int half = PP_BF16;                             /* the two differ in how a number is read */
        for (const auto &c : cases) {
            const bool single = one<float>(x, c.s, c.rows), twice = one<double>(x, c.s, c.rows),
                       narrow = of_half(x, c.s, c.rows, half);
            ok(single && twice && narrow, c.what);
            if (!single || !twice || !narrow)
                printf("# float32 %s, float64 %s, %s %s %s\n", single ? "agrees" : "differs",
                       twice ? "agrees" : "differs", half == PP_BF16 ? "bf16" : "f16",
                       narrow ? "agrees" : "differs", pp_cuda_error());
            half = half == PP_BF16 ? PP_F16 : PP_BF16;
            pp_cuda_clear();
        }
        PpConvShape many = shape(1, 16, 16, {1 << 16}, {1}, {1}, {1}, {0}, {0});
        many.dtype = PP_F32;
        PpCudaConv *v = pp_cuda_conv_open(&many, 1 << 12);
        ok(v && !pp_cuda_error()[0], "more samples than a library's descriptor counts");
        pp_cuda_conv_close(v);
        pp_cuda_clear();
        PpConvShape huge = shape(1, 1 << 12, 1, {1 << 20}, {1}, {1}, {1}, {0}, {0});
        huge.dtype = PP_F32;
        ok(!pp_cuda_conv_open(&huge, 1) && strstr(pp_cuda_error(), "more than 2^31 elements"),
           "a sample that is too large is said");
        pp_cuda_clear();
    }
    printf("1..%d\n", number);
    return failed;
}
