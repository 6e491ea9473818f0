/*
 * attention.cu - pp_cuda_attention and its backward against the definition in float64: every width
 * of tile, odd sizes, causal masks with and without a diagonal of their own, masks and biases that
 * broadcast, heads of a packed projection as they stand, groups of heads that share keys, dropout,
 * 16-bit operands; the same bits twice; rows that are masked as a whole.
 *
 * Tolerance: sums of at most 300 products in float32, exponentials of at most 2 ulp: 2e-6 of the
 * largest result leaves a factor of about three.  Of 16-bit results the last bit: 2^-8 or 2^-11 of
 * each, and delta is a sum of such.
 */
#include "lib.h"
#include "runtime/device/cuda/tile.h"

#include <cmath>
#include <thread>

namespace
{

struct Case {
    const char *name;
    int64_t rows, keys;
    int width, width_v;
    int batch, groups, heads;         /* heads of a group share keys and values */
    int causal, diagonal, bias, mask; /* mask: 1 allowed, 2 forbidden places */
    double ratio, fill;
    int dtype;
    /* rows of q and v are side by side, as 16-byte copies want them; heads of a group share dk, dv
     */
    bool along = false, shared = false;
    int window = 0;
};

/* Elements as the device has them, and what they are. */
struct Numbers {
    int dtype;
    std::vector<float> wide;
    std::vector<uint16_t> half;
    explicit Numbers(int64_t n, int type) : dtype(type), wide(numbers<float>(n)), half(wide.size())
    {
        for (size_t i = 0; i < wide.size(); i++)
            if (dtype != PP_F32) {
                half[i] = dtype == PP_BF16 ? pp_to_bf16(wide[i]) : pp_to_f16(wide[i]);
                wide[i] = value(i);
            }
    }
    float value(size_t i) const
    {
        return dtype == PP_BF16 ? pp_from_bf16(half[i]) : pp_from_f16(half[i]);
    }
};

struct OnDevice {
    Numbers host;
    Dev<float> wide;
    Dev<uint16_t> half;
    OnDevice(int64_t n, int dtype) : host(n, dtype), wide(host.wide), half(host.half) {}
    void *at() { return host.dtype == PP_F32 ? static_cast<void *>(wide.p) : half.p; }
    std::vector<float> get(cudaStream_t s)
    {
        if (host.dtype == PP_F32)
            return wide.get(s);
        host.half = half.get(s);
        std::vector<float> v(host.half.size());
        for (size_t i = 0; i < v.size(); i++)
            v[i] = host.value(i);
        return v;
    }
};

/* The largest difference, by the largest of `want`. */
double off(const std::vector<float> &got, const std::vector<double> &want)
{
    double worst = 0, most = 0;
    for (size_t i = 0; i < got.size(); i++) {
        const double e = std::fabs(static_cast<double>(got[i]) - want[i]);
        worst = e <= worst ? worst : e; /* a NaN stays */
        most = std::fmax(most, std::fabs(want[i]));
    }
    return worst / most;
}

/* Everything of one case: q, k, v packed as [batch, row, 3 kinds.., head, width], y and the
 * gradients dense by head. */
struct Run {
    const Case &c;
    int64_t matrices, owners, q_row, k_row; /* owners: of gradients of keys and values */
    OnDevice q, k, v, y, dy, dq, dk, dv;
    Dev<float> bias, stats, delta;
    std::vector<uint8_t> allowed_host;
    Dev<uint8_t> allowed;
    PpAttention a = {};

