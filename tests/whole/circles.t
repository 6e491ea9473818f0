#!/usr/bin/env bash
# tests/circles finds files that call one another, through a third one too, and nothing where calls go one way only.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
unit() { echo "$2" > "$1.c" && $cc -c -o "$1.o" "$1.c" || exit 1; }
unit low 'int low(int x) { return x + 1; }'
unit middle 'int low(int); int middle(int x) { return low(x); }'
unit high 'int low(int); int middle(int); int high(int x) { return low(x) + middle(x); }'
is "calls that go one way" "$("$top/tests/circles" low.o middle.o high.o; echo $?)" 0
unit low 'int high(int); int low(int x) { return x > 9 ? x : high(x + 1); }'
is "a circle of three" "$("$top/tests/circles" low.o middle.o high.o | tr ' ' '\n' | grep -c '\.o$')" 3
ok "is refused" eval '! "$top/tests/circles" low.o middle.o high.o > /dev/null'
is "no objects, no circle" "$("$top/tests/circles"; echo $?)" 0
plan_done
