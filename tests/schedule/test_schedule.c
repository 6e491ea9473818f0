/*
 * test_schedule.c - the IR, the generators and the passes of schedules.
 *
 * Expected values come from PyTorch 2.15 (fingerprints: sha256 of the rows; sample rows) and from
 * hand-made schedules.
 */
#include "lock_steps.h"
#include "passes.h"
#include "schedule/tool/tool.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

/* ---- sha256 (FIPS 180-4), for the fingerprints ---- */

static uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void sha_block(uint32_t h[8], const unsigned char *p)
{
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2};
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + w[i - 7] +
               (rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3) +
               (rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t a = v[0], e = v[4];
        uint32_t t1 = v[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
                      ((e & v[5]) ^ (~e & v[6])) + k[i] + w[i];
        uint32_t t2 = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) +
                      ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        h[i] += v[i];
}

/* The first 16 hex digits. */
static void sha256(const char *text, size_t n, char hex[17])
{
    uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    unsigned char tail[128] = {0};
    size_t whole = n / 64 * 64, rest = n - whole, size = rest < 56 ? 64 : 128;
    for (size_t i = 0; i < whole; i += 64)
        sha_block(h, (const unsigned char *)text + i);
    memcpy(tail, text + whole, rest);
    tail[rest] = 0x80;
    for (size_t i = 0; i < 8; i++)
        tail[size - 1 - i] = (unsigned char)((uint64_t)n * 8 >> 8 * i);
    for (size_t i = 0; i < size; i += 64)
        sha_block(h, tail + i);
    snprintf(hex, 17, "%08x%08x", h[0], h[1]);
}

/* ---- Helpers ---- */

static SchedError err;

static int is(const Schedule *s, const char *want)
{
    size_t n;
    char *text = sched_text(s, &n), hex[17];
    sha256(text, n, hex);
    free(text);
    return strcmp(hex, want) == 0;
}

static int rows_are(const Schedule *s, const char *want)
{
    char *text = sched_text(s, NULL);
    int same = text && strcmp(text, want) == 0;
    if (!same)
        printf("# got %.300s\n", text);
    free(text);
    return same;
}

static Schedule *gen(const char *name, int p, int v, int m)
{
    Schedule *s;
    if (sched_generate(name, p, p * v, m, SCHED_PLACE_DEFAULT, &s, &err))
        printf("# %s\n", err.text);
    return s;
}

static Schedule *parse(const char *text)
{
    Schedule *s;
    sched_parse(text, strlen(text), "test.csv", &s, &err);
    return s;
}

/* ---- SCHEDULES.md 5: all columns ---- */

static void fingerprints(void)
{
    static const struct {
        const char *name;
        int p, v, m;
        const char *compute, *comms, *lowered, *deferred;
        int steps;
    } row[] = {
        {"GPipe", 4, 1, 8, "171e9752ae25241e", "1b460ff90d962d69", NULL, NULL, 66},
        {"1F1B", 4, 1, 8, "81fbda32abaee9bc", "08f926629338c5e5", NULL, NULL, 61},
        {"Interleaved1F1B", 2, 2, 4, "6d3fcef0f8b41b87", "3ac5d453abfae301", "9fbd4466b968f6a5",
         "559b96b853c14593", 51},
        {"Interleaved1F1B", 4, 2, 10, "8a9e38f705f9ecbf", "763aa011257a4184", "f57cc9f21a90663c",
         "88bf21f1b5ef9fe2", 185},
        {"InterleavedZeroBubble", 2, 2, 4, "4840a4f3f5cdb129", "b5cf4207f1b3bb0e",
         "524084e8fe58a10c", "655b6344da7d35c9", 57},
        {"InterleavedZeroBubble", 4, 3, 12, "34a672d2dc77d731", "4b29a2968b1c08ed",
         "9483239efaaecffc", "ecde920990e26ad2", 340},
        {"LoopedBFS", 4, 2, 8, "e93ec23e6d7993eb", "ed560b8e99236a47", "b5e1e8966426d9b4",
         "795d54501bf39ef6", 149},
        {"ZBVZeroBubble", 4, 2, 8, "45307a1d9c66ef82", "1fb7a2b6cbcaf5ab", "db5c314705368eda",
         "a73d25fdb7b7e3e4", 132},
        {"DualPipeV", 4, 2, 10, "e3e483bfb9948590", "93c158a770233209", "43f6c033a4130ddd",
         "4f7391c8343234e1", 150},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        Schedule *s = gen(row[i].name, row[i].p, row[i].v, row[i].m), *c = sched_clone(s);
        ok(is(s, row[i].compute), "%s %d %d %d: compute", row[i].name, row[i].p, row[i].v,
           row[i].m);
        ok(!with_comms(c, NULL, 0, &err) && is(c, row[i].comms), "%s: with send/recv", row[i].name);
        ok(lock_steps(c, &err) == row[i].steps, "%s: %d lock-steps", row[i].name, row[i].steps);
        ok(!sched_lower(s, 3, &err) && (!row[i].lowered || is(s, row[i].lowered)), "%s: lowered",
           row[i].name);
        ok(!sched_defer(s, &err) && (!row[i].deferred || is(s, row[i].deferred)), "%s: deferred",
           row[i].name);
        sched_free(s);
        sched_free(c);
    }
}

