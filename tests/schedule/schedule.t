#!/usr/bin/env bash
# The command `ppsplit schedule`: what it prints, to the letter, and how it refuses.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
s() { "$ppsplit" schedule "$@"; }
status() { "$@" >out 2>err; echo $?; }

is "1f1b simulated" "$(s 1F1B --ranks 4 --stages 4 --microbatches 8 --simulate | head -7)" "makespan 33
span 33
bubble 0.2727
rank 0 busy 24 peak 4
rank 1 busy 24 peak 3
rank 2 busy 24 peak 2
rank 3 busy 24 peak 1"
is "makespan and span differ" "$(s zbvzerobubble --ranks=4 --microbatches=8 --simulate | head -3)" "makespan 51
span 48
bubble 0.0588"
is "costs, latency" "$(s 1f1b --ranks 8 --microbatches 24 --simulate --costs F=18.522,I=18.086,W=9.337,B=27.423,c=0.601 | sed -n 3p)" "bubble 0.2431"
is "compute only, idle slots kept" "$(s gpipe --ranks 2 --microbatches 2)" "0F0,0F1,,,,0B0,0B1
,1F0,1F1,1B0,1B1"
is "with messages" "$(s gpipe --ranks 2 --stages 2 --microbatches 1 --comms --csv -)" "0F0,0SEND_F0,0RECV_B0,0B0
1RECV_F0,1F0,1B0,1SEND_B0"
is "lowered" "$(s gpipe --ranks 1 --microbatches 1 --lower)" "0UNSHARD,0F0,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0RESHARD"
is "with a window for each rank" "$(s loopedbfs --ranks 2 --stages 4 --microbatches 1 --unshard 1,2)" "0UNSHARD,0F0,0RESHARD,2UNSHARD,2F0,2B0,2RESHARD,0UNSHARD,0B0,0RESHARD
1UNSHARD,3UNSHARD,1F0,3F0,3B0,3RESHARD,1B0,1RESHARD"
is "parameters that come before each stage's computations: five times" "$(s loopedbfs --ranks 1 --stages 3 --microbatches 1 --unshard 1 --simulate --costs UNSHARD=1 | head -1)" "makespan 14"
is "and beside the stage before" "$(s loopedbfs --ranks 1 --stages 3 --microbatches 1 --unshard 2 --simulate --costs UNSHARD=1 | head -1)" "makespan 10"
is "that of too few" "$(status s gpipe --ranks 3 --microbatches 1 --unshard 1,2)" 2
# PyTorch's rows before it had WAIT_REDUCE_GRAD and WAIT_SEND; its GPipe's, which have reductions but no messages
printf '0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1RESHARD\n' >older.csv
is "an older file waits for its reductions at once" "$(s older.csv --verify --csv - 2>/dev/null | head -1)" "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0RESHARD"
is "and is lowered to what it lacks" "$(s older.csv --lower)" "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0WAIT_SEND_F0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0RESHARD
1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1RESHARD,1WAIT_SEND_B0"
printf '0F0,0B0,0REDUCE_GRAD\n,1F0,1B0,1REDUCE_GRAD\n' >reduced.csv
is "reductions that are there are not made twice" "$(s reduced.csv --lower | head -1)" "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0WAIT_SEND_F0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0RESHARD"
ok "and verify" s reduced.csv --lower --defer-reduce --verify
is "recomputed before each backward" "$(s 1f1b --ranks 2 --microbatches 2 --recompute always)" "0F0,0F1,0R0,0B0,0R1,0B1
1F0,1R0,1B0,1F1,1R1,1B1"
is "in the place of an idle slot" "$(s gpipe --ranks 2 --microbatches 2 --recompute 0)" "0F0,0F1,,,0R0,0B0,0R1,0B1
,1F0,1F1,1B0,1B1"
is "parts of the stash" "$(s 1f1b --ranks 1 --microbatches 2 --recompute cheap | s /dev/stdin)" "0F0,0R0@255,0B0,0F1,0R1@255,0B1"
is "recomputing what a gradient is waited for costs nothing: m (F + R + B) + (p-1) (F + B)" \
    "$(s 1f1b --ranks 4 --microbatches 8 --recompute always --simulate | head -4 | tr '\n' ' ')" "makespan 41 span 41 bubble 0.2195 rank 0 busy 32 peak 1 "
is "but the last microbatch" "$(s 1f1b --ranks 4 --microbatches 8 --recompute except-last --simulate --costs R=0.5 | sed -n '1p;4p')" "makespan 36.5
rank 0 busy 27.5 peak 2"
# Revolve's table (Griewank and Walther, Algorithm 799: n + r n - C(s + r, s + 1) forwards of n steps with s snapshots) where a stage's input is
# never made again from another's: n - 1 snapshots, 2 n - 1 forwards.
forwards() { s gpipe --ranks 1 --stages "$1" --microbatches 1 --recompute "$(seq -s , 0 $(($1 - 2)))" | tr ',' '\n' | grep -c '[FR]0$'; }
is "a step made again from its snapshot: Revolve's 5, 19 and 199 forwards" "$(forwards 3) $(forwards 10) $(forwards 100)" "5 19 199"
is "auto needs a program" "$(status s 1f1b --ranks 2 --microbatches 2 --recompute auto)" 2

