// Looks up the policy's formats for the nodes of a graph.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mantissa/engine/graph/op.h"
#include "mantissa/precision/policy/coverage.h"
#include "mantissa/precision/policy/policy.h"

namespace mantissa::plan {

/// Returns the use that decides the formats of `node`, or of its operand `operand` unless that is empty.
precision::Use use_of(const graph::Node& node, std::string_view operand = {});

/// Resolves the policy for the nodes of one graph and records which rules matched.
class PolicyUses {
 public:
  /// `graph` and `policy` must outlive it.
  PolicyUses(const graph::Graph& graph, const precision::Policy& policy);

  /// Returns the resolved fields for `node`, or for its operand `operand` unless that is empty.
  precision::Resolved resolve(const graph::Node& node, std::string_view operand = {});
  /// Returns the resolved fields for `parameter` as `node` reads it or computes its gradient.
  precision::Resolved resolve_tensor(const graph::Node& node, const graph::Value& parameter);
  /// Returns the format of the interior step `interior` of `node`'s op: the field `state` for a recurrence,
  /// else as set by rules for the step, or the arithmetic.
  Scalar interior_of(const graph::Node& node, std::string_view interior);
  /// Returns the format to which logits round before they are returned in the arithmetic.
  Scalar logits_rounding(const precision::Resolved& r) const;
  /// Returns the policy field that sets the format of `value`, or "" if no field does.
  std::string_view field_of(const graph::Value& value) const;
  /// Returns the origin of the formats of `node`: the last rule that sets `fields` or any field that affects
  /// ops of its kind, else the preset or line.
  std::string decided_by(const graph::Node& node, std::vector<std::string_view> fields = {}) const;
  /// Records the rules that match the parameter `name` and its update. Throws ConfigError if the policy gives
  /// its moments an unsupported format.
  void note_parameter(std::string_view name);

  /// Returns the indices of the rules that have matched nothing so far.
  std::vector<std::size_t> unmatched() const;
  /// Returns every op, interior step and parameter update that a rule can match.
  std::vector<precision::Place> places() const;

 private:
  void note(const precision::Use& use);

  const graph::Graph& graph_;
  const precision::Policy& policy_;
  std::vector<bool> matched_;  // by rule
};

/// Returns the use that determines the format and rounding of a recurrence's states. A gradient computes the
/// states of the forward pass again.
inline precision::Use state_use(std::string_view scope) {
  return {scope, "recurrence", precision::Pass::forward, 0};
}

/// Returns the rounding of factors without scales while they are loaded. Under a compute format with scales,
/// such factors have the format of stored results.
Factor factor_of(const precision::Resolved& r);

/// Returns the policy's name for the format of `node`'s factors.
std::string_view factors_name(const graph::Node& node, const precision::Resolved& r);

/// Returns true for the head, and for the product that returns its logits.
bool makes_logits(const graph::Node& node);
/// Returns true for products of Linear layers: all others but those of heads that return scores.
bool is_linear(const graph::Node& node);
/// Returns how `node` reads its input i.
graph::Read read_of(const graph::Node& node, std::size_t i);

}  // namespace mantissa::plan
