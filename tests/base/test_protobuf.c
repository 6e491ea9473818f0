/* test_protobuf.c - the wire format against the examples of its specification, and broken bytes;
 * 16-bit floats against IEEE 754. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/protobuf.h"
#include "tap.h"

static bool holds(const PbMessage *m, const char *bytes, size_t n)
{
    return m->n == n && !memcmp(m->at, bytes, n);
}

static void test_write(Arena *a)
{
    PbMessage m = {.a = a}, inner = {.a = a};
    pb_put_int(&m, 1, 150);
    ok(holds(&m, "\x08\x96\x01", 3), "Test1 {a: 150} is 08 96 01");
    m.n = 0;
    pb_put_string(&m, 2, "testing");
    ok(holds(&m, "\x12\x07testing", 9), "Test2 {b: \"testing\"} is 12 07 and the letters");
    m.n = 0;
    pb_put_int(&inner, 1, 150);
    pb_put_message(&m, 3, &inner);
    ok(holds(&m, "\x1a\x03\x08\x96\x01", 5), "Test3 {c: {a: 150}} is 1a 03 08 96 01");
    m.n = 0;
    pb_put_int(&m, 1, -2);
    ok(holds(&m, "\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11), "-2 takes ten bytes");
}

static PbSpan span(const char *bytes, size_t n)
{
    return (PbSpan){(const uint8_t *)bytes, (const uint8_t *)bytes + n, false};
}

static void test_read(void)
{
    PbField f;
    PbSpan s = span("\x08\x96\x01\x1a\x02hi\x25\1\2\3\4\x29" "12345678", 21);
    ok(pb_next(&s, &f) && f.number == 1 && f.value == 150 && f.end - f.start == 3, "a number");
    ok(pb_next(&s, &f) && f.number == 3 && f.body.end - f.body.at == 2 && *f.body.at == 'h',
       "bytes");
    ok(pb_next(&s, &f) && f.number == 4 && f.end - f.start == 5, "four bytes");
    ok(pb_next(&s, &f) && f.number == 5 && f.end - f.start == 9, "eight bytes");
    ok(!pb_next(&s, &f) && !s.broken, "the end");
    static const struct { const char *name, *bytes; size_t n; } bad[] = {
        {"a key that does not end", "\xff", 1},
        {"a number that does not end", "\x08\x80", 2},
        {"a number of eleven bytes", "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12},
        {"bytes past the end", "\x12\x03hi", 4},
        {"a length near 2^64", "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01hi", 13},
        {"eight bytes of which three are there", "\x29" "123", 4},
        {"four bytes of which three are there", "\x25" "123", 4},
        {"a group", "\x0b", 1},
        {"field 2^32 + 1", "\x88\x80\x80\x80\x80\x01\x01", 7},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        s = span(bad[i].bytes, bad[i].n);
        ok(!pb_next(&s, &f) && s.broken && s.at <= s.end, "broken: %s", bad[i].name);
    }
    uint64_t v[2], n = 0;
    ok(pb_packed((const uint8_t *)"\x96\x01\x05", 3, v, &n) && n == 2 && v[0] == 150 && v[1] == 5,
       "a packed array");
    ok(!pb_packed((const uint8_t *)"\x96\x81", 2, NULL, &n),
       "broken: a packed array that ends inside a number");
}

static void test_half(void)
{
    static const struct { uint16_t half; double value;
    } known[] = {
        {0x3c00, 1},
        {0xc000, -2},
        {0x7bff, 65504},
        {0x0400, 0x1p-14},
        {0x0001, 0x1p-24},
        {0x8001, -0x1p-24},
        {0x03ff, 1023 * 0x1p-24},
        {0x3555, 1365 * 0x1p-12},
        {0, 0},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        ok(fabs(half_to_double(known[i].half) - known[i].value) <= 0 &&
               half_of_double(known[i].value) == known[i].half,
           "half %04x is %a", known[i].half, known[i].value);
    ok(signbit(half_to_double(0x8000)) != 0, "minus zero");
    ok(isinf(half_to_double(0x7c00)) && isnan(half_to_double(0x7e00)), "infinity, not a number");
    ok(half_of_double(65520) == 0x7c00 && half_of_double(65519) == 0x7bff,
       "rounds to infinity from 65520 on");
    ok(half_of_double(1 + 0x1p-11) == 0x3c00 && half_of_double(1 + 3 * 0x1p-11) == 0x3c02,
       "ties go to even");
    int wrong = 0;
    for (uint32_t h = 0; h < 0x10000; h++)
        wrong += (h & 0x7fff) <= 0x7c00 && half_of_double(half_to_double((uint16_t)h)) != h;
    ok(wrong == 0, "every half comes back");
    wrong = 0;
    for (uint32_t h = 0; h < 0x10000; h++)
        wrong += (h & 0x7fff) <= 0x7f80 && bfloat_of_double(bfloat_to_double((uint16_t)h)) != h;
    ok(wrong == 0, "every bfloat comes back");
    ok(fabs(bfloat_to_double(0x4049) - 3.140625) <= 0 && bfloat_of_double(3.14159265) == 0x4049,
       "bfloat 4049 is 3.140625");
}

int main(void)
{
    Arena *a = arena_new();
    test_write(a);
    test_read();
    test_half();
    arena_free(a);
    return tap_done();
}
