#!/usr/bin/env bash
# What is written is what others read: the report against its schema, graphs, logs and traces by parsers that are not ours; the
# man page and the completions name every option.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1

json() { perl -MJSON::PP -e 'local $/; decode_json(<>)' "$1"; }
json_lines() { perl -MJSON::PP -ne 'decode_json($_)' "$1"; }

# ---- reports ----

report() {
    local name=$1 split=$2; shift 2
    . "$top/models/$name/case.env"
    local points=() p
    [ "$split" = markers ] || for p in ${split//,/ }; do points+=(--split "$p"); done
    ok "$name: splits" "$ppsplit" -q "$top/models/$name/model.onnx" "${points[@]}" "$@" -o "$name"
    if command -v xmllint >/dev/null; then
        ok "$name: pipe.xml is valid" xmllint --noout --schema "$name/pipe.xsd" "$name/pipe.xml"
        sed 's/<stage index="0"/<stage indx="0"/' "$name/pipe.xml" >bad.xml
        ok "$name: and the schema sees a wrong attribute" eval '! xmllint --noout --schema "$name/pipe.xsd" bad.xml'
        ok "$name: pipe.html is well-formed" xmllint --noout --nonet "$name/pipe.html"
    else
        skip "$name: pipe.xml" "xmllint is not installed"
    fi
    if command -v dot >/dev/null; then
        ok "$name: pipe.dot parses" dot -Tplain -o /dev/null "$name/pipe.dot"
    else
        skip "$name: pipe.dot" "graphviz is not installed"
    fi
}
report gpt-ts h.0.mlp:begin,h.1:begin --loss cross_entropy
report example-ts markers --loss mse --multi-use replicate
report resnet-ts layer2:begin
"$build/tests/tools/rename" "$top/models/encdec-ts/model.onnx" renamed.onnx ' <b a="&amp;"> \ " ]]> '
ok "harmful names: splits" "$ppsplit" -q renamed.onnx --split qrpbqre.0:begin --loss cross_entropy -o harm
command -v xmllint >/dev/null && ok "harmful names: pipe.xml is valid" xmllint --noout --schema harm/pipe.xsd harm/pipe.xml
command -v xmllint >/dev/null && ok "harmful names: pipe.html is well-formed" xmllint --noout --nonet harm/pipe.html
command -v dot >/dev/null && ok "harmful names: pipe.dot parses" dot -Tplain -o /dev/null harm/pipe.dot

# ---- what a run writes ----

m=$top/models/gpt-ts
case_data "$m"
make_pipeline gpt-ts >/dev/null
ok "trains" gpt-ts/pipeline train "${data[@]}" --data "target=$m/target.npy" --steps 3 --log-json log.json --trace trace.json --checkpoint ck --dump-grads grads
gpt-ts/pipeline train "${data[@]}" --data "target=$m/target.npy" --steps 3 >lines
ok "log: lines of JSON" json_lines log.json
is "log: the keys" "$(perl -MJSON::PP -ne 'print join(" ", sort keys %{decode_json($_)}), "\n"' log.json | uniq)" "config
bubble grad_norm loss lr seconds step tokens_per_second"
is "log: the lines on standard output, and 17 digits" "$(perl -MJSON::PP -ne '$d = decode_json($_); next if $$d{config}; printf "step %d/3 loss %.6f grad_norm %.4g lr %.4g\n", @$d{qw(step loss grad_norm lr)};
    /"loss": ([^,]*)/; print "short\n" if sprintf("%.17g", $1) ne $1' log.json)" "$(sed -n 's/^\(step .*\) tokens.*/\1/p' lines)"
ok "trace: JSON" json trace.json
ok "index: JSON" json ck/step_3/index.json
ok "safetensors: JSON within" perl -MJSON::PP -e 'binmode STDIN; read STDIN, $n, 8; read STDIN, $h, unpack("Q<", $n); decode_json($h)' <grads/stage0.safetensors

# ---- what the commands say of themselves ----

options() { grep -o -e '--[a-z][a-z-]*[0-9]*' | sort -u; }
main=$("$ppsplit" --help | options)
all=$({ "$ppsplit" --help; for c in ls schedule report plan forecast merge; do "$ppsplit" $c --help; done; gpt-ts/pipeline --help; sh "$top/codegen/write/run.sh" --help; } | options)
page=$(sed 's/\\-/-/g; s/\\f.//g' "$top/docs/ppsplit.1" | options)
is "the man page names every option, and no other" "$page" "$all"
is "and behind plan those that say which ways it looks at" \
    "$("$ppsplit" plan --help | sed -n '/^Look only/,/--csv/p' | options | comm -23 - <(sed -n '/^.SS Options of ppsplit plan/,/^.SS Options of ppsplit schedule/{s/\\-/-/g;p}' "$top/docs/ppsplit.1" | options))" ""
# Completions: words at a prompt, as bash, zsh and fish find them.
export PPSPLIT_COMPLETE=$top/docs/completions/complete.sh
words() { sh "$PPSPLIT_COMPLETE" "$@" | sort -u; }
begun() { words "$@" | grep -e "^${!#}" | tr '\n' ' '; }
is "completion: every option" "$(words "$ppsplit" model.onnx --)" "$main"
is "completion: every option of schedule" "$(words "$ppsplit" schedule gpipe --)" "$("$ppsplit" schedule --help | options)"
is "completion: every option of the program" "$(words gpt-ts/pipeline train --)" "$(gpt-ts/pipeline --help | options)"
is "completion: commands" "$(begun "$ppsplit" '')$(begun gpt-ts/pipeline '')" "FILES $(
    "$ppsplit" --help | sed -n 's/^  or:  ppsplit \([a-z]*\) .*/\1/p' | sort | tr '\n' ' ')eval help infer measure sample tokens train "
