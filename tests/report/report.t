#!/usr/bin/env bash
# `ppsplit report`: its page and figures are well-formed and self-contained, show the numbers they were given, no text stands on
# another, and what is wrong with its input is said in one diagnostic, nothing written.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
report() { "$ppsplit" report "$@"; }
# refused STATUS TEXT ARGUMENT...: that status, one error, of that text, no page
refused() {
    local want=$1 text=$2 got
    shift 2
    rm -f page.html
    report "$@" -o page.html >out.txt 2>err.txt
    got=$?
    is "refused: $text" "$got $(grep -c 'error:' err.txt) $(grep -c -F -- "$text" err.txt) $(ls page.html* 2>/dev/null)" "$want 1 1 "
}
well_formed() {
    if command -v xmllint >/dev/null; then ok "$1" xmllint --noout --nonet "${@:2}"; else skip "$1" "no xmllint"; fi
}
# Texts of a figure, with a box of 0.6 em a character, against one another.
overlaps() {
    perl -e '
        for my $file (@ARGV) {
            open my $f, "<", $file or die; local $/; my $svg = <$f>; my @box;
            $svg =~ s{</?tspan[^>]*>}{}g; my ($em) = $svg =~ /font-size="(\d+)"/;
            while ($svg =~ m{<text x="([\d.]+)" y="([\d.]+)"([^>]*)>([^<]*)</text>}g) {
                my ($x, $y, $how, $text) = ($1, $2, $3, $4);
                $text =~ s/&[a-z]+;/./g;
                my $w = 0.55 * $em * length $text;
                $x -= $how =~ /middle/ ? $w / 2 : $how =~ /end/ ? $w : 0;
                for (@box) {
                    my ($a, $b, $c, $d, $e) = @$_;
                    print "$file: $text on $e\n" if $x < $c && $a < $x + $w && $y - 0.8 * $em < $d && $b < $y;
                }
                push @box, [$x, $y - 0.8 * $em, $x + $w, $y, $text];
            }
        }' "$@"
}
# boxes FILE: what is wrong with a drawing of modules: boxes that touch, or reach out of it.
boxes() {
    perl -0777 -ne '
        my ($w, $h) = /width="(\d+)" height="(\d+)"/; my @box;
        while (m{<g><title>([^<]*)</title><g class="c\d"[^>]*><rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="(\d+)"}g) {
            my @x = ($1, $2, $3, $2 + $4, $3 + $5);
            print "$1 is outside\n" if $x[1] < 0 || $x[2] < 0 || $x[3] > $w || $x[4] > $h;
            for (@box) { print "$x[0] on $$_[0]\n" if $x[1] < $$_[3] && $$_[1] < $x[3] && $x[2] < $$_[4] && $$_[2] < $x[4] }
            push @box, \@x;
        }
        print scalar @box, " boxes\n"' "$1"
}
shows() { for text in "${@:2}"; do grep -q -F -- "$text" "$1" || { echo "$1: no '$text'"; return 1; }; done; }

"$ppsplit" -q "$top/models/doc-ts/model.onnx" --split layers.1:begin --loss cross_entropy -o out

# ---- a folder alone ----

ok "of a folder" report out -o page.html
well_formed "is well-formed" page.html
ok "parameters, operations and stash of both stages, what crosses" \
    shows page.html 'model.onnx: 2 stages' '2 stages, loss cross_entropy.' '>emb, layers.0</td>' '>42</td>' '>168</td>' '>24</td>' '>546</td>' '>160 B</td>' '>312 B</td>' '/layers.0/lin/Add_output_0' '>96 B, from '
ok "and what is missing is named" shows page.html '--trace FILE.json' '--log-json FILE'
ok "it is the one that the folder has" cmp page.html out/pipe.html

# ---- times that are known: 1F1B, F = 1, B = 2, of 4 microbatches on 2 ranks takes 3 (4 + 2 - 1), idle are 3 of 15 ----

