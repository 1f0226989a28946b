#include "mantissa/engine/plan/rounding_points.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "mantissa/engine/plan/explain.h"
#include "mantissa/kernels/expression.h"
#include "mantissa/precision/policy/accumulate.h"

namespace mantissa::plan {
namespace {

/// True if values of `format` can be rounded by a change to `to`.
bool loses(Scalar format, const Factor& to) {
  return to.parts > 1 ? !holds(to.format, format) : !holds(to.format, format) || to.flush_subnormals;
}

std::optional<BlockFormat> blocks_of(const Buffer& b) {
  return b.scaled ? b.scaled->blocks : std::nullopt;
}

/// Returns the master of a copy of a weight that rounding may have changed; null for other buffers.
const Buffer* master_of(const Program& p, const Buffer& b) {
  if (b.home != Home::copy) return nullptr;
  const Buffer& master = p.buffer(p.slots.at(static_cast<std::size_t>(b.slot)).master_buffer);
  const bool exact = !blocks_of(b) && b.served.format == WeightFormat::none && holds(b.type, master.type);
  return exact ? nullptr : &master;
}

std::string last_part(const std::string& name) {
  return name.substr(name.rfind('.') + 1);  // npos + 1 is 0
}

class Finder {
 public:
  explicit Finder(const Program& program) : p_(program), seen_weights_(program.buffers.size()) {}

  std::vector<RoundingPoint> run() {
    // In training, the phase `evaluate` computes held-out rows only, with the roundings of `forward`.
    const bool trains = std::ranges::find(p_.steps, graph::Phase::backward, &Step::phase) != p_.steps.end();
    for (const Step& step : p_.steps) {
      if (trains && step.phase == graph::Phase::evaluate) continue;
      add_operands(step);
      add_inside(step);
      for (std::size_t o = 0; o < step.outputs.size(); ++o) add_result(step, o);
    }
    add_reduce();
    return std::move(points_);
  }

 private:
  void add(RoundingPoint point) { points_.push_back(std::move(point)); }

  void add_operands(const Step& step) {
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      const Operand& operand = step.inputs[i];
      const Buffer& b = p_.buffer(operand.buffer);
      if (b.integer) continue;
      add_weight(step, i, b, operand);
      if (!is_rounded_factor(step, operand, b, i)) continue;
      // The products of a module's backward pass both read its gradient.
      const auto same = [&](const RoundingPoint& point) {
        return point.kind == RoundingKind::factor && point.format == operand.operand &&
               point.step->scope == step.scope && point.step->inputs[point.index].buffer == operand.buffer;
      };
      if (std::ranges::any_of(points_, same)) continue;
      const auto& names = step.op->operands;
      add({.kind = RoundingKind::factor,
           .step = &step,
           .index = i,
           .format = operand.operand,
           .name = i < names.size() ? std::string(names[i]) : "operand"});
    }
  }

  void add_weight(const Step& step, std::size_t i, const Buffer& b, const Operand& operand) {
    const auto id = static_cast<std::size_t>(operand.buffer);
    const bool quants = b.quants.has_value();
    if (seen_weights_[id] || (master_of(p_, b) == nullptr && !quants)) return;
    seen_weights_[id] = true;
    add({.kind = RoundingKind::weight,
         .step = &step,
         .index = i,
         .format = b.type,
         .blocks = blocks_of(b),
         .served = b.served.format,
         .name = last_part(p_.slots.at(static_cast<std::size_t>(b.slot)).name),
         .unobserved = quants ? "a note of the run reports it when the weights are read" : ""});
  }

  /// True if a product rounds this input, without a scale, to a format with fewer values.
  static bool is_rounded_factor(const Step& step, const Operand& operand, const Buffer& b, std::size_t i) {
    const bool factor = step.op->reads[std::min(i, step.op->reads.size() - 1)] == graph::Read::matmul;
    return factor && !b.scaled && !b.quants && loses(b.type, operand.operand);
  }

