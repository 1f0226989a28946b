#include "mantissa/engine/optim/parameter_update.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/weight_states.h"

namespace mantissa::optim {

using graph::OutputSpec;
using graph::Role;
using graph::ValueKind;

ParameterUpdate::ParameterUpdate(UpdateGraph& out, const Optimizer& optimizer, const Settings& settings,
                                 const Parameter& parameter)
    : out_(out), settings_(settings), parameter_(parameter), label_(optimizer.name) {
  weight_ = out_.graph.add_value({.name = parameter.name,
                                  .kind = ValueKind::parameter,
                                  .role = Role::parameter,
                                  .shape = parameter.shape});
  gradient_ = out_.graph.add_value({.name = "gradient." + parameter.name,
                                    .kind = ValueKind::input,
                                    .role = Role::weight_gradient,
                                    .shape = parameter.shape,
                                    .of = weight_});
}

std::optional<graph::ValueId> ParameterUpdate::compensation() {
  if (parameter_.compensated && !compensation_) {
    compensation_ = out_.graph.add_value({.name = "compensation." + parameter_.name,
                                          .kind = ValueKind::optimizer_state,
                                          .role = Role::like,
                                          .shape = parameter_.shape,
                                          .of = weight_,
                                          .random = RandomUse::compensation});
  }
  return compensation_;
}

graph::ValueId ParameterUpdate::add_state(std::string_view kind, Shape shape, bool never_negative) {
  static constexpr RandomUse kStreams[] = {RandomUse::first_moment, RandomUse::second_moment,
                                           RandomUse::third_moment, RandomUse::fourth_moment,
                                           RandomUse::fifth_moment, RandomUse::sixth_moment};
  if (states_ == std::size(kStreams)) {
    throw InternalError("{} has more states per parameter than there are random streams", label_);
  }
  return add_state(kind, std::move(shape), kStreams[states_++], never_negative);
}

graph::ValueId ParameterUpdate::weight_state(std::string_view kind) {
  return add_state(kind, shape(), RandomUse::weight_state, false);
}

graph::ValueId ParameterUpdate::average() {
  const std::string_view kind = graph::kAveragePrefix.substr(0, graph::kAveragePrefix.size() - 1);
  return add_state(kind, shape(), RandomUse::average, false);
}

void ParameterUpdate::average_weights() {
  const auto found = settings_.find(kEmaDecay);
  const double decay = found == settings_.end() ? 0 : std::get<double>(found->second);
  if (decay == 0) return;
  const ValueId state = average();
  Sweep s(*this);
  const auto w = s.weight();
  s.write(state, s.lerp(s.read(state), w,
                        s.read(number("1-ema_decay", [decay](const Progress&) { return 1 - decay; }))));
  s.done();
}

graph::ValueId ParameterUpdate::add_state(std::string_view kind, Shape shape, RandomUse stream,
                                          bool never_negative) {
  return out_.graph.add_value({.name = fmt::format("{}.{}", kind, parameter_.name),
                               .kind = ValueKind::optimizer_state,
                               .role = Role::moment,
                               .shape = std::move(shape),
                               .of = weight_,
                               .random = stream,
                               .never_negative = never_negative});
}

graph::ValueId ParameterUpdate::number(std::string_view name, std::function<double(const Progress&)> of,
                                       std::optional<double> undecayed) {
  std::string full = fmt::format("{}.{}", label_, name);
  if (parameter_.lr_scale != 1) full += fmt::format(" lr_scale={}", parameter_.lr_scale);
  if (parameter_.weight_decay != 0) full += fmt::format(" weight_decay={}", parameter_.weight_decay);
  if (const ValueId known = out_.graph.find(full); known != graph::kNone) return known;
  const ValueId value =
      out_.graph.add_value({.name = full, .kind = ValueKind::input, .role = Role::number, .shape = {}});
  out_.numbers.push_back({std::move(full), std::move(of), undecayed});
  return value;
}

graph::ValueId ParameterUpdate::gradient_factor() {
  return number("gradient_factor", [](const Progress& now) { return now.gradient_factor; });
}

graph::ValueId ParameterUpdate::lr() {
  return number("lr", [scale = parameter_.lr_scale](const Progress& now) { return now.lr * scale; });
}

graph::ValueId ParameterUpdate::decay() {
  const double decay = parameter_.weight_decay, scale = parameter_.lr_scale;
  if (parameter_.compensated)
    return number(
        "decay", [=](const Progress& now) { return now.lr * scale * decay; }, 0.0);
  return number(
      "keep", [=](const Progress& now) { return 1 - now.lr * scale * decay; }, 1.0);
}

OutputSpec ParameterUpdate::in_place(ValueId value) const {
  const graph::Value& v = out_.graph.value(value);
  return {.shape = v.shape, .role = Role::like, .of = value, .kind = v.kind, .alias = value};
}

std::vector<graph::ValueId> ParameterUpdate::add_pass(kernels::Expression program,
                                                      std::vector<ValueId> inputs,
                                                      const std::vector<OutputSpec>& outputs) {
  return add("update", std::move(program), std::move(inputs), {}, outputs);
}

graph::ValueId ParameterUpdate::add_reduction(kernels::Expression program, std::vector<ValueId> inputs,
                                              kernels::Over over, bool squares, bool mean, bool root) {
  return add("update.reduce", std::move(program), std::move(inputs),
             {{"over", static_cast<std::int64_t>(over)},
              {"squares", squares},
              {"mean", mean},
              {"root", root}},
             {})
      .front();
}

graph::ValueId ParameterUpdate::product(ValueId a, ValueId b, bool transpose_a, bool transpose_b) {
  return add("matmul.product", {}, {a, b}, {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}}, {})
      .front();
}

