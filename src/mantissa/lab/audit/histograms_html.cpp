// Histograms of magnitudes: the most interesting tensors large, all others as rows of one chart for each
// module.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "mantissa/lab/audit/sections.h"
#include "mantissa/lab/module_place.h"
#include "mantissa/report/binade_chart.h"
#include "mantissa/report/number_text.h"

namespace mantissa::lab {
namespace {

constexpr std::size_t kLarge = 6;  // large histograms

// A tensor with its histogram.
struct Tensor {
  ModulePlace place;
  std::string scope, what, group;  // "matmul q"; "Forward pass"
  Scalar format = Scalar::f32;
  std::optional<BlockFormat> blocks = {};
  StateCodes codes = StateCodes::none;
  const Binades* after = nullptr;
  const Binades* before = nullptr;  // or null
  double absmax = 0;
  double flushed = 0, beyond = 0;  // the largest shares of a step
  double rank = 0;
};

// How much a tensor deserves a large histogram: values beyond the range, then values lost below it, then
// little room to the limit.
double rank_of(const Tensor& t) {
  const double room = t.absmax > 0 ? std::log2(traits(t.format).max_finite / t.absmax) : 1000;
  return 100 * std::min(1.0, t.beyond * 1e4) + 50 * std::min(1.0, t.flushed * 10) -
         std::clamp(room, 0.0, 40.0);
}

std::string format_of(const Tensor& t) {
  if (t.codes != StateCodes::none) return std::string(name(t.codes));
  return std::string(t.blocks ? traits(*t.blocks).name : name(t.format));
}

std::string group_of(const std::string& pass) {
  if (pass == "forward") return "Forward pass";
  if (pass == "backward") return "Backward pass";
  return pass == "update" ? "Update" : pass;
}

std::vector<Tensor> tensors_of(const Audit& audit) {
  std::vector<Tensor> out;
  for (const ValueSeries& v : audit.values) {
    if (v.binades.total() == 0 && v.before.total() == 0) continue;
    Tensor t{ModulePlace(v.scope),
             v.scope,
             v.op_and_name(),
             group_of(v.pass),
             v.format,
             v.blocks,
             v.codes,
             &v.binades,
             v.before.total() > 0 ? &v.before : nullptr};
    for (const ValueStep& s : v.steps) {
      t.absmax = std::max(t.absmax, s.absmax);
      t.flushed = std::max(t.flushed, s.flushed.value_or(0));
      t.beyond = std::max({t.beyond, s.inf + s.nan, s.saturated, s.overflowed.value_or(0)});
    }
    t.rank = rank_of(t);
    for (std::size_t i = 0; i < audit.findings.size(); ++i) {
      const Finding& f = audit.findings[i];
      if (f.scope == v.scope && (f.op.empty() || f.op == v.op) && (f.pass.empty() || f.pass == v.pass)) {
        t.rank += 1000.0 / static_cast<double>(i + 1) + 200;
        break;
      }
    }
    out.push_back(std::move(t));
  }
  for (const ParameterSeries& p : audit.weights)
    for (const bool gradient : {false, true}) {
      const Binades& binades = gradient ? p.gradients : p.weights;
      if (binades.total() == 0) continue;
      Tensor t{ModulePlace(p.name),
               p.name,
               "",
               gradient ? "Weight gradients" : "Weights",
               gradient ? Scalar::f32 : p.master,
               std::nullopt,
               StateCodes::none,
               &binades,
               nullptr};
      for (const auto& [step, health] : p.steps)
        t.absmax = std::max(t.absmax, gradient ? health.grad_absmax : health.weight_absmax);
      t.rank = rank_of(t);
      out.push_back(std::move(t));
    }
  return out;
}

// "The largest value is 4.3e4 of at most 65 504 in f16. 2.1 % of the elements became zero."
std::string reading_of(const Tensor& t) {
  const ScalarTraits& format = traits(t.format);
  std::string out;
  if (t.absmax > 0 && t.blocks) {
    out = fmt::format("The largest magnitude is {}; every block of {} has its own scale.",
                      report::number_text(t.absmax), traits(*t.blocks).name);
  } else if (t.absmax > 0) {
    out = fmt::format("The largest magnitude is {}; {} holds up to {}.", report::number_text(t.absmax),
                      format.name, report::number_text(format.max_finite));
  }
  if (t.beyond > 0)
    out += fmt::format(" In the worst step, {} of the elements reached or passed that limit.",
                       report::share_text(t.beyond));
  if (t.flushed > 0) out += fmt::format(" In the worst step, {} became zero.", report::share_text(t.flushed));
  return out;
}

std::string large(const Tensor& t) {
  report::BinadeChart chart{.label = t.scope + " " + t.what + ": magnitudes by power of two",
                            .range = report::range_of(t.format),
                            .after = *t.after};
  if (t.before != nullptr) chart.before = *t.before;
  std::string group = t.group;
  if (!group.empty() && group.front() >= 'A' && group.front() <= 'Z')
    group.front() = static_cast<char>(group.front() - 'A' + 'a');
  return fmt::format("<figure><figcaption><h3>{}</h3><p>{} {} · {}</p><p>{}</p></figcaption>{}</figure>\n",
                     report::module_html(t.scope), report::escaped(t.what + (t.what.empty() ? "" : ",")),
                     report::escaped(group), formats_html(format_of(t)), report::escaped(reading_of(t)),
                     to_html(chart));
}

// The tensors for large histograms: of those without a finding, one for each module and op.
std::vector<const Tensor*> chosen(const std::vector<Tensor>& tensors) {
  std::vector<const Tensor*> sorted;
  for (const Tensor& t : tensors) sorted.push_back(&t);
  std::ranges::stable_sort(sorted, [](const Tensor* a, const Tensor* b) { return a->rank > b->rank; });
  std::set<std::tuple<std::string, std::string, std::string>> kinds;
  std::vector<const Tensor*> out;
  for (const Tensor* t : sorted) {
    if (!kinds.insert({t->place.module, t->what, t->group}).second) continue;
    out.push_back(t);
    if (out.size() == kLarge) break;
  }
  return out;
}

std::string rows_chart(std::vector<const Tensor*> tensors) {
  std::ranges::stable_sort(tensors, {}, [](const Tensor* t) { return t->place.layer; });
  const Tensor& first = *tensors.front();
  report::BinadeRows chart{.label = first.place.module + " " + first.what + ": magnitudes by power of two",
                           .row_name = first.place.layer >= 0 ? "layer" : "",
                           .range = report::range_of(first.format),
                           .rows = {}};
  double absmax = 0;
  for (const Tensor* t : tensors) {
    std::string text = t->scope + (t->what.empty() ? "" : " " + t->what);
    const std::string reading = reading_of(*t);
    if (!reading.empty()) text += "\n" + reading;
    chart.rows.push_back({t->place.layer >= 0 ? t->place.label() : "", text, t->after, t->before});
    absmax = std::max(absmax, t->absmax);
  }
  const std::string title =
      fmt::format("{} {} {}<small>{}largest {}</small>", report::module_html(first.place.module),
                  report::escaped(first.what), formats_html(format_of(first)),
                  first.place.layer >= 0
                      ? fmt::format("{} {}, ", tensors.size(), tensors.size() == 1 ? "layer" : "layers")
                      : "",
                  report::raised_html(report::number_text(absmax)));
  return report::disclosure(title, to_html(chart));
}

// All tensors: a disclosure for each group, in it one for each module.
std::string all_html(const std::vector<Tensor>& tensors) {
  using Key = std::tuple<std::string, std::string, std::string, Scalar>;
  std::vector<std::string> groups;
  std::map<std::string, std::vector<std::vector<const Tensor*>>> charts;
  std::map<std::pair<std::string, Key>, std::size_t> index;
  for (const Tensor& t : tensors) {
    if (!charts.contains(t.group)) groups.push_back(t.group);
    auto& of_group = charts[t.group];
    const auto [at, is_new] =
        index.try_emplace({t.group, Key{t.place.stack, t.place.module, t.what, t.format}}, of_group.size());
    if (is_new) of_group.emplace_back();
    of_group[at->second].push_back(&t);
  }
  std::string out;
  for (const std::string& group : groups) {
    std::string body;
    for (const auto& of_module : charts[group]) body += rows_chart(of_module);
    const std::size_t count = charts[group].size();
    out += report::disclosure(
        fmt::format("{}<small>{} {}</small>", report::escaped(group), count, count == 1 ? "chart" : "charts"),
        body);
  }
  return out;
}

}  // namespace

report::Section histograms_section(const Audit& audit) {
  report::Section section{
      .id = "magnitudes",
      .link = "Magnitudes",
      .heading = "How large the values are",
      .intro =
          "Each bar counts the values between two powers of two, over all observed steps. Heights are "
          "logarithmic, so that rare values can be seen. The shaded ends are beyond the format."};
  const std::vector<Tensor> tensors = tensors_of(audit);
  if (tensors.empty()) {
    section.intro = "No value was observed.";
    return section;
  }
  section.body = report::binade_legend() + "<div class=\"grid histograms\">";
  for (const Tensor* t : chosen(tensors)) section.body += large(*t);
  section.body +=
      "</div>\n<h3 class=\"all\">Every tensor</h3>\n<p class=\"none-line\">One small histogram for each "
      "layer. A row that leans against a shaded zone is at risk.</p>\n" +
      all_html(tensors);
  return section;
}

}  // namespace mantissa::lab
