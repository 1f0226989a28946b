#include "mantissa/engine/runtime/observer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "mantissa/engine/plan/explain.h"
#include "mantissa/engine/runtime/count_parts.h"
#include "mantissa/kernels/expression.h"

namespace mantissa::runtime {
namespace {

/// True if rounding changes no value of `arithmetic`.
bool is_exact(const plan::Step& step, const graph::Argument& out, Scalar arithmetic) {
  const bool head = step.op->kind == graph::OpKind::head;  // rounds its logits to out.rounded
  return out.codes == StateCodes::none && holds(out.type, arithmetic) &&
         (head || holds(out.rounded, arithmetic));
}

/// Returns the call without the rounding of a point inside its step.
graph::Call without(Observed kind, graph::Call call, const kernels::Expression& unrounded) {
  switch (kind) {
    case Observed::made:
      call.compute = call.arithmetic;
      break;
    case Observed::logits:
      break;  // UnroundedResults::compute
    case Observed::normalized:
      call.normalized = Scalar::f64;
      break;
    case Observed::accumulator:
      call.accumulator.format = call.arithmetic;
      if (call.accumulator.card != Card::none) call.accumulator = call.arithmetic;
      break;
    default:
      call.interior = Scalar::f64;
      call.expression = &unrounded;
  }
  return call;
}

/// Adds the values of a rounding point.
void add_point(const plan::Program& program, const plan::RoundingPoint& point,
               std::vector<ObservedValue>& values) {
  if (!point.unobserved.empty()) return;
  ObservedValue value{.step = point.step,
                      .kind = point.kind,
                      .index = point.index,
                      .format = point.format.format,
                      .rounded = point.format.format,
                      .blocks = point.blocks,
                      .served = point.served,
                      .codes = point.codes};
  value.parts = point.format.parts;
  if (!value.is_inside()) {
    if (point.kind == Observed::result) value.format = program.buffer(point.step->outputs[point.index]).type;
    values.push_back(std::move(value));
    return;
  }
  value.point = point.name;
  if (point.kind == Observed::accumulator && plan::has_card(*point.step)) value.card = point.format_name();
  for (; value.index < point.step->outputs.size(); ++value.index) {
    const plan::Buffer& out = program.buffer(point.step->outputs[value.index]);
    // The update writes copies of a weight from its master.
    if (!out.integer && out.home != plan::Home::copy) values.push_back(value);
  }
}

/// Adds the results of a step that no rounding point has.
void add_exact(const plan::Program& program, const plan::Step& step, std::vector<ObservedValue>& values) {
  if (step.phase == graph::Phase::update) return;
  for (std::size_t o = 0; o < step.outputs.size(); ++o) {
    const plan::Buffer& b = program.buffer(step.outputs[o]);
    const auto is_seen = [&](const ObservedValue& v) {
      return v.index == o && (v.kind == Observed::result || v.kind == Observed::term);
    };
    if (b.integer || std::ranges::any_of(values, is_seen)) continue;
    values.push_back({.step = &step, .index = o, .format = b.type, .rounded = b.type, .rounds = false});
  }
}

/// Calls `see` for every step, with the values of those that are wanted.
void for_each_step(const plan::Program& program, const std::function<bool(const plan::Step&)>& wanted,
                   const std::function<void(const plan::Step&, std::span<const ObservedValue>)>& see) {
  const std::vector<plan::RoundingPoint> points = plan::rounding_points(program);
  auto point = points.begin();
  std::vector<ObservedValue> values;
  for (const plan::Step& step : program.steps) {
    values.clear();
    const bool is_wanted = wanted(step);
    for (; point != points.end() && point->step == &step; ++point) {
      if (is_wanted) add_point(program, *point, values);
    }
    if (is_wanted) add_exact(program, step, values);
    see(step, values);
  }
}

}  // namespace

std::string name_of(const plan::Program& program, const ObservedValue& v) {
  const plan::Step& step = *v.step;
  switch (v.kind) {
    case Observed::weight: {
      const std::int32_t slot = program.buffer(step.inputs[v.index].buffer).slot;
      const std::string& name = program.slots.at(static_cast<std::size_t>(slot)).name;
      return name.substr(name.rfind('.') + 1);  // npos + 1 is 0
    }
    case Observed::factor: {
      const auto& operands = step.op->operands;
      return v.index < operands.size() ? std::string(operands[v.index]) : "operand";
    }
    case Observed::sum:
      return "sum";
    case Observed::term:
      return "";
    default:
      break;
  }
  const std::string result = plan::result_name(program, step, v.index);
  if (!v.is_inside()) return result;
  return result.empty() || result == step.op->op ? v.point : result + ": " + v.point;
}

std::string_view format_name(const ObservedValue& v) {
  if (!v.card.empty()) return v.card;
  if (v.served != WeightFormat::none) return name(v.served);
  if (v.codes != StateCodes::none) return name(v.codes);
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
    // Each block has places of its own. Results of an op are not rounded to the format of a point inside it.
    if (!value.blocks && value.served == WeightFormat::none && value.codes == StateCodes::none &&
        !value.is_inside())
      all.emplace_back("max_ulp", c.max_ulp);
  }
  if (c.sums > 0) all.emplace_back("cancelled", share(c.cancelled, c.sums));
  if (value.step != nullptr && value.step->phase == graph::Phase::update && c.compared > 0 &&
      !value.is_inside())
    all.insert(all.end(), {{"stuck", share(value.stuck, c.count)}, {"moving", share(value.moving, c.count)}});
  if (value.interior > 0 && c.rms() > 0) {
    all.emplace_back("interior_error",
                     std::sqrt(value.interior_squares / static_cast<double>(value.interior)) / c.rms());
  }
  return all;
}