/* Windows and look-aheads, one a rank, and deferred waits: PyTorch's max_active_stages,
   unshard_lookahead and defer_reduce_grad_wait. */
static void residency(void)
{
    static const struct {
        const char *name;
        int p, v, m;
        const char *unshard;
        int deferred;
        const char *lowered;
    } row[] = {
        {"interleaved1f1b", 2, 3, 6, "2", 1, "ea92156659146849"},
        {"interleaved1f1b", 4, 4, 8, "auto", 0, "5eef86f34257e4d7"},
        {"interleavedzerobubble", 3, 3, 9, "3:2,1,3", 1, "1de7f5d99a7f0fd8"},
        {"loopedbfs", 1, 5, 4, "3:2", 1, "58fab3e137574dbe"},
        {"loopedbfs", 2, 4, 4, "auto", 1, "4d427073248f6ea2"},
        {"zbvzerobubble", 4, 2, 8, "2:2,2,1,1", 1, "643aeb7a612730f2"},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        Schedule *s = gen(row[i].name, row[i].p, row[i].v, row[i].m);
        ok(!sched_unshard(s, row[i].unshard, &err) &&
               !sched_reduce_grad(s, row[i].deferred, &err) && !with_comms(s, NULL, 0, &err) &&
               !with_waits(s, &err) && is(s, row[i].lowered),
           "%s, a window of %s%s: PyTorch's rows", row[i].name, row[i].unshard,
           row[i].deferred ? ", deferred" : "");
        sched_free(s);
    }
    Schedule *s = gen("loopedbfs", 2, 3, 2);
    ok(!sched_unshard(s, "1,2", &err) &&
           rows_are(s, "0UNSHARD,0F0,0F1,0RESHARD,2UNSHARD,2F0,2F1,2RESHARD,4UNSHARD,4F0,4F1,4B1,"
                       "4B0,4RESHARD,2UNSHARD,2B1,2B0,2RESHARD,0UNSHARD,0B1,0B0,0RESHARD\n"
                       "1UNSHARD,3UNSHARD,1F0,1F1,1RESHARD,5UNSHARD,3F0,3F1,5F0,5F1,5B1,5B0,"
                       "5RESHARD,1UNSHARD,3B1,3B0,3RESHARD,1B1,1B0,1RESHARD"),
       "a window for each rank");
    ok(sched_unshard(s, "2", &err) == SCHED_EREFUSED && strstr(err.text, "already"),
       "and only once");
    sched_free(s);
    static const char *const wrong[][2] = {
        {"0", "not a window"},
        {"", "not a window"},
        {"2,", "not a window"},
        {"2x", "not a window"},
        {"2:", "not a window"},
        {"1,2,3", "3 numbers for 2 ranks"},
        {"2:1,1,1", "3 numbers"},
        {"2,1:2", "rank 1 looks 2 stages ahead"},
    };
    s = gen("loopedbfs", 2, 2, 2);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ok(sched_unshard(s, wrong[i][0], &err) == SCHED_EUSAGE && strstr(err.text, wrong[i][1]),
           "no window: '%s'", wrong[i][0]);
    sched_free(s);
}

/* ---- SCHEDULES.md 3: the sample rows, p = 4, m = 8; `text` is how the row begins, idle slots
 * dropped where told ----
 */

