/*
 * runs_cuda.cu - parts of a tensor to and from places where they lie one behind the other, as
 * members of a rank send them.  In: runs of bytes with steps between them on either side; out: the
 * copy, by the widest word that all of it is a multiple of.
 */
#include "device_cuda.h"

#include "api/pp_cuda.h"

namespace {

enum { THREADS = 256 };
constexpr int64_t most_blocks = 4096;

/* In words. */
template <class I> struct Runs {
    I rows, run, to_outer, to_row, from_outer, from_row;
};

template <class T, class I>
__global__ void copy_words(T *to, const T *from, I n, Runs<I> r)
{
    const I step = static_cast<I>(gridDim.x) * THREADS;
    for (I i = static_cast<I>(blockIdx.x) * THREADS + threadIdx.x; i < n; i += step) {
        const I word = i % r.run, k = i / r.run, row = k % r.rows, outer = k / r.rows;
        to[outer * r.to_outer + row * r.to_row + word] =
            from[outer * r.from_outer + row * r.from_row + word];
    }
}

template <class T, class I>
void launch(cudaStream_t s, void *to, const void *from, const DeviceRuns &r)
{
    const auto words = [](int64_t bytes) { return static_cast<I>(bytes / int64_t(sizeof(T))); };
    const int64_t n = r.outer * r.rows * words(r.run), wanted = (n + THREADS - 1) / THREADS;
    const unsigned blocks = static_cast<unsigned>(wanted < most_blocks ? wanted : most_blocks);
    const Runs<I> in_words = {static_cast<I>(r.rows),  words(r.run),
                              words(r.to_outer),       words(r.to_row),
                              words(r.from_outer),     words(r.from_row)};
    PP_LAUNCH((copy_words<T, I>), blocks, THREADS, 0, s, static_cast<T *>(to),
              static_cast<const T *>(from), static_cast<I>(n), in_words);
}

/* Numbers of words that are below 2^31 are divided faster. */
template <class T> void copy_by(cudaStream_t s, void *to, const void *from, const DeviceRuns &r)
{
    const int64_t extent = r.outer * (r.to_outer > r.from_outer ? r.to_outer : r.from_outer);
    const int64_t all = r.outer * r.rows * r.run, most = extent > all ? extent : all;
    if (most / int64_t(sizeof(T)) < int64_t(1) << 30)
        launch<T, uint32_t>(s, to, from, r);
    else
        launch<T, int64_t>(s, to, from, r);
}

}   // namespace

void cuda_copy_runs(cudaStream_t s, void *to, const void *from, const DeviceRuns *r)
{
    const int64_t all = reinterpret_cast<intptr_t>(to) | reinterpret_cast<intptr_t>(from) | r->run |
                        r->to_outer | r->to_row | r->from_outer | r->from_row;
    if (r->outer * r->rows * r->run <= 0)
        return;
    PP_WORK("transfer", 0, 2 * r->outer * r->rows * r->run);
    if (all % 16 == 0)
        copy_by<uint4>(s, to, from, *r);
    else if (all % 4 == 0)
        copy_by<uint32_t>(s, to, from, *r);
    else if (all % 2 == 0)
        copy_by<uint16_t>(s, to, from, *r);
    else
        copy_by<uint8_t>(s, to, from, *r);
}
