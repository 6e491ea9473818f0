# lib.sh - for tests/faults: beside tests/lib.sh, counts that a knob sets, and folders compared as a whole.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
cd "$work" || exit 1
passed=0 failed=0
fault=$build/tests/faults/inject

# tried NAME COMMAND...: one more that passed or failed; of failures the first ten are told.
tried() {
    local name=$1 said; shift
    if said=$("$@" 2>&1); then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        [ $failed -gt 10 ] || printf '# %s: %s\n' "$name" "$said"
    fi
}

# summed NAME: as a TAP line
summed() {
    is "$1: $passed passed" "$failed failed" "0 failed"
    passed=0 failed=0
}

# The folder's files and bytes, and nothing else.
same_folder() { diff -r "$1" "$2" >/dev/null; }
