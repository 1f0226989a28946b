// The page of an audit: its verdict and its sections.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "mantissa/core/base/quantities.h"
#include "mantissa/lab/audit/range_losses.h"
#include "mantissa/lab/audit/sections.h"
#include "mantissa/report/number_text.h"

namespace mantissa::lab {
namespace {

using report::Status;

/// A share of lost elements above which a page without findings is not green.
constexpr double kGreen = 0.2;

Status overall(const Audit& audit, double worst_share) {
  if (!audit.stopped.empty() || audit.first_non_finite) return Status::bad;
  if (std::ranges::any_of(audit.findings, [](const Finding& f) { return status_of(f) == Status::bad; }))
    return Status::bad;
  if (!audit.findings.empty()) return Status::warning;
  if (audit.points.empty() && audit.observed.empty()) return Status::unknown;
  if (!audit.uninformative.empty()) return Status::unknown;
  return worst_share < kGreen ? Status::good : Status::unknown;
}

std::string words_of(const Audit& audit, Status status, const RangeLosses& worst) {
  if (!audit.stopped.empty()) return "The run stopped";
  const std::size_t count = audit.findings.size();
  std::string problems = fmt::format("{} {} found", count, count == 1 ? "problem" : "problems");
  if (count > 0) {
    const Finding& first = audit.findings.front();
    problems += fmt::format("{} {}{}", count == 1 ? ":" : ", the worst:", kind_words(first),
                            first.scope.empty() ? "" : " in " + first.scope);
  }
  if (audit.findings.empty() && !audit.uninformative.empty()) return "Not informative";
  if (audit.findings.empty() && worst.most() > 0 && (status == Status::good || status == Status::unknown))
    return "No loss beyond the thresholds";
  switch (status) {
    case Status::good:
      return "No problem found";
    case Status::bad:
      return count == 0 ? "A value was not finite" : problems;
    case Status::warning:
      return problems;
    case Status::unknown:
      break;
  }
  return "Nothing was observed";
}

std::string model_size(std::int64_t parameters) {
  const auto n = static_cast<double>(parameters);
  if (n >= 1e9) return fmt::format("{:.3g} billion", n / 1e9);
  if (n >= 1e6) return fmt::format("{:.3g} million", n / 1e6);
  return report::count_text(parameters);
}

/// Returns the preset or, of a policy without a name, the end of the title, which has its short line.
std::string precision_of(const Audit& audit) {
  if (audit.preset != "custom") return audit.preset;
  constexpr std::string_view kUnder = " under ";
  const std::size_t at = audit.title.rfind(kUnder);
  return at == std::string::npos ? "" : audit.title.substr(at + kUnder.size());
}

std::string facts(const Audit& audit) {
  std::vector<report::Fact> out;
  const auto add = [&](const char* name, const std::string& text) {
    if (!text.empty()) out.push_back({name, report::escaped(text)});
  };
  add("Model", audit.model);
  if (audit.parameters > 0) add("Parameters", model_size(audit.parameters));
  add("Precision", precision_of(audit));
  add("Steps run", report::count_text(audit.steps));
  add("Steps observed", report::count_text(static_cast<std::int64_t>(audit.observed.size())));
  const auto skipped = std::ranges::count_if(audit.points, [](const StepPoint& p) { return p.skipped; });
  if (skipped > 0) add("Steps skipped", report::count_text(skipped));
  if (audit.seconds > 0) add("Time", human_seconds(audit.seconds));
  return report::facts_html(out);
}

}  // namespace

std::vector<std::string> scopes_of(const Audit& audit) {
  std::vector<std::string> out;
  for (const bool forward : {true, false})
    for (const ValueSeries& v : audit.values)
      if ((v.pass == "forward") == forward) out.push_back(v.scope);
  for (const ParameterSeries& p : audit.weights) out.push_back(p.name);
  return out;
}

std::string rows_text(const std::vector<std::int64_t>& rows) {
  constexpr std::size_t kMost = 8;
  std::string out;
  for (std::size_t i = 0; i < std::min(rows.size(), kMost); ++i)
    out += (i == 0 ? "" : ", ") + std::to_string(rows[i]);
  if (rows.size() > kMost) out += fmt::format(" and {} more", rows.size() - kMost);
  return out;
}

std::string to_html(const Audit& audit) {
  const RangeLosses worst = range_losses(audit);
  const Status status = overall(audit, worst.most());
  report::Page page{
      .kind = "precision audit",
      .title = audit.title.empty() ? "Audit" : audit.title,
      .subtitle =
          "What the number formats did to the values of this run: what overflowed, what vanished, "
          "what rounding changed.",
      .summary = report::verdict_html(status, words_of(audit, status, worst), audit.verdict) + facts(audit),
      .sections = {}};
  page.sections.push_back(findings_section(audit));
  if (audit.first_non_finite || !audit.stopped.empty()) page.sections.push_back(stop_section(audit));
  for (const auto section : {course_section, range_section, rounding_section, updates_section,
                             routers_section, histograms_section, plan_section, method_section}) {
    if (section != routers_section || !audit.routers.empty()) page.sections.push_back(section(audit));
  }
  return to_html(page);
}

}  // namespace mantissa::lab