    static PpMatrix matrix(void *at, int64_t row, int64_t col, int64_t b, int64_t g, int64_t h)
    {
        return PpMatrix{at, row, col, {b, g, h}};
    }
    static std::vector<uint8_t> places(const Case &c)
    {
        std::vector<uint8_t> v(static_cast<size_t>(c.batch * c.rows * c.keys));
        for (uint8_t &x : v)
            x = uniform() < 0.3 ? 0 : 1;
        for (size_t i = 0; i < v.size(); i += static_cast<size_t>(c.keys))
            v[i] = c.mask == 2 ? 0 : 1; /* a place in every row */
        return v;
    }
    explicit Run(const Case &x)
        : c(x), matrices(x.batch * x.groups * x.heads),
          owners(x.shared ? x.batch * x.groups : matrices),
          q_row(x.groups * x.heads * x.width + (x.along ? 8 : 3)), k_row(x.groups * x.width),
          q(x.batch * x.rows * q_row, x.dtype), k(x.batch * x.keys * k_row, x.dtype),
          v(x.batch * x.keys * x.groups * x.width_v, x.dtype),
          y(matrices * x.rows * x.width_v, x.dtype), dy(matrices * x.rows * x.width_v, x.dtype),
          dq(matrices * x.rows * x.width, x.dtype), dk(owners * x.keys * x.width, x.dtype),
          dv(owners * x.keys * x.width_v, x.dtype),
          bias(numbers<float>(x.groups * x.heads * x.rows * x.keys)),
          stats(numbers<float>(matrices * x.rows * 2)), delta(numbers<float>(matrices * x.rows)),
          allowed_host(places(x)), allowed(allowed_host)
    {
        const int64_t all = c.groups * c.heads, n = c.rows;
        a.dtype = c.dtype;
        a.bias_dtype = PP_F32;
        a.rows = n;
        a.keys = c.keys;
        a.width = c.width;
        a.width_v = c.width_v;
        a.dims = 3;
        a.count[0] = c.batch;
        a.count[1] = c.groups;
        a.count[2] = c.heads;
        a.scale = 0.3f;
        a.mask.fill = static_cast<float>(c.fill);
        a.mask.causal = c.causal;
        a.mask.diagonal = c.diagonal;
        a.mask.window = c.window;
        a.mask.forbids = c.mask == 2;
        a.q = matrix(q.at(), q_row, 1, n * q_row, c.heads * c.width, c.width);
        a.k = matrix(k.at(), k_row, 1, c.keys * k_row, c.width, 0);
        /* columns apart: v' as it stands */
        a.v =
            c.along
                ? matrix(v.at(), c.width_v, 1, c.groups * c.width_v * c.keys, c.width_v * c.keys, 0)
                : matrix(v.at(), 1, c.keys, c.groups * c.width_v * c.keys, c.width_v * c.keys, 0);
        a.y =
            matrix(y.at(), all * c.width_v, 1, n * all * c.width_v, c.heads * c.width_v, c.width_v);
        a.dy = matrix(dy.at(), c.width_v, 1, all * n * c.width_v, c.heads * n * c.width_v,
                      n * c.width_v);
        a.dq = matrix(dq.at(), c.width, 1, all * n * c.width, c.heads * n * c.width, n * c.width);
        const int64_t own = owners / c.batch, step = c.shared ? 0 : c.keys;
        a.dk = matrix(dk.at(), c.along ? c.width : 1, c.along ? 1 : c.keys, own * c.keys * c.width,
                      own / c.groups * c.keys * c.width, step * c.width);
        a.dv = matrix(dv.at(), c.width_v, 1, own * c.keys * c.width_v,
                      own / c.groups * c.keys * c.width_v, step * c.width_v);
        if (c.bias)
            a.bias = matrix(bias.p, c.keys, 1, 0, c.heads * n * c.keys, n * c.keys);
        if (c.mask)
            a.allowed = matrix(allowed.p, c.keys, 1, n * c.keys, 0, 0);
        a.stats = matrix(stats.p, 2, 1, all * n * 2, c.heads * n * 2, n * 2);
        a.room = delta.p;
        a.drop.limit = static_cast<uint64_t>(c.ratio * 4294967296.0);
        a.drop.kept = static_cast<float>(1 / (1 - c.ratio));
        a.drop.seed = 77;
        a.drop.step = 3;
        a.drop.row0 = 5;
        a.drop.key = 2;
        a.drop.row[0] = 1;
        a.drop.element[1] = c.heads * n * c.keys;
        a.drop.element[2] = n * c.keys;
    }

