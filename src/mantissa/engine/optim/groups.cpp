#include "mantissa/engine/optim/groups.h"

#include <algorithm>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/precision/policy/coverage.h"
#include "mantissa/precision/policy/glob.h"

namespace mantissa::optim {

GroupSettings settings_of(std::span<const Group> groups, std::string_view parameter) {
  GroupSettings settings;
  for (const Group& group : groups) {
    if (!precision::scope_match(group.match, parameter)) continue;
    settings.lr_scale = group.lr_scale.value_or(settings.lr_scale);
    if (group.weight_decay) settings.weight_decay = group.weight_decay;
    settings.freeze = group.freeze.value_or(settings.freeze);
    if (group.quantize) settings.quantize = group.quantize;
  }
  return settings;
}

void check_groups(std::span<const Group> groups, std::span<const std::string> parameters) {
  std::vector<precision::Place> places;
  for (const std::string& name : parameters)
    places.push_back({name.substr(0, name.rfind('.')), "update", precision::Pass::update});
  for (const Group& group : groups) {
    const auto matches = [&](const std::string& name) { return precision::scope_match(group.match, name); };
    if (std::ranges::any_of(parameters, matches)) continue;
    precision::Rule rule;
    rule.match = group.match;
    const std::string why = precision::why_unmatched(rule, places);
    throw ConfigError("{}: optimizer.group match = {} matches no parameter{}", group.origin,
                      in_quotes(group.match),
                      why.empty() ? "; inspect lists the names of a model's weights" : ": " + why);
  }
  const auto frozen = [&](const std::string& name) { return settings_of(groups, name).freeze; };
  if (std::ranges::all_of(parameters, frozen) && !parameters.empty())
    throw ConfigError("optimizer.group freezes every parameter, so nothing is trained; narrow a match");
}

}  // namespace mantissa::optim