static void samples(void)
{
    static const struct {
        const char *name;
        int v, rank, idle;
        const char *text;
    } row[] = {
        {"1f1b", 1, 0, 0, "0F0,0F1,0F2,0F3,0B0,0F4,0B1,0F5,0B2,0F6,0B3,0F7,0B4,0B5,0B6,0B7"},
        {"1f1b", 1, 3, 0, "3F0,3B0,3F1,3B1,3F2,3B2,3F3,3B3,3F4,3B4,3F5,3B5,3F6,3B6,3F7,3B7"},
        {"interleaved1f1b", 2, 0, 0,
         "0F0,0F1,0F2,0F3,4F0,4F1,4F2,4F3,0F4,0F5,0F6,4B0,0F7,4B1,4F4,4B2,4F5,4B3,4F6,0B0,4F7,0B1,"
         "0B2,0B3,4B4,"},
        {"interleavedzerobubble", 2, 0, 1,
         "0F0,0F1,0F2,0F3,4F0,4F1,4F2,,,,4F3,4I0,4W0,0F4,4I1,4W1,0F5,4I2,4W2,0F6,4I3,4W3,0F7,0I0,"
         "0W0,4F4,0I1,"},
        {"interleavedzerobubble", 2, 3, 1,
         ",,,3F0,3F1,3F2,3F3,7F0,7I0,7F1,7I1,7F2,7I2,7F3,7I3,7W0,3F4,3I0,7W1,3F5,3I1,7W2,3F6,3I2,"
         "7W3,3F7,3I3,3W0,"},
        {"zbvzerobubble", 2, 0, 0,
         "0F0,0F1,0F2,0F3,0F4,0F5,0F6,7F0,7I0,7W0,7F1,7I1,7W1,7F2,7I2,7W2,7F3,7I3,7W3,0F7,0I0,0W0,"
         "7F4,7I4,7W4,"},
        {"dualpipev", 2, 0, 0,
         "0F0,0F1,0F2,0F3,0F4,0F5,0F6,7F0,7I0,7W0,7F1,7I1,7W1,7F2,7I2,7W2,7F3,(0F7;7B3)OVERLAP_F_B,"
         "(7F4;0B0)OVERLAP_F_"
         "B,7B4,(7F5;0B1)"},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        Schedule *s = gen(row[i].name, 4, row[i].v, 8);
        if (!row[i].idle)
            sched_drop_idle(s);
        char *text = sched_text(s, NULL), *line = text;
        for (int r = 0; r < row[i].rank; r++)
            line = strchr(line, '\n') + 1;
        ok(strncmp(line, row[i].text, strlen(row[i].text)) == 0, "%s: the row of rank %d",
           row[i].name, row[i].rank);
        free(text);
        sched_free(s);
    }
    Schedule *s = gen("interleaved1f1b", 2, 2, 2);
    sched_lower(s, 3, &err);
    char *text = sched_text(s, NULL);
    *strchr(text, '\n') = 0;
    ok(strcmp(
           text,
           "0UNSHARD,2UNSHARD,0F0,0SEND_F0,2RECV_F0,0F1,0SEND_F1,2RECV_F1,2F0,2SEND_F0,2F1,2SEND_"
           "F1,2RECV_B0,"
           "2B0,2WAIT_SEND_F0,2SEND_B0,"
           "2RECV_B1,2B1,2WAIT_SEND_F1,2SEND_B1,2REDUCE_GRAD,2WAIT_REDUCE_GRAD,2RESHARD,0RECV_B0,"
           "0B0,0WAIT_"
           "SEND_F0,0RECV_B1,0B1,"
           "0WAIT_SEND_F1,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0RESHARD,2WAIT_SEND_B0,2WAIT_SEND_B1") ==
           0,
       "interleaved1f1b 2 2 2, lowered, rank 0");
    free(text);
    sched_free(s);
}

/* Idle cells where forwards come too early: rows of PyTorch 2.15's own
   _calculate_single_rank_operations and _add_bubbles_to_actions, fewer microbatches than ranks
   first, then as many and more. */
static void aligned_forwards(void)
{
    static const struct {
        int p, v, m;
        const char *rows;
    } want[] = {
        {2, 2, 1, "31eb4bd4d4e9c58d"}, {3, 2, 2, "cfd2513235492078"},
        {4, 2, 1, "c0a396d4d1ab70eb"}, {4, 2, 2, "4495dd33b7d664ec"},
        {4, 2, 3, "cab5260ccb205e3a"}, {4, 3, 2, "abc4070f49443227"},
        {5, 3, 4, "781ada3cad9607e8"}, {8, 2, 5, "a056391875750f2a"},
        {8, 4, 3, "33223f4aeeea414e"}, {4, 2, 4, "db94a1c0045d637e"},
        {4, 2, 8, "667a03b5214af5fc"}, {4, 2, 16, "b265d48778ea6f31"},
        {4, 3, 6, "33a1849a8967ead7"}, {8, 2, 24, "72714e145365de8b"},
    };
    Schedule *s = gen("InterleavedZeroBubble", 4, 2, 3);
    ok(rows_are(s, "0F0,0F1,0F2,,4F0,4F1,4F2,,,,4I0,4W0,4I1,4W1,4I2,4W2,0I0,0W0,0I1,0W1,0I2,0W2\n"
                   ",1F0,1F1,1F2,,5F0,5F1,,,5F2,5I0,5I1,5W0,5I2,5W1,1I0,5W2,1I1,1W0,1I2,1W1,1W2\n"
                   ",,2F0,2F1,2F2,,6F0,,6F1,6I0,6F2,6I1,6I2,6W0,2I0,6W1,2I1,6W2,2I2,2W0,2W1,2W2\n"
                   ",,,3F0,3F1,3F2,,7F0,7I0,7F1,7I1,7F2,7I2,3I0,7W0,3I1,7W1,3I2,7W2,3W0,3W1,3W2"),
       "interleavedzerobubble 4 2 3: 4F0 is a column after 3F0");
    sched_free(s);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        s = gen("InterleavedZeroBubble", want[i].p, want[i].v, want[i].m);
        ok(is(s, want[i].rows), "interleavedzerobubble %d %d %d: PyTorch's idle cells", want[i].p,
           want[i].v, want[i].m);
        sched_free(s);
    }
}

