/* SHA-256 against FIPS 180-4's examples, in one piece and in pieces of all lengths. */
#include "base/file/sha256.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

static int is_digest(const void *data, size_t n, size_t piece, const char *want)
{
    Sha256 s;
    char text[SHA256_TEXT];
    const char *p = data;
    sha256_start(&s);
    for (size_t at = 0; at < n; at += piece)
        sha256_add(&s, p + at, n - at < piece ? n - at : piece);
    sha256_end(&s, text);
    return !strcmp(text, want);
}

int main(void)
{
    static const struct {
        const char *text, *digest;
    } cases[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrl"
         "mno"
         "pqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t piece = 1; piece < 70; piece += 34)
            ok(is_digest(cases[i].text, strlen(cases[i].text), piece, cases[i].digest),
               "%zu bytes, %zu at a time", strlen(cases[i].text), piece);
    enum { MILLION = 1000000 };
    char *a = malloc(MILLION);
    int same = a != NULL;
    memset(a, 'a', MILLION);
    for (size_t piece = 61; piece < 700 && same; piece += 63)
        same = is_digest(a, MILLION, piece,
                         "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    ok(same, "a million bytes, in pieces");
    free(a);
    return tap_done();
}
