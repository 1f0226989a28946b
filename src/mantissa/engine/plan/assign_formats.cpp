// The precision pass: looks up every use in the policy, and makes each rounding an explicit step.
#include <fmt/format.h>

#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/engine/plan/input_copies.h"
#include "mantissa/engine/plan/labels.h"
#include "mantissa/engine/plan/operand_scales.h"
#include "mantissa/engine/plan/passes.h"
#include "mantissa/engine/plan/policy_uses.h"
#include "mantissa/engine/plan/step_builder.h"
#include "mantissa/engine/plan/sum_order.h"

namespace mantissa::plan {
namespace {

using graph::Graph;
using graph::Node;
using graph::Role;
using graph::Value;
using graph::ValueId;
using graph::ValueKind;

class Lowering {
 public:
  Lowering(const Graph& graph, const precision::Policy& policy)
      : graph_(graph), uses_(graph, policy), program_(empty_program(policy)) {
    buffer_of_.assign(graph.values().size(), kNoBuffer);
  }

  Program run() {
    for (std::size_t v = 0; v < graph_.values().size(); ++v) {
      if (graph_.values()[v].producer == graph::kNone) declare(static_cast<ValueId>(v));
    }
    for (const Node& node : graph_.nodes()) lower(node);
    for (const auto& [name, value] : graph_.outputs()) program_.outputs.emplace_back(name, buffer(value));
    program_.unmatched_rules = uses_.unmatched();
    if (!program_.unmatched_rules.empty()) program_.places = uses_.places();
    return std::move(program_);
  }

 private:
  static Program empty_program(const precision::Policy& policy) {
    Program program;
    program.policy = policy;
    program.arithmetic = program.softmax = policy.arithmetic();
    return program;
  }

  /// Returns the policy's format for an output of `node`.
  Scalar format_of(const Node& node, const Value& value) {
    switch (value.role) {
      case Role::integer:
      case Role::arithmetic:
      case Role::output:
      case Role::moment:
      case Role::number:
        return program_.arithmetic;
      case Role::compute:
        return uses_.resolve(node).compute->stored;
      case Role::residual:
        return uses_.resolve(node).residual;
      case Role::kv:
        return uses_.resolve(node).kv;
      case Role::state:
        return uses_.resolve(node).state;
      case Role::parameter:
        return uses_.resolve(node).params;
      case Role::weight_gradient:
        return uses_.resolve_tensor(node, graph_.value(value.of)).grads;
      case Role::like: {
        const Value& of = graph_.value(value.of);
        if (of.role == Role::kv && of.producer != graph::kNone)
          return uses_.resolve(graph_.node(of.producer)).compute->stored;
        return program_.buffer(buffer(value.of)).type;
      }
    }
    return program_.arithmetic;
  }

  Scalar format_of_state(const Value& value, const precision::Use& use) const {
    if (value.role == Role::state) return program_.policy.resolve(state_use(use.scope)).state;
    const precision::Resolved r = program_.policy.resolve(use);
    return value.role == Role::compute ? r.compute->stored : r.kv;
  }

  /// Declares a value without a producer: an input, constant, parameter or state.
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
    if (value.kind == ValueKind::parameter)
      type = program_.policy.resolve(precision::master_use(value.name)).params;
    if (value.kind == ValueKind::state)
      type = format_of_state(value, {scope_of_name(value.name), "parameter", precision::Pass::forward, 0});
    const BufferId b = steps_.add_buffer(value.name, value.shape, type, home, id);
    program_.buffer(b).keeps = value.keeps;
    program_.buffer(b).integer = value.role == Role::integer;
    buffer_of_[static_cast<std::size_t>(id)] = b;
    if (value.kind == ValueKind::constant) program_.constants.push_back({b, value.fill, type});
    if (value.kind == ValueKind::parameter) {
      program_.buffer(b).slot = static_cast<std::int32_t>(program_.slots.size());
      program_.slots.push_back({value.name, value.shape, type, value.init, b, {}, kNoBuffer, value.fixed});
      uses_.note_parameter(value.name);
    }
  }

  static std::string_view scope_of_name(std::string_view name) { return name.substr(0, name.rfind('.')); }

  BufferId buffer(ValueId v) const { return buffer_of_[static_cast<std::size_t>(v)]; }

