// The search for the first non-finite value of a step, as an observer.
#include <algorithm>
#include <cmath>
#include <limits>

#include "mantissa/core/numeric/round.h"
#include "mantissa/engine/plan/explain.h"
#include "mantissa/engine/runtime/nonfinite.h"
#include "mantissa/engine/runtime/repeated_step.h"
#include "mantissa/kernels/loss_count.h"

namespace mantissa::runtime {
namespace {

/// True if every value of the result is finite. May return false for others with gaps between their rows.
bool surely_finite(const graph::Argument& a, const kernels::Context& ctx) {
  constexpr double kAll = -1;  // below every magnitude
  const std::int64_t count = a.rows * a.width;
  return a.row_stride() == a.width && kernels::count_beyond(ctx, count, a.data, a.type, kAll) == count;
}

}  // namespace

/// The observer of one search for a non-finite value: of the first step with such values, in every
/// micro-batch.
class NonFiniteSearch : public StepObserver {
 public:
  /// `ends`: a micro-batch ends at the value.
  NonFiniteSearch(const Executor& executor, const std::int64_t& first_row, bool ends)
      : executor_(executor), program_(executor.program()), first_row_(first_row), ends_(ends) {}

  bool wants(const plan::Step& step) override {
    const auto forward = [](const plan::Step& s) { return s.phase == graph::Phase::forward; };
    if (&step == &*std::ranges::find_if(program_.steps, forward))
      done_ = here_ = false;  // the next micro-batch
    // Steps up to the found one run again for the other chunks of tokens.
    return !done_ || !ends_ || &step <= where_;
  }

  void before(const plan::Step& step, graph::Call& call) override {
    where_ == nullptr || may_be_first(step) ? repeated_.keep(call) : repeated_.clear();
  }

  void after(const plan::Step& step, const graph::Call& call) override {
    if (where_ == nullptr || where_ == &step || may_be_first(step)) look(step, call);
    done_ = where_ == &step;
  }

  std::optional<NonFinite> found() const { return where_ == nullptr ? std::nullopt : std::optional(found_); }

 private:
  /// Returns true for a step up to the one that was found in this micro-batch: it runs for another chunk of
  /// tokens, and its value is earlier in the plan.
  bool may_be_first(const plan::Step& step) const { return here_ && &step <= where_; }

  void look(const plan::Step& step, const graph::Call& call) {
    for (std::size_t o = 0; o < call.outputs.size(); ++o) {
      // Packed blocks need no check: they are finite if the values before packing are.
      if (call.outputs[o].integer || call.outputs[o].blocks || (where_ == &step && o != output_)) continue;
      if (surely_finite(call.outputs[o], call.ctx)) continue;
      const std::vector<double> values = widened(call.outputs[o], call.ctx);
      const auto bad = std::find_if(values.begin(), values.end(), [](double x) { return !std::isfinite(x); });
      if (bad == values.end()) continue;
      if (where_ != &step) {
        found_ = {};
        const auto element = static_cast<std::size_t>(bad - values.begin());
        begin(step, RepeatedStep::Before(call, repeated_).call(), o, element, *bad);
      }
      add_rows(step, call, values);
      return;
    }
  }

  void begin(const plan::Step& step, const graph::Call& call, std::size_t output, std::size_t element,
             double value) {
    where_ = &step;
    here_ = true;
    output_ = output;
    if (find_weight_beyond(step, call)) return;
    found_.scope = step.scope;
    found_.op = step.op->op;
    found_.pass = precision::name(plan::pass_of(step.phase));
    found_.format = call.outputs[output].type;
    found_.value = value;
    found_.channel = static_cast<std::int64_t>(element) % call.outputs[output].width;
    add_inputs(step, call);
    find_weight(step, call, output);
    std::optional<Unrounded> before = beyond_operand(call, step);
    if (!before) {
      before = unrounded(call, step, output, element);
      const plan::Buffer& of = program_.buffer(step.outputs[output]);
      const bool narrow = !holds(of.type, program_.arithmetic);
      // True for sums with earlier values: of a gradient over micro-batches, of the residual stream in place.
      const bool sum = narrow && (of.home == plan::Home::gradient || call.addend.data != nullptr);
      const bool made_inside = before ? !std::isfinite(before->value) : !sum;
      if (made_inside && !holds(step.interior, program_.arithmetic)) {
        found_.op = found_.interior = step.op->interior;
        found_.format = step.interior;
      }
      const bool lowered = plan::rounds_sums(step) ||
                           (plan::has_card(step) && !holds(step.accumulator.format, program_.arithmetic));
      if (made_inside && found_.interior.empty() && lowered) {
        found_.format = step.accumulator.format;
        found_.field = "accumulate";
        return;
      }
      if (narrow && !before) found_.field = of.field;
    }
    if (before) {
      found_.value = before->value;
      found_.format = before->format;
    }
    // An intermediate result beyond its format is inf. The NaN follows from it: inf − inf, inf / inf.
    const ScalarTraits& lowered = traits(step.interior);
    const bool narrower =
        lowered.has_infinity && lowered.exponent_bits < traits(program_.arithmetic).exponent_bits;
    if (!found_.interior.empty() && narrower && std::isnan(found_.value)) {
      found_.value = std::numeric_limits<double>::infinity();
      found_.format = step.interior;
    }
    if (!before) return;
    if (std::isfinite(before->value)) found_.field = before->field;
  }