"$ppsplit" schedule 1f1b --ranks 2 --microbatches 4 --costs F=1000,B=2000 --trace trace.json
printf '%s\n' '{"config": {"schedule": "1f1b", "numbers": {"groups": "1", "batch": "8", "tf32": "none"}, "places": [{"rank": 0, "memory": 2048, "activations": 1024, "operations": 4e9}, {"rank": 1, "memory": 1024, "activations": 512, "operations": 2e9}]}}' \
    '{"step": 1, "loss": 3.5, "grad_norm": 1.5, "lr": 0.25, "skipped": false, "seconds": 0.5, "tokens_per_second": 100}' \
    '{"eval_loss": 2, "eval_step": 1, "rows": 8, "seconds": 1}' \
    '{"step": 2, "loss": 2.75, "grad_norm": null, "lr": 0.125, "seconds": 0.25, "tokens_per_second": 200.5}' >log.json
ok "of a folder, a trace and a log, with its figures" report out trace.json log.json --svg figures -o page.html
well_formed "are well-formed" page.html figures/*.svg
is "the figures" "$(ls figures | tr '\n' ' ')" \
    "gradient-norm.svg learning-rate.svg loss.svg modules.svg schedule-measured.svg schedule-simulated.svg throughput.svg "
ok "the step, simulated and measured; idle time; milliseconds of the stages" shows page.html 'its times in the trace: 15 ms' 'of 1: 15 ms' '>20.0 %<' '>1 ms</td>' '>2 ms</td>'
is "each action is in both drawings, idle time in each lane" \
    "$(grep -c '<rect' figures/schedule-measured.svg) $(grep -c '<rect' figures/schedule-simulated.svg) $(grep -c 'idle 3 ms of 15<' figures/schedule-measured.svg)" "18 18 2"
ok "on one scale" eval 'diff <(grep -o "<rect.*" figures/schedule-measured.svg) <(grep -o "<rect.*" figures/schedule-simulated.svg)'
ok "the log's numbers" shows page.html 'last step 2.75.' 'last step 200.5.' 'last step 0.125.' '<dt>tokens a second</dt>' '<dt>model FLOP/s of a rank</dt><dd>12 G</dd>'
ok "the loss of rows that do not train is beside that of those that do" \
    eval 'shows page.html "Of the rows of --eval-data, after step 1, 2." && shows figures/loss.svg ">log.json, evaluated</text>" "<circle "'
ok "planned memory" shows page.html '>2 KiB</td>' '>512 B</td>'
ok "the axes: round numbers around those of the log" shows figures/loss.svg '>2.0<' '>3.5<' '>step<' '>loss<'
is "no text on another" "$(overlaps figures/*.svg)" ""
is "nothing is fetched, nothing is run" "$(grep -i -E -o '<script|<link|@import|url\(|src=|href=|[a-z]+://[^"]*' page.html | sort -u)" "http://www.w3.org/1999/xhtml
http://www.w3.org/2000/svg"
for k in 1 2 3; do
    printf '{"step": %d, "loss": 0.2489%s, "grad_norm": 1, "lr": 0.1, "seconds": 1, "tokens_per_second": 12%d4000}\n' $k "$([ $k = 3 ] && echo 0000000002)" $k
done >even.json
ok "of numbers that hardly differ" report out even.json --svg even -o even.html
is "marks are as wide as their column, and each another one" "$(grep -h -o 'text-anchor="end">[^<]*' even/loss.svg even/throughput.svg | cut -d '>' -f 2 | tr '\n' ' ')" \
    "0.20 0.25 1.210 M 1.215 M 1.220 M 1.225 M 1.230 M 1.235 M "
report out trace.json log.json -o again.html
is "no report is written over what is none" "$(cp log.json kept.json; report out trace.json -o kept.json 2>&1; cmp log.json kept.json && echo the same)" \
    "kept.json: error: exists and is not a report
hint: give another name with -o, or remove the file first
the same"
ok "same input, same bytes" cmp page.html again.html
ok "a measured step by ppsplit schedule" eval '"$ppsplit" schedule trace.json --svg run.svg && shows run.svg "15 ms" "idle 3 ms of 15"'
is "which only draws" "$("$ppsplit" schedule trace.json --simulate 2>err.txt; echo $?)" 2

# ---- a run ----

if [ -x "$build/tests/first/pipeline" ]; then
    "$build/tests/first/pipeline" train --ranks 2 --data x="$top/models/doc-ts/in.x.npy" --data target="$top/models/doc-ts/target.npy" \
        --schedule zb-h1 --microbatches 4 --steps 5 --trace run.json --log-json run.log >run.txt
    ok "of a run" report "$build/tests/first" run.json run.log --svg of-run -o page.html
    well_formed "is well-formed" page.html
    is "memory, as the run says it" "$(grep -o '"memory": [0-9]*' run.log | grep -o '[0-9]*')" "$(sed -n 's/^rank [01] memory: \([0-9]*\) .*/\1/p' run.txt)"
    is "bytes in use of each action: at most what was planned, and once as many" "$(perl -ne '$most{$2} = $1 if /"memory planned".*"tid":(\d+)/ && 0;
        $plan{$1} = $2 if /"memory planned".*"tid":(\d+),.*"bytes":(\d+)/; $least{$1} = $2 if /"memory always".*"tid":(\d+),.*"bytes":(\d+)/;
        if (/"ph":"X".*"tid":(\d+),.*"step":2,.*"bytes":(\d+)/) { $most{$1} = $2 if $2 > ($most{$1} // 0); print "less than always\n" if $2 < $least{$1} }
        END { print join(" ", map { "$_:" . ($most{$_} - $plan{$_}) } sort keys %plan), "\n" }' run.json)" "0:0 1:0"
    is "and planned as the log has it" "$(grep -o 'memory planned.*bytes":[0-9]*' run.json | grep -o '[0-9]*$')" "$(grep -o '"memory": [0-9]*' run.log | grep -o '[0-9]*')"
    "$build/tests/first/pipeline" train --ranks 4 --dp 2 --data x="$top/models/doc-ts/in.x.npy" --data target="$top/models/doc-ts/target.npy" \
        --microbatches 2 --trace dp.json --log-json dp.log --quiet
    is "of replicas too, whose sums have memory of their own" "$(grep -o 'memory planned.*bytes":[0-9]*' dp.json | grep -o '[0-9]*$')" "$(grep -o '"memory": [0-9]*' dp.log | grep -o '[0-9]*' | head -2)"
    ok "drawn beside it" eval '[ $(grep -c "planned .*</text>" of-run/memory.svg) = 2 ]'
    is "every computation is drawn" "$(grep -o '<title>[01][FIW][0-3] ' of-run/schedule-measured.svg | sort -u | wc -l)" 24
    is "no text on another" "$(overlaps of-run/*.svg)" ""
fi

# ---- the modules ----

module_case() {
    local name=$1; shift
    "$ppsplit" -q "$top/models/$name/model.onnx" "$@" -o "$name" || return
    report "$name" --svg "$name.svgs" -o page.html
    is "$name: no box on another" "$(boxes "$name.svgs/modules.svg" | sed 's/[0-9]* boxes/boxes/')" boxes
    is "$name: no text on another" "$(overlaps "$name.svgs/modules.svg")" ""
}
module_case gpt-ts --split h.0.mlp:begin,h.1:begin,h.1.mlp:end --loss cross_entropy
module_case unet-ts --split d2:begin,mid:begin,u1:begin --loss mse
module_case encdec-ts --split encoder.1:begin,decoder.0:begin,decoder.1:begin --loss cross_entropy --multi-use replicate
module_case resnet-ts --split layer2:begin
printf '%s\n' '{"config": {"numbers": {"batch": "8"}}}' '{"step": 1, "loss": 1, "seconds": 0.25, "tokens_per_second": 32}' >images.json
report resnet-ts images.json -o page.html
ok "images have no tokens: rows a second" eval 'shows page.html "<dt>rows a second</dt><dd>32</dd>" ">rows a second</text>" && ! grep -q tokens page.html'
ok "a tied parameter, a skip over two stages, an Add between modules" \
    eval 'shows gpt-ts.svgs/modules.svg "wte.weight shared, 3 KiB" ">Add<" "stroke-dasharray" && shows unet-ts.svgs/modules.svg "16 KiB, skips 1"'

# ---- a run that goes on ----

config='{"config": {"mode": "train", "steps": 8, "schedule": "1f1b", "places": [{"rank": 0, "memory": 9, "activations": 1}]}}'
step() { printf '{"step": %d, "loss": %s, "grad_norm": 1.5, "lr": 0.25, "seconds": 0.5, "tokens_per_second": %d, "bubble": 0.25}\n' "$@"; }
{ echo "$config"; step 1 8 100; step 2 4 200; printf '{"step": 3, "lo'; } >half.json
ok "the last line is half written" eval 'report out half.json -o page.html && shows page.html "step 2 of 8; the run goes on" "last step 200"'
is "a line in the middle that is none" "$({ step 1 8 100; echo '{"st'; step 2 8 100; } >bad.json; report out bad.json -o - 2>&1 | sed -n 's/ at byte.*//p')" "bad.json: error: no log: line 2 is wrong"
is "JSON that is none" "$(echo '{"a": 1}' >other.json; report out other.json -o - 2>&1)" "other.json: error: is no log of --log-json"
echo "$config" >new.json
{ "$ppsplit" report out new.json -o page.html --follow 1 2>said; echo "ends: $?" >>said; } &
step 1 8 100 >>new.json
until grep -qs 'step 1 of 8' page.html || ! kill -0 $! 2>/dev/null; do sleep 0.05; done
ok "a page of one step, which a browser reads again" grep -q '<meta http-equiv="refresh" content="1"/>' page.html
step 8 1 100 >>new.json
wait
is "comes to an end with the last one" "$(cat said)" "ends: 0"
ok "which nobody reads again" eval '! grep -q -e "refresh" -e "step 1 of 8" page.html'
is "not to standard output" "$("$ppsplit" report out new.json -o - --follow 1 2>&1 | head -n 1)" "ppsplit report: error: --follow needs a file, not standard output"

# ---- what is wrong ----

refused 3 "nowhere/pipe.html" nowhere
ok "and what OUT is" grep -q 'hint: OUT, which comes first, is the folder that' err.txt
refused 3 "gpt-ts: error: is a folder" out gpt-ts
ok "and that it is one" grep -q 'hint: give OUT first, then logs' err.txt
refused 3 "none.json" out none.json
mkdir cut marks && head -c 700 out/pipe.html >cut/pipe.html
refused 1 "cut/pipe.html: error: was not written by this version of ppsplit" cut
ok "and what helps" grep -q 'hint: split the model again' err.txt
sed 's|figure-modules|figure-../../modules|' out/pipe.html >marks/pipe.html
is "a figure whose name leads elsewhere is not written" "$(report marks --svg none -o page.html 2>&1 | head -n 1; ls none)" "marks/pipe.html: error: was not written by this version of ppsplit"
echo '{"step": 1, "loss": }' >bad.json
refused 1 "no log: line 1 is wrong at byte" out bad.json
head -c 400 trace.json >half.json
refused 1 "not a JSON file" out half.json
"$ppsplit" schedule 1f1b --ranks 4 --microbatches 4 --trace stages.json
refused 1 "the trace has 4 stages" out stages.json
is "a full disk" "$(report out -o /dev/full 2>err.txt; echo $?) $(grep -c error: err.txt)" "3 1"
plan_done
