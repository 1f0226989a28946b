#include "mantissa/engine/plan/step_builder.h"

#include <fmt/format.h>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/numeric/philox.h"
#include "mantissa/kernels/expression.h"

namespace mantissa::plan {

using graph::Node;
using graph::Role;

namespace {

kernels::Expression copy_expression() {
  kernels::ExpressionBuilder b;
  b.store(b.load(0), 0);
  return b.build();
}

}  // namespace

BufferId StepBuilder::add_buffer(std::string name, const Shape& shape, Scalar type, Home home,
                                 graph::ValueId value) {
  Buffer b;
  b.name = std::move(name);
  b.shape = shape;
  b.type = type;
  b.home = home;
  b.value = value;
  program_.buffers.push_back(std::move(b));
  return static_cast<BufferId>(program_.buffers.size() - 1);
}

Step StepBuilder::step_for(const Node& node) {
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

/// Sets the rounding of a recurrence's states.
void StepBuilder::round_states(const Node& node, Step& s) const {
  s.rounding = program_.policy.resolve(state_use(node.scope)).rounding;
  s.random_name = hash_name(node.scope + ".state");
  if (s.rounding != Rounding::nearest && program_.arithmetic == Scalar::f64) {
    throw ConfigError(
        "{}: state={} with a rounding: expected an arithmetic in f32. Fix: a policy other than 64-true",
        node.scope, name(s.interior));
  }
}

void StepBuilder::add_cast(const Node& node, BufferId from, BufferId to) {
  Step s = step_for(node);
  const Buffer& made = program_.buffer(to);
  // Keys and values round to nearest, like those in a cache.
  const bool cached = made.value != graph::kNone && graph_.value(made.value).role == Role::kv;
  if (!cached) s.rounding = program_.policy.activation_rounding(use_of(node));
  if (s.rounding == Rounding::stochastic) s.random_name = random_name(made);
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

std::uint64_t StepBuilder::random_name(const Buffer& b) const {
  return hash_name(name_of(b));
}

/// Returns a unique name for the contents of `b`, which keys its random numbers.
std::string StepBuilder::name_of(const Buffer& b) const {
  if (b.value == graph::kNone || graph_.value(b.value).of == graph::kNone) return b.name;
  return fmt::format("gradient of {}", graph_.value(graph_.value(b.value).of).name);
}

}  // namespace mantissa::plan
