// The precision pass: looks up every use in the policy, and makes each rounding an explicit step.
#include <fmt/format.h>

#include <map>
#include <optional>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/numeric/philox.h"
#include "mantissa/engine/plan/labels.h"
#include "mantissa/engine/plan/operand_scales.h"
#include "mantissa/engine/plan/passes.h"
#include "mantissa/engine/plan/policy_uses.h"
#include "mantissa/engine/plan/sum_order.h"
#include "mantissa/kernels/expression.h"

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

class Lowering {
 public:
  Lowering(const Graph& graph, const precision::Policy& policy) : graph_(graph), uses_(graph, policy) {
    program_.policy = policy;
    program_.arithmetic = program_.softmax = policy.arithmetic();
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
    const BufferId b = add_buffer(value.name, value.shape, type, home, id);
    program_.buffer(b).keeps = value.keeps;
    program_.buffer(b).integer = value.role == Role::integer;
    buffer_of_[static_cast<std::size_t>(id)] = b;
    if (value.kind == ValueKind::constant) fill_constant(b, value.fill, type);
    if (value.kind == ValueKind::parameter) {
      program_.buffer(b).slot = static_cast<std::int32_t>(program_.slots.size());
      program_.slots.push_back({value.name, value.shape, type, value.init, b, {}, kNoBuffer, value.fixed});
      uses_.note_parameter(value.name);
    }
  }

  void fill_constant(BufferId b, const graph::Fill& fill, Scalar format) {
    program_.constants.push_back({b, fill, format});
  }

  /// Returns the constant `b` with intermediate results rounded to `format`. All uses of one format share it.
  BufferId lowered_constant(BufferId b, Scalar format) {
    if (format == program_.arithmetic) return b;
    const auto key = std::make_pair(b, format);
    if (const auto it = lowered_.find(key); it != lowered_.end()) return it->second;
    const Buffer from = program_.buffer(b);
    const BufferId to = add_buffer(fmt::format("{}:{}", from.name, name(format)), from.shape, from.type,
                                   Home::constant, graph::kNone);
    fill_constant(to, graph_.value(from.value).fill, format);
    return lowered_[key] = to;
  }

  static std::string_view scope_of_name(std::string_view name) { return name.substr(0, name.rfind('.')); }

  BufferId buffer(ValueId v) const { return buffer_of_[static_cast<std::size_t>(v)]; }

  /// Returns the copy of a parameter in `type`, which the optimizer updates.
  BufferId copy_of(BufferId master, Scalar type) {
    Slot& slot = program_.slots[static_cast<std::size_t>(program_.buffer(master).slot)];
    for (const BufferId c : slot.copies) {
      if (program_.buffer(c).type == type && !program_.buffer(c).scaled) return c;
    }
    const Buffer m = program_.buffer(master);
    const BufferId c =
        add_buffer(fmt::format("{}:{}", m.name, name(type)), m.shape, type, Home::copy, graph::kNone);
    program_.buffer(c).slot = m.slot;
    slot.copies.push_back(c);
    return c;
  }

  /// Sets the rounding of a recurrence's states.
  void round_states(const Node& node, Step& s) {
    s.rounding = program_.policy.resolve(state_use(node.scope)).rounding;
    s.random_name = hash_name(node.scope + ".state");
    if (s.rounding != Rounding::nearest && program_.arithmetic == Scalar::f64) {
      throw ConfigError(
          "{}: state={} with a rounding: expected an arithmetic in f32. Fix: a policy other than 64-true",
          node.scope, name(s.interior));
    }
  }

  Step step_for(const Node& node) {
    const precision::Resolved r = uses_.resolve(node);
    Step s;
    s.op = node.op;
    s.scope = node.scope;
    s.phase = node.phase;
    s.rounded = makes_logits(node) ? uses_.logits_rounding(r) : program_.arithmetic;
    s.compute = factor_of(r);
    s.accumulator = r.accumulator;
    s.interior = node.op->interior.empty() ? program_.arithmetic : uses_.interior_of(node, node.op->interior);
    if (node.op->kind == graph::OpKind::recurrence && !holds(s.interior, program_.arithmetic))
      round_states(node, s);
    s.factors = factors_name(node, r);
    s.decided_by = uses_.decided_by(node);
    s.attributes = node.attributes;
    return s;
  }

