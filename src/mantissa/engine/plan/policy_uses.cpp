#include "mantissa/engine/plan/policy_uses.h"

#include <algorithm>
#include <array>
#include <span>

#include "mantissa/engine/plan/passes.h"

namespace mantissa::plan {

using graph::Graph;
using graph::Node;
using graph::Read;
using graph::Role;
using graph::Value;
using graph::ValueId;
using graph::ValueKind;

precision::Use use_of(const Node& node, std::string_view operand) {
  return {.scope = node.scope,
          .op = node.op->op,
          .pass = pass_of(node.phase),
          .operand = operand,
          .id = node.op->id};
}

namespace {

precision::Use tensor_use(const Node& node, const Value& parameter) {
  precision::Use use = use_of(node);
  use.tensor = parameter.name;
  return use;
}

}  // namespace

PolicyUses::PolicyUses(const Graph& graph, const precision::Policy& policy)
    : graph_(graph), policy_(policy), matched_(policy.rules().size(), false) {}

void PolicyUses::note(const precision::Use& use) {
  for (const std::size_t r : policy_.matching_rules(use)) matched_[r] = true;
}

precision::Resolved PolicyUses::resolve(const Node& node, std::string_view operand) {
  const precision::Use use = use_of(node, operand);
  note(use);
  return policy_.resolve(use);
}

precision::Resolved PolicyUses::resolve_tensor(const Node& node, const Value& parameter) {
  const precision::Use use = tensor_use(node, parameter);
  note(use);
  return policy_.resolve(use);
}

Scalar PolicyUses::interior_of(const Node& node, std::string_view interior) {
  if (node.op->kind == graph::OpKind::recurrence) return policy_.resolve(state_use(node.scope)).state;
  const precision::Use use = interior_use(node.scope, interior, node.phase);
  note(use);
  return policy_.interior(use).value_or(policy_.arithmetic());
}

Scalar PolicyUses::logits_rounding(const precision::Resolved& r) const {
  if (policy_.arithmetic() == Scalar::f64) return Scalar::f64;
  return r.output_via_compute ? r.compute->stored : r.output;
}

std::string_view PolicyUses::field_of(const Value& value) const {
  switch (value.role) {
    case Role::compute:
      return "compute";
    case Role::residual:
      return "residual";
    case Role::kv:
      return "kv";
    case Role::state:
      return "state";
    case Role::parameter:
      return "params";
    case Role::weight_gradient:
      return "grads";
    case Role::like: {
      const Value& of = graph_.value(value.of);
      return of.role == Role::kv && of.producer != graph::kNone ? "compute" : field_of(of);
    }
    default:
      return {};
  }
}

std::string PolicyUses::decided_by(const Node& node, std::vector<std::string_view> fields) const {
  constexpr std::array<std::string_view, 1> kWeights = {"weights"};
  fields.insert(fields.end(), {"compute", "saturate", "flush_subnormals"});
  const bool product = node.op->kind == graph::OpKind::product || node.op->kind == graph::OpKind::head;
  if (product)
    fields.insert(fields.end(), {"accumulate", "accumulate_block", "scaling", "scale_rounding",
                                 "gradient_rounding", "weight_block", "activation_block", "hadamard"});
  if (product || node.op->kind == graph::OpKind::attention) fields.emplace_back("accumulate_order");
  const bool attention = node.op->kind == graph::OpKind::attention;
  const precision::Use whole = use_of(node);
  if (attention && policy_.resolve(whole).accumulator.card != Card::none) fields.emplace_back("accumulate");
  if (makes_logits(node)) fields.emplace_back("output");
  if (node.op->kind == graph::OpKind::recurrence) fields.emplace_back("state");
  if (node.op->normalizes) fields.emplace_back("norm_cast");
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const bool weight = graph_.value(node.inputs[i]).kind == ValueKind::parameter;
    if (weight && read_of(node, i) == Read::value) fields.emplace_back("residual");
  }
  for (const ValueId id : node.outputs) {
    const Role role = graph_.value(id).role;
    if (role == Role::residual) fields.emplace_back("residual");
    if (role == Role::kv) fields.emplace_back("kv");
    if (role == Role::weight_gradient) fields.emplace_back("grads");
  }
  std::string by = policy_.decided_by(whole, fields);
  const auto look_at = [&](const precision::Use& use, std::span<const std::string_view> names) {
    if (policy_.matching_rules(use) != policy_.matching_rules(whole)) by = policy_.decided_by(use, names);
  };
  for (const std::string_view operand : node.op->operands) look_at(use_of(node, operand), fields);
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const Value& value = graph_.value(node.inputs[i]);
    if (value.kind == ValueKind::parameter && read_of(node, i) == Read::value)
      look_at(tensor_use(node, value), fields);
  }
  for (const ValueId id : node.inputs) {
    const Value& value = graph_.value(id);
    if (value.kind != ValueKind::parameter) continue;
    const precision::Use master = precision::master_use(value.name);
    if (policy_.resolve(master).weights == WeightFormat::none) continue;
    const std::string weights = policy_.decided_by(master, kWeights);
    if (weights != policy_.decided_by({}, {})) by = weights;
  }
  for (const ValueId id : node.outputs) {
    const Value& value = graph_.value(id);
    if (value.role == Role::weight_gradient) look_at(tensor_use(node, graph_.value(value.of)), fields);
  }
  return by;
}

