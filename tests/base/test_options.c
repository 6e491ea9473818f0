/* test_options.c - command lines in every spelling that GNU allows, and what is said of those it
 * does not; did-you-mean. */
#include <string.h>

#include "base/cli/nearest.h"
#include "base/cli/options.h"
#include "tap.h"

static const OptionName table[] = {
    {"output", "DIR", 'o', NULL},    {"quiet", NULL, 'q', NULL},       {"verbose", NULL, 'v', NULL},
    {"param", "NAME=FILE", 0, NULL}, {"params", "copy|link", 0, NULL}, {NULL, NULL, 0, NULL},
};

/* What a line of at most 15 words reads as: "output=DIR quiet 'operand' !wrong". */
static const char *read_line(const char *line)
{
    static char said[512], words[512];
    char *argv[16] = {words}, *name = words;
    int argc = 1;
    snprintf(words, sizeof words, "x %s", line);
    for (strtok(words, " "); argc < 15 && (name = strtok(NULL, " ")); argc++)
        argv[argc] = name;
    said[0] = 0;
    OptionReader r = option_reader(argc, argv, table, sizeof table / sizeof *table);
    for (int k; (k = option_next(&r)) != OPTION_END;) {
        size_t n = strlen(said);
        const char *space = n ? " " : "";
        if (k == OPTION_WRONG) {
            snprintf(said + n, sizeof said - n, "%s!%s", space, r.wrong);
            break;
        }
        if (k == OPTION_OPERAND)
            snprintf(said + n, sizeof said - n, "%s'%s'", space, r.value);
        else
            snprintf(said + n, sizeof said - n, "%s%s%s%s", space, table[k].name,
                     r.value ? "=" : "", r.value ? r.value : "");
    }
    return said;
}

static void reads(const char *line, const char *want)
{
    const char *got = read_line(line);
    if (!ok(!strcmp(got, want), "%s", line))
        printf("# got  %s\n# want %s\n", got, want);
}

int main(void)
{
    reads("", "");
    reads("--output=a --quiet b", "output=a quiet 'b'");
    reads("b --output a c", "'b' output=a 'c'");
    reads("-o a -ob -qvo c -qvoc",
          "output=a output=b quiet verbose output=c quiet verbose output=c");
    reads("--output=a=b -o --quiet", "output=a=b output=--quiet");
    reads("-q --output=", "quiet !option '--output' needs a value: DIR");
    reads("--out=a --verb --param=x", "output=a verbose param=x");
    reads("- -q -- -q --output --", "'-' quiet '-q' '--output' '--'");
    reads("--par x", "!option '--par' is ambiguous: '--param' or '--params'?");
    reads("--output", "!option '--output' needs a value: DIR");
    reads("-q -o", "quiet !option '--output' needs a value: DIR");
    reads("--quiet=1", "!option '--quiet' takes no value");
    reads("-qx", "quiet !invalid option -- 'x'");
    reads("--ouptut=a", "!unrecognized option '--ouptut'; did you mean '--output'?");
    reads("--something", "!unrecognized option '--something'");
    reads("--=a", "!unrecognized option '--'");

    static const char *const names[] = {"1f1b", NULL, "gpipe", "GPipeline"};
    const char *const *n = names;
    ok(nearest_name("gpipw", n, 4) == names[2], "one letter is wrong");
    ok(nearest_name("GPIPE", n, 4) == names[2], "capitals do not count");
    ok(nearest_name("zero-bubble", n, 4) == NULL, "nothing is near");
    ok(nearest_name("", n, 0) == NULL, "nothing of nothing");
    static const char *const block[] = {"h",   "h.0", "h.1.mlp", "h.2", "h.9", "h.10",
                                        "h.4", "wpe", "a1.b1",   "a1.b7"};
    n = block;
    ok(nearest_name("h.12", n, 10) == block[5], "of names with other numbers the nearest number");
    ok(nearest_name("H.8", n, 10) == block[4], "below as above");
    ok(nearest_name("h.123", n, 4) == block[3], "however many digits it has");
    ok(nearest_name("h.x", n, 10) == block[1], "what is no number is a letter");
    ok(nearest_name("a1.b9", n, 10) == block[9], "each number by itself");

    static const char *const none[] = {"", "K", "1KB", "0", "-1K", "1Q", "nan", "9999999999T"};
    int64_t bytes = 0;
    ok(option_bytes("150k", &bytes) && bytes == 153600, "k and K are 1024");
    ok(option_bytes("1.5T", &bytes) && bytes == INT64_C(1649267441664), "T, and halves");
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        ok(!option_bytes(none[i], &bytes), "'%s' is no number of bytes", none[i]);
    return tap_done();
}
