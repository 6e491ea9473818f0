/*
 * inject.c - runs a program and lets one of its system calls go wrong.
 *
 *   inject [--at N] [--fault EIO|ENOSPC|EDQUOT|EINTR|ENOMEM|short|kill] [--calls write|read|both]
 *          [--said FILE] -- COMMAND...
 *
 * Calls that change files (write, rename, fsync, an open that may create, ...; --calls read: those
 * that read them) are counted over all threads and processes of the command; the Nth gets the
 * fault: the error, half of what it was to write or read, or SIGKILL to its process before it is
 * done.  Of standard error and of what the loader reads nothing is counted.  Without --at nothing
 * goes wrong.  FILE gets the number of calls and what the one was.  The exit status is the
 * command's, 128 + the signal's number of one that was killed; 125: this cannot be done here.
 *
 * How: a seccomp filter hands these calls to this process (SECCOMP_RET_USER_NOTIF, Linux 5.6).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CANNOT = 125, MOST = 1 << 20 };

typedef struct { int number; const char *name; enum { WRITES, READS, OPENS, CHANGES } kind; } Call;
static const Call calls[] = {
#define CALL(name, kind) {SYS_##name, #name, kind}
    CALL(write, WRITES), CALL(pwrite64, WRITES), CALL(writev, CHANGES), CALL(fsync, CHANGES),
    CALL(fdatasync, CHANGES), CALL(ftruncate, CHANGES), CALL(renameat2, CHANGES),
    CALL(linkat, CHANGES), CALL(symlinkat, CHANGES), CALL(unlinkat, CHANGES),
    CALL(mkdirat, CHANGES), CALL(fallocate, CHANGES), CALL(openat, OPENS), CALL(read, READS),
    CALL(pread64, READS), CALL(renameat, CHANGES),
#ifdef SYS_rename
    CALL(rename, CHANGES), CALL(unlink, CHANGES), CALL(rmdir, CHANGES), CALL(mkdir, CHANGES),
    CALL(link, CHANGES), CALL(symlink, CHANGES), CALL(open, OPENS), CALL(creat, CHANGES),
#endif
};
enum { N_CALLS = sizeof calls / sizeof *calls };

static const struct { const char *name; int error; } errors[] = {
    {"EIO", EIO}, {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EINTR", EINTR}, {"ENOMEM", ENOMEM},
};

static struct {
    long at, seen;
    int error, half, kill, writes, reads;
    char what[400];
} fault = {.writes = 1};

static _Noreturn void cannot(const char *what)
{
    fprintf(stderr, "inject: %s: %s\n", what, strerror(errno));
    exit(CANNOT);
}

/* ---- the command's side ---- */

static int listen_to_calls(void)
{
    struct sock_filter code[N_CALLS + 4];
    int n = 0;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                             offsetof(struct seccomp_data, nr));
    for (int i = 0; i < N_CALLS; i++)
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
                                                 (unsigned)calls[i].number,
                                                 (uint8_t)(N_CALLS - i), 0);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
    struct sock_fprog program = {.len = (unsigned short)n, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                        &program);
}

static void send_descriptor(int to, int fd)
{
    char byte = 0, room[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec io = {&byte, 1};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = room,
                       .msg_controllen = sizeof room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
                          .cmsg_len = CMSG_LEN(sizeof fd)};
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    sendmsg(to, &m, 0);
}

static int receive_descriptor(int from)
{
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec io = {&byte, 1};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = room,
                       .msg_controllen = sizeof room};
    int fd = -1;
    if (recvmsg(from, &m, 0) == 1 && CMSG_FIRSTHDR(&m))
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    return fd;
}

/* ---- one call ---- */

static int memory_of(pid_t pid, uint64_t address, void *to, size_t n, int write)
{
    struct iovec mine = {to, n}, its = {(void *)(uintptr_t)address, n};
    return (write ? process_vm_writev(pid, &mine, 1, &its, 1, 0)
                  : process_vm_readv(pid, &mine, 1, &its, 1, 0)) == (ssize_t)n;
}

static void path_of(pid_t pid, uint64_t address, char *to, size_t n)
{
    struct iovec mine = {to, n - 1}, its = {(void *)(uintptr_t)address, n - 1};
    /* the string may end shortly before a page that is not there */
    ssize_t got = process_vm_readv(pid, &mine, 1, &its, 1, 0);
    for (size_t less = n / 2; got < 0 && less > 8; less /= 2) {
        mine.iov_len = its.iov_len = less;
        got = process_vm_readv(pid, &mine, 1, &its, 1, 0);
    }
    to[got < 0 ? 0 : got] = 0;
}

/* A copy of the descriptor, as this process may use it. */
static int borrow(pid_t pid, uint64_t fd)
{
    int its = (int)syscall(SYS_pidfd_open, pid, 0);
    int got = its < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, its, (int)fd, 0);
    if (its >= 0)
        close(its);
    return got;
}

