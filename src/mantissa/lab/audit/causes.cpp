#include "mantissa/lab/audit/causes.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <tuple>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/words.h"
#include "mantissa/lab/audit/findings.h"
#include "mantissa/train/run/cures.h"
#include "mantissa/train/steps/health_watch.h"

namespace mantissa::lab {
namespace {

constexpr std::size_t kMostTried = 6;  // findings whose cures are tried

bool is_stop(const Finding& f) {
  return f.kind == "nonfinite" || f.kind == "scale_collapse" || f.kind == "learning_rate";
}

/// True if factors in 8 bits have no scale at the finding's place.
bool lacks_scales(const Finding& f, const precision::Policy& policy) {
  const auto pass = f.pass == "forward" ? precision::Pass::forward : precision::Pass::backward;
  for (const std::string_view operand : {"", "input", "weight", "gradient"}) {
    const precision::Resolved r = policy.resolve({f.scope, "matmul", pass, f.step - 1, operand});
    if (r.scaling == precision::Scaling::none && bytes_of(r.compute->factor.format) == 1) return true;
  }
  return false;
}

/// Returns the rule with every number in its scope replaced by "*": for all layers.
std::string for_all_layers(const std::string& rule, const std::string& scope) {
  const std::size_t at = rule.find(scope);
  std::string wide = rule;
  if (at != std::string::npos && !scope.empty()) wide.replace(at, scope.size(), train::patterns_of({scope}));
  return wide;
}

/// True if `wide` is `rule`, or the same for all layers or the whole model.
bool covers(const std::string& wide, const std::string& rule) {
  return wide == rule || wide == for_all_layers(rule, pattern_of_rule(rule)) ||
         (wide.starts_with("*: ") && rule.ends_with(wide.substr(1)));
}

/// Adds a rule, unless another one covers it, in place of those that it covers.
void add_rule(std::vector<std::string>& rules, const std::string& rule) {
  if (std::ranges::any_of(rules, [&](const std::string& r) { return covers(r, rule); })) return;
  std::erase_if(rules, [&](const std::string& r) { return covers(rule, r); });
  rules.push_back(rule);
}

std::vector<std::string> as_arguments(const std::vector<std::string>& rules) {
  std::vector<std::string> arguments;
  for (const std::string& rule : rules) arguments.insert(arguments.end(), {"--rule", rule});
  return arguments;
}

/// Returns the rules that the finding proposes.
std::vector<std::string> rules_of(const Finding& f) {
  std::vector<std::string> rules;
  if (f.cure) {
    const std::vector<std::string>& words = f.cure->arguments;
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (words[i - 1] == "--rule") rules.push_back(words[i]);
    }
  }
  if (rules.empty() && f.rule) rules.push_back(*f.rule);
  return rules;
}

/// Returns the cures of a finding that may work, the likeliest and smallest first.
std::vector<Cure> candidates_of(const Finding& f, const Audit& audit, const config::RunConfig& config) {
  std::vector<Cure> all;
  const auto add = [&](std::vector<std::string> arguments) {
    if (std::ranges::find(all, arguments, &Cure::arguments) == all.end())
      all.push_back({std::move(arguments)});
  };
  const std::optional<precision::ScalerOptions> scaler = config::scaler_options(config);
  const bool adapts = scaler && scaler->rule != precision::ScalerRule::constant;
  const bool range = f.kind == "overflow" || f.kind == "saturation" || f.kind == "underflow";
  const bool unscaled = (range || f.kind == "nonfinite") && lacks_scales(f, config.policy);
  if (unscaled) {
    add({"--rule", "*: scaling=delayed"});
    add({"--rule", "*: scaling=current"});  // its first step has scales, too
  }
  if (f.evidence.contains("steps")) add({"--rule", "*: scaling=current"});  // the first step has no history
  const bool small = std::ranges::any_of(audit.findings, [](const Finding& other) {
    return other.kind == "underflow" && other.pass == "backward";
  });
  if ((f.kind == "underflow" || (f.kind == "gradient" && small)) && f.pass == "backward" && !unscaled) {
    constexpr double kHigh = 0x1p24;  // above which the first steps of most runs overflow
    if (!scaler) add({"--set", "precision.loss_scale=dynamic"});
    if (!scaler) add({"--set", "precision.loss_scale=dynamic:2^24"});
    const std::vector<std::string> dynamic = {"--set", "precision.loss_scale.loss_scale=0"},
                                   high = {"--set", "precision.loss_scale.initial_scale_power=24"};
    if (scaler && !adapts) {
      add(dynamic);
      add({dynamic[0], dynamic[1], high[0], high[1]});
    }
    if (adapts && scaler->initial_scale < kHigh) add(high);
  }
  std::vector<std::string> rules;  // of all findings of this kind
  for (const Finding& other : audit.findings) {
    if (other.kind != f.kind) continue;
    for (const std::string& rule : rules_of(other)) add_rule(rules, rule);
  }
  const bool alone = rules.size() <= 1;
  if (!rules.empty()) add(as_arguments(rules));
  if (f.cure && alone) add(f.cure->arguments);
  if (is_stop(f) || range || f.kind == "gradient") add({"--precision", "bf16-mixed"});
  if (f.rule && f.rule->find(f.scope) != std::string::npos && !f.scope.empty()) {
    if (alone) add({"--rule", for_all_layers(*f.rule, f.scope)});
    if (f.rule->ends_with(": compute=f32") && !is_stop(f)) add({"--rule", "*: compute=f32"});
  } else if (f.cure) {
    add(f.cure->arguments);
  }
  for (const std::vector<std::string>& arguments : f.more) add(arguments);
  if (f.kind == "rounded_away" && f.rule && f.rule->ends_with(": params=f32")) {
    add({"--set", "precision.rounding=stochastic"});
    add({"--set", "precision.kahan=true"});
    add({"--rule", "*: params=f32"});
  }
  if (f.kind == "gradient") {
    for (const Finding& other : audit.findings) {
      if (other.rule && &other != &f) add({"--rule", *other.rule});
    }
  }
  if (is_stop(f) || range || f.kind == "gradient") add({"--precision", "32-true"});
  return all;
}

/// Tries lower learning rates for a run that fails, or learns nothing, in f32 too.
/// `large`: a step changes most matrices by a large part, so that the rate is the cause even if no trial
/// shows it.
void try_learning_rates(Finding& finding, const AuditSource& source, Trials& trials, bool large) {
  constexpr std::string_view kKey = "optimizer.lr=";
  finding.rule.reset();
  finding.cure.reset();
  finding.text += "; it happens in f32 too, so the precision is not the cause";
  if (large && finding.kind != "learning_rate") {
    finding.kind = "learning_rate";
    finding.text += fmt::format(
        ": a learning rate of {:g} changes most matrices by more than a tenth of their largest element in a "
        "step",
        source.config.optimizer.lr);
  }
  std::vector<Cure> cures;
  for (const double factor : {1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8}) {
    const double lower = source.config.optimizer.lr * factor;
    cures.push_back({{"--set", fmt::format("{}{:g}", kKey, lower)}, {}, true});
  }
  for (std::size_t i = 0; i < cures.size(); ++i) {
    const Cure& cure = cures[i];
    const Trial* trial = trials.under(std::span(cures).subspan(i), false);
    if (trial == nullptr) {
      finding.remark = "there was no time to try a lower learning rate";
      if (large) finding.cure = Cure{cure.arguments};
      return;
    }
    const bool fails = std::ranges::any_of(trial->findings, is_stop);
    if (!trial->runs || fails) continue;
    finding.cure = cure;
    finding.kind = "learning_rate";
    finding.text +=
        fmt::format("; a learning rate of {} prevents it", cure.arguments.back().substr(kKey.size()));
    return;
  }
}

bool happens_in_f32(Trials& trials) {
  const Trial* trial = trials.in_f32();
  return trial != nullptr && (!trial->runs || std::ranges::any_of(trial->findings, is_stop));
}

/// Returns the cure with the rule of what goes wrong next under it, or null if there is none.
std::optional<Cure> joined(const Cure& cure, const Trial& trial) {
  if (cure.arguments.front() != "--rule") return std::nullopt;
  for (const Finding& next : trial.findings) {
    if (next.kind != "nonfinite" || !next.rule) continue;
    if (std::ranges::find(cure.arguments, *next.rule) != cure.arguments.end()) continue;
    Cure both = cure;
    both.arguments.insert(both.arguments.end(), {"--rule", *next.rule});
    return both;
  }
  return std::nullopt;
}

/// Returns the tested cure of the step that an overflow at the same place stopped: as the step is applied
/// under it, the overflow is gone too.
const Finding* cured_stop(const Finding& finding, const Audit& audit) {
  if (finding.kind != "overflow") return nullptr;
  for (const Finding& f : audit.findings) {
    const bool same = f.scope == finding.scope && f.op == finding.op && f.pass == finding.pass;
    if (f.kind == "nonfinite" && same && f.cure && f.cure->tested) return &f;
  }
  return nullptr;
}

/// Tries all cures of weights that do not move, and keeps those that work, the one that takes the least
/// memory first, and of equal ones the fastest.
void try_moving(Finding& finding, const std::vector<Cure>& candidates, Trials& trials) {
  std::string failed;
  std::vector<Alternative> working;
  bool missed = false;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    Cure candidate = candidates[i];
    const Trial* trial = trials.under(std::span(candidates).subspan(i), false);
    missed = missed || trial == nullptr;
    if (trial == nullptr) continue;
    if (!trials.cures(*trial, finding)) {
      failed += (failed.empty() ? "" : ", ") + shell_words(candidate.arguments);
      continue;
    }
    candidate.tested = true;
    working.push_back({std::move(candidate), trials.memory_of(*trial), trial->step_seconds});
  }
  finding.cure.reset();
  finding.rule.reset();
  if (missed) finding.remark = "there was no time to try all cures";
  if (working.empty()) {
    if (!failed.empty()) finding.remark = "no cure that was tried works: " + failed;
    return;
  }
  std::ranges::stable_sort(working, [](const Alternative& a, const Alternative& b) {
    return std::tie(a.memory, a.step_seconds) < std::tie(b.memory, b.step_seconds);
  });
  finding.cure = working.front().cure;
  finding.evidence["cure_memory"] = static_cast<double>(working.front().memory);
  finding.rule = rule_at(*finding.cure, finding.scope);
  finding.alternatives.assign(working.begin() + 1, working.end());
}

