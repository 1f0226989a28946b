#include "mantissa/lab/diff/rounding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/error.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/numeric/card_sum.h"
#include "mantissa/files/convert/origin.h"
#include "mantissa/lab/diff/attention_bounds.h"
#include "mantissa/lab/diff/formats.h"
#include "mantissa/lab/diff/trace_order.h"
#include "mantissa/precision/policy/accumulate.h"
#include "mantissa/precision/policy/policy.h"

namespace mantissa::lab {
namespace {

constexpr double kGrowth = 4;  // see rounding.h

double half_step(WeightFormat format) {
  switch (format) {
    case WeightFormat::none:
      return 0;
    case WeightFormat::q8_0:
      return 0.5 / 127;
    case WeightFormat::q4_0:
    case WeightFormat::int4_32:
      return 0.5 / 7;
    case WeightFormat::nf4:
      return 0.16;  // between the two least numbers
    case WeightFormat::mxfp4:
    case WeightFormat::nvfp4:
      return 0.25;
  }
  return 0;
}

/// A format by its unit roundoff.
struct Unit {
  std::string_view name = "f64";
  double roundoff = unit_roundoff(Scalar::f64);

  Unit() = default;
  explicit Unit(Scalar format) : name(mantissa::name(format)), roundoff(unit_roundoff(format)) {}
  /// The operands of products.
  explicit Unit(const precision::Compute& compute)
      : name(compute->name),
        roundoff(std::pow(unit_roundoff(compute->factor.format), compute->factor.parts)) {
    if (compute->scaled != precision::Scaled::block) return;
    roundoff = std::ldexp(0.5, -traits(compute->block).mantissa_bits);
  }
  /// Weights that are rounded for serving: half of the largest step, relative to the largest of a block.
  explicit Unit(WeightFormat format) : name(mantissa::name(format)), roundoff(half_step(format)) {}
  /// The sums of products of factors in `factor`. A card truncates: its errors are twice as large as those
  /// of rounding to nearest, and do not cancel, for which they count twice.
  Unit(const Accumulator& sums, const precision::Compute& factor) : Unit(sums.format) {
    const Scalar plain = factor->factor.format;
    const bool blocks = factor->scaled == precision::Scaled::block;
    const std::optional<CardSum> of =
        blocks ? find_card_sum(sums, factor->block, factor->block) : find_card_sum(sums, plain, plain);
    if (!of) return;
    name = mantissa::name(sums.card);
    roundoff = std::ldexp(1.0, 1 - std::min(of->bits, of->result_bits));
  }

  void include(const Unit& other) {
    if (other.roundoff > roundoff) *this = other;
  }
};

/// The coarsest formats so far: of values and operands, and of sums.
struct Units {
  Unit values, sums;

  /// Adds the formats of the policy that wrote the file and of its rules, or f32.
  void include(const io::WeightFiles& files) {
    const auto line = files.metadata().find(convert::kPolicyKey);
    precision::Policy policy;
    try {
      if (line != files.metadata().end()) policy = precision::Policy::parse(line->second);
    } catch (const Error&) {
      // A policy of another version counts as f32.
    }
    include(policy.fields());
    for (const precision::Rule& rule : policy.rules()) include(rule.fields);
  }

  /// Adds the formats of one op.
  void include(const ValueFormats& op) {
    for (const std::string* named : {&op.store, &op.multiply, &op.interior, &op.output}) {
      for (const std::string_view format : split_words(*named, "·>")) include_named(format, values);
    }
    const std::string_view named = std::string_view(op.accumulate).substr(0, op.accumulate.find('/'));
    if (!parse_card(named.substr(0, named.find(':')))) return include_named(named, sums);
    for (const std::string_view factor : split_words(op.multiply, "·")) {
      const auto compute = precision::Compute::parse(factor);
      if (compute) sums.include(Unit(precision::parse_accumulator(named), *compute));
    }
  }

