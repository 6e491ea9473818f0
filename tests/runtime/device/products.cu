/*
 * products.cu - pp_cuda_gemm() against the CPU's pp_gemm(), which test_gemm.c checks: types, sizes,
 * transposes, leading dimensions, factors, what is added to, empty sums,
 * batches over views, batches that no stride describes and that are one call all the same, two
 * calls and two streams that share a list of pointers; products with a bias; and what cannot be is
 * said.
 *
 * Tolerance: both add k products of numbers in [-1, 1] in float32, in orders of their own: 2 (1 +
 * sqrt(k)) rounding errors of 2^-24 times the largest partial sum, about sqrt(k): 1e-6 (1 +
 * sqrt(k)) leaves a factor of about four; the same for float64 with 1e-15.  Half operands are
 * exact in float32, so sums of them have its tolerance, and a half result that of its rounding.
 */
#include "lib.h"
#include "runtime/api/pp_half.h"

#include <algorithm>

/* A batch's dimensions; none: one product. */
struct Strides { std::vector<int64_t> count, a, b, c; };

/* Of a type, as its arguments stand in a call of BLAS; beta: 0 or 1. */
static PpGemm product(int type, int ta, int tb, int64_t m, int64_t n, int64_t k, float alpha,
                      const void *a, int64_t lda, const void *b, int64_t ldb, int beta, void *c,
                      int64_t ldc, const Strides &s = {})
{
    static const float factor[] = {0.5f, 1, 2};
    PpGemm g = {};
    g.type = type, g.ta = ta, g.tb = tb, g.m = m, g.n = n, g.k = k;
    g.alpha = std::find(factor, factor + 2, alpha);
    g.a = a, g.lda = lda, g.b = b, g.ldb = ldb, g.adds = beta, g.c = c, g.ldc = ldc;
    g.dims = static_cast<int>(s.count.size()), g.count = s.count.data();
    g.stride_a = s.a.data(), g.stride_b = s.b.data(), g.stride_c = s.c.data();
    return g;
}

/* On the device, or, without a context, on the CPU. */
static void run(const PpCtx *c, const PpGemm &g)
{
    c ? pp_cuda_gemm(c, &g) : pp_gemm(&g);
}

template <class T> constexpr int type_of = sizeof(T) == 8 ? PP_F64 : PP_F32;

/* The worst difference in units of the tolerance. */
template <class T>
static double off(const std::vector<T> &got, const std::vector<T> &want, int64_t k)
{
    double worst = 0;
    for (size_t i = 0; i < got.size(); i++) {
        double e = std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
        worst = e <= worst ? worst : e;                 /* a NaN stays */
    }
    return worst / (1 + std::sqrt(static_cast<double>(k))) / (sizeof(T) == 8 ? 1e-15 : 1e-6);
}

template <class T>
static double one(const Context &x, int ta, int tb, int64_t m, int64_t n, int64_t k, int pad)
{
    int64_t lda = (ta ? m : k) + pad, ldb = (tb ? k : n) + pad, ldc = n + pad;
    std::vector<T> a = numbers<T>((ta ? k : m) * lda), b = numbers<T>((tb ? n : k) * ldb),
                   c = numbers<T>(m * ldc);
    Dev<T> da(a), db(b), dc(c);
    const float alpha = pad ? 0.5f : 1;
    const int beta = pad != 0;
    run(nullptr, product(type_of<T>, ta, tb, m, n, k, alpha, a.data(), lda, b.data(), ldb, beta,
                         c.data(), ldc));
    run(&x.c, product(type_of<T>, ta, tb, m, n, k, alpha, da.p, lda, db.p, ldb, beta, dc.p, ldc));
    /* columns beyond n included: nobody may write there */
    return off(dc.get(x.stream), c, k);
}