/* Rank 0 of PipeOffload's figures (2503.01328), 4 ranks, 2 chunks, 8 microbatches: F, I and W,
   numbered by their microbatch, without idle cells.  In GIS-H the figure has the second pair of
   forwards two cells later, just before their use, which changes nothing after them. */
static void pipeoffload(void)
{
    static const struct {
        const char *name, *row;
    } want[] = {
        {"gis", "1 2 3 4 1 2 3 4 1 1 5 2 2 6 3 3 7 4 4 8 1 1 5 2 2 6 3 3 7 4 4 8 5 5 6 6 "
                "7 7 8 8 5 5 6 6 7 7 8 8 "},
        {"gis-h", "1 2 1 2 3 4 1 1 3 2 2 4 1 1 5 2 2 6 3 3 5 4 4 6 3 3 7 4 4 8 5 5 7 6 6 "
                  "8 5 5 6 6 7 7 8 8 7 7 8 8 "},
    };
    for (size_t i = 0; i < 2; i++) {
        Schedule *s = gen(want[i].name, 4, 2, 8);
        char got[200] = "";
        for (int k = 0, at = 0; k < s->row[0].n; k++) {
            const SchedAction *a = &s->row[0].a[k];
            at += snprintf(got + at, sizeof got - (size_t)at, "%d ", a->microbatch + 1);
        }
        ok(!strcmp(got, want[i].row), "%s: rank 0 is the paper's", want[i].name);
        sched_free(s);
    }
    Schedule *s, *t;
    ok(!sched_generate("GIS:2", 4, 8, 8, -1, &s, &err) && !strcmp(s->name, "gis:2"),
       "a group in the name");
    t = gen("gis-h", 4, 2, 8);
    char *a = sched_text(s, NULL), *b = sched_text(t, NULL);
    ok(a && b && !strcmp(a, b), "gis:2 on 4 ranks is gis-h");
    ok(!sched_find("gis:") && !sched_find("gis:0") && !sched_find("gis:2x") &&
           !sched_find("1f1b:2"),
       "no other name has a group");
    free(a), free(b);
    sched_free(s), sched_free(t);
}

/* A stash that would come back before it has left, and copies that are made. */
static void copies(void)
{
    Schedule *s = parse("0F0,0OFFLOAD0,0F1,0FETCH0,0B1,0B0");
    ok(s && sched_verify(s, NULL, 0, NULL, 0, 0, &err) == SCHED_EREFUSED &&
           strstr(err.text, "still on its way"),
       "a stash is not fetched before all of it has left");
    SchedCosts costs;
    sched_costs_default(&costs);
    ok(with_copies(s, &costs, NULL, &err) == SCHED_EREFUSED && strstr(err.text, "OFFLOADs already"),
       "nor are there copies of two minds");
    sched_free(s);
    /* A copy takes as long as two forwards.  Microbatch 0 leaves from 1 to 3 and comes back from 11
       to 13; 1 leaves from 3 to 5 and comes back from 9 to 11; 2 leaves from 5 to 7, and could
       begin to come back at 7 at the latest: there is no computation in between. */
    costs.time[SA_OFFLOAD] = costs.time[SA_FETCH] = 2;
    int moved = -1;
    s = parse("0F0,0F1,0F2,0F3,0F4,0B4,0B3,0B2,0B1,0B0\n");
    ok(s && !with_copies(s, &costs, &moved, &err) && moved == 2 &&
           rows_are(s, "0F0,0OFFLOAD0,0F1,0F2,0OFFLOAD1,0WAIT_OFFLOAD0,0F3,0F4,0WAIT_OFFLOAD1,0B4,"
                       "0B3,0FETCH1,0B2,0FETCH0,0B1,0B0"),
       "copies take turns, each as late as its backward allows");
    sched_free(s);
}

static int same_schedule(const Schedule *a, const Schedule *b)
{
    char *x = sched_text(a, NULL), *y = sched_text(b, NULL);
    int same = strcmp(x, y) == 0 && strcmp(a->name, b->name) == 0 && a->stages == b->stages &&
               memcmp(a->rank_of, b->rank_of, (size_t)a->stages * sizeof *a->rank_of) == 0;
    free(x);
    free(y);
    return same;
}

