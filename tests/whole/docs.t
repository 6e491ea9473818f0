#!/usr/bin/env bash
# Every command that README.md, docs/*.md and the man page show.  Of a document's blocks
#     ```sh       are run, one after the other, in a folder of the document's own, with two steps where more are shown
#     ```text     whose first line is `$ COMMAND' are run too, and print what is shown (UPDATE=1 rewrites it)
#     ```console  need what is not here (a cluster, a GPU, PyTorch): options of our commands exist
# and no command stands in an indented block, or in one of another kind; a kind that is not known here fails.  Files of the tree and options
# that are named in the text are there.  In the folder are a model, h.0 and h.1, its data x.npy and y.npy, and text.bin; models/custom, and a llama.onnx of such operations.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
export PATH=$build:$PATH RUNTIME=$runtime RUNTIME_BUILD=$build/tests/objects CFLAGS=${PIPELINE_CFLAGS:--O1} LDFLAGS=$pipeline_ldflags COLUMNS=120
export DETECTED=$build/tests/first/build/detected.mk CC=$cc

mkdir given
m=$top/models/gpt-ts
cp "$m/model.onnx" given && cp "$m/in.input_ids.npy" given/x.npy && cp "$m/target.npy" given/y.npy     # as README.md says
perl -e 'print pack("S<", ($_ * 7) % 48) for 0 .. 2000' >given/text.bin
cp "$top"/models/custom/* given
"$build/models/make_gpt" --llama --fused --vocab 64 --dim 32 --layers 2 --heads 4 --ffn 48 --seq 8 --rows 2 -o given/llama.onnx

# The man page's examples as a document.
page() { printf '```sh\n'; sed -n '/^\.EX/,/^\.EE/p' "$top/docs/ppsplit.1" | sed '/^\.E[XE]/d; s/\\-/-/g; s/\\(aq/'"'"'/g'; printf '```\n'; }

# blocks DOCUMENT: each block to a file LINE.KIND
blocks() {
    awk '/^ *```/ { if (out) { close(out); out = "" } else { kind = $0; sub(/^ *```/, "", kind); out = sprintf("%05d.%s", NR, kind == "" ? "none" : kind); printf "" >out } next }
        out { print >out } !out && /^    +(\$ )?(ppsplit|make|mpirun|out\/|\.\/bootstrap) / { print FILENAME ":" NR ": " $0 >"indented" }' "$1"
}

# known FILE: options behind our commands that they do not have
known() {
    local line word program= list= launched=
    while IFS= read -r line; do
        case $line in " "*) ;; *) program= launched= ;; esac
        for word in ${line%%#*}; do
            case $word in
            '&&' | '|' | ';') program= launched= ;;
            */run) launched=1 program= ;;
            train | eval | infer | sample | tokens | measure) [ -z "$launched" ] || program=pipeline list=$run ;;
            ppsplit) program=ppsplit list=$commands ;;
            */pipeline* | pipeline) program=pipeline list=$run ;;
            --[a-z]*) [ -z "$program" ] || grep -qx -e "${word%%=*}" <<<"$list" || echo "$program has no $word" ;;
            esac
        done
    done <"$1"
}
options() { grep -o -e '--[a-z][a-z-]*[0-9]*' | sort -u; }
commands=$({ ppsplit --help; ppsplit help | sed -n 's/^  or:  ppsplit \([a-z]*\) .*/\1/p' | while read -r c; do ppsplit "$c" --help 2>/dev/null; done; } | options)
run=$("$build/tests/first/pipeline" --help | options)

# compare FILE DOCUMENT LINE: the commands behind `$ ' print the lines that follow each
compare() {
    local line command= got=
    while IFS= read -r line; do
        case $line in '$ '*) echo "$line"; eval "${line#\$ }" 2>&1 ;; esac
    done <"$1" | sed 's/ *$//' >got
    if [ -n "${UPDATE:-}" ]; then
        { head -n "$3" "$2"; cat got; tail -n +$(($3 + 1 + $(wc -l <"$1"))) "$2"; } >updated && cp updated "$2"
    else
        diff got <(sed 's/ *$//' "$1")
    fi
}

# job SCRIPT: of Slurm, with stand-ins for its commands and for the program
job() (
    mkdir -p job/out && cd job || exit
    printf '#!/bin/sh\n[ $1 != --mpi=list ] || exec echo pmix\nwhile case $1 in -n) shift ;; --*) ;; *) false ;; esac; do shift; done\nexec "$@"\n' >srun
    cp "$top/codegen/write/run.sh" out/run
    printf '#!/bin/sh\necho "$*" >requeued\n' >scontrol
    printf '#!/bin/sh\nexit $STATUS\n' >out/pipeline
    chmod +x srun scontrol out/pipeline out/run
    run() { STATUS=$1 PATH=$PWD:$PATH SLURM_JOB_ID=7 SLURM_NTASKS=8 SLURM_RESTART_COUNT=0 bash -u "$script"; }
    script=$1
    run 75 && [ "$(cat requeued)" = "requeue 7" ] && rm requeued && run 0 && [ ! -e requeued ]
)

