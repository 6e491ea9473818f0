/*
 * products.cu - pp_cuda_sgemm, pp_cuda_dgemm and their batched forms against the CPU's (gemm.c, which test_gemm.c checks): sizes, transposes,
 * leading dimensions, alpha, beta, empty sums, batches over views; and what cannot be is said.
 *
 * Tolerance: both add k products of numbers in [-1, 1] in float32, in orders of their own: 2 (1 + sqrt(k)) rounding errors of 2^-24 times the
 * largest partial sum, about sqrt(k): 1e-6 (1 + sqrt(k)) leaves a factor of about four; the same for float64 with 1e-15.
 */
#include "lib.h"

static void cpu(int ta, int tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                float beta, float *c, int64_t ldc) { pp_sgemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc); }
static void cpu(int ta, int tb, int64_t m, int64_t n, int64_t k, double alpha, const double *a, int64_t lda, const double *b, int64_t ldb,
                double beta, double *c, int64_t ldc) { pp_dgemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc); }
static void gpu(const PpCtx *x, int ta, int tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda, const float *b,
                int64_t ldb, float beta, float *c, int64_t ldc) { pp_cuda_sgemm(x, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc); }
static void gpu(const PpCtx *x, int ta, int tb, int64_t m, int64_t n, int64_t k, double alpha, const double *a, int64_t lda, const double *b,
                int64_t ldb, double beta, double *c, int64_t ldc) { pp_cuda_dgemm(x, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc); }

struct Strides { std::vector<int64_t> count, a, b, c; };
static void batched(int ta, int tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                    float beta, float *c, int64_t ldc, const Strides &s) {
    pp_sgemm_batched(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, static_cast<int>(s.count.size()), s.count.data(), s.a.data(), s.b.data(), s.c.data());
}
static void batched(int ta, int tb, int64_t m, int64_t n, int64_t k, double alpha, const double *a, int64_t lda, const double *b, int64_t ldb,
                    double beta, double *c, int64_t ldc, const Strides &s) {
    pp_dgemm_batched(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, static_cast<int>(s.count.size()), s.count.data(), s.a.data(), s.b.data(), s.c.data());
}
static void batched(const PpCtx *x, int ta, int tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda, const float *b,
                    int64_t ldb, float beta, float *c, int64_t ldc, const Strides &s) {
    pp_cuda_sgemm_batched(x, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, static_cast<int>(s.count.size()), s.count.data(), s.a.data(), s.b.data(),
                          s.c.data());
}
static void batched(const PpCtx *x, int ta, int tb, int64_t m, int64_t n, int64_t k, double alpha, const double *a, int64_t lda, const double *b,
                    int64_t ldb, double beta, double *c, int64_t ldc, const Strides &s) {
    pp_cuda_dgemm_batched(x, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, static_cast<int>(s.count.size()), s.count.data(), s.a.data(), s.b.data(),
                          s.c.data());
}

/* The worst difference in units of the tolerance. */
template <class T> static double off(const std::vector<T> &got, const std::vector<T> &want, int64_t k) {
    double worst = 0;
    for (size_t i = 0; i < got.size(); i++) {
        double e = std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
        worst = e <= worst ? worst : e;                 /* a NaN stays */
    }
    return worst / (1 + std::sqrt(static_cast<double>(k))) / (sizeof(T) == 8 ? 1e-15 : 1e-6);
}

template <class T> static double one(const Context &x, int ta, int tb, int64_t m, int64_t n, int64_t k, int pad) {
    int64_t lda = (ta ? m : k) + pad, ldb = (tb ? k : n) + pad, ldc = n + pad;
    std::vector<T> a = numbers<T>((ta ? k : m) * lda), b = numbers<T>((tb ? n : k) * ldb), c = numbers<T>(m * ldc);
    Dev<T> da(a), db(b), dc(c);
    T alpha = static_cast<T>(pad ? 0.5 : 1), beta = static_cast<T>(pad ? 1 : 0);
    cpu(ta, tb, m, n, k, alpha, a.data(), lda, b.data(), ldb, beta, c.data(), ldc);
    gpu(&x.c, ta, tb, m, n, k, alpha, da.p, lda, db.p, ldb, beta, dc.p, ldc);
    return off(dc.get(x.stream), c, k);                 /* columns beyond n included: nobody may write there */
}

