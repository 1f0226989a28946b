#include "mantissa/text/chat/tests.h"

#include <fmt/format.h>

#include "mantissa/core/base/suggest.h"
#include "mantissa/core/base/words.h"
#include "mantissa/text/chat/error.h"
#include "mantissa/text/chat/filters.h"
#include "mantissa/text/chat/interpreter.h"
#include "mantissa/text/chat/operators.h"
#include "mantissa/text/chat/print.h"
#include "mantissa/text/chat/unicode.h"

namespace mantissa::chat {

namespace {

using In = Interpreter&;
using V = const Value&;
using A = Arguments&;

// The value modulo `by`, as Python compares it with `rest`.
bool leaves_rest(In in, V v, V by, std::int64_t rest) {
  require_defined(v);
  return equal(apply_operator("%", v, by, in.meter()), Value(rest), in.meter());
}

void no_arguments(A a) {
  const Parameters p("the test", a, {});
}

template <bool upper>
bool has_case(In in, V v, A a) {
  no_arguments(a);
  bool cased = false;
  for (const char32_t c : unicode::code_points(str(v, in.meter()))) {
    if (unicode::is_title(c) || (upper ? unicode::is_lower(c) : unicode::is_upper(c))) return false;
    cased |= upper ? unicode::is_upper(c) : unicode::is_lower(c);
  }
  return cased;
}

template <char first, char second = '\0'>
bool compares(In in, V v, A a) {
  const Parameters p("the test", a, {"other"}, 1);
  static constexpr char kSymbol[] = {first, second, '\0'};
  return apply_comparison(kSymbol, v, p.at(0), in.meter());
}

bool same(V a, V b) {
  if (a.same_place(b)) return true;
  if (a.boolean() && b.boolean()) return *a.boolean() == *b.boolean();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.integer() && b.integer())
    return *a.integer() == *b.integer() && *a.integer() >= -5 && *a.integer() <= 256;
  return false;
}

struct TestRow {
  std::string_view name;
  Test test;
};

constexpr TestRow kTests[] = {
    {"defined", [](In, V v, A a) { return no_arguments(a), !v.is_undefined(); }},
    {"undefined", [](In, V v, A a) { return no_arguments(a), v.is_undefined(); }},
    {"none", [](In, V v, A a) { return no_arguments(a), v.is_none(); }},
    {"boolean", [](In, V v, A a) { return no_arguments(a), v.boolean() != nullptr; }},
    {"true", [](In, V v, A a) { return no_arguments(a), v.boolean() && *v.boolean(); }},
    {"false", [](In, V v, A a) { return no_arguments(a), v.boolean() && !*v.boolean(); }},
    {"integer", [](In, V v, A a) { return no_arguments(a), v.integer() != nullptr; }},
    {"float", [](In, V v, A a) { return no_arguments(a), v.real() != nullptr; }},
    {"number", [](In, V v, A a) { return no_arguments(a), v.as_number().has_value(); }},
    {"string", [](In, V v, A a) { return no_arguments(a), v.text() != nullptr; }},
    {"mapping", [](In, V v, A a) { return no_arguments(a), v.dict() != nullptr; }},
    {"sequence",
     [](In, V v, A a) {
       return no_arguments(a), v.is_undefined() || v.text() || v.list() || v.dict() || v.as<Range>();
     }},
    {"iterable", [](In, V v, A a) { return no_arguments(a), is_iterable(v); }},
    {"callable",
     [](In, V v, A a) {
       return no_arguments(a), v.is_undefined() || (v.object() && v.object()->callable());
     }},
    {"escaped", [](In, V v, A a) { return no_arguments(a), v.text() && v.text()->markup; }},
    {"odd", [](In in, V v, A a) { return no_arguments(a), leaves_rest(in, v, Value(std::int64_t{2}), 1); }},
    {"even", [](In in, V v, A a) { return no_arguments(a), leaves_rest(in, v, Value(std::int64_t{2}), 0); }},
    {"divisibleby",
     [](In in, V v, A a) { return leaves_rest(in, v, Parameters("divisibleby", a, {"num"}, 1).at(0), 0); }},
    {"lower", has_case<false>},
    {"upper", has_case<true>},
    {"sameas", [](In, V v, A a) { return same(v, Parameters("sameas", a, {"other"}, 1).at(0)); }},
    {"in", [](In in, V v, A a) { return contains(Parameters("in", a, {"seq"}, 1).at(0), v, in.meter()); }},
    {"filter", [](In, V v, A a) { return no_arguments(a), v.text() && find_filter(v.text()->bytes); }},
    {"test", [](In, V v, A a) { return no_arguments(a), v.text() && find_test(v.text()->bytes); }},
    {"eq", compares<'=', '='>},
    {"equalto", compares<'=', '='>},
    {"==", compares<'=', '='>},
    {"ne", compares<'!', '='>},
    {"!=", compares<'!', '='>},
    {"lt", compares<'<'>},
    {"lessthan", compares<'<'>},
    {"<", compares<'<'>},
    {"le", compares<'<', '='>},
    {"<=", compares<'<', '='>},
    {"gt", compares<'>'>},
    {"greaterthan", compares<'>'>},
    {">", compares<'>'>},
    {"ge", compares<'>', '='>},
    {">=", compares<'>', '='>}};

}  // namespace

Test find_test(std::string_view name) {
  for (const TestRow& row : kTests) {
    if (row.name == name) return row.test;
  }
  return nullptr;
}

std::string unknown_test(std::string_view name) {
  const auto near = nearest(name, names_of(kTests, &TestRow::name));
  return fmt::format(
      "unknown test '{}'. Fix: {}", name,
      near ? fmt::format("did you mean '{}'?", *near)
           : "use a test of docs/chat.md, or choose another template by data.template or --template");
}

}  // namespace mantissa::chat
