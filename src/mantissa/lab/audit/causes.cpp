#include "mantissa/lab/audit/causes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/base/counted.h"
#include "mantissa/lab/audit/findings.h"
#include "mantissa/run/cures.h"

namespace mantissa::lab {
namespace {

constexpr std::size_t kMostTried = 6;  // findings whose cures are tried

bool same_place(const Finding& a, const Finding& b) {
  return a.kind == b.kind && a.scope == b.scope && a.op == b.op && a.pass == b.pass;
}

/// Returns the audit of the steps up to one after `step`, under the config that `change` returns; null if the
/// config is refused or `stop` requests an end.
template <class Change>
std::optional<Audit> repeated_under(const AuditSource& source, const Change& change, std::int64_t step,
                                    const std::stop_token& stop) {
  try {
    const config::RunConfig changed = change();
    AuditOptions options;
    options.steps = step - source.from + 2;
    options.tries_cures = false;
    const AuditSource again{changed,    source.model, source.data, source.device,
                            source.run, source.state, source.from};
    Audit audit = audit_run(again, options, {}, stop);
    if (stop.stop_requested()) return std::nullopt;  // it may be incomplete
    return audit;
  } catch (const ConfigError&) {
    return std::nullopt;
  } catch (const DtypeError&) {
    return std::nullopt;
  }
}

std::optional<Audit> repeated(const AuditSource& source, const Cure& cure, std::int64_t step,
                              const std::stop_token& stop) {
  return repeated_under(
      source, [&] { return run::with_cure(source.config, cure); }, step, stop);
}

/// True if the run also stops, or skips the step, with every format in f32 and without rules.
bool happens_in_f32(const AuditSource& source, std::int64_t step, const std::stop_token& stop) {
  const auto in_f32 = [&] {
    config::RunConfig config = source.config;
    config.policy = precision::Policy();
    return config;
  };
  const std::optional<Audit> audit = repeated_under(source, in_f32, step, stop);
  return audit && (!audit->stopped.empty() || audit->first_non_finite);
}

/// True if the finding is gone and the cure has brought nothing worse.
bool cures(const Audit& audit, const Finding& finding) {
  return audit.stopped.empty() && std::ranges::none_of(audit.findings, [&](const Finding& f) {
           return same_place(f, finding) || f.severity > finding.severity;
         });
}

/// Tries the finding's own cure, and for lack of it others that suit its kind. Keeps the first that works.
void try_finding(Finding& finding, const AuditSource& source, const std::stop_token& stop) {
  std::vector<Cure> candidates;
  if (finding.cure) candidates.push_back(*finding.cure);
  const std::optional<precision::ScalerOptions> scaler = config::scaler_options(source.config);
  const bool adapts = scaler && scaler->rule != precision::ScalerRule::constant;
  if (finding.kind == "underflow" && finding.pass == "backward" && !adapts)
    candidates.insert(candidates.begin(), {{"--set", scaler ? "precision.loss_scale.loss_scale=0"  // dynamic
                                                            : "precision.loss_scale=dynamic"}});
  if (finding.kind == "nonfinite" || finding.kind == "overflow")
    candidates.push_back({{"--precision", "bf16-mixed"}});
  if (finding.kind == "nonfinite" || finding.kind == "overflow" || finding.kind == "saturation")
    candidates.push_back({{"--precision", "32-true"}});
  for (Cure& candidate : candidates) {
    if (stop.stop_requested()) return;
    const std::optional<Audit> after = repeated(source, candidate, finding.step, stop);
    if (!after || !cures(*after, finding)) continue;
    candidate.tested = true;
    finding.cure = std::move(candidate);
    return;
  }
  if (finding.kind != "nonfinite" || !happens_in_f32(source, finding.step, stop)) return;
  finding.rule.reset();
  finding.cure.reset();
  finding.text += "; it happens in f32 too, so the precision is not the cause";
  for (const double factor : {1e-1, 1e-2, 1e-4, 1e-8}) {
    const std::string lr = fmt::format("optimizer.lr={:g}", source.config.optimizer.lr * factor);
    const std::optional<Audit> after = repeated(source, {{"--set", lr}}, finding.step, stop);
    if (!after || !after->stopped.empty()) continue;
    finding.cure = Cure{{"--set", lr}, {}, true};
    finding.text += fmt::format(": a learning rate of {:g} prevents it", source.config.optimizer.lr * factor);
    return;
  }
}

}  // namespace

std::vector<Finding> data_findings(const AuditSource& source, std::int64_t last) {
  std::vector<Finding> found;
  if (source.data.training_rows() == 0) return found;  // from a callback
  std::int64_t empty = 0, rows = 0;
  Finding masked;
  for (std::int64_t step = source.from; step <= last; ++step) {
    text::StepData data;
    try {
      data = source.data.step(step, source.config.batch.global_batch_size);
    } catch (const ConfigError& e) {
      Finding none;
      none.kind = "no_labels";
      none.pass = "forward";
      none.step = step;
      none.share = 1;
      none.severity = 110;
      none.text = fmt::format("step {}: {}", step, e.message());
      return {none};
    }
    for (std::int64_t r = 0; r < data.rows; ++r, ++rows) {
      const std::span<const float> weights = data.weights_of(r);
      const std::span<const std::int32_t> targets = data.targets_of(r);
      bool counts = weights.empty() && targets.empty();
      for (std::size_t i = 0; i < std::max(weights.size(), targets.size()); ++i) {
        const bool target = targets.empty() || targets[i] >= 0, weight = weights.empty() || weights[i] != 0;
        counts = counts || (target && weight);
      }
      if (counts) continue;
      if (empty++ == 0) masked.step = step;
      if (masked.step == step) masked.rows.push_back(data.origin[static_cast<std::size_t>(r)]);
    }
  }
  if (empty == 0) return found;
  masked.kind = "masked_row";
  masked.pass = "forward";
  masked.share = static_cast<double>(empty) / static_cast<double>(rows);
  masked.severity = 35;
  masked.text = fmt::format("{} of {} of the data have no label that counts: they train nothing", empty,
                            counted(rows, "row"));
  found.push_back(std::move(masked));
  return found;
}

void try_cures(Audit& audit, const AuditSource& source, const std::stop_token& stop) {
  std::size_t tried = 0;
  for (Finding& f : audit.findings) {
    if (tried == kMostTried) return;
    if (f.kind == "no_labels" || f.kind == "masked_row" || f.kind == "cancellation") continue;
    try_finding(f, source, stop);
    ++tried;
  }
}

std::string verdict_of(const Audit& audit) {
  const std::string what = fmt::format("{} of {}", counted(audit.steps, "step"), audit.title);
  if (audit.findings.empty()) {
    return fmt::format(
        "{} showed no problem: no value left the range of its format, no format lost more than its "
        "share of gradients or updates, and every step was applied.",
        what);
  }
  const Finding& first = audit.findings.front();
  std::string text =
      fmt::format("{} showed {}. The worst: {}.", what,
                  counted(static_cast<std::int64_t>(audit.findings.size()), "problem"), first.text);
  if (first.cure && first.cure->tested)
    text += " A cure was tried on the same steps, and the problem was gone.";
  if (!audit.stopped.empty()) text += " The run stopped there.";
  return text;
}

}  // namespace mantissa::lab
