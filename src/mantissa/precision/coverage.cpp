#include "mantissa/precision/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "mantissa/base/error.h"
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

std::string why_unmatched(const Rule& rule, std::span<const Place> places) {
  std::set<std::string> ops;
  for (const Place& place : places) ops.insert(place.op);
  const std::vector<std::string> names(ops.begin(), ops.end());
  if (!rule.op.empty() && !ops.contains(rule.op)) {
    return fmt::format("the model has no op {}{} (ops: {})", in_quotes(rule.op), did_you_mean(rule.op, names),
                       list_of(names));
  }
  std::set<std::string> there;
  for (const Place& place : places) {
    if (scope_match(rule.match, place.scope)) there.insert(place.op);
  }
  if (!there.empty()) {
    const std::vector<std::string> ops_there(there.begin(), there.end());
    return fmt::format("{} has no op {} (it has {})", in_quotes(rule.match), in_quotes(rule.op),
                       list_of(ops_there));
  }
  const std::optional<std::string> near = nearest_scope(rule.match, places);
  return fmt::format(
      "{} matches nothing in the model{}", in_quotes(rule.match),
      near ? fmt::format("; did you mean \"{}\"?", *near) : "; `mantissa explain` lists the scopes");
}

}  // namespace

void check_rules_match(const Policy& policy, std::span<const Place> places) {
  for (const Rule& rule : policy.rules()) {
    const bool matched = std::ranges::any_of(places, [&](const Place& place) {
      return (rule.op.empty() || rule.op == place.op) && scope_match(rule.match, place.scope);
    });
    if (!matched) {
      throw ConfigError(
          fmt::format("rule {} ({}): {}", in_quotes(rule.str()), rule.origin, why_unmatched(rule, places)));
    }
  }
}

}  // namespace mantissa::precision