/* PyTorch's names as get_schedule_class knows them, and those of the classes. */
static void spellings(void)
{
    static const struct {
        const char *name, *also[3];
    } row[] = {
        {"gpipe", {"GPipe", "ScheduleGPipe", "GPIPE"}},
        {"1f1b", {"1F1B", "Schedule1F1B", "schedule1f1b"}},
        {"interleaved1f1b", {"Interleaved1F1B", "ScheduleInterleaved1F1B", "INTERLEAVED1F1B"}},
        {"loopedbfs", {"LoopedBFS", "ScheduleLoopedBFS", "loopedBFS"}},
        {"interleavedzerobubble",
         {"InterleavedZeroBubble", "ScheduleInterleavedZeroBubble", "interleavedZeroBubble"}},
        {"zbvzerobubble", {"ZBVZeroBubble", "ScheduleZBVZeroBubble", "zbvZEROBUBBLE"}},
        {"dualpipev", {"DualPipeV", "ScheduleDualPipeV", "DUALPIPEV"}},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int k = 0; k < 3; k++) {
            Schedule *a = gen(row[i].name, 4, 2, 8), *b = gen(row[i].also[k], 4, 2, 8);
            ok(a && b && same_schedule(a, b) &&
                   sched_find(row[i].also[k]) == sched_find(row[i].name),
               "%s is %s", row[i].also[k], row[i].name);
            sched_free(a);
            sched_free(b);
        }
    ok(!sched_find("") && !sched_find("schedule") && !sched_find("schedulezb-h1") &&
           !sched_find("1f1b "),
       "and nothing else is");
    Schedule *s;
    ok(sched_generate("Interleaved1F1C", 4, 8, 8, -1, &s, &err) == SCHED_EUSAGE &&
           strstr(err.text, "did you mean 'interleaved1f1b'? (there are gpipe, 1f1b,") &&
           strstr(err.text, "forward-only, auto)") && !strchr(err.text, '\n'),
       "an unknown name: the nearest, and all there are");
}

/* Forwards of stages that are apart fill the pipeline: no rank waits for the whole of it within a
 * microbatch. */
static void forwards(void)
{
    static const int place[] = {SCHED_PLACE_LOOP, SCHED_PLACE_V, SCHED_PLACE_BLOCK};
    for (int i = 0; i < 3; i++) {
        Schedule *s;
        SchedCosts c;
        SchedSim sim;
        sched_costs_default(&c);
        sched_generate("forward-only", 4, 8, 16, place[i], &s, &err);
        ok(!sched_validate(s, &err) && !sched_simulate(s, &c, &sim, &err) &&
               sim.makespan <= 16 * 2 + 3 * 2,
           "forward-only, placement %d: %g of 38", place[i], sim.makespan);
        sched_sim_free(&sim);
        sched_free(s);
    }
}

static void generators(void)
{
    static const int accept[] = {3, 4, 8, 10, 12, 15, 16}, refuse[] = {9, 11, 13};
    Schedule *s;
    for (size_t i = 0; i < sizeof accept / sizeof *accept; i++) {
        ok(sched_generate("Interleaved1F1B", 4, 8, accept[i], -1, &s, &err) == 0 &&
               !sched_validate(s, &err),
           "interleaved p=4 takes m=%d", accept[i]);
        sched_free(s);
    }
    for (size_t i = 0; i < sizeof refuse / sizeof *refuse; i++)
        ok(sched_generate("Interleaved1F1B", 4, 8, refuse[i], -1, &s, &err) == SCHED_EREFUSED && !s,
           "interleaved p=4 refuses m=%d", refuse[i]);
    ok(sched_generate("dualpipev", 4, 8, 7, -1, &s, &err) == SCHED_EREFUSED,
       "dualpipev refuses m < 2p");
    ok(sched_generate("zbvzerobubble", 4, 12, 8, -1, &s, &err) == SCHED_EREFUSED,
       "zbv refuses three stages a rank");
    ok(sched_generate("interleaved1f1b", 4, 10, 8, -1, &s, &err) == SCHED_EREFUSED,
       "interleaved refuses uneven ranks");
    ok(sched_generate("1f1b", 4, 3, 8, -1, &s, &err) == SCHED_EREFUSED,
       "1f1b refuses a rank without a stage");
    ok(sched_generate("1f1c", 4, 4, 8, -1, &s, &err) == SCHED_EUSAGE &&
           strstr(err.text, "did you mean '1f1b'"),
       "did you mean");
    static const int v3[12] = {0, 1, 2, 3, 3, 2, 1, 0, 0, 1, 2, 3};
    ok(!sched_generate("gpipe", 4, 12, 2, SCHED_PLACE_V, &s, &err) &&
           memcmp(s->rank_of, v3, sizeof v3) == 0,
       "gpipe as a V of three stages a rank");
    sched_free(s);
    s = gen("zbvzerobubble", 4, 2, 8);
    static const int v[8] = {0, 1, 2, 3, 3, 2, 1, 0};
    ok(memcmp(s->rank_of, v, sizeof v) == 0, "a V is 0,1,2,3,3,2,1,0");
    sched_free(s);
    ok(!sched_generate("1f1b", 2, 5, 3, -1, &s, &err) && s->rank_of[2] == 0 && s->rank_of[3] == 1,
       "1f1b takes five stages on two ranks, 3 + 2");
    sched_drop_idle(s);
    ok(rows_are(s, "0F0,1F0,2F0,0F1,1F1,2F1,2B0,1B0,0B0,0F2,1F2,2F2,2B1,1B1,0B1,2B2,1B2,0B2\n3F0,"
                   "4F0,4B0,3B0,3F1,4F1,"
                   "4B1,3B1,3F2,4F2,4B2,3B2"),
       "blocks run as one stage");
    sched_free(s);
    for (int i = 0; sched_kind(i); i++)
        for (int p = 1; p <= 5; p++)
            for (int m = 1; m <= 12; m += 1) {
                int bad = 0, chunks = sched_kind(i)->chunks ? sched_kind(i)->chunks : 1;
                if (sched_generate(sched_kind(i)->name, p, p * chunks, m, -1, &s, &err))
                    continue;
                bad = sched_validate(s, &err) || sched_lower(s, 3, &err) ||
                      sched_verify(s, NULL, 0, NULL, 0, 0, &err) ||
                      sched_verify(s, NULL, 0, NULL, 0, 1, &err);
                if (bad)
                    ok(0, "%s %d %d: %s", sched_kind(i)->name, p, m, err.text);
                sched_free(s);
            }
    ok(1, "every generator lowers to rows that verify");
}

