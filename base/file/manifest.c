/*
 * manifest.c - in: a checkpoint's manifest.json and the bytes of a tensor; out: whether they are
 * those that were written.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "manifest.h"
#include "json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "safetensors.h"

/* CRC-32: nibbles need 16 entries and no table; where much is to be summed, eight bytes at a time
   from tables made for the call (slicing by 8, Kounavis and Berry 2005). */
static uint32_t crc_slices(uint32_t crc, const unsigned char *p, size_t n)
{
    uint32_t t[8][256];
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++)
            c = (c >> 1) ^ (c & 1 ? 0xedb88320u : 0);
        t[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++)
            t[k][i] = (t[k - 1][i] >> 8) ^ t[0][t[k - 1][i] & 255];
    for (; n > 0; p += 8, n -= 8) {
        uint32_t lo = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                             (uint32_t)p[3] << 24);
        crc = t[7][lo & 255] ^ t[6][lo >> 8 & 255] ^ t[5][lo >> 16 & 255] ^ t[4][lo >> 24] ^
              t[3][p[4]] ^ t[2][p[5]] ^ t[1][p[6]] ^ t[0][p[7]];
    }
    return crc;
}

uint32_t st_crc32(uint32_t crc, const void *data, size_t n)
{
    enum { MUCH = 1 << 14 };
    static const uint32_t t[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
        0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
        0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    const unsigned char *p = data;
    crc = ~crc;
    if (n >= MUCH) {
        size_t whole = n & ~(size_t)7;
        crc = crc_slices(crc, p, whole);
        p += whole;
        n -= whole;
    }
    for (size_t i = 0; i < n; i++) {
        crc = (crc >> 4) ^ t[(crc ^ p[i]) & 15];
        crc = (crc >> 4) ^ t[(crc ^ ((uint32_t)p[i] >> 4)) & 15];
    }
    return ~crc;
}

char *manifest_read(const char *path)
{
    FILE *f = fopen(path, "rbe");
    if (!f)
        return NULL;
    size_t n = 0, cap = 1 << 16;
    char *text = malloc(cap);
    for (size_t got; text && (got = fread(text + n, 1, cap - 1 - n, f)) > 0;) {
        n += got;
        if (n < cap - 1)
            continue;
        char *grown = realloc(text, cap *= 2);
        if (!grown)
            free(text);
        text = grown;
    }
    int bad = ferror(f);
    if (fclose(f) | bad) {
        free(text);
        return NULL;
    }
    if (text)
        text[n] = 0;
    return text;
}

int manifest_confirms(const char *manifest, const char *tensor, const void *data, int64_t bytes)
{
    char *line = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&line, &n);
    if (!f)
        return -1;
    json_write_string(f, tensor);
    fprintf(f, ": \"%08" PRIx32 "\"", st_crc32(0, data, (size_t)bytes));
    int known = fclose(f) ? -1 : strstr(manifest, line) != NULL;
    free(line);
    return known;
}
