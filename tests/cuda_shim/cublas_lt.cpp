/*
 * cublas_lt.cpp - cuBLASLt's products with a bias.  Descriptors are plain words; an algorithm is what it was chosen for, and a product with another shape, or
 * with operands that are less aligned than was said, is an error that a GPU may punish or not.
 */
#include "cublasLt.h"
#include "shim.h"
#include "shim_blas.h"

#include <cstring>

namespace shim {

/* The words of each descriptor. */
enum { TYPE, ROWS, COLUMNS, LEADING, COUNT, OFFSET };                                   /* layout */
enum { COMPUTE, SCALE, TRANS_A, TRANS_B, EPILOGUE, BIAS };                              /* product */
enum { WORKSPACE, REDUCTION, ALIGN_A, ALIGN_B, ALIGN_C, ALIGN_D };                      /* wish */

struct Attribute { int what; size_t bytes; int word; };

template <class D, size_t N>
static cublasStatus_t set(D *to, const Attribute (&known)[N], int what, const void *value,
                          size_t bytes)
{
    for (const Attribute &k : known)
        if (k.what == what && k.bytes == bytes && value) {
            to->data[k.word] = 0;
            memcpy(&to->data[k.word], value, bytes);
            return CUBLAS_STATUS_SUCCESS;
        }
    report("blas value", "cuBLASLt: attribute %d of %zu bytes: not one of those that are known",
           what, bytes);
    return CUBLAS_STATUS_INVALID_VALUE;
}

/* What an algorithm was chosen for. */
static cublasLtMatmulAlgo_t chosen_for(const cublasLtMatmulDescOpaque_t *what,
                                       const cublasLtMatrixLayoutOpaque_t *const (&l)[3])
{
    uint64_t hash = 14695981039346656037u;
    auto add = [&hash](uint64_t x) { hash = (hash ^ x) * 1099511628211u; };
    for (const int word : {COMPUTE, SCALE, TRANS_A, TRANS_B, EPILOGUE})
        add(what->data[word]);
    for (const auto *one : l)
        for (const int word : {TYPE, ROWS, COLUMNS, LEADING, COUNT, OFFSET})
            add(one->data[word]);
    return {{hash}};
}

static bool aligned(const char *operand, const void *p, uint64_t to)
{
    if (to && reinterpret_cast<uintptr_t>(p) % to == 0)
        return true;
    report("blas align", "misaligned: cublasLtMatmul: %s at %p is no multiple of the %llu bytes for "
           "which the algorithm was chosen", operand, p, static_cast<unsigned long long>(to));
    return false;
}

}   // namespace shim

using namespace shim;

size_t cublasLtGetVersion(void) { return CUDART_VERSION; }

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t l, cudaDataType type, uint64_t rows,
                                        uint64_t columns, int64_t ld)
{
    *l = {{static_cast<uint64_t>(type), rows, columns, static_cast<uint64_t>(ld), 1}};
    return ld >= static_cast<int64_t>(rows) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t what,
                                                const void *value, size_t bytes)
{
    static const Attribute known[] = {{CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 4, COUNT},
                                      {CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 8, OFFSET}};
    return set(l, known, what, value, bytes);
}

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t d, cublasComputeType_t compute,
                                      cudaDataType_t scale)
{
    *d = {{static_cast<uint64_t>(compute), static_cast<uint64_t>(scale)}};
    d->data[EPILOGUE] = CUBLASLT_EPILOGUE_DEFAULT;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t bytes)
{
    static const Attribute known[] = {{CUBLASLT_MATMUL_DESC_TRANSA, 4, TRANS_A},
                                      {CUBLASLT_MATMUL_DESC_TRANSB, 4, TRANS_B},
                                      {CUBLASLT_MATMUL_DESC_EPILOGUE, 4, EPILOGUE},
                                      {CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8, BIAS}};
    return set(d, known, what, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t p)
{
    *p = {{0, CUBLASLT_REDUCTION_SCHEME_NONE, 256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *value, size_t bytes)
{
    static const Attribute known[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 8, WORKSPACE},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 4, REDUCTION},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 4, ALIGN_A},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 4, ALIGN_B},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 4, ALIGN_C},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 4, ALIGN_D}};
    return set(p, known, what, value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t what,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wish, int most,
                                              cublasLtMatmulHeuristicResult_t *found, int *n)
{
    if (enter(__func__) != cudaSuccess)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    *n = 0;
    if (most < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (wish->data[ALIGN_D] < 8)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *n = 1;
    *found = {};
    found->algo = chosen_for(what, {a, b, d});
    for (int i = 0; i < 3; i++)
        found->algo.data[1 + i] = wish->data[i == 2 ? ALIGN_D : ALIGN_A + i];
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t what, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t la, const void *b,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *c,
                              cublasLtMatrixLayout_t, void *d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t bytes,
                              cudaStream_t stream)
{
    const bool ta = what->data[TRANS_A] != CUBLAS_OP_N, tb = what->data[TRANS_B] != CUBLAS_OP_N;
    auto number = [](uint64_t x) { return static_cast<int>(x); };
    auto step = [](const cublasLtMatrixLayoutOpaque_t *l) {
        return static_cast<long long>(l->data[OFFSET]);
    };
    const uint64_t k = la->data[ta ? ROWS : COLUMNS];
    if (chosen_for(what, {la, lb, ld}).data[0] != algorithm->data[0] || c != d ||
        *static_cast<const float *>(alpha) != 1 || *static_cast<const float *>(beta) != 0 ||
        what->data[EPILOGUE] != CUBLASLT_EPILOGUE_BIAS || la->data[TYPE] != lb->data[TYPE] ||
        la->data[TYPE] != ld->data[TYPE] || lb->data[tb ? COLUMNS : ROWS] != k ||
        la->data[ta ? COLUMNS : ROWS] != ld->data[ROWS] ||
        lb->data[tb ? ROWS : COLUMNS] != ld->data[COLUMNS]) {
        report("blas value", "cuBLASLt: cublasLtMatmul: no product that its algorithm was chosen for");
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (!aligned("A", a, algorithm->data[1]) || !aligned("B", b, algorithm->data[2]) ||
        !aligned("D", d, algorithm->data[3]))
        return CUBLAS_STATUS_INVALID_VALUE;
    const BiasProduct p = {static_cast<cudaDataType>(ld->data[TYPE]), ta, tb,
                           number(ld->data[ROWS]), number(ld->data[COLUMNS]), number(k),
                           number(la->data[LEADING]), number(lb->data[LEADING]),
                           number(ld->data[LEADING]), number(ld->data[COUNT]), step(la), step(lb),
                           step(ld), a, b, reinterpret_cast<const void *>(what->data[BIAS]), d,
                           bytes < 256 ? nullptr : workspace};
    return product_with_bias(__func__, reinterpret_cast<cublasHandle_t>(h), stream, p);
}
