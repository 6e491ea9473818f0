/*
 * sha256.c - SHA-256 (FIPS 180-4).  In: bytes; out: their digest.  By the instructions that x86
 * processors have for it since 2017, else in plain C, at about a fifth of their speed.
 */
#include "sha256.h"

#include <string.h>

#if defined __x86_64__ && defined __GNUC__
#include <cpuid.h>
#include <immintrin.h>
#define HAS_X86 1
#endif

static const uint32_t k[64] __attribute__((aligned(16))) = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

/* ---- a number of whole blocks, in plain C ---- */

static uint32_t turn(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void blocks_plain(uint32_t *state, const unsigned char *p, size_t blocks)
{
    for (; blocks > 0; blocks--, p += 64) {
        uint32_t w[64], s[8];
        for (int i = 0; i < 16; i++)
            w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
                   (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
        for (int i = 16; i < 64; i++)
            w[i] = w[i - 16] + w[i - 7] +
                   (turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3) +
                   (turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10);
        memcpy(s, state, sizeof s);
        /* a to h stay where they are and change their roles from round to round */
        for (int i = 0; i < 64; i += 8)
            for (int j = 0; j < 8; j++) {
                uint32_t a = s[-j & 7], b = s[(1 - j) & 7], c = s[(2 - j) & 7],
                         *d = &s[(3 - j) & 7], e = s[(4 - j) & 7], f = s[(5 - j) & 7],
                         g = s[(6 - j) & 7], *h = &s[(7 - j) & 7];
                uint32_t t = *h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) +
                             k[i + j] + w[i + j];
                *d += t;
                *h = t + (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) +
                     ((a & b) ^ (a & c) ^ (b & c));
            }
        for (int i = 0; i < 8; i++)
            state[i] += s[i];
    }
}

/* ---- by instructions: sha256rnds2 does two rounds on the state's halves ABEF and CDGH ---- */

#ifdef HAS_X86
static int has_instructions(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSSE3) && (c & bit_SSE4_1) &&
           __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1u << 29);
}

__attribute__((target("sha,sse4.1,ssse3"))) static void
blocks_x86(uint32_t *state, const unsigned char *p, size_t blocks)
{
    const __m128i big = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i low = _mm_loadu_si128((const __m128i *)(const void *)state);
    __m128i high = _mm_loadu_si128((const __m128i *)(const void *)(state + 4));
    low = _mm_shuffle_epi32(low, 0xb1);
    high = _mm_shuffle_epi32(high, 0x1b);
    __m128i abef = _mm_alignr_epi8(low, high, 8), cdgh = _mm_blend_epi16(high, low, 0xf0);
    for (; blocks > 0; blocks--, p += 64) {
        const __m128i abef0 = abef, cdgh0 = cdgh;
        __m128i w[4];
        for (int i = 0; i < 4; i++)
            w[i] = _mm_shuffle_epi8(
                _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * (size_t)i)), big);
        for (int i = 0; i < 16; i++) {
            const __m128i x = _mm_add_epi32(
                w[i & 3], _mm_load_si128((const __m128i *)(const void *)(k + 4 * (size_t)i)));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, x);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(x, 0x0e));
            /* words 4 (i + 4) to 4 (i + 4) + 3 of the message's schedule, in the place of 4 i */
            const __m128i *next = &w[(i + 1) & 3], *third = &w[(i + 2) & 3],
                          *last = &w[(i + 3) & 3];
            w[i & 3] = _mm_sha256msg2_epu32(
                _mm_add_epi32(_mm_sha256msg1_epu32(w[i & 3], *next),
                              _mm_alignr_epi8(*last, *third, 4)),
                *last);
        }
        abef = _mm_add_epi32(abef, abef0);
        cdgh = _mm_add_epi32(cdgh, cdgh0);
    }
    low = _mm_shuffle_epi32(abef, 0x1b);
    high = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)(void *)state, _mm_blend_epi16(low, high, 0xf0));
    _mm_storeu_si128((__m128i *)(void *)(state + 4), _mm_alignr_epi8(high, low, 8));
}
#endif

static void blocks_any(uint32_t *state, const unsigned char *p, size_t blocks)
{
#ifdef HAS_X86
    static int has = -1;
    int known = __atomic_load_n(&has, __ATOMIC_RELAXED);
    if (known < 0)
        __atomic_store_n(&has, known = has_instructions(), __ATOMIC_RELAXED);
    if (known) {
        blocks_x86(state, p, blocks);
        return;
    }
#endif
    blocks_plain(state, p, blocks);
}

/* ---- bytes ---- */

void sha256_start(Sha256 *s)
{
    *s = (Sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                            0x1f83d9ab, 0x5be0cd19}};
}

void sha256_add(Sha256 *s, const void *data, size_t n)
{
    const unsigned char *p = data;
    size_t held = s->bytes % 64, whole;
    s->bytes += n;
    if (held) {
        size_t take = n < 64 - held ? n : 64 - held;
        memcpy(s->block + held, p, take);
        p += take;
        n -= take;
        if (held + take < 64)
            return;
        blocks_any(s->state, s->block, 1);
    }
    whole = n / 64;
    blocks_any(s->state, p, whole);
    if (n % 64)
        memcpy(s->block, p + 64 * whole, n % 64);
}

void sha256_end(Sha256 *s, char digest[SHA256_TEXT])
{
    static const char hex[] = "0123456789abcdef";
    unsigned char tail[72] = {0x80};
    uint64_t bits = s->bytes * 8;
    size_t zeros = (119 - s->bytes % 64) % 64; /* with the 0x80 before, the length ends a block */
    for (int i = 0; i < 8; i++)
        tail[1 + zeros + (size_t)i] = (unsigned char)(bits >> (56 - 8 * i));
    sha256_add(s, tail, zeros + 9);
    for (int i = 0; i < SHA256_TEXT - 1; i++)
        digest[i] = hex[s->state[i / 8] >> (28 - i % 8 * 4) & 15];
    digest[SHA256_TEXT - 1] = 0;
}

void sha256_of(const void *data, size_t n, char digest[SHA256_TEXT])
{
    Sha256 s;
    sha256_start(&s);
    sha256_add(&s, data, n);
    sha256_end(&s, digest);
}

int sha256_is(const void *data, size_t n, const char *digest)
{
    char is[SHA256_TEXT];
    sha256_of(data, n, is);
    return !strncmp(is, digest, SHA256_TEXT - 1);
}
