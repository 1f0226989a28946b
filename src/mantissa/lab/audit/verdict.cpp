#include "mantissa/lab/audit/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/quantities.h"
#include "mantissa/core/base/words.h"
#include "mantissa/lab/audit/range_losses.h"

namespace mantissa::lab {
namespace {

/// Returns the parts of the run of which no step was observed, or "".
std::string unreached_of(const Audit& audit) {
  if (audit.unreached.empty()) return "";
  const std::size_t more = audit.unreached.size() - 1;
  return fmt::format(" Not observed: {}{}.", audit.unreached.front(),
                     more == 0 ? ""
                               : fmt::format("; and {} (audit.json, not_reached)",
                                             counted(static_cast<std::int64_t>(more), "more part")));
}

/// Returns the passes beside the training step, of which nothing was observed, or "".
std::string passes_of(const Audit& audit) {
  if (audit.passes.empty()) return "";
  return fmt::format(" Not observed: the passes of {}.", list_of(audit.passes));
}

/// Returns how many tokens had other experts than in f32, or "".
std::string routing_of(const Audit& audit) {
  std::int64_t tokens = 0, changed = 0, unknown = 0;
  const RouterSeries* worst = nullptr;
  for (const RouterSeries& r : audit.routers) {
    const RouterStep all = r.total();
    tokens += all.tokens;
    changed += all.changed;
    unknown += std::ranges::count(r.steps, 0, &RouterStep::tokens);
    if (worst == nullptr || all.share() > worst->total().share()) worst = &r;
  }
  if (audit.routers.empty()) return "";
  const std::string left_out =
      unknown == 0 ? ""
                   : fmt::format(" The experts of {} of a router were not compared with those in f32.",
                                 counted(unknown, "step"));
  if (tokens == 0) return left_out;
  if (changed == 0)
    return " Every token" + std::string(unknown == 0 ? "" : " that was compared") +
           " had the experts that it has in f32." + left_out;
  return left_out +
         fmt::format(" Routers chose other experts than in f32 for {} of the tokens, {} most often ({}).",
                     percent_text(static_cast<double>(changed) / static_cast<double>(tokens)), worst->scope,
                     percent_text(worst->total().share()));
}

/// Returns what the audit looked at, and what it did not.
std::string coverage_of(const Audit& audit) {
  const auto missing = std::ssize(audit.unobserved);
  if (audit.observed.empty()) return "No step was observed.";
  const char* plan = audit.unreached.empty() ? "the plan" : "the plan of the observed steps";
  if (audit.points_of_rounding == 0)
    return fmt::format("{}{} rounds nothing below its arithmetic.", static_cast<char>(std::toupper(plan[0])),
                       plan + 1);
  std::string text =
      missing == 0
          ? audit.points_of_rounding == 1
                ? fmt::format("The one rounding point of {} was observed", plan)
                : fmt::format("All {} of {} were observed",
                              counted(audit.points_of_rounding, "rounding point"), plan)
          : fmt::format("{} of {} of {} were not observed: {}{}", missing,
                        counted(audit.points_of_rounding, "rounding point"), plan, audit.unobserved.front(),
                        missing > 1 ? ", and others (audit.json, not_observed)" : "");
  if (std::ssize(audit.observed) < audit.steps)
    text += fmt::format(", in {} of the {}", std::ssize(audit.observed), counted(audit.steps, "step"));
  if (!audit.no_reference.empty())
    return text + fmt::format(". Gradients were not compared with f32: {}.", audit.no_reference);
  const bool compared =
      std::ranges::any_of(audit.weights, [](const ParameterSeries& p) { return !p.gradient_steps.empty(); });
  if (!compared) return text + ". No gradients were compared with f32: no observed step was applied.";
  return text +
         fmt::format(
             "; the gradients differ from those of the same steps in f32 by {} of their rms (median), and "
             "operands explain {}.",
             percent_text(audit.median_gradient_error),
             percent_text(std::min(1.0, audit.expected_gradient_error)));
}

}  // namespace

std::string verdict_of(const Audit& audit) {
  const std::string what = fmt::format("{} of {}", counted(audit.steps, "step"), audit.title);
  const auto skipped = std::ranges::count_if(audit.points, &StepPoint::skipped);
  const auto batches = std::ranges::count_if(audit.points, &StepPoint::batch_skipped);
  if (batches > 0 && batches == std::ssize(audit.points))
    return fmt::format("{} showed nothing: run.skip_batches skips every batch.", what);
  if (audit.findings.empty() && !audit.uninformative.empty()) {
    return fmt::format(
        "{} are not informative: {}. Another reward, or prompts that the model sometimes "
        "answers, give gradients. {}",
        what, audit.uninformative, coverage_of(audit) + unreached_of(audit) + passes_of(audit));
  }
  if (audit.findings.empty()) {
    const RangeLosses losses = range_losses(audit);
    std::string text = fmt::format(
        "{} showed no problem: {}{}. ", what,
        losses.most() > 0 ? "no loss is beyond its threshold" : "no value left the range of its format",
        skipped > 0 ? " in the steps that were applied" : "");
    if (losses.small.share > 0)
      text += fmt::format("At most {} of a value became zero ({}). ", percent_text(losses.small.share),
                          losses.small.place);
    if (losses.first.share > 0)
      text +=
          fmt::format("In step 1, in which delayed scales have no history, {} of a value became zero ({}). ",
                      percent_text(losses.first.share), losses.first.place);
    if (losses.large.share > 0)
      text += fmt::format("At most {} of a value reached the largest number of its format ({}). ",
                          percent_text(losses.large.share), losses.large.place);
    text += skipped == 0
                ? "Every step was applied. "
                : fmt::format(
                      "{} skipped{}{}. ", counted(skipped, "step", "was", "were"),
                      batches > 0 ? fmt::format(", {} of them as run.skip_batches requests", batches) : "",
                      skipped > batches ? ", while the loss scale looked for its value" : "");
    return text + coverage_of(audit) + routing_of(audit) + unreached_of(audit) + passes_of(audit);
  }
  const Finding& first = audit.findings.front();
  std::string text =
      fmt::format("{} showed {}. The worst: {}.", what,
                  counted(static_cast<std::int64_t>(audit.findings.size()), "problem"), first.text);
  if (first.cure && first.cure->tested)
    text += " A cure was tried on the same steps, and the problem was gone.";
  if (!audit.uninformative.empty())
    text += fmt::format(" The gradients are not informative: {}.", audit.uninformative);
  if (audit.untried > 0)
    text += fmt::format(" There was no time to try {}.", counted(audit.untried, "more cure"));
  if (!audit.stopped.empty()) text += fmt::format(" The run stopped at step {}.", audit.stopped_at);
  if (!audit.unobserved.empty()) text += " " + coverage_of(audit);
  return text + routing_of(audit) + unreached_of(audit) + passes_of(audit);
}

}  // namespace mantissa::lab