template <class T>
static double batch(const Context &x, int ta, int tb, int64_t m, int64_t n, int64_t k, int64_t na,
                    int64_t lda, int64_t nb, int64_t ldb, int64_t nc, int64_t ldc, int beta,
                    const Strides &s)
{
    std::vector<T> a = numbers<T>(na), b = numbers<T>(nb), c = numbers<T>(nc);
    Dev<T> da(a), db(b), dc(c);
    run(nullptr, product(type_of<T>, ta, tb, m, n, k, 2, a.data(), lda, b.data(), ldb, beta,
                         c.data(), ldc, s));
    run(&x.c, product(type_of<T>, ta, tb, m, n, k, 2, da.p, lda, db.p, ldb, beta, dc.p, ldc, s));
    return off(dc.get(x.stream), c, k);
}

template <class T> static void all(const Context &x, const std::string &type) {
    static const int64_t sizes[] = {1, 2, 3, 5, 16, 17, 31, 64, 129};
    double worst = 0;
    for (int t = 0; t < 4; t++)
        for (unsigned i = 0; i < 9; i++)
            for (unsigned j = 0; j < 9; j += 1 + i % 3)
                for (unsigned p = 0; p < 9; p += 1 + j % 4)
                    worst = std::fmax(worst, one<T>(x, t & 1, t >> 1, sizes[i], sizes[j], sizes[p],
                                                    static_cast<int>((i + j + p) % 2) * 3));
    ok(worst < 1, type + ": products of all sizes and transposes");
    worst = std::fmax(one<T>(x, 0, 0, 5, 7, 0, 0), one<T>(x, 0, 1, 5, 7, 0, 2));
    ok(worst < 1, type + ": an empty sum is 0, or adds nothing");
    run(&x.c, product(type_of<T>, 0, 0, 0, 3, 2, 1, nullptr, 2, nullptr, 3, 0, nullptr, 3));
    run(&x.c, product(type_of<T>, 0, 0, 3, 0, 2, 1, nullptr, 2, nullptr, 0, 0, nullptr, 0));
    ok(!pp_cuda_error()[0], type + ": empty matrices");
    /* heads inside a packed [2, 3, 4 heads * 5] tensor: A[b,h] = x[b,:,h,:] (3 x 5), C = A B^T */
    ok(batch<T>(x, 0, 1, 3, 3, 5, 120, 20, 120, 20, 72, 3, 0, {{2, 4}, {60, 5}, {60, 5}, {36, 9}}) <
           1,
       type + ": a batch over strided heads");
    ok(batch<T>(x, 0, 0, 4, 6, 5, 120, 5, 30, 6, 144, 6, 1, {{2, 3}, {60, 20}, {0, 0}, {72, 24}}) <
           1,
       type + ": one matrix for all of a batch");
    ok(batch<T>(x, 1, 0, 2, 3, 4, 480, 2, 720, 3, 360, 3, 1,
                {{3, 1, 4, 5}, {160, 7, 40, 8}, {240, 7, 12, 48}, {120, 7, 30, 6}}) < 1,
       type + ": four dimensions that do not fold");
    ok(batch<T>(x, 0, 0, 3, 2, 0, 1, 1, 2, 2, 24, 2, 0, {{2, 2}, {0, 0}, {0, 0}, {12, 6}}) < 1,
       type + ": a batch of empty sums");
    ok(batch<T>(x, 0, 0, 3, 2, 4, 12, 4, 8, 2, 6, 2, 0, {{}, {}, {}, {}}) < 1,
       type + ": a batch without dimensions");
    run(&x.c, product(type_of<T>, 0, 0, 3, 2, 4, 1, nullptr, 4, nullptr, 2, 0, nullptr, 2,
                      {{2, 0}, {1, 1}, {1, 1}, {1, 1}}));
    ok(!pp_cuda_error()[0], type + ": a batch of none");
}

/* ---- batches of which a list says where the operands are ---- */

