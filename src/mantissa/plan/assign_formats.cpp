// The precision pass: asks the policy for every use, and makes each rounding an explicit step.
#include <fmt/format.h>

#include <map>

#include "mantissa/base/error.h"
#include "mantissa/plan/passes.h"
#include "mantissa/precision/supported.h"

namespace mantissa::plan {
namespace {

using graph::Graph;
using graph::Node;
using graph::Phase;
using graph::Read;
using graph::Role;
using graph::Value;
using graph::ValueId;
using graph::ValueKind;

/// What a result in `compute` is stored in: tf32 is a format of factors only.
Scalar stored(Scalar compute) {
  return compute == Scalar::tf32 ? Scalar::f32 : compute;
}

/// Whether every value of `from` is one of `to`.
bool holds(Scalar to, Scalar from) {
  const ScalarTraits& t = traits(to);
  const ScalarTraits& f = traits(from);
  return t.mantissa_bits >= f.mantissa_bits && t.exponent_bits >= f.exponent_bits;
}

class Lowering {
 public:
  Lowering(const Graph& graph, const precision::Policy& policy) : graph_(graph) {
    program_.policy = policy;
    program_.arithmetic = policy.arithmetic();
    buffer_of_.assign(graph.values().size(), kNoBuffer);
    rule_matched_.assign(policy.rules().size(), false);
  }

  Program run() {
    for (std::size_t v = 0; v < graph_.values().size(); ++v) {
      if (graph_.values()[v].producer == graph::kNone) declare(static_cast<ValueId>(v));
    }
    for (const Node& node : graph_.nodes()) lower(node);
    for (const auto& [name, value] : graph_.outputs()) program_.outputs.emplace_back(name, buffer(value));
    for (std::size_t r = 0; r < rule_matched_.size(); ++r) {
      if (!rule_matched_[r]) program_.unmatched_rules.push_back(r);
    }
    return std::move(program_);
  }

 private:
  precision::Resolved resolve(const Node& node) {
    const precision::Use use{node.scope, node.op->op, pass_of(node.phase), 0};
    for (const std::size_t r : program_.policy.matching_rules(use)) rule_matched_[r] = true;
    return program_.policy.resolve(use);
  }

  /// The format that the policy gives to an output of `node`.
  Scalar format_of(const Node& node, const Value& value) {
    switch (value.role) {
      case Role::integer:
      case Role::arithmetic:
      case Role::output:
        return program_.arithmetic;
      case Role::compute:
        return stored(resolve(node).compute);
      case Role::residual:
        return resolve(node).residual;
      case Role::kv:
        return resolve(node).kv;
      case Role::parameter:
        return resolve(node).params;
      case Role::weight_gradient:
        return resolve(node).grads;
      case Role::like: {
        const Value& of = graph_.value(value.of);
        if (of.role == Role::kv && of.producer != graph::kNone)
          return stored(resolve(graph_.node(of.producer)).compute);
        return program_.buffer(buffer(value.of)).type;
      }
    }
    return program_.arithmetic;
  }

  BufferId add_buffer(std::string name, const Shape& shape, Scalar type, Home home, ValueId value) {
    Buffer b;
    b.name = std::move(name);
    b.shape = shape;
    b.type = type;
    b.home = home;
    b.value = value;
    program_.buffers.push_back(std::move(b));
    return static_cast<BufferId>(program_.buffers.size() - 1);
  }

  /// A value that no node makes: an input, constant, parameter or state.
  void declare(ValueId id) {
    const Value& value = graph_.value(id);
    static constexpr std::pair<ValueKind, Home> kHomes[] = {{ValueKind::input, Home::input},
                                                            {ValueKind::constant, Home::constant},
                                                            {ValueKind::state, Home::state},
                                                            {ValueKind::parameter, Home::master}};
    Home home = Home::input;
    for (const auto& [kind, h] : kHomes) {
      if (kind == value.kind) home = h;
    }
    Scalar type = program_.arithmetic;
    const precision::Use use{scope_of_name(value.name), "parameter", precision::Pass::forward, 0};
    if (value.kind == ValueKind::parameter) type = program_.policy.resolve(use).params;
    if (value.kind == ValueKind::state) type = program_.policy.resolve(use).kv;
    const BufferId b = add_buffer(value.name, value.shape, type, home, id);
    program_.buffer(b).integer = value.role == Role::integer;
    buffer_of_[static_cast<std::size_t>(id)] = b;
    if (value.kind == ValueKind::constant) program_.constants.emplace_back(b, value.fill);
    if (value.kind == ValueKind::parameter) {
      program_.buffer(b).slot = static_cast<std::int32_t>(program_.slots.size());
      program_.slots.push_back({value.name, value.shape, type, value.init, b, {}, kNoBuffer});
      set_update(program_.slots.back());
    }
  }

