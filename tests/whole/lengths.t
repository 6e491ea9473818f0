#!/usr/bin/env bash
# --bind NAME=LEAST..MOST: one program for sequences of any length.  Law 12: with a length of n its outputs, losses and gradients are to the bit
# those of the model bound to n.  Microbatches of one step that differ in length: PyTorch's gradients, the same bits under other schedules, in
# processes and in replicas.  What has one length, and data that do not fit, are refused with the reason.
. "$(dirname "$0")/../lib.sh"
cd "$top/models/special/lengths" || exit 1
split=(--bind batch=2 --loss cross_entropy)

# numbers FILE LENGTH SEED: 4 rows of tokens
numbers() { array "$1" i8 "4,$2" '(($_ + 1) * 37 + $ARGV[0]) % 19' "$3"; }
# whole FILE N...: whole numbers; offsets FILE: where the rows of lengths.npy begin, and the last one ends
whole() { array "$1" i8 $(($# - 1)) '$ARGV[$_]' "${@:2}"; }
offsets() { whole "$1" $(perl -e 'open F, "<:raw", "lengths.npy"; local $/; print 0; print " ", $at += $_ for unpack "x128 q<*", <F>'); }
# run OUT TO ARGUMENT...: two steps
run() {
    local out=$1 to=$work/$2; shift 2
    "$work/$out/pipeline" train --threads 1 --optimizer adamw --lr 0.01 --steps 2 --dump-grads "$to" --output logits="$to.npy" --log-json "$to.log" "$@"
}
# equal A B: outputs, losses, gradients
equal() {
    cmp "$work/$1.npy" "$work/$2.npy" && cmp "$work/$1/stage0.safetensors" "$work/$2/stage0.safetensors" &&
        cmp "$work/$1/stage1.safetensors" "$work/$2/stage1.safetensors" && [ "$(steps "$1")" = "$(steps "$2")" ]
}
# refused TEXT COMMAND...
refused() { local text=$1; shift; "$@" >"$work/said" 2>&1 && return 1; grep -qF -- "$text" "$work/said" || { cat "$work/said"; return 1; }; }

ok "any length up to 48" split_model model.onnx "$work/any" h.1:begin "${split[@]}" --bind seq=1..48
numbers "$work/x24.npy" 24 5
numbers "$work/y24.npy" 24 11
for n in 1 48; do
    numbers "$work/x$n.npy" $n 5
    numbers "$work/y$n.npy" $n 11
    ok "a length of $n" run any any$n --data x="$work/x$n.npy" --data target="$work/y$n.npy"
    ok "the model bound to it" split_model model.onnx "$work/bound" h.1:begin "${split[@]}" --bind seq=$n
    ok "trains" run bound bound$n --data x="$work/x$n.npy" --data target="$work/y$n.npy"
    ok "to the same bits" equal any$n bound$n
done
ok "recurrent layers over any number of steps" split_model tagger.onnx "$work/steps" a:end "${split[@]}" --bind seq=1..48
for n in 1 24; do
    ok "$n" run steps steps$n --data x="$work/x$n.npy" --data target="$work/y$n.npy"
    ok "the model bound to it" split_model tagger.onnx "$work/bound" a:end "${split[@]}" --bind seq=$n
    ok "trains" run bound bound$n --data x="$work/x$n.npy" --data target="$work/y$n.npy"
    ok "to the same bits" equal steps$n bound$n
done
# Samples are at most 23 of the 24 that the table has.
ok "any even length up to 16" split_model model.onnx "$work/even" h.1:begin "${split[@]}" --bind 'seq=2*s' --bind s=1..8
numbers "$work/x16.npy" 16 5
numbers "$work/y16.npy" 16 11
ok "16" run even even16 --data x="$work/x16.npy" --data target="$work/y16.npy"
ok "the model bound to it" split_model model.onnx "$work/bound" h.1:begin "${split[@]}" --bind seq=16
ok "trains" run bound bound16 --data x="$work/x16.npy" --data target="$work/y16.npy"
ok "to the same bits" equal even16 bound16
ok "where none has 16 places, of a table of 12 times four" "$ppsplit" model.onnx "${split[@]}" --bind 'seq=4*s' --bind s=1..11 -q -o "$work/few"
ok "beside them layers in two members" split_model tagger.onnx "$work/two" a:end "${split[@]}" --bind seq=1..48 --tensor 2
ok "train" run two two24 --data x="$work/x24.npy" --data target="$work/y24.npy"
ok "to the same gradients" "$compare" grads "$work/two24" "$work/steps24"
ok "of any rows, more or fewer than their table" "$ppsplit" -q tagger.onnx --bind batch=1 --loss cross_entropy --bind seq=1..48 --tensor 2 -o "$work/one_row"
# Members divide a program of one length as they divide that of any; one that needs all of a table of positions, too.
ok "two members" split_model model.onnx "$work/two" h.1:begin "${split[@]}" --bind seq=1..48 --tensor 2
ok "a length of 48" run two two48 --data x="$work/x48.npy" --data target="$work/y48.npy"
ok "the model bound to 48 of 1 to 48" split_model model.onnx "$work/bound" h.1:begin "${split[@]}" --bind seq=48@1..48 --tensor 2
ok "trains" run bound bound48 --data x="$work/x48.npy" --data target="$work/y48.npy"
ok "to the same bits" equal two48 bound48
is "in the bytes that are planned" "$("$work/two/pipeline" train --threads 1 --optimizer adamw --data x="$work/x48.npy" --data target="$work/y48.npy" | sed -n 's/^rank [02] memory: \([0-9]*\).*/\1/p' | xargs)" \
    "$("$ppsplit" plan model.onnx "${split[@]}" --bind seq=1..48 --tensor 2 --split h.1:begin --stages 2 --ranks 4 --dp 1 --microbatches 2 --schedule 1f1b --batch 4 --optimizer adamw --threads 1 | sed -n 's/^bytes of each rank in plan 1: //p')"
# 5 * length: f16 holds 2045, that of the greatest sample, and not 2055.
ok "a length times 5 that halves do not hold" refused "the program is another one" "$ppsplit" halves.onnx --bind batch=2 --loss mse --bind seq=1..418 -o "$work/no"
ok "all that they hold" "$ppsplit" -q halves.onnx --bind batch=2 --loss mse --bind seq=1..409 -o "$work/halves"
# 2060 - length: f16 holds 2052, that of the least one, and not 2051.
ok "a length in a difference that halves do not hold" refused "the program is another one" "$ppsplit" falling.onnx --bind batch=2 --loss mse --bind seq=8..418 -o "$work/no"
ok "all that they hold of it" "$ppsplit" -q falling.onnx --bind batch=2 --loss mse --bind seq=13..418 -o "$work/falling"
ok "a length out of its range" refused "49 is not in 1..48" "$ppsplit" model.onnx "${split[@]}" --bind seq=49@1..48 -o "$work/no"
data=(--data x=in.x.npy --data target=target.npy)
ok "rows of 1 to 48 places" run any mixed "${data[@]}" --lengths seq=lengths.npy --microbatches 4
ok "PyTorch's gradients" "$compare" grads "$work/mixed" grads.safetensors
# A trace says lengths; a simulation and a plan group rows as the run does.
like_run=(--batch 4 --lengths seq=lengths.npy --by-length 2 --shuffle 3)
ok "a run that is traced" run any traced "${data[@]}" --microbatches 2 "${like_run[@]}" --trace "$work/t.json"
simulated() { "$ppsplit" schedule 1f1b --ranks 2 --microbatches 2 --simulate --costs "$work/t.json" --batch 4 --by-length 2 --shuffle 3 --lengths "$1"; }
ok "is simulated" simulated seq=lengths.npy
offsets "$work/offsets.npy"
is "the same with where rows begin" "$(simulated seq="$work/offsets.npy")" "$(simulated seq=lengths.npy)"
ok "of other dimensions" refused "the times depend on 1 length, 'seq' among them" "$ppsplit" schedule 1f1b --ranks 2 --microbatches 2 --simulate --costs "$work/t.json" --batch 4 --lengths dec=lengths.npy
# plan MOST OPTION...
plan() { local most=$1; shift; "$ppsplit" plan model.onnx "${split[@]}" --bind seq=1..$most --ranks 2 --dp 1 --stages 2 --microbatches 2 --schedule 1f1b --batch 4 "$@" 2>&1; }
us() { awk '$1 == 1 && / x / { print $2 * ($3 == "us" ? 1 : $3 == "ms" ? 1000 : 1000000) }' "$1"; }
for n in 24 48; do whole "$work/l$n.npy" $n $n $n $n; done
plan 48 >"$work/most"
plan 48 --lengths seq="$work/l48.npy" >"$work/all48"
plan 48 --lengths seq=lengths.npy --by-length 2 --shuffle 3 >"$work/own"
ok "a plan without lengths says what it is of" grep -q "^every row is planned with the greatest length, seq of 48: --lengths" "$work/most"
ok "which all rows may have: to 1 %" awk -v a="$(us "$work/most")" -v b="$(us "$work/all48")" 'BEGIN { exit !(a > 0 && b / a < 1.01 && b / a > .99) }'
ok "shorter ones take less" awk -v a="$(us "$work/most")" -v b="$(us "$work/own")" 'BEGIN { exit !(b > 0 && b < a) }'
ok "the run is told of them" grep -q -e "--schedule 1f1b --lengths seq=lengths.npy --by-length 2 --shuffle 3" "$work/own"
printf 'card = h100\nefficiency = 1e-4\n' >"$work/card"
is "on a card rows of 24 take what those of the model bound to 24 take" "$(us <(plan 48 --machine "$work/card" --lengths seq="$work/l24.npy"))" "$(us <(plan 24 --machine "$work/card"))"
ok "by a run that had lengths" eval 'plan 48 --costs "$work/t.json" --lengths seq=lengths.npy | grep -q "by measured costs"'
ok "other dimensions than vary" refused "one of each dimension that varies: 'seq'" plan 48 --lengths dec=lengths.npy
ok "a model of one length" refused "the model has one length" "$ppsplit" plan model.onnx "${split[@]}" --bind seq=48 --ranks 2 --batch 4 --lengths seq=lengths.npy
ok "longer rows" refused "row 0 has length 48, and may have 1 to 24" plan 24 --lengths seq="$work/l48.npy"
ok "under zb-h1, everything computed again" run any again "${data[@]}" --lengths seq=lengths.npy --microbatches 4 --schedule zb-h1 --recompute always
ok "the same bits" equal mixed again
ok "shuffled, two replicas" run any two "${data[@]}" --lengths seq=lengths.npy --shuffle 3 --batch 4 --microbatches 1 --dp 2
ok "and one, in two groups" run any one "${data[@]}" --lengths seq=lengths.npy --shuffle 3 --batch 4 --microbatches 1 --groups 2
is "the same losses and norms" "$(steps two)" "$(steps one)"
# Rows that are filled, and rows of near lengths together.
# rows FROM TO ROW...: these rows of FROM; fill FROM TO VALUE: VALUE behind the places that rows have
rows() {
    perl -e '($from, $to, @r) = @ARGV; open F, "<:raw", $from; local $/; $_ = <F>; $h = substr $_, 0, 128; $h =~ /\((\d+),/; $n = @r; $size = (length($_) - 128) / $1;
        $h =~ s/\(\d+,/($n,/; $all = $_; open G, ">:raw", $to; print G $h, map { substr $all, 128 + $_ * $size, $size } @r' "$@"
}
fill() {
    perl -e 'sub data { open F, "<:raw", $_[0]; local $/; $_ = <F>; (substr($_, 0, 128), unpack "x128 q<*", $_) } ($h, @x) = data $ARGV[0]; ($g, @n) = data "lengths.npy"; $all = @x / @n;
        for $r (0 .. $#n) { $x[$r * $all + $_] = $ARGV[2] for $n[$r] .. $all - 1 } open G, ">:raw", $ARGV[1]; print G $h, pack "q<*", @x' "$@"
}
fill in.x.npy "$work/x7.npy" -1
fill target.npy "$work/y3.npy" 99
fill in.x.npy "$work/x0.npy" 0
fill target.npy "$work/y-100.npy" -100
ok "rows that their files fill" run any filled --data x="$work/x0.npy" --data target="$work/y-100.npy" --lengths seq=lengths.npy --microbatches 4
ok "with --pad, whatever is there" run any padded --data x="$work/x7.npy" --data target="$work/y3.npy" --lengths seq=lengths.npy --microbatches 4 --pad x=0 --pad target=-100
ok "the same bits" equal filled padded
# Rows one behind the other, with where they begin, or in two files with their lengths: the same bits.
# flat FROM TO FIRST END: the own places of some rows
flat() { whole "$2" $(perl -e 'sub data { open F, "<:raw", $_[0]; local $/; unpack "x128 q<*", <F> } @x = data $ARGV[0]; @n = data "lengths.npy"; $all = @x / @n;
    print "@x[$_ * $all .. $_ * $all + $n[$_] - 1] " for $ARGV[1] .. $ARGV[2]' "$1" "$3" "$4"); }
flat in.x.npy "$work/flat.x.npy" 0 7
flat in.x.npy "$work/a.npy" 0 2
flat in.x.npy "$work/b.npy" 3 7
flat target.npy "$work/flat.y.npy" 0 7
pads=(--pad x=0 --pad target=-100 --microbatches 4)
x=(--data x="$work/flat.x.npy") y=(--data target="$work/flat.y.npy")
ok "rows one behind the other, with where they begin" run any flat "${x[@]}" "${y[@]}" --lengths seq="$work/offsets.npy" "${pads[@]}"
ok "the same bits" equal filled flat
ok "in two files, with their lengths" run any flat --data x="$work/a.npy" --data x="$work/b.npy" "${y[@]}" --lengths seq=lengths.npy "${pads[@]}"
ok "the same bits" equal filled flat
# Megatron's files: each sequence is a row, its target the next tokens.
perl -e 'sub data { open F, "<:raw", $_[0]; local $/; unpack "x128 q<*", <F> } @x = data $ARGV[0]; @n = data "lengths.npy"; open G, ">:raw", "$ARGV[1].bin"; print G pack "C*", @x;
    open G, ">:raw", "$ARGV[1].idx"; print G "MMIDIDX\0\0", pack("Q<CQ<Q<l<*", 1, 1, scalar @n, 0, @n), pack "q<*", map { $at += $_; $at - $_ } @n' "$work/flat.x.npy" "$work/corpus"
whole "$work/next.npy" $(perl -e 'sub data { open F, "<:raw", $_[0]; local $/; unpack "x128 q<*", <F> } @x = data $ARGV[0];
    for (data "lengths.npy") { @r = splice @x, 0, $_; print join(" ", @r[1 .. $#r], -100), " " }' "$work/flat.x.npy")
ok "a corpus of Megatron's, and its index" run any corpus --tokens x="$work/corpus.bin" --lengths seq="$work/corpus.idx" "${pads[@]}"
ok "and with its next tokens" run any tokens "${x[@]}" --data target="$work/next.npy" --lengths seq="$work/offsets.npy" "${pads[@]}"
ok "the same bits" equal corpus tokens
# Lengths of windows: of as many as the text makes; unsigned; --pad for them alone.
whole "$work/text.npy" $(perl -e 'print join " ", map { $_ * 37 % 19 } 1 .. 4 * 48 + 3')
perl -e 'printf "\x93NUMPY\x01\x00v\x00%-117s\n%s", "{\x27descr\x27: \x27<u8\x27, \x27fortran_order\x27: False, \x27shape\x27: (4,), }", pack "Q<*", 7, 3, 24, 17' >"$work/u64.npy"
tokens=(--tokens x="$work/text.npy" --microbatches 4)
ok "windows of a text" "$work/any/pipeline" tokens --tokens x="$work/text.npy" --output x="$work/windows.x.npy" --output target="$work/windows.y.npy" --quiet
ok "of which each row has the first places" run any windows "${tokens[@]}" --lengths seq="$work/u64.npy"
whole "$work/begin.npy" $(perl -e 'print join " ", map { $_ * 37 % 19 } 1 .. 2 * 48 + 1')
whole "$work/end.npy" $(perl -e 'print join " ", map { $_ * 37 % 19 } 2 * 48 + 1 .. 4 * 48 + 3')
ok "of a text in two files" run any halves --tokens x="$work/begin.npy" --tokens x="$work/end.npy" --microbatches 4 --lengths seq="$work/u64.npy"
ok "the same bits" equal windows halves
ok "as in files" run any cut --data x="$work/windows.x.npy" --data target="$work/windows.y.npy" --lengths seq="$work/u64.npy" --microbatches 4
ok "the same bits" equal windows cut
ok "--pad is for rows of --eval-data, too" run any evaluated "${tokens[@]}" --steps 1 "${pads[@]:0:4}" --eval-data x="$work/flat.x.npy" --eval-data target="$work/flat.y.npy" --eval-lengths seq=lengths.npy
ragged() { run any no --data x="$work/$1.npy" "${y[@]}" --lengths seq="$2" "${@:3}"; }
whole "$work/wrong.npy" 0 9 5
ok "a row that begins before the one ahead of it" refused "row 1 at 9, the next one before it, at 5" ragged flat.x "$work/wrong.npy" "${pads[@]}"
whole "$work/wrong.npy" 0 49
ok "longer than the program's" refused "row 0 has length 49, and may have 1 to 48" ragged flat.x "$work/wrong.npy" "${pads[@]}"
whole "$work/wrong.npy" 0
ok "no rows" refused "it is I64 [1]: neither one whole number for each row nor one more" ragged flat.x "$work/wrong.npy" "${pads[@]}"
ok "of numbers that are not whole" refused "it is F32 [8, 48, 19]: neither" ragged flat.x "$work/flat.npy" "${pads[@]}"
perl -e 'printf "MMIDIDX\0\0%s", pack "Q<CQ<Q<l<2q<2", 1, 1, 2, 0, 0, 5, 0, 0' >"$work/empty.idx"
ok "an empty sequence" refused "empty.idx: sequence 0 is empty" ragged flat.x "$work/empty.idx" "${pads[@]}"
whole "$work/wrong.npy"
ok "an empty file" refused "wrong.npy: it is empty" ragged wrong lengths.npy "${pads[@]}"
ok "lengths that are not given" refused "rows lie one behind the other: --eval-lengths seq=FILE" run any no "${data[@]}" --eval-data x="$work/flat.x.npy" --eval-data target="$work/flat.y.npy" "${pads[@]}" --lengths seq=lengths.npy
whole "$work/wrong.npy" 0 2 5
ok "more places than rows have" refused "by --lengths seq no row ends there: 2 rows take 5, and there are no more" ragged flat.x "$work/wrong.npy" "${pads[@]}"
whole "$work/wrong.npy" 1 2 3 19
ok "a file that ends within a row" refused "by --lengths seq no row ends there: 1 row takes 3" ragged wrong lengths.npy "${pads[@]}"
ok "nothing that stands behind a row" refused "--pad target=VALUE says what stands behind shorter ones, -100" ragged flat.x lengths.npy --pad x=0
whole "$work/wrong.npy" $(perl -e 'print join " ", (1) x 4, 19, (1) x 138')
ok "a number beyond its table" refused "row 1, position 1 (number 4 of the file) is 19" ragged wrong lengths.npy "${pads[@]}"
ok "with what its table does not have" refused "--pad x=19: it is an index into 'e.weight': allowed are 0 to 18" run any no "${data[@]}" --lengths seq=lengths.npy --microbatches 4 --pad x=19
ok "with what its type does not hold" refused "--pad x=18446744073709551617: that is no value of int64" run any no "${data[@]}" --lengths seq=lengths.npy --microbatches 4 --pad x=18446744073709551617
ok "with what is no class" refused "--pad target=19: it is a class: allowed are 0 to 18, or -100, which is ignored" run any no "${data[@]}" --lengths seq=lengths.npy --microbatches 4 --pad target=19
near=(--batch 2 --microbatches 1 --by-length 2 --lengths seq="$work/lengths4.npy")
rows in.x.npy "$work/x4.npy" 0 1 2 3
rows target.npy "$work/y4.npy" 0 1 2 3
rows lengths.npy "$work/lengths4.npy" 0 1 2 3
sorted=$(perl -e 'open F, "<:raw", $ARGV[0]; local $/; @n = unpack "x128 q<*", <F>; print join " ", sort { $n[$a] <=> $n[$b] || $a <=> $b } 0 .. 3' "$work/lengths4.npy")
ok "rows of near lengths in one microbatch" run any near --data x="$work/x4.npy" --data target="$work/y4.npy" "${near[@]}"
for order in "$sorted" "${sorted#* * } ${sorted% * *}"; do
    for f in x y lengths; do rows "$work/${f}4.npy" "$work/${f}_sorted.npy" $order; done
    run any sorted --data x="$work/x_sorted.npy" --data target="$work/y_sorted.npy" --batch 2 --microbatches 1 --lengths seq="$work/lengths_sorted.npy" >"$work/said" 2>&1
    [ "$(steps near)" != "$(steps sorted)" ] || found="rows $order"
done
is "are those that are next by length" "${found:-none}" "${found:-rows $sorted, or the pairs the other way round}"
ok "one step of them, saved" run any begun --data x="$work/x4.npy" --data target="$work/y4.npy" "${near[@]}" --steps 1 --checkpoint "$work/saved"
ok "and gone on with" run any on --data x="$work/x4.npy" --data target="$work/y4.npy" "${near[@]}" --resume "$work/saved"
is "is the run that was not" "$(steps on)" "$(steps near | tail -n 1)"
whole "$work/others.npy" 3 48 48 1
ok "with rows of other lengths" refused "--lengths seq: its rows are not as long as those that it was trained with" run any on --data x="$work/x4.npy" --data target="$work/y4.npy" --batch 2 --microbatches 1 --by-length 2 --lengths seq="$work/others.npy" --resume "$work/saved"
perl -0pi -e 's/,\s*"--lengths seq": "\w+"//; s/,\s*"index_sha256".*//s' "$work"/saved/step_1/index.json
printf ',\n  "index_sha256": "%s"\n}\n' "$(sha256sum "$work"/saved/step_1/index.json | cut -d' ' -f1)" >>"$work"/saved/step_1/index.json
ok "a checkpoint that does not know" run any on --data x="$work/x4.npy" --data target="$work/y4.npy" "${near[@]}" --resume "$work/saved"
ok "with other steps" refused "into steps of 2 rows in 1 microbatches, here steps of 4 rows" run any on --data x="$work/x4.npy" --data target="$work/y4.npy" "${near[@]}" --batch 4 --microbatches 2 --resume "$work/saved"
ok "without lengths" refused "without --lengths seq=FILE.npy all rows have one length" run any no --data x="$work/x24.npy" --data target="$work/y24.npy" --by-length 2

# Convolutions along it, a mean over elements, which rows have different numbers of, and a range of rows.
perl -e '$h = "{\"descr\": \"<f4\", \"fortran_order\": False, \"shape\": (4, 24, 19), }"; $h =~ tr/"/\x27/; $h .= " " x (117 - length $h) . "\n";
    print "\x93NUMPY\x01\x00", pack("v", length $h), $h, pack("f<*", map { ($_ * 29 % 64) / 64 } 1 .. 4 * 24 * 19)' >"$work/elements.npy"
whole "$work/four.npy" 7 3 24 17
elements=(--data x="$work/x24.npy" --data target="$work/elements.npy" --microbatches 2)
ok "convolutions along it, and any rows" split_model convolved.onnx "$work/sizes" none --loss mse --bind batch=1..3 --bind seq=1..24
ok "rows of 7, 3, 24, 17" run sizes four_out "${elements[@]}" --lengths seq="$work/four.npy" --steps 1
is "their mean over elements" "$(sed -n 's/.*"loss": \([^,]*\).*/\1/p' "$work/four_out.log" | perl -ne 'printf "%.6f", $_')" "$(perl -e 'for (@ARGV) { open F, "<:raw", $_; local $/; push @f, [unpack "x128 f<*", <F>] }
    for $r (0 .. 3) { for $i (0 .. ($r < 2 ? 7 : 24) * 19 - 1) { $s += ($f[0][$r * 456 + $i] - $f[1][$r * 456 + $i]) ** 2; $n++ } } printf "%.6f", $s / $n' "$work/four_out.npy" "$work/elements.npy" 2>/dev/null)"
step() { "$work/$1/pipeline" train --threads 1 --lr 0.1 --steps 2 --dump-grads "$work/$1.grads" --log-json "$work/$1.log" "${image[@]}"; }
ok "fewer rows than one are none" refused "a microbatch may have any fewer rows: LEAST is 1" "$ppsplit" model.onnx --loss cross_entropy --bind batch=2..4 --bind seq=24 -o "$work/no"
ok "whole rows infer" "$work/any/pipeline" infer --data x="$work/x24.npy" --output logits="$work/long.npy"

# An encoder and a decoder, each of its own length; images, with a table of positions that is resized.
pair=(--data x=pair.x.npy --data mask=pair.mask.npy --data y=pair.y.npy --data target=pair.target.npy)
ok "two lengths" split_model pair.onnx "$work/pair" e:end "${split[@]}" --bind enc=1..20 --bind dec=1..12
ok "rows of their own" run pair pairs "${pair[@]}" --lengths enc=pair.enc.npy --lengths dec=pair.dec.npy --microbatches 4
ok "PyTorch's gradients" "$compare" grads "$work/pairs" pair.safetensors
# halves FROM TO: lengths in twos
halves() { perl -e 'open F, "<:raw", $ARGV[0]; local $/; $_ = <F>; open G, ">:raw", $ARGV[1]; print G substr($_, 0, 128), pack "q<*", map { int(($_ + 1) / 2) } unpack "x128 q<*", $_' "$@"; }
twos=(--bind 'enc=2*e' --bind 'dec=2*d' --bind e=1..10 --bind d=1..6)
for f in enc dec; do halves pair.$f.npy "$work/$f.npy"; done
ok "two members of layers, each divided among two along its sequences" split_model pair.onnx "$work/members" e:end "${split[@]}" "${twos[@]}" --tensor 2 --sequence 2
ok "indices of all parts are looked at before the first step" grep -q "{.step = 1, .count = 20," "$work/members/pipeline.c"
ok "rows of their own" run members members "${pair[@]}" --lengths e="$work/enc.npy" --lengths d="$work/dec.npy" --microbatches 4
ok "PyTorch's gradients" "$compare" grads "$work/members" pair.safetensors
ok "one with the parts of all" split_model pair.onnx "$work/member" e:end "${split[@]}" "${twos[@]}" --tensor 1 --sequence 1 --chunks 2
ok "the same rows" run member member "${pair[@]}" --lengths e="$work/enc.npy" --lengths d="$work/dec.npy" --microbatches 4
ok "to the same bits" equal members member
ok "sequences of half a place" refused "--bind 'seq=2*n' --bind n=1..24" "$ppsplit" model.onnx "${split[@]}" --bind seq=1..48 --sequence 2 -o "$work/no"

perl -e '$h = "{\"descr\": \"<f4\", \"fortran_order\": False, \"shape\": (4, 3, 6, 14), }"; $h =~ tr/"/\x27/; $h .= " " x (117 - length $h) . "\n";
    print "\x93NUMPY\x01\x00", pack("v", length $h), $h, pack("f<*", map { ($_ * 29 % 64) / 64 } 1 .. 4 * 3 * 6 * 14)' >"$work/image.npy"
image=(--data x="$work/image.npy" --data target="$work/four.npy" --output y="$work/y.npy")
whole "$work/four.npy" 6 3 0 1
ok "images of any even height and width" split_model patches.onnx "$work/images" none "${split[@]}" --bind 'height=2*h' --bind 'width=2*w' --bind h=1..8 --bind w=1..8
ok "in four members, which divide what is so with any of them" "$ppsplit" -q patches.onnx "${split[@]}" --bind 'height=2*h' --bind 'width=2*w' --bind h=1..8 --bind w=1..8 --tensor 4 -o "$work/four"
ok "the model bound to 6 and 14" split_model patches.onnx "$work/image" none "${split[@]}" --bind height=6 --bind width=14
ok "train" step images
ok "as it does" step image
ok "to the same bits" cmp "$work/images.grads/stage0.safetensors" "$work/image.grads/stage0.safetensors"
is "and losses" "$(steps images)" "$(steps image)"
is "in the bytes that are planned, tables of each length included" \
    "$("$work/images/pipeline" train --threads 1 --microbatches 2 --schedule gpipe --data x="$work/image.npy" --data target="$work/four.npy" | sed -n 's/^rank 0 memory: \([0-9]*\).*/\1/p')" \
    "$("$ppsplit" plan patches.onnx "${split[@]}" --bind 'height=2*h' --bind 'width=2*w' --bind h=1..8 --bind w=1..8 --ranks 1 --threads 1 --batch 4 --microbatches 2 --schedule gpipe 2>/dev/null | sed -n 's/^bytes of each rank in plan 1: \([0-9]*\).*/\1/p')"
ok "a multiple of nothing" refused "--bind h=N gives 'h' a number" "$ppsplit" patches.onnx "${split[@]}" --bind 'height=2*h' --bind width=8 -o "$work/no"

ok "a mean over the sequence" "$ppsplit" mean.onnx "${split[@]}" --bind seq=1..48 -q -o "$work/mean"
ok "divides by its length" grep -qF '(float)(1.0 / (double)length)' "$work/mean/stage0.c"
is "in lines of 120 columns" "$(grep -cE '.{121}' "$work/mean/stage0.c" "$work/any/stage1.c" | xargs)" "$work/mean/stage0.c:0 $work/any/stage1.c:0"
# Lengths of a program's samples are primes, with which 8 * (length - 1) is a multiple of 16.
ok "eight numbers of each place but the first" split_model rest.onnx "$work/rest" none --bind batch=1 --bind seq=2..48
perl -e 'printf "\x93NUMPY\x01\x00v\x00%-117s\n%s", "{\x27descr\x27: \x27<f4\x27, \x27fortran_order\x27: False, \x27shape\x27: (1, 4, 8), }", "\0" x 128' >"$work/zeros.npy"
ok "of four places" "$work/rest/pipeline" infer --data x="$work/zeros.npy" --output sum="$work/sum.npy"
is "are 24" "$(tail -c 4 "$work/sum.npy" | od -An -tf4 | tr -d ' ')" 24
ok "how many places come" "$ppsplit" ahead.onnx "${split[@]}" --bind seq=1..40 -q -o "$work/ahead"
ok "a short range, and a table that ends before samples would" "$ppsplit" ahead.onnx "${split[@]}" --bind seq=1..20 -q -o "$work/short"
ok "two of them, in one table" "$ppsplit" both.onnx "${split[@]}" --bind enc=1..20 --bind dec=1..40 -q -o "$work/both"
ok "by whose length a mean divides" grep -qF 'd_reducemean_mul = d_reducemean * (1/length)' "$work/both/stage0.c"
ok "a table that ends where the range does is another program" refused "it is computed by other operations from here on" "$ppsplit" ahead.onnx "${split[@]}" --bind seq=1..48 -o "$work/no"
ok "what 30 places alone are is no program of them" refused "what it compares is equal with some length" "$ppsplit" equal.onnx --bind batch=2 --bind seq=1..48 -o "$work/no"
ok "but of more" "$ppsplit" equal.onnx --bind batch=2 --bind seq=31..48 -q -o "$work/more"
ok "numbers of how far apart its places are" "$ppsplit" distant.onnx "${split[@]}" --bind seq=1..8192 -q -o "$work/distant"
ok "in a range that ends before samples do" split_model distant.onnx "$work/brief" none "${split[@]}" --bind seq=1..24
is "they take the bytes that are planned" "$("$work/brief/pipeline" train --threads 1 --optimizer adamw --data x="$work/x24.npy" --data target="$work/y24.npy" | sed -n 's/^rank 0 memory: \([0-9]*\).*/\1/p')" \
    "$("$ppsplit" plan distant.onnx "${split[@]}" --bind seq=1..24 --ranks 1 --dp 1 --stages 1 --microbatches 2 --schedule 1f1b --batch 4 --optimizer adamw --threads 1 | sed -n 's/^bytes of each rank in plan 1: //p')"
# Rank 1 is made to find a place more in microbatch 2 than rank 0, which sends it there.
cat >"$work/other.c" <<'EOF'
#include "net/links.h"
PpStatus __real_links_start(Links *l, int first, int count, int receive);
PpStatus __wrap_links_start(Links *l, int first, int count, int receive);
PpStatus __wrap_links_start(Links *l, int first, int count, int receive)
{
    Message *m = &l->plan->msg[first];
    if (l->world->rank == 1 && receive && m->t && m->microbatch == 2)
        m->length.of[0]++, m->bytes += 64;
    return __real_links_start(l, first, count, receive);
}
EOF
ok "another length" $cc -c -I"$runtime" -I"$runtime/api" "$work/other.c" -o "$work/other.o"
rm "$work/any/pipeline"
ok "of a rank" make_pipeline "$work/any" DETECTED="$build/tests/first/build/detected.mk" LDFLAGS="$pipeline_ldflags -Wl,--wrap=links_start $work/other.o"
ok "is named with both" refused "microbatch 2: rank 1 has 2 of 'seq', rank 0 has 1 of 'seq': all ranks are to see the same lengths" run any no "${data[@]}" --lengths seq=lengths.npy --batch 4 --microbatches 4
ok "bounds" refused "1 is less than 48" "$ppsplit" model.onnx "${split[@]}" --bind seq=48..1 -o "$work/no"
numbers "$work/x49.npy" 49 1
ok "more places than it takes" refused "it has 49 places of 'seq', this program takes 1 to 48" "$work/any/pipeline" infer --data x="$work/x49.npy"
ok "inputs of two lengths" refused "it has 1 places of 'seq', the files before it 24" run any no --data x="$work/x24.npy" --data target="$work/y1.npy"
ok "a length that no row has" refused "row 1 has length 48, and may have 1 to 24" "$work/any/pipeline" infer --data x="$work/x24.npy" --data x="$work/y24.npy" --lengths seq=lengths.npy
ok "another dimension" refused "what varies is 'seq'" run any no "${data[@]}" --lengths batch=lengths.npy
ok "a program of one length" refused "this program has one length" run bound no --data x="$work/x24.npy" --data target="$work/y24.npy" --lengths seq=lengths.npy
plan_done
