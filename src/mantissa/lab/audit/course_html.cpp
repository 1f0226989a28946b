// Loss, loss scale and gradient norm over the steps, and how the audit was made.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "mantissa/core/base/quantities.h"
#include "mantissa/lab/audit/sections.h"
#include "mantissa/report/line_chart.h"
#include "mantissa/report/number_text.h"

namespace mantissa::lab {
namespace {

using Figure = double (*)(const StepPoint&);

/// Adds a line of the points, and marks their skipped steps.
void add_line(report::LineChart& chart, std::string name, const std::vector<StepPoint>& points,
              Figure figure) {
  report::Series series{.name = std::move(name), .x = {}, .y = {}};
  for (const StepPoint& p : points) {
    series.x.push_back(static_cast<double>(p.step));
    series.y.push_back(figure(p));
    if (p.skipped)
      chart.marks.push_back(
          {static_cast<double>(p.step), "skipped" + (p.overflow.empty() ? "" : ": " + p.overflow)});
  }
  chart.series.push_back(std::move(series));
}

report::LineChart chart_of(const Audit& audit, const std::string& name, Figure figure) {
  report::LineChart chart{.label = name + " by step", .y_name = name, .series = {}};
  chart.marks_name = "skipped step";
  if (!audit.earlier.empty()) add_line(chart, "the run before", audit.earlier, figure);
  if (!audit.points.empty()) add_line(chart, audit.earlier.empty() ? name : "replayed", audit.points, figure);
  return chart;
}

bool any_of(const Audit& audit, bool (*holds)(const StepPoint&)) {
  return std::ranges::any_of(audit.earlier, holds) || std::ranges::any_of(audit.points, holds);
}

/// Returns what a threshold limits, in words.
std::string threshold_text(std::string name) {
  static const std::map<std::string, const char*> kTexts = {
      {"overflow", "values that become inf or NaN, share of a tensor"},
      {"saturation", "values that become the largest number, share of a tensor"},
      {"clipped", "or, if that share is small: their rms error, as a share of the tensor's rms"},
      {"underflow", "values that become zero, share of a tensor"},
      {"vanished", "the same in formats with blocks"},
      {"updates_lost", "updates that leave their weight as it was, share"},
      {"bias", "mean error of a rounding, as a share of its rms error"},
      {"interior", "error of intermediate results, in errors of rounding the result to bf16"},
      {"gradient", "error of gradients against f32, in errors that the policy's operands explain"},
      {"cancellation", "sums below 1/64 of their larger term, share"},
      {"scale_fall", "factor by which the loss scale falls without a rise"},
      {"scale_low", "and the loss scale that it falls to, at most"},
  };
  const auto text = kTexts.find(name);
  if (text != kTexts.end()) return text->second;
  std::ranges::replace(name, '_', ' ');
  return name;
}

}  // namespace

report::Section course_section(const Audit& audit) {
  report::Section section{
      .id = "course",
      .link = "Loss",
      .heading = "The run, step by step",
      .intro = "A red flag marks a step that was skipped because a value was not finite."};
  if (audit.points.empty() && audit.earlier.empty()) {
    section.intro = "No step was completed.";
    return section;
  }
  if (!any_of(audit, [](const StepPoint& p) { return p.skipped; })) section.intro = "No step was skipped.";
  if (!any_of(audit,
              [](const StepPoint& p) { return std::isfinite(p.loss) || std::isfinite(p.grad_norm); })) {
    section.intro = "No step had a finite loss or gradient, so there is no course to show.";
    return section;
  }
  if (!audit.earlier.empty()) {
    section.intro +=
        fmt::format(" The steps before the replay are those that the run wrote to metrics.jsonl{}.",
                    audit.points.empty() ? "; it stopped at the first step of the replay" : "");
  }
  report::LineChart loss = chart_of(audit, "loss", [](const StepPoint& p) { return p.loss; });
  loss.height = 260;
  section.body += to_html(
      report::Figure{.title = "Loss",
                     .reading = "Lower is better. A gap in the line is a step whose loss was not finite.",
                     .body = to_html(loss),
                     .legend = ""});
  section.body += "<div class=\"grid\">";
  if (any_of(audit, [](const StepPoint& p) { return p.loss_scale.has_value(); })) {
    report::LineChart scale = chart_of(
        audit, "loss scale", [](const StepPoint& p) { return p.loss_scale ? *p.loss_scale : std::nan(""); });
    scale.spacing = report::Spacing::log2;
    scale.height = 190;
    section.body += to_html(report::Figure{
        .title = "Loss scale",
        .reading =
            "The factor that keeps small gradients from vanishing. Each overflow halves it; a scale that "
            "falls without end does not find its cause.",
        .body = to_html(scale),
        .legend = ""});
  }
  report::LineChart norm = chart_of(audit, "gradient norm", [](const StepPoint& p) { return p.grad_norm; });
  norm.spacing = report::Spacing::log10;
  norm.height = 190;
  section.body += to_html(report::Figure{
      .title = "Gradient norm",
      .reading =
          "The length of the whole gradient before clipping, on a logarithmic axis. A sudden rise often "
          "comes before an overflow.",
      .body = to_html(norm),
      .legend = ""});
  section.body += "</div>\n";
  return section;
}

report::Section method_section(const Audit& audit) {
  report::Section section{.id = "method",
                          .link = "Method",
                          .heading = "How this was measured",
                          .intro =
                              "The audit repeats training steps, each of them again without each of its "
                              "roundings, and whole steps in f32. Observing changes no bit of the run."};
  if (!audit.command.empty()) section.body += "<h3>Command</h3>\n" + report::command_box(audit.command);
  if (!audit.policy.empty())
    section.body += "<h3>Precision policy</h3>\n" + report::command_box(audit.policy);
  std::vector<report::Fact> facts;
  if (!audit.observed.empty()) {
    std::string steps = report::count_text(audit.observed.front());
    if (audit.observed.size() > 1)
      steps = fmt::format("{} from {} to {}", audit.observed.size(), steps,
                          report::count_text(audit.observed.back()));
    facts.push_back({"Observed steps", steps});
  }
  if (audit.points_of_rounding > 0) {
    facts.push_back({"Rounding points", report::count_text(audit.points_of_rounding)});
    facts.push_back({"Not observed", report::count_text(std::ssize(audit.unobserved))});
  }
  if (audit.seconds > 0) facts.push_back({"Time", report::escaped(human_seconds(audit.seconds))});
  facts.push_back({"Values of the plan", report::count_text(static_cast<std::int64_t>(audit.values.size()))});
  facts.push_back(
      {"Parameters", report::count_text(static_cast<std::int64_t>(audit.weights.size())) + " tensors"});
  section.body += report::facts_html(facts);
  const auto list = [&](const char* heading, const std::vector<std::string>& items) {
    if (items.empty()) return;
    section.body += fmt::format("<h3>{}</h3>\n<ul>\n", heading);
    for (const std::string& item : items) section.body += "<li>" + report::escaped(item) + "</li>\n";
    section.body += "</ul>\n";
  };
  list("Rounding points that were not observed", audit.unobserved);
  list("Parts of the run that were not observed", audit.unreached);
  list("Passes beside the training step, which were not observed", audit.passes);
  if (audit.thresholds.empty()) return section;
  report::Table table{
      .label = "Thresholds", .columns = {{"Reported above"}, {"Threshold", true}}, .rows = {}};
  for (const auto& [name, value] : audit.thresholds)
    table.rows.push_back(
        {{report::escaped(threshold_text(name))}, {report::raised_html(report::number_text(value))}});
  section.body +=
      "<h3>Thresholds</h3>\n<p class=\"none-line\">A measurement is reported as a finding only beyond "
      "its threshold.</p>\n" +
      to_html(table);
  return section;
}

}  // namespace mantissa::lab
