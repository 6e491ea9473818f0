#!/usr/bin/env bash
# --tensorboard: frames, checksums and numbers by a reader of our own, against the log; and by the tensorboard package, where python3 has it.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
m=$top/models/gpt-ts
ok "two stages" split_model "$m/model.onnx" out h.1:begin --loss cross_entropy || exit 1
case_data "$m"
T=(train "${data[@]}" --data "target=$m/target.npy" --batch 4 --microbatches 2 --lr-schedule cosine --lr 0.1 --quiet --checkpoint ck --log-json log.json --tensorboard tb)
for f in "${data[@]}"; do [ "$f" = --data ] || E+=(--eval-data "$f"); done
ok "trains" out/pipeline "${T[@]}" --steps 4 "${E[@]}" --eval-data "target=$m/target.npy" --eval-every 2

# Lines "STEP TAG VALUE", "STEP start" of a file of events; dies where a frame is none.
cat >events.pl <<'PERL'
sub crc { my $c = 0xffffffff; for (unpack "C*", $_[0]) { $c ^= $_; $c = $c & 1 ? $c >> 1 ^ 0x82f63b78 : $c >> 1 for 1 .. 8 } $c ^ 0xffffffff }
sub masked { my $c = crc($_[0]); (($c >> 15 | $c << 17 & 0xffffffff) + 0xa282ead8) & 0xffffffff }
crc("123456789") == 0xe3069283 or die "the checksum is wrong";        # RFC 3720
sub fields { my ($s, @f) = @_; while (length $s) {
    my $varint = sub { my ($v, $k) = (0, 0); while (1) { my $b = ord substr $s, 0, 1, ""; $v |= ($b & 127) << $k; $k += 7; return $v if $b < 128 } };
    my $key = $varint->(); my $w = $key & 7;
    push @f, [$key >> 3, $w == 0 ? $varint->() : $w == 1 ? unpack("d<", substr $s, 0, 8, "") : $w == 5 ? unpack("f<", substr $s, 0, 4, "") : substr $s, 0, $varint->(), ""] } @f }
binmode STDIN; local $/; my $all = <STDIN>; my $n = 0;
while (length $all) {
    my ($length, $c) = unpack "Q<L<", substr $all, 0, 12; masked(substr $all, 0, 8) == $c or die "a length";
    my $p = substr $all, 12, $length; masked($p) == unpack "L<", substr $all, 12 + $length, 4 or die "a payload";
    substr $all, 0, 16 + $length, "";
    my ($step, $time) = (0); my @e = fields($p);
    for (@e) { $time = $$_[1] if $$_[0] == 1; $step = $$_[1] if $$_[0] == 2 }
    abs($time - time) < 3600 or die "a time";
    for (@e) {
        $n++ == 0 && $$_[1] eq "brain.Event:2" or die "the first event" if $$_[0] == 3;
        print "$step start\n" if $$_[0] == 7 && (fields($$_[1]))[0][1] == 1;
        next if $$_[0] != 5;
        for (fields($$_[1])) { my %v = map { @$_ } fields($$_[1]); printf "%d %s %.6g\n", $step, $v{1}, $v{2} } } }
PERL
# The same of the log
logged() { perl -MJSON::PP -ne '$d = decode_json($_); $_ = $$d{config};
    if ($_) { ($most) = sort { $b <=> $a } map { $$_{memory} } @{$$_{places}}; next }
    if ($$d{eval_step}) { printf "%d eval/loss %.6g\n", $$d{eval_step}, unpack "f", pack "f", $$d{eval_loss}; next }
    printf "%d %s %.6g\n", $$d{step}, $$_[0], unpack "f", pack "f", $$_[1] for ["train/loss", $$d{loss}], ["train/grad_norm", $$d{grad_norm}], ["train/learning_rate", $$d{lr}],
        ["speed/tokens_per_second", $$d{tokens_per_second}], ["speed/seconds", $$d{seconds}], ["memory/largest_rank", $most], ["speed/bubble", $$d{bubble}]' "$1"; }
is "one file of events" "$(ls tb | grep -c '^events\.out\.tfevents\.')" 1
is "holds what the log says" "$(perl events.pl <tb/events*)" "$(logged log.json)"
ok "a bubble is a part of the time" perl -MJSON::PP -ne '$d = decode_json($_); exit 1 if $$d{step} && !($$d{bubble} > 0 && $$d{bubble} < 1)' log.json
first=$(ls tb)
ok "goes on" out/pipeline "${T[@]}" --steps 6 --resume ck
again=$(ls tb | grep -v "$first")
is "in a file of its own, which begins where the run does" "$(perl events.pl <"tb/$again" | head -n 2 | cut -d ' ' -f 1,2)" "$(printf '5 start\n5 train/loss')"
is "for train only" "$(out/pipeline eval --tensorboard tb 2>&1 | head -n 1)" "pipeline: error: --tensorboard is for train: eval changes no parameter"
touch file
is "a folder that cannot be" "$(out/pipeline "${T[@]}" --steps 6 --resume ck --tensorboard file/tb 2>&1 | head -n 1)" "pipeline: error: --tensorboard file: Not a directory"
for python in ${PYTHON:-} python3; do "$python" -c 'import tensorboard' 2>/dev/null && break; python=; done
if [ -n "$python" ]; then
    is "read by tensorboard" "$("$python" - 2>/dev/null <<'PY'
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
a = EventAccumulator('tb')
a.Reload()
print([s.step for s in a.Scalars('train/loss')], *sorted(a.Tags()['scalars']))
PY
)" "[1, 2, 3, 4, 5, 6] eval/loss memory/largest_rank speed/bubble speed/seconds speed/tokens_per_second train/grad_norm train/learning_rate train/loss"
else
    skip "read by tensorboard" "python3 has no such package"
fi
plan_done