void PolicyUses::note_parameter(std::string_view name) {
  const precision::Use master = precision::master_use(name);
  for (const std::size_t i : policy_.matching_rules(master)) {
    const precision::Rule& rule = policy_.rules()[i];
    matched_[i] = matched_[i] || (rule.op.empty() && rule.speaks_of_tensors());
  }
  const precision::Use use{name, "update", precision::Pass::update, 0};
  for (const std::size_t i : policy_.matching_rules(use))
    matched_[i] = matched_[i] || speaks_of_update(policy_.rules()[i]);
  resolve_update(policy_, name);
}

std::vector<std::size_t> PolicyUses::unmatched() const {
  std::vector<std::size_t> rules;
  for (std::size_t r = 0; r < matched_.size(); ++r) {
    if (!matched_[r]) rules.push_back(r);
  }
  return rules;
}

std::vector<precision::Place> PolicyUses::places() const {
  std::vector<precision::Place> places;
  for (const Node& node : graph_.nodes()) {
    const precision::Pass pass = pass_of(node.phase);
    const std::vector<std::string> operands(node.op->operands.begin(), node.op->operands.end());
    places.push_back({node.scope, std::string(node.op->op), pass, operands, std::string(node.op->id)});
    if (!node.op->interior.empty() && node.op->kind != graph::OpKind::recurrence)
      places.push_back({node.scope, std::string(node.op->interior), pass});
  }
  for (const Value& v : graph_.values()) {
    if (v.kind == ValueKind::parameter && v.producer == graph::kNone)
      places.push_back({v.name, "update", precision::Pass::update});
  }
  return places;
}

Factor factor_of(const precision::Resolved& r) {
  Factor f = r.compute->scaled == precision::Scaled::none ? r.compute->factor : Factor(r.compute->stored);
  f.saturate = r.saturate;
  f.flush_subnormals = r.flush_subnormals;
  return f;
}

std::string_view factors_name(const Node& node, const precision::Resolved& r) {
  const bool as_it_is = is_linear(node) || r.compute->scaled == precision::Scaled::none;
  return as_it_is ? r.compute->name : name(r.compute->stored);
}

bool makes_logits(const Node& node) {
  return node.op->kind == graph::OpKind::head ||
         (node.op->kind == graph::OpKind::product && node.attributes.flag("logits"));
}

bool is_linear(const Node& node) {
  return node.op->kind == graph::OpKind::product && !makes_logits(node) && !node.attributes.flag("score");
}

Read read_of(const Node& node, std::size_t i) {
  return node.op->reads[std::min(i, node.op->reads.size() - 1)];
}

}  // namespace mantissa::plan
