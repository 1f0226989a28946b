// Steps whose values are not finite: what a trainer finds, and the messages with which it stops.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "mantissa/core/base/error.h"
#include "mantissa/precision/policy/glob.h"
#include "mantissa/train/steps/trainer.h"

namespace mantissa::train {
namespace {

/// Returns a cure that resumes the run with more arguments.
Cure resumed(std::vector<std::string> arguments, std::string effect = {}) {
  arguments.insert(arguments.begin(), "--resume");
  return {std::move(arguments), std::move(effect)};
}
Cure resumed_with_rule(const std::string& rule) {
  return resumed({"--rule", rule});
}

/// Returns the rules that keep the value finite.
std::vector<Cure> cures_of(const Overflow& overflow) {
  if (!overflow.cure.empty()) return {resumed(overflow.cure)};
  if (!overflow.scope.empty()) return {resumed_with_rule(overflow.scope + ": compute=f32")};
  return {};
}

/// Returns "3rd".
std::string nth(std::int64_t n) {
  const std::int64_t tens = n % 100;
  const char* end = tens >= 11 && tens <= 13 ? "th"
                    : n % 10 == 1            ? "st"
                    : n % 10 == 2            ? "nd"
                    : n % 10 == 3            ? "rd"
                                             : "th";
  return fmt::format("{}{}", n, end);
}

}  // namespace

std::optional<Overflow> Trainer::find_own_overflow(const text::StepData& rows, bool train) {
  // The weights have not changed: the same micro-batches run again under an observer that stops at the first
  // non-finite value.
  const auto again = [&] {
    run_share(rows, task_->objective(), train ? objective::Pass::train : objective::Pass::evaluate, {},
              false);
  };
  const std::optional<runtime::NonFinite> first =
      watch_ != nullptr && train
          ? watch_->found()
          : runtime::find_first_non_finite(session_->executor(), first_row_, again, !ring_);
  if (!first) return std::nullopt;
  Overflow overflow;
  overflow.what = first->text();
  overflow.scope = first->scope;
  overflow.op = first->op;
  overflow.pass = first->pass;
  overflow.inputs = first->inputs;
  overflow.value = first->value;
  overflow.format = first->format;
  overflow.channel = first->channel;
  overflow.cure = first->cure();
  overflow.forward = first->pass == "forward";
  const bool packs = ring_ && stage_config().data.packing;  // whose rows ranks do not tell apart
  for (const std::int64_t at : first->rows) {
    const std::int64_t row = packs ? rows.item_row(std::min(at, rows.items())) : at;
    const std::int64_t end = packs ? rows.item_row(std::min(at + 1, rows.items())) : at + 1;
    for (std::int64_t r = row; r < std::min(end, rows.rows); ++r)  // the last micro-batch may not be full
      overflow.origins.push_back(rows.origin[static_cast<std::size_t>(r)]);
  }
  return overflow;
}

Overflow Trainer::find_overflow(const text::StepData& rows, bool train) {
  const std::optional<Overflow> found = first_of_ranks(find_own_overflow(rows, train));
  Overflow overflow = found.value_or(Overflow{});
  std::vector<std::int64_t> origins = overflow.origins;
  if (!found && program().shards > 1) {  // no step of the plan computed it
    overflow.what =
        fmt::format("a sum of the gradients of {} shards in {}", program().shards, name(program().reduce));
    overflow.cure = {"--set", "precision.reduce=f32"};
  }
  if (origins.empty()) origins.assign(rows.origin.begin(), rows.origin.end());
  overflow.origins = origins;
  constexpr std::size_t kMost = 16;
  const std::size_t shown = std::min(origins.size(), kMost);
  overflow.rows = fmt::format(
      "{} {}{} of {}", origins.size() == 1 ? "row" : "rows",
      fmt::join(origins.begin(), origins.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
      shown < origins.size() ? fmt::format(" and {} more", origins.size() - shown) : "", task_->name());
  return overflow;
}

void Trainer::overflowed(StepReport& report, const text::StepData& rows) {
  Overflow overflow = find_overflow(rows);
  overflow_ = overflow;
  const bool stops = config_.run.on_nonfinite == "stop";
  if (!scaler_ && stops) stop_non_finite(overflow, report.loss);
  report.skipped = true;
  // The loss is not scaled, so if it is not finite, the forward pass overflowed.
  overflow.forward = overflow.forward || !std::isfinite(report.loss);
  const std::int64_t in_a_row = overflow.forward ? forward_overflows_ + 1 : 0;
  const std::int64_t patience = config_.loss_scale.forward_overflow_patience;
  if (stops && patience > 0 && in_a_row >= patience) stop_forward(overflow, in_a_row);
  if (stops && scaler_->at_minimum()) stop_at_minimum(overflow);
  forward_overflows_ = in_a_row;
  report.overflow = std::move(overflow);
}

void Trainer::stop_forward(const Overflow& overflow, std::int64_t in_a_row) const {
  std::vector<Cure> cures = cures_of(overflow);
  cures.push_back(resumed({"--precision", "bf16-mixed"}));
  cures.push_back(resumed({"--set", "precision.loss_scale.forward_overflow_patience=0"},
                          "skips such steps until the loss scale is at its minimum"));
  throw RunStopped(
      fmt::format("step {}: the forward pass overflows{}, and a lower loss scale cannot prevent it: {}; "
                  "data {}; no weight was changed by this step",
                  step_ + 1, in_a_row > 1 ? fmt::format(" for the {} step in a row", nth(in_a_row)) : "",
                  overflow.what, overflow.rows),
      std::move(cures));
}

void Trainer::stop_at_minimum(const Overflow& overflow) const {
  std::vector<Cure> cures = cures_of(overflow);
  cures.push_back(resumed({"--precision", "bf16-mixed"}));
  cures.push_back(
      resumed({"--set", "precision.loss_scale.raise_error_at_min_scale=false"},
              "skips such steps without a limit; a higher min_loss_scale stops sooner, not later"));
  throw RunStopped(
      fmt::format("step {}: the gradients overflow and the loss scale is at its minimum of {}; the "
                  "first non-finite value is {}; data {}; no weight was changed by this step",
                  step_ + 1, scaler_->options().min_scale, overflow.what, overflow.rows),
      std::move(cures));
}

void Trainer::stop_non_finite(const Overflow& overflow, double loss) const {
  stop_at_value(fmt::format("step {}: {}", step_ + 1,
                            std::isfinite(loss) ? "a gradient is not finite"
                                                : fmt::format("the loss is {}", runtime::unsigned_nan(loss))),
                overflow, true);
}

void Trainer::stop_at_value(const std::string& what, const Overflow& overflow, bool changes_weights) const {
  std::string message = what;
  if (!overflow.what.empty()) message += fmt::format("; the first such value is {}", overflow.what);
  message += fmt::format("; data {}", overflow.rows);
  if (changes_weights) message += "; no weight was changed by this step";
  std::vector<Cure> cures;
  const precision::Use use{overflow.scope, "", precision::Pass::forward, step_};
  const bool lowered = bytes_of(config_.policy.resolve(use).compute->factor.format) < 4;
  if (!overflow.cure.empty()) {
    cures.push_back(resumed(overflow.cure));
  } else if (lowered && !overflow.scope.empty()) {
    cures.push_back(resumed_with_rule(overflow.scope + ": compute=f32"));
  }
  if (lowered || !overflow.cure.empty()) {
    cures.push_back(resumed({"--precision", "32-true"}));
  } else {
    // The state before this step gives the same value at any learning rate.
    const double lr = std::min(config_.optimizer.lr / 10, 1e-3);
    cures.push_back({{"--overwrite", "--set", fmt::format("optimizer.lr={:g}", lr)},
                     "starts over; --resume=STEP instead continues from an earlier state, if there is one"});
  }
  throw RunStopped(message, std::move(cures));
}

void Trainer::beyond_format(StepReport& report, const BrokenWeight& broken) {
  const plan::Slot& slot = program().slots[broken.slot];
  const double value = broken.weight.value;
  const std::string module(precision::rule_scope(slot.name));
  const std::string what =
      std::isfinite(value)
          ? fmt::format("the update would take {} beyond its format: {:.4g} {} {} ({}) at element {}",
                        slot.name, value, value > 0 ? ">" : "<",
                        std::copysign(traits(slot.master).max_finite, value), name(slot.master),
                        broken.weight.element)
          : fmt::format("the update in {} would make {} {} at element {}", name(broken.interior), slot.name,
                        runtime::unsigned_nan(value), broken.weight.element);
  Overflow overflow{what, module, "all rows of the step"};
  overflow.op = overflow.pass = "update";
  overflow.value = value;
  overflow.format = std::isfinite(value) ? slot.master : broken.interior;
  overflow.cure = std::isfinite(value) ? std::vector<std::string>{"--rule", module + ": params=f32"}
                                       : runtime::interior_cure(module, "update");
  if (config_.run.on_nonfinite == "skip") {
    report.skipped = true;
    report.overflow = std::move(overflow);
    return;
  }
  overflow_ = std::move(overflow);
  const std::string message = fmt::format("step {}: {}; no weight was changed by this step", step_ + 1, what);
  if (!std::isfinite(value)) throw RunStopped(message, {resumed(runtime::interior_cure(module, "update"))});
  throw RunStopped(message, {resumed_with_rule(module + ": params=f32"),
                             resumed({"--set", fmt::format("optimizer.lr={:g}", config_.optimizer.lr / 2)})});
}

}  // namespace mantissa::train