    static double at(const OnDevice &x, const PpMatrix &m, int64_t b, int64_t g, int64_t h,
                     int64_t r, int64_t col)
    {
        return static_cast<double>(x.host.wide[static_cast<size_t>(
            b * m.batch[0] + g * m.batch[1] + h * m.batch[2] + r * m.row + col * m.col)]);
    }
    static double &at(std::vector<double> &x, const PpMatrix &m, int64_t b, int64_t g, int64_t h,
                      int64_t r, int64_t col)
    {
        return x[static_cast<size_t>(b * m.batch[0] + g * m.batch[1] + h * m.batch[2] + r * m.row +
                                     col * m.col)];
    }
    double kept(int64_t b, int64_t g, int64_t h, int64_t r, int64_t j) const
    {
        const uint64_t e = static_cast<uint64_t>(((g * c.heads + h) * c.rows + r) * c.keys + j);
        uint32_t random[4];
        pp_philox(77, 3, 5 + static_cast<uint64_t>(b), e / 4, 2, random);
        return c.ratio == 0 || random[e % 4] >= a.drop.limit ? 1 / (1 - c.ratio) : 0;
    }
    bool masked(int64_t b, int64_t r, int64_t j) const
    {
        if (c.causal)
            return j > r + c.diagonal || (c.window && j <= r + c.diagonal - c.window);
        const size_t i = static_cast<size_t>((b * c.rows + r) * c.keys + j);
        return c.mask && (allowed_host[i] != 0) == (c.mask == 2);
    }