/// Keeps the first cure that works, or tells which ones do not.
void try_finding(Finding& finding, const Audit& audit, const AuditSource& source, Trials& trials) {
  const bool stops = is_stop(finding), rate = stops && has_large_rate(audit);
  if (rate && happens_in_f32(trials)) return try_learning_rates(finding, source, trials, true);
  if (finding.kind == "learning_rate") return;
  std::string failed;
  bool missed = false;
  constexpr std::size_t kMostRules = 3;
  std::vector<Cure> candidates = candidates_of(finding, audit, source.config);
  if (finding.kind == "rounded_away") return try_moving(finding, candidates, trials);
  if (trials.slow()) {  // a policy is the likeliest second cure, and there may be no time for a third
    const auto policy =
        std::ranges::find_if(candidates, [](const Cure& c) { return c.arguments.front() == "--precision"; });
    if (policy != candidates.end() && policy > candidates.begin() + 1)
      std::rotate(candidates.begin() + 1, policy, policy + 1);
  }
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    Cure candidate = candidates[i];
    const bool observed = !stops || trials.slow();
    const Trial* trial = trials.under(std::span(candidates).subspan(i), observed);
    missed = missed || trial == nullptr;
    if (trial == nullptr) continue;
    if (!trials.cures(*trial, finding)) {
      failed += (failed.empty() ? "" : ", ") + shell_words(candidate.arguments);
      const std::optional<Cure> more = finding.kind == "nonfinite" ? joined(candidate, *trial) : std::nullopt;
      if (more && more->arguments.size() <= 2 * kMostRules) {
        const std::size_t next =
            trials.slow() ? candidates.size() : i + 1;  // policies first if time is short
        candidates.insert(candidates.begin() + static_cast<std::ptrdiff_t>(next), *more);
      }
      continue;
    }
    candidate.tested = true;
    finding.rule = rule_at(candidate, finding.scope);
    finding.cure = std::move(candidate);
    return;
  }
  finding.cure.reset();
  finding.rule.reset();
  if (!failed.empty()) finding.remark = "no cure that was tried works: " + failed;
  if (stops && !rate && happens_in_f32(trials)) return try_learning_rates(finding, source, trials, false);
  if (missed)
    finding.remark += fmt::format("{}there was no time to try {}", failed.empty() ? "" : "; ",
                                  failed.empty() ? "its cures" : "others");
}

}  // namespace

