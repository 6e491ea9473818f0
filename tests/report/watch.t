#!/usr/bin/env bash
# ppsplit watch draws the numbers of a log, half of which may be a line that is being written; `report --follow` writes a page anew until all
# steps are there.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
config='{"config": {"mode": "train", "model": "gpt\u001b.onnx", "stages": 2, "ranks": 2, "steps": 8, "schedule": "1f1b", "places": [{"rank": 0, "memory": 9, "activations": 1, "operations": 2e9}, {"rank": 1, "memory": 9, "activations": 1, "operations": 4e9}]}}'
step() { printf '{"step": %d, "loss": %s, "grad_norm": 1.5, "lr": 0.25, "seconds": 0.5, "tokens_per_second": %d, "bubble": 0.25}\n' "$@"; }
{ echo "$config"; step 1 8 100; step 2 4 200; step 3 null 200; step 4 0 200; echo '{"eval_loss": 2.5, "eval_step": 4, "rows": 8, "seconds": 1}'; printf '{"step": 5, "lo'; } >log.json
watch() { COLUMNS=34 "$ppsplit" watch "$@"; }
# 20 columns, five for each step; the third has no loss.  12 rows from 8 to 0: 4 is row 5.5 of 11, which is rounded up.
is "a run that goes on" "$(watch log.json | sed 's/ *$//')" 'log.json: gpt\u001b.onnx, 2 stages on 2 ranks, 1f1b
step 4/8  loss 0  grad_norm 1.5  lr 0.25  tokens/s 200  bubble 25 %  left 0:02
evaluated after step 4:  loss 2.5

loss
          8 |*****
            |
            |
            |
            |
            |     *****
            |
            |
            |
            |
            |
          0 |               *****
            +--------------------
             1                  4

tokens a second
        200 |     ***************
            |
            |
            |
            |
            |
        100 |*****
            +--------------------
             1                  4'
printf 'peak = 2e10 # of each\n' >machine
is "6e9 operations in half a second, of 4e10 in a second" "$(watch log.json --machine machine | grep -o 'MFU [0-9.]* %')" "MFU 30 %"
is "a machine that does not say" "$(echo 'ranks = 2' >machine; watch log.json --machine machine 2>&1)" "machine: error: no line \`peak = FLOPS', the most that a rank can do"
echo "$config" >new.json
is "a run that begins" "$(watch new.json | tail -n 1)" "no step yet"
is "a line in the middle that is none" "$({ step 1 8 100; echo '{"st'; step 2 8 100; } >bad.json; watch bad.json 2>&1 | sed -n 's/ at byte.*//p')" "bad.json: error: no log: line 2 is wrong"
is "JSON that is none" "$(echo '{"a": 1}' >other.json; watch other.json 2>&1)" "other.json: error: is no log of --log-json"
is "no log" "$(watch nowhere.json 2>&1)" "nowhere.json: error: cannot open: No such file or directory"
is "nothing" "$(watch 2>&1 | head -n 1)" "ppsplit: watch: missing operand: LOG.json, what a run writes with --log-json"

# ---- a page that follows ----

"$ppsplit" -q "$top/models/mlp-ts/model.onnx" -o out
{ "$ppsplit" report out new.json -o page.html --follow 1 2>said; echo "ends: $?" >>said; } &
step 1 8 100 >>new.json
for _ in $(seq 200); do grep -qs 'step 1 of 8' page.html && break; sleep 0.05; done
ok "a page of one step, which a browser reads again" grep -q '<meta http-equiv="refresh" content="1"/>' page.html
step 8 1 100 >>new.json
wait
is "comes to an end with the last one" "$(cat said)" "ends: 0"
ok "which nobody reads again" eval '! grep -q -e "refresh" -e "step 1 of 8" page.html'
is "not to standard output" "$("$ppsplit" report out new.json -o - --follow 1 2>&1 | head -n 1)" "ppsplit: report: --follow needs a file, not standard output"
plan_done