  /// Finds the first weight, in the order of the plan up to `last`, whose copy overflows: the copy is
  /// infinite before any step runs. A later step may be the first whose result is not finite, because a logit
  /// of -inf is a probability of 0.
  bool find_weight_beyond(const plan::Step& last, const graph::Call& call) {
    for (const plan::Step& step : program_.steps) {
      const bool end = &step == &last;
      for (std::size_t i = 0; i < step.inputs.size(); ++i) {
        // A step that reads single values, such as rows of the embedding, may not have read the infinite
        // ones.
        if (reads_value(step, i) && !end) continue;
        if (!see_weight_beyond(step, i, call.ctx)) continue;
        if (end) add_inputs(last, call);
        if (end && i < found_.inputs.size()) found_.inputs[i].absmax = std::abs(found_.value);
        return true;
      }
      if (end) break;
    }
    return false;
  }

  /// Returns true if input `i` of the step is a copy of a weight that overflows, which is then found.
  bool see_weight_beyond(const plan::Step& step, std::size_t i, const kernels::Context& ctx) {
    const plan::Buffer& copy = program_.buffer(step.inputs[i].buffer);
    if (!is_weight(copy) || copy.is_derived() || !has_master(copy)) return false;
    const plan::Slot& slot = program_.slots[static_cast<std::size_t>(copy.slot)];
    if (holds(copy.type, slot.master)) return false;
    const Matrix master = executor_.buffer(slot.master_buffer);
    const std::int64_t width = slot.shape.last();
    found_.beyond =
        beyond_format(ctx, {master.data, master.type, width}, slot.shape.count() / width, copy.type);
    if (!found_.beyond) return false;
    found_.scope = step.scope;
    found_.op = step.op->op;
    found_.pass = precision::name(plan::pass_of(step.phase));
    found_.format = copy.type;
    found_.value = found_.beyond->value;
    found_.field = reads_value(step, i) ? "residual" : "compute";
    found_.weight = slot.name;
    found_.weight_vector = slot.shape.dims().size() == 1;
    found_.channel = found_.weight_vector ? found_.beyond->column : found_.beyond->row;
    return true;
  }

  void add_inputs(const plan::Step& step, const graph::Call& call) {
    for (const graph::Argument& in : call.inputs) {
      const auto i = static_cast<std::size_t>(&in - call.inputs.data());
      const std::vector<std::string_view>& names = step.op->operands;
      const std::string name(i < names.size() ? names[i] : "");
      if (!in.integer) found_.inputs.push_back({name, largest_finite(widened(in, call.ctx))});
    }
  }

  /// Finds the weight's row or column that makes the channel, if it is much larger than the others: of the
  /// step, or of the products whose results a pointwise step reads.
  void find_weight(const plan::Step& step, const graph::Call& call, std::size_t output) {
    const std::int64_t width = call.outputs[output].width;
    if (step.op->kind == graph::OpKind::product) return see_weights(step, call, width);
    see_gains(step, call, width);
    if (step.op->kind != graph::OpKind::pointwise) return;
    for (const plan::Step& writer : program_.steps) {
      if (&writer == &step) break;  // its inputs are written before
      if (writer.op->kind != graph::OpKind::product || writer.phase != step.phase) continue;
      const bool read = std::ranges::any_of(
          step.inputs, [&](const plan::Operand& in) { return in.buffer == writer.outputs[0]; });
      if (read) see_weights(writer, call, width);
    }
  }

