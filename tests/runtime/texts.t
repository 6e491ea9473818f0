#!/usr/bin/env bash
# A text trains alike from every kind of file that holds it (base/file/token_file.c): .npy, llm.c's, Megatron's, numbers alone, bytes, one file
# or a pattern of several; and a mixture of texts goes on after a resume where it was.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
"$build/models/make_gpt" --vocab 256 --dim 16 --layers 1 --heads 2 --seq 16 --rows 2 -o gpt.onnx
head -c 1000 "$top/README.md" >text.txt
head -c 600 "$top/LICENSE" >other.txt
perl -0777 -ne '@t = unpack "C*"; $n = @t; sub put { open my $f, ">", shift; print $f @_ }
    put("raw.bin", pack("v*", @t));
    put("llmc.bin", pack("l<256", 20240520, 1, $n, (0) x 253), pack("v*", @t));
    put("llama.bin", pack("l<256", 20240801, 7, $n, (0) x 253), pack("V*", @t));
    put("mega.bin", pack("v*", @t));
    put("mega.idx", "MMIDIDX\0\0", pack("Q<CQ<Q<l<2q<2q<2", 1, 8, 2, 2, 400, $n - 400, 0, 800, 0, 2));
    put("part1.txt", pack("C*", @t[0 .. 480])); put("part2.txt", pack("C*", @t[480 .. $n - 1]));' text.txt
ok "splits" split_model gpt.onnx out none --loss cross_entropy
train=(out/pipeline train --threads 1 --batch 4 --microbatches 2 --lr 0.1 --quiet)
losses() { grep -o '"loss": [^,]*' "$1"; }
text() { rm -f run.json; "${train[@]}" --steps 18 --log-json run.json "$@" && losses run.json; }
bytes=(--dtype-of input_ids=u8)
want=$(text --tokens input_ids=raw.bin --dtype-of input_ids=u16)
is "eighteen steps" "$(wc -l <<<"$want")" 18
for f in llmc.bin llama.bin mega.bin mega.idx; do is "$f" "$(text --tokens "input_ids=$f")" "$want"; done
is "a text by bytes" "$(text --tokens input_ids=text.txt "${bytes[@]}")" "$want"
is "a pattern of several" "$(text --tokens 'input_ids=part[12].txt' "${bytes[@]}")" "$want"
is "several options" "$(text --tokens input_ids=part1.txt --tokens input_ids=part2.txt "${bytes[@]}")" "$want"
is "a pattern that finds none" "$("${train[@]}" --tokens 'input_ids=none*' 2>&1)" "pipeline: error: --tokens input_ids=none*: no such file"
# rows as files of --data: the same losses, exactly as far before an interruption as after
rows() { out/pipeline tokens --tokens "input_ids=$1" "${bytes[@]}" --output input_ids=x.npy --output target=y.npy --quiet; }
given=(--data input_ids=x.npy --data target=y.npy)
ok "tokens: a pattern of texts" rows 'part[12].txt'
is "rows of bytes" "$(head -c 80 x.npy | grep -ao "|u1.*)")" "|u1', 'fortran_order': False, 'shape': (62, 16)"
ok "they are the text, and it one byte later" eval 'cmp <(tail -c 992 x.npy) <(head -c 992 text.txt) && cmp <(tail -c 992 y.npy) <(tail -c +2 text.txt | head -c 992)'
is "their losses" "$(text "${given[@]}")" "$want"
ok "they train with a checkpoint" "${train[@]}" "${given[@]}" --steps 18 --shuffle 3 --every 11 --checkpoint rows --log-json rows.json
ok "they go on" "${train[@]}" "${given[@]}" --steps 18 --shuffle 3 --resume rows/step_11 --log-json on.json
is "with the same losses" "$(losses on.json)" "$(losses rows.json | tail -n 7)"
is "a text is not written over" "$(out/pipeline tokens --tokens input_ids=text.txt "${bytes[@]}" --output target=text.txt 2>&1)" \
    "pipeline: error: --output would overwrite text.txt, which the run reads"
is "what is of runs is refused" "$(out/pipeline tokens --steps 3 2>&1)" "pipeline: error: --steps is not for tokens: --tokens, --dtype-of and --output are
Try 'pipeline --help' for more information."
is "nor what is no token" "$(out/pipeline tokens --tokens input_ids=raw.bin --dtype-of input_ids=i32 --output input_ids=none.npy 2>&1 | cut -c1-60; ls none.npy 2>&1)" \
    "pipeline: error: --tokens input_ids=raw.bin: row 0, position
ls: cannot access 'none.npy': No such file or directory"
mix=(--tokens 'input_ids=part[12].txt' --tokens input_ids=other.txt "${bytes[@]}")
for order in "" "--shuffle 3"; do
    ok "a mixture${order:+, shuffled}: trains over epochs" "${train[@]}" "${mix[@]}" --mix input_ids=1,3 $order --steps 34 --log-json whole.json --checkpoint "ck$order" --every 26
    ok "a mixture${order:+, shuffled}: goes on" "${train[@]}" "${mix[@]}" --mix input_ids=1,3 $order --steps 34 --log-json rest.json --resume "ck$order/step_26"
    is "a mixture${order:+, shuffled}: the same losses" "$(losses rest.json)" "$(losses whole.json | tail -n 8)"
done
ok "other weights, other rows" eval '! "${train[@]}" "${mix[@]}" --mix input_ids=3,1 --steps 34 --log-json other.json || ! diff -q <(losses other.json) <(losses whole.json) >/dev/null'
is "without its weights" "$("${train[@]}" "${mix[@]}" --steps 34 --resume ck/step_26 2>&1)" \
    "pipeline: error: --resume ck/step_26: it was written with --mix input_ids=1,3, which is none here: give --mix, that one or another"
plan_done