    /* The definition.  Of delta's y what the device rounded it to. */
    struct Truth {
        std::vector<double> y, dq, dk, dv;
    };
    Truth truth(const std::vector<float> &bias_host) const
    {
        Truth t{std::vector<double>(y.host.wide.size()), std::vector<double>(dq.host.wide.size()),
                std::vector<double>(dk.host.wide.size()), std::vector<double>(dv.host.wide.size())};
        const double scale = static_cast<double>(a.scale), fill = static_cast<double>(a.mask.fill);
        std::vector<double> p(static_cast<size_t>(c.keys)), ds(p.size());
        for (int64_t b = 0; b < c.batch; b++)
            for (int64_t g = 0; g < c.groups; g++)
                for (int64_t h = 0; h < c.heads; h++)
                    for (int64_t r = 0; r < c.rows; r++) {
                        double most = -INFINITY, sum = 0, delta = 0;
                        for (int64_t j = 0; j < c.keys; j++) {
                            double s = 0;
                            for (int i = 0; i < c.width; i++)
                                s += at(q, a.q, b, g, h, r, i) * at(k, a.k, b, g, h, j, i);
                            s *= scale;
                            if (c.bias)
                                s += static_cast<double>(bias_host[static_cast<size_t>(
                                    ((g * c.heads + h) * c.rows + r) * c.keys + j)]);
                            p[static_cast<size_t>(j)] = masked(b, r, j) ? fill : s;
                            most = std::fmax(most, p[static_cast<size_t>(j)]);
                        }
                        for (double &x : p)
                            sum += x = std::exp(x - most);
                        for (int64_t j = 0; j < c.keys; j++) {
                            const size_t e = static_cast<size_t>(j);
                            double dp = 0;
                            p[e] /= sum;
                            for (int i = 0; i < c.width_v; i++) {
                                const double d = at(dy, a.dy, b, g, h, r, i),
                                             pd = p[e] * kept(b, g, h, r, j);
                                at(t.y, a.y, b, g, h, r, i) += pd * at(v, a.v, b, g, h, j, i);
                                at(t.dv, a.dv, b, g, h, j, i) += pd * d;
                                dp += d * at(v, a.v, b, g, h, j, i);
                            }
                            ds[e] = dp * kept(b, g, h, r, j);
                            delta += p[e] * ds[e];
                        }
                        for (int64_t j = 0; j < c.keys; j++) {
                            const size_t e = static_cast<size_t>(j);
                            const double d = masked(b, r, j) ? 0 : p[e] * (ds[e] - delta) * scale;
                            for (int i = 0; i < c.width; i++) {
                                at(t.dq, a.dq, b, g, h, r, i) += d * at(k, a.k, b, g, h, j, i);
                                at(t.dk, a.dk, b, g, h, j, i) += d * at(q, a.q, b, g, h, r, i);
                            }
                        }
                    }
        return t;
    }
};

void one(const Context &x, const Case &c)
{
    Run run(c);
    PpAttention a = run.a;
    const std::vector<float> bias = run.bias.get(x.stream);
    const Run::Truth want = run.truth(bias);
    pp_cuda_attention(&x.c, &a);
    const std::vector<float> y = run.y.get(x.stream);
    pp_cuda_attention_backward(&x.c, &a);
    const std::vector<float> dq = run.dq.get(x.stream), dk = run.dk.get(x.stream),
                             dv = run.dv.get(x.stream);
    const double limit = c.dtype == PP_F32 ? 2e-6 : c.dtype == PP_BF16 ? 1.0 / 128 : 1.0 / 1024;
    const double e[] = {off(y, want.y), off(dq, want.dq), off(dk, want.dk), off(dv, want.dv)};
    bool good = true;
    for (double d : e)
        good &= d <= limit;
    ok(good, std::string(c.name) + ": y, dq, dk, dv");
    if (!good)
        printf("# off by %g %g %g %g, at most %g\n", e[0], e[1], e[2], e[3], limit);
    if (c.width != 7 && c.width != 40)
        return;
    pp_cuda_attention(&x.c, &a);
    pp_cuda_attention_backward(&x.c, &a);
    ok(run.y.get(x.stream) == y && run.dq.get(x.stream) == dq && run.dk.get(x.stream) == dk &&
           run.dv.get(x.stream) == dv,
       "the same bits twice");
}

void whole_mask(const Context &x, const Case &c, double limit)
{
    Run run(c);
    for (uint8_t &m : run.allowed_host)
        m = 0;
    run.allowed.put(run.allowed_host);
    pp_cuda_attention(&x.c, &run.a);
    const Run::Truth want = run.truth(run.bias.get(x.stream));
    ok(off(run.y.get(x.stream), want.y) < limit, c.name);
    pp_cuda_attention_backward(&x.c, &run.a);
    ok(off(run.dv.get(x.stream), want.dv) < limit, "and its gradient");
}

/* The places in shared memory of eight rows of one chunk, which ldmatrix reads at a time, and of
 * eight neighbouring chunks of a row, or of two, which eight threads write: all 32 banks. */
template <int WIDE> void banks()
{
    bool good = true;
    for (int r = 0; r < 128; r += 8)
        for (int c = 0; c < WIDE / 8; c++) {
            unsigned read = 0, written = 0;
            for (int i = 0; i < 8; i++) {
                const int chunk = c / 8 * 8 + i;
                read |= 1u << swizzled<WIDE>(r + i, c) / 8 % 8;
                written |=
                    1u << swizzled<WIDE>(r + c % 8 + chunk / (WIDE / 8), chunk % (WIDE / 8)) / 8 %
                              8;
            }
            good &= read == 255 && written == 255;
        }
    std::vector<bool> used(128 * WIDE / 8);
    for (int i = 0; i < 128 * WIDE / 8; i++)
        used[static_cast<size_t>(swizzled<WIDE>(i / (WIDE / 8), i % (WIDE / 8)) / 8)] = true;
    for (bool u : used)
        good &= u;
    ok(good, "no two of eight in one bank, " + std::to_string(WIDE) + " wide");
}

} // namespace

