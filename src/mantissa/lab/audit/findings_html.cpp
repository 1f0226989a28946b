// Findings as cards, and the first value that was not finite.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "mantissa/core/base/words.h"
#include "mantissa/lab/audit/sections.h"
#include "mantissa/report/number_text.h"

namespace mantissa::lab {
namespace {

using report::Status;

struct KindText {
  const char* name;
  Status status;
  bool precision = true;  // false: no number format is the cause
};

KindText kind_text(const std::string& kind) {
  static const std::map<std::string, KindText> kKinds = {
      {"nonfinite", {"Inf or NaN", Status::bad}},
      {"overflow", {"Overflow", Status::bad}},
      {"saturation", {"Saturation", Status::warning}},
      {"underflow", {"Underflow", Status::warning}},
      {"rounded_away", {"Lost updates", Status::warning}},
      {"bias", {"Biased rounding", Status::warning}},
      {"error", {"Inexact intermediate results", Status::warning}},
      {"cancellation", {"Cancellation", Status::warning}},
      {"scale_collapse", {"Loss scale collapse", Status::bad}},
      {"masked_row", {"Rows without labels", Status::warning, false}},
      {"no_labels", {"No labels", Status::bad, false}},
      {"learning_rate", {"Learning rate", Status::warning, false}},
  };
  const auto found = kKinds.find(kind);
  return found == kKinds.end() ? KindText{nullptr, Status::warning} : found->second;
}

std::string words(std::string name) {
  if (name == "lr") return "Learning rate";
  if (name == "absmax") return "Largest magnitude";
  if (name == "absmin") return "Smallest magnitude";
  constexpr std::string_view kAbsmax = "_absmax";
  if (name.ends_with(kAbsmax)) {  // "Largest magnitude of the weight", "… of operand 2"
    name.resize(name.size() - kAbsmax.size());
    std::ranges::replace(name, '_', ' ');
    return "Largest magnitude of " + (name.starts_with("operand") ? name : "the " + name);
  }
  if (name.find(' ') == std::string::npos) std::ranges::replace(name, '_', ' ');
  if (!name.empty() && name.front() >= 'a' && name.front() <= 'z')
    name.front() = static_cast<char>(name.front() - 'a' + 'A');
  return name;
}

// Evidence that is a share of elements.
bool is_share(std::string_view name) {
  for (const std::string_view part : {"share", "lost", "never_moved", "flushed", "saturated", "overflowed",
                                      "zeros", "subnormal", "cancelled", "underflow"})
    if (name.find(part) != std::string_view::npos) return true;
  return false;
}

// Evidence that is often a power of two.
bool is_power(std::string_view name) {
  for (const std::string_view part : {"scale", "limit", "spacing", "smallest"})
    if (name.find(part) != std::string_view::npos) return true;
  return false;
}

std::string evidence_html(const Finding& f) {
  std::vector<report::Fact> facts;
  if (f.share > 0) facts.push_back({"Share of elements", report::raised_html(report::share_text(f.share))});
  for (const auto& [name, value] : f.evidence) {
    if (name == "share" && value == f.share) continue;
    const std::string text = is_share(name) && value <= 1 ? report::share_text(value)
                             : is_power(name)             ? report::power_text(value)
                                                          : report::number_text(value);
    // Values that overflow are not among those with a magnitude.
    const bool finite = f.kind == "overflow" && name == "absmax";
    facts.push_back({finite ? "Largest finite magnitude" : words(name), report::raised_html(text)});
  }
  return facts.empty() ? "" : report::facts_html(facts);
}

std::string place_html(const Finding& f) {
  std::vector<report::Fact> facts;
  if (!f.scope.empty()) facts.push_back({"Where", report::module_html(f.scope)});
  if (!f.op.empty()) facts.push_back({"Operation", "<code>" + report::escaped(f.op) + "</code>"});
  if (!f.pass.empty()) facts.push_back({"Pass", report::escaped(f.pass)});
  facts.push_back({"First at step", report::count_text(f.step)});
  if (!f.rows.empty()) facts.push_back({"Data rows of that batch", report::escaped(rows_text(f.rows))});
  return report::facts_html(facts);
}

// The cure as a command that runs as it stands.
std::string cure_html(const Audit& audit, const Finding& f) {
  if (!f.cure || f.cure->arguments.empty())
    return fmt::format(
        "<p class=\"none-line\">{}.</p>\n",
        report::escaped(f.remark.empty() ? "No option of the command line cures this" : words(f.remark)));
  const std::string arguments = shell_words(f.cure->arguments);
  const std::string& start = audit.run_command.empty() ? audit.command : audit.run_command;
  const bool whole = f.cure->arguments.front() == "mantissa" || start.empty();
  const char* badge = f.cure->tested ? "<span class=\"badge yes\">✓ tested by replay</span>"
                                     : "<span class=\"badge no\">not tested</span>";
  std::string out = fmt::format("<p class=\"cure\">Cure {}</p>\n{}", badge,
                                report::command_box(!f.command.empty() ? f.command
                                                    : whole            ? arguments
                                                                       : start + " " + arguments));
  if (!f.cure->effect.empty())
    out += fmt::format("<p class=\"none-line\">{}</p>\n", report::escaped(words(f.cure->effect)));
  return out;
}

std::string card(const Audit& audit, const Finding& f, std::size_t number) {
  const KindText kind = kind_text(f.kind);
  const std::string name = kind.name == nullptr ? words(f.kind) : kind.name;
  return fmt::format(
      "<article class=\"card\" id=\"finding-{0}\">{1}<h3>{0}. <b>{2}</b>{3}</h3>\n<p class=\"say\">{4}</p>\n"
      "{5}{6}<div>{7}</div></article>\n",
      number, report::status_mark(kind.status), report::escaped(name),
      kind.precision ? "" : "<span class=\"badge no\">not caused by a number format</span>",
      report::escaped(f.text), place_html(f), evidence_html(f), cure_html(audit, f));
}

std::string inputs_html(const FirstNonFinite& first) {
  if (first.inputs.empty()) return "";
  report::Table table{
      .label = "Inputs of the operation", .columns = {{"Input"}, {"Largest magnitude", true}}, .rows = {}};
  const double limit = traits(first.format).max_finite;
  for (std::size_t i = 0; i < first.inputs.size(); ++i) {
    const InputRange& in = first.inputs[i];
    table.rows.push_back({{in.name.empty() ? fmt::format("operand {}", i + 1) : report::escaped(in.name)},
                          {report::raised_html(report::number_text(in.absmax)),
                           std::isfinite(in.absmax) ? in.absmax / limit : 1}});
  }
  return "<h3>What the operation read</h3>\n<p class=\"none-line\">Finite values only. " +
         fmt::format(
             "The bar compares the largest magnitude with {}, the limit of the result's format {}.</p>\n",
             report::raised_html(report::number_text(limit)), name(first.format)) +
         to_html(table);
}

}  // namespace

Status status_of(const Finding& finding) {
  return kind_text(finding.kind).status;
}

std::string kind_words(const Finding& finding) {
  const KindText kind = kind_text(finding.kind);
  std::string name = kind.name == nullptr ? words(finding.kind) : kind.name;
  constexpr std::string_view kCapital = "Inf";
  if (!name.starts_with(kCapital) && name.front() >= 'A' && name.front() <= 'Z')
    name.front() = static_cast<char>(name.front() - 'A' + 'a');
  return name;
}

report::Section findings_section(const Audit& audit) {
  report::Section section{.id = "findings",
                          .link = "Findings",
                          .heading = "What went wrong, and what cures it",
                          .intro =
                              "The worst problem is first. A cure is a whole command; \"tested\" means that "
                              "the steps were replayed with it, and the problem was gone."};
  if (audit.findings.empty()) {
    const bool seen = !audit.points.empty() || !audit.observed.empty();
    section.heading = "No findings";
    section.intro = seen ? "No measurement of the observed steps is beyond its threshold. The thresholds "
                           "are at the end of this page."
                         : "No step was observed, so there is nothing to judge.";
    if (!audit.stopped.empty())
      section.intro = "No measurement is beyond its threshold. The next section says why the run stopped.";
  }
  for (std::size_t i = 0; i < audit.findings.size(); ++i)
    section.body += card(audit, audit.findings[i], i + 1);
  return section;
}

report::Section stop_section(const Audit& audit) {
  report::Section section{.id = "first",
                          .link = "First inf or NaN",
                          .heading = "Where the first inf or NaN appeared",
                          .intro = audit.stopped.empty() ? "" : "The run ended: " + audit.stopped};
  if (!audit.first_non_finite) {
    section.link = "Stop";
    section.heading = "Why the run stopped";
    return section;
  }
  const FirstNonFinite& first = *audit.first_non_finite;
  const ScalarTraits& format = traits(first.format);
  std::vector<report::Fact> facts{
      {"Step", report::count_text(first.step)},
      {"Where", report::module_html(first.scope)},
      {"Operation", "<code>" + report::escaped(first.op) + "</code>"},
      {"Pass", report::escaped(first.pass)},
      {"Value", std::isnan(first.value) ? "NaN (not a number)"
                                        : report::raised_html(report::number_text(first.value))},
      {"Stored as", fmt::format("{} up to {}", formats_html(std::string(format.name)),
                                report::raised_html(report::number_text(format.max_finite)))}};
  if (first.channel >= 0) facts.push_back({"Channel", report::count_text(first.channel)});
  if (!first.rows.empty())
    facts.push_back({"Data rows of that batch", report::escaped(rows_text(first.rows))});
  section.body = "<figure>" + report::facts_html(facts);
  if (!first.text.empty()) section.body += "<p>" + report::escaped(first.text) + "</p>\n";
  section.body += inputs_html(first) + "</figure>\n";
  return section;
}

}  // namespace mantissa::lab