std::vector<graph::ValueId> ParameterUpdate::add(std::string_view op, kernels::Expression program,
                                                 std::vector<ValueId> inputs, graph::Attributes attributes,
                                                 std::vector<OutputSpec> outputs) {
  graph::Node node;
  node.op = &graph::find_op(op);
  node.scope = parameter_.name;
  node.phase = graph::Phase::update;
  node.inputs = std::move(inputs);
  node.attributes = std::move(attributes);
  node.expression = std::move(program);
  node.label = label_;
  if (node.op->infer != nullptr) outputs = node.op->infer({out_.graph, node.inputs, node.attributes});
  return out_.graph.node(out_.graph.add_node(std::move(node), outputs)).outputs;
}

Sweep::Reg Sweep::read(ValueId value) {
  const auto known = std::ranges::find(inputs_, value);
  const auto index = static_cast<std::size_t>(known - inputs_.begin());
  if (known == inputs_.end()) inputs_.push_back(value);
  return load(index);
}

void Sweep::write(ValueId value, Reg result) {
  store(result, outputs_.size());
  outputs_.push_back(p_.in_place(value));
}

Sweep::Reg Sweep::gradient() {
  const Reg scaled = read(p_.gradient());  // read first, because it has all elements of the parameter
  return mul(scaled, read(p_.gradient_factor()));
}

void Sweep::make(Reg value, Shape shape, std::string_view name) {
  store(value, outputs_.size());
  outputs_.push_back({.shape = std::move(shape), .role = Role::arithmetic, .name = name});
}

void Sweep::move_weight(Reg step) {
  const Reg decayed = mul(weight(), read(p_.decay()));
  if (!p_.compensation()) return write(p_.weight(), sub(decayed, step));
  move_compensated(add(decayed, step));
}

void Sweep::move_weight_undecayed(Reg step) {
  if (!p_.compensation()) return write(p_.weight(), sub(weight(), step));
  move_compensated(step);
}

void Sweep::move_compensated(Reg step) {
  const Reg change = sub(read(*p_.compensation()), step), w = weight();
  const Reg moved = move(w, change, outputs_.size());
  outputs_.push_back(p_.in_place(p_.weight()));
  write(*p_.compensation(), lost(moved, w, change));
}

void Sweep::end_by_moving(Reg step) {
  const std::size_t outputs = p_.parameter().compensated ? 2 : 1;
  if (outputs_.size() + outputs <= kernels::kMaxOutputs) {
    move_weight(step);
    done();
    return;
  }
  make(step, p_.shape(), "step");
  const ValueId made = done().front();
  Sweep last(p_);
  last.move_weight(last.read(made));
  last.done();
}

std::vector<graph::ValueId> Sweep::done() {
  const std::vector<ValueId> outputs = p_.add_pass(build(), inputs_, outputs_);
  std::vector<ValueId> made;
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    if (outputs_[o].alias == graph::kNone) made.push_back(outputs[o]);
  }
  return made;
}

graph::ValueId Sweep::reduced(Reg term, kernels::Over over, bool squares, bool mean, bool root) {
  store(term, 0);
  for (const ValueId input : inputs_) {
    if (p_.value(input).shape.count() > p_.value(inputs_.front()).shape.count())
      throw InternalError("{}: a reduction must read an operand of all its terms first",
                          p_.value(input).name);
  }
  return p_.add_reduction(build(), inputs_, over, squares, mean, root);
}

}  // namespace mantissa::optim