is "completion: split points of the model" "$(begun "$ppsplit" "$m/model.onnx" --split h.1.m)" "$("$ppsplit" ls "$m/model.onnx" |
    awk '$NF ~ /^h\.1\.m/ { print $NF ":begin\n" $NF ":end" }' | sort | tr '\n' ' ')"
is "completion: another one of a list" "$(begun "$ppsplit" "$m/model.onnx" --split ln_f:begin,h.0.m | wc -w)" "$("$ppsplit" ls "$m/model.onnx" | awk '$NF ~ /^h\.0\.m/ { n += 2 } END { print n }')"
is "completion: schedules of a split, as of a plan" "$(begun "$ppsplit" m.onnx --schedule '')" "$(begun "$ppsplit" plan m.onnx --schedule '')"
is "and these are the program's, without auto" "$(begun "$ppsplit" plan m.onnx --schedule '')auto $(begun "$ppsplit" plan m.onnx --optimizer ad)" "$(words gpt-ts/pipeline train --schedule '' | grep -v -e FILES -e auto | tr '\n' ' ')auto adam adamw "
is "completion: schedules" "$(begun "$ppsplit" schedule zb)" "$("$ppsplit" schedule --help | awk '/^  zb/ { print $1 }' | sort | tr '\n' ' ')"
is "completion: schedules of the program" "$(begun gpt-ts/pipeline train --schedule zb)" "$(begun "$ppsplit" schedule zb)"
is "completion: inputs, outputs, optimizers, losses" \
    "$(begun gpt-ts/pipeline train --data '')$(begun gpt-ts/pipeline infer --output '')$(begun gpt-ts/pipeline train --optimizer ad)$(begun "$ppsplit" m.onnx --loss n)" \
    "input_ids= target= logits= adam adamw nll "
for option in --lr-schedule --recompute --transport; do
    said=$(gpt-ts/pipeline --help | awk -v option=$option '/^ ? ? ? ? ? ?-/ { is = $1 == option } is')
    for word in $(words gpt-ts/pipeline train $option ''); do [[ $said =~ [\ :]$word[\ ,:\;.] ]] || echo "$option has no $word"; done
done >wrong
is "completion: values that help names in its text" "$(cat wrong)" ""
. "$top/docs/completions/ppsplit.bash"
bash_words() { COMP_LINE=$1; COMP_POINT=${#1}; _ppsplit; printf '%s ' "${COMPREPLY[@]}"; }
is "completion: bash, whose words end at = and :" "$(bash_words "$ppsplit $m/model.onnx --split h.1.attn.proj:")$(bash_words "$ppsplit m.onnx --loss=cr")" "begin end cross_entropy "
if command -v zsh >/dev/null; then
    is "completion: zsh" "$(cd "$top/docs/completions" && zsh -fc 'compadd() { shift; [[ $1 != -S ]] && print -rl -- ${(P)1} }; compset() { : }; _files() { print files }
        words=($1 schedule "") CURRENT=3; . ./_ppsplit' - "$ppsplit" 2>&1 | grep -c -e zb-h1 -e files)" 2
else
    skip "completion: zsh" "zsh is not installed"
fi
if command -v fish >/dev/null; then
    is "completion: fish" "$(cd "$build" && PATH=$build:$PATH fish -N -c ". $top/docs/completions/ppsplit.fish; complete -C 'ppsplit schedule zb'" | cut -f1 | sort | tr '\n' ' ')" "zb-h1 zb-h2 zb-v zbvzerobubble "
else
    skip "completion: fish" "fish is not installed"
fi
is "the version" "$("$ppsplit" --version | head -n 1)" "ppsplit $(make -s -C "$top" print-VERSION)"
is "the table of operations has a row for each that docs/supported.md counts" \
    "$("$ppsplit" ops | awk 'NR > 1 && $4 != "no" { d++ } END { print (NR - 1 > 145), (d > 100) }')" "1 1"
if command -v man >/dev/null; then
    is "the man page is clean" "$(LC_ALL=C.UTF-8 MANWIDTH=120 man --warnings -l "$top/docs/ppsplit.1" 2>&1 >/dev/null)" ""
fi
plan_done
