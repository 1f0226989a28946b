#include "mantissa/lab/audit/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/core/base/counted.h"
#include "mantissa/lab/audit/value_findings.h"
#include "mantissa/precision/policy/glob.h"
#include "mantissa/train/steps/health_watch.h"

namespace mantissa::lab {
namespace {

/// Removes the findings of single values that a finding about several parameters repeats, and adds their
/// shares to its evidence, by scope.
void absorb_values(Finding& pooled, const train::HealthFinding& health, const Audit& audit,
                   std::vector<Finding>& found) {
  const auto is_of = [](const std::string& scope) {
    return [&scope](const std::string& name) { return name.starts_with(scope + "."); };
  };
  const auto repeats = [&](const Finding& f) {
    if (f.kind != pooled.kind || f.parameters_op != pooled.op) return false;
    // A tied weight has the name of another scope.
    const bool tied =
        std::ranges::none_of(audit.weights, is_of(f.scope), [](const ParameterSeries& p) { return p.name; });
    return tied || std::ranges::any_of(health.names, is_of(f.scope));
  };
  for (const Finding& f : found) {
    if (!repeats(f)) continue;
    pooled.evidence["share of " + f.scope] = f.share;
    pooled.severity = std::max(pooled.severity, f.severity);
  }
  std::erase_if(found, repeats);
}

/// Findings of weights: the sentences and cures of a run's end.
void find_lost_updates(const Audit& audit, const config::RunConfig& config, const Thresholds& t,
                       std::vector<Finding>& found) {
  train::HealthWatch watch(config.policy,
                           {.updates_lost = t.updates_lost, .saturated = t.saturation, .vanished = 1});
  for (const StepPoint& p : audit.points) {
    train::StepReport r;
    r.step = p.step;
    r.lr = p.lr;
    for (const ParameterSeries& w : audit.weights) {
      for (const auto& [step, health] : w.steps) {
        if (step == p.step) r.health.push_back(health);
      }
    }
    watch.see(r, {p.stage, p.part});
  }
  for (const train::HealthFinding& h : watch.findings()) {
    // The divergence from the reference alone has gradients, far below any update that is kept.
    if (h.kind == "rounded_away" && !audit.uninformative.empty()) continue;
    Finding f;
    f.kind = h.kind;
    f.scope = precision::rule_scope(h.worst);
    f.op = h.op;
    f.pass = h.pass;
    f.step = h.first;
    f.share = h.share;
    f.severity = severity_of(h.kind, h.share);
    f.text = h.warning.text;
    f.evidence = {{"share", h.share},
                  {"worst_share", h.worst_share},
                  {"weight_absmax", h.absmax},
                  {"gradient_absmax", h.gradient},
                  {"lr", h.lr}};
    if (!h.warning.cures.empty()) {
      f.cure = h.warning.cures.front();
      std::erase(f.cure->arguments, "--overwrite");  // an audit writes no run
      f.rule = rule_at(*f.cure, f.scope);
    }
    absorb_values(f, h, audit, found);
    found.push_back(std::move(f));
  }
}

void find_scale_fall(const Audit& audit, const Thresholds& t, std::vector<Finding>& found) {
  double top = 0;
  std::int64_t first = 0;
  for (const StepPoint& p : audit.points) {
    if (!p.loss_scale) continue;
    if (*p.loss_scale >= top) top = *p.loss_scale, first = p.step;
    if (top / *p.loss_scale < t.scale_fall || *p.loss_scale > t.scale_low) continue;
    Finding f;
    f.kind = "scale_collapse";
    f.pass = "backward";
    f.step = first;
    f.severity = 75;
    f.evidence = {{"from", top}, {"to", *p.loss_scale}};
    f.text = fmt::format("the loss scale fell from {:g} to {:g} in {} steps", top, *p.loss_scale,
                         p.step - first + 1);
    found.push_back(std::move(f));
    return;
  }
}

/// Finds a run that learns nothing at a high learning rate.
void find_learning_rate(const Audit& audit, std::int64_t vocabulary, std::vector<Finding>& found) {
  constexpr std::size_t kFewest = 8;  // applied steps
  std::vector<const StepPoint*> applied;
  for (const StepPoint& p : audit.points) {
    if (!p.skipped && std::isfinite(p.loss)) applied.push_back(&p);
  }
  if (applied.size() < kFewest || !has_large_rate(audit)) return;
  double sum = 0;
  const std::size_t late = applied.size() / 4;
  for (std::size_t i = applied.size() - late; i < applied.size(); ++i) sum += applied[i]->loss;
  const double last = sum / static_cast<double>(late), first = applied.front()->loss;
  const double chance = std::log(static_cast<double>(vocabulary));
  if (last < first && last < 0.98 * chance) return;
  Finding f;
  f.kind = "learning_rate";
  f.pass = "update";
  f.step = applied.front()->step;
  f.severity = 85;
  double lr = 0;
  for (const StepPoint* p : applied) lr = std::max(lr, p->lr);
  f.evidence = {{"first_loss", first}, {"last_loss", last}, {"chance_loss", chance}, {"lr", lr}};
  f.text = fmt::format(
      "at a learning rate of {:g} the model does not learn: the loss is {:.4g} at first and "
      "{:.4g} at the end, and {:.4g} for ids drawn at random",
      lr, first, last, chance);
  found.push_back(std::move(f));
}

/// Keeps the worst findings of a kind in a pass, and tells how many more there are.
void shorten(std::vector<Finding>& found) {
  constexpr std::size_t kMost = 3;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto same = [&](const Finding& f) { return f.kind == found[i].kind && f.pass == found[i].pass; };
    const auto before = static_cast<std::size_t>(
        std::count_if(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(i), same));
    const auto after = static_cast<std::size_t>(
        std::count_if(found.begin() + static_cast<std::ptrdiff_t>(i) + 1, found.end(), same));
    if (before + 1 != kMost || after == 0) continue;
    found[i].text += fmt::format("; {} the same problem", counted(after, "more place", "has", "have"));
    const Finding kept = found[i];
    found.erase(std::remove_if(found.begin() + static_cast<std::ptrdiff_t>(i) + 1, found.end(),
                               [&](const Finding& f) { return f.kind == kept.kind && f.pass == kept.pass; }),
                found.end());
  }
}

}  // namespace