  void emit_cast(const Node& node, BufferId from, BufferId to) {
    Step s = step_for(node);
    const Buffer& made = program_.buffer(to);
    // Keys and values round to nearest, like those in a cache.
    const bool cached = made.value != graph::kNone && graph_.value(made.value).role == Role::kv;
    if (!cached)
      s.rounding = program_.policy.activation_rounding({node.scope, node.op->op, pass_of(node.phase), 0});
    if (s.rounding == Rounding::stochastic) s.random_name = hash_name(name_of(made));
    if (s.rounding != Rounding::nearest) s.decided_by = uses_.decided_by(node, {"rounding"});
    const bool plain = !s.compute.saturate && !s.compute.flush_subnormals && s.rounding == Rounding::nearest;
    s.op = &graph::find_op(plain ? "cast" : "round");
    s.attributes = {};
    s.rounded = program_.arithmetic;
    s.inputs = {{from, program_.buffer(from).type}};
    s.outputs = {to};
    if (plain) s.expression = copy_expression();
    program_.steps.push_back(std::move(s));
  }

  /// Returns a unique name for the contents of `b`, which keys its random numbers.
  std::string name_of(const Buffer& b) const {
    if (b.value == graph::kNone || graph_.value(b.value).of == graph::kNone) return b.name;
    return fmt::format("gradient of {}", graph_.value(graph_.value(b.value).of).name);
  }

  /// Emits gradient += contribution, rounded to the gradient's format once per micro-batch.
  void emit_sum(const Node& node, BufferId contribution, BufferId gradient) {
    Step s = step_for(node);
    s.op = &graph::find_op("accumulate");
    s.attributes = {};
    s.inputs = {{gradient, program_.buffer(gradient).type}, {contribution, program_.arithmetic}};
    s.outputs = {gradient};
    program_.steps.push_back(std::move(s));
  }

  static kernels::Expression copy_expression() {
    kernels::ExpressionBuilder b;
    b.store(b.load(0), 0);
    return b.build();
  }

  /// Returns a copy of `b` with scales. The weight set writes copies of weights. For an activation, a step
  /// before its first reader writes the copy.
  Operand as_scaled(const Node& node, BufferId b, ScaledStorage q, const precision::Resolved& r,
                    Scalar element) {
    const Buffer from = program_.buffer(b);
    q.scale = scale_of(program_, from, q, r, element);
    for (const BufferId c : scaled_[b]) {
      if (program_.buffer(c).scaled == q && program_.buffer(c).type == element) return {c, element};
    }
    const bool weight = from.home == Home::master;
    const BufferId to =
        add_buffer(fmt::format("{}:{}{}", from.name, q.blocks ? traits(*q.blocks).name : name(element),
                               q.along_rows ? ".rows" : ""),
                   from.shape, element, weight ? Home::copy : Home::activation, graph::kNone);
    program_.buffer(to).scaled = q;
    scaled_[b].push_back(to);
    if (weight) {
      program_.buffer(to).slot = from.slot;
      program_.slots[static_cast<std::size_t>(from.slot)].copies.push_back(to);
      return {to, element};
    }
    Step s = step_for(node);
    s.op = &graph::find_op("quantize");
    s.rounded = program_.arithmetic;
    s.attributes = {{"blocks", q.blocks ? static_cast<std::int64_t>(*q.blocks) : -1},
                    {"along_rows", q.along_rows},
                    {"current", r.scaling == precision::Scaling::current},
                    {"margin", static_cast<std::int64_t>(r.scale_margin)}};
    s.inputs = {{b, from.type}};
    s.outputs = {to};
    program_.steps.push_back(std::move(s));
    return {to, element};
  }

