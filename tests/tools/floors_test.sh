#!/usr/bin/env bash
# tools/lint_floors.sh accepts a correct tree, and reports exactly the planted faults in an incorrect one.
# Usage: floors_test.sh LINTER
set -euo pipefail
linter=$1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

mkdir -p "$tree"/src/mantissa/{base,numeric,kernels/cpu,model,cli}
cat >"$tree/CMakeLists.txt" <<'CMAKE'
mantissa_room(base)
mantissa_room(numeric USES base LINKS ${HWY_LIBRARY})
mantissa_room(kernels USES numeric LINKS Threads::Threads)
mantissa_room(model   USES numeric
                      LINKS nlohmann_json::nlohmann_json)
if(TRUE)
  mantissa_room(cli USES model kernels)
endif()
CMAKE

# Correct code that resembles every kind of fault.
cat >"$tree/src/mantissa/kernels/cpu/lawful.cpp" <<'CPP'
#include "mantissa/base/error.h"
#include "mantissa/kernels/gemm.h"
#include "mantissa/numeric/format.h"
// exit(1) and std::cout << "getenv(" in a comment
/* printf("x"); #include <iostream>
   abort(); */
const char* text = "call exit(1), printf(\"x\") or std::cerr << x";
static const std::map<int, int> kConstants = {{1, 2}};
static constexpr int kOne = 1;
static int helper(int x) { return x; }
int n = std::snprintf(buffer, size, "%d", on_exit(1)) + stdoutput + my::printf_like(2);
CPP
cat >"$tree/src/mantissa/cli/lawful.cpp" <<'CPP'
#include <iostream>
#include "mantissa/base/error.h"
#include "mantissa/kernels/gemm.h"
int main() { std::cout << getenv("HOME"); exit(0); }
CPP
"$linter" "$tree" || fail "the linter rejected a correct tree"

expected=()
# plant ROOM/FILE LINE MESSAGE: writes a file with one faulty line LINE, for which the linter must print MESSAGE.
plant() {
  printf '#include "mantissa/base/error.h"\n%s\n' "$2" >"$tree/src/mantissa/$1"
  expected+=("src/mantissa/$1:2: $3")
}
plant base/up.h '#include "mantissa/numeric/format.h"' 'room "base" may not use room "numeric"'
plant numeric/up.cpp '#include <mantissa/kernels/gemm.h>' 'room "numeric" may not use room "kernels"'
plant model/aside.cpp '  #  include "mantissa/kernels/cpu/pack-inl.h"' 'room "model" may not use room "kernels"'
plant model/face.cpp '#include "mantissa/cli/main.h"' 'room "model" may not use room "cli"'
plant model/strange.cpp '#include "mantissa/attic/old.h"' 'includes "attic", which is not a room'
plant model/stream.cpp '#include <iostream>' 'only cli may include this'
says='the library may not print, exit or read the environment:'
plant model/exit.cpp 'void f() { std::exit(1); }' "$says exit"
plant model/env.cpp 'auto x = getenv("HOME");' "$says getenv"
plant kernels/cpu/print.cpp 'void f() { printf("x"); }' "$says printf"
plant model/cout.cpp 'void f() { std::cout << 1; }' "$says std::cout"
plant model/stderr.cpp 'void f() { std::fputs("x", stderr); }' "$says stderr"
plant model/name.cpp 'bool f(const Step& s) { return s.op->id == "matmul"; }' "distinguish ops by their traits (graph/op.h), not by name"
says='no mutable globals: pass it, or name the file here and in docs/architecture.md'
plant model/global.cpp 'std::atomic<int> steps = 0;' "$says"
plant model/local.cpp '  static std::map<int, double> known;' "$says"
plant model/thread.h 'static inline thread_local int depth = 0;' "$says"
says='the library may not print, exit or read the environment:'
plant model/fmt.cpp 'void f() { fmt::print("x"); }' "$says fmt::print"

status=0
found=$("$linter" "$tree") || status=$?
((status == 1)) || fail "exit status $status for a tree with faults: $found"
diff <(printf '%s\n' "${expected[@]}" | sort) <(grep '^src/' <<<"$found" | sort) || fail "< expected, > found"
echo "${#expected[@]} planted faults found, no false reports"
