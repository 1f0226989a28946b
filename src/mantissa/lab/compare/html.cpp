// The page of a comparison: the verdict, the course of the losses, and a table of the runs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "mantissa/core/base/quantities.h"
#include "mantissa/lab/compare/charts.h"
#include "mantissa/lab/compare/compare.h"
#include "mantissa/lab/compare/curves.h"
#include "mantissa/lab/compare/measure.h"
#include "mantissa/lab/compare/paired.h"
#include "mantissa/lab/compare/verdict.h"
#include "mantissa/report/interval_chart.h"
#include "mantissa/report/number_text.h"
#include "mantissa/report/page.h"

namespace mantissa::lab {
namespace {

using report::Cell;
using report::Status;

bool is_as_good(const ComparedRun& run) {
  return run.outcome == Outcome::same || run.outcome == Outcome::better;
}

Status status_of_run(const ComparedRun& run) {
  switch (run.outcome) {
    case Outcome::reference:
      return run.stopped.empty() && run.final_loss ? Status::unknown : Status::bad;
    case Outcome::same:
    case Outcome::better:
      return run.findings.empty() ? Status::good : Status::warning;
    case Outcome::worse:
      return Status::warning;
    case Outcome::diverged:
    case Outcome::stopped:
      return Status::bad;
    case Outcome::uncertain:
    case Outcome::uninformative:
    case Outcome::unknown:
      break;
  }
  return Status::unknown;
}

/// Returns the state of the whole comparison: good only if every run is as good as the reference, and lost
/// nothing.
Status status_of(const Comparison& c) {
  if (c.runs.size() < 2) return Status::unknown;
  if (!c.runs.front().stopped.empty()) return Status::bad;
  std::size_t good = 0, poor = 0;
  for (std::size_t i = 0; i < c.runs.size(); ++i) {
    const Status status = status_of_run(c.runs[i]);
    if (i > 0 && status == Status::good) ++good;
    if (status == Status::warning || status == Status::bad || !c.runs[i].findings.empty()) ++poor;
  }
  if (poor > 0) return std::ranges::any_of(c.runs, is_as_good) ? Status::warning : Status::bad;
  return good + 1 == c.runs.size() ? Status::good : Status::unknown;
}

/// Returns a chart of the gaps and of what chance may be in them, or "" if no run has a gap.
std::string gaps_html(const Comparison& c) {
  constexpr std::size_t kMost = 8;  // rows beside the verdict
  std::vector<const ComparedRun*> shown;
  for (std::size_t i = 1; i < c.runs.size(); ++i) {
    const bool ended = c.runs[i].outcome != Outcome::stopped && c.runs[i].outcome != Outcome::diverged;
    if (ended && c.runs[i].gap && std::isfinite(*c.runs[i].gap)) shown.push_back(&c.runs[i]);
  }
  if (shown.empty()) return "";
  report::IntervalChart chart{
      .label = "difference of each run from the reference, and what chance may be in it",
      .heading = fmt::format("{} minus that of {}", c.measure.online ? c.measure.name : "final loss, nats,",
                             name_in_text(c, c.runs.front())),
      .reading = "",
      .rows = {}};
  bool reaches = false;
  for (std::size_t i = 0; i < std::min(shown.size(), kMost); ++i) {
    const ComparedRun& run = *shown[i];
    std::string text = fmt::format("{:+.2g}", *run.gap);
    if (const std::optional<double> error = error_of(run)) text += fmt::format(" ± {:.2g}", *error);
    std::optional<double> reach;
    if (run.paired && run.paired->limit)
      reach = std::max(*run.paired->limit, kPromptErrors * run.gap_error.value_or(0));
    reaches = reaches || reach.has_value();
    chart.rows.push_back({name_in_text(c, run), *run.gap, reach, status_of_run(run), text});
  }
  chart.reading = c.measure.online ? "Right of zero is better." : "Right of zero is worse.";
  if (reaches) chart.reading += " A bar that contains zero may be chance.";
  if (shown.size() > kMost) chart.reading += fmt::format(" {} more are in the table.", shown.size() - kMost);
  return to_html(chart);
}

std::string summary_of(const Comparison& c) {
  return report::verdict_html(status_of(c), headline_of(c), c.verdict, gaps_html(c));
}

std::string compare_facts(const Comparison& c) {
  std::vector<report::Fact> facts;
  const auto add = [&](const char* name, const std::string& text) {
    facts.push_back({name, report::escaped(text)});
  };
  add("Runs", report::count_text(static_cast<std::int64_t>(c.runs.size())));
  if (!c.runs.empty()) {
    add("Seeds", report::count_text(static_cast<std::int64_t>(seeds_of(c, 0).size())));
    add("Reference", name_in_text(c, c.runs.front()));
  }
  if (c.noise) add("Another seed changes", difference_text(c.measure, *c.noise));
  if (c.seconds >= 1) add("Time", human_seconds(c.seconds));
  return report::facts_html(facts);
}

/// Returns a cell with the number as HTML, or a dash for NaN. `most` is that of a bar over the whole width,
/// or 0 for none.
template <class Text>
Cell number_cell(std::optional<double> value, const Text& text, double most = 0) {
  const double number = value.value_or(std::numeric_limits<double>::quiet_NaN());
  if (!std::isfinite(number)) return {report::kNoNumber};
  return {text(number), most > 0 ? std::clamp(number / most, 0.0, 1.0) : -1};
}

/// Returns the verdict without the reason of a stop or a divergence.
std::string short_verdict(const ComparedRun& run) {
  const bool has_reason = run.outcome == Outcome::stopped || run.outcome == Outcome::diverged;
  return has_reason ? run.verdict.substr(0, run.verdict.find(": ")) : run.verdict;
}

using Runs = std::vector<const ComparedRun*>;

Runs pointers_to(const std::vector<ComparedRun>& runs) {
  Runs all;
  for (const ComparedRun& run : runs) all.push_back(&run);
  return all;
}

/// Returns the number of a run that names it in the verdict, or "" for one with another seed.
std::string number_html(const Comparison& c, const ComparedRun& run) {
  if (c.runs.empty() || &run < c.runs.data() || &run > &c.runs.back()) return "";
  return fmt::format("<span class=\"number\">{}</span> ", &run - c.runs.data() + 1);
}

std::string loss_table(const Comparison& c, const Runs& runs) {
  report::Table table{.label = "Losses and verdicts",
                      .columns = {{"Run"},
                                  {"Verdict"},
                                  {c.measure.online ? "Final " + c.measure.name : "Final loss", true},
                                  {"Gap", true},
                                  {"Standard error", true},
                                  {c.measure.online ? "Loss" : "Held-out loss", true},
                                  {"Skipped steps", true}},
                      .rows = {}};
  const auto loss = [](double v) { return fmt::format("{:.4f}", v); };
  for (const ComparedRun* run : runs) {
    const std::string verdict =
        fmt::format("<div class=\"quiet\">{}<span>{}</span></div>", report::status_mark(status_of_run(*run)),
                    report::escaped(short_verdict(*run)));
    std::optional<double> gap = run->gap;
    if (run->outcome == Outcome::reference) gap.reset();
    const std::optional<double>& value = run->mean_value ? run->mean_value : run->final_value;
    table.rows.push_back(
        {{number_html(c, *run) + report::escaped(run->name)},
         {verdict},
         number_cell(value, [&](double v) { return report::escaped(value_text(c.measure, v)); }),
         number_cell(
             gap, [](double v) { return (v > 0 ? "+" : "") + report::raised_html(report::number_text(v)); }),
         number_cell(run->paired ? error_of(*run) : std::nullopt,
                     [](double v) { return report::raised_html(report::number_text(v)); }),
         number_cell(c.measure.online ? run->final_loss : run->validation_loss, loss),
         number_cell(static_cast<double>(run->skipped), report::number_text)});
  }
  return to_html(table);
}

std::string cost_table(const Comparison& c, const Runs& runs) {
  report::Table table{.label = "Speed, memory and weights",
                      .columns = {{"Run"},
                                  {"Tokens per second", true},
                                  {"Predicted memory", true},
                                  {"Distance of weights", true},
                                  {"Lost updates", true}},
                      .rows = {}};
  double fastest = 0, largest = 0;
  for (const ComparedRun* run : runs) {
    fastest = std::max(fastest, run->tokens_per_second.value_or(0));
    largest = std::max(largest, run->peak_bytes.value_or(0));
  }
  const auto share = [](double v) {
    return v <= 1 ? report::raised_html(report::share_text(v))
                  : report::raised_html(report::number_text(v)) + " ×";
  };
  for (const ComparedRun* run : runs) {
    table.rows.push_back(
        {{number_html(c, *run) + report::escaped(run->name)},
         number_cell(
             run->tokens_per_second, [](double v) { return report::number_text(std::round(v)); }, fastest),
         number_cell(
             run->peak_bytes, [](double v) { return human_bytes(v); }, largest),
         number_cell(run->weight_distance, share, 1),
         number_cell(run->updates_lost, share, 1)});
  }
  return to_html(table);
}

/// Returns the rule that separates a gap from chance, with the degrees of freedom.
std::string rule_text(const Comparison& c) {
  double least = INFINITY, most = 0;
  for (const ComparedRun& run : c.runs) {
    if (!run.paired || !run.paired->standard_error) continue;
    least = std::min(least, run.paired->degrees_of_freedom);
    most = std::max(most, run.paired->degrees_of_freedom);
  }
  if (most == 0) return "";
  const std::string degrees =
      most - least < 0.05 ? fmt::format("{:.1f}", most) : fmt::format("{:.1f} to {:.1f}", least, most);
  return fmt::format(
      "{}A run is better or worse if chance alone gives such a gap in less than one of {:.0f} comparisons, "
      "by Student's distribution with {} degrees of freedom (docs/cli/compare.md).",
      c.measure.online ? " " : "", kComparisonsPerFalseCall, degrees);
}

/// Returns the tables of the runs with other seeds.
std::string seeds_html(const Comparison& c) {
  if (c.reseeded.empty()) return "";
  const Runs runs = pointers_to(c.reseeded);
  return report::disclosure(fmt::format("The same with other seeds<small>{} run{}</small>", runs.size(),
                                        runs.size() == 1 ? "" : "s"),
                            "<p class=\"none-line\">The gap is the difference from the reference with the "
                            "same seed; that of the reference itself is from its first seed. Runs of one "
                            "policy have equal work: they show how much a busy machine changes "
                            "the speed.</p>\n" +
                                loss_table(c, runs) + cost_table(c, runs),
                            only_seeds_differ(c));
}

report::Section table_section(const Comparison& c) {
  return {
      .id = "runs",
      .link = "Runs",
      .heading = "The runs in numbers",
      .intro = fmt::format(
          "The gap is the difference from the reference with the same seed over the last tenth of "
          "the steps, mean over the seeds. {}{}",
          judged_by(c.measure), rule_text(c)),
      .body = loss_table(c, pointers_to(c.runs)) +
              "<h3>Speed, memory and weights</h3>\n<p class=\"none-line\">" +
              (c.no_distance.empty()
                   ? "The distance is that of the final weights from those of the reference, as a share of "
                     "the way that the reference moved. "
                   : "There is no distance, because " + report::escaped(c.no_distance) + ". ") +
              "Lost updates left the stored weight as it was.</p>\n" + cost_table(c, pointers_to(c.runs)) +
              seeds_html(c)};
}

report::Section details_section(const Comparison& c) {
  report::Section section{.id = "details",
                          .link = "Details",
                          .heading = "Policies and findings",
                          .intro = "Findings name what rounding lost, even if the loss does not show it.",
                          .body = {}};
  for (const ComparedRun& run : c.runs) {
    std::string body = run.policy.empty() ? "" : report::command_box(run.policy);
    for (const std::string& setting : run.settings) body += report::command_box(setting);
    body += "<p>" + report::escaped(run.verdict) + "</p>";
    for (const std::string& finding : run.findings) body += "<p>" + report::escaped(finding) + "</p>";
    const std::size_t count = run.findings.size();
    const std::string note =
        count == 0 ? "" : fmt::format("<small>{} finding{}</small>", count, count == 1 ? "" : "s");
    const bool open = count > 0 || status_of_run(run) == Status::bad;
    section.body += report::disclosure(number_html(c, run) + report::escaped(run.name) + note, body, open);
  }
  return section;
}

}  // namespace

std::string to_html(const Comparison& c) {
  report::Page page{.kind = "precision comparison",
                    .title = c.title,
                    .subtitle =
                        "The same training under several policies or settings, side by side, with the same "
                        "seeds.",
                    .summary = summary_of(c) + compare_facts(c),
                    .sections = {}};
  if (!c.runs.empty()) page.sections = {losses_section(c), table_section(c), details_section(c)};
  if (report::Section curves = curves_section(c); !curves.body.empty())
    page.sections.insert(page.sections.begin(), std::move(curves));
  return to_html(page);
}

}  // namespace mantissa::lab