  /// How the optimizer keeps this parameter.
  void set_update(Slot& slot) {
    const precision::Resolved r = program_.policy.resolve({slot.name, "update", precision::Pass::update, 0});
    try {
      precision::check_update(r);
    } catch (const ConfigError& e) {
      throw ConfigError(fmt::format("{}: {}", slot.name, e.what()));
    }
    slot.moments = r.optimizer;
    slot.rounding = r.rounding;
    slot.compensated = r.kahan && bytes_of(slot.master) < bytes_of(program_.arithmetic);
  }

  static std::string_view scope_of_name(std::string_view name) { return name.substr(0, name.rfind('.')); }

  BufferId buffer(ValueId v) const { return buffer_of_[static_cast<std::size_t>(v)]; }

  /// The copy of a parameter in `type`, which the optimizer keeps up to date.
  BufferId copy_of(BufferId master, Scalar type) {
    Slot& slot = program_.slots[static_cast<std::size_t>(program_.buffer(master).slot)];
    for (const BufferId c : slot.copies) {
      if (program_.buffer(c).type == type) return c;
    }
    const Buffer m = program_.buffer(master);
    const BufferId c =
        add_buffer(fmt::format("{}:{}", m.name, name(type)), m.shape, type, Home::copy, graph::kNone);
    program_.buffer(c).slot = m.slot;
    slot.copies.push_back(c);
    return c;
  }

  Step step_for(const Node& node) {
    const precision::Resolved r = resolve(node);
    Step s;
    s.op = node.op;
    s.scope = node.scope;
    s.phase = node.phase;
    s.rounded = program_.arithmetic;
    s.compute = r.compute;
    s.decided_by = r.decided_by;
    s.attributes = node.attributes;
    return s;
  }

  void emit_cast(const Node& node, BufferId from, BufferId to) {
    Step s = step_for(node);
    s.op = &graph::find_op("cast");
    s.attributes = {};
    s.inputs = {{from, program_.buffer(from).type}};
    s.outputs = {to};
    s.expression = copy_expression();
    program_.steps.push_back(std::move(s));
  }

  /// gradient += contribution, rounded to the gradient's format once a micro-batch.
  void emit_sum(const Node& node, BufferId contribution, BufferId gradient) {
    Step s = step_for(node);
    s.op = &graph::find_op("accumulate");
    s.attributes = {};
    s.inputs = {{gradient, program_.buffer(gradient).type}, {contribution, program_.arithmetic}};
    s.outputs = {gradient};
    program_.steps.push_back(std::move(s));
  }

  static kernels::Expression copy_expression() {
    using kernels::Opcode;
    return {{{.op = Opcode::load, .dst = 0, .index = 0}, {.op = Opcode::store, .a = 0, .index = 0}}, 1, 1};
  }

  /// Input i of `node`, cast first where the op multiplies it in a format that cannot hold its values.
  Operand operand(const Node& node, std::size_t i, Scalar compute) {
    BufferId b = buffer(node.inputs[i]);
    const Read read = node.op->reads[std::min(i, node.op->reads.size() - 1)];
    const Buffer& from = program_.buffer(b);
    if (from.integer || read == Read::value || holds(compute, from.type)) return {b, from.type};
    if (from.home == Home::master) {
      if (compute == Scalar::tf32) return {b, compute};  // same storage: rounded while it is packed
      return {copy_of(b, compute), compute};
    }
    const auto key = std::make_pair(b, compute);
    if (const auto it = casts_.find(key); it != casts_.end() && it->second.second == node.phase)
      return {it->second.first, compute};
    const BufferId to = add_buffer(fmt::format("{}:{}", from.name, name(compute)), from.shape, compute,
                                   Home::activation, graph::kNone);
    emit_cast(node, b, to);
    casts_[key] = {to, node.phase};
    return {to, compute};
  }

