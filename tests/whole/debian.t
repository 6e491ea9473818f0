#!/usr/bin/env bash
# The Debian packages: debian/rules makes them where debhelper is, of the compiler that is built already; what is in them, that it works
# where it is unpacked, and what lintian says.
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
version=$(sed -n '1s/.*(\(.*\)).*/\1/p' "$top/debian/changelog")
if ! command -v dh >/dev/null || ! dpkg-query -W debhelper >/dev/null 2>&1; then
    skip "Debian packages" "no debhelper"
    plan_done
    exit
fi

# The sources as they are, dates too: nothing of the build's is older than they; debian/ and build/ are the packages' own.
mkdir tree
for f in "$top"/*; do [ "$f" = "$build" ] || [ "$f" = "$top/build" ] || [ "$f" = "$top/shared" ] || cp -pR "$f" tree; done
# rules GOAL...: with variables that all makes below take over.  The checks of override_dh_auto_test are those of other tests.
rules() { (cd tree && DEB_BUILD_OPTIONS=nocheck DEB_RULES_REQUIRES_ROOT=no timeout $patience make -s -f debian/rules "$@" BUILD="$build" CC="$cc") >said 2>&1; }
ok "packages are made" rules binary
is "which, beside those with symbols for debuggers" "$(ls ./*.deb | sed 's/_[^_]*$//' | grep -v dbgsym)" "./libppsplit-dev_$version
./ppsplit_$version"
dpkg-deb -x ppsplit_*.deb root && dpkg-deb -x libppsplit-dev_*.deb root
is "one version" "$(dpkg-deb -f ppsplit_*.deb Version) $(root/usr/bin/ppsplit --version | sed -n 's/^ppsplit //p')" "$version $version"
is "libraries are found by themselves, compilers are named" "$(dpkg-deb -f ppsplit_*.deb Depends | grep -o 'libprotobuf-c1\|gcc\|make' | tr '\n' ' ')" "libprotobuf-c1 gcc make "
ok "the compiler works where it is unpacked" root/usr/bin/ppsplit -q "$top/models/doc-ts/model.onnx" --split layers.1:begin --loss cross_entropy -o out
ok "what it wrote has a runtime of its own" test -e out/runtime/api/pp.h
is "nothing of a runtime is in the packages: each output compiles its own" "$(find root -name '*ppruntime*' -o -name 'ppsplit-runtime.pc')" ""
is "pkg-config's file stands in the architecture's folder" "$(cd root/usr/lib && ls */pkgconfig)" "ppsplit.pc"
is "and every document that README names is there" "$(cd root/usr/share/doc/ppsplit && zcat README.md.gz | grep -o '](docs/[a-z-]*\.[a-z]*)' | tr -d ']()' | sort -u |
    while read -r f; do [ -e "$f" ] || [ -e "$f.gz" ] || echo "$f"; done)" ""
if command -v lintian >/dev/null; then # the maintainer's address is to be decided by whoever uploads them
    is "lintian has nothing to say" "$(lintian --allow-root --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog ./ppsplit_*.deb ./libppsplit-dev_*.deb 2>&1)" ""
else
    skip "lintian has nothing to say" "no lintian"
fi
plan_done
