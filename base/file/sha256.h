/*
 * sha256.h - SHA-256 (FIPS 180-4): the checksum of a checkpoint's tensors.  Needs libc only: every
 * generated program carries it, and none depends on a cryptographic library for it.
 */
#ifndef PP_SHA256_H
#define PP_SHA256_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SHA256_TEXT = 65 };

typedef struct {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64]; /* the last bytes, which do not fill a block yet */
} Sha256;

void sha256_start(Sha256 *s);
void sha256_add(Sha256 *s, const void *data, size_t n);
/* The digest is 64 hexadecimal digits. */
void sha256_end(Sha256 *s, char digest[SHA256_TEXT]);
void sha256_of(const void *data, size_t n, char digest[SHA256_TEXT]);
int sha256_is(const void *data, size_t n, const char *digest); /* which more may follow */

#ifdef __cplusplus
}
#endif
#endif