  /// Emits gradient += contribution, rounded to the gradient's format once per micro-batch.
  void emit_sum(const Node& node, BufferId contribution, BufferId gradient) {
    Step s = steps_.step_for(node);
    s.op = &graph::find_op("accumulate");
    s.attributes = {};
    s.inputs = {{gradient, program_.buffer(gradient).type}, {contribution, program_.arithmetic}};
    s.outputs = {gradient};
    program_.steps.push_back(std::move(s));
  }

  void lower(const Node& node) {
    Step s = steps_.step_for(node);
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      s.inputs.push_back(copies_.input(node, i, buffer(node.inputs[i])));
    for (Operand& o : s.inputs) {
      if (program_.buffer(o.buffer).home == Home::constant) o.buffer = copies_.constant(o.buffer, s.interior);
    }
    // The norm's input is the first operand in both passes.
    if (node.op->normalizes && uses_.resolve(node).norm_cast == precision::NormCast::before_gain) {
      const Scalar input = program_.buffer(s.inputs.front().buffer).type;
      if (!holds(input, program_.arithmetic)) s.normalized = input;
    }
    if (node.op->kind == graph::OpKind::product && makes_logits(node))
      program_.softmax = uses_.interior_of(node, "softmax");
    check_parts(s);
    set_sum_order(program_, use_of(node), uses_.resolve(node).accumulate_order, s);
    std::vector<std::pair<BufferId, BufferId>> casts;  // unrounded result → the value's buffer
    std::vector<std::pair<BufferId, BufferId>> sums;   // a micro-batch's gradient → the step's gradient
    for (std::size_t o = 0; o < node.outputs.size(); ++o) {
      const ValueId id = node.outputs[o];
      const Value& value = graph_.value(id);
      s.labels.push_back(label_of(graph_, node, value));
      if (o == 0 && node.op->alias != graph::kNone) {
        buffer_of_[static_cast<std::size_t>(id)] = s.inputs[static_cast<std::size_t>(node.op->alias)].buffer;
        s.outputs.push_back(buffer(id));
        continue;
      }
      const Scalar format = format_of(node, value);
      const Home home = value.kind == ValueKind::weight_gradient ? Home::gradient : Home::activation;
      const BufferId b = steps_.add_buffer(value.name, value.shape, format, home, id);
      program_.buffer(b).integer = value.role == Role::integer;
      buffer_of_[static_cast<std::size_t>(id)] = b;
      program_.buffer(b).field = uses_.field_of(value);
      if (value.kind == ValueKind::weight_gradient) note_gradient(value, b);
      if (format == program_.arithmetic) {
        s.outputs.push_back(b);
        continue;
      }
      const bool gradient = home == Home::gradient;
      const BufferId wide = steps_.add_buffer(value.name + (gradient ? ":micro" : ":unrounded"), value.shape,
                                              program_.arithmetic, Home::activation);
      s.outputs.push_back(wide);
      (gradient ? sums : casts).emplace_back(wide, b);
    }
    emit(node, std::move(s));
    for (const auto& [from, to] : casts) steps_.add_cast(node, from, to);
    for (const auto& [from, to] : sums) emit_sum(node, from, to);
  }

  /// Appends the step. A pointwise sum of more than two terms becomes a chain of sums of two, each in f32.
  void emit(const Node& node, Step s) {
    const bool pointwise = node.op->expression != nullptr;
    const bool chain = pointwise && node.op->duty == graph::Duty::sum && s.inputs.size() > 2;
    if (!chain) {
      if (pointwise)
        s.expression = node.op->expression(graph::NodeView{graph_, node.inputs, node.attributes});
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
        part.outputs = {steps_.add_buffer(fmt::format("{}:part{}", program_.buffer(out).name, i),
                                          program_.buffer(out).shape, program_.arithmetic, Home::activation)};
      }
      partial = {part.outputs[0], program_.buffer(part.outputs[0]).type};
      program_.steps.push_back(std::move(part));
    }
  }

  /// Records the first accumulator of a parameter, which the optimizer reads. The finish phase adds those of
  /// later uses to it.
  void note_gradient(const Value& value, BufferId b) {
    Slot& slot = program_.slots[static_cast<std::size_t>(program_.buffer(buffer(value.of)).slot)];
    if (value.use == 0) slot.gradient = b;
  }

  const Graph& graph_;
  PolicyUses uses_;
  Program program_;
  StepBuilder steps_{graph_, uses_, program_};
  InputCopies copies_{graph_, uses_, program_, steps_};
  std::vector<BufferId> buffer_of_;
};

}  // namespace

Program assign_formats(const Graph& graph, const precision::Policy& policy) {
  return Lowering(graph, policy).run();
}

}  // namespace mantissa::plan
