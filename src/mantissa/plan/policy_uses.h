// What a policy says of the nodes of a graph, and which of its rules match one of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mantissa/graph/op.h"
#include "mantissa/precision/coverage.h"
#include "mantissa/precision/policy.h"

namespace mantissa::plan {

/// Asks the policy for the uses of a graph, and remembers the rules that matched.
class PolicyUses {
 public:
  /// `graph` and `policy` must outlive it.
  PolicyUses(const graph::Graph& graph, const precision::Policy& policy);

  /// What the policy says of `node`, or of one of its operands.
  precision::Resolved resolve(const graph::Node& node, std::string_view operand = {});
  /// The format that rules give to the inside of `node`'s op, called `interior`.
  Scalar interior_of(const graph::Node& node, std::string_view interior);
  /// The format that logits round to before they leave as f32.
  Scalar logits_rounding(const precision::Resolved& r) const;
  /// The field of the policy that decides the format of an output; "" if none does.
  std::string_view field_of(const graph::Value& value) const;
  /// Who decided the formats that affect this op: the fields of its kind, and `fields`.
  std::string decided_by(const graph::Node& node, std::vector<std::string_view> fields = {}) const;
  /// Matches the rules for the update of the parameter called `name`. Throws ConfigError if its moments
  /// cannot be kept in the format that they say.
  void note_update(std::string_view name);

  /// The rules that matched nothing so far.
  std::vector<std::size_t> unmatched() const;
  /// All that rules can match.
  std::vector<precision::Place> places() const;

 private:
  void note(const precision::Use& use);

  const graph::Graph& graph_;
  const precision::Policy& policy_;
  std::vector<bool> matched_;  // by rule
};

/// How a use rounds factors that have no scale. Factors of formats with scales are multiplied as stored.
Factor factor_of(const precision::Resolved& r);

/// The policy's name for the format of factors of `node`.
std::string_view factors_name(const graph::Node& node, const precision::Resolved& r);

/// True for the head, and for the product that hands out its logits.
bool makes_logits(const graph::Node& node);
/// True for products of a Linear layer.
bool is_linear(const graph::Node& node);
/// How `node` reads its input i.
graph::Read read_of(const graph::Node& node, std::size_t i);

}  // namespace mantissa::plan
