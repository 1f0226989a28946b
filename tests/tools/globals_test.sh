#!/usr/bin/env bash
# tools/lint_globals.awk finds every variable that the compiler gives writable memory: each such symbol of the libraries has the
# name of a variable that it found. Constants that are computed when the program starts are among them.
# Usage: globals_test.sh LINTER TREE LIBRARY...
set -euo pipefail
linter=$1 tree=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

find "$tree/src/mantissa" -name '*.h' -o -name '*.cpp' | xargs awk -f "$linter" | awk '{print $4}' | sort -u >"$work/found"

# symbols LIBRARY...: the variables of this project in .data, .bss and their like for threads, without those that the compiler and
# Highway's macros add. Data that is read-only once it is relocated (.data.rel.ro) is constant.
symbols() {
  objdump -t -C "$@" 2>/dev/null |
    sed -nE 's/^[0-9a-f]+ .{7} (\.bss|\.data|\.tbss|\.tdata)([^ \t]*)\t[0-9a-f]+ +(\.hidden )?(.*)$/\1\2 \4/p' |
    grep -v '^\.data\.rel\.ro' | grep -E '^[^ ]+ mantissa::' |
    grep -vE 'nlohmann::|std::(_Sp|__)|HighwayDispatchTable$|(typeinfo|vtable|guard variable) ' |
    sed -E 's/\[abi:cxx11\]//; s/.*::([A-Za-z_0-9]+)$/\1/' | sort -u
}
symbols "$@" >"$work/symbols"

# The count of products is a global of each kind, so a test that reads nothing fails.
for name in fast_products count_ mutex; do
  grep -qx "$name" "$work/symbols" || fail "the libraries have no symbol \"$name\"; objdump reads them otherwise than expected"
done
unknown=$(comm -13 "$work/found" "$work/symbols")
[[ -z $unknown ]] || fail "variables in writable memory that tools/lint_globals.awk does not find: $unknown"
echo "$(wc -l <"$work/symbols") names of variables in writable memory, all found in the sources"
