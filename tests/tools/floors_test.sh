#!/usr/bin/env bash
# tools/lint_floors.sh accepts a correct tree, and reports exactly the planted faults in an incorrect one.
# Usage: floors_test.sh LINTER
set -euo pipefail
linter=$1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

mkdir -p "$tree"/docs "$tree"/src/mantissa/{core/base,core/numeric,kernels/cpu,engine/model,app/api,app/cli}
mkdir -p "$tree"/tests/{core/base,core/numeric,kernels,engine/model,app/api,app/cli,faults}
for folder in "$tree"/tests/{core/base,core/numeric,kernels,engine/model,app/api,app/cli,faults}; do
  touch "$folder/some_test.cpp"
done
house() {
  cat <<'CMAKE'
mantissa_wing(core "numbers (all of them)")
mantissa_room(core/base ABOUT "errors")
mantissa_room(core/numeric USES base LINKS mantissa::hwy)
mantissa_wing(kernels "arithmetic")
mantissa_room(kernels USES numeric LINKS Threads::Threads ABOUT "ops, (in) vectors")
mantissa_wing(engine "models")
mantissa_room(engine/model   USES numeric SOME_KEY file.cpp
                      LINKS nlohmann_json::nlohmann_json)
mantissa_wing(app "the program")
if(TRUE)
  mantissa_room(app/api USES kernels model LINKS nlohmann_json::nlohmann_json)
  mantissa_room(app/cli USES api)
endif()
CMAKE
}
house >"$tree/CMakeLists.txt"
cat >"$tree/docs/architecture.md" <<'MARKDOWN'
before
<!-- the house: written -->
old
<!-- end of the house -->
<!-- the libraries: written -->
<!-- end of the libraries -->
<!-- mutable globals -->

| variable | file | why |
| --- | --- | --- |
| `listed` | `kernels/cpu/lawful.cpp` | counts |

<!-- end of mutable globals -->
after
MARKDOWN

# Correct code that resembles every kind of fault.
cat >"$tree/src/mantissa/kernels/cpu/lawful.cpp" <<'CPP'
#include "mantissa/core/base/error.h"
#include "mantissa/kernels/gemm.h"
#include "mantissa/core/numeric/format.h"
// exit(1) and std::cout << "getenv(" in a comment
/* printf("x"); #include <iostream>
   abort(); */
#include <sys/mman.h>
const char* const text = "call exit(1), printf(\"x\") or std::cerr << x; int g = 0;";
int listed = 0;
constexpr int kTwo = 2;
extern int elsewhere;
int f8(int x = 3, const char* y = "z");
struct Lawful {
  int member = 0, other{1};
  static constexpr int kThree = 3;
  static Lawful make(int x) { return {}; }
  Lawful() : member{1} {}
};
enum class Kind { a, b = 3 };
int (*const callback)(int) = f8;
bool operator==(const Lawful&, const Lawful&) = default;
const Lawful& reference = make();
template <class T>
using Words = std::pair<T, T>;
const char* const raw = R"(int g = 0;
int h = 1;)";
static const std::map<int, int> kConstants = {{1, 2}};
static constexpr int kOne = 1;
static int helper(int x) {
  static const std::map<int, int> known = {{1, 2}};
  const auto lambda = [&] { return x; };
  return lambda() + (op.id == other.id) + rule.opaque == "x";
}
const int n = std::snprintf(buffer, size, "%d", on_exit(1)) + stdoutput + my::printf_like(2);
CPP
cat >"$tree/src/mantissa/app/cli/lawful.cpp" <<'CPP'
#include <iostream>
#include "mantissa/core/base/error.h"
#include "mantissa/app/api/models.h"
int main() { std::cout << getenv("HOME"); exit(0); }
CPP
printf '#include "mantissa/core/base/error.h"\n#include <hwy/highway.h>\n' >"$tree/src/mantissa/core/numeric/lawful.h"
printf '#include "mantissa/core/numeric/format.h"\n#include <nlohmann/json.hpp>\n' >"$tree/src/mantissa/engine/model/lawful.h"
printf '#include "mantissa/engine/model/config.h"\n#include "mantissa/kernels/gemm.h"\n#include <nlohmann/json.hpp>\n' \
  >"$tree/src/mantissa/app/api/lawful.h"
printf '#include <fmt/format.h>\n' >"$tree/src/mantissa/core/base/lawful.h"
stale=$("$linter" "$tree") && fail "the linter accepted tables of another house"
grep -q "docs/architecture.md: the tables of the house are not those" <<<"$stale" || fail "$stale"
grep -q "docs/architecture.md: the tables of the libraries are not those" <<<"$stale" || fail "$stale"
"$linter" --write "$tree" || fail "the linter rejected a correct tree"
"$linter" "$tree" || fail "the linter rejected its own tables"
grep -qxF '| `app` | the program | engine, kernels |' "$tree/docs/architecture.md" || fail "no row of a wing"
grep -qxF '| nlohmann JSON | `model`, `api` |' "$tree/docs/architecture.md" || fail "no row of a library"
grep -qxF '| fmt | all |' "$tree/docs/architecture.md" || fail "no row of a library that all rooms link"
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
refuse 'mantissa_room(app/web LINKS mantissa::zstd)' 'room "web" links "mantissa::zstd", and does not include it'
refuse 'mantissa_room(app/web LINKS boost::all)' 'room "web" links "boost::all", which is not in the list of tools/lint_libraries.awk'

