# bash completion for ppsplit
_ppsplit() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    local options="--split --multi-use --chunk --merge --loss --loss-reduction --freeze --train --stop-gradient --bind --dtype --param --params-from --limit --output --target --params --dump --quiet --help --version"
    case ${COMP_WORDS[1]:-} in
    schedule) options="--ranks --stages --microbatches --placement --merge --recompute --offload --lower --unshard --defer-reduce --comms --edge --defer
        --send-budget --csv --verify --buffers --simulate --costs --overlap --steps --grid --svg --trace --help" ;;
    merge) options="--output --help" ;;
    ops) options="" ;;
    esac
    case $prev in
    --placement) COMPREPLY=($(compgen -W "loop v" -- "$cur")) ;;
    --loss) COMPREPLY=($(compgen -W "mse l1 cross_entropy nll bce_with_logits output: model:" -- "$cur")) ;;
    --loss-reduction) COMPREPLY=($(compgen -W "mean sum" -- "$cur")) ;;
    --multi-use) COMPREPLY=($(compgen -W "transmit replicate" -- "$cur")) ;;
    --dtype) COMPREPLY=($(compgen -W "f32 bf16 f16" -- "$cur")) ;;
    --params) COMPREPLY=($(compgen -W "copy link" -- "$cur")) ;;
    --target) COMPREPLY=($(compgen -W "cpu cuda" -- "$cur")) ;;
    --dump) COMPREPLY=($(compgen -W "all import loss autocast partition autodiff stash divide" -- "$cur")) ;;
    -o | --output) COMPREPLY=($(compgen -d -- "$cur")) ;;
    *) if [[ $cur == -* ]]; then
           COMPREPLY=($(compgen -W "$options" -- "$cur"))
       elif [ "$COMP_CWORD" -eq 1 ]; then
           COMPREPLY=($(compgen -W "ls schedule merge ops" -- "$cur") $(compgen -f -- "$cur"))
       elif [[ ${COMP_WORDS[1]} == schedule && $COMP_CWORD -eq 2 ]]; then
           COMPREPLY=($(compgen -W "gpipe 1f1b interleaved1f1b loopedbfs interleavedzerobubble zbvzerobubble dualpipev zb-h1 zb-h2 gis gis-h
               forward-only" -- "$cur") $(compgen -f -- "$cur"))
       else
           COMPREPLY=($(compgen -f -- "$cur"))
       fi ;;
    esac
}
complete -o filenames -F _ppsplit ppsplit