static void parser(void)
{
    static const char *const bad[] = {"2BW0",
                                      "2",
                                      "F0",
                                      "0F",
                                      "0F0x",
                                      "00F0",
                                      "0f0",
                                      "0F-1",
                                      "0UNSHARD0",
                                      "0F0@1",
                                      "0SEND_F0@0",
                                      "1SEND_F0@0",
                                      "0RECV_F0",
                                      "0SEND_P",
                                      "0F99999999999",
                                      "(0F0;0B0)",
                                      "(0F0;0B0)OVERLAP",
                                      "()OVERLAP_F_B",
                                      "(0F0;)OVERLAP_F_B",
                                      "(0F0;1SEND_F0)OVERLAP_F_B",
                                      "0F0;0B0",
                                      "\"0F0",
                                      "0 F0",
                                      "0SEND_B0",
                                      "4294967296F0"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[200];
        snprintf(text, sizeof text, "0F0,%s,0B0\n1F0,1B0\n", bad[i]);
        Schedule *s = parse(text);
        ok(!s && err.rank == 0 && err.cell == 1 && strstr(err.text, "cell 1"), "refused: %s",
           bad[i]);
        sched_free(s);
    }
    Schedule *s = parse("0F0, 0B0 ,\r\n,1F0,1B0\r\n");
    ok(s && s->ranks == 2 && s->stages == 2 && rows_are(s, "0F0,0B0,\n,1F0,1B0"),
       "either line ending, blanks, idle cells");
    sched_free(s);
    const char *all =
        "0UNSHARD,0F0,0SEND_F0,0SEND_F0@2,0R0,0OFFLOAD0,0WAIT_OFFLOAD0,0FETCH0,0RECV_B0,"
        "0RECV_B0@2,"
        "0I0,0WAIT_SEND_F0,"
        "0WAIT_SEND_F0@2,0W0,0RECV_GP@2,0REDUCE_GRAD,"
        "0WAIT_REDUCE_GRAD,0RESHARD,0SEND_P@2\n1RECV_F0,1F0,1SEND_F0,1RECV_B0,1B0,"
        "1SEND_B0,1WAIT_SEND_"
        "B0\n2RECV_P@0,2RECV_F0,2RECV_F0@0,(2F0;2B0)"
        "OVERLAP_F_B,2SEND_B0,2SEND_B0@0,2SEND_GP@0";
    s = parse(all);
    ok(s && s->complete && rows_are(s, all), "every action, printed as read");
    sched_free(s);
    s = parse("0F0,0B0\n0F1,0B1\n");
    ok(!s && strstr(err.text, "one rank"), "a stage on two ranks");
    s = parse("0F0,0B0\n2F0,2B0\n");
    ok(!s, "a stage on no rank");
    s = parse("0F2000000000,0B2000000000\n");
    ok(!s, "microbatch numbers are bounded by the work");
    s = parse("");
    ok(!s, "an empty file");
    static const char *const invalid[][2] = {
        {"0F0,0F0,0B0", "twice"},        {"0B0,0F0", "before its forward"},
        {"0F0,0F1,0B0", "no backward"},  {"0F0,0I0,0F1,0B1", "no W"},
        {"0F0,0W0,0I0", "before its I"}, {"0F0,0B0,0B0", "twice"},
        {"0F0,0I0,0W0,0W0", "twice"},    {"0F0,0B0,0I0,0W0", "B for this microbatch"},
        {"0F0,0I0,0I0,0W0", "twice"},    {"0F0,0B0,0R0", "recompute"},
        {"0F0,0OFFLOAD0,0B0", "FETCH"},  {"0F0,0FETCH0,0B0", "not on the host"},
        {"0OFFLOAD0,0F0,0B0", "no stash to offload"},
        {"0F0,0I0,0OFFLOAD0,0FETCH0,0W0", "no stash to offload"},
        {"0F0,0OFFLOAD0,0OFFLOAD0,0FETCH0,0B0", "offloaded twice"},
        {"0F0,0OFFLOAD0,0FETCH0,0OFFLOAD0,0FETCH0,0B0", "offloaded twice"},
        {"0F0,0OFFLOAD0,0FETCH0,0FETCH0,0B0", "not on the host"},
        {"0F0,0WAIT_OFFLOAD0,0B0", "has not begun"},
        {"0F0,0OFFLOAD0,0WAIT_OFFLOAD0,0WAIT_OFFLOAD0,0FETCH0,0B0", "waited for twice"},
        {"0F0,0OFFLOAD0,0WAIT_OFFLOAD0,0I0,0FETCH0,0W0", "FETCH is missing"},
        {"0F0,0OFFLOAD0,0FETCH0,0R0,0B0", "nothing to recompute"},
        {"0F0,0R0,0OFFLOAD0,0FETCH0,0B0", "no stash to offload"},
    };
    for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++) {
        s = parse(invalid[i][0]);
        ok(s && sched_validate(s, &err) == SCHED_EREFUSED && strstr(err.text, invalid[i][1]),
           "invalid: %s", invalid[i][0]);
        sched_free(s);
    }
}

