# lib.sh - TAP for shell tests: source it; ok/is/plan_done.  Paths: $top, $build (make's BUILD), $work (removed at the end).
# Generated programs share one runtime's objects, built at PIPELINE_CFLAGS (default -O1); their stages are built without optimization,
# which takes half the time: numbers do not depend on it.
set -u
unset MAKEFLAGS MFLAGS MAKELEVEL                       # of the make that runs the tests: none of the business of those it tests
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${BUILD:-$top/build}
case $build in /*) ;; *) build=$top/$build ;; esac
ppsplit=${PPSPLIT:-$build/ppsplit}
compare=$build/tests/tools/compare
runtime=$build/tests/first/runtime                     # as outputs have it
export STAGE_CFLAGS=${STAGE_CFLAGS--O0}
export OMP_WAIT_POLICY=passive                          # threads that spin take nine tenths of a small run, of cores that other tests want
pipeline_ldflags=${PIPELINE_CFLAGS:-}                   # gold links OpenBLAS and oneDNN in a third of the time
! command -v ld.gold >/dev/null || pipeline_ldflags+=" -fuse-ld=gold"
export PPSPLIT_RUNTIME=own                              # not the one that a built ppsplit hands over, which may be there or not
includes="-I$top -I$top/runtime -I$top/runtime/api"    # of a source that is compiled where it stands
nvcc_quick="-Xcicc -O0 -Xptxas -O0"                    # whether it compiles, without a warning: what it then does is not run here
# Files are in memory where there is room for them: to make an output of a hundred files takes a quarter of a disk's time.
if [ -z "${TMPDIR:-}" ] && [ -w /dev/shm ] && ! grep -q ' /dev/shm .*noexec' /proc/mounts &&
    read -r blocks size < <(stat -f -c '%a %S' /dev/shm) && [ $((blocks * size)) -gt $((4 << 30)) ]; then
    export TMPDIR=/dev/shm
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/ppsplit-test.XXXXXX")
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_pml=ob1
cc=$(cat "$build/tests/objects/made" 2>/dev/null)       # what compiled the shared objects: another would compile them again
cc=${cc:-${CC:-cc}}
patience=600                                            # seconds after which a command hangs, on however slow and busy a machine
tests=0 failures=0

# With these, which programs share: what the machine has was found out, and the runtime compiled, when the first one was made.
objects=$build/tests/objects
shared_runtime=(CC="$cc" RUNTIME="$runtime" RUNTIME_BUILD="$objects" DETECTED="$build/tests/first/build/detected.mk" CFLAGS="${PIPELINE_CFLAGS:--O1}"
    LDFLAGS="$pipeline_ldflags")
# They are of the runtime that ppsplit writes now: those of another one may compute wrong numbers, silently.
current_objects() { [ "$objects/made" -nt "$build/ppsplit" ] || make -s -j2 -C "$top" BUILD="${BUILD:-build}" "${BUILD:-build}/tests/objects/made" >&2; }

# make_pipeline OUT [ARGUMENT...]: builds a generated program; one with arguments of its own, without them finds out what there is.
make_pipeline() { current_objects && make -s -C "$1" pipeline "${shared_runtime[@]}" ${2+DETECTED=} "${@:2}"; }

# make_shim OUT [ARGUMENT...]: the program for GPUs, on the CPU; without a warning of the C++ compiler
cxx=${CXX:-g++}
shared_shim=(SHIM="$top/tests/cuda_shim" O="$build/cuda_shim" CXX="$cxx" SHIMFLAGS='-O0 -g0 -Wall -Wextra -Werror')
make_shim() { current_objects && make -s -C "$1" pipeline-shim "${shared_runtime[@]}" "${shared_shim[@]}" "${@:2}"; }

# split_model MODEL OUT POINTS [OPTION...]: splits and builds; POINTS is none, markers or a comma-separated list.
split_model() {
    local model=$1 out=$2 points=() p
    [ "$3" = none ] || [ "$3" = markers ] || for p in ${3//,/ }; do points+=(--split "$p"); done
    "$ppsplit" -q "$model" "${points[@]}" "${@:4}" -o "$out" && make_pipeline "$out"
}

# split_case DIR OUT [OPTION...]: a case of models/ or models/special, at the points of its last split; its case.env is in the caller's variables.
split_case() {
    local dir=$1 out=$2 points=() model=() p
    shared='' folded='' bind='' extra='' files=model.onnx model_output=logits
    . "$dir/case.env"
    for p in ${splits##* }; do
        [ "$p" = markers ] || for p in ${p//,/ }; do points+=(--split "$p"); done
    done
    [ -z "$bind" ] || points+=(--bind "$bind")
    (cd "$dir" && "$ppsplit" -q $files --loss "$loss" "${points[@]}" $extra "${@:3}" -o "$out")
}

# case_data DIR: the inputs of a case of models/ as options, in $data.
case_data() {
    local f
    data=()
    for f in "$1"/in.*.npy; do
        f=${f##*/in.}
        data+=(--data "${f%.npy}=$1/in.$f")
    done
}