# spans DOCUMENT: commands within its `text`, a line each
spans() { awk '/^ *```/ { block = !block; next } !block' "$1" | grep -oE '`(ppsplit|out/pipeline|out/run|mpirun) [^`]*`' | tr -d '`'; }

# named DOCUMENT: files of the tree in its `text` that are not there, but of names in capitals, patterns, and what is built
named() {
    local rooms
    rooms=$(cd "$top" && ls -d */ | grep -v '^build/$' | tr -d '/' | paste -sd'|')
    awk '/^ *```/ { block = !block; next } !block' "$1" | grep -oE '[`(][a-z0-9_./-]+[`)]' | tr -d '`()' | grep -E "^($rooms)/" | sort -u |
        while read -r file; do [ -e "$top/$file" ] || [ -e "${1%/*}/$file" ] || echo "$file"; done
}

documents=("$top/README.md" "$top"/docs/*.md)
page >ppsplit.1.md
for document in "${documents[@]}" "$work/ppsplit.1.md"; do
    name=$(basename "$document")
    cp -r given "in.$name" && cd "in.$name" && mkdir blocks && (cd blocks && blocks "$document")
    is "$name: commands stand in blocks that are tested" "$(cat blocks/indented 2>/dev/null)" ""
    for block in $(ls -r blocks/*.text 2>/dev/null); do            # from the end: UPDATE moves what follows
        line=$(basename "$block") line=$((10#${line%%.*}))
        [[ $(head -c 2 "$block") != '$ ' ]] || ok "$name, line $line: $(head -n 1 "$block")" compare "$block" "$document" "$line"
    done
    for block in blocks/[0-9]*; do
        [ -e "$block" ] || continue
        line=$(basename "$block") line=$((10#${line%%.*}))
        case $block in
        *.sh)
            sed -E 's/--steps [0-9]+/--steps 2/' "$block" >command
            command -v mpirun >/dev/null || sed -i -E 's/mpirun (--oversubscribe )?-n [0-9]+ //' command
            ok "$name, line $line: $(head -n 1 "$block")" bash -e command
            ok "$name, line $line: its options" eval '! known "$block" | grep .' ;;
        *.text | *.none | *.c | *.cpp | *.csv | *.xml | *.cmake | *.python)
            [[ $block == *.text && $(head -c 2 "$block") == '$ ' ]] ||
                ok "$name, line $line: no command that is not run" eval '! grep -nE "^(\$ )?(ppsplit|make|mpirun|out/|\./bootstrap|python3) " "$block"' ;;
        *.console)
            ok "$name, line $line: options of $(head -n 1 "$block")" eval '! known "$block" | grep .'
            [[ $(head -c 2 "$block") != '#!' ]] || ok "$name, line $line: the job is queued again when it was preempted, and then only" job "$PWD/$block" ;;
        *) ok "$name, line $line: a block of a known kind" false ;;
        esac
    done
    cd "$work" || exit 1
done
for document in "${documents[@]}" "$top"/{CONTRIBUTING,CHANGELOG,tests/README,models/README,tests/cuda_shim/README}.md; do
    is "${document#"$top/"}: the files that it names are there" "$(named "$document")" ""
    spans "$document" >spans
    is "${document#"$top/"}: options of commands in its text" "$(known spans)" ""
done
is "CONTRIBUTING.md: where things are: each room's folders" "$(cd "$top" && for room in $(make -s print-ROOMS); do for folder in "$room"/*/; do
    name=$(basename "$folder"); [ ! -d "$folder" ] || grep -q "^| \`$room/\` .*\`$name/\`" CONTRIBUTING.md || echo "$folder"; done; done)" ""
# What the manifest runs, and what the image installs where this is Debian 12
{ echo out/pipeline; sed -n '/args:/,/\]/p' "$top/docs/cluster/mpijob.yaml"; } | sed 's/args: \[[^,]*//' | tr -d '",[]' | tr '\n' ' ' >manifest
is "docs/cluster/mpijob.yaml: its options" "$(known manifest; grep -c -- --checkpoint manifest)" 1
if python3 -c 'import yaml' 2>/dev/null; then
    is "and it is YAML of an MPIJob" "$(python3 -c 'import sys, yaml; d = yaml.safe_load(open(sys.argv[1])); print(d["kind"], *d["spec"]["mpiReplicaSpecs"])' "$top/docs/cluster/mpijob.yaml")" "MPIJob Launcher Worker"
fi
if grep -q 'VERSION_ID="12"' /etc/os-release 2>/dev/null && grep -q '^ID=debian' /etc/os-release; then
    packages=$(sed -n '/apt-get install/,/rm -rf/p' "$top/docs/cluster/Containerfile" | grep -oE '(lib|open)[a-z0-9-]{3,}' | sort -u)
    is "docs/cluster/Containerfile: Debian has its packages" "$(apt-cache policy $packages 2>/dev/null | sed -n 's/^\([^ ].*\):$/\1/p' | sort)" "$packages"
fi
is "one that is not is seen" "$(echo 'see `tests/whole/none.t`, `tests/lib.sh`, `ppsplit ls --nothing`' >names.md && named names.md && spans names.md >spans && known spans)" \
    "tests/whole/none.t
ppsplit has no --nothing"
plan_done
