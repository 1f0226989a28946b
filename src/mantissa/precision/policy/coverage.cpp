#include "mantissa/precision/policy/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>

#include "mantissa/core/base/suggest.h"
#include "mantissa/core/base/words.h"
#include "mantissa/precision/compat/foreign_scopes.h"
#include "mantissa/precision/policy/glob.h"

namespace mantissa::precision {
namespace {

constexpr std::string_view kWeight = ".weight";

/// Replaces every part of `pattern` that occurs in no scope by the nearest one that does. Globs and numbers
/// stay.
std::string corrected(std::string_view pattern, std::span<const Place> places) {
  std::set<std::string> known;
  for (const Place& place : places) {
    for (const std::string_view part : split_words(place.scope, ".")) known.emplace(part);
  }
  const std::vector<std::string> candidates(known.begin(), known.end());
  std::string out;
  for (const std::string_view part : split_words(pattern, ".")) {
    const bool word =
        part.find_first_of("*?[{") == part.npos && part.find_first_not_of("0123456789") != part.npos;
    out += out.empty() ? "" : ".";
    out += word ? nearest(part, candidates).value_or(std::string(part)) : part;
  }
  return out;
}

/// Returns a form of `pattern` that matches a scope, anchored at its start or at a later dot. Returns the
/// scope itself if it is the only whole match, and null without a match.
std::optional<std::string> matching(const std::string& pattern, std::span<const Place> places) {
  for (const std::string& anywhere : {pattern, "*." + pattern}) {
    std::set<std::string> whole;
    bool any = false;
    for (const Place& place : places) {
      any = any || scope_match(anywhere, place.scope);
      if (glob_match(anywhere, place.scope)) whole.insert(place.scope);
    }
    if (whole.size() == 1) return *whole.begin();
    if (any) return anywhere;
  }
  return std::nullopt;
}

/// Returns the scope, or "*." and the end of a scope, that `pattern` probably means.
std::optional<std::string> nearest_scope(std::string_view pattern, std::span<const Place> places) {
  const std::string translated = compat::translated_scope(pattern);
  for (const std::string& meant : {translated, corrected(pattern, places), corrected(translated, places)}) {
    if (std::optional<std::string> found = matching(meant, places)) return found;
  }
  while (pattern.starts_with('*') || pattern.starts_with('.')) pattern.remove_prefix(1);
  std::set<std::string> whole;
  std::set<std::string> ends;  // the dotted ends of every scope, whole scopes included
  for (const Place& place : places) {
    whole.insert(place.scope);
    for (std::size_t at = 0; at != std::string::npos; at = place.scope.find('.', at)) {
      if (at > 0) ++at;
      ends.insert(place.scope.substr(at));
    }
  }
  const std::vector<std::string> candidates(ends.begin(), ends.end());
  std::optional<std::string> near = nearest(pattern, candidates);
  if (near && !whole.contains(*near)) near = "*." + *near;
  return near;
}

/// Returns "; did you mean "matmul"?" if `op` is a foreign name of one of `ops`, or near one of them.
std::string meant_op(const std::string& op, std::span<const std::string> ops) {
  for (const std::string_view ours : compat::translated_ops(op)) {
    if (std::ranges::find(ops, ours) != ops.end()) return fmt::format("; did you mean \"{}\"?", ours);
  }
  return did_you_mean(op, ops);
}

/// Returns the places that satisfy `fits`.
template <class Fits>
std::vector<Place> those(std::span<const Place> places, const Fits& fits) {
  std::vector<Place> found;
  std::ranges::copy_if(places, std::back_inserter(found), fits);
  return found;
}

std::vector<std::string> ops_of(std::span<const Place> places) {
  std::set<std::string> ops;
  for (const Place& place : places) ops.insert(place.op);
  return {ops.begin(), ops.end()};
}

/// Returns why a rule for a parameter of `module` has no effect.
std::string not_of_tensors(std::string_view module) {
  return fmt::format(
      "only params, grads, residual, optimizer, rounding and kahan can be set for a parameter; for other fields "
      "write \"{}\"",
      module);
}

std::vector<std::string> operands_of(std::span<const Place> places) {
  std::set<std::string> operands;
  for (const Place& place : places) operands.insert(place.operands.begin(), place.operands.end());
  return {operands.begin(), operands.end()};
}

}  // namespace

std::string why_unmatched(const Rule& rule, std::span<const Place> places) {
  const auto has_op = [&](const Place& place) {
    return rule.op.empty() || rule.op == place.op || rule.op == place.id;
  };
  const auto in_pass = [&](const Place& place) { return !rule.pass || *rule.pass == place.pass; };
  if (std::ranges::none_of(places, has_op)) {
    const std::vector<std::string> ops = ops_of(places);
    return fmt::format("the model has no op {}{} (ops: {})", in_quotes(rule.op), meant_op(rule.op, ops),
                       list_of(ops));
  }
  if (rule.match.ends_with(kWeight)) {
    const std::string module = rule.match.substr(0, rule.match.size() - kWeight.size());
    if (std::ranges::any_of(places, [&](const Place& p) { return scope_match(module, p.scope); }))
      return not_of_tensors(module);
  }
  const std::vector<Place> there =
      those(places, [&](const Place& place) { return scope_match(rule.match, place.scope); });
  if (there.empty()) {
    const std::optional<std::string> near = nearest_scope(rule.match, places);
    return near ? fmt::format("did you mean \"{}\"?", *near) : "";
  }
  const auto is_update = [](const Place& place) { return place.pass == Pass::update; };
  if (rule.op.empty() && !rule.pass && rule.operand.empty() && std::ranges::all_of(there, is_update))
    return not_of_tensors(there.front().scope.substr(0, there.front().scope.rfind('.')));
  const std::vector<Place> ops = those(there, has_op);
  if (ops.empty())
    return fmt::format("the scope has no op {} (ops: {})", in_quotes(rule.op), list_of(ops_of(there)));
  const std::vector<Place> passes = those(ops, in_pass);
  if (passes.empty()) return fmt::format("the matching ops do not run in the {} pass", name(*rule.pass));
  const std::vector<std::string> operands = operands_of(passes);
  if (operands.empty()) return "the matching ops have no operands that a rule can select";
  return fmt::format("the matching ops have no operand {}{} (operands: {})", in_quotes(rule.operand),
                     did_you_mean(rule.operand, operands), list_of(operands));
}

}  // namespace mantissa::precision