  void add_inside(const Step& step) {
    const graph::OpDef& op = *step.op;
    if (!op.made_factors.empty() && loses(p_.arithmetic, step.compute))
      add({.kind = RoundingKind::made,
           .step = &step,
           .format = step.compute,
           .name = std::string(op.made_factors)});
    if (rounds_sums(step) || has_card(step))
      add({.kind = RoundingKind::accumulator,
           .step = &step,
           .format = step.accumulator.format,
           .name = "partial sums"});
    if (op.kind == graph::OpKind::head && !holds(step.rounded, p_.arithmetic))
      add({.kind = RoundingKind::logits, .step = &step, .format = step.rounded, .name = "logits"});
    const bool passes = op.kind == graph::OpKind::pointwise || op.interior == "update";
    if (!holds(step.normalized, p_.arithmetic))
      add({.kind = RoundingKind::normalized, .step = &step, .format = step.normalized, .name = "normalized"});
    if (!holds(step.interior, p_.arithmetic)) {
      add({.kind = RoundingKind::interior,
           .step = &step,
           .format = step.interior,
           .name = std::string(op.interior.empty() ? std::string_view("update") : op.interior)});
    } else if (passes && kernels::rounds_inside(step.expression)) {
      add({.kind = RoundingKind::inside,
           .step = &step,
           .format = kernels::least_rounding(step.expression),
           .name = "fused"});
    }
  }

  void add_result(const Step& step, std::size_t o) {
    const Buffer& b = p_.buffer(step.outputs[o]);
    if (b.integer) return;
    const std::string name = result_name(p_, step, o);
    const bool narrow = !holds(b.type, p_.arithmetic) || b.scaled || b.codes != StateCodes::none;
    if (step.addend != kNoBuffer && !holds(step.rounded, p_.arithmetic)) {
      add({.kind = RoundingKind::term, .step = &step, .index = o, .format = step.rounded});
      if (narrow)
        add({.kind = RoundingKind::sum, .step = &step, .index = o, .format = b.type, .name = "sum"});
      return;
    }
    // The head rounds its logits to step.rounded, not its results.
    const bool head = step.op->kind == graph::OpKind::head;
    const Scalar rounded = head || holds(step.rounded, b.type) ? b.type : step.rounded;
    if (!narrow && holds(rounded, p_.arithmetic)) return;
    // The update writes the copies of a weight, which count as weights.
    if (step.phase == graph::Phase::update && b.home == Home::copy) return;
    add({.kind = RoundingKind::result,
         .step = &step,
         .index = o,
         .format = rounded,
         .blocks = blocks_of(b),
         .codes = b.codes,
         .name = name,
         .unobserved =
             b.random == RandomUse::compensation ? "it holds what the rounding of its weight lost" : ""});
  }

  void add_reduce() {
    if (p_.shards <= 1 || holds(p_.reduce, p_.arithmetic)) return;
    for (std::size_t s = 0; s < p_.slots.size(); ++s) {
      if (p_.slots[s].gradient == kNoBuffer) continue;
      add({.kind = RoundingKind::reduce,
           .slot = static_cast<std::int32_t>(s),
           .format = p_.reduce,
           .name = "gradient"});
    }
  }

  const Program& p_;
  std::vector<bool> seen_weights_;
  std::vector<RoundingPoint> points_;
};

}  // namespace