  /// Looks at the weights of a step that have an element for each of its `width` channels.
  void see_gains(const plan::Step& step, const graph::Call& call, std::int64_t width) {
    constexpr double kOutlier = 32;
    for (const plan::Operand& operand : step.inputs) {
      const plan::Buffer& b = program_.buffer(operand.buffer);
      if (!is_weight(b) || !has_master(b)) continue;
      const plan::Slot& slot = program_.slots[static_cast<std::size_t>(b.slot)];
      if (slot.shape.dims().size() != 1 || slot.shape.count() != width) continue;
      const Matrix master = executor_.buffer(slot.master_buffer);
      const WeightLine line =
          weight_line(call.ctx, {master.data, master.type, 1}, width, found_.channel, false);
      if (line.ratio < kOutlier) continue;
      found_.weight = slot.name;
      found_.weight_vector = true;
      found_.line = line;
    }
  }

  /// Looks at the weights of a product with `width` channels, and keeps the largest outlier.
  void see_weights(const plan::Step& product, const graph::Call& call, std::int64_t width) {
    constexpr double kOutlier = 8;  // normal rows of 16 or more weights are within a factor of 3
    // The weight is [out, in], or [in, out] if it is transposed; the backward product has a channel for each
    // in.
    const bool column = product.attributes.flag("transposed") == (product.phase == graph::Phase::forward);
    for (const plan::Operand& operand : product.inputs) {
      const plan::Buffer& b = program_.buffer(operand.buffer);
      if (!is_weight(b) || !has_master(b) || b.shape.dims().size() != 2) continue;
      const plan::Slot& slot = program_.slots[static_cast<std::size_t>(b.slot)];
      const std::int64_t rows = slot.shape.dim(0).size;
      if (width != (column ? slot.shape.last() : rows)) continue;
      const Matrix master = executor_.buffer(slot.master_buffer);
      const WeightLine line =
          weight_line(call.ctx, {master.data, master.type, slot.shape.last()}, rows, found_.channel, column);
      if (line.ratio < std::max(kOutlier, found_.line.ratio)) continue;
      found_.weight = slot.name;
      found_.weight_column = column;
      found_.line = line;
    }
  }

  static bool is_weight(const plan::Buffer& b) {
    return b.home == plan::Home::copy || b.home == plan::Home::master || b.home == plan::Home::gathered;
  }
  const plan::Buffer& master_of(const plan::Buffer& weight) const {
    return program_.buffer(program_.slots[static_cast<std::size_t>(weight.slot)].master_buffer);
  }
  /// Returns false for a weight whose master only another rank has.
  bool has_master(const plan::Buffer& weight) const { return !master_of(weight).elsewhere; }

  static double largest_finite(const std::vector<double>& values) {
    double most = 0;
    for (const double x : values) {
      if (std::isfinite(x)) most = std::max(most, std::abs(x));
    }
    return most;
  }

  /// A value that overflows when rounded to `format`.
  struct Unrounded {
    double value;
    Scalar format;
    std::string_view field;  // the policy field that sets the format
  };

  /// Returns the input element of the step that overflows in the format of its factors, such as a weight's
  /// master, or null.
  std::optional<Unrounded> beyond_operand(const graph::Call& call, const plan::Step& step) const {
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      graph::Argument in = call.inputs[i];
      if (in.integer) continue;
      Scalar format = holds(in.operand.format, in.type) ? step.compute.format : in.operand.format;
      const plan::Buffer& buffer = program_.buffer(step.inputs[i].buffer);
      if (buffer.scaled) continue;  // saturated, so every value is finite
      const bool weight = buffer.home == plan::Home::copy ||
                          (buffer.home == plan::Home::gathered && buffer.type != master_of(buffer).type);
      if (weight && has_master(buffer)) {
        const plan::Slot& slot = program_.slots[static_cast<std::size_t>(buffer.slot)];
        format = in.type;
        in.data = executor_.buffer(slot.master_buffer).data;
        in.type = slot.master, in.quants = {};
      }
      if (holds(format, in.type)) continue;
      for (const double x : widened(in, call.ctx)) {
        if (std::isfinite(x) && !std::isfinite(round_to(x, format)))
          return Unrounded{x, format, weight && reads_value(step, i) ? "residual" : "compute"};
      }
    }
    return std::nullopt;
  }

