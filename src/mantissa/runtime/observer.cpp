#include "mantissa/runtime/observer.h"

#include <algorithm>
#include <cmath>

#include "mantissa/runtime/count_parts.h"

namespace mantissa::runtime {
namespace {

/// True if rounding changes no value of `arithmetic`.
bool is_exact(const graph::Argument& out, Scalar arithmetic) {
  return holds(out.type, arithmetic) && holds(out.rounded, arithmetic);
}

/// True if a product rounds this input, without a scale, to a format with fewer values.
bool is_rounded_factor(const plan::Step& step, const plan::Operand& operand, const plan::Buffer& b,
                       std::size_t i) {
  const bool factor = step.op->reads[std::min(i, step.op->reads.size() - 1)] == graph::Read::matmul;
  return factor && !b.integer && !b.quantization && operand.operand.parts == 1 &&
         !holds(operand.operand.format, b.type);
}

/// Returns the master of a copy of a weight that rounding may have changed; null for other buffers.
const plan::Buffer* master_of(const plan::Program& program, const plan::Buffer& b) {
  if (b.home != plan::Home::copy) return nullptr;
  const plan::Slot& slot = program.slots.at(static_cast<std::size_t>(b.slot));
  const plan::Buffer& master = program.buffer(slot.master_buffer);
  return !b.layout().blocks && holds(b.type, master.type) ? nullptr : &master;
}

/// Returns the block format of a buffer, packed or not; null for other buffers.
std::optional<BlockFormat> blocks_of(const plan::Buffer& b) {
  return b.quantization ? b.quantization->blocks : std::nullopt;
}

/// True if the kernel rounds its result before it adds it to a sum.
bool rounds_term(const plan::Step& step, Scalar arithmetic) {
  return step.addend != plan::kNoBuffer && !holds(step.rounded, arithmetic);
}

std::string last_part(const std::string& name) {
  return name.substr(name.rfind('.') + 1);  // npos + 1 is 0
}

}  // namespace

std::string name_of(const plan::Program& program, const ObservedValue& v) {
  const plan::Step& step = *v.step;
  switch (v.kind) {
    case Observed::weight: {
      const std::int32_t slot = program.buffer(step.inputs[v.index].buffer).slot;
      return last_part(program.slots.at(static_cast<std::size_t>(slot)).name);
    }
    case Observed::factor: {
      const auto& operands = step.op->operands;
      return v.index < operands.size() ? std::string(operands[v.index]) : "operand";
    }
    case Observed::sum:
      return "sum";
    case Observed::term:
      return "";
    case Observed::result:
      break;
  }
  if (v.index < step.labels.size()) return step.labels[v.index];
  return step.outputs.size() == 1 ? "" : last_part(program.buffer(step.outputs[v.index]).name);
}

std::string_view format_name(const ObservedValue& v) {
  return v.blocks ? traits(*v.blocks).name : name(v.format);
}

precision::Pass pass_of(const ObservedValue& v) {
  const bool forward = !v.is_operand() && v.index + v.step->forward_results >= v.step->outputs.size();
  return forward ? precision::Pass::forward : plan::pass_of(v.step->phase);
}

std::vector<std::pair<std::string_view, double>> figures(const ObservedValue& value) {
  const ValueCounts& c = value.counts;
  const auto share = [](std::uint64_t part, std::uint64_t of) {
    return of == 0 ? 0 : static_cast<double>(part) / static_cast<double>(of);
  };
  std::vector<std::pair<std::string_view, double>> all = {{"absmax", c.absmax},
                                                          {"absmin", std::isfinite(c.absmin) ? c.absmin : 0},
                                                          {"mean", c.mean()},
                                                          {"rms", c.rms()},
                                                          {"zeros", share(c.zeros, c.count)},
                                                          {"subnormal", share(c.subnormal, c.count)},
                                                          {"saturated", share(c.saturated, c.count)},
                                                          {"inf", share(c.inf, c.count)},
                                                          {"nan", share(c.nan, c.count)}};
  if (c.compared > 0) {
    all.insert(all.end(), {{"flushed", share(c.flushed, c.count)},
                           {"overflowed", share(c.overflowed, c.count)},
                           {"error_rms", c.relative_error()},
                           {"error_mean", c.relative_bias()},
                           {"error_inward", c.relative_inward()}});
    if (!value.blocks) all.emplace_back("max_ulp", c.max_ulp);  // each block has places of its own
  }
  if (c.sums > 0) all.emplace_back("cancelled", share(c.cancelled, c.sums));
  if (value.interior > 0 && c.rms() > 0) {
    all.emplace_back("interior_error",
                     std::sqrt(value.interior_squares / static_cast<double>(value.interior)) / c.rms());
  }
  return all;
}

Observer::Observer(Executor& executor, const std::function<bool(const plan::Step&)>& wanted)
    : executor_(executor) {
  const plan::Program& program = executor.program();
  std::vector<bool> seen_weights(program.buffers.size());
  for (const plan::Step& step : program.steps) {
    first_.push_back(seen_.size());
    if (!wanted(step)) continue;
    add_operands(step, seen_weights);
    add_results(step);
  }
  first_.push_back(seen_.size());
  executor.attach(*this);
}

void Observer::add_operands(const plan::Step& step, std::vector<bool>& seen_weights) {
  const plan::Program& program = executor_.program();
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    const plan::Operand& operand = step.inputs[i];
    const plan::Buffer& b = program.buffer(operand.buffer);
    const auto id = static_cast<std::size_t>(operand.buffer);
    if (!seen_weights[id] && master_of(program, b) != nullptr) {
      seen_weights[id] = true;
      seen_.push_back({&step, Observed::weight, i, b.type, b.type, blocks_of(b)});
    }
    // The products of a module's backward pass both read its gradient.
    const auto same = [&](const ObservedValue& v) {
      return v.kind == Observed::factor && v.step->inputs[v.index].buffer == operand.buffer &&
             v.format == operand.operand.format && v.step->scope == step.scope;
    };
    if (is_rounded_factor(step, operand, b, i) && std::ranges::none_of(seen_, same))
      seen_.push_back({&step, Observed::factor, i, operand.operand.format, operand.operand.format});
  }
}

