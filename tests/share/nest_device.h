/*
 * nest_device.h - the other half of test_print_cuda.c, compiled with the kernels that it prints:
 * reads cases from a file, runs each on the device and compares what stands in memory then with
 * what the interpreter left.  One line a difference; exit 1 when there is one.
 */
#ifndef NEST_DEVICE_H
#define NEST_DEVICE_H

#include "runtime/api/pp_device.h"

#include <math.h>
#include <stdio.h>
#include <vector>

typedef void NestRun(int64_t rows, char *const *at, char *scratch, cudaStream_t stream);

struct NestArgument {
    /* offset: of the pointer that the kernel gets */
    int64_t dtype, bytes, offset;
    std::vector<char> before, after;
    /* by element: how far it moves when operands are rounded otherwise */
    std::vector<double> slack;
    char *device;
};

static int64_t nest_number(FILE *f) {
    int64_t x = -1;
    if (fread(&x, sizeof x, 1, f) != 1)
        x = -1;
    return x;
}

static int64_t nest_size(int64_t dtype)
{
    return dtype == PP_F64 || dtype == PP_I64 ? 8 : dtype == PP_BOOL ? 1 : 4;
}

static double nest_element(int64_t dtype, const char *p, int64_t i) {
    switch (dtype) {
    case PP_F32: return static_cast<double>(reinterpret_cast<const float *>(p)[i]);
    case PP_F64: return reinterpret_cast<const double *>(p)[i];
    case PP_I32: return reinterpret_cast<const int32_t *>(p)[i];
    case PP_I64: return static_cast<double>(reinterpret_cast<const int64_t *>(p)[i]);
    default: return reinterpret_cast<const uint8_t *>(p)[i];
    }
}

/* Integers are equal; floats within 64 eps of the largest number that is expected, and of what
   `terms` terms between -1 and 1 lose when they are added: in the interpreter's 16 lanes of n / 16
   terms, partial sums are about sqrt(n / 16), and as many roundings of their size add up to eps n /
   32 a lane, eps n / 8 together.  Where operands that are rounded otherwise move the result by
   more, eight times that: terms that cancel, and what is divided by their sum. */
static bool nest_same(int64_t which, int64_t number, int64_t terms, const NestArgument &a,
                      const std::vector<char> &got)
{
    int64_t size = nest_size(a.dtype);
    double scale = 0, eps = a.dtype == PP_F32 ? 1.2e-7 : a.dtype == PP_F64 ? 2.3e-16 : 0;
    for (int64_t i = 0; i < a.bytes / size; i++) {
        double x = fabs(nest_element(a.dtype, a.after.data(), i));
        scale = isfinite(x) && x > scale ? x : scale;
    }
    for (int64_t i = 0; i < a.bytes / size; i++) {
        double x = nest_element(a.dtype, got.data(), i),
               y = nest_element(a.dtype, a.after.data(), i);
        if (x == y || (isnan(x) && isnan(y)) ||
            fabs(x - y) <= eps * (64 * scale + static_cast<double>(terms) / 8) +
                               8 * a.slack[static_cast<size_t>(i)])
            continue;
        printf("case %lld: argument %lld, element %lld is %.9g, not %.9g\n",
               static_cast<long long>(which), static_cast<long long>(number),
               static_cast<long long>(i - a.offset / size), x, y);
        return false;
    }
    return true;
}

static bool nest_case(FILE *f, int64_t which, NestRun *run, cudaStream_t stream) {
    int64_t rows = nest_number(f), terms = nest_number(f), scratch_bytes = nest_number(f),
            n = nest_number(f);
    std::vector<NestArgument> args(static_cast<size_t>(n));
    std::vector<char *> at;
    char *scratch = nullptr;
    for (NestArgument &a : args) {
        a.dtype = nest_number(f);
        a.bytes = nest_number(f);
        a.offset = nest_number(f);
        a.before.resize(static_cast<size_t>(a.bytes));
        a.after.resize(static_cast<size_t>(a.bytes));
        a.slack.resize(static_cast<size_t>(a.bytes / nest_size(a.dtype)));
        if (fread(a.before.data(), 1, a.before.size(), f) != a.before.size() ||
            fread(a.after.data(), 1, a.after.size(), f) != a.after.size() ||
            fread(a.slack.data(), sizeof(double), a.slack.size(), f) != a.slack.size())
            return false;
        PP_CUDA(cudaMalloc(&a.device, a.before.size()));
        PP_CUDA(cudaMemcpyAsync(a.device, a.before.data(), a.before.size(), cudaMemcpyHostToDevice,
                                stream));
        at.push_back(a.device + a.offset);
    }
    if (scratch_bytes > 0)
        PP_CUDA(cudaMalloc(&scratch, static_cast<size_t>(scratch_bytes)));
    run(rows, at.data(), scratch, stream);
    bool same = true;
    for (size_t i = 0; i < args.size(); i++) {
        std::vector<char> got(args[i].before.size());
        PP_CUDA(cudaMemcpyAsync(got.data(), args[i].device, got.size(), cudaMemcpyDeviceToHost,
                                stream));
        PP_CUDA(cudaStreamSynchronize(stream));
        PP_CUDA(cudaFree(args[i].device));
        same = same && nest_same(which, static_cast<int64_t>(i), terms, args[i], got);
    }
    PP_CUDA(cudaFree(scratch));
    if (*pp_cuda_error()) {
        printf("case %lld: %s\n", static_cast<long long>(which), pp_cuda_error());
        pp_cuda_clear();
        same = false;
    }
    return same;
}

static int nest_main(const char *path, NestRun *const *run) {
    FILE *f = fopen(path, "rb");
    cudaStream_t stream;
    int wrong = 0;
    if (!f || !PP_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)))
        return 2;
    for (int64_t which; (which = nest_number(f)) >= 0;)
        wrong += !nest_case(f, which, run[which], stream);
    PP_CUDA(cudaStreamDestroy(stream));
    fclose(f);
    return wrong > 0;
}

#endif