for name in gpipe 1f1b interleaved1f1b loopedbfs interleavedzerobubble zb-h1 zb-h2 gis gis-h gis:1 forward-only zb-v v-half v-min v v:3 1f1b-v; do
    ok "$name: 4 stages on 2 ranks verify" s $name --ranks 2 --stages 4 --microbatches 6 --lower --verify
    s $name --ranks 2 --stages 4 --microbatches 6 --lower --csv $name.csv
    is "$name: reads its own file" "$(s $name.csv)" "$(cat $name.csv)"
    sed 's/$/\r/' $name.csv >crlf.csv
    is "$name: and with the other line ending" "$(s crlf.csv --csv -)" "$(cat $name.csv)"
done
ok "dualpipev verifies, deferred" s dualpipev --ranks 4 --microbatches 10 --lower --defer --verify
ok "auto is verified" s auto --ranks 4 --stages 8 --microbatches 8 --placement v --memory-chunks 6 --verify --csv auto.csv
is "auto says what it compared, and keeps to the memory" "$(s auto --ranks 4 --stages 8 --microbatches 8 --placement v --memory-chunks 6 2>&1 >again.csv | sed -n '1p;/zbv/s/.*: //p;$p' | sed 's/  *makespan [0-9].*//')
$(cmp auto.csv again.csv && echo the same)" "10 schedules compared by makespan:
left out, 8 chunks alive
  made                   v
the same"
is "auto without room" "$(status s auto --ranks 3 --stages 7 --microbatches 5 --memory-chunks 1) $(cat err)" "1 ppsplit schedule: error: no schedule of 7 stages on 3 ranks fits the memory: the one that takes least, 1f1b, does not: 9 chunks alive"
zb2p() { s auto --ranks 8 --microbatches 24 --memory-chunks 16 --objective span --costs "F=18.522,I=18.086,W=9.337,c=0.601$1" --simulate 2>&1 >simulated; sed -n 's/^span_bubble //p' simulated; }
zb2p ,MW=0.3664 >bubble 2>compared
is "ZB-2p of 2401.10241, table 5, where I frees its part of a chunk" "$(tail -n 1 bubble)" 0.0433
ok "and the limit holds" awk '/^rank/ { if ($8 > 16) exit 1; n++ } END { exit n != 8 }' simulated
ok "a chunk that is held whole until W takes more" awk -v at="$(zb2p "" | tail -n 1)" 'BEGIN { exit !(at > 0.1) }'
is "no more than all of a chunk is left for W" "$(status s 1f1b --ranks 2 --microbatches 2 --costs F=1,MW=2)" 2
is "a limit is for auto" "$(status s 1f1b --ranks 2 --microbatches 2 --memory-chunks 3)" 2
ok "a send budget" s interleaved1f1b --ranks 4 --stages 8 --microbatches 8 --send-budget 2 --verify --buffers 1

ok "a schedule is chosen and made in a second of the processor: 16 ranks, 64 microbatches, 2401.10241's times" \
    eval '(ulimit -t "${LIMIT_S:-1}" && exec "$ppsplit" schedule auto --ranks 16 --microbatches 64 --costs F=11.307,I=11.254,W=8.101,c=0.379 --simulate >chosen) && grep -q "^span_bubble 0.0" chosen'

# ---- names: the registry's, in help, documentation and completion; PyTorch's are the same schedules ----

names=$(s --help | sed -n '/NAME is one of/,/^A CSV file/s/^  \([a-z0-9][a-z0-9-]*\)  .*/\1/p')
is "seventeen schedules and auto" "$(echo "$names" | wc -l)" 18
is "docs/schedules.md has a row for each" "$(sed -n 's/^| \([a-z0-9-]*\) | [A-Za-z0-9]* *| .*/\1/p' "$top/docs/schedules.md" | sort)" "$(echo "$names" | sort)"
is "completion knows each" "$(sh "$top/docs/completions/complete.sh" "$ppsplit" schedule '' | grep -v FILES)" "$names"
for name in $names; do ok "the man page has $name" grep -q -F -- "${name//-/\\-}" "$top/docs/ppsplit.1"; done
is "a group too small" "$(status s gis:1 --ranks 4 --stages 8 --microbatches 4) $(cat err)" "1 ppsplit schedule: error: gis:1: with 4 ranks a round has 2 to 4 microbatches"
is "unequal rounds" "$(status s gis --ranks 4 --stages 8 --microbatches 9) $(cat err)" "1 ppsplit schedule: error: gis with 4 ranks has rounds of 4 microbatches: 9 is not a multiple of 4 (gis:G has rounds of G)"
for name in GPipe 1F1B Interleaved1F1B LoopedBFS InterleavedZeroBubble ZBVZeroBubble DualPipeV; do
    lower=$(echo $name | tr A-Z a-z)
    is "$name is $lower" "$(s $name --ranks 2 --stages 4 --microbatches 4)" "$(s $lower --ranks 2 --stages 4 --microbatches 4)"
    is "Schedule$name too" "$(s Schedule$name --ranks 2 --stages 4 --microbatches 4 --simulate)" "$(s $lower --ranks 2 --stages 4 --microbatches 4 --simulate)"