/* Heads of a packed [rows, 3 parts, heads * 5] tensor x: y[r,h] (+)= q[r,h] k[r,h]^T with 3 rows of
 * x a product, as attention reads it. */
template <class T>
static void attention(const PpCtx *c, const T *x, T *y, int64_t rows, int64_t heads, int beta)
{
    const int64_t ld = 3 * heads * 5;
    const Strides s = {{rows, heads}, {3 * ld, 5}, {3 * ld, 5}, {heads * 9, 9}};
    run(c, product(type_of<T>, 0, 1, 3, 3, 5, 2, x, ld, x + heads * 5, ld, beta, y, 3, s));
}

/* Two such products, of other sizes and operands, one after the other: by streams that share a
 * list, of which the second waits for the first. */
template <class T> static double in_turn(const Context &one, const Context &two) {
    const int64_t rows[] = {3, 5}, heads[] = {4, 2};
    double worst = 0;
    std::vector<T> x[2], y[2];
    for (int i = 0; i < 2; i++) {
        x[i] = numbers<T>(rows[i] * 3 * 3 * heads[i] * 5);
        y[i] = numbers<T>(rows[i] * heads[i] * 9);
    }
    Dev<T> x0(x[0]), x1(x[1]), y0(y[0]), y1(y[1]);
    cudaEvent_t done;
    need(PP_CUDA(cudaEventCreateWithFlags(&done, cudaEventDisableTiming)), "an event");
    attention<T>(&one.c, x0.p, y0.p, rows[0], heads[0], 1);
    need(PP_CUDA(cudaEventRecord(done, one.stream)) &&
             PP_CUDA(cudaStreamWaitEvent(two.stream, done, 0)),
         "an event");
    attention<T>(&two.c, x1.p, y1.p, rows[1], heads[1], 0);
    for (int i = 0; i < 2; i++) {
        attention<T>(nullptr, x[i].data(), y[i].data(), rows[i], heads[i], 1 - i);
        worst = std::fmax(worst,
                          i ? off(y1.get(two.stream), y[1], 5) : off(y0.get(one.stream), y[0], 5));
    }
    cudaEventDestroy(done);
    return worst;
}

/* What a profile would record: products in calls of cuBLAS, and their operations. */
static std::vector<std::pair<std::string, double>> calls;
static double told;
static void work(const char *, double operations, double) { told = operations; }
static int begin(const char *name, cudaStream_t) {
    if (!strncmp(name, "cublas", 6))
        calls.push_back({name, told});
    told = 0;
    return -1;
}
static void end(int, cudaStream_t) {}

template <class T> static void counted(const Context &x, const std::string &type) {
    static const PpProfiler counter = {work, begin, end};
    const PpProfiler *before = pp_profiler;
    calls.clear();
    pp_profiler = &counter;
    const bool good = batch<T>(x, 1, 0, 2, 3, 4, 480, 2, 720, 3, 360, 3, 1,
                               {{3, 4, 5}, {160, 40, 8}, {240, 12, 48}, {120, 30, 6}}) < 1;
    pp_profiler = before;
    ok(good && calls.size() == 1 && calls[0].second == 2 * 2 * 3 * 4 * 60,
       type + ": three dimensions that do not fold are one call");
}

