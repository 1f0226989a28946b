// A comparison as text.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/base/words.h"
#include "mantissa/files/io/safetensors_header.h"
#include "mantissa/lab/diff/diff.h"
#include "mantissa/lab/diff/trace_order.h"

namespace mantissa::lab {
namespace {

constexpr std::size_t kColumns = 80;
constexpr std::size_t kLabel = 9;  // columns of "metrics  "

/// Lines that begin at `indent` columns.
std::string line(std::string_view text, std::size_t indent) {
  return wrapped(std::string(indent, ' ') + printable(text), indent, kColumns) + "\n";
}

std::string kind_text(const convert::DifferentTensor& t) {
  std::string text = fmt::format("{} {}", io::safetensors_name(t.a.dtype), io::shape_text(t.a.shape));
  const std::string other = fmt::format("{} {}", io::safetensors_name(t.b.dtype), io::shape_text(t.b.shape));
  return text == other ? text : fmt::format("{} → {}", text, other);
}

std::string tensor_text(const convert::DifferentTensor& t, std::size_t indent) {
  std::string text = line(fmt::format("{}  {}", t.name, kind_text(t)), indent);
  if (t.reordered()) text += line("not compared: the elements may have another order", indent + 2);
  if (!t.comparable) return text;
  const convert::ElementDifferences& e = t.elements;
  std::string counts = fmt::format("{} of {} values differ", e.differ, e.count);
  if (e.nonfinite > 0) counts += fmt::format(", {} of them inf or NaN on a side", e.nonfinite);
  const bool numbers = convert::have_numbers(t.a.dtype, t.b.dtype);
  if (e.first) {
    counts += fmt::format("; first at [{}]", fmt::join(convert::index_of(*e.first, t.a.shape), ", "));
    const int digits = t.a.dtype == io::Dtype::f64 && t.b.dtype == io::Dtype::f64 ? 17 : 9;
    if (numbers) counts += fmt::format(": {:.{}g} → {:.{}g}", e.first_a, digits, e.first_b, digits);
  }
  if (e.zero_signs > 0)
    counts += fmt::format("; {} in sign", counted(e.zero_signs, "zero", "differs", "differ"));
  if (e.nan_bits > 0) counts += fmt::format("; {} NaN differ in sign or payload", e.nan_bits);
  text += line(counts, indent + 2);
  if (e.differ == e.nonfinite || !numbers) return text;
  const std::string unit = t.unit ? fmt::format("≤ {:.3g} ulp of {}; ", e.max_ulp, name(*t.unit)) : "";
  return text + line(fmt::format("{}largest {:.2g} ({:.2g} %), mean {:.2g}, bias {:.2g}", unit, e.max_abs,
                                 100 * e.relative(), e.mean_abs(), e.bias()),
                     indent + 2);
}

std::string unmatched_text(const std::vector<convert::UnmatchedTensor>& tensors, char side,
                           std::size_t limit) {
  std::string text;
  for (std::size_t i = 0; i < std::min(limit, tensors.size()); ++i) {
    const convert::UnmatchedTensor& t = tensors[i];
    const std::string near =
        t.nearest.empty() ? "" : fmt::format(" ({} has {})", side == 'A' ? 'B' : 'A', t.nearest);
    text += line(fmt::format("only in {}  {}{}", side, t.name, near), 0);
  }
  if (tensors.size() > limit) text += fmt::format("only in {}  {} more\n", side, tensors.size() - limit);
  return text;
}

std::string tensors_text(const convert::TensorDifferences& t, std::size_t limit, bool bitwise) {
  const std::vector<const convert::DifferentTensor*> all = t.differing(bitwise);
  std::string text;
  if (!all.empty()) text = fmt::format("\n{} of {} differ\n", all.size(), counted(t.compared, "tensor"));
  for (std::size_t i = 0; i < std::min(limit, all.size()); ++i) text += tensor_text(*all[i], 0);
  if (all.size() > limit) text += fmt::format("… and {} more (--limit N)\n", all.size() - limit);
  if (!t.only_a.empty() || !t.only_b.empty()) text += "\n";
  return text + unmatched_text(t.only_a, 'A', limit) + unmatched_text(t.only_b, 'B', limit);
}

/// Lists the parameters whose gradients are beyond rounding.
std::string faulty_text(const RoundingVerdict& rounding, std::size_t limit) {
  const std::vector<const GradientVerdict*> faulty = rounding.faulty_gradients();
  std::string text;
  for (std::size_t i = 0; i < std::min(limit, faulty.size()); ++i) {
    const GradientVerdict& g = *faulty[i];
    text += line(g.nonfinite
                     ? fmt::format("{}: inf or NaN on one side only", g.name)
                     : fmt::format("{}: {:.2g}, explained up to {:.2g}", g.name, g.difference, g.allowance),
                 4);
  }
  if (faulty.size() > limit) text += fmt::format("    … and {} more\n", faulty.size() - limit);
  return text;
}

/// A section of lines with a label in front of the first.
std::string section(std::string_view label, const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& one : lines) text += line(one, kLabel);
  if (!text.empty()) text.replace(0, label.size(), label);
  return text;
}

std::vector<std::string> config_lines(const std::vector<ConfigDifference>& config, std::size_t limit) {
  std::vector<std::string> lines;
  const auto shown = [](const std::string& value) { return value.empty() ? std::string("(none)") : value; };
  for (const ConfigDifference& d : config) {
    if (lines.size() == limit) {
      lines.push_back(fmt::format("… and {} more", config.size() - limit));
      break;
    }
    lines.push_back(fmt::format("{}: {} → {}{}", d.key, shown(d.a), shown(d.b),
                                d.counts() ? "" : fmt::format(" ({})", d.exempt)));
  }
  return lines;
}

std::string metric_line(const MetricDifference& d) {
  std::string text = fmt::format("{}: {} → {}", d.metric, short_text(d.a), short_text(d.b));
  if (!d.a.is_number() || !d.b.is_number()) return text;
  if (d.a.is_number_integer() && d.b.is_number_integer()) return text;
  const double a = d.a.get<double>(), b = d.b.get<double>();
  const double largest = std::max(std::abs(a), std::abs(b));
  return text + fmt::format(" ({:+.2g}, {:.2g} relative)", b - a, std::abs(b - a) / largest);
}

std::vector<std::string> metrics_lines(const MetricsDifferences& m) {
  std::vector<std::string> lines;
  if (m.different == 0) {
    lines.push_back(fmt::format("equal: {}", counted(m.compared, "step")));
  } else {
    lines.push_back(fmt::format("{} of {} differ; the first is step {}{}", m.different,
                                counted(m.compared, "step"), *m.first_different,
                                m.last_equal ? fmt::format(", after the equal step {}", *m.last_equal) : ""));
    constexpr std::size_t kMost = 4;
    for (std::size_t i = 0; i < std::min(kMost, m.first.size()); ++i)
      lines.push_back(metric_line(m.first[i]));
    if (m.first.size() > kMost) lines.push_back(fmt::format("… and {} more", m.first.size() - kMost));
  }
  const auto end = [](const std::optional<std::int64_t>& step) {
    return step ? fmt::format("{}", *step) : "none";
  };
  if (m.last_a != m.last_b)
    lines.push_back(fmt::format("last step: {} in A, {} in B", end(m.last_a), end(m.last_b)));
  return lines;
}

/// Returns one line for the first tensor that differs.
std::string first_tensor_line(const convert::TensorDifferences& t, bool bitwise) {
  const std::vector<const convert::DifferentTensor*> all = t.differing(bitwise);
  if (all.empty()) return fmt::format("only in A: {}, only in B: {}", t.only_a.size(), t.only_b.size());
  return fmt::format("{} of {} differ; the first is {}: {}", all.size(), counted(t.compared, "tensor"),
                     all[0]->name, extent_text(*all[0], bitwise));
}

std::vector<std::string> state_lines(const RunDifferences& r, bool bitwise) {
  std::vector<std::string> lines;
  const std::vector<std::int64_t>& equal = r.equal_states;
  if (!equal.empty())
    lines.push_back(fmt::format("equal: step{} {}", equal.size() == 1 ? "" : "s", fmt::join(equal, ", ")));
  if (r.state) {
    const std::int64_t before = equal.empty() ? 0 : equal.back();
    lines.push_back(fmt::format("step {} differs, so the difference arose in steps {}–{}", r.state->step_a,
                                before + 1, r.state->step_a));
    for (const MetricDifference& d : r.state->progress) lines.push_back(metric_line(d));
    if (!r.state->tensors.equal(bitwise)) lines.push_back(first_tensor_line(r.state->tensors, bitwise));
  }
  if (!r.only_a.empty()) lines.push_back(fmt::format("only in A: {}", fmt::join(r.only_a, ", ")));
  if (!r.only_b.empty()) lines.push_back(fmt::format("only in B: {}", fmt::join(r.only_b, ", ")));
  if (lines.empty()) lines.emplace_back("none");
  return lines;
}

std::vector<std::string> model_lines(const RunDifferences& r, bool bitwise) {
  if (r.model_in_a != r.model_in_b) return {fmt::format("only in {}", r.model_in_a ? "A" : "B")};
  if (!r.model) return {"none"};
  if (!r.model->equal(bitwise)) return {first_tensor_line(*r.model, bitwise)};
  return {fmt::format("equal: {}", counted(r.model->compared, "tensor"))};
}

std::string run_text(const RunDifferences& r, std::size_t limit, bool bitwise) {
  std::string text = "\n" + section("config", config_lines(r.config, limit));
  text += section("metrics", r.metrics ? metrics_lines(*r.metrics)
                                       : std::vector<std::string>{"a run has no metrics.jsonl"});
  return text + section("states", state_lines(r, bitwise)) + section("model", model_lines(r, bitwise));
}

std::string state_text(const Diff& d, std::size_t limit) {
  std::vector<std::string> lines;
  for (const MetricDifference& p : d.states->progress) lines.push_back(metric_line(p));
  std::string text = section("config", config_lines(d.config, limit)) + section("progress", lines);
  if (!text.empty()) text = "\n" + text;
  return text + tensors_text(d.states->tensors, limit, d.bitwise);
}

}  // namespace

std::string to_text(const Diff& d, std::size_t limit) {
  if (d.bitwise) return verdict(d);
  std::string text = printable(fmt::format("A  {}  ({})", d.a.path.string(), name(d.a.kind))) + "\n" +
                     printable(fmt::format("B  {}  ({})", d.b.path.string(), name(d.b.kind))) + "\n";
  text += wrapped(verdict(d), 2, kColumns) + "\n";
  for (const std::string& verdict : trace_verdicts(d)) text += wrapped(verdict, 2, kColumns) + "\n";
  if (d.rounding) text += faulty_text(*d.rounding, limit);
  if (d.runs) text += run_text(*d.runs, limit, d.bitwise);
  if (d.states) text += state_text(d, limit);
  if (d.tensors) text += tensors_text(*d.tensors, limit, d.bitwise);
  if (d.is_trace() && !d.equal()) {
    const std::vector<const convert::DifferentTensor*> all = d.tensors->differing(false);
    if (!all.empty() && traced_op(all[0]->name).op.empty())
      text += "\n" + line("To find the first op, write both traces with --values '*'.", 0);
  }
  text.pop_back();
  return text;
}

}  // namespace mantissa::lab