int main()
{
    static const float LOW = -3.4028234663852886e38f;
    const double low = static_cast<double>(LOW), none = -INFINITY;
    const Case cases[] = {
        {"narrow heads, odd sizes", 67, 70, 7, 5, 1, 1, 2, 0, 0, 0, 0, 0, 0, PP_F32},
        {"causal", 70, 70, 32, 32, 1, 1, 1, 1, 0, 0, 0, 0, none, PP_F32},
        {"causal behind a cache", 3, 150, 20, 20, 1, 1, 1, 1, 147, 0, 0, 0, low, PP_F32},
        {"wide as 64, groups of heads", 5, 66, 64, 64, 2, 2, 2, 1, 61, 0, 0, 0, low, PP_F32},
        {"wide as 128, a mask that forbids", 35, 65, 100, 128, 1, 1, 1, 0, 0, 0, 2, 0, none,
         PP_F32},
        {"wide as 256, bias and mask", 18, 33, 256, 130, 1, 1, 1, 0, 0, 1, 1, 0, low, PP_F32},
        {"dropout", 9, 67, 16, 16, 2, 1, 2, 1, 58, 1, 0, 0.25, low, PP_F32},
        {"one query", 1, 5, 8, 8, 3, 1, 1, 0, 0, 1, 1, 0, -1e4, PP_F32},
        {"bfloat16", 20, 66, 16, 16, 1, 1, 2, 1, 46, 1, 0, 0, low, PP_BF16},
        {"binary16", 20, 66, 24, 16, 1, 2, 1, 0, 0, 0, 1, 0.5, none, PP_F16},
        {"shared keys", 20, 35, 16, 16, 2, 2, 2, 1, 15, 0, 0, 0, low, PP_F32, true, true},
        {"sliding window", 200, 200, 8, 8, 1, 1, 1, 1, 5, 0, 0, 0, low, PP_F32, true, false, 40},
        {"queries of a chunk", 70, 300, 16, 16, 1, 1, 1, 1, 140, 0, 0, 0, low, PP_F32},
        {"of a sliding window", 70, 300, 8, 8, 1, 1, 1, 1, 140, 0, 0, 0, low, PP_F32, true, false, 40},
        /* tensor cores: each width of tile, rows of 16 bytes and others, several tiles */
        {"half: causal", 150, 150, 64, 64, 1, 1, 2, 1, 0, 0, 0, 0, low, PP_BF16, true},
        {"half: sliding window", 300, 300, 32, 32, 1, 1, 1, 1, 5, 0, 0, 0, low, PP_BF16, true,
         false, 40},
        {"half: queries of a chunk", 70, 300, 64, 64, 1, 1, 1, 1, 140, 0, 0, 0, low, PP_BF16, true},
        {"half: as wide as 32", 70, 130, 32, 26, 1, 1, 1, 1, 60, 1, 0, 0.25, low, PP_F16, true},
        {"half: as wide as 64, keys apart", 66, 70, 48, 64, 2, 1, 1, 0, 0, 0, 2, 0, low, PP_F16},
        {"half: as wide as 128", 70, 100, 96, 128, 1, 1, 1, 0, 0, 1, 1, 0, low, PP_BF16, true},
        {"half: as wide as 256", 20, 70, 256, 200, 1, 1, 1, 1, 50, 0, 0, 0, low, PP_F16, true},
        {"half: shared keys, dropout", 20, 70, 40, 24, 2, 2, 3, 1, 50, 0, 0, 0.5, none, PP_BF16,
         true, true},
    };
    banks<32>();
    banks<64>();
    banks<128>();
    banks<256>();
    const Context x;
    for (const Case &c : cases)
        one(x, c);
    /* every score masked by a finite number: the mean of v, as softmax has it */
    Case whole = {"a mask of everything", 2, 3, 4, 4, 1, 1, 1, 0, 0, 0, 1, 0, low, PP_F32};
    whole_mask(x, whole, 2e-6);
    whole.dtype = PP_BF16;
    whole_mask(x, whole, 1.0 / 128);
    whole.dtype = PP_F32;
    Run run(whole);
    run.a.width = 300;
    pp_cuda_attention(&x.c, &run.a);
    ok(strstr(pp_cuda_error(), "heads of more than 256") != nullptr, "wider heads are refused");
    pp_cuda_clear();
#ifdef PP_CUDA_SHIM
    setenv("SHIM_SHARED", "65536", 1); /* of cards before compute capability 8.0 */
    run.a.width = 4;
    std::string said;
    std::thread([&] {
        pp_cuda_attention_backward(&x.c, &run.a);
        said = pp_cuda_error();
    }).join();
    ok(said.find("needs 85 KiB of shared memory, and this GPU has 64") != said.npos,
       "a card with too little shared memory is refused");
#endif
    printf("1..%d\n", number);
    return failed;
}