static void passes(void)
{
    Schedule *s = parse("0F0,0F1,0F2,0I0,0I1,0W0,0I2,0W2,0W1");
    ok(!sched_merge(s, &err) && rows_are(s, "0F0,0F1,0F2,0I0,0I1,0W0,0B2,0W1"),
       "merge joins neighbours only");
    sched_free(s);
    s = gen("1f1b", 1, 1, 2);
    ok(!sched_reduce_grad(s, 0, &err) &&
           rows_are(s, "0F0,0B0,0F1,0B1,0REDUCE_GRAD,0WAIT_REDUCE_GRAD"),
       "reduce_grad at once");
    sched_free(s);
    s = gen("loopedbfs", 1, 3, 1);
    ok(!sched_reduce_grad(s, 1, &err) &&
           rows_are(s, "0F0,1F0,2F0,2B0,2REDUCE_GRAD,1B0,2WAIT_REDUCE_GRAD,1REDUCE_GRAD,0B0,"
                       "1WAIT_REDUCE_GRAD,0REDUCE_GRAD,0WAIT_REDUCE_GRAD"),
       "reduce_grad deferred: one at most is under way");
    sched_free(s);
    s = gen("loopedbfs", 1, 3, 1);
    ok(!sched_unshard(s, "2", &err) &&
           rows_are(s, "0UNSHARD,1UNSHARD,0F0,0RESHARD,2UNSHARD,1F0,2F0,"
                       "2B0,2RESHARD,0UNSHARD,1B0,1RESHARD,0B0,0RESHARD"),
       "unshard, a window of two");
    sched_free(s);

    /* A skip 0 -> 2 beside the chain, three ranks. */
    static const SchedEdge skip[] = {{0, 1, 1, 0, 0}, {0, 2, 1, 0, 0}, {1, 2, 1, 0, 0}};
    s = gen("gpipe", 3, 1, 1);
    ok(!with_comms(s, skip, 3, &err) &&
           rows_are(s, "0F0,0SEND_F0,0SEND_F0@2,0RECV_B0@2,0RECV_B0,0B0\n1RECV_F0,1F0,1SEND_F0,"
                       "1RECV_B0,1B0,1SEND_B0\n"
                       "2RECV_F0@0,2RECV_F0,2F0,2B0,2SEND_B0,2SEND_B0@0"),
       "a skip edge is marked by @peer");
    ok(!with_waits(s, &err) && !sched_verify(s, skip, 3, NULL, 0, 0, &err) &&
           !sched_verify(s, NULL, 0, NULL, 0, 0, &err),
       "and verifies, edges given or read off");
    ok(sched_verify(s, skip, 1, NULL, 0, 0, &err) == SCHED_EREFUSED,
       "not for a model without that edge: %s", err.text);
    sched_free(s);
    s = gen("gpipe", 3, 1, 2);
    ok(with_comms(s, (const SchedEdge[]){{2, 0, 1, 0, 0}}, 1, &err) == SCHED_EREFUSED,
       "an edge backwards");
    sched_free(s);
}

/* What an executor gets: skips, shared parameters of both kinds, for every generator and placement.
 */
