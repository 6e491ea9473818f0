#!/usr/bin/env bash
# The errors that TTrace (arXiv 2506.09280, of Megatron-LM) reports, and of those of TrainCheck (arXiv 2506.14813) the ones that several ranks
# have, put into what ppsplit writes: a stage's C, the tables of pipeline.c, a schedule's rows, the runtime's source.  Each is caught without any
# tolerance: three steps of AdamW leave other bits than those of the same model on one rank (docs/numbers.md), or the program refuses, or the
# watchdog ends it.  First each program, as it was written, leaves these bits.  KNOWN=all, as `make known` has it: all of them; else every eighth,
# beginning with MUTANT (0).  docs/known-bugs.md has their table.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
declare -A model=([tensor]=rope [sequence]=rope [mesh]=rope [expert]=experts [processes]=experts [table]=tied [copies]=tied [replicas]=tied [layers]=rope
    [frozen]=rope [again]=rope [half]=rope)
declare -A cut=([tensor]='--tensor 2' [sequence]='--sequence 2' [mesh]='--tensor 2 --sequence 2' [expert]='--expert 2' [processes]='--expert 2'
    [table]='--tensor 2 --shard emb.weight=0' [copies]='--multi-use replicate' [frozen]='--freeze layers.0.*' [half]='--dtype bf16')
declare -A whole=([tensor]='--tensor 1 --chunks 2' [sequence]='--sequence 1 --chunks 2' [mesh]='--tensor 1 --sequence 1 --chunks 2' [expert]='--expert 1 --chunks 2'
    [processes]='--expert 1 --chunks 2' [table]='--tensor 1 --chunks 2 --shard emb.weight=0' [frozen]='--freeze layers.0.*' [half]='--dtype bf16')
declare -A ranks=([tensor]=4 [sequence]=4 [mesh]=8 [expert]=4 [processes]=4 [table]=4 [copies]=2 [replicas]=4 [layers]=2 [frozen]=2 [again]=2 [half]=2)
declare -A ways=([replicas]='--dp 2 --zero 2 --microbatches 2' [again]='--recompute always --schedule 1f1b' [processes]='--watchdog 5')
declare -A alone=([replicas]='--groups 2 --microbatches 2')

# prepare PROGRAM: the case's variables
prepare() {
    dir=$top/tests/known/${model[$1]} extra='' start=''
    [ "$1" != processes ] || start='mpirun --oversubscribe -n 4'
    . "$dir/case.env"
    case_data "$dir"
}

