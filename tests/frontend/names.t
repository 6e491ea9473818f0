#!/usr/bin/env bash
# Same input, same bytes out; and renaming everything in a model changes only comments, strings and the names of buffers, also when
# the names carry text that would do harm if it ever became code.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1

# What the compiler sees of generated code, a word a line: no comments, strings emptied, kernels and the pointers of a function
# called by their order, as all variables of a function (not members: .k is a k of a descriptor).
code_of() {
    local f
    for f in "$1"/*.c; do
        echo "== ${f##*/}"
        gcc -fpreprocessed -dD -E -P "$f" | sed -E 's/"(\\.|[^"\\])*"/""/g; s/0x[0-9a-f]{9,16}(u|U|l|L)*/HASH/g' |
            perl -0ne 'my %kernel; $kernel{$1} = "kernel" . keys %kernel while /^static \w+ (\w+)\(/gm;
                for (split /(?<=\n\}\n)/) { my %of = %kernel;
                    $of{$1 // $2} //= "p" . keys %of while /\*(?:const )?(\w+)(?:\[\])? =|\b(?:float|double|char|bool|int|u?int\d+_t) \*?(\w+)(?=[],;)[]|\s+=)/g;
                    s/(?<![.\w])(\w+)\b/$of{$1} \/\/ $1/ge; s/\s+/\n/g; print }'
    done
}
rot13() { tr 'A-Za-z' 'N-ZA-Mn-za-m' <<<"$1"; }

for case in gpt-ts example-ts resnet-ts encdec-ts; do
    dir=$top/models/$case
    . "$dir/case.env"
    set -- $splits
    points=() turned=()
    if [ "$1" != markers ]; then
        for p in ${1//,/ }; do
            points+=(--split "$p") turned+=(--split "$(rot13 "${p%:*}"):${p##*:}")
        done
    fi
    ok "$case: splits" "$ppsplit" -q "$dir/model.onnx" --loss "$loss" "${points[@]}" -o "$case"
    mkdir elsewhere && cp "$dir/model.onnx" elsewhere/
    (cd elsewhere && LC_ALL=C.UTF-8 TZ=Asia/Tokyo "$ppsplit" -q model.onnx --loss "$loss" "${points[@]}" -o again)
    ok "$case: same input, same bytes" diff -r "$case" elsewhere/again
    "$build/tests/tools/rename" "$dir/model.onnx" renamed.onnx ' */ #error "harm" \'
    ok "$case: splits with every name changed" "$ppsplit" -q renamed.onnx --loss "$loss" "${turned[@]}" -o renamed
    is "$case: only comments, strings and names differ" "$(code_of renamed)" "$(code_of "$case")"
    ok "$case: harmful names compile" make_pipeline renamed
    rm -rf renamed elsewhere
done
plan_done
