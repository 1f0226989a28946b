// Findings of gradients that differ from those of the same step in f32.
#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/quantities.h"
#include "mantissa/lab/audit/value_findings.h"

namespace mantissa::lab {

void find_in_gradients(const Audit& audit, const Thresholds& t, std::vector<Finding>& found) {
  struct Worst {
    const ParameterSeries* parameter = nullptr;
    const GradientStep* step = nullptr;
    double figure = 0;
    std::size_t parameters = 0;
  };
  const auto worst_of = [&](const auto& measure, double limit) {
    Worst worst;
    for (const ParameterSeries& p : audit.weights) {
      const GradientStep* most = nullptr;
      for (const GradientStep& g : p.gradient_steps) {
        if (measure(g) > limit && (most == nullptr || measure(g) > measure(*most))) most = &g;
      }
      if (most == nullptr) continue;
      ++worst.parameters;
      if (measure(*most) > worst.figure) worst = {&p, most, measure(*most), worst.parameters};
    }
    return worst;
  };
  const auto report = [&](const Worst& w, const std::string& text) {
    Finding& f = found.emplace_back();
    f.kind = "gradient";
    f.scope = w.parameter->name.substr(0, w.parameter->name.rfind('.'));
    f.op = "gradient";
    f.pass = "backward";
    f.step = w.step->step;
    f.severity = 45;
    f.evidence = {{"vanished", w.step->vanished},
                  {"zeros", w.step->zeros},
                  {"error", w.step->error},
                  {"cosine", w.step->cosine},
                  {"rms_f32", w.step->rms},
                  {"median_error", audit.median_gradient_error},
                  {"expected_error", audit.expected_gradient_error}};
    f.text = text;
    if (w.parameters > 1) f.text += fmt::format("; {} parameters are affected", w.parameters);
    return &f;
  };
  const Worst vanished = worst_of([](const GradientStep& g) { return g.vanished; }, t.underflow);
  if (vanished.parameter != nullptr) {
    report(vanished,
           fmt::format(
               "{} of the gradient of {} is zero, but not in the same step in f32 (step {}); the error of a "
               "gradient is {} of its rms in the median",
               percent_text(vanished.figure), vanished.parameter->name, vanished.step->step,
               percent_text(audit.median_gradient_error)))
        ->share = vanished.figure;
    return;
  }
  const double explained = audit.expected_gradient_error;
  const double one = std::min(1.0, std::max(0.5, 5 * t.gradient * explained));
  Worst wrong = worst_of([](const GradientStep& g) { return g.error; }, one);
  if (wrong.parameter == nullptr && audit.median_gradient_error > std::min(1.0, t.gradient * explained))
    wrong = worst_of([](const GradientStep& g) { return g.error; }, audit.median_gradient_error);
  if (wrong.parameter == nullptr) return;
  report(wrong,
         fmt::format("the gradient of {} differs from that of the same step in f32 by {} of its rms (step "
                     "{}); the median over all parameters is {}, and operands of {} explain about {}",
                     wrong.parameter->name, percent_text(wrong.step->error), wrong.step->step,
                     percent_text(audit.median_gradient_error), audit.coarsest,
                     percent_text(std::min(1.0, explained))));
}

}  // namespace mantissa::lab
