#include "mantissa/engine/plan/input_copies.h"

#include <fmt/format.h>

#include <optional>

#include "mantissa/engine/plan/operand_scales.h"

namespace mantissa::plan {

using graph::Node;
using graph::Read;

Operand InputCopies::input(const Node& node, std::size_t i, BufferId b) {
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

BufferId InputCopies::constant(BufferId b, Scalar interior) {
  if (interior == program_.arithmetic) return b;
  const auto key = std::make_pair(b, interior);
  if (const auto it = constants_.find(key); it != constants_.end()) return it->second;
  const Buffer from = program_.buffer(b);
  const BufferId to = steps_.add_buffer(fmt::format("{}:{}", from.name, name(interior)), from.shape,
                                        from.type, Home::constant);
  program_.constants.push_back({to, graph_.value(from.value).fill, interior});
  return constants_[key] = to;
}

kernels::WeightRounding InputCopies::served(const Buffer& from) const {
  return from.home == Home::master ? served_[static_cast<std::size_t>(from.value)]
                                   : kernels::WeightRounding{};
}

Scalar InputCopies::held_in(const Buffer& from) const {
  return served(from).format == WeightFormat::none ? from.type : program_.arithmetic;
}

/// Returns true if `node`, which does not multiply `from`, reads a copy of it: if the weight is rounded
/// before any use, or the residual stream cannot represent it. A module that was cast as a whole has 16-bit
/// embedding rows, gains and biases.
bool InputCopies::reads_copy(const Node& node, const Buffer& from) {
  if (node.op->kind == graph::OpKind::recurrence) return false;  // its initial state
  return from.home == Home::master &&
         (served(from).format != WeightFormat::none ||
          !holds(uses_.resolve_tensor(node, graph_.value(from.value)).residual, from.type));
}

Operand InputCopies::as_value(const Node& node, BufferId b) {
  const Scalar format = uses_.resolve_tensor(node, graph_.value(program_.buffer(b).value)).residual;
  return {weight_in(format, b), format};
}

/// Returns the factor of a product in `b`, which is input i of `node`.
Operand InputCopies::as_factor(const Node& node, std::size_t i, const precision::Resolved& r, BufferId b) {
  const Buffer& from = program_.buffer(b);
  Scalar element = from.type;
  if (std::optional<ScaledStorage> q = scaled_storage_of(node, i, from.home == Home::master, r, element)) {
    q->hadamard = transforms_factors(node, uses_);
    return as_scaled(node, b, *q, r, element);
  }
  const Factor factor = factor_of(r);
  const Scalar compute = factor.format;
  if (served(from).format != WeightFormat::none) {
    const Scalar held = held_in(from);
    const bool plain = factor.parts == 1 && factor.plain();
    if (plain && compute != Scalar::tf32 && !holds(compute, held)) return {weight_in(compute, b), compute};
    const BufferId wide = weight_in(held, b);
    return {wide, plain && holds(compute, held) ? Factor(held) : factor};
  }
  if (factor.parts > 1) return {b, factor};
  if (holds(compute, from.type) && !factor.flush_subnormals) return {b, from.type};
  if (from.home == Home::master) {
    // Packing rounds tf32, whose copy would save no memory, and factors that saturate or flush, since copies
    // only round to nearest.
    if (compute == Scalar::tf32 || !factor.plain()) return {b, factor};
    return {weight_in(compute, b), compute};
  }
  const auto key = std::make_pair(b, compute);
  if (const auto it = casts_.find(key); it != casts_.end() && it->second.second == node.phase)
    return {it->second.first, compute};
  const BufferId to = steps_.add_buffer(fmt::format("{}:{}", from.name, name(compute)), from.shape, compute,
                                        Home::activation);
  steps_.add_cast(node, b, to);
  casts_[key] = {to, node.phase};
  return {to, compute};
}

/// Returns a copy of `b` with scales. The weight set writes copies of weights. For an activation, a step
/// before its first reader writes the copy.
Operand InputCopies::as_scaled(const Node& node, BufferId b, ScaledStorage q, const precision::Resolved& r,
                               Scalar element) {
  const Buffer from = program_.buffer(b);
  q.scale = scale_of(program_, from, q, r, element);
  for (const BufferId c : scaled_[b]) {
    if (program_.buffer(c).scaled == q && program_.buffer(c).type == element) return {c, element};
  }
  const bool weight = from.home == Home::master;
  const BufferId to =
      steps_.add_buffer(fmt::format("{}:{}{}", from.name, q.blocks ? traits(*q.blocks).name : name(element),
                                    q.along_rows ? ".rows" : ""),
                        from.shape, element, weight ? Home::copy : Home::activation);
  program_.buffer(to).scaled = q;
  program_.buffer(to).served = served(from);
  scaled_[b].push_back(to);
  if (weight) {
    program_.buffer(to).slot = from.slot;
    program_.slots[static_cast<std::size_t>(from.slot)].copies.push_back(to);
    return {to, element};
  }
  Step s = steps_.step_for(node);
  s.op = &graph::find_op("quantize");
  s.rounded = program_.arithmetic;
  s.rounding = q.stochastic ? Rounding::stochastic : Rounding::nearest;
  if (q.stochastic) s.random_name = steps_.random_name(program_.buffer(to));
  s.attributes = {{"blocks", q.blocks ? static_cast<std::int64_t>(*q.blocks) : -1},
                  {"along_rows", q.along_rows},
                  {"scale_rounding", static_cast<std::int64_t>(q.scaling.rounding)},
                  {"length", static_cast<std::int64_t>(q.scaling.length)},
                  {"hadamard", q.hadamard},
                  {"current", r.scaling == precision::Scaling::current},
                  {"margin", static_cast<std::int64_t>(r.scale_margin)}};
  s.inputs = {{b, from.type}};
  s.outputs = {to};
  program_.steps.push_back(std::move(s));
  return {to, element};
}

/// Returns the copy of a weight in `type`, after the rounding before any use if it has one.
BufferId InputCopies::weight_in(Scalar type, BufferId master) {
  Slot& slot = program_.slots[static_cast<std::size_t>(program_.buffer(master).slot)];
  for (const BufferId c : slot.copies) {
    if (program_.buffer(c).type == type && !program_.buffer(c).scaled) return c;
  }
  const Buffer m = program_.buffer(master);
  const kernels::WeightRounding how = served(m);
  const std::string first = how.format == WeightFormat::none ? "" : fmt::format(":{}", name(how.format));
  const BufferId c =
      steps_.add_buffer(fmt::format("{}{}:{}", m.name, first, name(type)), m.shape, type, Home::copy);
  program_.buffer(c).slot = m.slot;
  program_.buffer(c).served = how;
  slot.copies.push_back(c);
  return c;
}

}  // namespace mantissa::plan
