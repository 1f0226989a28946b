#include "mantissa/train/nonfinite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/kernels/update.h"
#include "mantissa/numeric/round.h"

namespace mantissa::train {
namespace {

std::vector<double> widened(const graph::Argument& a, const kernels::Context& ctx) {
  std::vector<double> wide(static_cast<std::size_t>(a.rows * a.width));
  kernels::cast(ctx, a.rows * a.width, a.data, a.type, wide.data(), Scalar::f64);
  return wide;
}

/// The observer of one search.
class Search {
 public:
  Search(const runtime::Executor& executor, const std::int64_t& first_row)
      : executor_(executor), program_(executor.program()), first_row_(first_row) {}

  void look(const plan::Step& step, const graph::Call& call) {
    if (where_ != nullptr && where_ != &step) return;
    for (std::size_t o = 0; o < call.outputs.size(); ++o) {
      if (call.outputs[o].integer || (where_ != nullptr && o != output_)) continue;
      const std::vector<double> values = widened(call.outputs[o], call.ctx);
      const auto bad = std::find_if(values.begin(), values.end(), [](double x) { return !std::isfinite(x); });
      if (bad == values.end()) continue;
      if (where_ == nullptr) begin(step, call, o, static_cast<std::size_t>(bad - values.begin()), *bad);
      add_rows(step, call, values);
      return;
    }
  }

  std::optional<NonFinite> found() && {
    if (where_ == nullptr) return std::nullopt;
    return std::move(found_);
  }

 private:
  void begin(const plan::Step& step, const graph::Call& call, std::size_t output, std::size_t element,
             double value) {
    where_ = &step;
    output_ = output;
    found_.scope = step.scope;
    found_.op = step.op->op;
    found_.pass = precision::name(plan::pass_of(step.phase));
    found_.format = call.outputs[output].type;
    found_.value = value;
    std::optional<Unrounded> before = beyond_operand(call, step);
    if (!before) {
      before = unrounded(call, step, output, element);
      const plan::Buffer& of = program_.buffer(step.outputs[output]);
      found_.beyond_grads = of.home == plan::Home::gradient && !holds(of.type, program_.arithmetic) &&
                            (!before || std::isfinite(before->value));
      const bool made_inside = !before || !std::isfinite(before->value);
      if (made_inside && !holds(step.interior, program_.arithmetic)) found_.interior = step.op->interior;
    }
    if (!before) return;
    found_.value = before->value;
    found_.format = before->format;
  }

  /// A value that did not survive its rounding to `format`.
  struct Unrounded {
    double value;
    Scalar format;
  };

  /// What the step read that the format of its factors cannot hold, a weight's master among it.
  std::optional<Unrounded> beyond_operand(const graph::Call& call, const plan::Step& step) const {
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      graph::Argument in = call.inputs[i];
      if (in.integer) continue;
      Scalar format = holds(in.operand.format, in.type) ? step.compute.format : in.operand.format;
      const plan::Buffer& buffer = program_.buffer(step.inputs[i].buffer);
      if (buffer.quantization) continue;  // saturated: it holds what is finite
      if (buffer.home == plan::Home::copy) {
        const plan::Slot& slot = program_.slots[static_cast<std::size_t>(buffer.slot)];
        format = in.type;
        in.data = executor_.buffer(slot.master_buffer).data;
        in.type = slot.master;
      }
      if (holds(format, in.type)) continue;
      for (const double x : widened(in, call.ctx)) {
        if (std::isfinite(x) && !std::isfinite(round_to(x, format))) return Unrounded{x, format};
      }
    }
    return std::nullopt;
  }

  /// The element before it was rounded as the step's result: the step runs once more, without that rounding.
  /// Nothing where nothing is rounded, or where the step wrote over what it had read.
  static std::optional<Unrounded> unrounded(const graph::Call& call, const plan::Step& step,
                                            std::size_t output, std::size_t element) {
    const graph::Argument& of = call.outputs[output];
    const auto narrow = [&](Scalar s) { return !holds(s, call.arithmetic); };
    const bool before_sum = call.addend.data != nullptr && narrow(of.rounded);
    if (!before_sum && !narrow(of.type)) return std::nullopt;
    graph::Call again = call;
    if (before_sum) again.addend = {};
    for (const graph::Argument& out : call.outputs) {
      const auto same = [&](const graph::Argument& in) { return in.data == out.data; };
      if (std::any_of(call.inputs.begin(), call.inputs.end(), same) || same(again.addend))
        return std::nullopt;
    }
    std::vector<graph::Argument> outputs(call.outputs.begin(), call.outputs.end());
    std::vector<Storage> memory;
    for (graph::Argument& out : outputs) {
      memory.emplace_back(static_cast<std::size_t>(out.rows * out.width) * bytes_of(call.arithmetic));
      out.data = memory.back().data();
      out.type = out.rounded = call.arithmetic;
    }
    again.outputs = outputs;
    again.accumulate = false;
    step.op->run(again);
    const Unrounded found{widened(outputs[output], call.ctx)[element], before_sum ? of.rounded : of.type};
    // A weight gradient may be beyond its format with what earlier micro-batches left there only.
    const bool fits = std::isfinite(found.value) && std::isfinite(round_to(found.value, found.format));
    return fits ? std::nullopt : std::optional(found);
  }

  /// The rows that the values of a token axis belong to.
  void add_rows(const plan::Step& step, const graph::Call& call, const std::vector<double>& values) {
    const std::vector<Dim>& dims = program_.buffer(step.outputs[output_]).shape.dims();
    if (dims.empty() || dims[0].axis != Axis::tokens || call.extent.tokens == 0) return;
    const std::size_t per_token = values.size() / static_cast<std::size_t>(call.extent.tokens);
    for (std::size_t r = 0; r < call.extent.rows.size(); ++r) {
      const Row& row = call.extent.rows[r];
      const auto begin =
          values.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(row.begin) * per_token);
      const auto end = begin + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(row.length) * per_token);
      if (std::any_of(begin, end, [](double x) { return !std::isfinite(x); }))
        found_.rows.push_back(first_row_ + static_cast<std::int64_t>(r));
    }
  }

  const runtime::Executor& executor_;
  const plan::Program& program_;
  const std::int64_t& first_row_;
  const plan::Step* where_ = nullptr;
  std::size_t output_ = 0;
  NonFinite found_;
};

}  // namespace

double unsigned_nan(double value) {
  return std::isnan(value) ? std::abs(value) : value;
}

std::string NonFinite::text() const {
  std::string text = fmt::format("{} {} {} ", scope, op, pass);
  if (!std::isfinite(value)) return text + fmt::format("{} ({})", unsigned_nan(value), name(format));
  return text + fmt::format("{:.2g} {} {} ({})", value, value > 0 ? ">" : "<",
                            std::copysign(traits(format).max_finite, value), name(format));
}

std::optional<NonFinite> find_first_non_finite(runtime::Executor& executor, const std::int64_t& first_row,
                                               const std::function<void()>& again) {
  Search search(executor, first_row);
  executor.after_step = [&](const plan::Step& step, const graph::Call& call) { search.look(step, call); };
  again();
  executor.after_step = nullptr;
  return std::move(search).found();
}

}  // namespace mantissa::train
