#!/usr/bin/env bash
# CONTRIBUTING.md, followed: an operation and an optimizer are added to a copy of the tree by the patches of contributing/, which touch
# the files that it names and no others; the copy is built, splits a model with the new operation and trains it with the new optimizer.
# The numbers are those of a hand: sqrt(3^2 + 16) = 5.
. "$(dirname "$0")/../lib.sh"
here=$top/tests/whole/contributing
cd "$work" || exit 1
command -v patch >/dev/null || { skip "CONTRIBUTING.md" "no patch"; plan_done; exit; }

mkdir -p tree/tests
cp -r "$top"/{Makefile,ppsplit.c,ppsplit.h,command,docs,base,ir,frontend,mesh,partition,autodiff,codegen,schedule,runtime,planner,report,annotate} tree && cp -r "$top"/tests/{frontend,runtime,share} tree/tests || exit 1

# Files that tables name and that are not there; a name alone stands in the folder of the one before it.
missing() {
    local f folder=.
    while read -r f; do
        case $f in *NAME*) continue ;; esac
        (cd "$top" && { compgen -G "$f" || compgen -G "$folder/$f"; } >/dev/null) || echo "$f"
        case $f in */*) folder=${f%/*} ;; esac
    done < <(sed -n 's/^| \(`[^|]*\) |.*/\1/p' "$top/CONTRIBUTING.md" | grep -o '`[^`]*`' | tr -d '`')
}
is "every file that CONTRIBUTING.md names is there" "$(missing)" ""

# Functions that "Where things happen" names with their file, and that are not in it: `diag_fatal` in `base/diag.c`, or in parentheses.
elsewhere() {
    local function file
    sed -n '/^## Where things happen/,/^## A /p' "$top/CONTRIBUTING.md" | grep -oE '`[a-z_]+` (in |\()`[a-z_/]+\.[ch]`' | tr -d '`(' | sed 's/ in / /' |
        while read -r function file; do grep -q "\b$function(" "$top/$file" || echo "$function $file"; done
}
is "every function that it names is in its file" "$(elsewhere)" ""

# The files that a section of CONTRIBUTING.md names for all: its first column in `quotes`, without a star in the second.
named() { sed -n "/^## $1/,/^## /{/^[^|]*|[^|]*| \* /d;s/^| \`\([^\`]*\)\`.*/\1/p;}" "$top/CONTRIBUTING.md" | sort; }
# Of these patches may leave some out, but touch no other.
touched() { sed -n 's|^+++ b/||p' "$here/$1.patch" | sort; }
is "the operation's patch touches what is named" "$(touched operation | sed 's|frontend/ops/[a-z]*\.c|frontend/ops/*.c|')" "$(named 'A composite operation')"
is "so does the optimizer's" "$(touched optimizer | sed 's|adagrad.h|NAME.h|')" "$(named 'An optimizer')"
for p in operation optimizer; do ok "$p: applies" patch -s -d tree -p1 -i "$here/$p.patch"; done
# What reads nothing that they touch is not compiled again, but where objects have flags of their own, as under sanitizers; warnings are other
# tests' business.
kept() {
    local changed of
    [ "$build" = "$top/build" ] || return 0
    changed=$({ touched operation; touched optimizer; } | grep -v '^docs/')
    (cd "$build" && find $(make -s -C "$top" print-ROOMS) runtime.o -name '*.d' | xargs grep -LF "$changed") | while read -r of; do
        mkdir -p "tree/build/${of%/*}" && cp "$build/${of%.d}.o" "tree/build/${of%/*}" || return
    done
}
ok "what stays as it was" kept
build_copy=(make -s -j2 CC="$cc" CFLAGS=-O0 WARN=)
ok "the copy builds" "${build_copy[@]}" -C tree build/ppsplit
for t in frontend/test_import_ops runtime/test_optim; do
    ok "$t with the new row" eval 'cd tree && "${build_copy[@]}" build/tests/$t && build/tests/$t | tee said; ! grep "^not ok" said'
done
ppsplit=$work/tree/build/ppsplit
is "the table of operations has it" "$("$ppsplit" ops | grep -c '^Squareplus ')" 1

$cc -I"$top" -o model "$here/model.c" && ./model || exit 1
ok "a model with it is split" "$ppsplit" -q model.onnx --split plus:begin --loss mse --train w -o out
ok "and built" make -s -C out -j2 CC="$cc" CFLAGS=-O0 PPSPLIT_RUNTIME=own

numbers() { tail -c 8 "$1" | od -An -tf4 | xargs printf '%.6g '; }
train=(out/pipeline train --data x=x.npy --data target=target.npy --quiet --optimizer adagrad --lr 0.25)
ok "it trains a step with the new optimizer, on two ranks" "${train[@]}" --steps 1 --output y=y.npy --dump-grads grads --checkpoint ck
is "outputs: (3 + 5) / 2 and (-3 + 5) / 2" "$(numbers y.npy)" "4 1 "
is "gradients: 2 (y - target) / 2 * (1 + z / 5) / 2 * x" "$(numbers grads/stage0.safetensors)" "0.8 -0.2 "
# Two steps: g / sqrt(sum of squares) is 1 in the first, less in the second.
want=$(awk 'function step(w, t,   z, r, y, g) { z = 2 * w; r = sqrt(z * z + 16); y = (z + r) / 2; g = (y - t) * (1 + z / r); sum += g * g; return w - 0.25 * g / sqrt(sum) }
    BEGIN { a = step(1.5, 3.5); a = step(a, 3.5); sum = 0; b = step(-1.5, 1.5); b = step(b, 1.5); printf "%.5f %.5f", a, b }')
ok "two steps" "${train[@]}" --steps 2 --checkpoint ck2
parameter() {                                           # FOLDER NAME, in whichever rank's file it is
    local f
    for f in "$1"/rank*.safetensors; do number "$f" "$2" && return; done
}
number() {
    perl -e 'open F, "<:raw", $ARGV[0]; read F, $n, 8; $n = unpack "Q<", $n; read F, $h, $n; $h =~ /"\Q$ARGV[1]\E":\{[^}]*"data_offsets":\[(\d+),/ or exit 1;
        seek F, 8 + $n + $1, 0; read F, $v, 8; printf "%.5f %.5f", unpack "f<2", $v' "$1" "$2"
}
is "weights after one" "$(parameter ck/step_1 w)" "1.25000 -1.25000"
is "weights after two" "$(parameter ck2/step_2 w)" "$want"
plan_done