template <class T> static void lists(const Context &x, const std::string &type) {
    double worst = 0;
    /* A and B of 2 dimensions in one [2, 3, 8, 60] and one [3, 2, 70, 10] */
    for (int t = 0; t < 4; t++)
        worst = std::fmax(worst, batch<T>(x, t & 1, t >> 1, 5, 7, 6, 2 * 3 * 8 * 60, 60,
                                          3 * 2 * 700, 10, 2 * 3 * 40, 7, t % 2,
                                          {{2, 3}, {1440, 13}, {700, 1400}, {120, 40}}));
    ok(worst < 1, type + ": two dimensions that do not fold, all transposes");
    counted<T>(x, type);
    /* one row, one column */
    worst =
        batch<T>(x, 0, 0, 1, 6, 4, 200, 4, 800, 6, 200, 6, 0, {{4, 7}, {50, 4}, {30, 96}, {48, 6}});
    worst = std::fmax(worst, batch<T>(x, 0, 1, 6, 1, 4, 800, 4, 200, 4, 200, 1, 1,
                                      {{4, 7}, {30, 96}, {50, 4}, {48, 6}}));
    ok(worst < 1, type + ": vectors in a list");
    const int64_t many = PP_BLAS_LIST / 2 + 1;
    ok(batch<T>(x, 0, 0, 2, 1, 2, 12 * many, 2, 4 * many, 1, 6 * many, 1, 1,
                {{3, many}, {4, 12}, {0, 4}, {2 * many, 2}}) < 1,
       type + ": more products than the list holds");
    ok(in_turn<T>(x, x) < 1, type + ": two calls in a row share the list");
    const Context other(&x);
    ok(in_turn<T>(x, other) < 1, type + ": and two streams");
    ok(!pp_cuda_error()[0], type + ": nothing fails");
    Dev<T> d(numbers<T>(64));
    run(&x.c, product(type_of<T>, 0, 0, 2, 2, 2, 1, d.p, 2, d.p, 2, 1, d.p + 32, 2,
                      {{2, 3}, {2, 4}, {2, 4}, {4, 0}}));
    ok(strstr(pp_cuda_error(), "one result") != nullptr,
       type + ": sums that nothing orders are said");
    pp_cuda_clear();
}

/* ---- bf16 and f16 ---- */

struct HalfCase {
    bool bf16, single;
    int type() const { return bf16 ? PP_BF16 : PP_F16; }
    double unit() const { return single ? 0 : bf16 ? 0x1p-8 : 0x1p-11; }
    uint16_t narrow(double x) const
    {
        return bf16 ? pp_to_bf16(static_cast<float>(x)) : pp_to_f16(static_cast<float>(x));
    }
    std::vector<uint16_t> numbers(int64_t n) const
    {
        std::vector<uint16_t> v(static_cast<size_t>(n));
        for (uint16_t &x : v)
            x = narrow(uniform());
        return v;
    }
    double value(uint16_t x) const
    {
        return static_cast<double>(bf16 ? pp_from_bf16(x) : pp_from_f16(x));
    }
    double value(float x) const { return static_cast<double>(x); }
};

/* The result's difference from the CPU's, in units of the tolerance; columns beyond n included. */
template <class Out>
static double half_off(const HalfCase &t, const std::vector<Out> &got, const std::vector<Out> &want,
                       int64_t k)
{
    double worst = 0;
    for (size_t i = 0; i < got.size(); i++) {
        const double g = t.value(got[i]), w = t.value(want[i]), e = std::fabs(g - w);
        const double bound = 1e-6 * (1 + std::sqrt(static_cast<double>(k))) +
                             2 * t.unit() * std::fmax(std::fabs(g), std::fabs(w));
        worst = e / bound <= worst ? worst : e / bound;
    }
    return worst;
}

/* One of a few layouts: plain, strides that fold to one, a list; of the latter aligned or not. */
template <class Out>
static double half_one(const Context &x, const HalfCase &t, int ta, int tb, int64_t k,
                       const Strides &s, int64_t pad, std::vector<Out> c)
{
    const int64_t m = 5, n = 6, lda = (ta ? m : k) + pad, ldb = (tb ? k : n) + pad, ldc = n;
    const std::vector<uint16_t> a = t.numbers(4000), b = t.numbers(4000);
    Dev<uint16_t> da(a), db(b);
    Dev<Out> dc(c);
    PpGemm cpu = product(t.type(), ta, tb, m, n, k, 0.5f, a.data(), lda, b.data(), ldb, 1, c.data(),
                         ldc, s),
           gpu = product(t.type(), ta, tb, m, n, k, 0.5f, da.p, lda, db.p, ldb, 1, dc.p, ldc, s);
    cpu.result = gpu.result = t.single ? PP_F32 : 0;
    run(nullptr, cpu);
    run(&x.c, gpu);
    return half_off(t, dc.get(x.stream), c, k);
}