Observer::Observer(Executor& executor, const std::function<bool(const plan::Step&)>& wanted)
    : executor_(executor) {
  const plan::Program& program = executor.program();
  std::size_t count = 0;
  const auto counted = [&](const plan::Step&, std::span<const ObservedValue> values) {
    count += values.size();
  };
  for_each_step(program, wanted, counted);
  seen_.reserve(count);
  first_.assign(program.steps.size() + 1, 0);
  for_each_step(program, wanted, [&](const plan::Step& step, std::span<const ObservedValue> values) {
    seen_.insert(seen_.end(), values.begin(), values.end());
    first_[static_cast<std::size_t>(&step - program.steps.data()) + 1] = seen_.size();
  });
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
  unrounded_ = {};
  // Operands come first, then points inside the step, each with all results, then the results.
  const auto inside = std::ranges::find(values, false, &ObservedValue::is_operand);
  const auto results =
      std::find_if(inside, values.end(), [](const ObservedValue& v) { return !v.is_inside(); });
  const std::span<ObservedValue> rest(results, values.end());
  for (ObservedValue& value : std::span(values.begin(), inside)) see_operand(value, before.call());
  for (auto at = inside; at != results;) {
    const auto end = std::find_if(at, results, [&](const ObservedValue& v) { return v.kind != at->kind; });
    see_inside({at, end}, rest, before.call());
    at = end;
  }
  if (rest.empty()) return;
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

void Observer::raise_constants(const plan::Step& step, std::vector<graph::Argument>& inputs) {
  const plan::Program& program = executor_.program();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const plan::BufferId id = step.inputs[i].buffer;
    const auto constant = std::ranges::find(program.constants, id, &plan::Constant::buffer);
    if (constant == program.constants.end() || holds(constant->interior, program.arithmetic)) continue;
    Storage& memory = constants_[id];
    if (memory.size() == 0) {
      const plan::Buffer& b = program.buffer(id);
      memory = Storage(static_cast<std::size_t>(b.shape.count()) * bytes_of(b.type));
      constant->fill({memory.data(), b.type, b.shape.last()}, program.arithmetic);
    }
    inputs[i].data = memory.data();
  }
}

void Observer::see_inside(std::span<ObservedValue> values, std::span<ObservedValue> results,
                          const graph::Call& repeated) {
  const plan::Step& step = *values.front().step;
  const Observed kind = values.front().kind;
  graph::Call as_is = repeated;
  as_is.addend = {};
  // A card sums only factors in its own formats. Both results are then of sums in f32.
  const bool in_f32 = kind == Observed::made && plan::has_card(step);
  if (in_f32) {
    as_is.accumulator = as_is.arithmetic;
  } else if (unrounded_.empty()) {
    unrounded_ = wide_.compute_with_logits(as_is, step);
  }
  const std::span<const graph::Argument> with =
      in_f32 ? without_card_.compute_with_logits(as_is, step) : unrounded_;
  if (with.empty()) return;
  const kernels::Expression unrounded = kernels::unrounded(step.expression);
  graph::Call call = without(kind, as_is, unrounded);
  std::vector<graph::Argument> inputs(call.inputs.begin(), call.inputs.end());
  if (kind == Observed::interior) raise_constants(step, inputs);
  // Both factors of a product have the same number of parts.
  for (graph::Argument& in : inputs) {
    if (kind == Observed::made && in.operand.parts > 1) in.operand = call.arithmetic;
  }
  call.inputs = inputs;
  const std::span<const graph::Argument> exact =
      kind == Observed::logits ? inside_.compute(call, step) : inside_.compute_with_logits(call, step);
  for (ObservedValue& value : values) {
    const CountedResult result{
        .stored = &with[value.index], .rounded = value.rounded, .wide = &exact[value.index]};
    count_result(repeated.ctx, result, value.counts);
    if (kind != Observed::interior) continue;
    // The same as a figure of the result.
    const auto of = std::ranges::find(results, value.index, &ObservedValue::index);
    if (of == results.end()) continue;
    const ErrorStats errors = count_difference(repeated.ctx, exact[value.index], with[value.index]);
    of->interior_squares += errors.sum_squares;
    of->interior += errors.measured;
  }
}

