/*
 * beats.c - in: what a rank tells of itself; out: what its peers have told, and nobody else.
 */
#include "beats.h"

#include "core/core.h"

#include <linux/filter.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { KEY = 16, HOST = 64 };

typedef struct {
    struct sockaddr_storage at;
    socklen_t bytes; /* 0: it has no address that others could reach */
    unsigned char key[KEY];
} Address;

typedef struct {
    unsigned char key[KEY];
    int32_t rank, unused;
    char beat[BEATS_BYTES];
} Datagram;

struct Beats {
    int rank, ranks, socket;
    Address *address;    /* of all ranks */
    char (*host)[HOST];
};

/* ---- the address in use ---- */

/* From where a datagram to that machine would leave. */
static int towards(const char *host, Address *mine)
{
    struct addrinfo want = {.ai_socktype = SOCK_DGRAM}, *got = NULL;
    int found = 0;
    if (getaddrinfo(host, "9", &want, &got))
        return 0;
    for (const struct addrinfo *a = got; a && !found; a = a->ai_next) {
        int s = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        mine->bytes = sizeof mine->at;
        found = s >= 0 && !connect(s, a->ai_addr, a->ai_addrlen) &&
                !getsockname(s, (struct sockaddr *)&mine->at, &mine->bytes);
        if (s >= 0)
            close(s);
    }
    freeaddrinfo(got);
    return found;
}

static void set_port(Address *a, in_port_t port)
{
    if (a->at.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&a->at)->sin6_port = port;
    else
        ((struct sockaddr_in *)&a->at)->sin_port = port;
}

/* The first rank of another machine shows it: every rank sends to the first ones, and these need
 * any. */
static void find(const Beats *b, const Group *g, Address *mine)
{
    for (int k = 0; k < b->ranks && g->host_ranks < g->ranks && !mine->bytes; k++)
        if (strcmp(b->host[k], b->host[b->rank]) != 0 && !towards(b->host[k], mine))
            mine->bytes = 0;
    if (mine->bytes)
        return;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    memcpy(&mine->at, &here, sizeof here);
    mine->bytes = sizeof here;
}

static int open_socket(Beats *b, Address *mine)
{
    b->socket = socket(mine->at.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    set_port(mine, 0);
    return b->socket >= 0 && !bind(b->socket, (struct sockaddr *)&mine->at, mine->bytes) &&
           !getsockname(b->socket, (struct sockaddr *)&mine->at, &mine->bytes);
}

/* What does not begin with the key never enters the socket's buffer, which a flood would fill. */
static void keep_out(const Beats *b)
{
    enum { WORDS = KEY / 4, UDP = 8, DROP = 2 * WORDS + 1 };
    struct sock_filter code[DROP + 1];
    struct sock_fprog program = {.len = DROP + 1, .filter = code};
    for (int i = 0; i < WORDS; i++) {
        uint32_t word;
        memcpy(&word, b->address[0].key + 4 * i, sizeof word);
        code[2 * i] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, UDP + 4 * (uint32_t)i);
        code[2 * i + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ntohl(word), 0,
                                                       (uint8_t)(DROP - 2 * i - 2));
    }
    code[DROP - 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, UINT32_MAX);
    code[DROP] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
    /* without: beats_hear() drops them, and says so */
    setsockopt(b->socket, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

/* ---- opening ---- */

PpStatus beats_open(Beats **out, Group *g)
{
    char host[HOST] = "";
    Address mine = {.bytes = 0};
    Beats *b = *out = calloc(1, sizeof *b);
    if (b) {
        *b = (Beats){g->rank, g->ranks, -1, zeroed(g->ranks, sizeof *b->address),
                     zeroed(g->ranks, HOST)};
        gethostname(host, sizeof host - 1);
    }
    TRY(group_agree(g, b && b->address && b->host ? PP_OK : pp_no_memory()));
    TRY(g->op->gather(g, host, HOST, b->host));
    find(b, g, &mine);
    int opened = open_socket(b, &mine) && getrandom(mine.key, KEY, 0) == KEY;
    TRY(group_agree(g, opened ? PP_OK
                              : pp_fail(PP_ERR_IO, "the watchdog has no socket; --watchdog 0 runs "
                                                   "without it")));
    TRY(g->op->gather(g, &mine, sizeof mine, b->address));
    keep_out(b);
    return PP_OK;
}

void beats_close(Beats *b)
{
    if (!b)
        return;
    if (b->socket >= 0)
        close(b->socket);
    free(b->address), free(b->host), free(b);
}

const char *beats_host(const Beats *b, int rank) { return b->host[rank]; }

/* ---- beats ---- */

void beats_send(const Beats *b, const void *beat, size_t bytes)
{
    static _Thread_local Datagram d;
    memcpy(d.key, b->address[0].key, KEY);
    d.rank = b->rank;
    memcpy(d.beat, beat, bytes);
    for (int k = 0; k < BEATS_HEARERS && k < b->ranks; k++)
        if (k != b->rank)
            sendto(b->socket, &d, offsetof(Datagram, beat) + bytes, MSG_DONTWAIT | MSG_NOSIGNAL,
                   (const struct sockaddr *)&b->address[k].at, b->address[k].bytes);
}

static int is_from(const Address *a, const struct sockaddr_storage *from)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&a->at,
                             *of = (const struct sockaddr_in *)from;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&a->at,
                              *of6 = (const struct sockaddr_in6 *)from;
    if (a->at.ss_family != from->ss_family)
        return 0;
    if (from->ss_family == AF_INET6)
        return v6->sin6_port == of6->sin6_port &&
               !memcmp(&v6->sin6_addr, &of6->sin6_addr, sizeof v6->sin6_addr);
    return v4->sin_port == of->sin_port && v4->sin_addr.s_addr == of->sin_addr.s_addr;
}

int beats_hear(const Beats *b, void (*take)(void *of, int rank, const void *beat, size_t bytes),
               void *of)
{
    static _Thread_local Datagram d;
    struct sockaddr_storage from;
    int most = 64 * b->ranks, others = 0; /* of peers there are a few each */
    for (int i = 0; i < most; i++) {
        socklen_t length = sizeof from;
        memset(&from, 0, sizeof from);
        ssize_t n = recvfrom(b->socket, &d, sizeof d, MSG_DONTWAIT, (struct sockaddr *)&from,
                             &length);
        if (n < 0)
            return others;
        if (n < (ssize_t)offsetof(Datagram, beat) || memcmp(d.key, b->address[0].key, KEY) ||
            d.rank < 0 || d.rank >= b->ranks || !is_from(&b->address[d.rank], &from))
            others = 1;
        else
            take(of, d.rank, d.beat, (size_t)n - offsetof(Datagram, beat));
    }
    return 1;
}