static void halves(const Context &x) {
    static const Strides layouts[] = {{{}, {}, {}, {}},
                                      {{7}, {40}, {48}, {30}},
                                      {{2, 3}, {400, 48}, {96, 0}, {90, 30}},
                                      {{2, 3}, {401, 47}, {93, 0}, {90, 30}}};
    for (int kind = 0; kind < 4; kind++) {
        const HalfCase t = {(kind & 1) != 0, (kind & 2) != 0};
        double worst = 0;
        for (int i = 0; i < 4 * 4 * 3; i++) {
            const int64_t k = i / 16 == 0 ? 0 : i / 16 == 1 ? 7 : 16;
            const Strides &s = layouts[i / 4 % 4];
            worst = std::fmax(worst, t.single ? half_one(x, t, i & 1, i >> 1 & 1, k, s, i % 3,
                                                         numbers<float>(240))
                                              : half_one(x, t, i & 1, i >> 1 & 1, k, s, i % 3,
                                                         t.numbers(240)));
        }
        ok(worst < 1 && !pp_cuda_error()[0],
           std::string(t.bf16 ? "bf16" : "f16") + (t.single ? " into float32" : "") +
               ": alone, in strides, by lists, of aligned operands and others, empty sums");
    }
}

/* ---- with a bias ---- */

/* Operands, results and the float32 sums of the CPU. */
template <class T> struct Biased {
    std::vector<T> a, b, bias, c;
    std::vector<float> sum;
};

static void narrow(const HalfCase &, float *to, float x) { *to = x; }
static void narrow(const HalfCase &t, uint16_t *to, float x) { *to = t.narrow(static_cast<double>(x)); }

template <class T> static std::vector<T> drawn(const HalfCase &t, int64_t n)
{
    if constexpr (sizeof(T) == 2)
        return t.numbers(n);
    else
        return numbers<T>(n);
}

/* A layout as of half_one(); results beyond n columns and between products must stay. */
template <class T>
static double bias_one(const Context &x, const HalfCase &t, int ta, int tb, int64_t n, int64_t k,
                       const Strides &s, int64_t pad)
{
    const int64_t m = 5, lda = (ta ? m : k) + pad, ldb = (tb ? k : n) + pad, ldc = n + pad;
    const int rank = static_cast<int>(s.count.size());
    Biased<T> w = {drawn<T>(t, 4000), drawn<T>(t, 4000), drawn<T>(t, n), drawn<T>(t, 900), {}};
    w.sum = numbers<float>(900);
    Dev<T> da(w.a), db(w.b), dbias(w.bias), dc(w.c);
    const int type = sizeof(T) == 4 ? PP_F32 : t.type();
    PpGemm cpu = product(type, ta, tb, m, n, k, 1, w.a.data(), lda, w.b.data(), ldb, 0,
                         w.sum.data(), ldc, s),
           gpu = product(type, ta, tb, m, n, k, 1, da.p, lda, db.p, ldb, 0, dc.p, ldc, s);
    cpu.result = PP_F32;
    gpu.bias = dbias.p;
    run(nullptr, cpu);
    run(&x.c, gpu);
    int64_t all = 1;
    for (const int64_t count : s.count)
        all *= count;
    for (int64_t z = 0; z < all; z++) {
        int64_t at = 0, left = z;
        for (int d = rank - 1; d >= 0; d--) {
            at += left % s.count[static_cast<size_t>(d)] * s.c[static_cast<size_t>(d)];
            left /= s.count[static_cast<size_t>(d)];
        }
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                const size_t e = static_cast<size_t>(at + i * ldc + j);
                const float y =
                    w.sum[e] + static_cast<float>(t.value(w.bias[static_cast<size_t>(j)]));
                narrow(t, &w.c[e], y);
            }
    }
    return half_off(t, dc.get(x.stream), w.c, k);
}

