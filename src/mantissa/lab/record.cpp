#include "mantissa/lab/record.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace mantissa::lab {
namespace {

double share(std::uint64_t part, std::uint64_t of) {
  return of == 0 ? 0 : static_cast<double>(part) / static_cast<double>(of);
}

/// Returns the name of a value among those of its step: an operand, a result of several, or "".
std::string name_of(const plan::Program& program, const runtime::ObservedValue& v) {
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

ValueStep value_step(std::int64_t step, const runtime::ObservedValue& value) {
  const ValueCounts& c = value.counts;
  ValueStep v;
  v.step = step;
  v.absmax = c.absmax;
  v.absmin = std::isfinite(c.absmin) ? c.absmin : 0;
  v.mean = c.mean();
  v.rms = c.rms();
  v.zeros = share(c.zeros, c.count);
  v.subnormal = share(c.subnormal, c.count);
  v.saturated = share(c.saturated, c.count);
  v.inf = share(c.inf, c.count);
  v.nan = share(c.nan, c.count);
  if (c.compared > 0) {
    v.flushed = share(c.flushed, c.count);
    v.overflowed = share(c.overflowed, c.count);
    v.error_rms = c.relative_error();
    v.error_mean = c.relative_bias();
    v.error_inward = c.relative_inward();
    v.max_ulp = c.max_ulp;
  }
  if (c.sums > 0) v.cancelled = share(c.cancelled, c.sums);
  if (value.interior > 0 && v.rms > 0)
    v.interior_error = std::sqrt(value.interior_squares / static_cast<double>(value.interior)) / v.rms;
  return v;
}

}  // namespace

void Record::add_step(const train::StepReport& r) {
  StepPoint& p = audit_.points.emplace_back();
  p.step = r.step;
  p.loss = r.loss;
  p.grad_norm = r.grad_norm;
  p.lr = r.lr;
  p.loss_scale = r.loss_scale;
  p.skipped = r.skipped;
  if (r.overflow) p.overflow = r.overflow->what;
  for (const runtime::ParameterHealth& h : r.health) {
    auto series = std::ranges::find(audit_.weights, h.name, &ParameterSeries::name);
    if (series == audit_.weights.end()) {
      series = audit_.weights.insert(series, ParameterSeries{});
      series->name = h.name;
      series->master = h.master;
    }
    series->steps.emplace_back(r.step, h);
  }
}

ValueSeries& Record::series_of(const plan::Program& program, const runtime::ObservedValue& value) {
  const plan::Step& step = *value.step;
  const std::string pass(precision::name(plan::pass_of(step.phase)));
  const std::string name = name_of(program, value), op(step.op->op);
  const auto [at, is_new] = series_.try_emplace({step.scope, op, pass, name}, audit_.values.size());
  if (is_new) {
    ValueSeries& s = audit_.values.emplace_back();
    s.scope = step.scope;
    s.op = op;
    s.pass = pass;
    s.name = name;
    s.format = value.format;
    s.factor = value.factor;
    s.interior = holds(step.interior, program.arithmetic) ? std::string() : std::string(step.op->interior);
    s.decided_by = step.decided_by;
  }
  return audit_.values[at->second];
}

void Record::add_values(std::int64_t step, const plan::Program& program,
                        const std::vector<runtime::ObservedValue>& values) {
  audit_.observed.push_back(step);
  for (const runtime::ObservedValue& value : values) {
    if (value.counts.count == 0) continue;
    ValueSeries& s = series_of(program, value);
    if (!s.steps.empty() && s.steps.back().step == step)
      continue;  // a step of the backward pass that repeats it
    s.steps.push_back(value_step(step, value));
    s.elements = static_cast<std::int64_t>(value.counts.count);
    s.binades.merge(value.counts.binades);
    if (value.counts.compared > 0) s.before.merge(value.counts.before);
  }
}

}  // namespace mantissa::lab