void try_cures(Audit& audit, const AuditSource& source, const CureTrials& options,
               const std::stop_token& stop, comm::Communicator* ranks) {
  const Audit before = [&] {  // without its values, which no trial needs
    Audit copy;
    copy.points = audit.points;
    copy.weights = audit.weights;
    copy.findings = audit.findings;
    copy.seconds = audit.seconds;
    copy.process = audit.process;
    return copy;
  }();
  Trials trials(before, source, options, stop, ranks);
  std::size_t tried = 0;
  bool rate = false;  // the learning rate is a cause, and comes first
  for (Finding& f : audit.findings) {
    if (f.kind == "no_labels" || f.kind == "masked_row" || f.kind == "cancellation") continue;
    if (rate) {
      f.cure.reset();
      f.rule.reset();
      f.remark = "cure the learning rate first: this may follow from it";
    } else if (const Finding* cured = cured_stop(f, audit)) {
      f.cure = cured->cure;
      f.rule = cured->rule;
    } else if (tried++ < kMostTried && !trials.stopped() && !stop.stop_requested()) {
      try_finding(f, before, source, trials);
      rate = f.kind == "learning_rate" && f.cure;
    } else {
      f.cure.reset();
      f.rule.reset();
      f.remark = "its cures were not tried";
    }
  }
  const auto first = std::ranges::find(audit.findings, "learning_rate", &Finding::kind);
  if (rate && first != audit.findings.end()) {  // one finding for one cause
    audit.findings.erase(std::remove_if(first + 1, audit.findings.end(),
                                        [](const Finding& f) { return f.kind == "learning_rate"; }),
                         audit.findings.end());
  }
  audit.untried = trials.missed();
  audit.interrupted = trials.stopped();
}

}  // namespace mantissa::lab
