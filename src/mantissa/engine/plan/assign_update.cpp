// The precision pass of an optimizer's graph. Kept states have the policy's `optimizer` format, but weights
// among them that of the arithmetic; passes compute in the arithmetic and products multiply in it, unless a
// rule for the update overrides this.
#include <fmt/format.h>

#include <algorithm>

#include "mantissa/core/base/error.h"
#include "mantissa/core/numeric/philox.h"
#include "mantissa/engine/graph/weight_states.h"
#include "mantissa/engine/plan/passes.h"
#include "mantissa/engine/plan/sum_order.h"
#include "mantissa/kernels/expression.h"
#include "mantissa/precision/policy/supported.h"

namespace mantissa::plan {

using graph::Graph;
using graph::Node;
using graph::Role;
using graph::Value;
using graph::ValueId;
using graph::ValueKind;

const Slot* written_slot(const Program& update, const Step& step) {
  for (const BufferId o : step.outputs) {
    const Buffer& b = update.buffer(o);
    if (b.home == Home::master) return &update.slots[static_cast<std::size_t>(b.slot)];
  }
  return nullptr;
}

bool speaks_of_update(const precision::Rule& rule) {
  const precision::Fields& f = rule.fields;
  return rule.names_update() || f.optimizer || f.rounding || f.kahan;
}

precision::Resolved resolve_update(const precision::Policy& policy, std::string_view name) {
  const precision::Resolved r = policy.resolve({name, "update", precision::Pass::update, 0});
  try {
    precision::check_update(r);
  } catch (const ConfigError& e) {
    throw ConfigError(fmt::format("{}: {}", name, e.what()));
  }
  return r;
}

namespace {

class UpdateLowering {
 public:
  UpdateLowering(const Graph& graph, const precision::Policy& policy, const Program& trains)
      : graph_(graph), trains_(trains) {
    p_.policy = policy;
    p_.arithmetic = p_.softmax = policy.arithmetic();
    buffer_of_.assign(graph.values().size(), kNoBuffer);
    rule_matched_.assign(policy.rules().size(), false);
  }

  Program run() {
    take_slots();
    for (std::size_t v = 0; v < graph_.values().size(); ++v) {
      if (graph_.values()[v].producer == graph::kNone) declare(static_cast<ValueId>(v));
    }
    for (const Node& node : graph_.nodes()) lower(node);
    mark_breaking();
    for (std::size_t r = 0; r < rule_matched_.size(); ++r) {
      if (!rule_matched_[r]) p_.unmatched_rules.push_back(r);
    }
    return std::move(p_);
  }

 private:
  static std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }
  BufferId buffer(ValueId v) const { return buffer_of_[at(v)]; }

  BufferId add_buffer(const Value& value, Scalar type, Home home, ValueId id) {
    Buffer b;
    b.name = value.name;
    b.shape = value.shape;
    b.type = type;
    b.home = home;
    b.value = id;
    b.random = value.random;
    p_.buffers.push_back(std::move(b));
    return static_cast<BufferId>(p_.buffers.size() - 1);
  }

  /// Copies the slots of the updated program, with their masters and copies.
  void take_slots() {
    const auto take = [&](BufferId b) {
      p_.buffers.push_back(trains_.buffer(b));
      p_.buffers.back().value = graph::kNone;
      return static_cast<BufferId>(p_.buffers.size() - 1);
    };
    p_.scales = trains_.scales;  // that copies name
    for (const Slot& from : trains_.slots) {
      Slot slot = from;
      slot.master_buffer = take(from.master_buffer);
      slot.gradient = kNoBuffer;
      slot.copies.clear();
      for (const BufferId c : from.copies) slot.copies.push_back(take(c));
      p_.slots.push_back(std::move(slot));
    }
  }

  Slot& slot_called(std::string_view name) {
    const auto slot = std::ranges::find(p_.slots, name, &Slot::name);
    if (slot == p_.slots.end())
      throw InternalError(fmt::format("the update of \"{}\" writes no weight of the program", name));
    return *slot;
  }

  void declare(ValueId id) {
    const Value& value = graph_.value(id);
    buffer_of_[at(id)] = place(value, id);
  }

  BufferId place(const Value& value, ValueId id) {
    if (value.kind == ValueKind::parameter) return slot_called(value.name).master_buffer;
    if (value.role == Role::number) return add_buffer(value, Scalar::f64, Home::input, id);
    const Value& parameter = graph_.value(value.of);
    Slot& slot = slot_called(parameter.name);
    if (value.role == Role::weight_gradient) {
      const BufferId from = trains_.slots[static_cast<std::size_t>(&slot - p_.slots.data())].gradient;
      if (from == kNoBuffer)
        throw InternalError(
            fmt::format("the update of \"{}\" reads a gradient that no step computes", slot.name));
      return slot.gradient = add_buffer(value, trains_.buffer(from).type, Home::bound, id);
    }
    const StateFormat format =
        value.role == Role::moment ? state_format(value, parameter, slot.name) : StateFormat(slot.master);
    const BufferId state = add_buffer(value, format.type, Home::kept, id);
    p_.buffer(state).codes = format.codes;
    p_.buffer(state).never_negative = value.never_negative;
    p_.buffer(state).slot = p_.buffer(slot.master_buffer).slot;
    return state;
  }

