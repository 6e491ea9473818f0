/*
 * make_tokens.c - token data for a byte-level language model, without Python.
 *
 * In: a text file (or, with --vocab N and no file, a fixed random stream).  Out: x.npy and
 * target.npy, int64 [rows, seq]; target is x shifted by one token.  Rows are consecutive windows of
 * the text, `stride` bytes apart.
 */
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void write_npy(const char *path, long rows, long seq, long stride, const int64_t *token)
{
    FILE *f = fopen(path, "wb");
    char head[128];
    memset(head, ' ', sizeof head);
    memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
    int n = snprintf(head + 10, sizeof head - 11,
                     "{'descr': '<i8', 'fortran_order': False, 'shape': (%ld, %ld), }", rows, seq);
    head[10 + n] = ' ';
    head[127] = '\n';
    int bad = !f || fwrite(head, 1, sizeof head, f) != sizeof head;
    for (long r = 0; !bad && r < rows; r++)
        bad = fwrite(token + r * stride, sizeof *token, (size_t)seq, f) != (size_t)seq;
    if (bad || fclose(f)) {
        perror(path);
        exit(3);
    }
}

static long number(const char *name, const char *text)
{
    char *end;
    long v = strtol(text, &end, 10);
    if (*end || v < 1 || v > 1000000000) {
        fprintf(stderr, "make_tokens: --%s %s: not a number from 1 to 1000000000\n", name, text);
        exit(2);
    }
    return v;
}

static void usage(FILE *to)
{
    fprintf(to,
            "usage: make_tokens [--rows N] [--seq N] [--stride N] [--vocab N] [-o DIR] [TEXT]\n"
            "Writes DIR/x.npy and DIR/target.npy (default: here), rows of TEXT's bytes or, without "
            "it,\nof a fixed random stream: 32 of 64, of 256 tokens.\n");
}

static void random_stream(int64_t *token, size_t n, long vocab)
{
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i < n; i++) { /* xorshift64 */
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        token[i] = (int64_t)(state % (uint64_t)vocab);
    }
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"rows", 1, 0, 'r'},
                                            {"seq", 1, 0, 's'},
                                            {"vocab", 1, 0, 'v'},
                                            {"stride", 1, 0, 't'},
                                            {"help", 0, 0, 'h'},
                                            {0, 0, 0, 0}};
    long rows = 32, seq = 64, vocab = 256, stride = 0;
    const char *dir = ".";
    for (int c; (c = getopt_long(argc, argv, "o:", options, NULL)) != -1;)
        switch (c) {
        case 'r': rows = number("rows", optarg); break;
        case 's': seq = number("seq", optarg); break;
        case 'v': vocab = number("vocab", optarg); break;
        case 't': stride = number("stride", optarg); break;
        case 'o': dir = optarg; break;
        case 'h': usage(stdout); return 0;
        default: usage(stderr); return 2;
        }
    stride = stride ? stride : seq;
    if (vocab < 2 || rows > 100000000 / (seq > stride ? seq : stride)) {
        fprintf(stderr, "make_tokens: %s\n",
                vocab < 2 ? "--vocab: at least 2" : "--rows of --seq or --stride: at most 10^8 tokens");
        return 2;
    }
    size_t want = (size_t)(rows * stride + seq + 1);
    int64_t *token = malloc(want * sizeof *token);
    if (!token)
        return 3;
    if (optind < argc) {
        FILE *f = fopen(argv[optind], "rb");
        size_t n = 0;
        for (int c; f && n < want && (c = getc(f)) != EOF;)
            token[n++] = c % vocab;
        if (!f || ferror(f)) {
            perror(argv[optind]);
            return 3;
        }
        if (n < (size_t)(stride + seq + 1)) {
            fprintf(stderr, "make_tokens: %s: has %zu bytes, needs %ld\n", argv[optind], n,
                    stride + seq + 1);
            return 3;
        }
        fclose(f);
        for (size_t i = n; i < want; i++)               /* a short text starts again */
            token[i] = token[i - n];
    } else {
        random_stream(token, want, vocab);
    }
    char path[4096];
    snprintf(path, sizeof path, "%s/x.npy", dir);
    write_npy(path, rows, seq, stride, token);
    snprintf(path, sizeof path, "%s/target.npy", dir);
    write_npy(path, rows, seq, stride, token + 1);
    free(token);
    return 0;
}
