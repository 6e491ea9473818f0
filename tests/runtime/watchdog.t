#!/usr/bin/env bash
# Of a job of processes: a rank that is stopped is named with its action and ends the job, rank 0 too; one that dies ends it at once;
# a job that is stopped as a whole goes on.  One whose checkpoint does not grow is named.  Datagrams of others do nothing, and where those of
# the ranks do not arrive it is said.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
command -v mpirun >/dev/null || { skip "watchdog" "no mpirun"; plan_done; exit; }
m=$top/models/mlp-ts
ok "splits and builds" split_model "$m/model.onnx" two blocks.1:begin --loss cross_entropy || exit 1
limit=5                                                 # seconds: in a busy machine a rank that could run waits for two or three
D=(train --data "x=$m/in.x.npy" --data "target=$m/target.npy" --quiet --log-json log.json --watchdog $limit)

# later: until a line more is in the log, or the job has ended
later() {
    local lines=$(wc -l <log.json)
    until [ "$(wc -l <log.json)" -gt "$lines" ] || ! kill -0 $job 2>/dev/null; do sleep 0.02; done
}

# beats: processes tell of themselves four times a second; in a busy machine these are seconds in which they come to do steps too
beats() {
    local i
    for i in 1 2 3 4 5 6; do sleep 0.25; later; done
}

cat >lost.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
static int is(const char *what) { return !strcmp(getenv("LOST"), what); }
int fsync(int fd)
{
    (void)fd;
    while (is("disk"))
        pause();
    return 0;
}
ssize_t sendto(int s, const void *at, size_t n, int flags, const struct sockaddr *to, socklen_t bytes)
{
    ssize_t (*next)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
    *(void **)&next = dlsym(RTLD_NEXT, "sendto");
    return is("beats") ? (ssize_t)n : next(s, at, n, flags, to, bytes);
}
int setsockopt(int s, int level, int name, const void *at, socklen_t bytes)
{
    int (*next)(int, int, int, const void *, socklen_t);
    *(void **)&next = dlsym(RTLD_NEXT, "setsockopt");
    errno = ENOPROTOOPT;
    return is("filter") && name == SO_ATTACH_FILTER ? -1 : next(s, level, name, at, bytes);
}
END
ok "a disk, a net, a kernel that lack something" ${CC:-cc} -shared -fPIC -o lost.so lost.c -ldl

# flood PID SECONDS: datagrams to the UDP sockets of the process, empty ones and some as long as beats; their address
flood() {
    perl -MSocket -e 'my ($pid, $seconds) = @ARGV; my (%inode, @to);
        for (glob "/proc/$pid/fd/*") { my $to = readlink; $inode{$1} = 1 if $to && $to =~ /^socket:.(\d+)/ }
        for (`cat /proc/net/udp`) { my @f = split; push @to, $f[1] if $inode{$f[9]} }
        socket my $s, PF_INET, SOCK_DGRAM, 0;
        for (my ($i, $end) = (0, time + $seconds); time < $end; $i++) {
            for (@to) { my ($a, $p) = map hex, split /:/; send $s, "\0" x ($i % 8 ? 0 : 8300), 0, sockaddr_in($p, pack "L", $a) } }
        print map { sprintf "%s\n", inet_ntoa(pack "L", hex((split /:/)[0])) } @to' "$@"
}

# start [LOST]: a job that goes on for ever, whose ranks' processes are in $pid0 and $pid1, once each has told of itself; what rank 1 lacks
start() {
    rm -f watchdog.json pid0 pid1
    >log.json
    LOST=${1:-} timeout $patience mpirun -n 2 bash -c 'echo $$ >pid$OMPI_COMM_WORLD_RANK
        case $OMPI_COMM_WORLD_RANK$LOST in 1?* | 0filter) export LD_PRELOAD=$PWD/lost.so ;; esac; exec "$@"' - two/pipeline "${D[@]}" "${@:2}" --steps 100000000 >out 2>err &
    job=$!
    until grep -q '"step": 20,' log.json || ! kill -0 $job 2>/dev/null; do sleep 0.02; done
    beats
    pid0=$(cat pid0) pid1=$(cat pid1)
}
said() { grep -c "pipeline: error: rank $1 on .* has been silent for [0-9]* s: it is in step [0-9]*, .*; the last actions of all ranks are in watchdog.json" err; }
unmoved() { echo "$(kill -0 $job 2>/dev/null; echo $?) $(grep -c 'silent\|moved' err)"; }
start
kill -STOP $pid0 $pid1
sleep $((limit + 1))
kill -CONT $pid0 $pid1
beats
is "stopped as a whole, and gone on" "$(unmoved)" "0 0"
is "datagrams of others: the socket is of this machine alone, and the job goes on" "$(flood $pid0 $((limit + 1))) $(beats; unmoved)" "127.0.0.1 0 0"
kill -KILL $pid1
wait $job
is "rank 1 dies: the job ends and names it" "$(($? != 0)) $(grep -c 'rank 1 .*exited on signal 9' err)" "1 1"
for rank in 0 1; do
    [ $rank = 0 ] && start || start filter
    [ $rank = 0 ] ||
        is "also where the kernel does not keep them out" "$(flood $pid0 $((limit + 1))) $(beats; unmoved)" "127.0.0.1 0 0"
    echo precious >precious
    rm -f watchdog.json.*
    for k in 0 1; do ln -s precious watchdog.json.$k; done
    kill -STOP $((rank ? pid1 : pid0))
    wait $job
    is "rank $rank is stopped: the job ends and names it" "$(($? != 0)) $(said $rank) $(grep -c 'silent\|moved' err)" "1 1 1"
    is "rank $rank is stopped: nothing is written through a link" "$(cat precious)" precious
    ok "rank $rank is stopped: the last actions are a trace" perl -MJSON::PP -e 'local $/; open F, "watchdog.json"; my %n;
        $n{$_->{tid}}++ for grep { $_->{ph} eq "X" && $_->{name} =~ /^[01][FB]/ } @{decode_json(<F>)->{traceEvents}}; exit !($n{0} && $n{1})'
done
start beats
until grep -q 'hears nothing' err || ! kill -0 $job 2>/dev/null; do sleep 0.1; done
beats
is "no beat arrives: it is said, and the job goes on" "$(grep -c 'warning: rank 0 on .* hears nothing of rank 1 on ' err) $(unmoved)" "1 0 0"
kill -TERM $job
wait $job
start disk --checkpoint hangs --save-timeout $limit
kill -USR1 $pid0
wait $job
is "a rank's checkpoint does not grow: the job ends and names it" \
    "$(($? != 0)) $(grep -c 'error: rank 1 on .* has written no more of its checkpoint for [0-9]* s' err)" "1 1"
plan_done