/* 1 + 2^-p and a bias of 2^-(p+1), p bits below the last of the type: rounded twice it is 1. */
static void rounded_once(const Context &x, const HalfCase &t, const std::string &type)
{
    const double unit = t.unit();
    const std::vector<uint16_t> a(16, t.narrow(1)), bias(8, t.narrow(unit / 2));
    std::vector<uint16_t> b(16, t.narrow(1));
    for (size_t j = 8; j < 16; j++)
        b[j] = t.narrow(unit);
    Dev<uint16_t> da(a), db(b), dbias(bias), dc(std::vector<uint16_t>(64));
    PpGemm g = product(t.type(), 0, 0, 8, 8, 2, 1, da.p, 2, db.p, 8, 0, dc.p, 8);
    g.bias = dbias.p;
    run(&x.c, g);
    ok(dc.get(x.stream) == std::vector<uint16_t>(64, t.narrow(1 + 2 * unit)),
       type + ": product and bias are rounded together, once");
}

/* The shim has no algorithm for odd columns and paddings. */
static void biases(const Context &x) {
    static const Strides layouts[] = {{{}, {}, {}, {}},
                                      {{7}, {40}, {0}, {64}},
                                      {{2, 3}, {400, 48}, {96, 0}, {192, 64}},
                                      {{2, 3}, {401, 47}, {93, 0}, {192, 64}}};
    for (int kind = 0; kind < 3; kind++) {
        const HalfCase type = {kind == 1, kind == 0};
        double worst = 0;
        for (int i = 0; i < 4 * 4 * 3; i++) {
            const int64_t k = i / 16 == 0 ? 0 : i / 16 == 1 ? 7 : 16, n = i % 5 == 1 ? 7 : 8;
            const Strides &s = layouts[i / 4 % 4];
            worst = std::fmax(
                worst, kind == 0
                           ? bias_one<float>(x, type, i & 1, i >> 1 & 1, n, k, s, i % 3 * 2)
                           : bias_one<uint16_t>(x, type, i & 1, i >> 1 & 1, n, k, s, i % 3 * 2));
        }
        const std::string name = kind == 0 ? "float32" : type.bf16 ? "bf16" : "f16";
        ok(worst < 1 && !pp_cuda_error()[0],
           name + " with a bias: by the library and without, in strides, empty sums");
        if (kind)
            rounded_once(x, type, name);
    }
    const int64_t n = 3 * PP_BLAS_LIST_BYTES / 8 + 1;   /* wider than the room for sums */
    const HalfCase bf16 = {true, false};
    const std::vector<uint16_t> a = bf16.numbers(2), b = bf16.numbers(n), bias = bf16.numbers(n);
    std::vector<uint16_t> c(static_cast<size_t>(2 * n));
    Dev<uint16_t> da(a), db(b), dbias(bias), dc(c);
    for (size_t i = 0; i < c.size(); i++)
        c[i] = bf16.narrow(bf16.value(a[i / static_cast<size_t>(n)]) *
                               bf16.value(b[i % static_cast<size_t>(n)]) +
                           bf16.value(bias[i % static_cast<size_t>(n)]));
    PpGemm g = product(PP_BF16, 0, 0, 2, n, 1, 1, da.p, 1, db.p, n, 0, dc.p, n);
    g.bias = dbias.p;
    run(&x.c, g);
    ok(half_off(bf16, dc.get(x.stream), c, 1) < 1, "bf16 with a bias: in pieces");
}

/* The shim ends a program whose list has other pointers than at multiples of 16 while TF32 is
 * allowed. */
