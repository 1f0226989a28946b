#!/usr/bin/env bash
# tools/lint_floors.sh accepts a correct tree, and reports exactly the planted faults in an incorrect one.
# Usage: floors_test.sh LINTER
set -euo pipefail
linter=$1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

mkdir -p "$tree"/docs "$tree"/src/mantissa/{core/base,core/numeric,kernels/cpu,engine/model,app/cli}
house() {
  cat <<'CMAKE'
mantissa_wing(core "numbers (all of them)")
mantissa_room(core/base ABOUT "errors")
mantissa_room(core/numeric USES base LINKS ${HWY_LIBRARY})
mantissa_wing(kernels "arithmetic")
mantissa_room(kernels USES numeric LINKS Threads::Threads ABOUT "ops, (in) vectors")
mantissa_wing(engine "models")
mantissa_room(engine/model   USES numeric
                      LINKS nlohmann_json::nlohmann_json)
mantissa_wing(app "the program")
if(TRUE)
  mantissa_room(app/cli USES model kernels)
endif()
CMAKE
}
house >"$tree/CMakeLists.txt"
printf 'before\n<!-- the house: written -->\nold\n<!-- end of the house -->\nafter\n' >"$tree/docs/architecture.md"

# Correct code that resembles every kind of fault.
cat >"$tree/src/mantissa/kernels/cpu/lawful.cpp" <<'CPP'
#include "mantissa/core/base/error.h"
#include "mantissa/kernels/gemm.h"
#include "mantissa/core/numeric/format.h"
// exit(1) and std::cout << "getenv(" in a comment
/* printf("x"); #include <iostream>
   abort(); */
const char* text = "call exit(1), printf(\"x\") or std::cerr << x";
static const std::map<int, int> kConstants = {{1, 2}};
static constexpr int kOne = 1;
static int helper(int x) { return x; }
int n = std::snprintf(buffer, size, "%d", on_exit(1)) + stdoutput + my::printf_like(2);
CPP
cat >"$tree/src/mantissa/app/cli/lawful.cpp" <<'CPP'
#include <iostream>
#include "mantissa/core/base/error.h"
#include "mantissa/engine/model/config.h"
#include "mantissa/kernels/gemm.h"
int main() { std::cout << getenv("HOME"); exit(0); }
CPP
printf '#include "mantissa/core/base/error.h"\n' >"$tree/src/mantissa/core/numeric/lawful.h"
printf '#include "mantissa/core/numeric/format.h"\n' >"$tree/src/mantissa/engine/model/lawful.h"
stale=$("$linter" "$tree") && fail "the linter accepted tables of another house"
grep -q "docs/architecture.md: the tables of the house are not those" <<<"$stale" || fail "$stale"
"$linter" --write "$tree" || fail "the linter rejected a correct tree"
"$linter" "$tree" || fail "the linter rejected its own tables"
grep -qxF '| `app` | the program | engine, kernels |' "$tree/docs/architecture.md" || fail "no row of a wing"
grep -qxF '| `kernels` | numeric | ops, (in) vectors |' "$tree/docs/architecture.md" || fail "no row of a room"
[[ $(head -n 1 "$tree/docs/architecture.md") == before && $(tail -n 1 "$tree/docs/architecture.md") == after ]] ||
  fail "the rest of the document has changed"

# refuse CMAKE MESSAGE: the linter prints MESSAGE for the house with the line CMAKE at its end.
refuse() {
  local found
  { house; printf '%s\n' "$1"; } >"$tree/CMakeLists.txt"
  found=$("$linter" "$tree") && fail "the linter accepted: $1"
  grep -qxF "CMakeLists.txt: $2" <<<"$found" || fail "$1: expected \"$2\", found: $found"
  house >"$tree/CMakeLists.txt"
}
refuse 'mantissa_room(app/web USES attic)' 'room "web" uses "attic", which is not a room'
refuse 'mantissa_room(app/web USES base)' 'room "web" is declared to use "base", and does not'
refuse 'mantissa_room(app/web USES web)' 'room "web" uses "web", which is listed after it'
refuse 'mantissa_room(core/low USES model)' 'room "low" is listed in wing "app"'
refuse 'mantissa_room(core/low USES model)' 'room "low" uses "model" of the higher wing "engine"'
refuse 'mantissa_room(shed/low)' 'room "low" is in "shed", which is not a wing'

expected=()
# plant ROOM/FILE LINE MESSAGE: writes a file with one faulty line LINE, for which the linter must print MESSAGE.
plant() {
  printf '#include "mantissa/core/base/error.h"\n%s\n' "$2" >"$tree/src/mantissa/$1"
  expected+=("src/mantissa/$1:2: $3")
}
plant core/base/up.h '#include "mantissa/core/numeric/format.h"' 'room "base" may not use room "numeric"'
plant core/numeric/up.cpp '#include <mantissa/kernels/gemm.h>' 'room "numeric" may not use room "kernels"'
plant engine/model/aside.cpp '  #  include "mantissa/kernels/cpu/pack-inl.h"' 'room "model" may not use room "kernels"'
plant engine/model/face.cpp '#include "mantissa/app/cli/main.h"' 'room "model" may not use room "cli"'
plant engine/model/strange.cpp '#include "mantissa/attic/old.h"' 'includes "attic/old.h", which is in no room'
plant engine/model/stream.cpp '#include <iostream>' 'only cli may include this'
says='the library may not print, exit or read the environment:'
plant engine/model/exit.cpp 'void f() { std::exit(1); }' "$says exit"
plant engine/model/env.cpp 'auto x = getenv("HOME");' "$says getenv"
plant kernels/cpu/print.cpp 'void f() { printf("x"); }' "$says printf"
plant engine/model/cout.cpp 'void f() { std::cout << 1; }' "$says std::cout"
plant engine/model/stderr.cpp 'void f() { std::fputs("x", stderr); }' "$says stderr"
plant engine/model/name.cpp 'bool f(const Step& s) { return s.op->id == "matmul"; }' "distinguish ops by their traits (engine/graph/op.h), not by name"
says='reach files through core/disk, where an error is never absence'
plant engine/model/look.cpp 'bool f(const Path& p) { return std::filesystem::exists(p); }' "$says"
plant engine/model/read.cpp 'void f() { std::ifstream in("x"); }' "$says"
plant kernels/cpu/open.cpp 'int f() { return ::open("x", 0); }' "$says"
says='no mutable globals: pass it, or name the file here and in docs/architecture.md'
plant engine/model/global.cpp 'std::atomic<int> steps = 0;' "$says"
plant engine/model/local.cpp '  static std::map<int, double> known;' "$says"
plant engine/model/thread.h 'static inline thread_local int depth = 0;' "$says"
says='the library may not print, exit or read the environment:'
plant engine/model/fmt.cpp 'void f() { fmt::print("x"); }' "$says fmt::print"

status=0
found=$("$linter" "$tree") || status=$?
((status == 1)) || fail "exit status $status for a tree with faults: $found"
diff <(printf '%s\n' "${expected[@]}" | sort) <(grep '^src/' <<<"$found" | sort) || fail "< expected, > found"
echo "${#expected[@]} planted faults found, no false reports"
