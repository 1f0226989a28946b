// Parameter groups: settings of an optimizer for the parameters that a pattern matches.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "mantissa/core/numeric/quants.h"

namespace mantissa::optim {

/// [[optimizer.group]]. A key that is not set comes from another group or from [optimizer].
struct Group {
  std::string match;  // scope glob for parameter names, as in rules; also matches at any depth below
  std::optional<double> lr_scale{};       // factor of the learning rate
  std::optional<double> weight_decay{};   // applies to vectors too
  std::optional<bool> freeze{};           // no gradient and no state
  std::optional<QuantFormat> quantize{};  // of frozen weights of linear layers
  std::string origin = {};                // "run.toml:31", for messages
  friend bool operator==(const Group& a, const Group& b) {
    return a.match == b.match && a.lr_scale == b.lr_scale && a.weight_decay == b.weight_decay &&
           a.freeze == b.freeze && a.quantize == b.quantize;
  }
};

/// The settings of one parameter. For each key, the last matching group that has the key applies.
struct GroupSettings {
  double lr_scale = 1;
  std::optional<double> weight_decay;  // null: the optimizer's, on tensors of two or more dimensions
  bool freeze = false;
  std::optional<QuantFormat> quantize = {};  // null: the policy's formats

  /// Returns the format in which the weight of a linear layer is held, or null for the policy's.
  std::optional<QuantFormat> held_in() const { return freeze ? quantize : std::nullopt; }
};
GroupSettings settings_of(std::span<const Group> groups, std::string_view parameter);

/// Throws ConfigError if a group matches none of `parameters`, with the nearest name, and if all of them are
/// frozen.
void check_groups(std::span<const Group> groups, std::span<const std::string> parameters);

}  // namespace mantissa::optim