static int is_file(pid_t pid, uint64_t fd)
{
    char link[64], path[300];
    snprintf(link, sizeof link, "/proc/%d/fd/%d", (int)pid, (int)fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    return path[0] == '/' && strncmp(path, "/dev/", 5) && strncmp(path, "/proc/", 6) &&
           strncmp(path, "/sys/", 5) && !strstr(path, "/lib/");
}

/* Half of it is done; the number of bytes, or -1. */
static int64_t do_half(const Call *c, const struct seccomp_notif *q)
{
    size_t n = (size_t)q->data.args[2] / 2;
    pid_t pid = (pid_t)q->pid;
    static char bytes[MOST];
    int fd = n > 0 ? borrow(pid, q->data.args[0]) : -1, at = c->number == SYS_pwrite64 ||
                                                             c->number == SYS_pread64;
    int64_t done = -1;
    n = n < MOST ? n : MOST;
    if (fd < 0)
        return -1;
    if (c->kind == WRITES && memory_of(pid, q->data.args[1], bytes, n, 0))
        done = at ? pwrite(fd, bytes, n, (off_t)q->data.args[3]) : write(fd, bytes, n);
    else if (c->kind == READS) {
        done = at ? pread(fd, bytes, n, (off_t)q->data.args[3]) : read(fd, bytes, n);
        if (done > 0 && !memory_of(pid, q->data.args[1], bytes, (size_t)done, 1))
            done = -1;
    }
    close(fd);
    return done;
}

static int counts(const Call *c, const struct seccomp_notif *q)
{
    uint64_t flags;
    switch (c->kind) {
    case WRITES: return fault.writes && q->data.args[0] != 2;
    case READS: return fault.reads && is_file((pid_t)q->pid, q->data.args[0]);
    case OPENS:
        flags = q->data.args[c->number == SYS_openat ? 2 : 1];
        return fault.writes && (flags & (O_CREAT | O_WRONLY | O_RDWR | O_TRUNC)) != 0;
    default: return fault.writes;
    }
}

static void describe(const Call *c, const struct seccomp_notif *q)
{
    char path[300] = "";
    const __u64 *a = q->data.args;
    int at = strstr(c->name, "at") != NULL && c->number != SYS_pwrite64;
    if (c->kind == OPENS || (c->kind == CHANGES && c->number != SYS_fsync &&
                             c->number != SYS_fdatasync && c->number != SYS_writev))
        path_of((pid_t)q->pid, a[at ? 1 : 0], path, sizeof path);
    else {
        char link[64];
        snprintf(link, sizeof link, "/proc/%d/fd/%d", (int)q->pid, (int)a[0]);
        ssize_t n = readlink(link, path, sizeof path - 1);
        path[n > 0 ? n : 0] = 0;
    }
    snprintf(fault.what, sizeof fault.what, "%s %s", c->name, path);
}

static void answer(int listener, const struct seccomp_notif *q)
{
    struct seccomp_notif_resp r = {.id = q->id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
    const Call *c = NULL;
    for (int i = 0; i < N_CALLS; i++)
        if (calls[i].number == q->data.nr)
            c = &calls[i];
    if (c && counts(c, q) && ++fault.seen == fault.at) {
        describe(c, q);
        if (fault.kill) {
            kill((pid_t)q->pid, SIGKILL);
            return;
        }
        int64_t done = fault.half && c->kind <= READS ? do_half(c, q) : -1;
        if (done >= 0) {
            r.flags = 0;
            r.val = done;
        } else if (!fault.half) {
            r.flags = 0;
            r.error = -fault.error;
        }
    }
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &r);
}

/* ---- all of them ---- */

static void serve(int listener)
{
    struct seccomp_notif q;
    struct pollfd p = {listener, POLLIN, 0};
    while (poll(&p, 1, -1) >= 0 || errno == EINTR) {
        if (p.revents & POLLHUP)
            return;             /* nobody is left who could call */
        memset(&q, 0, sizeof q);
        if ((p.revents & POLLIN) && !ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &q))
            answer(listener, &q);
    }
}

static int run(char **command, const char *said)
{
    int pair[2], status;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        cannot("socketpair");
    pid_t pid = fork();
    if (pid < 0)
        cannot("fork");
    if (pid == 0) {
        int fd = listen_to_calls();
        if (fd < 0)
            cannot("seccomp");
        send_descriptor(pair[1], fd);
        close(fd);
        execvp(command[0], command);
        cannot(command[0]);
    }
    close(pair[1]);
    int listener = receive_descriptor(pair[0]);
    if (listener >= 0)
        serve(listener);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    FILE *f = said ? fopen(said, "w") : NULL;
    if (f) {
        fprintf(f, "%ld %s\n", fault.seen, fault.what);
        fclose(f);
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void read_fault(const char *name)
{
    fault.half = !strcmp(name, "short");
    fault.kill = !strcmp(name, "kill");
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (!strcmp(errors[i].name, name))
            fault.error = errors[i].error;
    if (!fault.half && !fault.kill && !fault.error) {
        fprintf(stderr, "inject: no such fault: %s\n", name);
        exit(CANNOT);
    }
}

int main(int argc, char **argv)
{
    const char *said = NULL;
    int i = 1;
    fault.error = EIO;
    for (; i + 1 < argc && strcmp(argv[i], "--") != 0; i += 2) {
        if (!strcmp(argv[i], "--at"))
            fault.at = atol(argv[i + 1]);
        else if (!strcmp(argv[i], "--said"))
            said = argv[i + 1];
        else if (!strcmp(argv[i], "--fault"))
            fault.error = 0, read_fault(argv[i + 1]);
        else if (!strcmp(argv[i], "--calls"))
            fault.writes = argv[i + 1][0] != 'r', fault.reads = argv[i + 1][0] != 'w';
    }
    if (i + 1 >= argc) {
        fprintf(stderr, "inject [--at N] [--fault F] [--calls WHICH] [--said FILE] -- COMMAND...\n");
        return CANNOT;
    }
    return run(argv + i + 1, said);
}
