/*
 * test_memory.c - arenas: zeroed, aligned, given up with what they stand within, refusing sizes
 * that overflow; vectors and texts that grow; maps that lose no key; and an error that leaves its phase with
 * the right exit code.
 */
#include <malloc.h>
#include <stdint.h>
#include <string.h>

#include "base/base.h"
#include "tap.h"

static bool zero(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return false;
    return true;
}

static void test_arena(void)
{
    Arena *a = arena_new(), *inner = arena_within(a), *early = arena_within(a);
    bool good = true;
    uint64_t sum = 0;
    unsigned char *kept[200];
    for (size_t i = 0; i < 200; i++) {
        size_t n = i * i * 7 % 9000;
        kept[i] = arena_alloc(i % 2 ? a : inner, n);
        good &= (uintptr_t)kept[i] % 16 == 0 && zero(kept[i], n);
        memset(kept[i], (int)i, n);
    }
    for (size_t i = 0; i < 200; i++)
        for (size_t k = 0; k < i * i * 7 % 9000; k++)
            sum += kept[i][k] != (unsigned char)i;
    ok(good, "every piece is aligned and zero");
    ok(sum == 0, "and none lies in another");
    ok(!strcmp(arena_printf(early, "%d-%s", 42, "x"), "42-x") &&
           !strcmp(arena_strndup(early, "abcdef", 3), "abc"),
       "texts");
    arena_free(early);
    arena_free(a);                                      /* and inner, as the sanitizers see */
}

/* Memory by its length, not by its square. */
static void test_text(void)
{
    enum { PIECES = 50000 };
    Arena *a = arena_new();
    Text t = {.a = a};
    ok(!strcmp(text_all(&t), ""), "a text without anything is empty");
    struct mallinfo2 before = mallinfo2();
    for (int i = 0; i < PIECES; i++)
        text_add(&t, "%s%05d", i ? "," : "", i);
    struct mallinfo2 after = mallinfo2();
    size_t took = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;
    ok(t.n == 6 * PIECES - 1 && !memcmp(text_all(&t) + 6 * 31415, "31415,31416,", 12),
       "it holds all pieces in order");
    ok(took < 10 * t.n, "in %zu bytes for %zu", took, t.n);
    arena_free(a);
}

/* What is not seen, or turns around what is, is shown by its bytes; letters of any language stay. */
static void test_escape(void)
{
    static const char *const unseen[] = {
        "\xe2\x80\xaa", "\xe2\x80\xae", "\xe2\x81\xa6", "\xe2\x81\xa9", "\xe2\x80\x8e",
        "\xe2\x80\x8f", "\xd8\x9c",     "\xe2\x80\x8b", "\xe2\x80\xa8", "\xef\xbb\xbf",
        "\xc2\xad",     "\xf3\xa0\x80\x81", "\x1b[2J", "\xc2\x9b",
    };
    Arena *a = arena_new();
    for (size_t i = 0; i < sizeof unseen / sizeof *unseen; i++) {
        const char *shown = diag_escape(a, arena_printf(a, "a%sb", unseen[i]));
        bool plain = true;
        for (const char *p = shown; *p; p++)
            plain &= *p >= 0x20 && *p < 0x7f;
        ok(plain && strstr(shown, "\\x"), "%s", shown);
    }
    static const char letters[] = "\xc3\xa9\xd9\x85\xe5\xb1\xa4\xf0\x9f\x99\x82";
    ok(!strcmp(diag_escape(a, letters), letters), "%s stays", letters);
    arena_free(a);
}

static void test_vector(void)
{
    Arena *a = arena_new();
    VEC(uint32_t) v = {0};
    bool good = true;
    for (uint32_t i = 0; i < 5000; i++)
        vec_push(a, &v, i * 3);
    for (uint32_t i = 0; i < 5000; i++)
        good &= v.at[i] == i * 3;
    ok(good && v.n == 5000, "a vector holds what was pushed");
    vec_reserve(a, &v, 9000);
    ok(v.cap == 9000 && v.n == 5000 && v.at[4999] == 14997 &&
           zero((unsigned char *)(v.at + 5000), 4000 * sizeof *v.at),
       "room for more is zero");
    arena_free(a);
}

static void test_maps(void)
{
    Arena *a = arena_new();
    StrMap names = {.arena = a};
    IdMap ids = {0};
    bool good = true;
    ok(strmap_get(&names, "x") == NONE && idmap_get(&ids, 7) == NONE, "empty maps have nothing");
    for (uint32_t i = 0; i < 3000; i++) {
        uint32_t *at = strmap_at(&names, arena_printf(a, "key%u", i)),
                 *id = idmap_at(a, &ids, (uint64_t)i << 32 | (i % 7));
        good &= *at == NONE && *id == NONE;
        *at = *id = i;
    }
    for (uint32_t i = 0; i < 3000; i++)
        good &= strmap_get(&names, arena_printf(a, "key%u", i)) == i &&
                idmap_get(&ids, (uint64_t)i << 32 | (i % 7)) == i;
    ok(good && names.n == 3000 && ids.n == 3000, "3,000 keys are found, each once");
    ok(strmap_get(&names, "key3000") == NONE && strmap_get(&names, "") == NONE &&
           idmap_get(&ids, 3000) == NONE,
       "and no others");
    *strmap_at(&names, "key5") = 77;
    ok(strmap_get(&names, "key5") == 77 && names.n == 3000, "a key that is there is changed");
    arena_free(a);
}

static void too_much(void *arg)
{
    (void)arena_calloc(arg, SIZE_MAX / 2, 3);
}

static void refused(void *arg)
{
    diag_hint("%s", (const char *)arg);
    diag_fatal(EXIT_USAGE, WHERE_FILE("here"), "no");
}

static void nothing(void *arg) { (void)arg; }

static void nested(void *arg)
{
    int *code = arg;
    *code = diag_run(refused, (void *)(uintptr_t) "inside");
    diag_fatal(EXIT_IO, WHERE_FILE("there"), "not either");
}

static void test_failures(void)
{
    Arena *a = arena_new();
    int inner = -1;
    FILE *to = tmpfile();
    FILE *before = to ? diag_to(to) : NULL;
    ok(diag_run(too_much, a) == EXIT_IO, "a size that overflows is refused");
    ok(diag_run(nothing, NULL) == 0, "a phase without an error");
    ok(diag_run(refused, (void *)(uintptr_t) "hint") == EXIT_USAGE,
       "one with an error ends with its code");
    ok(diag_run(nested, &inner) == EXIT_IO && inner == EXIT_USAGE,
       "the innermost phase is the one that is left");
    if (to) {
        diag_to(before);
        fclose(to);
    }
    arena_free(a);
}

int main(void)
{
    test_arena();
    test_text();
    test_escape();
    test_vector();
    test_maps();
    test_failures();
    return tap_done();
}
