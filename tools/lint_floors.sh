#!/usr/bin/env bash
# Checks the house (docs/architecture.md) of the tree at $1, as CMakeLists.txt lists it: wings, lowest first, with rooms that use
# rooms of their own wing or of lower ones. A file may include headers of its own room and of the rooms that it may use, directly
# or indirectly; a room that is declared to be used is used. The same holds for the libraries that a room links. Every room has
# tests of its own. Only cli may print, exit or read the environment, and it reaches all but core through api and serve. Only graph may
# compare the names of ops. Rooms above runtime reach memory and kernels through a device: they may not name contexts or
# instruction sets, or cast memory to numbers. The only mutable globals are those that docs/architecture.md lists; its tables of
# rooms and libraries are those that this script writes with --write.
# Prints each fault as FILE:LINE: message, and fails if there are any.
# Usage: lint_floors.sh [--write] [TREE]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
write=0
if [[ ${1:-} == --write ]]; then write=1; shift; fi
cd "${1:-.}"

mapfile -t files < <(find src/mantissa -name '*.h' -o -name '*.cpp' | sort)
GLOBALS=$(awk -f "$here/lint_globals.awk" "${files[@]}" | grep -v ' const ' || true)
TESTED=$(find tests -name '*_test.cpp' -printf '%h\n' 2>/dev/null | sort -u)
export GLOBALS TESTED
printf '%s\n' "${files[@]}" | awk -v write="$write" -f "$here/lint_floors.awk" -f "$here/lint_libraries.awk"