void Observer::see_results(std::span<ObservedValue> values, const graph::Call& call,
                           const graph::Call& repeated) {
  const plan::Step& step = *values.front().step;
  const auto exact = [&](const ObservedValue& v) {
    return !v.blocks && is_exact(step, call.outputs[v.index], call.arithmetic);
  };
  std::span<const graph::Argument> wide;
  const bool known = !unrounded_.empty() && repeated.addend.data == nullptr && !call.accumulate;
  if (!std::ranges::all_of(values, exact))
    wide = known ? unrounded_ : wide_.compute_with_logits(repeated, step, &repeated_);
  const graph::Argument& addend = repeated.addend;
  const bool term = addend.data != nullptr && !overwrites(call, addend);
  for (ObservedValue& value : values) {
    const graph::Argument& out = call.outputs[value.index];
    CountedResult result{.stored = &out, .rounded = value.rounded};
    if (!wide.empty() && !exact(value)) result.wide = &wide[value.index];
    if (term && addend.rows * addend.width == out.rows * out.width) result.addend = &addend;
    count_result(call.ctx, result, value.counts);
    void* before = step.phase == graph::Phase::update ? repeated_.before(out) : nullptr;
    if (before == nullptr || result.wide == nullptr || out.blocks || out.codes != StateCodes::none) continue;
    graph::Argument was = out;
    was.data = before;
    const StuckCounts counts = count_stuck(call.ctx, out, was, *result.wide);
    value.stuck += counts.stuck;
    value.moving += counts.moving;
  }
}

std::vector<ObservedValue> Observer::take() {
  std::vector<ObservedValue> taken;
  taken.reserve(seen_.size());
  take([&](const ObservedValue& value) { taken.push_back(value); });
  return taken;
}

void Observer::take(const std::function<void(const ObservedValue&)>& see) {
  for (ObservedValue& value : seen_) {
    see(value);
    value.counts = {};
    value.interior_squares = 0;
    value.interior = 0;
    value.stuck = value.moving = 0;
  }
}

std::size_t observer_bytes(const plan::Program& program,
                           const std::function<bool(const plan::Step&)>& wanted) {
  std::size_t values = 0, kept = 0;
  // The largest output of each index, as computed again without its rounding, and without one inside the
  // step.
  std::vector<std::size_t> wide, inside, without_card;
  const auto grow = [&](std::vector<std::size_t>& largest, const plan::Step& step) {
    largest.resize(std::max(largest.size(), step.outputs.size()));
    for (std::size_t o = 0; o < step.outputs.size(); ++o) {
      const auto count = static_cast<std::size_t>(program.buffer(step.outputs[o]).held_shape().count());
      largest[o] = std::max(largest[o], count * bytes_of(program.arithmetic));
    }
  };
  for_each_step(program, wanted, [&](const plan::Step& step, std::span<const ObservedValue> of) {
    values += of.size();
    const auto rounds = [](const ObservedValue& v) { return v.rounds && !v.is_operand(); };
    if (std::ranges::any_of(of, rounds)) grow(wide, step);
    if (std::ranges::any_of(of, &ObservedValue::is_inside)) grow(inside, step);
    const auto made = [](const ObservedValue& v) { return v.kind == Observed::made; };
    if (plan::has_card(step) && std::ranges::any_of(of, made)) grow(without_card, step);
    std::size_t before = 0;
    for (const plan::BufferId id : step.outputs) {
      const plan::Buffer& out = program.buffer(id);
      // Steps overwrite what they continue: a sum, a gradient or a state.
      if (step.op->alias >= 0 || out.home != plan::Home::activation) before += out.stored_bytes();
    }
    if (!of.empty()) kept = std::max(kept, before);
  });
  const auto sum = [](const std::vector<std::size_t>& all) {
    return std::accumulate(all.begin(), all.end(), std::size_t{0});
  };
  return values * sizeof(ObservedValue) + sum(wide) + sum(inside) + sum(without_card) + kept;
}

}  // namespace mantissa::runtime