void Observer::add_results(const plan::Step& step) {
  const plan::Program& program = executor_.program();
  for (std::size_t o = 0; o < step.outputs.size(); ++o) {
    const plan::Buffer& b = program.buffer(step.outputs[o]);
    if (b.integer) continue;
    if (rounds_term(step, program.arithmetic)) {
      seen_.push_back({&step, Observed::term, o, step.rounded, step.rounded});
      if (!holds(b.type, program.arithmetic)) seen_.push_back({&step, Observed::sum, o, b.type, b.type});
    } else {
      seen_.push_back({&step, Observed::result, o, b.type,
                       holds(step.rounded, b.type) ? b.type : step.rounded, blocks_of(b)});
    }
  }
}

Observer::~Observer() {
  executor_.detach(*this);
}

std::span<ObservedValue> Observer::values_of(const plan::Step& step) {
  const auto at = static_cast<std::size_t>(&step - executor_.program().steps.data());
  return std::span(seen_).subspan(first_[at], first_[at + 1] - first_[at]);
}

void Observer::before(const plan::Step& step, graph::Call& call) {
  values_of(step).empty() ? repeated_.clear() : repeated_.keep(call);
}

void Observer::after(const plan::Step& step, const graph::Call& call) {
  const std::span<ObservedValue> values = values_of(step);
  if (values.empty()) return;
  const RepeatedStep::Before before(call, repeated_);
  const auto results = std::ranges::find(values, false, &ObservedValue::is_operand);
  for (ObservedValue& value : std::span(values.begin(), results)) see_operand(value, before.call());
  if (results == values.end()) return;
  const std::span<ObservedValue> rest(results, values.end());
  if (results->kind == Observed::term) {
    see_term(rest, call, before.call());
  } else {
    see_results(rest, call, before.call());
  }
}

void Observer::see_operand(ObservedValue& value, const graph::Call& repeated) {
  const graph::Argument& operand = repeated.inputs[value.index];
  if (value.kind == Observed::factor) return count_factor(repeated.ctx, operand, value.format, value.counts);
  const plan::Program& program = executor_.program();
  const plan::Buffer& copy = program.buffer(value.step->inputs[value.index].buffer);
  const Matrix master = executor_.buffer(program.slots[static_cast<std::size_t>(copy.slot)].master_buffer);
  // A set of weights for inference may lack masters.
  if (master.data == nullptr || value.counts.count > 0) return;
  count_weight(repeated.ctx, master, operand, value.counts);
}

void Observer::see_term(std::span<ObservedValue> values, const graph::Call& call,
                        const graph::Call& repeated) {
  const plan::Step& step = *values.front().step;
  graph::Call alone = repeated;
  alone.addend = {};
  const std::span<const graph::Argument> product = wide_.compute(alone, step);
  if (product.empty() || overwrites(call, repeated.addend)) return;
  for (ObservedValue& value : values) {
    const CountedTerm term{&product[0], step.rounded, &repeated.addend};
    if (value.kind == Observed::term) {
      count_term(call.ctx, term, value.counts);
    } else {
      count_sum(call.ctx, term, call.outputs[0], value.counts);
    }
  }
}

void Observer::see_results(std::span<ObservedValue> values, const graph::Call& call,
                           const graph::Call& repeated) {
  const plan::Step& step = *values.front().step;
  const auto exact = [&](const ObservedValue& v) { return is_exact(call.outputs[v.index], call.arithmetic); };
  std::span<const graph::Argument> wide, interior;
  // A gradient that is added to that of earlier micro-batches cannot be repeated.
  if (!call.accumulate && !std::ranges::all_of(values, exact)) wide = wide_.compute(repeated, step);
  if (!call.accumulate && !holds(step.interior, call.arithmetic)) {
    graph::Call unrounded = repeated;
    unrounded.interior = Scalar::f64;
    interior = exact_.compute(unrounded, step);
  }
  const graph::Argument& addend = repeated.addend;
  const bool term = addend.data != nullptr && !overwrites(call, addend);
  for (ObservedValue& value : values) {
    const graph::Argument& out = call.outputs[value.index];
    CountedResult result{.stored = &out, .rounded = value.rounded};
    if (!wide.empty() && !exact(value)) result.wide = &wide[value.index];
    if (term && addend.rows * addend.width == out.rows * out.width) result.addend = &addend;
    count_result(call.ctx, result, value.counts);
    if (interior.empty()) continue;
    const ErrorStats errors =
        count_difference(call.ctx, interior[value.index], result.wide != nullptr ? *result.wide : out);
    value.interior_squares += errors.sum_squares;
    value.interior += errors.measured;
  }
}

std::vector<ObservedValue> Observer::take() {
  std::vector<ObservedValue> taken = seen_;
  for (ObservedValue& value : seen_) {
    value.counts = {};
    value.interior_squares = 0;
    value.interior = 0;
  }
  return taken;
}

}  // namespace mantissa::runtime
