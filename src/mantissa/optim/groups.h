// Parameter groups: settings of an optimizer for the parameters that a pattern matches.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace mantissa::optim {

/// [[optimizer.group]]. Keys that are not set are left to other groups and to [optimizer].
struct Group {
  std::string match;  // scope glob over parameter names, as in rules; also matched at any depth below
  std::optional<double> lr_scale{};      // times the learning rate
  std::optional<double> weight_decay{};  // for vectors, too
  std::optional<bool> freeze{};          // neither gradient nor state
  std::string origin = {};               // "run.toml:31", for messages
  friend bool operator==(const Group& a, const Group& b) {
    return a.match == b.match && a.lr_scale == b.lr_scale && a.weight_decay == b.weight_decay &&
           a.freeze == b.freeze;
  }
};

/// What the groups make of one parameter: of those that match, the last one that has a key gives it.
struct GroupSettings {
  double lr_scale = 1;
  std::optional<double> weight_decay;  // none: the optimizer's, on tensors of two or more dimensions
  bool freeze = false;
};
GroupSettings settings_of(std::span<const Group> groups, std::string_view parameter);

/// Throws ConfigError where a group matches none of `parameters`, naming the nearest, and where all of them
/// are frozen.
void check_groups(std::span<const Group> groups, std::span<const std::string> parameters);

}  // namespace mantissa::optim