 private:
  /// Formats without a roundoff (int32) change nothing.
  static void include_named(std::string_view format, Unit& unit) {
    if (const auto compute = precision::Compute::parse(format)) {
      unit.include(Unit(*compute));
    } else if (const auto plain = parse_scalar(format)) {
      unit.include(Unit(*plain));
    } else if (const auto weights = parse_weight_format(format)) {
      unit.include(Unit(*weights));
    }
  }
  void include(const precision::Fields& fields) {
    if (fields.compute) values.include(Unit(*fields.compute));
    if (fields.weights) values.include(Unit(*fields.weights));
    if (fields.accumulate)
      sums.include(
          Unit(*fields.accumulate, fields.compute ? *fields.compute : *precision::Compute::parse("bf16")));
  }
};

/// Returns true for the tensors that are judged: those of the forward pass, except the loss, where errors
/// cancel.
bool is_forward(std::string_view name) {
  return is_forward_value(name) || name == "logits" || name == "log_probs";
}

/// Returns "f32 and h100" for the first tensor whose sums have other formats, or "" if there is none or
/// another format of a tensor differs, too.
std::string different_accumulators(const TraceFormats& a, const TraceFormats& b) {
  std::string names;
  for (const auto& [name, of_a] : a) {
    const auto found = b.find(name);
    if (found == b.end() || found->second == of_a) continue;
    ValueFormats with = found->second;
    with.accumulate = of_a.accumulate;
    if (!(with == of_a)) return "";
    if (names.empty()) names = fmt::format("{} and {}", of_a.accumulate, found->second.accumulate);
  }
  return names;
}

double largest_dimension(const std::vector<std::int64_t>& shape) {
  return shape.empty() ? 1 : static_cast<double>(*std::ranges::max_element(shape));
}

/// Judges the tensors of two traces in their order.
class Judge {
 public:
  Judge(const io::WeightFiles& a, const io::WeightFiles& b) : a_{a, formats_of(a)}, b_{b, formats_of(b)} {
    if (!a_.formats.empty() && !b_.formats.empty()) return;
    // Another program may round where the known formats do not.
    for (Side* side : {&a_, &b_}) {
      side->formats.clear();
      include_policy(*side);
    }
  }

  RoundingVerdict operator()(const convert::TensorDifferences& differences, bool have_values) {
    verdict_.forward = have_values;
    verdict_.accumulators = different_accumulators(a_.formats, b_.formats);
    verdict_.unit = units_.values.name;
    for (const convert::DifferentTensor& t : differences.different) {
      if (is_forward(t.name)) verdict_.not_compared += t.reordered() ? 1 : 0;
      if (!t.comparable || !(is_forward(t.name) || is_gradient(t.name))) continue;
      include(t);
      if (is_gradient(t.name)) {
        judge_gradient(t);
      } else if (have_values) {
        judge_forward(t);
      } else {
        before_ = std::max(before_, relative_rms(t.elements));
      }
      if (t.name == "log_probs") of_probabilities_ = rms(t.elements);
    }
    return std::move(verdict_);
  }

 private:
  struct Side {
    const io::WeightFiles& files;
    TraceFormats formats;
    bool whole_policy = false;  // all formats of the policy are included
  };

  void include_policy(Side& side) {
    if (!side.whole_policy) units_.include(side.files);
    side.whole_policy = true;
  }

  /// Adds the formats of all ops: a gradient depends on them, whichever values the files share.
  void include_all() {
    for (Side* side : {&a_, &b_}) {
      include_policy(*side);
      for (const auto& [name, formats] : side->formats) units_.include(formats);
    }
  }

  /// Adds the formats of the tensor's op and its largest dimension.
  void include(const convert::DifferentTensor& t) {
    for (Side* side : {&a_, &b_}) {
      const auto formats = side->formats.find(t.name);
      if (formats == side->formats.end()) {
        include_policy(*side);
      } else {
        units_.include(formats->second);
      }
    }
    if (t.unit) units_.values.include(Unit(*t.unit));
    terms_ = std::max(terms_, largest_dimension(t.a.shape));
  }

  static double rms(const convert::ElementDifferences& e) {
    return e.measured == 0 ? 0 : std::sqrt(e.sum_squares / static_cast<double>(e.measured));
  }

  double sums() const { return std::sqrt(2 * terms_) * units_.sums.roundoff; }
  /// What values that are rounded alike on both sides add.
  double rounded(double before) const {
    const double u = units_.values.roundoff;
    if (verdict_.accumulators.empty()) return 2 * u;
    return std::min(2 * u, std::sqrt(6 * u * (kGrowth * before + sums())));
  }
  double allowance(double before, double sharp) const {
    const double rounded = this->rounded(before);
    return kGrowth * before + rounded + std::expm1(sharp * (before + rounded)) + sums();
  }

  void judge_forward(const convert::DifferentTensor& t) {
    if (!verdict_.explains) return;  // the values after a fault inherit it
    const double difference = relative_rms(t.elements), sharp = sharpness(t.name, a_.files, b_.files);
    const double allowed = allowance(before_, sharp);
    sharpest_ = std::max(sharpest_, sharp);
    const bool nonfinite = t.elements.nonfinite > 0, beyond = difference > allowed || nonfinite;
    if (beyond || difference > closest_ * allowed) {
      closest_ = difference / allowed;
      verdict_.explains = !beyond;
      verdict_.name = t.name;
      verdict_.difference = difference;
      verdict_.allowance = allowed;
      verdict_.unit = units_.values.name;
      verdict_.nonfinite = nonfinite;
    }
    // Gradients are computed from the values as they are, so a fault before them is not theirs.
    before_ = std::max(before_, difference);
  }