  void lower(const Node& node) {
    Step s = step_for(node);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) s.inputs.push_back(operand(node, i, s.compute));
    std::vector<std::pair<BufferId, BufferId>> casts;  // unrounded result → the value's buffer
    std::vector<std::pair<BufferId, BufferId>> sums;  // a micro-batch's weight gradient → what collects them
    for (std::size_t o = 0; o < node.outputs.size(); ++o) {
      const ValueId id = node.outputs[o];
      const Value& value = graph_.value(id);
      if (o == 0 && node.op->alias != graph::kNone) {
        buffer_of_[static_cast<std::size_t>(id)] = s.inputs[static_cast<std::size_t>(node.op->alias)].buffer;
        s.outputs.push_back(buffer(id));
        continue;
      }
      const Scalar format = format_of(node, value);
      const Home home = value.kind == ValueKind::weight_gradient ? Home::gradient : Home::activation;
      const BufferId b = add_buffer(value.name, value.shape, format, home, id);
      buffer_of_[static_cast<std::size_t>(id)] = b;
      if (value.kind == ValueKind::weight_gradient) note_gradient(value, b);
      if (format == program_.arithmetic) {
        s.outputs.push_back(b);
      } else if (home == Home::gradient) {
        const BufferId wide = add_buffer(value.name + ":micro", value.shape, program_.arithmetic,
                                         Home::activation, graph::kNone);
        s.outputs.push_back(wide);
        sums.emplace_back(wide, b);
      } else {
        const BufferId wide = add_buffer(value.name + ":unrounded", value.shape, program_.arithmetic,
                                         Home::activation, graph::kNone);
        s.outputs.push_back(wide);
        casts.emplace_back(wide, b);
      }
    }
    emit(node, std::move(s));
    for (const auto& [from, to] : casts) emit_cast(node, from, to);
    for (const auto& [from, to] : sums) emit_sum(node, from, to);
  }

  /// Pushes the step; a pointwise sum of several becomes a chain of sums of two, each in f32.
  void emit(const Node& node, Step s) {
    if (node.op->expression == nullptr) {
      program_.steps.push_back(std::move(s));
      return;
    }
    const graph::NodeView view{graph_, node.inputs, node.attributes};
    const bool chain = (node.op->id == "sum" || node.op->id == "sum_uses") && s.inputs.size() > 2;
    if (!chain) {
      s.expression = node.op->expression(view);
      program_.steps.push_back(std::move(s));
      return;
    }
    const std::vector<Operand> inputs = s.inputs;
    const std::vector<ValueId> first_two(node.inputs.begin(), node.inputs.begin() + 2);
    s.expression = node.op->expression(graph::NodeView{graph_, first_two, node.attributes});
    Operand partial = inputs[0];
    const BufferId out = s.outputs[0];
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      Step part = s;
      part.inputs = {partial, inputs[i]};
      const bool last = i + 1 == inputs.size();
      if (!last && node.op->alias == graph::kNone) {
        part.outputs = {add_buffer(fmt::format("{}:part{}", program_.buffer(out).name, i),
                                   program_.buffer(out).shape, program_.arithmetic, Home::activation,
                                   graph::kNone)};
      }
      partial = {part.outputs[0], program_.buffer(part.outputs[0]).type};
      program_.steps.push_back(std::move(part));
    }
  }

  /// The first accumulator of a parameter is what the optimizer reads; later uses are added into it in the
  /// finish phase.
  void note_gradient(const Value& value, BufferId b) {
    Slot& slot = program_.slots[static_cast<std::size_t>(program_.buffer(buffer(value.of)).slot)];
    if (value.use == 0) slot.gradient = b;
  }

  const Graph& graph_;
  Program program_;
  std::vector<BufferId> buffer_of_;
  std::map<std::pair<BufferId, Scalar>, std::pair<BufferId, Phase>> casts_;
  std::vector<bool> rule_matched_;
};

}  // namespace

Program assign_formats(const Graph& graph, const precision::Policy& policy) {
  return Lowering(graph, policy).run();
}

}  // namespace mantissa::plan
