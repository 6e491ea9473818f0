/*
 * pools.cu - pp_cuda_pool_forward against loops on the host: maxima (NaN stays), averages of the
 * places inside the plane and of all; what cuDNN has no windows for, and everything once kernels
 * may wait for other ranks, is left to the caller.  Without cuDNN it always is.
 */
#include "lib.h"

template <class T>
static std::vector<T> expected(const PpPoolShape &s, int64_t planes, const std::vector<T> &x)
{
    std::vector<T> y;
    const int64_t plane = s.in[0] * s.in[1];
    for (int64_t p = 0; p < planes; p++)
        for (int64_t i = 0; i < s.out[0]; i++)
            for (int64_t j = 0; j < s.out[1]; j++) {
                T best = static_cast<T>(-INFINITY), sum = 0;
                int64_t inside = 0;
                for (int64_t a = i * s.stride[0] - s.pad[0];
                     a < i * s.stride[0] - s.pad[0] + s.kernel[0]; a++)
                    for (int64_t b = j * s.stride[1] - s.pad[1];
                         b < j * s.stride[1] - s.pad[1] + s.kernel[1]; b++) {
                        if (a < 0 || a >= s.in[0] || b < 0 || b >= s.in[1])
                            continue;
                        const T v = x[static_cast<size_t>(p * plane + a * s.in[1] + b)];
                        best = v > best || std::isnan(v) || std::isnan(best)
                                   ? (std::isnan(best) ? best : v)
                                   : best;
                        sum += v;
                        inside++;
                    }
                y.push_back(s.kind == PP_POOL_MAX
                                ? best
                                : sum / static_cast<T>(s.kind == PP_POOL_INSIDE
                                                           ? inside
                                                           : s.kernel[0] * s.kernel[1]));
            }
    return y;
}

template <class T>
static bool agrees(Context &x, const PpPoolShape &s, int64_t rows, int64_t channels)
{
    const int64_t planes = rows * channels;
    std::vector<T> in = numbers<T>(planes * s.in[0] * s.in[1]);
    in[3] = static_cast<T>(NAN);
    const std::vector<T> want = expected(s, planes, in);
    Dev<T> from(in), to(std::vector<T>(want.size(), static_cast<T>(7)));
    x.c.rows = rows;
    if (!pp_cuda_pool_forward(&x.c, &s, planes, from.p, to.p))
        return false;
    const std::vector<T> got = to.get(x.stream);
    /* nine numbers of [-1, 1]: a few roundings of 2^-24 */
    for (size_t i = 0; i < want.size(); i++)
        if (std::isnan(got[i]) != std::isnan(want[i]) ||
            std::fabs(got[i] - want[i]) > static_cast<T>(1e-6))
            return false;
    return true;
}

int main() {
#ifdef PP_WITH_CUDNN
    const bool there = true;
#else
    const bool there = false;
#endif
    // clang-format off
    static const struct { const char *what; bool takes; PpPoolShape s; } cases[] = {
        {"maximum",                     true,  {PP_F32, 2, PP_POOL_MAX,    {12, 9},  {6, 5},  {3, 3}, {2, 2}, {1, 1}}},
        {"maximum of doubles",          true,  {PP_F64, 2, PP_POOL_MAX,    {12, 9},  {6, 4},  {2, 3}, {2, 2}, {0, 0}}},
        {"average of places inside",    true,  {PP_F32, 2, PP_POOL_INSIDE, {7, 8},   {7, 4},  {3, 2}, {1, 2}, {1, 0}}},
        {"average of all places",       true,  {PP_F32, 2, PP_POOL_WHOLE,  {7, 8},   {7, 8},  {3, 3}, {1, 1}, {1, 1}}},
        {"a window beyond the padding", false, {PP_F32, 2, PP_POOL_MAX,    {12, 12}, {6, 6},  {3, 3}, {2, 2}, {0, 0}}},
    };
    // clang-format on
    {
        Context x;
        for (const auto &c : cases)
            for (int64_t rows = 2; rows <= 3; rows++)
                ok((c.s.dtype == PP_F64 ? agrees<double>(x, c.s, rows, 5)
                                        : agrees<float>(x, c.s, rows, 5)) == (there && c.takes),
                   c.what);
        pp_cuda_waits = true;
        ok(!agrees<float>(x, cases[0].s, 2, 5), "not while kernels wait for other ranks");
        ok(!pp_cuda_error()[0] && cudaPeekAtLastError() == cudaSuccess, "no error");
    }
    printf("1..%d\n", number);
    return failed;
}
