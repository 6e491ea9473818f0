/*
 * cases.h - a program of named cases: `program CASE` runs it, `program` lists them.  check()
 * compares with what the case itself computed on the host.
 */
#ifndef CASES_H
#define CASES_H

#include "runtime/api/pp_cuda.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

struct Case { const char *name; void (*run)(); };

static inline void check(bool right, const char *what, int line) {
    if (!right) {
        printf("line %d: %s\n", line, what);
        exit(1);
    }
}
#define CHECK(condition) check((condition), #condition, __LINE__)
#define OK(call) check(PP_CUDA(call), pp_cuda_error(), __LINE__)

template <class T> static T *device(size_t n) {
    T *p = nullptr;
    OK(cudaMalloc(&p, n * sizeof(T)));
    return p;
}

template <class T> static T *device(const std::vector<T> &v) {
    T *p = device<T>(v.size());
    OK(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
    /* from memory that is not pinned the copy may go on behind the call */
    OK(cudaStreamSynchronize(nullptr));
    return p;
}

template <class T> static std::vector<T> host(const T *p, size_t n) {
    std::vector<T> v(n);
    OK(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
    return v;
}

static inline std::vector<float> ramp(size_t n) {
    std::vector<float> v(n);
    for (size_t i = 0; i < n; i++)
        v[i] = static_cast<float>(i % 251) * 0.25f - 7.0f;
    return v;
}

#endif