  /// Returns input i of `node`. Emits a cast if the op multiplies the input in a format that cannot represent
  /// its values.
  Operand operand(const Node& node, std::size_t i) {
    BufferId b = buffer(node.inputs[i]);
    const Read read = read_of(node, i);
    const Buffer& from = program_.buffer(b);
    if (from.integer) return {b, from.type};
    if (read == Read::value) return reads_copy(node, from) ? as_value(node, b) : Operand{b, from.type};
    const precision::Resolved r =
        uses_.resolve(node, i < node.op->operands.size() ? node.op->operands[i] : std::string_view());
    Operand o = as_factor(node, i, r, b);
    o.factors = factors_name(node, r);
    return o;
  }

  /// Returns true if `node`, which does not multiply `from`, reads a copy of it: if the residual stream
  /// cannot represent the weight. A module that was cast as a whole has 16-bit embedding rows, gains and
  /// biases.
  bool reads_copy(const Node& node, const Buffer& from) {
    if (node.op->kind == graph::OpKind::recurrence) return false;  // its initial state
    return from.home == Home::master &&
           !holds(uses_.resolve_tensor(node, graph_.value(from.value)).residual, from.type);
  }
  Operand as_value(const Node& node, BufferId b) {
    const Scalar format = uses_.resolve_tensor(node, graph_.value(program_.buffer(b).value)).residual;
    return {copy_of(b, format), format};
  }

  /// Returns the factor of a product in `b`, which is input i of `node`.
  Operand as_factor(const Node& node, std::size_t i, const precision::Resolved& r, BufferId b) {
    const Buffer& from = program_.buffer(b);
    Scalar element = from.type;
    if (const std::optional<ScaledStorage> q = scaled_storage_of(node, i, r, element))
      return as_scaled(node, b, *q, r, element);
    const Factor factor = factor_of(r);
    const Scalar compute = factor.format;
    if (factor.parts > 1) return {b, factor};
    if (holds(compute, from.type) && !factor.flush_subnormals) return {b, from.type};
    if (from.home == Home::master) {
      // Packing rounds tf32, whose copy would save no memory, and factors that saturate or flush, since
      // copies only round to nearest.
      if (compute == Scalar::tf32 || !factor.plain()) return {b, factor};
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
    for (std::size_t i = 0; i < node.inputs.size(); ++i) s.inputs.push_back(operand(node, i));
    for (Operand& o : s.inputs) {
      if (program_.buffer(o.buffer).home == Home::constant) o.buffer = lowered_constant(o.buffer, s.interior);
    }
    if (node.op->kind == graph::OpKind::product && makes_logits(node))
      program_.softmax = uses_.interior_of(node, "softmax");
    check_parts(s);
    set_sum_order(program_, {node.scope, node.op->op, pass_of(node.phase)},
                  uses_.resolve(node).accumulate_order, s);
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
      const BufferId b = add_buffer(value.name, value.shape, format, home, id);
      program_.buffer(b).integer = value.role == Role::integer;
      buffer_of_[static_cast<std::size_t>(id)] = b;
      program_.buffer(b).field = uses_.field_of(value);
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

  /// Appends the step. A pointwise sum of more than two terms becomes a chain of sums of two, each in f32.
  void emit(const Node& node, Step s) {
    if (node.op->expression == nullptr) {
      program_.steps.push_back(std::move(s));
      return;
    }
    const graph::NodeView view{graph_, node.inputs, node.attributes};
    const bool chain = node.op->duty == graph::Duty::sum && s.inputs.size() > 2;
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

  /// Records the first accumulator of a parameter, which the optimizer reads. The finish phase adds those of
  /// later uses to it.
  void note_gradient(const Value& value, BufferId b) {
    Slot& slot = program_.slots[static_cast<std::size_t>(program_.buffer(buffer(value.of)).slot)];
    if (value.use == 0) slot.gradient = b;
  }

  const Graph& graph_;
  PolicyUses uses_;
  Program program_;
  std::vector<BufferId> buffer_of_;
  std::map<std::pair<BufferId, Scalar>, std::pair<BufferId, Phase>> casts_;
  std::map<std::pair<BufferId, Scalar>, BufferId> lowered_;  // constants
  std::map<BufferId, std::vector<BufferId>> scaled_;         // copies of a buffer with scales
};

}  // namespace

Program assign_formats(const Graph& graph, const precision::Policy& policy) {
  return Lowering(graph, policy).run();
}

}  // namespace mantissa::plan
