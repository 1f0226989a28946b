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

}  // namespace

std::string name_of(const plan::Program& program, const ObservedValue& v) {
  const plan::Step& step = *v.step;
  if (v.factor) {
    const auto& operands = step.op->operands;
    return v.index < operands.size() ? std::string(operands[v.index]) : "operand";
  }
  if (step.outputs.size() == 1) return "";
  const std::string& name = program.buffer(step.outputs[v.index]).name;
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(dot + 1);
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
                           {"error_inward", c.relative_inward()},
                           {"max_ulp", c.max_ulp}});
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
  for (const plan::Step& step : program.steps) {
    first_.push_back(seen_.size());
    if (!wanted(step)) continue;
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      const plan::Buffer& b = program.buffer(step.inputs[i].buffer);
      if (is_rounded_factor(step, step.inputs[i], b, i))
        seen_.push_back({&step, true, i, step.inputs[i].operand.format, step.inputs[i].operand.format});
    }
    for (std::size_t o = 0; o < step.outputs.size(); ++o) {
      const plan::Buffer& b = program.buffer(step.outputs[o]);
      if (!b.integer && !b.layout().blocks)
        seen_.push_back({&step, false, o, b.type, holds(step.rounded, b.type) ? b.type : step.rounded});
    }
  }
  first_.push_back(seen_.size());
  executor.attach(*this);
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
  const auto results = std::ranges::find(values, false, &ObservedValue::factor);
  for (ObservedValue& value : std::span(values.begin(), results))
    count_factor(call.ctx, before.call().inputs[value.index], value.format, value.counts);
  see_results({results, values.end()}, call, before.call());
}

void Observer::see_results(std::span<ObservedValue> values, const graph::Call& call,
                           const graph::Call& repeated) {
  if (values.empty()) return;
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
