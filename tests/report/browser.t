#!/usr/bin/env bash
# The report in a real browser, where there is one: nothing is said on the console, no text stands on another or reaches out of its box
# or drawing, contrasts are those of WCAG (4.5 for text, 3 for lines), in light and dark, on a desk and on a telephone; and it prints on A4.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
# browse PAGE WIDTH ARGUMENT...
browse() {
    timeout $patience "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/profile" --hide-scrollbars \
        --enable-logging=stderr --window-size="$2",1400 "${@:3}" "file://$work/$1" 2>said.txt
}
# look PAGE WIDTH ARGUMENT...: what the page says of its looks, and what was said on the console
look() {
    { sed '$d' "$1" | sed '$d'; echo '<script>'; cat "$top/tests/report/look.js"; echo '</script></body></html>'; } >look.html
    browse look.html "$2" "${@:3}" --dump-dom | sed -n 's/^.*LOOK //p' | sed 's/<.*//'
    grep -a CONSOLE said.txt | sed 's/.*CONSOLE/CONSOLE/'
}
if [ -z "$browser" ]; then
    skip "the page in a browser" "no chromium"
    plan_done
    exit
fi
echo '<!DOCTYPE html><title>yes</title>' >first.html
if ! browse first.html 400 --dump-dom | grep -q '<title>yes</title>'; then
    skip "the page in a browser" "$browser does not start here: $(grep -a -m1 -o 'ERROR.*\|FATAL.*' said.txt | tr '#' ' ')"
    plan_done
    exit
fi

page() {
    local name=$1 ranks=$2; shift 2
    "$ppsplit" -q "$top/models/$name/model.onnx" "$@" -o "$name"
    # times and bytes that a run could have had
    "$ppsplit" schedule 1f1b --ranks "$ranks" --microbatches 6 --costs F=1034.5,B=2171 --trace "$name.json"
    sed -i 's/"args":{"step":0,"stage":\([0-9]*\),"microbatch":\([0-9]*\)/&,"bytes":1\20\1234/' "$name.json"
    "$ppsplit" report "$name" "$name.json" log.json -o "$name.html"
}
for i in 1 2 3 4 5 6 7 8 9; do echo "{\"step\": $i, \"loss\": $((12 - i)).25, \"grad_norm\": 0.00$i, \"lr\": 0.0003, \"seconds\": 0.5, \"tokens_per_second\": ${i}00000}"; done >log.json
page gpt-ts 4 --split h.0.mlp:begin,h.1:begin,h.1.mlp:end --loss cross_entropy
page unet-ts 2 --split mid:begin --loss mse
page encdec-ts 4 --split encoder.1:begin,decoder.0:begin,decoder.1:begin --loss cross_entropy --multi-use replicate

# what is looked for is found
sed 's|<text x="[0-9.]*"|<text x="40"|g' unet-ts.html >bad.html
sed -i 's|</h1>|</h1><script>console.error("seen")</script>|' bad.html
look bad.html 1100 >bad.txt
ok "a bad page is seen to be one" eval 'grep -q "stands on" bad.txt && grep -q "wider than its box" bad.txt && grep -q "CONSOLE.*seen" bad.txt'
is "a GPT, on a desk, light" "$(look gpt-ts.html 1100)" "light 8 figures with texts"
is "a U-Net, on a telephone, dark" "$(look unet-ts.html 400 --blink-settings=preferredColorScheme=0)" "dark 8 figures with texts"
is "a translator, on a desk, dark" "$(look encdec-ts.html 1100 --blink-settings=preferredColorScheme=0)" "dark 8 figures with texts"
browse gpt-ts.html 1100 --no-pdf-header-footer --print-to-pdf=page.pdf
# a drawing of the modules that is as tall as a sheet has the last one: before it there is no empty one, and no sheet has a line or two
is "on as many sheets as it fills" "$(grep -a -c '/Type /Page$' page.pdf)" 5
is "it prints on A4" "$(grep -a -o '/MediaBox \[[0-9. ]*\]' page.pdf | sort -u | sed 's/\.[0-9]*//g')" "/MediaBox [0 0 594 841]"
plan_done
