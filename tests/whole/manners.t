#!/usr/bin/env bash
# What a newcomer tries first works as it does elsewhere: help and versions everywhere, folders that are made, lists and patterns of split
# points, names of options cut short, paths from where one stands, a table that says what is so.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
m=$top/models/doc-ts
D=(--data x="$m/in.x.npy" --data target="$m/target.npy")

# ---- help and version ----

first() { "$@" 2>&1 | head -n 1; }
usage=$(first "$ppsplit" --help)
for how in -h help "help help" "ls -h" "ls --help" "help ls" "ops --help" "ops -h" "help ops" "merge -h" "help merge" "schedule -h" "help schedule"; do
    command=${how/help/} command=${command%% -*} command=${command# }
    case $command in -h | "" | help) want=$usage ;; *) want="Usage: ppsplit $command" ;; esac
    ok "ppsplit $how" eval '"$ppsplit" $how >said && case $(head -n 1 said) in "$want"*) ;; *) false ;; esac && grep -q "^Report mistakes" said'
done
unknown() { "$ppsplit" "$@" 2>&1 | head -n 1; }
is "a command that is none, and the one that was meant" "$(unknown pln model.onnx)
$(unknown mrege out -o x.onnx)
$(unknown version)
$(unknown trian)
$(unknown frobnicate)" "ppsplit: error: 'pln' is neither a file nor a command; did you mean 'plan'?
ppsplit: error: 'mrege' is neither a file nor a command; did you mean 'merge'?
ppsplit: error: 'version' is neither a file nor a command; did you mean '--version'?
ppsplit: error: 'trian' is not a command of ppsplit; the program has it: \`DIR/pipeline train'
ppsplit: error: 'frobnicate' is neither a file nor a command"
is "a file that is not there is said to be one" "$(unknown plan.onnx -o x; unknown plan.onnx; unknown merge nowhere)" \
    "$(printf '%s: error: cannot open: No such file or directory\n' plan.onnx plan.onnx nowhere)"
is "a command behind options" "$(unknown -q merge out)" "ppsplit: error: the command comes first: \`ppsplit merge ...'"
version=$(make -s -C "$top" print-VERSION)
ok "$m" split_model "$m/model.onnx" out layers.1:begin --loss cross_entropy
is "ppsplit --version" "$("$ppsplit" --version)" "ppsplit $version
$(sed -n 's/^Copyright/Copyright/p' "$top/LICENSE" | head -n 1)
License: MIT. What ppsplit writes, and the runtime in it, is yours without conditions.
There is no warranty."
is "pipeline --version" "$(out/pipeline --version | tail -n +2)" "$("$ppsplit" --version | tail -n +2)"
is "pipeline --version: the model and the version" "$(first out/pipeline --version)" "model.onnx, a program made by ppsplit $version"
for how in -h --help help; do is "pipeline $how" "$(first out/pipeline $how)" "usage: pipeline train|eval|infer|sample|tokens|measure [options]; --help, --version"; done
is "options in its help fit on a terminal" "$(out/pipeline --help | awk 'length($0) > 79 && /^(  -|          )/')" ""
ok "its help names what starts ranks on few cores" eval 'out/pipeline --help | grep "run, beside the program" && out/pipeline --help | grep "also on fewer cores"'
ok "the launcher" make -s -C out run RUNTIME="$runtime"
is "run --help" "$(first out/run --help)" "usage: out/run -n N [OPTION]... COMMAND [OPTION]..."
is "its lines fit on a terminal" "$(out/run --help | awk 'length($0) > 79')" ""
rm out/run
ok "the README of an output names it" eval 'grep "./run -n 2 train" out/README && grep "./run --help" out/README'
is "one version in all that is written" "$(awk "/^VERSION / { print \$3 }" out/Makefile) $(sed -n 's/^.TH.*"ppsplit \(.*\)" .*/\1/p' "$top/docs/ppsplit.1")" "$version $version"
is "of the Debian package" "$(sed -n '1s/^ppsplit (\(.*\)) .*/\1/p' "$top/debian/changelog")" "$version"
is "its copyright is the LICENSE" "$(sed -n '/^License: MIT-with-output-exception$/,$p' "$top/debian/copyright" | sed '1,/^$/d' | tail -n +2 | sed 's/^ //; s/^\.$//')" "$(cat "$top/LICENSE")"
make -n -C "$top" BUILD="$build" install-compiler PREFIX=/usr DESTDIR=/nowhere >installs
is "and what it installs is what make installs" "$(sed 's|^usr/||; s|lib/\*/pkgconfig|lib/pkgconfig|' "$top"/debian/*.install | while read -r f; do
    grep -q "/nowhere/usr/$f" installs || echo "$f"; done)" ""

# ---- make ----

# Goals of the Makefile that are not files, against those that help names, each in a line.
goals() { sed -n 's/^\.PHONY: //p' "$1" | tr ' ' '\n' | grep -v '^help$'; }
named() { make -s "$@" help | awk '{ print $1 }' | grep -v -e '^print-NAME$' -e '^compile_commands.json$' -e '^pipeline' -e '^run$'; }
is "make help: a line for each goal" "$(named -C "$top" | sort)" "$(goals "$top/Makefile" | sort)"
is "make -C out help: a line for each goal" "$(named -C out | sort)" "$(goals out/Makefile | sort)"
ok "compile_commands.json" eval 'make -s -C "$top" BUILD="$build" CC="$cc" compile_commands.json'
ok "is JSON, and its first command compiles" eval 'perl -MJSON::PP -e "local \$/; print decode_json(<>)->[0]{command}" "$top/compile_commands.json" >command &&
    (cd "$top" && sh -c "$(sed "s/ -O2 / -O0 /" "$work/command") -o $work/one.o") && test -s one.o'
"$ppsplit" -q "$m/model.onnx" --split layers.1:begin --loss cross_entropy --target cuda -o cuda
ok "SHIM= is meant from where make is called" eval '(cd "$top" && make -n -C "$work/cuda" pipeline-shim SHIM=tests/cuda_shim DETECTED="$build/tests/first/build/detected.mk")'
ok "or absolute" make -n -C cuda pipeline-shim SHIM="$top/tests/cuda_shim" DETECTED="$build/tests/first/build/detected.mk"
shim() { make -n -C cuda pipeline-shim "$@" DETECTED="$build/tests/first/build/detected.mk" 2>&1 | sed -n 's/.*[*][*][*] \(.*\)  Stop\./\1/p'; }
is "and refused where there is none: which folder was looked for, and where the shim is" "$(shim SHIM=nosuch; shim SHIM="$m"; shim)" \
    "SHIM=nosuch: there is no such folder; DIR is the folder tests/cuda_shim in the sources of ppsplit.
SHIM=$m: the CUDA shim (shim.mk) is not there; DIR is the folder tests/cuda_shim in the sources of ppsplit.
pipeline-shim needs SHIM=DIR; DIR is the folder tests/cuda_shim in the sources of ppsplit."
cp -r cuda locked && rm -rf locked/build && : >locked/build         # root may write into any folder, but not through a file
is "a folder that cannot be written to is said once" "$(LC_ALL=C make -C locked pipeline-cuda 2>&1 | grep -v '^make: [EL]')" \
    "Makefile:$(grep -n 'error nothing can be built' locked/Makefile | cut -d: -f 1): *** nothing can be built in $work/locked, in its folder build: mkdir: cannot create directory 'build': File exists.  Stop."

# ---- where outputs go ----

ok "-o makes the folders that it lies in" eval '"$ppsplit" -q "$m/model.onnx" --split layers.1:begin --loss cross_entropy -o a/b/out && diff -r -x build -x pipeline out a/b/out'
"$ppsplit" -q "$m/model.onnx" --split layers.1:begin --loss cross_entropy -o out
ok "an output that is written again as it was needs no make" out/pipeline train "${D[@]}" --quiet
"$ppsplit" -q "$m/model.onnx" --split layers.1:begin --loss cross_entropy --loss-reduction sum -o out
ok "one of another loss does" eval '! out/pipeline train "${D[@]}" 2>said && grep -q "make -C" said && make_pipeline out && out/pipeline train "${D[@]}" --quiet'

# ---- split points ----

G=$top/models/gpt-ts/model.onnx
same_split() {
    local name=$1 points=$2; shift 2
    "$ppsplit" -q "$G" --split "$points" --loss cross_entropy -o listed && "$ppsplit" -q "$G" "$@" --loss cross_entropy -o single
    ok "$name" diff -r listed single
}
same_split "points with commas" h.0.mlp:begin,h.1:begin --split h.0.mlp:begin --split h.1:begin
same_split "a pattern" 'h.*:begin' --split h.0:begin --split h.1:begin
same_split "a pattern in the middle" 'h.*.mlp:begin' --split h.0.mlp:begin --split h.1.mlp:begin
same_split "a class, a list and a point that a pattern has too" 'h.[01]:begin,h.1:begin,.l*_f:begin' --split h.0:begin --split h.1:begin --split ln_f:begin
same_split "what would leave the first stage empty is left out" 'w?e:begin,h.1:begin' --split h.1:begin

# ---- running ----

ok "names of options cut short" out/pipeline train "${D[@]}" --ste 2 --sche gpipe --optim adamw --weight=0.1 --qui
out/pipeline train "${D[@]}" --steps 30 --log-json log.json >lines
# The mean over the last 20 steps, of which the first is none as soon as there is a second.
want=$(perl -MJSON::PP -ne '$d = decode_json($_); next if $$d{config}; $tokens = $$d{seconds} * $$d{tokens_per_second};
    if (++$n == 2) { @last = () } push @last, $$d{seconds}; shift @last if @last > 20;
    $sum = 0; $sum += $_ for @last; printf "%.0f\n", $tokens * @last / $sum' log.json)
is "tokens/s is the mean of the last steps" "$(sed -n 's/^step.*tokens.s \([0-9]*\) left.*/\1/p' lines)" "$want"
ok "a line says how far the run is" grep -qE '^step 7/30 loss [0-9.]+ grad_norm [0-9.]+ lr [0-9.e-]+ tokens/s [0-9]+ left [0-9.]+s$' lines
ok "the last one that nothing was saved" eval 'tail -n 1 lines | grep -qE "^done: 30 steps in [0-9.]+s, [0-9]+ tokens/s; nothing was saved: no --checkpoint$"'
ok "the rest of the process is named" eval 'grep -E "^process memory: [0-9]{6,9} bytes in addition \(program, libraries\)" lines'

# ---- the table of operations, and what docs/supported.md says of it ----

"$ppsplit" ops >ops
is "whole numbers and shapes have no gradient" "$(awk '$1 ~ /^(NonZero|Shape|Constant|ArgMax|Hardmax|Range)$/ { print $1, $4 }' ops | sort | tr '\n' ' ')" \
    "ArgMax no Constant no Hardmax no NonZero no Range no Shape no "
is "what becomes others has that of the others" "$(awk '$1 ~ /^(LSTM|Gemm|LayerNormalization)$/ { print $4, $5 }' ops | sort -u)" "via lowering"
says=$(grep -o 'more than [0-9]* operators, more than [0-9]* of them differentiable' "$top/docs/supported.md" | tr -cd '0-9 ')
is "there are as many as the document says" "$(awk -v says="$says" 'NR > 1 && $3 != "refused" { n++ } NR > 1 && $4 != "no" { d++ }
    END { split(says, s, " "); print (n > s[1]), (d > s[2]), (s[1] > 100) }' ops)" "1 1 1"
plan_done
