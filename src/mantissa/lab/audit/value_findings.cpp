#include "mantissa/lab/audit/value_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/quantities.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/engine/runtime/nonfinite.h"
#include "mantissa/train/steps/health_watch.h"

namespace mantissa::lab {
namespace {

/// Returns "model.layers.3.mlp.down_proj matmul forward", with the operand's or result's name.
std::string place(const ValueSeries& v) {
  const bool main = v.name.empty() || v.name == v.op;
  return place_text(v.scope, v.op, v.pass) + (main ? "" : " (" + v.name + ")");
}

/// The same without the name.
std::string place_of_op(const ValueSeries& v) {
  return place_text(v.scope, v.op, v.pass);
}

/// Returns the name of the format to which a value is rounded, or of the card that sums it.
std::string_view format_of(const ValueSeries& v) {
  if (!v.card.empty()) return v.card;
  if (v.served != WeightFormat::none) return name(v.served);
  if (v.codes != StateCodes::none) return name(v.codes);
  return v.blocks ? traits(*v.blocks).name : name(v.rounded);
}

/// True if elements of the value share scales.
bool shares_scales(const ValueSeries& v) {
  return v.blocks || v.served != WeightFormat::none || v.codes != StateCodes::none;
}

/// The observed steps in which a problem must occur.
enum class Occurs : std::uint8_t {
  once,            // any one
  often,           // at least two, and a quarter of them
  often_or_first,  // the same, or the first: what its step loses is lost for good
};

/// Returns the op of the train::HealthFinding that counts the elements of a value, or "".
std::string parameters_op(const ValueSeries& v) {
  if (v.kind == plan::RoundingKind::reduce) return "reduce";
  if (v.kind == plan::RoundingKind::weight) return "matmul";
  return v.field == "grads" ? "gradient" : "";
}

/// Finds one kind of problem in values, one finding for the values that differ only in their layer.
class Search {
 public:
  Search(const Audit& audit, std::vector<Finding>& found)
      : audit_(audit), found_(found), searches_(scale_searches(audit)) {}

  /// `measure` returns a value's figure in a step, or null. Figures above `limit` are a problem; `write`
  /// completes the finding of the largest one.
  template <class Measure, class Write>
  void find(double limit, Occurs occurs, const Measure& measure, const Write& write) {
    struct Worst {
      std::string key;
      const ValueSeries* value;
      const ValueStep* step;
      std::int64_t first;
      double figure;
      std::vector<std::string> scopes;
      bool alone;  // in the first step only
    };
    // What the first step alone loses is reported if it is most of a value.
    constexpr double kMost = 0.9, kWrong = 0.25;
    std::vector<Worst> worst;
    for (const ValueSeries& v : audit_.values) {
      const ValueStep* most = nullptr;
      double figure = 0;
      std::int64_t first = 0;
      std::size_t times = 0;
      for (const ValueStep& s : v.steps) {
        if (searches_ && v.pass == "backward" && skipped(s.step)) continue;
        const std::optional<double> here = measure(v, s);
        if (!here || !(*here > limit)) continue;
        ++times;
        if (first == 0) first = s.step;
        if (most == nullptr || *here > figure) most = &s, figure = *here;
      }
      if (most == nullptr) continue;
      // Under a delayed scale, the first step is unlike all others.
      const bool alike = v.steps.size() <= 2 && !(v.delayed && v.steps.front().step == 1 && times == 1);
      const bool few = !alike && times < std::max<std::size_t>(2, v.steps.size() / 4);
      const ValueStep& begin = v.steps.front();
      // Small gradients that become zero beside large ones matter little.
      const bool much = figure > kMost || begin.error_rms.value_or(0) > kWrong;
      bool alone = few && occurs == Occurs::often_or_first && first == begin.step && much;
      // Delayed scales are 1 in the first step, which is a problem only if its gradients are lost.
      if (v.delayed && audit_.no_reference.empty()) alone = alone && loses_gradients(begin.step);
      if (few && occurs != Occurs::once && !alone) continue;
      const std::string key = fmt::format("{} {} {}", train::patterns_of({v.scope}), v.op, v.pass);
      auto group = std::ranges::find(worst, key, &Worst::key);
      if (group == worst.end()) {
        worst.push_back({key, &v, most, first, figure, {v.scope}, alone});
        continue;
      }
      if (std::ranges::find(group->scopes, v.scope) == group->scopes.end()) group->scopes.push_back(v.scope);
      group->first = std::min(group->first, first);
      group->alone = group->alone && alone;
      if (figure > group->figure) group->value = &v, group->step = most, group->figure = figure;
    }
    for (const Worst& w : worst) {
      Finding f;
      f.scope = w.value->scope;
      f.op = w.value->op;
      f.pass = w.value->pass;
      f.step = w.first;
      f.share = w.figure;
      f.parameters_op = parameters_op(*w.value);
      f.evidence = {{"absmax", w.step->absmax}, {"absmin", w.step->absmin}, {"rms", w.step->rms}};
      write(f, *w.value, *w.step, w.figure);
      if (w.alone) {
        f.text += fmt::format("; in step {} alone{}", w.first,
                              w.value->delayed ? ", in which its scale has no history and is 1" : "");
        f.evidence["steps"] = 1;
      }
      if (w.scopes.size() > 1) {
        f.text += fmt::format("; the same in {} more", counted(w.scopes.size() - 1, "layer"));
        const std::size_t at = f.rule ? f.rule->find(f.scope) : std::string::npos;
        if (at != std::string::npos) f.rule->replace(at, f.scope.size(), train::patterns_of({f.scope}));
      }
      found_.push_back(std::move(f));
    }
  }

