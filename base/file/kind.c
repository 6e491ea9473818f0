/* kind.c - in: the first bytes of a file; out: which format that is, where it is a known one. */
#include "kind.h"

#include <stdint.h>
#include <string.h>

#define SAVE_ONE "numpy.save(\"x.npy\", array) writes one array as this program reads it"
#define EXPORT "torch.onnx.export writes a model as ONNX; docs/exporting.md says how, for training"

enum { NPZ, TORCH, ZIP, PICKLE, NPY, SAFETENSORS, HDF5, GZIP, LFS, HTML, KINDS };

// clang-format off
static const FileKind kinds[KINDS] = {
    [NPZ] = {"a .npz archive (numpy.savez)", "give the .onnx file",
             "it holds several arrays: " SAVE_ONE},
    [TORCH] = {"a file of torch.save (.pt, .pth)", EXPORT,
               "numpy.save(\"x.npy\", tensor.numpy()) writes a tensor as this program reads it"},
    [ZIP] = {"a zip archive", "unpack it", "unpack it"},
    [PICKLE] = {"a Python pickle (as old torch.save wrote)", EXPORT, SAVE_ONE},
    [NPY] = {"a .npy array", "give the .onnx file", SAVE_ONE},
    [SAFETENSORS] = {"a safetensors file, weights without a model", EXPORT, SAVE_ONE},
    [HDF5] = {"an HDF5 file (Keras' .h5)", "export the model as ONNX: tf2onnx does, of Keras",
              SAVE_ONE},
    [GZIP] = {"compressed by gzip", "gunzip it", "gunzip it"},
    [LFS] = {"a Git LFS pointer, not the file itself", "run git lfs pull", "run git lfs pull"},
    [HTML] = {"a web page: something went wrong when it was downloaded", "download it again",
              "download it again"},
};
// clang-format on

static int begins(const char *at, size_t n, const char *with, size_t length)
{
    return n >= length && !memcmp(at, with, length);
}
#define BEGINS(with) begins(at, n, with, sizeof(with) - 1)

static size_t little(const char *at, int bytes)
{
    size_t v = 0;
    for (int i = bytes; i-- > 0;)
        v = v << 8 | (unsigned char)at[i];
    return v;
}

/* By the name of the first file in it. */
static int zip_kind(const char *at, size_t n)
{
    enum { LENGTH = 26, NAME = 30 };
    size_t length = n >= NAME ? little(at + LENGTH, 2) : 0;
    const char *name = at + NAME;
    if (n < NAME || length > n - NAME)
        return ZIP;
    if (length > 4 && !memcmp(name + length - 4, ".npy", 4))
        return NPZ;
    return memmem(name, length, "/data.pkl", 9) || memmem(name, length, "/.format_version", 16) ||
                   memmem(name, length, "/byteorder", 10)
               ? TORCH
               : ZIP;
}

const FileKind *file_kind(const void *bytes, size_t n)
{
    const char *at = bytes;
    if (BEGINS("PK\003\004"))
        return &kinds[zip_kind(at, n)];
    if (BEGINS("\x93NUMPY"))
        return &kinds[NPY];
    if (BEGINS("version https://git-lfs"))
        return &kinds[LFS];
    if (BEGINS("\x89HDF\r\n\x1a\n"))
        return &kinds[HDF5];
    if (BEGINS("\x1f\x8b\x08"))
        return &kinds[GZIP];
    if (BEGINS("<!DOCTYPE") || BEGINS("<!doctype") || BEGINS("<html"))
        return &kinds[HTML];
    if (n > 2 && at[0] == '\x80' && at[1] >= 2 && at[1] <= 5)
        return &kinds[PICKLE];
    if (n > 10 && at[8] == '{' && at[9] == '"' && little(at, 8) <= n - 8)
        return &kinds[SAFETENSORS];
    return NULL;
}