# train OUT RUN RANKS [OPTION...]: losses and trained weights into RUN
train() {
    local out=$1 run=$2 n=$3; shift 3
    rm -rf "$run" && mkdir -p "$run"
    local by=()
    [ "$n" = 1 ] || read -ra by <<<"$start"
    [ ${#by[@]} != 0 ] || set -- --ranks "$n" "$@"
    timeout 60 "${by[@]}" "$out/pipeline" train "${data[@]}" --data "target=$dir/target.npy" --microbatches 4 --steps 3 --optimizer adamw --lr 0.01 --clip-norm 0.1 \
        --log-json "$run/log.json" --checkpoint "$run/ck" --quiet "$@" &&
        "$ppsplit" merge "$out" "$run/ck" -o "$run/w.safetensors" >/dev/null && grep -o '"loss": [^,]*' "$run/log.json" >"$run/losses"
}
same() { cmp -s "$1/w.safetensors" "$2/w.safetensors" && cmp -s "$1/losses" "$2/losses"; }

# program NAME: built once, with what one rank makes of the model
program() {
    [ ! -e "$work/$1" ] || return 0
    local split=${splits%% *}
    split_model "$dir/model.onnx" "$work/$1.whole" none --loss "$loss" ${whole[$1]:-} && train "$work/$1.whole" "$work/$1.one" 1 ${alone[$1]:-} &&
        split_model "$dir/model.onnx" "$work/$1" "$split" --loss "$loss" ${cut[$1]:-} && train "$work/$1" "$work/$1.run" "${ranks[$1]}" ${ways[$1]:-} &&
        same "$work/$1.one" "$work/$1.run"
}

# change FILE PATCH: Perl's, of the whole file; it has to change it
change() { cp -p "$1" "$work/before" && perl -0pi -e "$2" "$1" && ! cmp -s "$work/before" "$1"; }

# built PROGRAM FILE PATCH: the mutant in $work/mutant; of the runtime a copy of its objects has the changed one
built() {
    local objects=$build/tests/objects
    rm -rf "$work/mutant" "$work/objects" && cp -a "$work/$1" "$work/mutant" || return
    case $2 in
    runtime/*)
        cp -a "$objects" "$work/objects" && cp "$runtime/${2#runtime/}" "$work/changed.c" && change "$work/changed.c" "$3" || return
        $(sed 's/ [0-9]*-[0-9]*$//' "$objects/flags/cc") -I"$runtime/$(dirname "${2#runtime/}")" -c "$work/changed.c" -o "$work/objects/$(sed 's|^runtime/||; s|c$|o|' <<<"$2")" &&
            rm "$work/mutant/pipeline" && make_pipeline "$work/mutant" "${shared_runtime[@]}" RUNTIME_BUILD="$work/objects" ;;
    *) change "$work/mutant/$2" "$3" && make_pipeline "$work/mutant" ;;
    esac
}

# caught PROGRAM [OPTION...]: what says that the mutant is wrong
caught() {
    local out
    if ! out=$(train "$work/mutant" "$work/mutant.run" "${ranks[$1]}" ${ways[$1]:-} "${@:2}" 2>&1); then
        sed -n 's/.*error: /refused: /p' <<<"$out" | head -n 1 | cut -c1-100 | grep . || { echo "died: $out" && return 1; }
    else
        same "$work/$1.one" "$work/mutant.run" && echo "by nothing" && return 1 || echo "by other bits"
    fi
}

number=0 table='' columns=1-3
[ "${KNOWN:-}" = all ] || columns=1-2
# mutant NAME REPORT PROGRAM FILE PATCH [OPTION...]
mutant() {
    local what by
    table+="$1 | $2"
    if [ "${KNOWN:-}" != all ] && [ $((number++ % 8)) != "${MUTANT:-0}" ]; then
        table+=$'\n'
        return
    fi
    prepare "$3"
    [ -e "$work/$3" ] || ok "$3: the program as it was written has the bits of one rank" program "$3"
    ok "$1: is built" built "$3" "$4" "$5"
    by=$(caught "$3" "${@:6}"); what=$?
    ok "$1: caught, $by" test "$what" = 0
    [ "${KNOWN:-}" != all ] || table+=" | ${by%%:*}"
    table+=$'\n'
}

# first FUNCTION: its first sum over members is a copy of the own numbers instead
first() { echo 's/('"$1"'.*?)pp_reduce_scatter\(c,\s*(?:PP_BEGIN \+ )?\d+,\s*(\w+),\s*(\w+),\s*\w+,\s*rows,\s*(\d+)\);/$1memcpy($3, $2, (size_t)(4 * rows * $4));/s; s/(#include "pp.h"\n)/$1#include <string.h>\n/'; }

# ---- TTrace ----
# What a stage's function begins with, which its prototype does not
backward='void stage0_backward\(const PpCtx \*c\)\n\{'
mutant "a divided table looks up rows of others too" "TTrace: the mask of a divided embedding" table stage0.c 's/(\w+\[j\] = )\(uint8_t\)\w+;/${1}1;/'
mutant "a forward is computed again of other rows" "TTrace, Megatron-LM#290: recomputation of another input" again runtime/exec/compute.c \
    's/(int m = op->a\.microbatch), (is_forward[^;]*);/$1, $2;\n    if (op->a.type == SA_R)\n        m ^= 1;/'
mutant "the loss is scaled by the number of members" "TTrace, Megatron-LM#673: the loss under context parallelism" sequence runtime/io/feed.c 's/double scale = mean;/double scale = mean * 2;/'
mutant "replicas each count the whole loss" "TTrace: the loss under data parallelism" replicas runtime/io/feed.c 's/scale \*= f->loss_scale;/scale *= d->replicas;/'
mutant "tied parameters are two" "TTrace, Megatron-LM#656: embedding and head are untied" copies pipeline.c 's/(stage1_param\[.*?)\.use = PP_REPLICATE,/$1.use = PP_OWN, .from = 1,/s'
mutant "the router's gradients are not added up" "TTrace, Megatron-LM#599: the same" expert pipeline.c 's/(stage1_mesh_partial\[.*?\.param = 2, .*?\.row = )\{.*?\}/${1}{-1, -1, -1}/s'
mutant "a sum goes over members of the other axis" "TTrace, Megatron-LM#442: a reduction in the wrong group" mesh pipeline.c 's/(PP_ALL_REDUCE, \.mesh = )PP_TENSOR/${1}PP_SEQUENCE/'
mutant "a replica does not get what others have updated" "TTrace, Megatron-LM#663: the same" replicas runtime/exec/exec.c 's/(PpStatus exec_gather.*?i < r->plan\.gather) \+ r->plan\.n_gather/$1/s'
mutant "layers are in each other's stage" "TTrace: wrong division into stages" layers pipeline.c \
    's/layers\.0\.q\.weight/LAYER/g; s/layers\.2\.q\.weight/layers.0.q.weight/g; s/LAYER/layers.2.q.weight/g'
mutant "a gradient is read before its sum has ended" "TTrace: gradients under overlapped communication" tensor stage0.c "s/($backward.*?)(    pp_end\\(c, \\d+\\);\\n)(.*?;\\n\\n)/\$1\$3\$2/s"
mutant "norms' gradients are not added up over the sequence" "TTrace, Megatron-LM#1446: the same" sequence pipeline.c 's/(stage0_mesh_partial\[.*?\.param = 1, .*?\.row = )\{.*?\}/${1}{-1, -1, -1}/s'
mutant "a rounding to bfloat16 is left out" "TTrace: a wrong cast to FP8" half stage0.c 's/pp_(?:nearest|round)_bf16\(/(/'
mutant "a member has its own part of attention's gradient alone" "TTrace, Megatron-LM#1464: attention's gradient under context parallelism" sequence stage0.c \
    "s/($backward.*?)"'pp_all_to_all\(c,\s*\d+,\s*(\w+),\s*(\w+),\s*\w+,\s*\(PpAcross\)\{rows,\s*(\d+),\s*(\d+),\s*(\d+),\s*(\d+),\s*1\}\);/$1memcpy($3, $2, (size_t)(2 * rows * $4 * $5 * $6 * $7));/s; s/(#include "pp.h"\n)/$1#include <string.h>\n/'
mutant "a norm's gradient is added up once too often" "TTrace, Megatron-LM#1528: it is too large by the number of members" mesh pipeline.c \
    's/(stage0_mesh_partial\[.*?\.param = 1, .*?\.along = )\{0, 1\}, \.row = \{-1, (\d+), -1\}/${1}{1, 1, 0}, .row = {$2, $2, -1}/s'

# ---- TrainCheck ----
mutant "gradients are clipped on one rank only" "TrainCheck, DeepSpeed#1801: the same" tensor runtime/exec/train.c 's/double clip = /double clip = r->member ? 1 : /'
mutant "replicas go their own way" "TrainCheck, pytorch#104336, a user's loop: gradients of replicas are not averaged" replicas runtime/exec/exec.c \
    's/(static void begin_sums.*?)own->summing = 1;/$1own->summing = 0;/s'
mutant "a message loses its last number" "TrainCheck, pytorch#84803, pytorch#96600, Baichuan2#86: a copy between devices loses data" layers runtime/net/group_local.c \
    's/(memcpy\(r->buf, s->buf, \(size_t\))s->bytes\)/$1(s->bytes > 256 ? s->bytes - 4 : s->bytes))/'
mutant "a parameter is not trained" "TrainCheck, accelerate#2665, DeepSpeed#6770: the optimizer has other parameters than the model" layers pipeline.c \
    's/("layers\.1\.k\.weight".*?\.trainable = )1/${1}0/s'
mutant "checkpoints leave out what is frozen" "TrainCheck, DeepSpeed#5489: the same" frozen runtime/io/checkpoint.c 's/\(!q->update \|\| (!q->p->t\.bytes)\)/$1/'
mutant "experts are placed on other members" "TrainCheck, DeepSpeed#6772: the same" expert pipeline.c 's/(\.name = "down".*?)\.step = 2/$1.first = 2, .step = -2/s'
if command -v mpirun >/dev/null; then
    mutant "a member leaves out an exchange" "TrainCheck, DeepSpeed#5794, DeepSpeed#6089: workers disagree and wait for ever" processes stage1.c \
        's/(    )(pp_all_to_all\(c, 0, )/$1if (!c->member[PP_EXPERT] || c->microbatch != 1)\n    $1$2/'
    mutant "a stage leaves out a sum over all ranks" "TrainCheck, DeepSpeed#6714: a stage without experts, and all wait" processes runtime/exec/train.c \
        's/(TRY\(r->group\.op->sum\(&r->group, r->results\.norm, n \+ 1)/if (r->group.rank != 1)\n        $1/'
fi

# ---- others ----
mutant "members' parts of a product are not added up" "" tensor stage0.c "$(first 'void stage0_forward\(const PpCtx \*c\)\n\{')"
mutant "nor are their gradients" "" tensor stage0.c "$(first "$backward")"
mutant "gradients of experts are doubled" "pytorch#160285" expert stage1.c 's/(pp_gemm\(&\(PpGemm\)\{.type = PP_F32, .ta = 1, )(?=[^;]*\.dims)/${1}.alpha = &(float){2}, /g'
mutant "gradients are not zeroed" "stackoverflow 60335387" layers runtime/exec/exec.c 's/if \(r->plan\.stage\[l\]\.grad && /if (!r->updates && r->plan.stage[l].grad && /'
mutant "a gradient is of the microbatch before" "" layers runtime/exec/compute.c 's/\.dy = rs->dy \+ \(int64_t\)m/.dy = rs->dy + (int64_t)(m ? m - 1 : 0)/'

# ---- schedules: rows that a pipeline has run, or waited for ever in ----
csv=$work/rows.csv
rows() { "$ppsplit" schedule 1f1b --ranks 2 --microbatches 4 ${2:-} --csv - | perl -0pe "$1" >"$csv"; "$ppsplit" schedule "$csv" --verify ${2:+--buffers 0} 2>&1; }
ok "rows as they are: accepted" rows ''
for row in "the last microbatch alone has a backward|s/[01]B[0-2]//g" "a backward comes before its forward|s/0F3/X/; s/0B3/0F3/; s/X/0B3/" "a microbatch is computed twice|s/1F2/1F1/" \
    "a stage's forward is not there|s/1F3//"; do
    ok "${row%%|*}: refused" eval '! rows "${row#*|}"'
done
ok "both ranks send first, without a buffer: refused" eval '! rows "s/0RECV_B0,(.*?)0SEND_F2/\$10SEND_F2,0RECV_B0/" --comms'
if command -v mpirun >/dev/null; then
    is "docs/known-bugs.md has each error" "$(sed -n '/^| error here | /,/^$/{s/^| \(.*\) |$/\1/p}' "$top/docs/known-bugs.md" | tail -n +3 | sed 's/ | /\t/g' | cut -f $columns)" \
        "$(sed 's/ | /\t/g' <<<"$table" | grep .)"
fi
plan_done