std::string_view name(RoundingKind kind) {
  static constexpr std::array<std::string_view, 12> kNames = {
      "weight",       "operand", "term",         "sum",        "result", "own factor",
      "partial sums", "logits",  "intermediate", "normalized", "fused",  "reduce"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string RoundingPoint::scope(const Program& program) const {
  return step != nullptr ? step->scope : program.slots.at(static_cast<std::size_t>(slot)).name;
}

std::string_view RoundingPoint::op() const {
  return step != nullptr ? step->op->op : std::string_view("reduce");
}

std::string_view RoundingPoint::pass() const {
  return precision::name(step != nullptr ? pass_of(step->phase) : precision::Pass::backward);
}

std::string RoundingPoint::decided_by(const Program& program) const {
  if (served != WeightFormat::none && holds(format.format, program.arithmetic) && !blocks) {
    constexpr std::array<std::string_view, 1> kWeights = {"weights"};
    const Buffer& b = program.buffer(step->inputs[index].buffer);
    const std::string& weight = program.slots.at(static_cast<std::size_t>(b.slot)).name;
    return program.policy.decided_by(precision::master_use(weight), kWeights);
  }
  if (kind == RoundingKind::normalized) {
    constexpr std::array<std::string_view, 1> kNormCast = {"norm_cast"};
    return program.policy.decided_by({step->scope, step->op->op, pass_of(step->phase), 0}, kNormCast);
  }
  if (step != nullptr && kind != RoundingKind::interior) return step->decided_by;
  constexpr std::array<std::string_view, 1> kReduce = {"reduce"}, kCompute = {"compute"};
  if (step == nullptr) return program.policy.decided_by({"", "", precision::Pass::backward, 0}, kReduce);
  if (step->op->interior.empty())
    return program.policy.decided_by(interior_use(step->scope, name, step->phase), kCompute);
  return interior_decided_by(program, *step);
}

std::string RoundingPoint::format_name() const {
  if (served != WeightFormat::none) {
    const std::string first(mantissa::name(served));
    if (blocks) return fmt::format("{}>{}", first, traits(*blocks).name);
    return holds(format.format, Scalar::f32) ? first
                                             : fmt::format("{}>{}", first, mantissa::name(format.format));
  }
  if (blocks) return std::string(traits(*blocks).name);
  if (codes != StateCodes::none) return std::string(mantissa::name(codes));
  if (kind == RoundingKind::accumulator) return precision::accumulator_text(step->accumulator);
  const std::string plain(mantissa::name(format.format));
  return format.parts == 1 ? plain : plain + "x" + std::to_string(format.parts * (format.parts + 1) / 2);
}

std::vector<RoundingPoint> rounding_points(const Program& program) {
  return Finder(program).run();
}

std::vector<RoundingRow> rounding_rows(const Program& program) {
  std::vector<RoundingRow> rows;
  for (const Program* part : {&program, program.update.get()}) {
    if (part == nullptr) continue;
    for (const RoundingPoint& p : rounding_points(*part)) {
      rows.push_back({p.scope(*part), std::string(p.op()), std::string(p.pass()), std::string(name(p.kind)),
                      p.name, p.format_name(), p.decided_by(*part), std::string(p.unobserved)});
    }
  }
  return rows;
}

std::string rounding_text(const std::vector<RoundingRow>& rows) {
  std::vector<std::pair<std::string, std::size_t>> kinds;
  for (const RoundingRow& row : rows) {
    const auto kind = std::ranges::find(kinds, row.kind, &std::pair<std::string, std::size_t>::first);
    kind == kinds.end() ? static_cast<void>(kinds.emplace_back(row.kind, 1))
                        : static_cast<void>(++kind->second);
  }
  std::string text = fmt::format("at {} points", rows.size());
  for (std::size_t k = 0; k < kinds.size(); ++k)
    text += fmt::format("{}{} {}", k == 0 ? ": " : ", ", kinds[k].first, kinds[k].second);
  const auto unobserved =
      std::ranges::count_if(rows, [](const RoundingRow& row) { return !row.unobserved.empty(); });
  if (unobserved > 0) text += fmt::format("; audit does not observe {} of them", unobserved);
  return text;
}

std::string result_name(const Program& program, const Step& step, std::size_t output) {
  if (output < step.labels.size()) return step.labels[output];
  return step.outputs.size() == 1 ? "" : last_part(program.buffer(step.outputs[output]).name);
}

}  // namespace mantissa::plan