std::string pattern_of_rule(const std::string& rule) {
  constexpr std::string_view kMatch = "{match = \"";
  if (!rule.starts_with(kMatch)) return rule.substr(0, rule.find(": "));
  return rule.substr(kMatch.size(), rule.find('"', kMatch.size()) - kMatch.size());
}

std::optional<std::string> rule_at(const Cure& cure, const std::string& scope) {
  const std::vector<std::string>& words = cure.arguments;
  std::optional<std::string> first;
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i - 1] != "--rule") continue;
    if (precision::scope_match(pattern_of_rule(words[i]), scope)) return words[i];
    if (!first && cure.tested) first = words[i];
  }
  return first;
}

Finding nonfinite_finding(const train::Overflow& overflow, std::int64_t step) {
  Finding f;
  f.kind = "nonfinite";
  f.scope = overflow.scope;
  f.op = overflow.op;
  f.pass = overflow.pass;
  f.step = step;
  f.rows = overflow.origins;
  f.severity = overflow.forward ? 100 : 90;
  for (std::size_t i = 0; i < overflow.inputs.size(); ++i) {
    const runtime::ReadRange& in = overflow.inputs[i];
    f.evidence[in.name.empty() ? fmt::format("operand_{}_absmax", i + 1) : in.name + "_absmax"] = in.absmax;
  }
  std::vector<std::string> arguments = overflow.cure;
  if (arguments.empty() && !overflow.scope.empty()) arguments = {"--rule", overflow.scope + ": compute=f32"};
  if (!arguments.empty() && arguments.front() == "--rule") f.rule = arguments.at(1);
  if (!arguments.empty()) f.cure = Cure{arguments};
  f.text = fmt::format("step {}: {}; data {}", step, overflow.what, overflow.rows);
  return f;
}

bool scale_searches(const Audit& audit) {
  constexpr double kHigh = 65536;  // where a run usually begins
  if (audit.points.empty() || !audit.stopped.empty()) return false;
  if (std::ranges::all_of(audit.points, &StepPoint::skipped)) return false;  // it has not found one
  const StepPoint &first = audit.points.front(), &last = audit.points.back();
  if (!first.loss_scale || !last.loss_scale || *last.loss_scale > *first.loss_scale) return false;
  // A hysteresis keeps the scale at the first overflows.
  if (*last.loss_scale == *first.loss_scale && first.step != 1) return false;
  return !last.skipped || *last.loss_scale >= kHigh;
}

bool has_large_rate(const Audit& audit) {
  for (const StepPoint& p : audit.points) {
    std::int64_t matrices = 0, large = 0;
    for (const ParameterSeries& w : audit.weights) {
      for (const auto& [step, health] : w.steps) {
        if (step != p.step || health.vector) continue;
        ++matrices;
        large += p.lr > 0.1 * health.weight_absmax ? 1 : 0;
      }
    }
    if (2 * large > matrices) return true;
  }
  return false;
}

std::vector<Finding> find_problems(const Audit& audit, const config::RunConfig& config,
                                   std::int64_t vocabulary, const Thresholds& t) {
  std::vector<Finding> found;
  find_in_values(audit, t, found);
  find_stuck_states(audit, config, t, found);
  find_in_gradients(audit, t, found);
  find_lost_updates(audit, config, t, found);
  find_scale_fall(audit, t, found);
  find_learning_rate(audit, vocabulary, found);
  for (Finding& f : found) {
    if (f.evidence.empty()) f.evidence = {{"step", static_cast<double>(f.step)}};
    if (f.rule && !f.cure) f.cure = Cure{{"--rule", *f.rule}};
  }
  std::ranges::stable_sort(found, std::ranges::greater(), &Finding::severity);
  shorten(found);
  return found;
}

}  // namespace mantissa::lab
