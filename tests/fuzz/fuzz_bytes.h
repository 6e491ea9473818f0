/*
 * fuzz_bytes.h - what fuzz_bytes.c offers, by libFuzzer's names, to libFuzzer or drive.c.
 */
#ifndef FUZZ_BYTES_H
#define FUZZ_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *name;
    void (*run)(const uint8_t *data, size_t n);
    bool model; /* bytes are an .onnx file */
} FuzzTarget;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t most, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *one, size_t n_one, const uint8_t *two, size_t n_two,
                                 uint8_t *out, size_t most, unsigned seed);
/* libFuzzer's, or drive.c's: bytes flipped, dropped, inserted */
size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t most);

#endif
