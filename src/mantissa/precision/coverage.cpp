#include "mantissa/precision/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "mantissa/base/suggest.h"
#include "mantissa/precision/glob.h"
#include "mantissa/precision/words.h"

namespace mantissa::precision {
namespace {

/// The scope, or "*." and the end of one, that `pattern` was probably meant to be.
std::optional<std::string> nearest_scope(std::string_view pattern, std::span<const Place> places) {
  while (pattern.starts_with('*') || pattern.starts_with('.')) pattern.remove_prefix(1);
  std::set<std::string> whole;
  std::set<std::string>
      ends;  // also the scopes themselves: modules are called by any dotted end of their path
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

/// Those of `places` that `fits`.
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

std::vector<std::string> operands_of(std::span<const Place> places) {
  std::set<std::string> operands;
  for (const Place& place : places) operands.insert(place.operands.begin(), place.operands.end());
  return {operands.begin(), operands.end()};
}

}  // namespace

std::string why_unmatched(const Rule& rule, std::span<const Place> places) {
  const auto has_op = [&](const Place& place) { return rule.op.empty() || rule.op == place.op; };
  const auto in_pass = [&](const Place& place) { return !rule.pass || *rule.pass == place.pass; };
  if (std::ranges::none_of(places, has_op)) {
    const std::vector<std::string> ops = ops_of(places);
    return fmt::format("the model has no op {}{} (ops: {})", in_quotes(rule.op), did_you_mean(rule.op, ops),
                       list_of(ops));
  }
  const std::vector<Place> there =
      those(places, [&](const Place& place) { return scope_match(rule.match, place.scope); });
  if (there.empty()) {
    const std::optional<std::string> near = nearest_scope(rule.match, places);
    return near ? fmt::format("did you mean \"{}\"?", *near) : "";
  }
  const std::vector<Place> ops = those(there, has_op);
  if (ops.empty())
    return fmt::format("there is no op {} (but {})", in_quotes(rule.op), list_of(ops_of(there)));
  const std::vector<Place> passes = those(ops, in_pass);
  if (passes.empty()) return fmt::format("it has no part in the {} pass", name(*rule.pass));
  const std::vector<std::string> operands = operands_of(passes);
  if (operands.empty()) return "no product is there whose factors a rule could tell apart";
  return fmt::format("no product there has an operand {}{} (operands: {})", in_quotes(rule.operand),
                     did_you_mean(rule.operand, operands), list_of(operands));
}

}  // namespace mantissa::precision