 private:
  bool skipped(std::int64_t step) const {
    const auto point = std::ranges::find(audit_.points, step, &StepPoint::step);
    return point != audit_.points.end() && point->skipped;
  }

  /// Returns true if a gradient of the step is mostly zero or wrong, compared with f32.
  bool loses_gradients(std::int64_t step) const {
    constexpr double kZero = 0.25, kWrong = 0.9;
    return std::ranges::any_of(audit_.weights, [&](const ParameterSeries& p) {
      return std::ranges::any_of(p.gradient_steps, [&](const GradientStep& g) {
        return g.step == step && (g.vanished > kZero || g.error > kWrong);
      });
    });
  }

  const Audit& audit_;
  std::vector<Finding>& found_;
  bool searches_;
};

/// Returns the rule that raises the format of a value's rounding point.
std::optional<std::string> rule_for(const ValueSeries& v) {
  if (v.served != WeightFormat::none) return v.scope + ": weights=none";
  switch (v.kind) {
    case plan::RoundingKind::logits:
      return v.scope + ": output=f32";
    case plan::RoundingKind::accumulator:
      return v.scope + ": accumulate=f32";
    case plan::RoundingKind::interior:
      return runtime::interior_cure(v.scope, v.point).at(1);
    case plan::RoundingKind::normalized:
      return v.scope + ": norm_cast=after-gain";
    case plan::RoundingKind::reduce:
      return std::nullopt;  // a field of the whole run
    default:
      // The stored format of most values follows from the compute format of their scope.
      return fmt::format("{}: {}=f32", v.scope, v.field.empty() ? "compute" : v.field);
  }
}

void find_overflow(Search& search, const Thresholds& t) {
  search.find(
      t.overflow, Occurs::once,
      [](const ValueSeries&, const ValueStep& s) -> std::optional<double> {
        // A format without infinity, or a saturating one, stores the largest value: that is saturation.
        return s.inf + s.nan > 0 ? s.overflowed : std::nullopt;
      },
      [](Finding& f, const ValueSeries& v, const ValueStep&, double share) {
        f.kind = "overflow";
        f.severity = 80 + 10 * share;
        f.rule = rule_for(v);
        f.text = fmt::format("{} exceeds the range of {} in {} of its values", place(v), name(v.rounded),
                             percent_text(share));
      });
  search.find(
      0, Occurs::often_or_first,
      [&](const ValueSeries&, const ValueStep& s) -> std::optional<double> {
        // One channel that is too large can be most of a value.
        const bool loses = s.overflowed > t.saturation || s.error_rms > t.clipped;
        return s.inf + s.nan == 0 && loses ? s.overflowed : std::nullopt;
      },
      [&](Finding& f, const ValueSeries& v, const ValueStep& s, double share) {
        f.kind = "saturation";
        f.severity = severity_of(f.kind, share);
        f.rule = rule_for(v);
        if (s.error_rms) f.evidence["error_rms"] = *s.error_rms;
        f.text = fmt::format("{} of {} is beyond {:g}, the largest {}, and becomes that number",
                             percent_text(share), place(v), traits(v.rounded).max_finite, name(v.rounded));
        if (share <= t.saturation && s.error_rms) {
          const std::string error = *s.error_rms < 1 ? percent_text(*s.error_rms) + " of"
                                                     : fmt::format("{:.3g} times", *s.error_rms);
          f.text += fmt::format(": an rms error of {} the rms of the stored values", error);
        }
      });
}

void find_underflow(Search& search, const Thresholds& t) {
  search.find(
      t.underflow, Occurs::often_or_first,
      [&](const ValueSeries& v, const ValueStep& s) -> std::optional<double> {
        // HealthWatch finds those of sums over shards, for all parameters at once.
        if (v.kind == plan::RoundingKind::reduce) return std::nullopt;
        const bool blocks = shares_scales(v);
        return blocks && s.flushed <= t.vanished ? std::nullopt : s.flushed;
      },
      [](Finding& f, const ValueSeries& v, const ValueStep&, double share) {
        f.kind = "underflow";
        f.severity = severity_of(f.kind, share);
        f.rule = rule_for(v);
        f.evidence["flushed"] = share;
        f.text = fmt::format("{} of {} becomes zero: ", percent_text(share), place(v));
        if (v.flushes) {
          f.text += fmt::format("flush_subnormals makes numbers of {} below {:.2g} zero", name(v.rounded),
                                std::ldexp(1.0, traits(v.rounded).min_normal_exp));
        } else if (v.blocks && v.delayed) {
          f.text += fmt::format("the tensor's scale in {} does not fit its values", traits(*v.blocks).name);
        } else if (shares_scales(v)) {
          f.text +=
              fmt::format("larger values in the same block or tensor set its scale in {}", format_of(v));
        } else {
          f.text += fmt::format("{} has no number between 0 and {:.2g}", name(v.rounded), ulp(0, v.rounded));
        }
      });
}

/// Returns the error of a value in units of that of rounding it to bf16, which is uniform.
double times_bf16(const ValueStep& s) {
  return s.error_rms.value_or(0) / std::ldexp(1.0, -9) * std::sqrt(3.0);
}

void find_errors(Search& search, const Thresholds& t) {
  const double kMostInside = t.interior;
  search.find(
      t.bias, Occurs::often,
      [&](const ValueSeries& v, const ValueStep& s) -> std::optional<double> {
        if (!s.error_rms || *s.error_rms == 0 || v.elements < 4096) return std::nullopt;
        if (*s.flushed + *s.overflowed > 0.01) return std::nullopt;  // these values explain the bias
        if (plan::is_inside_step(v.kind) && times_bf16(s) > kMostInside) return std::nullopt;  // an `error`
        const double ratio = std::max(std::abs(*s.error_mean), std::abs(*s.error_inward)) / *s.error_rms;
        // Rounding f16 toward zero has a mean error of about 2^-12 of the value.
        constexpr double kNoticed = 0x1p-13;
        // Of a point inside an op: as much as storing the result in bf16 changes it.
        const double noticed = plan::is_inside_step(v.kind) ? 0x1p-9 : kNoticed;
        if (std::max(std::abs(*s.error_mean), std::abs(*s.error_inward)) < noticed) return std::nullopt;
        // Independent errors without a bias have a mean of about rms / √n.
        return ratio * std::sqrt(static_cast<double>(v.elements)) > 16 ? std::optional(ratio) : std::nullopt;
      },
      [](Finding& f, const ValueSeries& v, const ValueStep& s, double ratio) {
        f.kind = "bias";
        f.share = 0;
        f.severity = 20 + 10 * ratio;
        f.rule = rule_for(v);
        f.evidence["error_mean"] = *s.error_mean;
        f.evidence["error_inward"] = *s.error_inward;
        f.evidence["error_rms"] = *s.error_rms;
        const bool inward = std::abs(*s.error_inward) > std::abs(*s.error_mean);
        const char* where = !inward ? "" : *s.error_inward > 0 ? " toward zero" : " away from zero";
        f.text = fmt::format(
            "the rounding of {} to {} is biased{}: its mean error is {:.2g} of the value's rms, "
            "{:.0f} % of its rms error, and adds up over layers and steps",
            place(v), format_of(v), where, inward ? *s.error_inward : *s.error_mean, 100 * ratio);
      });
  search.find(
      t.interior, Occurs::often,
      [](const ValueSeries& v, const ValueStep& s) -> std::optional<double> {
        const bool sums = v.kind == plan::RoundingKind::accumulator || v.kind == plan::RoundingKind::logits ||
                          v.kind == plan::RoundingKind::interior || v.kind == plan::RoundingKind::reduce;
        if (!s.error_rms || !sums) return std::nullopt;
        return times_bf16(s);
      },
      [](Finding& f, const ValueSeries& v, const ValueStep& s, double ratio) {
        f.kind = "error";
        if (v.kind == plan::RoundingKind::interior) f.op = v.point;
        f.severity = 30 + std::min(20.0, ratio);
        f.rule = rule_for(v);
        f.share = 0;  // it counts no elements
        f.evidence["error_rms"] = *s.error_rms;
        f.evidence["times_bf16"] = ratio;
        const std::string what =
            v.kind == plan::RoundingKind::reduce ? "sums over shards of the gradient " + v.name : v.point;
        if (v.kind == plan::RoundingKind::reduce) f.cure = Cure{{"--set", "precision.reduce=f32"}};
        f.text = fmt::format(
            "computing the {} of {} in {} changes the result by {} of its rms, {:.0f} times the error of "
            "storing it in bf16",
            what, v.kind == plan::RoundingKind::reduce ? v.scope : place_of_op(v), format_of(v),
            percent_text(*s.error_rms), ratio);
      });
  search.find(
      t.cancellation, Occurs::often, [](const ValueSeries&, const ValueStep& s) { return s.cancelled; },
      [](Finding& f, const ValueSeries& v, const ValueStep&, double share) {
        f.kind = "cancellation";
        f.severity = 10 + 10 * share;
        f.text = fmt::format(
            "{} of the sums in {} are below 1/64 of their terms, so 6 of their leading bits cancel",
            percent_text(share), place(v));
      });
}

}  // namespace

/// Values that are cut off are lost in full, those that become zero are the smallest ones. So a small share
/// of the first outranks any share of the second.
double severity_of(std::string_view kind, double share) {
  if (kind == "saturation") return 60.5 + 15 * share;
  if (kind == "rounded_away") return 50 + 20 * share;
  return 40 + 20 * share;
}

void find_in_values(const Audit& audit, const Thresholds& t, std::vector<Finding>& found) {
  Search search(audit, found);
  find_overflow(search, t);
  find_underflow(search, t);
  find_errors(search, t);
}

}  // namespace mantissa::lab