  void judge_gradient(const convert::DifferentTensor& t) {
    if (verdict_.gradients.empty()) {
      include_all();
      before_ = std::max(before_, of_probabilities_);
      if (before_ == 0 && !verdict_.forward) before_ = 2 * units_.values.roundoff + sums();
    }
    const double difference = relative_rms(t.elements);
    const double range = range_error(t.name, a_.files, b_.files, a_.formats, b_.formats);
    const double allowed = allowance(before_, sharpest_) + range;
    const bool nonfinite = t.elements.nonfinite > 0;
    GradientVerdict v{.name = t.name,
                      .explains = difference <= allowed && !nonfinite,
                      .difference = difference,
                      .allowance = allowed,
                      .unit = std::string(units_.values.name),
                      .nonfinite = nonfinite};
    if (v.explains) before_ = std::max(before_, difference);
    verdict_.gradients.push_back(std::move(v));
  }

  Side a_, b_;
  Units units_;
  double before_ = 0, terms_ = 1, closest_ = 0, sharpest_ = 0;
  double of_probabilities_ = 0;  // root mean square difference of log_probs
  RoundingVerdict verdict_;
};

std::string numbers_text(double difference, double allowance, std::string_view unit) {
  return fmt::format("relative RMS difference {:.2g}, rounding to {} explains up to {:.2g}", difference, unit,
                     allowance);
}

std::string forward_text(const RoundingVerdict& v) {
  if (!v.forward) return "the forward pass is not judged: the traces have no common values (--values '*')";
  const bool all = v.not_compared == 0;
  const std::string left_out =
      all ? ""
          : fmt::format("; {} of other shapes, not compared", counted(v.not_compared, "value", "is", "are"));
  if (v.name.empty()) return "no compared value of the forward pass differs" + left_out;
  const TracedOp op = traced_op(v.name);
  const std::string place = op.op.empty() ? op.scope : op.scope + " " + op.op;
  if (v.nonfinite) return fmt::format("beyond rounding: {} has inf or NaN on one side only", place);
  const std::string numbers = numbers_text(v.difference, v.allowance, v.unit);
  if (v.explains) {
    const std::string_view what = v.gradients.empty() ? "" : " of the forward pass";
    const std::string by =
        v.accumulators.empty() ? "" : fmt::format(" of the accumulator ({})", v.accumulators);
    return fmt::format("rounding{} explains every {}difference{}; closest is {}: {}{}", by,
                       all ? "" : "other ", what, place, numbers, left_out);
  }
  return fmt::format("beyond rounding: the first such op is {}: {}", place, numbers);
}

std::string gradients_text(const RoundingVerdict& v) {
  const std::vector<const GradientVerdict*> faulty = v.faulty_gradients();
  const auto parameter = [](const GradientVerdict& g) { return g.name.substr(g.name.find('.') + 1); };
  if (faulty.empty()) {
    const auto share = [](const GradientVerdict& g) { return g.difference / g.allowance; };
    const GradientVerdict& closest = *std::ranges::max_element(v.gradients, {}, share);
    return fmt::format("gradients: rounding explains all {}; closest is {}: {:.2g} of {:.2g}",
                       v.gradients.size(), parameter(closest), closest.difference, closest.allowance);
  }
  const GradientVerdict& first = *faulty.front();
  return fmt::format("gradients beyond rounding: {} of {} that differ; the first is {}: {}", faulty.size(),
                     v.gradients.size(), parameter(first),
                     first.nonfinite ? std::string("inf or NaN on one side only")
                                     : numbers_text(first.difference, first.allowance, first.unit));
}

}  // namespace

double relative_rms(const convert::ElementDifferences& e) {
  return e.sum_squares_a > 0 ? std::sqrt(e.sum_squares / e.sum_squares_a) : (e.sum_squares > 0 ? 1 : 0);
}

std::vector<const GradientVerdict*> RoundingVerdict::faulty_gradients() const {
  std::vector<const GradientVerdict*> faulty;
  for (const GradientVerdict& g : gradients) {
    if (!g.explains) faulty.push_back(&g);
  }
  return faulty;
}

bool RoundingVerdict::fault() const {
  return !explains || !faulty_gradients().empty();
}

std::optional<RoundingVerdict> judge_rounding(const convert::TensorDifferences& differences,
                                              const io::WeightFiles& a, const io::WeightFiles& b) {
  const auto have = [&](auto kind) {
    return std::ranges::any_of(
        a.tensors(), [&](const io::TensorInfo& t) { return kind(t.name) && b.find(t.name) != nullptr; });
  };
  const bool values = have(is_forward_value);
  if (!values && !have(is_gradient)) return std::nullopt;
  return Judge(a, b)(differences, values);
}

std::string to_text(const RoundingVerdict& v) {
  return v.gradients.empty() ? forward_text(v) : forward_text(v) + "\n" + gradients_text(v);
}

}  // namespace mantissa::lab
