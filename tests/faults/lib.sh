# lib.sh - for tests/faults: beside tests/lib.sh, counts and times that knobs set, and folders compared as a whole.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
cd "$work" || exit 1
passed=0 failed=0
fault=$build/tests/faults/inject

# SECONDS_MOST (none: any) are what the script may take, about: of those that are left a share of `parts` is for what comes now; over: they
# are gone.
deadline=
share() { [ -z "${SECONDS_MOST:-}" ] || deadline=$((SECONDS + (SECONDS_MOST > SECONDS ? SECONDS_MOST - SECONDS : 0) * $1 / $2)); }
over() { [ -n "$deadline" ] && [ $SECONDS -ge $deadline ]; }

# spread N COUNT: COUNT numbers from 1 to N, evenly, in an order in which any first ones of them are spread evenly too.
spread() {
    awk -v n="$1" -v count="$2" 'function divisor(a, b) { return b ? divisor(b, a % b) : a }
        BEGIN { step = int(0.618 * count); step = step < 1 ? 1 : step
                while (divisor(step, count) > 1) step++
                for (i = 0; i < count; i++) printf "%d\n", 1 + int(i * step % count * n / count) }'
}

# tried NAME COMMAND...: one more that passed or failed; of failures the first ten are told.
tried() {
    local name=$1 said; shift
    if said=$("$@" 2>&1); then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        [ $failed -gt ${TOLD:-10} ] || printf '# %s: %s\n' "$name" "$said"
    fi
}

# summed NAME: as a TAP line
summed() {
    is "$1: $passed passed$(over && echo " in the time there was")" "$failed failed" "0 failed"
    passed=0 failed=0 deadline=
}

# The folder's files and bytes, and nothing else.
same_folder() { diff -r "$1" "$2" >/dev/null; }
