# fish completion for ppsplit and the programs that it makes: complete.sh finds the words.
function __ppsplit_words
    set -l script @PREFIX@/share/ppsplit/complete.sh
    set -q PPSPLIT_COMPLETE; and set script $PPSPLIT_COMPLETE
    set -l typed (commandline -ct)
    for candidate in (sh $script (commandline -opc) "$typed" 2>/dev/null)
        if test "$candidate" = FILES
            set -l word (string replace -r -- '^--[^=]*=' '' "$typed")
            __fish_complete_path $word
        else if string match -qr -- '^--[^=]*=' "$typed"
            echo (string match -r -- '^--[^=]*=' "$typed")$candidate
        else
            echo $candidate
        end
    end
end
for program in ppsplit pipeline pipeline-cuda pipeline-shim
    complete -c $program -f -a '(__ppsplit_words)'
end
