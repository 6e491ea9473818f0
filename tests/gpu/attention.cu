/*
 * attention.cu - how fast attention is on this card, and how right: causal and whole, bf16, the
 * heads of a packed projection as a GPT has them.  Out: a line each for causal and whole:
 *
 *     causal rows 1024 heads 12 width 64: forward 190.1 TFLOP/s, backward 150.2; off by 0.003 ..
 *
 * TFLOP/s count two products forward and five backward (of causal masks half), as FlashAttention's
 * papers do.  off: of y, dq, dk, dv the largest difference from float64 in the first head, by the
 * largest element; above 1/64 the program fails.
 *
 *     attention [ROWS [HEADS [BATCH]]]      other sizes; width 64
 */
#include "runtime/api/pp_cuda_calls.h"
#include "runtime/api/pp_half.h"

#include <cmath>
#include <stdlib.h>
#include <vector>

namespace
{

enum { WIDTH = 64, KINDS = 3, RESULTS = 4 };

void need(bool good)
{
    if (good)
        return;
    fprintf(stderr, "attention: %s\n", pp_cuda_error());
    exit(1);
}

/* Numbers of 16 bits here and on the card. */
struct Halves {
    std::vector<uint16_t> here;
    uint16_t *there = nullptr;
    explicit Halves(size_t n) : here(n)
    {
        static uint32_t state = 1;
        for (uint16_t &h : here) {
            state = state * 1664525u + 1013904223u;
            h = pp_to_bf16(static_cast<float>(state >> 8) / 8388608.0f - 1.0f);
        }
        need(PP_CUDA(cudaMalloc(&there, 2 * n)) &&
             PP_CUDA(cudaMemcpy(there, here.data(), 2 * n, cudaMemcpyHostToDevice)) &&
             PP_CUDA(cudaStreamSynchronize(nullptr)));
    }
    ~Halves() { cudaFree(there); }
    Halves(const Halves &) = delete;
    Halves &operator=(const Halves &) = delete;
    void back()
    {
        need(PP_CUDA(cudaMemcpy(here.data(), there, 2 * here.size(), cudaMemcpyDeviceToHost)));
    }
    double at(int64_t i) const
    {
        return static_cast<double>(pp_from_bf16(here[static_cast<size_t>(i)]));
    }
};

struct Problem {
    int64_t rows, heads, batch;
    Halves qkv, y, dy, dqkv;
    float *stats = nullptr, *delta = nullptr;
    PpAttention a = {};
    Problem(int64_t t, int64_t h, int64_t b)
        : rows(t), heads(h), batch(b), qkv(elements() * KINDS), y(elements()), dy(elements()),
          dqkv(elements() * KINDS)
    {
        const size_t scores = static_cast<size_t>(rows * heads * batch) * sizeof(float);
        need(PP_CUDA(cudaMalloc(&stats, 2 * scores)) && PP_CUDA(cudaMalloc(&delta, scores)));
        a.dtype = a.bias_dtype = PP_BF16;
        a.rows = a.keys = rows;
        a.width = a.width_v = WIDTH;
        a.dims = 2;
        a.count[0] = batch;
        a.count[1] = heads;
        a.scale = 0.125f;
        a.mask.fill = -INFINITY;
        a.q = part(qkv, 0, KINDS), a.k = part(qkv, 1, KINDS), a.v = part(qkv, 2, KINDS);
        a.dq = part(dqkv, 0, KINDS), a.dk = part(dqkv, 1, KINDS), a.dv = part(dqkv, 2, KINDS);
        a.y = part(y, 0, 1), a.dy = part(dy, 0, 1);
        a.stats = PpMatrix{stats, 2, 1, {heads * rows * 2, rows * 2}};
        a.room = delta;
    }
    ~Problem()
    {
        cudaFree(stats);
        cudaFree(delta);
    }
    Problem(const Problem &) = delete;
    Problem &operator=(const Problem &) = delete;
    size_t elements() const { return static_cast<size_t>(batch * rows * heads * WIDTH); }
    PpMatrix part(const Halves &of, int kind, int kinds) const
    {
        const int64_t row = kinds * heads * WIDTH;
        return PpMatrix{of.there + kind * heads * WIDTH, row, 1, {rows * row, WIDTH}};
    }
};

/* The best of five, in seconds. */
template <class Call> double seconds(cudaStream_t s, Call call)
{
    cudaEvent_t from, to;
    double best = 1e30;
    need(PP_CUDA(cudaEventCreate(&from)) && PP_CUDA(cudaEventCreate(&to)));
    for (int i = 0; i < 6; i++) {
        float ms = 0;
        need(PP_CUDA(cudaEventRecord(from, s)));
        call();
        need(PP_CUDA(cudaEventRecord(to, s)) && PP_CUDA(cudaEventSynchronize(to)) &&
             PP_CUDA(cudaEventElapsedTime(&ms, from, to)));
        best = i > 0 && ms > 0 && ms * 1e-3 < best ? ms * 1e-3 : best;
    }
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    return best;
}

/* Differences of the first head, computed in float64, of y, dq, dk, dv. */
void compare(Problem &p, bool causal, double (&off)[RESULTS])
{
    const int64_t t = p.rows, row = KINDS * p.heads * WIDTH, one = p.heads * WIDTH;
    std::vector<double> want[RESULTS], s(static_cast<size_t>(t)), g(s);
    for (auto &w : want)
        w.resize(static_cast<size_t>(t * WIDTH));
    for (int64_t r = 0; r < t; r++) {
        const int64_t keys = causal ? r + 1 : t;
        double sum = 0, delta = 0;
        for (int64_t j = 0; j < keys; j++) {
            double x = 0, z = 0;
            for (int64_t i = 0; i < WIDTH; i++) {
                x += p.qkv.at(r * row + i) * p.qkv.at(j * row + one + i);
                z += p.dy.at(r * one + i) * p.qkv.at(j * row + 2 * one + i);
            }
            const size_t k = static_cast<size_t>(j);
            sum += s[k] = std::exp(0.125 * x);
            g[k] = z;
        }
        for (int64_t j = 0; j < keys; j++)
            delta += (s[static_cast<size_t>(j)] /= sum) * g[static_cast<size_t>(j)];
        for (int64_t j = 0; j < keys; j++) {
            const double pr = s[static_cast<size_t>(j)],
                         ds = pr * (g[static_cast<size_t>(j)] - delta) * 0.125;
            for (int64_t i = 0; i < WIDTH; i++) {
                const size_t q = static_cast<size_t>(r * WIDTH + i),
                             k = static_cast<size_t>(j * WIDTH + i);
                want[0][q] += pr * p.qkv.at(j * row + 2 * one + i);
                want[1][q] += ds * p.qkv.at(j * row + one + i);
                want[2][k] += ds * p.qkv.at(r * row + i);
                want[3][k] += pr * p.dy.at(r * one + i);
            }
        }
    }
    p.y.back();
    p.dqkv.back();
    for (int n = 0; n < RESULTS; n++) {
        double worst = 0, most = 0;
        for (int64_t i = 0; i < t * WIDTH; i++) {
            const double w = want[n][static_cast<size_t>(i)],
                         x = n == 0 ? p.y.at(i / WIDTH * one + i % WIDTH)
                                    : p.dqkv.at(i / WIDTH * row + (n - 1) * one + i % WIDTH),
                         e = std::fabs(x - w);
            worst = e <= worst ? worst : e; /* a NaN stays */
            most = std::fmax(most, std::fabs(w));
        }
        off[n] = worst / most;
    }
}

bool measure(int64_t rows, int64_t heads, int64_t batch, bool causal)
{
    Problem p(rows, heads, batch);
    PpCtx c = {};
    cudaStream_t stream = nullptr;
    need(PP_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)));
    c.stream = stream;
    p.a.mask.causal = causal;
    const double there = seconds(stream, [&] { pp_cuda_attention(&c, &p.a); }),
                 back = seconds(stream, [&] { pp_cuda_attention_backward(&c, &p.a); });
    need(PP_CUDA(cudaStreamDestroy(stream)) && !*pp_cuda_error());
    double off[RESULTS];
    compare(p, causal, off);
    const double product =
        2e-12 * static_cast<double>(batch * heads * rows * rows) * WIDTH * (causal ? 0.5 : 1);
    printf(
        "attention, %s, rows %d heads %d batch %d width %d, bf16: forward %.1f TFLOP/s, backward "
        "%.1f; y, dq, dk, dv off by %.4f %.4f %.4f %.4f\n",
        causal ? "causal" : "whole", static_cast<int>(rows), static_cast<int>(heads),
        static_cast<int>(batch), WIDTH, 2 * product / there, 5 * product / back, off[0], off[1],
        off[2], off[3]);
    bool good = true;
    for (double e : off)
        good &= e <= 1.0 / 64;
    return good;
}

} // namespace

int main(int argc, char **argv)
{
    const int64_t rows = argc > 1 ? atoll(argv[1]) : 1024, heads = argc > 2 ? atoll(argv[2]) : 12,
                  batch = argc > 3 ? atoll(argv[3]) : 16;
    const bool causal = measure(rows, heads, batch, true);
    return measure(rows, heads, batch, false) && causal ? 0 : 1;
}
