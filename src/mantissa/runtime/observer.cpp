#include "mantissa/runtime/observer.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "mantissa/kernels/quantize.h"
#include "mantissa/kernels/thread_pool.h"
#include "mantissa/kernels/update.h"

namespace mantissa::runtime {
namespace {

constexpr std::size_t kPart = std::size_t{1} << 14;  // elements that a thread counts at once

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

/// Adds the counts of all parts of `n` values, in order. count(counts, from, n) counts a part.
template <class Count>
void add_parts(const kernels::Context& ctx, std::size_t n, ValueCounts& to, const Count& count) {
  std::vector<ValueCounts> parts((n + kPart - 1) / kPart);
  kernels::parallel_for(ctx, static_cast<std::int64_t>(parts.size()), [&](std::int64_t part, int) {
    const auto i = static_cast<std::size_t>(part);
    count(parts[i], i * kPart, std::min(kPart, n - i * kPart));
  });
  for (const ValueCounts& part : parts) to.merge(part);
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
    wanted_.push_back(wanted(step));
    if (!wanted_.back()) continue;
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
  executor.attach(*this);
}

Observer::~Observer() {
  executor_.detach(*this);
}

void Observer::before(const plan::Step& step, graph::Call& call) {
  const auto at = static_cast<std::size_t>(&step - executor_.program().steps.data());
  wanted_[at] ? repeated_.keep(call) : repeated_.clear();
}

void Observer::after(const plan::Step& step, const graph::Call& call) {
  const auto first = std::ranges::find(seen_, &step, &ObservedValue::step);
  if (first == seen_.end()) return;
  const RepeatedStep::Before repeated(call, repeated_);
  for (auto value = first; value != seen_.end() && value->step == &step; ++value) {
    if (value->factor) {
      see_factor(*value, repeated.call().inputs[value->index], call.ctx);
    } else {
      see_result(*value, call, repeated.call());
    }
  }
}

void Observer::see_factor(ObservedValue& value, const graph::Argument& factor, const kernels::Context& ctx) {
  const std::vector<double> before = widened(factor, ctx);
  const auto count = static_cast<std::int64_t>(before.size());
  std::vector<double> after(before.size());
  std::vector<std::byte> codes(before.size() * bytes_of(value.format));
  kernels::round_to(ctx, count, before.data(), Scalar::f64, codes.data(), value.format,
                    factor.operand.saturate, factor.operand.flush_subnormals);
  kernels::cast(ctx, count, codes.data(), value.format, after.data(), Scalar::f64);
  add_parts(ctx, before.size(), value.counts, [&](ValueCounts& part, std::size_t from, std::size_t n) {
    part.add(after.data() + from, n, value.format);
    part.add_errors(before.data() + from, after.data() + from, n, value.format);
  });
}

void Observer::see_result(ObservedValue& value, const graph::Call& call, const graph::Call& repeated) {
  const graph::Argument& out = call.outputs[value.index];
  const std::vector<double> stored = widened(out, call.ctx);
  std::optional<std::vector<double>> wide, term, exact;
  // A gradient that is added to that of earlier micro-batches cannot be repeated.
  if (!is_exact(out, call.arithmetic) && !call.accumulate)
    wide = RepeatedStep::wide(repeated, *value.step, value.index);
  // A result that is added to a sum in f32 is rounded before.
  const Scalar rounded = value.rounded;
  const graph::Argument& addend = repeated.addend;
  if (addend.data != nullptr && !overwrites(call, addend) &&
      addend.rows * addend.width == out.rows * out.width)
    term = widened(addend, call.ctx);
  add_parts(call.ctx, stored.size(), value.counts, [&](ValueCounts& part, std::size_t from, std::size_t n) {
    part.add(stored.data() + from, n, out.type);
    if (wide) part.add_errors(wide->data() + from, stored.data() + from, n, rounded);
    // Compare the sum before rounding: a sum that rounding flushes to zero has not cancelled.
    if (term) part.add_sums((wide ? *wide : stored).data() + from, term->data() + from, n);
  });
  if (holds(value.step->interior, call.arithmetic) || call.accumulate) return;
  graph::Call unrounded = repeated;
  unrounded.interior = Scalar::f64;
  exact = RepeatedStep::wide(unrounded, *value.step, value.index);
  if (!wide) wide = RepeatedStep::wide(repeated, *value.step, value.index);
  for (std::size_t i = 0; exact && wide && i < exact->size(); ++i) {
    const double error = (*wide)[i] - (*exact)[i];
    if (!std::isfinite(error)) continue;
    value.interior_squares += error * error;
    ++value.interior;
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