template <class T> static double batch(const Context &x, int ta, int tb, int64_t m, int64_t n, int64_t k, int64_t na, int64_t lda, int64_t nb,
                                       int64_t ldb, int64_t nc, int64_t ldc, T beta, const Strides &s) {
    std::vector<T> a = numbers<T>(na), b = numbers<T>(nb), c = numbers<T>(nc);
    Dev<T> da(a), db(b), dc(c);
    batched(ta, tb, m, n, k, static_cast<T>(2), a.data(), lda, b.data(), ldb, beta, c.data(), ldc, s);
    batched(&x.c, ta, tb, m, n, k, static_cast<T>(2), da.p, lda, db.p, ldb, beta, dc.p, ldc, s);
    return off(dc.get(x.stream), c, k);
}

template <class T> static void all(const Context &x, const std::string &type) {
    static const int64_t sizes[] = {1, 2, 3, 5, 16, 17, 31, 64, 129};
    double worst = 0;
    for (int t = 0; t < 4; t++)
        for (unsigned i = 0; i < 9; i++)
            for (unsigned j = 0; j < 9; j += 1 + i % 3)
                for (unsigned p = 0; p < 9; p += 1 + j % 4)
                    worst = std::fmax(worst, one<T>(x, t & 1, t >> 1, sizes[i], sizes[j], sizes[p], static_cast<int>((i + j + p) % 2) * 3));
    ok(worst < 1, type + ": products of all sizes and transposes");
    worst = std::fmax(one<T>(x, 0, 0, 5, 7, 0, 0), one<T>(x, 0, 1, 5, 7, 0, 2));
    ok(worst < 1, type + ": an empty sum is beta C");
    gpu(&x.c, 0, 0, 0, 3, 2, static_cast<T>(1), static_cast<const T *>(nullptr), 2, nullptr, 3, static_cast<T>(0), nullptr, 3);
    gpu(&x.c, 0, 0, 3, 0, 2, static_cast<T>(1), static_cast<const T *>(nullptr), 2, nullptr, 0, static_cast<T>(0), nullptr, 0);
    ok(!pp_cuda_error()[0], type + ": empty matrices");
    /* heads inside a packed [2, 3, 4 heads * 5] tensor: A[b,h] = x[b,:,h,:] (3 x 5), C = A B^T */
    ok(batch<T>(x, 0, 1, 3, 3, 5, 120, 20, 120, 20, 72, 3, 0, {{2, 4}, {60, 5}, {60, 5}, {36, 9}}) < 1, type + ": a batch over strided heads");
    ok(batch<T>(x, 0, 0, 4, 6, 5, 120, 5, 30, 6, 144, 6, 1, {{2, 3}, {60, 20}, {0, 0}, {72, 24}}) < 1, type + ": one matrix for all of a batch");
    ok(batch<T>(x, 1, 0, 2, 3, 4, 480, 2, 720, 3, 360, 3, 1, {{3, 1, 4, 5}, {160, 7, 40, 8}, {240, 7, 12, 48}, {120, 7, 30, 6}}) < 1,
       type + ": four dimensions that do not fold");
    ok(batch<T>(x, 0, 0, 3, 2, 0, 1, 1, 2, 2, 24, 2, static_cast<T>(0.5), {{2, 2}, {0, 0}, {0, 0}, {12, 6}}) < 1, type + ": a batch of empty sums");
    ok(batch<T>(x, 0, 0, 3, 2, 4, 12, 4, 8, 2, 6, 2, 0, {{}, {}, {}, {}}) < 1, type + ": a batch without dimensions");
    batched(&x.c, 0, 0, 3, 2, 4, static_cast<T>(1), static_cast<const T *>(nullptr), 4, nullptr, 2, static_cast<T>(0), static_cast<T *>(nullptr), 2,
            {{2, 0}, {1, 1}, {1, 1}, {1, 1}});
    ok(!pp_cuda_error()[0], type + ": a batch of none");
}

int main() {
    {
        Context x;
        all<float>(x, "float32");
        all<double>(x, "float64");
        pp_cuda_sgemm(&x.c, 0, 0, static_cast<int64_t>(1) << 31, 1, 1, 1, nullptr, 1, nullptr, 1, 0, nullptr, 1);
        ok(strstr(pp_cuda_error(), "2147483648") != nullptr, "a size beyond cuBLAS is said");
        pp_cuda_clear();
    }
    printf("1..%d\n", number);
    return failed;
}