# agrees RUN DIR [TOLERANCE [NAMES]]: gradients, output and loss of a run are those of another framework, in DIR and $loss_value.
agrees() { "$compare" grads "$1/grads" "$2/grads.safetensors" "${@:3}" && "$compare" npy "$1/out.npy" "$2/out.npy" && "$compare" loss "$1/log.json" "$loss_value"; }

# same_bits RUN RUN: gradients and output
same_bits() { "$compare" same "$1/grads" "$2/grads" && cmp "$1/out.npy" "$2/out.npy"; }

# losses LOG: of each step; same_losses LOG LOG; steps NAME: losses and norms in $work/NAME.log
losses() { sed -n '/"step"/s/.*"loss": \([^,]*\),.*/\1/p' "$1"; }
same_losses() { losses "$1" | grep -q . && diff <(losses "$1") <(losses "$2"); }
steps() { grep -o '"loss": [^,]*, "grad_norm": [^,]*' "$work/$1.log"; }

differ() { ! cmp -s "$1" "$2" || { echo "$1 and $2 are the same"; return 1; }; }

# flip FILE BYTE: its lowest bit; -1: of the last byte
flip() { perl -e 'open F, "+<", $ARGV[0]; seek F, $ARGV[1], $ARGV[1] < 0 ? 2 : 0; read F, $x, 1; seek F, -1, 1; print F chr(ord($x) ^ 1)' "$@"; }

# array FILE TYPE SHAPE NUMBER [ARGUMENT...]: a .npy file (TYPE i8 or f4, SHAPE as 4,7) of numbers, each Perl's of its place $_, from 0 on
array() {
    perl -e '($file, $type, $shape, $number, @ARGV) = @ARGV; @d = split /,/, $shape; $n = 1; $n *= $_ for @d; open F, ">:raw", $file or die; @x = eval "map { $number } 0 .. \$n - 1";
        printf F "\x93NUMPY\x01\x00v\x00%-117s\n%s", "{\x27descr\x27: \x27<$type\x27, \x27fortran_order\x27: False, \x27shape\x27: (" . join(", ", @d) . (@d == 1 && ",") . "), }",
            pack $type eq "f4" ? "f<*" : "q<*", @x' "$@"
}

# ok NAME COMMAND...: passes when the command does; its output is shown only when it fails.
ok() {
    local name=$1 output; shift
    tests=$((tests + 1))
    if output=$("$@" 2>&1); then
        echo "ok $tests - $name"
    else
        failures=$((failures + 1))
        echo "not ok $tests - $name"
        printf '%s\n' "$output" | tail -n 20 | sed 's/^/# /'
    fi
}

# is NAME GOT WANT
is() {
    tests=$((tests + 1))
    if [ "$2" = "$3" ]; then
        echo "ok $tests - $1"
    else
        failures=$((failures + 1))
        echo "not ok $tests - $1"
        diff <(printf '%s\n' "$3") <(printf '%s\n' "$2") | sed 's/^/# /'
    fi
}

skip() { tests=$((tests + 1)); echo "ok $tests - $1 # skip $2"; }

plan_done() { echo "1..$tests"; [ "$failures" -eq 0 ]; }