# report MESSAGE: the linter prints MESSAGE for the tree as it is.
report() {
  local found
  found=$("$linter" "$tree") && fail "the linter accepted a tree: expected \"$1\""
  grep -qxF "$1" <<<"$found" || fail "expected \"$1\", found: $found"
}
rm "$tree/tests/kernels/some_test.cpp"
report 'tests/kernels: room "kernels" has no *_test.cpp of its own'
touch "$tree/tests/kernels/some_test.cpp"
mkdir -p "$tree/tests/engine/old" && touch "$tree/tests/engine/old/some_test.cpp"
report 'tests/engine/old: is the folder of no room'
rm -r "$tree/tests/engine/old"
sed -i 's/`listed`/`gone`/' "$tree/docs/architecture.md"
report 'docs/architecture.md: lists the mutable global "gone", which is not in src/mantissa/kernels/cpu/lawful.cpp'
sed -i 's/`gone`/`listed`/' "$tree/docs/architecture.md"
printf 'namespace x {\n' >"$tree/src/mantissa/core/base/open.h"
report 'src/mantissa/core/base/open.h:1: has braces that the linter cannot match, so it may miss mutable globals'
rm "$tree/src/mantissa/core/base/open.h"
"$linter" "$tree" || fail "the linter rejected the tree after all changes were undone"

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
plant engine/model/env.cpp 'const auto x = getenv("HOME");' "$says getenv"
plant kernels/cpu/print.cpp 'void f() { printf("x"); }' "$says printf"
plant engine/model/cout.cpp 'void f() { std::cout << 1; }' "$says std::cout"
plant engine/model/stderr.cpp 'void f() { std::fputs("x", stderr); }' "$says stderr"
plant engine/model/name.cpp 'bool f(const Step& s) { return s.op->id == "matmul"; }' "distinguish ops by their traits (engine/graph/op.h), not by name"
says='reach files through core/disk, where an error is never absence'
plant engine/model/look.cpp 'bool f(const Path& p) { return std::filesystem::exists(p); }' "$says"
plant engine/model/read.cpp 'void f() { std::ifstream in("x"); }' "$says"
plant kernels/cpu/open.cpp 'int f() { return ::open("x", 0); }' "$says"
says='distinguish ops by their traits (engine/graph/op.h), not by name'
plant engine/model/reference.cpp 'bool f(const OpDef& op) { return op.id == "matmul"; }' "$says"
plant engine/model/turned.cpp 'bool f(const Step& s) { return "matmul" != s.def().op; }' "$says"
plant engine/model/begin.cpp 'bool f(const OpDef& op) { return op.op.starts_with("matmul"); }' "$says"
plant core/base/library.h '#include <nlohmann/json.hpp>' \
  'room "base" does not link nlohmann JSON. Fix: LINKS nlohmann_json::nlohmann_json in CMakeLists.txt'
plant engine/model/simd.h '#include "hwy/highway.h"' 'room "model" does not link Highway. Fix: LINKS mantissa::hwy in CMakeLists.txt'
plant engine/model/boost.h '#include <boost/any.hpp>' 'includes <boost/any.hpp> of a library that is not in the list of tools/lint_libraries.awk'
plant app/cli/short_cut.cpp '#include "mantissa/kernels/gemm.h"' 'cli reaches room "kernels" through api'
plant app/cli/model.cpp '#include "mantissa/engine/model/config.h"' 'cli reaches room "model" through api'
# plant_global ROOM/FILE NAME LINE: one mutable global.
plant_global() { plant "$1" "$3" "\"$2\" is a mutable global. Fix: pass it, or list it in docs/architecture.md"; }
plant_global engine/model/global.cpp steps 'std::atomic<int> steps = 0;'
plant_global engine/model/plain.cpp g 'int g = 0;'
plant_global engine/model/named.cpp g 'namespace x { int g; }'
plant_global engine/model/braces.cpp g 'std::vector<int> g{1, 2};'
plant_global engine/model/parentheses.cpp g 'int g(3);'
plant_global engine/model/inline.h g 'inline std::map<int, std::string> g = {{1, "a;b"}};'
plant_global engine/model/local.cpp known 'void f() { static std::map<int, double> known; }'
plant_global engine/model/lambda.cpp n 'const Row kRows[] = {{"x", [] { static int n = 0; return ++n; }}};'
plant_global engine/model/member.h count 'class A { public: int x = 0; static int count; };'
plant_global engine/model/inline_member.h count 'struct A { static inline int count{0}; };'
plant_global engine/model/thread.h depth 'static inline thread_local int depth = 0;'
plant_global engine/model/pointer.cpp text 'const char* text = "x";'
plant_global engine/model/callback.cpp call 'int (*call)(int) = nullptr;'
plant_global engine/model/reference_to.cpp r 'std::string& r = name();'
plant_global app/cli/terminal.cpp state 'static bool state = false;'
says='the library may not print, exit or read the environment:'
plant engine/model/fmt.cpp 'void f() { fmt::print("x"); }' "$says fmt::print"

status=0
found=$("$linter" "$tree") || status=$?
((status == 1)) || fail "exit status $status for a tree with faults: $found"
diff <(printf '%s\n' "${expected[@]}" | sort) <(grep '^src/' <<<"$found" | sort) || fail "< expected, > found"
echo "${#expected[@]} planted faults found, no false reports"