static void lower_for(void)
{
    static const SchedEdge edge[] = {{0, 1, 1, 0, 0}, {1, 2, 1, 0, 0}, {2, 3, 1, 0, 0},
                                     {0, 3, 1, 0, 0}, {1, 3, 0, 0, 0}, {0, 2, 1, 0, 0}};
    static const SchedParam param[] = {{0, 3, 0, 1}, {0, 2, 0, 1}, {1, 2, 1, 1}, {1, 3, 0, 0}};
    static const struct {
        const char *name;
        int p;
    } config[] = {{"gpipe", 4},
                  {"1f1b", 4},
                  {"1f1b", 3},
                  {"gpipe", 1},
                  {"interleaved1f1b", 2},
                  {"loopedbfs", 2},
                  {"interleavedzerobubble", 2},
                  {"zbvzerobubble", 2},
                  {"dualpipev", 2},
                  {"zb-h1", 4},
                  {"zb-h2", 4},
                  {"gis-h", 2},
                  {"forward-only", 4},
                  {"interleavedzerobubble", 4}};
    for (size_t i = 0; i < sizeof config / sizeof *config; i++)
        for (int k = 0; k < 4; k++) {
            SchedNeeds n = {edge,   6,      param,          4, k == 1 ? "2" : NULL,
                            k == 2, k == 2, k == 3 ? 3 : 0, k, NULL};
            Schedule *s;
            if (sched_generate(config[i].name, config[i].p, 4, 6, -1, &s, &err)) {
                ok(0, "%s", err.text);
                continue;
            }
            int st = sched_lower_for(s, &n, &err);
            ok(!st || (k == 3 && strstr(err.text, "outstanding")),
               "%s on %d ranks lowers for a model with skips and shared parameters%s%s",
               config[i].name, config[i].p, st ? ": " : "", st ? err.text : "");
            if (!st) { /* printed, read and checked as a complete file */
                char *text = sched_text(s, NULL);
                Schedule *c = parse(text);
                SchedNeeds only = {edge, 6, param, 4, 0, 0, 0, 0, k, NULL};
                ok(c && !sched_lower_for(c, &only, &err) && rows_are(c, text), "%s: and as a file",
                   config[i].name);
                sched_free(c);
                free(text);
            }
            sched_free(s);
        }
    /* A complete file of another tool, for a model that shares a parameter. */
    Schedule *s = gen("1f1b", 2, 1, 1);
    sched_lower(s, 0, &err);
    SchedNeeds n = {NULL, 0, (const SchedParam[]){{0, 1, 0, 1}}, 1, 0, 0, 0, 0, 0, NULL};
    ok(!sched_lower_for(s, &n, &err) &&
           rows_are(s, "0SEND_P@1,0F0,0SEND_F0,0RECV_B0,0B0,0WAIT_SEND_F0,0RECV_GP@1,0REDUCE_GRAD,"
                       "0WAIT_REDUCE_GRAD\n"
                       "1RECV_P@0,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1WAIT_"
                       "SEND_B0,1SEND_GP@0"),
       "a complete file gets its parameters");
    sched_free(s);
    /* A transmitted and a replicated parameter of the same two stages: one FIFO from 1 to 0. */
    n.param = (const SchedParam[]){{0, 1, 0, 1}, {0, 1, 1, 1}};
    n.n_param = 2;
    s = parse("0SEND_P@1,0F0,0SEND_F0,0RECV_B0,0B0,0RECV_GP@1,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n"
              "1RECV_P@0,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1SEND_GP@0,1WAIT_REDUCE_GRAD");
    ok(sched_verify(s, NULL, 0, n.param, 2, 1, &err) == SCHED_EREFUSED &&
           strstr(err.text, "cell 6 (0REDUCE_GRAD): ") && strstr(err.text, "what 0RECV_GP@1"),
       "parameters' messages are received in the order of sending: %s", err.text);
    ok(!sched_lower_for(s, &n, &err) &&
           rows_are(s, "0SEND_P@1,0F0,0SEND_F0,0RECV_B0,0B0,0WAIT_SEND_F0,0RECV_GP@1,0REDUCE_GRAD,"
                       "0WAIT_REDUCE_GRAD\n"
                       "1RECV_P@0,1RECV_F0,1F0,1B0,1SEND_B0,1SEND_GP@0,1REDUCE_GRAD,1WAIT_REDUCE_"
                       "GRAD,1WAIT_SEND_B0"),
       "a file's sums move behind the messages that they would overtake");
    sched_free(s);
}

static void budget(void)
{
    for (int k = 1; k <= 3; k++) {
        Schedule *s = gen("interleaved1f1b", 4, 2, 8);
        int st = sched_lower(s, 3, &err) || sched_budget(s, k, &err), worst = 0;
        for (int r = 0; !st && r < 4; r++) {
            int out = 0;
            for (int i = 0; i < s->row[r].n; i++) {
                int t = s->row[r].a[i].type;
                out += (t == SA_SEND_F || t == SA_SEND_B) -
                       (t == SA_WAIT_SEND_F || t == SA_WAIT_SEND_B);
                worst = out > worst ? out : worst;
            }
        }
        ok(st ? k == 1 : worst <= k && !sched_verify(s, NULL, 0, NULL, 0, 1, &err),
           "a budget of %d sends%s", k, st ? " is refused" : "");
        sched_free(s);
    }
}

int main(void)
{
    fingerprints();
    residency();
    samples();
    aligned_forwards();
    spellings();
    pipeoffload();
    copies();
    forwards();
    generators();
    parser();
    passes();
    lower_for();
    budget();
    return tap_done();
}
