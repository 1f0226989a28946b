// Findings of gradients that differ from those of the same step in f32.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "mantissa/core/base/quantities.h"
#include "mantissa/lab/audit/value_findings.h"
#include "mantissa/precision/policy/glob.h"
#include "mantissa/train/steps/health_watch.h"

namespace mantissa::lab {
namespace {

/// A gradient in a step, with a figure of it.
struct Worst {
  const ParameterSeries* parameter = nullptr;
  const GradientStep* step = nullptr;
  double figure = 0;
  std::vector<std::string> names = {};  // of all parameters above the limit
};

/// Returns the gradient with the largest figure of those above the limit, which may depend on the gradient.
template <class Measure, class Limit>
Worst worst_of(const Audit& audit, const Measure& measure, const Limit& limit) {
  Worst worst;
  for (const ParameterSeries& p : audit.weights) {
    bool above = false;
    for (const GradientStep& g : p.gradient_steps) {
      const double figure = measure(g);
      if (!limit(g)) continue;
      above = true;
      if (worst.step == nullptr || figure > worst.figure)
        worst.parameter = &p, worst.step = &g, worst.figure = figure;
    }
    if (above) worst.names.push_back(p.name);
  }
  return worst;
}

void report(const Audit& audit, const Worst& w, std::string text, double share, std::vector<Finding>& found) {
  Finding& f = found.emplace_back();
  f.kind = "gradient";
  f.scope = precision::rule_scope(w.parameter->name);
  f.op = "gradient";
  f.pass = "backward";
  f.step = w.step->step;
  f.share = share;
  f.severity = 45;
  f.evidence = {{"vanished", w.step->vanished},
                {"zeros", w.step->zeros},
                {"error", w.step->error},
                {"cosine", w.step->cosine},
                {"rms_f32", w.step->rms},
                {"median_error", audit.median_gradient_error},
                {"expected_error", w.step->expected},
                {"parameters", static_cast<double>(w.names.size())}};
  f.text = std::move(text);
  if (w.names.size() > 1)
    f.text += fmt::format("; {} parameters are affected: {}", w.names.size(), train::patterns_of(w.names));
}

/// Returns true if most parameters of a step have an error above `factor` times what their operands explain.
bool most_unexplained(const Audit& audit, double factor) {
  std::map<std::int64_t, std::pair<std::size_t, std::size_t>> counts;  // above, all
  for (const ParameterSeries& p : audit.weights) {
    for (const GradientStep& g : p.gradient_steps) {
      auto& [above, all] = counts[g.step];
      above += g.error > std::min(1.0, factor * g.expected) ? 1 : 0;
      ++all;
    }
  }
  return std::ranges::any_of(counts, [](const auto& c) { return 2 * c.second.first > c.second.second; });
}

/// Returns what the routers of a mixture of experts may have to do with the gradients of a step, or "": no
/// bound of operands covers a token that has other experts.
std::string changed_experts(const Audit& audit, std::int64_t step) {
  std::int64_t tokens = 0, changed = 0;
  for (const RouterSeries& r : audit.routers) {
    for (const RouterStep& s : r.steps) {
      if (s.step != step) continue;
      tokens += s.tokens;
      changed += s.changed;
    }
  }
  if (changed == 0) return "";
  return fmt::format(
      "; routers chose other experts than in f32 for {} of the tokens of that step, which operands do not explain and may "
      "be the cause",
      percent_text(static_cast<double>(changed) / static_cast<double>(tokens)));
}

}  // namespace

void find_in_gradients(const Audit& audit, const Thresholds& t, std::vector<Finding>& found) {
  const Worst vanished = worst_of(
      audit, [](const GradientStep& g) { return g.vanished; },
      [&](const GradientStep& g) { return g.vanished > t.underflow; });
  if (vanished.step != nullptr) {
    report(audit, vanished,
           fmt::format(
               "{} of the gradient of {} is zero, but not in the same step in f32 (step {}); the error of a "
               "gradient is {} of its rms in the median",
               percent_text(vanished.figure), vanished.parameter->name, vanished.step->step,
               percent_text(audit.median_gradient_error)),
           vanished.figure, found);
    return;
  }
  const auto beyond = [&](double factor, double least) {
    return worst_of(
        audit, [](const GradientStep& g) { return g.times_expected(); },
        [=](const GradientStep& g) { return g.error > std::min(1.0, std::max(least, factor * g.expected)); });
  };
  const Worst wrong =
      most_unexplained(audit, t.gradient) ? beyond(t.gradient, 0) : beyond(5 * t.gradient, 0.5);
  if (wrong.step == nullptr) return;
  report(audit, wrong,
         fmt::format("the gradient of {} differs from that of the same step in f32 by {} of its rms (step "
                     "{}), and operands on its path, mostly in {}, explain about {}; the median over all "
                     "parameters is {}",
                     wrong.parameter->name, percent_text(wrong.step->error), wrong.step->step,
                     wrong.step->coarsest, percent_text(std::min(1.0, wrong.step->expected)),
                     percent_text(audit.median_gradient_error)) +
             changed_experts(audit, wrong.step->step),
         0, found);
}

}  // namespace mantissa::lab