  static bool reads_value(const plan::Step& step, std::size_t i) {
    return step.op->reads[std::min(i, step.op->reads.size() - 1)] == graph::Read::value;
  }

  /// Returns the element before the rounding of the step's result that overflows. Returns null if no rounding
  /// does, or if the step overwrote its input.
  std::optional<Unrounded> unrounded(const graph::Call& call, const plan::Step& step, std::size_t output,
                                     std::size_t element) const {
    const graph::Argument& of = call.outputs[output];
    const auto survives = [](double x, Scalar s) {
      return std::isfinite(x) && std::isfinite(round_to(x, s));
    };
    if (!holds(of.rounded, call.arithmetic)) {
      graph::Call alone = call;
      alone.addend = {};
      const std::optional<double> value = computed_wide(alone, step, output, element);
      if (value && !survives(*value, of.rounded))
        return Unrounded{*value, of.rounded, call.addend.data != nullptr ? "compute" : "output"};
    }
    if (holds(of.type, call.arithmetic)) return std::nullopt;
    // A weight gradient may overflow only together with the values of earlier micro-batches.
    const std::optional<double> value = computed_wide(call, step, output, element);
    if (!value || survives(*value, of.type)) return std::nullopt;
    return Unrounded{*value, of.type, program_.buffer(step.outputs[output]).field};
  }

  static std::optional<double> computed_wide(const graph::Call& call, const plan::Step& step,
                                             std::size_t output, std::size_t element) {
    UnroundedResults results;
    const std::span<const graph::Argument> outputs = results.compute(call, step);
    if (outputs.empty()) return std::nullopt;
    return widened(outputs[output], call.ctx)[element];
  }

  /// Adds the rows of the values on a token axis.
  void add_rows(const plan::Step& step, const graph::Call& call, const std::vector<double>& values) {
    const std::vector<Dim>& dims = program_.buffer(step.outputs[output_]).shape.dims();
    if (dims.empty() || dims[0].axis != Axis::tokens || call.extent.tokens == 0) return;
    const std::size_t per_token = values.size() / static_cast<std::size_t>(call.extent.tokens);
    for (std::size_t r = 0; r < call.extent.rows.size(); ++r) {
      const Row& row = call.extent.rows[r];
      const auto begin =
          values.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(row.begin) * per_token);
      const auto end = begin + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(row.length) * per_token);
      if (std::any_of(begin, end, [](double x) { return !std::isfinite(x); })) {
        const std::int64_t index = first_row_ + call.extent.first_row + static_cast<std::int64_t>(r);
        if (found_.rows.empty() || found_.rows.back() != index) found_.rows.push_back(index);
      }
    }
  }

  const Executor& executor_;
  const plan::Program& program_;
  const std::int64_t& first_row_;
  bool ends_;
  const plan::Step* where_ = nullptr;
  std::size_t output_ = 0;
  bool done_ = false;      // with this micro-batch
  bool here_ = false;      // found in this micro-batch
  RepeatedStep repeated_;  // operands of the step that runs
  NonFinite found_;
};

namespace {

/// Makes an observer the only one while it lives.
class Alone {
 public:
  Alone(Executor& executor, StepObserver& observer)
      : executor_(executor), others_(executor.exchange({&observer})) {}
  ~Alone() { executor_.exchange(std::move(others_)); }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

 private:
  Executor& executor_;
  std::vector<StepObserver*> others_;
};

}  // namespace

std::optional<NonFinite> find_first_non_finite(Executor& executor, const std::int64_t& first_row,
                                               const std::function<void()>& again, bool ends) {
  NonFiniteSearch search(executor, first_row, ends);
  const Alone alone(executor, search);
  again();
  return search.found();
}

NonFiniteWatch::NonFiniteWatch(Executor& executor, const std::int64_t& first_row)
    : executor_(executor), search_(std::make_unique<NonFiniteSearch>(executor, first_row, false)) {
  executor.attach(*search_);
}

NonFiniteWatch::~NonFiniteWatch() {
  executor_.detach(*search_);
}

std::optional<NonFinite> NonFiniteWatch::found() const {
  return search_->found();
}

}  // namespace mantissa::runtime