done
is "two stages a rank where the schedule is a V" "$(s DualPipeV --ranks 2 --microbatches 4)" "$(s dualpipev --ranks 2 --stages 4 --microbatches 4)"

echo '0F0,2BW0,0B0' >bad.csv
is "a bad cell: status" "$(status s bad.csv --simulate)" 1
ok "a bad cell: row, cell and text" grep -q "row 0 (rank 0), cell 1 '2BW0'" err
printf '0F0,,0B0,0REDUCE_GRAD\n,1F0,,1B0,1REDUCE_GRAD,1REDUCE_GRAD\n' >idle.csv
is "a cell has the number that it has in the file, lowered or not" "$(s idle.csv --verify 2>&1; s idle.csv --lower --verify 2>&1)" "ppsplit schedule: error: rank 1, cell 5 (1REDUCE_GRAD): this reduction is in the schedule twice
ppsplit schedule: error: rank 1, cell 5 (1REDUCE_GRAD): this reduction is in the schedule twice"
printf '(0F0;2F0)OVERLAP_F_B,,0B0,2B0\n,1F0,1B0\n' >lost.csv
is "a compound is one, an idle one too" "$(s lost.csv --simulate 2>&1; s lost.csv --lower 2>&1)" "ppsplit schedule: error: rank 0, cell 2 (0B0): this action can never begin
ppsplit schedule: error: the schedule cannot go on: rank 0 is stuck at cell 0
  rank 0, cell 0 (2F0) waits for the forward of stage 1
  rank 1, cell 1 (1F0) waits for the forward of stage 0"
printf '0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n' >cross.csv
is "a deadlock: status" "$(status s cross.csv --verify)" 1
ok "a deadlock: the cycle" grep -q "rank 0, cell 3 (0SEND_F1): rank 1 receives it at cell 4 (1RECV_F1), but waits at cell 3 (1SEND_B0)" err
is "none with a buffer" "$(status s cross.csv --verify --buffers 1)" 0
is "nothing on stdout when refused" "$(s cross.csv --verify 2>/dev/null)" ""
is "microbatches that do not fit" "$(status s interleaved1f1b --ranks 4 --stages 8 --microbatches 9)" 1
is "an unknown option" "$(status s 1f1b --rnaks 4)" 2
ok "did you mean" grep -q "did you mean '--ranks'" err
is "an unknown schedule's nearest" "$(s Interleave1F1B --ranks 4 --microbatches 4 2>&1 | head -1)" \
    "ppsplit schedule: error: unknown schedule 'Interleave1F1B'; did you mean 'interleaved1f1b'? (there are $(s --help |
        sed -n '/NAME is one of/,/^A CSV file/s/^  \([a-z0-9][a-z0-9-]*\)  .*/\1,/p' | tr '\n' ' ' | sed 's/, $//'))"
is "an edge from nowhere" "$(status s 1f1b --ranks 8 --microbatches 4 --edge :5)" 2
is "an unknown schedule" "$(status s 1f1bb --ranks 4 --microbatches 4)" 2
is "help" "$(status s --help)" 0
is "a file that is not there" "$(status s none.csv)" 3
is "a folder that is not there" "$(status s 1f1b --ranks 2 --microbatches 2 --csv none/x.csv)" 3
# What is there keeps its links, its mode and its other names; standard output is what it is.
echo 0F0 >kept.csv && chmod 640 kept.csv && ln -s kept.csv link.csv
s gpipe --ranks 2 --microbatches 2 --csv link.csv
s gpipe --ranks 2 --microbatches 2 --csv /dev/stdout >out.csv
is "a link and a mode" "$(readlink link.csv) $(cmp kept.csv out.csv && stat -c %a kept.csv)" "kept.csv 640"
is "what is read stays" "$(s kept.csv --lower --csv link.csv 2>&1; cmp kept.csv out.csv)" "ppsplit schedule: error: link.csv: would overwrite what the command reads"

echo notes >notes
is "and what is none of its files" "$(for as in csv svg trace; do status s gpipe --ranks 2 --microbatches 2 --$as notes; done | tr '\n' ' '; cat notes err)" \
    "3 3 3 notes
ppsplit schedule: error: notes: exists and is not a trace"

s zb-h1 --ranks 3 --microbatches 5 --lower --simulate --costs F=3,1F=5,I=2,W=4,c=1 --trace t.json --svg s.svg >simulated
ok "the trace is JSON" grep -q '"name":"1F4","cat":"F","ph":"X","pid":0,"tid":1' t.json
is "costs from a trace" "$(s zb-h1 --ranks 3 --microbatches 5 --simulate --costs t.json | sed -n 4,6p)" "$(sed -n 4,6p simulated)"
ok "the drawing is SVG" grep -q '^</svg>' s.svg
is "a grid" "$(s gpipe --ranks 2 --microbatches 1 --grid)" "rank 0   0F0-|               0B0------|
rank 1        1F0-|1B0------|          "
plan_done
