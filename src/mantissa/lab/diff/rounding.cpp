#include "mantissa/lab/diff/rounding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/base/counted.h"
#include "mantissa/base/error.h"
#include "mantissa/convert/origin.h"
#include "mantissa/lab/diff/trace_order.h"
#include "mantissa/precision/policy.h"

namespace mantissa::lab {
namespace {

constexpr double kGrowth = 4;  // see rounding.h

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
    constexpr double kFourBits = 0.25;  // e2m1 has one mantissa bit
    const bool four = compute->block == BlockFormat::mxfp4 || compute->block == BlockFormat::nvfp4;
    const Scalar element = compute->block == BlockFormat::mxfp8 ? Scalar::e4m3 : Scalar::e5m2;
    roundoff = four ? kFourBits : unit_roundoff(element);
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

 private:
  void include(const precision::Fields& fields) {
    if (fields.compute) values.include(Unit(*fields.compute));
    if (fields.accumulate) sums.include(Unit(*fields.accumulate));
  }
};

/// Returns true for the tensors that are judged: those of the forward pass, except the loss, where errors
/// cancel.
bool is_forward(std::string_view name) {
  return is_forward_value(name) || name == "logits" || name == "log_probs";
}

double relative_rms(const convert::ElementDifferences& e) {
  return e.sum_squares_a > 0 ? std::sqrt(e.sum_squares / e.sum_squares_a) : (e.sum_squares > 0 ? 1 : 0);
}

double largest_dimension(const std::vector<std::int64_t>& shape) {
  return shape.empty() ? 1 : static_cast<double>(*std::ranges::max_element(shape));
}

/// Returns A of rounding.h for the values `name`, from the log-sum-exps in one of the files.
double sharpness(const std::string& name, const io::WeightFiles& a, const io::WeightFiles& b) {
  if (traced_op(name).op != "attention") return 0;
  const std::string exps = name + ".lse";
  const io::WeightFiles& files = a.find(exps) != nullptr ? a : b;
  const io::TensorInfo* stored = files.find(exps);
  if (stored == nullptr || stored->count() == 0 || !io::scalar_of(stored->dtype)) return 0;
  std::vector<double> values(static_cast<std::size_t>(stored->count()));
  files.read_f64(exps, values);
  const double log_rows = std::log(static_cast<double>(stored->shape.empty() ? 1 : stored->shape.front()));
  double squares = 0;
  std::size_t count = 0;
  for (const double lse : values) {
    if (!std::isfinite(lse)) continue;  // a row without a score
    const double size = std::max(0.0, std::abs(lse) - log_rows);
    squares += size * size;
    ++count;
  }
  if (count == 0) return 0;
  const double size = std::sqrt(squares / static_cast<double>(count));
  return std::min(size, std::sqrt(size * log_rows));
}

}  // namespace

std::optional<RoundingVerdict> judge_rounding(const convert::TensorDifferences& differences,
                                              const io::WeightFiles& a, const io::WeightFiles& b) {
  const bool have_values = std::ranges::any_of(a.tensors(), [&](const io::TensorInfo& t) {
    return is_forward_value(t.name) && b.find(t.name) != nullptr;
  });
  if (!have_values) return std::nullopt;
  Units units;
  units.include(a);
  units.include(b);
  RoundingVerdict verdict;
  verdict.unit = units.values.name;
  double before = 0, terms = 1, closest = 0;
  std::size_t not_compared = 0;
  for (const convert::DifferentTensor& t : differences.different) {
    if (!is_forward(t.name)) continue;
    not_compared += t.reordered() ? 1 : 0;
    if (!t.comparable) continue;
    if (t.unit) units.values.include(Unit(*t.unit));
    terms = std::max(terms, largest_dimension(t.a.shape));
    const double difference = relative_rms(t.elements);
    const double sharp = sharpness(t.name, a, b);
    const double allowance = (kGrowth + sharp) * before + (1 + sharp) * 2 * units.values.roundoff +
                             std::sqrt(2 * terms) * units.sums.roundoff;
    const bool beyond = difference > allowance || t.elements.nonfinite > 0;
    if (beyond || difference > closest * allowance) {
      closest = difference / allowance;
      verdict.explains = !beyond;
      verdict.name = t.name;
      verdict.difference = difference;
      verdict.allowance = allowance;
      verdict.unit = units.values.name;
      verdict.nonfinite = t.elements.nonfinite > 0;
    }
    if (beyond) break;
    before = std::max(before, difference);
  }
  verdict.not_compared = not_compared;
  return verdict;
}

std::string to_text(const RoundingVerdict& v) {
  const bool all = v.not_compared == 0;
  const std::string left_out =
      all ? ""
          : fmt::format("; {} of other shapes, not compared", counted(v.not_compared, "value", "is", "are"));
  if (v.name.empty()) return "no compared value of the forward pass differs" + left_out;
  const TracedOp op = traced_op(v.name);
  const std::string place = op.op.empty() ? op.scope : op.scope + " " + op.op;
  if (v.nonfinite) return fmt::format("beyond rounding: {} has inf or NaN on one side only", place);
  const std::string numbers =
      fmt::format("relative RMS difference {:.2g}, rounding to {} explains up to {:.2g}", v.difference,
                  v.unit, v.allowance);
  if (v.explains) {
    return fmt::format("rounding explains every {}difference; closest is {}: {}{}", all ? "" : "other ",
                       place, numbers, left_out);
  }
  return fmt::format("beyond rounding: the first such op is {}: {}", place, numbers);
}

}  // namespace mantissa::lab