  /// Returns the format of a state. Blocks follow the elements of the parameter, so states of other shapes,
  /// and small ones, stay in f32.
  StateFormat state_format(const Value& state, const Value& parameter, std::string_view name) const {
    if (graph::starts_at_weight(state.random)) return p_.arithmetic;
    const StateFormat format = resolve_update(p_.policy, name).optimizer;
    if (!format.in_blocks()) return format;
    if (state.shape != parameter.shape || state.shape.count() < kLeastBlockedState) return Scalar::f32;
    const bool positive = format.codes == StateCodes::dynamic8 && state.never_negative;
    return positive ? StateFormat(StateCodes::dynamic8_positive) : format;
  }

  precision::Use use_of(const Node& node) const {
    return {node.scope, node.op->op, precision::Pass::update, 0};
  }

  void lower(const Node& node) {
    const precision::Use use = use_of(node);
    for (const std::size_t i : p_.policy.matching_rules(use))
      rule_matched_[i] = rule_matched_[i] || speaks_of_update(p_.policy.rules()[i]);
    p_.places.push_back({node.scope, std::string(node.op->op), use.pass});
    Step s;
    s.op = node.op;
    s.scope = node.scope;
    s.phase = node.phase;
    s.attributes = node.attributes;
    s.label = node.label;
    s.rounded = s.interior = p_.arithmetic;
    s.compute = p_.arithmetic;
    const bool multiplies = node.op->reads.front() == graph::Read::matmul;
    multiplies ? lower_product(node, use, s) : lower_pass(node, use, s);
    for (const ValueId id : node.outputs) {
      s.outputs.push_back(output(id));
      s.labels.push_back(label_of(p_.buffer(s.outputs.back())));
    }
    add_copies(s);
    p_.steps.push_back(std::move(s));
  }

  void lower_product(const Node& node, const precision::Use& use, Step& s) {
    const precision::Compute compute = p_.policy.update_compute(use).value_or(p_.arithmetic);
    s.compute = compute->factor;
    s.factors = compute->name;
    s.decided_by = decided_by(use, {"compute", "accumulate_order", "accumulate"});
    s.accumulator = p_.policy.update_accumulator(use, s.compute.format);
    for (const ValueId id : node.inputs) s.inputs.push_back({buffer(id), s.compute, s.factors});
    set_sum_order(p_, use, p_.policy.update_order(use), s);
  }

  void lower_pass(const Node& node, const precision::Use& use, Step& s) {
    s.interior = p_.policy.update_arithmetic(use).value_or(p_.arithmetic);
    s.expression = node.expression;
    if (!holds(s.interior, p_.arithmetic)) s.expression = kernels::lowered(s.expression, s.interior);
    s.rounding = resolve_update(p_.policy, node.scope).rounding;
    s.random_name = hash_name(node.scope);
    s.decided_by = decided_by(use, {"params", "rounding"});
    for (const ValueId id : node.inputs) s.inputs.push_back({buffer(id), p_.buffer(buffer(id)).type});
  }

  /// Returns what decided `fields`, or `built-in` if the format is the arithmetic, which no preset sets.
  std::string decided_by(const precision::Use& use, std::vector<std::string_view> fields) const {
    return p_.policy.decided_by(use, fields);
  }

  /// Returns the name of a result of an update: "weight", or that of the state ("exp_avg") without the name
  /// of its weight.
  std::string label_of(const Buffer& b) const {
    std::string name = b.name;
    if (b.home == Home::kept && b.slot >= 0) {
      const std::string& weight = p_.slots[at(b.slot)].name;
      if (name.ends_with("." + weight)) name.resize(name.size() - weight.size() - 1);
    }
    return name.substr(name.rfind('.') + 1);  // npos + 1 is 0
  }

  BufferId output(ValueId id) {
    const Value& value = graph_.value(id);
    buffer_of_[at(id)] = value.alias != graph::kNone ? buffer(value.alias)
                                                     : add_buffer(value, p_.arithmetic, Home::activation, id);
    return buffer(id);
  }

  /// A pass over a weight also writes its copies, but those that are computed after the update.
  void add_copies(Step& s) {
    const Slot* slot = written_slot(p_, s);
    if (slot == nullptr) return;
    for (const BufferId c : slot->copies) {
      if (!p_.buffer(c).is_derived()) s.outputs.push_back(c);
    }
  }

  /// An update can overflow weights in formats with fewer exponent bits than f32. So can a lowered arithmetic
  /// or product: a divisor that underflows to zero gives NaN.
  void mark_breaking() {
    for (const Slot& slot : p_.slots) {
      const auto mine = [&](const Step& s) { return s.scope == slot.name; };
      const auto is_lowered = [&](const Step& s) {
        return mine(s) && (!holds(s.interior, Scalar::f32) || !holds(s.compute.format, Scalar::f32));
      };
      const bool narrow = traits(slot.master).exponent_bits < traits(Scalar::f32).exponent_bits;
      if (!narrow && std::ranges::none_of(p_.steps, is_lowered)) continue;
      for (Step& s : p_.steps) s.may_break = s.may_break || mine(s);
    }
  }

  const Graph& graph_;
  const Program& trains_;
  Program p_;
  std::vector<BufferId> buffer_of_;
  std::vector<bool> rule_matched_;
};

}  // namespace

Program assign_update(const Graph& graph, const precision::Policy& policy, const Program& program) {
  return UpdateLowering(graph, policy, program).run();
}

}  // namespace mantissa::plan