static void tf32(const Context &x) {
    pp_cuda_tf32 = 1;
    ok(batch<float>(x, 0, 1, 3, 3, 5, 120, 20, 120, 20, 72, 3, 0,
                    {{2, 4}, {60, 5}, {60, 5}, {36, 9}}) < 1,
       "TF32: operands that are not at multiples of 16 bytes");
    pp_cuda_tf32 = 0;
}

/* ---- how many rows the data leave ---- */

static void counting(const Context &x)
{
    enum { MASKS = 600 };
    std::vector<uint8_t> bytes(MASKS * 100 + 5000);
    for (size_t i = 0; i < bytes.size(); i++)
        bytes[i] = i % 3 == 0 ? static_cast<uint8_t>(1 + i % 255) : 0;
    Dev<uint8_t> at(bytes);
    std::vector<PpMask> mask;
    std::vector<int64_t> want, got(MASKS, -1);
    std::vector<int64_t *> to;
    for (int i = 0; i < MASKS; i++) {
        const int64_t from = 7 * i, n = i == 1 ? 5000 : i % 100;
        mask.push_back({at.p + from, n});
        want.push_back(std::count_if(bytes.begin() + from, bytes.begin() + from + n,
                                     [](uint8_t b) { return b != 0; }));
        to.push_back(&got[static_cast<size_t>(i)]);
    }
    pp_cuda_counts(&x.c, MASKS, mask.data(), to.data());
    ok(!pp_cuda_error()[0] && got == want, "600 masks are counted");
    int turns = 3;
    x.blas.counting->meanwhile = [](void *of) { return (*static_cast<int *>(of))-- > 0 ? 1 : 0; };
    x.blas.counting->of = &turns;
    pp_cuda_counts(&x.c, 2, mask.data(), to.data());
    ok((pp_cuda_error()[0] ? got[1] == 0 : got[1] == want[1]), "messages go on meanwhile");
    pp_cuda_clear();
    turns = 0;
    pp_cuda_counts(&x.c, 2, mask.data(), to.data());
    ok(strstr(pp_cuda_error(), "another rank") && got[1] == 0, "nobody waits for a rank that is gone");
    pp_cuda_clear();
    x.blas.counting->meanwhile = nullptr;
    std::vector<float> c(6 * 5, 1), zeros = c;
    Dev<float> dc(c);
    pp_cuda_zeros(&x.c, dc.p + 20, 5, 2, 5, sizeof(float));
    pp_cuda_zeros(&x.c, dc.p + 3, 5, 4, 1, sizeof(float));
    pp_cuda_zeros(&x.c, dc.p + 30, 5, 0, 5, sizeof(float));
    for (int64_t r = 0; r < 6; r++)
        for (int64_t k = 0; k < 5; k++)
            zeros[static_cast<size_t>(5 * r + k)] = r >= 4 || k == 3 ? 0.0f : 1.0f;
    ok(dc.get(x.stream) == zeros, "zeros where rows and columns are not there");
}

int main() {
    {
        Context x;
        all<float>(x, "float32");
        all<double>(x, "float64");
        lists<float>(x, "float32");
        lists<double>(x, "float64");
        tf32(x);
        halves(x);
        biases(x);
        counting(x);
        run(&x.c, product(PP_F32, 0, 0, static_cast<int64_t>(1) << 31, 1, 1, 1, nullptr, 1, nullptr,
                          1, 0, nullptr, 1));
        ok(strstr(pp_cuda_error(), "2147483648") != nullptr, "a size beyond cuBLAS is said");
        pp_cuda_clear();
        pp_cuda_ok(cudaErrorNoKernelImageForDevice, "kernel", __FILE__, __LINE__);
        ok(strstr(pp_cuda_error(), "kernel: the program has no code for this GPU: make "
                                   "pipeline-cuda CUDA_ARCH=") != nullptr,
           "a program that was built for other cards says for which to build it");
        pp_cuda_clear();
    }
    printf("1..%d\n", number);
    return failed;
}
