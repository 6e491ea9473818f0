# bash completion for ppsplit and the programs that it makes: complete.sh finds the words.
_ppsplit_complete=${PPSPLIT_COMPLETE:-@PREFIX@/share/ppsplit/complete.sh}

_ppsplit() {
    local line=${COMP_LINE:0:COMP_POINT} typed cut='' word words candidate
    typed=${line##*[[:space:]]}
    read -ra words <<<"${line%"$typed"}"
    # Bash breaks words at = and :, so what stands before the last of these is on the line already; --option= is no part of a value.
    [[ $typed == *[=:]* ]] && cut=${typed%"${typed##*[=:]}"}
    word=$typed
    [[ $typed == --*=* ]] && word=${typed#*=} cut=${cut#*=}
    COMPREPLY=()
    while IFS= read -r candidate; do
        if [[ $candidate == FILES ]]; then
            while IFS= read -r candidate; do COMPREPLY+=("${candidate#"$cut"}"); done < <(compgen -f -- "$word")
        elif [[ $candidate == "$word"* ]]; then
            COMPREPLY+=("${candidate#"$cut"}")
            [[ $candidate != *[=:] ]] || compopt -o nospace 2>/dev/null
        fi
    done < <(sh "$_ppsplit_complete" "${words[@]}" "$typed" 2>/dev/null)
}
complete -o filenames -F _ppsplit ppsplit pipeline pipeline-cuda pipeline-shim
