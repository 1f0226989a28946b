// The page of a comparison: the verdict, the course of the losses, and a table of the runs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "mantissa/base/quantities.h"
#include "mantissa/lab/compare/charts.h"
#include "mantissa/lab/compare/compare.h"
#include "mantissa/lab/compare/curves.h"
#include "mantissa/lab/compare/measure.h"
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
    case Outcome::unknown:
      break;
  }
  return Status::unknown;
}

std::string summary_of(const Comparison& c) {
  if (c.runs.empty()) return report::verdict_html(Status::unknown, "No run ended", c.verdict);
  const auto others = static_cast<std::int64_t>(c.runs.size()) - 1;
  const auto good = std::ranges::count_if(c.runs, is_as_good);
  const bool healthy = std::ranges::all_of(c.runs, &std::vector<std::string>::empty, &ComparedRun::findings);
  Status status = good == others && healthy ? Status::good : good > 0 ? Status::warning : Status::bad;
  std::string words =
      fmt::format("{} of {} runs {} as good as the reference", good, others, good == 1 ? "is" : "are");
  if (!healthy) words += ", but rounding lost updates or gradients";
  if (others == 0) {
    status = Status::unknown;
    words = "No run to compare with the reference";
  } else if (!c.noise) {
    status = Status::unknown;
    words = "The noise was not measured";
  }
  if (!c.runs.front().stopped.empty()) {
    status = Status::bad;
    words = "The reference stopped";
  }
  return report::verdict_html(status, words, c.verdict);
}

std::string compare_facts(const Comparison& c) {
  std::vector<report::Fact> facts;
  const auto add = [&](const char* name, const std::string& text) {
    facts.push_back({name, report::escaped(text)});
  };
  add("Runs", report::count_text(static_cast<std::int64_t>(c.runs.size())));
  add("Re-seeded runs", report::count_text(static_cast<std::int64_t>(c.reseeded.size())));
  if (!c.runs.empty()) add("Reference", c.runs.front().name);
  if (c.noise) add("Noise", difference_text(c.measure, *c.noise));
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
std::string headline_of(const ComparedRun& run) {
  const bool has_reason = run.outcome == Outcome::stopped || run.outcome == Outcome::diverged;
  return has_reason ? run.verdict.substr(0, run.verdict.find(": ")) : run.verdict;
}

using Runs = std::vector<const ComparedRun*>;

/// Returns the runs and the re-seeded runs.
Runs all_runs(const Comparison& c) {
  Runs runs;
  for (const std::vector<ComparedRun>* group : {&c.runs, &c.reseeded}) {
    for (const ComparedRun& run : *group) runs.push_back(&run);
  }
  return runs;
}

std::string loss_table(const Comparison& c) {
  report::Table table{.label = "Losses and verdicts",
                      .columns = {{"Run"},
                                  {"Verdict"},
                                  {c.measure.online ? "Final " + c.measure.name : "Final loss", true},
                                  {"Gap", true},
                                  {c.measure.online ? "Loss" : "Held-out loss", true},
                                  {"Skipped steps", true}},
                      .rows = {}};
  const auto loss = [](double v) { return fmt::format("{:.4f}", v); };
  for (const ComparedRun* run : all_runs(c)) {
    const std::string verdict =
        fmt::format("<div class=\"quiet\">{}<span>{}</span></div>", report::status_mark(status_of_run(*run)),
                    report::escaped(headline_of(*run)));
    std::optional<double> gap = run->gap;
    if (run->outcome == Outcome::reference) gap.reset();
    table.rows.push_back(
        {{report::escaped(run->name)},
         {verdict},
         number_cell(run->final_value, [&](double v) { return report::escaped(value_text(c.measure, v)); }),
         number_cell(
             gap, [](double v) { return (v > 0 ? "+" : "") + report::raised_html(report::number_text(v)); }),
         number_cell(c.measure.online ? run->final_loss : run->validation_loss, loss),
         number_cell(static_cast<double>(run->skipped), report::number_text)});
  }
  return to_html(table);
}

std::string cost_table(const Comparison& c) {
  report::Table table{.label = "Speed, memory and weights",
                      .columns = {{"Run"},
                                  {"Tokens per second", true},
                                  {"Predicted memory", true},
                                  {"Distance of weights", true},
                                  {"Lost updates", true}},
                      .rows = {}};
  double fastest = 0, largest = 0;
  for (const ComparedRun* run : all_runs(c)) {
    fastest = std::max(fastest, run->tokens_per_second.value_or(0));
    largest = std::max(largest, run->peak_bytes.value_or(0));
  }
  const auto share = [](double v) {
    return v <= 1 ? report::raised_html(report::share_text(v))
                  : report::raised_html(report::number_text(v)) + " ×";
  };
  for (const ComparedRun* run : all_runs(c)) {
    table.rows.push_back(
        {{report::escaped(run->name)},
         number_cell(
             run->tokens_per_second, [](double v) { return report::number_text(std::round(v)); }, fastest),
         number_cell(
             run->peak_bytes, [](double v) { return human_bytes(v); }, largest),
         number_cell(run->weight_distance, share, 1),
         number_cell(run->updates_lost, share, 1)});
  }
  return to_html(table);
}

report::Section table_section(const Comparison& c) {
  return {
      .id = "runs",
      .link = "Runs",
      .heading = "The runs in numbers",
      .intro = fmt::format("The gap is the mean difference from the reference over the last tenth of the "
                           "steps. {}",
                           judged_by(c.measure)),
      .body = loss_table(c) +
              "<h3>Speed, memory and weights</h3>\n<p class=\"none-line\">The distance is "
              "that of the final weights from those of the reference, as a share of the way that the "
              "reference moved. Lost updates left the stored weight as it was. The re-seeded runs have the "
              "work of the reference: they show how much a busy machine changes the speed.</p>\n" +
              cost_table(c)};
}

report::Section details_section(const Comparison& c) {
  report::Section section{.id = "details",
                          .link = "Details",
                          .heading = "Policies and findings",
                          .intro = "Findings tell what rounding lost, whether or not the loss shows it.",
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
    section.body += report::disclosure(report::escaped(run.name) + note, body, open);
  }
  return section;
}

}  // namespace

std::string to_html(const Comparison& c) {
  report::Page page{.kind = "precision comparison",
                    .title = c.title,
                    .subtitle =
                        "The same training under several policies or settings, side by side. The noise is "
                        "what another seed changes.",
                    .summary = summary_of(c) + compare_facts(c),
                    .sections = {}};
  if (!c.runs.empty()) page.sections = {losses_section(c), table_section(c), details_section(c)};
  if (report::Section curves = curves_section(c); !curves.body.empty())
    page.sections.insert(page.sections.begin(), std::move(curves));
  return to_html(page);
}

}  // namespace mantissa::lab
