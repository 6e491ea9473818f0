/*
 * events.c - in: numbers of a step; out: a file of events, as TensorBoard reads them.
 *
 * The file is TFRecord frames: u64 length, CRC32C of its bytes, payload, CRC32C of the payload, the
 * checksums masked (rotated by 15 bits, a constant added).  A payload is protobuf's wire format of
 * tensorflow.Event: wall_time = 1 (double), step = 2, file_version = 3, session_log = 7 (status =
 * 1), summary = 5 of value = 1 of {tag = 1, simple_value = 2 (float)}.  CRC32C: polynomial
 * 0x1edc6f41, reflected (Castagnoli et al. 1993; RFC 3720, B.4).
 */
#include "io/events.h"

#include "base/file/proto.h"
#include "core/core.h"
#include "io/files.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PAYLOAD = 4096, BEGINS = 1 /* SessionLog.START */ };

struct Events {
    FILE *f;
    char path[PATH_MAX];
};

/* Bytes of a message; what does not fit is left out and makes it `full`. */
typedef struct {
    unsigned char at[PAYLOAD];
    size_t n;
    int full;
} Bytes;

static void put(Bytes *b, const void *p, size_t n)
{
    if (n > sizeof b->at - b->n) {
        b->full = 1;
        return;
    }
    memcpy(b->at + b->n, p, n);
    b->n += n;
}

static void put_varint(Bytes *b, uint64_t v)
{
    uint8_t bytes[PB_VARINT_MAX];
    put(b, bytes, pb_encode(bytes, v));
}

static void put_key(Bytes *b, unsigned field, unsigned wire) { put_varint(b, field << 3 | wire); }

static void put_bytes(Bytes *b, unsigned field, const void *p, size_t n)
{
    put_key(b, field, PB_BYTES);
    put_varint(b, n);
    put(b, p, n);
}

static uint32_t masked_crc(const void *p, size_t n)
{
    const unsigned char *at = p;
    uint32_t c = ~0u;
    for (size_t i = 0; i < n; i++) {
        c ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            c = c >> 1 ^ (0x82f63b78u & (0u - (c & 1)));
    }
    c = ~c;
    return (c >> 15 | c << 17) + 0xa282ead8u;
}

static PpStatus failed(const Events *e)
{
    return pp_fail(PP_ERR_IO, "--tensorboard %s: %s", e->path, strerror(errno));
}

/* Of the machine's byte order, which is the format's, as everywhere in this program. */
static PpStatus put_frame(const Events *e, const Bytes *b)
{
    uint64_t length = b->n;
    uint32_t of_length = masked_crc(&length, sizeof length), of_payload = masked_crc(b->at, b->n);
    if (b->full)
        return PP_ERR_BUG;
    if (fwrite(&length, sizeof length, 1, e->f) != 1 ||
        fwrite(&of_length, sizeof of_length, 1, e->f) != 1 || fwrite(b->at, b->n, 1, e->f) != 1 ||
        fwrite(&of_payload, sizeof of_payload, 1, e->f) != 1 || fflush(e->f))
        return failed(e);
    return PP_OK;
}

static Bytes event(int64_t step)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double wall = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    Bytes b = {.n = 0};
    put_key(&b, 1, PB_64);
    put(&b, &wall, sizeof wall);
    put_key(&b, 2, PB_VARINT);
    put_varint(&b, (uint64_t)step);
    return b;
}

static PpStatus begin(const Events *e, int64_t first)
{
    static const char version[] = "brain.Event:2";
    Bytes b = event(0), log = {.n = 0};
    put_bytes(&b, 3, version, sizeof version - 1);
    TRY(put_frame(e, &b));
    if (first <= 1)
        return PP_OK;
    b = event(first);
    put_key(&log, 1, PB_VARINT);
    put_varint(&log, BEGINS);
    put_bytes(&b, 7, log.at, log.n);
    return put_frame(e, &b);
}

/* The time first, so that files of several runs are read in order. */
PpStatus events_open(Events **made, const char *folder, int64_t first)
{
    char host[64] = "";
    TRY(folder_make("--tensorboard", folder));
    Events *e = *made = calloc(1, sizeof *e);
    if (!e)
        return pp_no_memory();
    if (gethostname(host, sizeof host - 1) || strchr(host, '/'))
        snprintf(host, sizeof host, "host");
    if (snprintf(e->path, sizeof e->path, "%s/events.out.tfevents.%010lld.%s.%ld.0", folder,
                 (long long)time(NULL), host, (long)getpid()) >= (int)sizeof e->path)
        return pp_fail(PP_ERR_IO, "--tensorboard %s: name too long", folder);
    e->f = fopen(e->path, "wxe");
    return e->f ? begin(e, first) : failed(e);
}

PpStatus events_write(Events *e, int64_t step, const Scalar *s, int n)
{
    Bytes b = event(step), summary = {.n = 0};
    for (int i = 0; i < n; i++) {
        Bytes value = {.n = 0};
        float single = (float)s[i].value;
        put_bytes(&value, 1, s[i].tag, strlen(s[i].tag));
        put_key(&value, 2, PB_32);
        put(&value, &single, sizeof single);
        put_bytes(&summary, 1, value.at, value.n);
    }
    put_bytes(&b, 5, summary.at, summary.n);
    b.full |= summary.full;
    return put_frame(e, &b);
}

PpStatus events_close(Events *e)
{
    if (!e)
        return PP_OK;
    PpStatus s = e->f && fclose(e->f) ? failed(e) : PP_OK;
    free(e);
    return s;
}
