// The maps of an audit: what left the range of its format, what rounding changed, which updates were lost.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/lab/audit/layer_maps.h"
#include "mantissa/lab/audit/sections.h"
#include "mantissa/report/number_text.h"

namespace mantissa::lab {
namespace {

const report::ColorScale& share_scale() {
  static const report::ColorScale kScale{
      "share of elements, at least", {1e-5, 1e-4, 1e-3, 0.01, 0.05, 0.2, 0.5}, false, report::share_text};
  return kScale;
}

const report::ColorScale& updates_scale() {
  static const report::ColorScale kScale{
      "share of elements, at least", {0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99}, false, report::share_text};
  return kScale;
}

const report::ColorScale& error_scale() {
  static const report::ColorScale kScale{"error divided by the rms of the values, at least",
                                         {1e-6, 1e-4, 5e-4, 0.002, 0.01, 0.05, 0.2},
                                         false,
                                         report::number_text};
  return kScale;
}

const report::ColorScale& gradient_scale() {
  static const report::ColorScale kScale{"difference divided by the rms of the gradient in f32, at least",
                                         {1e-6, 1e-4, 1e-3, 0.01, 0.05, 0.2, 0.5},
                                         false,
                                         report::number_text};
  return kScale;
}

const report::ColorScale& bias_scale() {
  static const report::ColorScale kScale{
      "mean error divided by its rms", {0.02, 0.1, 0.3, 0.7}, true, report::share_text};
  return kScale;
}

std::string share_or_none(const std::optional<double>& share) {
  return share ? report::raised_html(report::share_text(*share)) : report::kNoNumber;
}

constexpr std::size_t kScaleColumns = 2;  // the last, of copies under a scale

// The parameters, the most lost updates first.
std::string parameter_table(const Audit& audit) {
  std::vector<const ParameterSeries*> rows;
  for (const ParameterSeries& p : audit.weights)
    if (!p.steps.empty()) rows.push_back(&p);
  std::ranges::stable_sort(rows, [](const ParameterSeries* a, const ParameterSeries* b) {
    return a->steps.back().second.updates_lost > b->steps.back().second.updates_lost;
  });
  report::Table table{.label = "Parameters",
                      .columns = {{"Parameter"},
                                  {"Stored as"},
                                  {"Elements", true},
                                  {"Updates lost", true},
                                  {"Never moved", true},
                                  {"Gradients flushed", true},
                                  {"Gradients saturated", true},
                                  {"Largest gradient", true},
                                  {"Largest weight", true},
                                  {"Copy saturated", true},
                                  {"Copy's scale", true}},
                      .rows = {}};
  for (const ParameterSeries* p : rows) {
    const runtime::ParameterHealth& h = p->steps.back().second;
    const auto share = [](double s) { return report::raised_html(report::share_text(s)); };
    const auto number = [](double x) { return report::raised_html(report::number_text(x)); };
    table.rows.push_back({{report::module_html(p->name)},
                          {formats_html(std::string(name(p->master)))},
                          {report::count_text(h.elements)},
                          {share(h.updates_lost), h.updates_lost},
                          {share_or_none(h.never_moved), h.never_moved.value_or(-1)},
                          {share(h.grads_flushed), h.grads_flushed},
                          {share(h.grads_saturated), h.grads_saturated},
                          {number(h.grad_absmax)},
                          {number(h.weight_absmax)},
                          {share_or_none(h.saturated)},
                          {h.scale ? report::raised_html(report::power_text(*h.scale)) : report::kNoNumber}});
  }
  if (table.rows.empty()) return "";
  const bool scaled = std::ranges::any_of(rows, [](const ParameterSeries* p) {
    return p->steps.back().second.saturated || p->steps.back().second.scale;
  });
  if (!scaled) {
    table.columns.resize(table.columns.size() - kScaleColumns);
    for (auto& row : table.rows) row.resize(row.size() - kScaleColumns);
  }
  const std::string summary = fmt::format(
      "Every parameter at the last observed step<small>{} tensors, most lost updates first</small>",
      table.rows.size());
  return report::disclosure(summary, to_html(table));
}

}  // namespace

report::Section range_section(const Audit& audit) {
  const std::vector<ModulePlace> order = rows_in_order(scopes_of(audit));
  report::Section section{.id = "range",
                          .link = "Range",
                          .heading = "Values that left the range of their format",
                          .intro =
                              "A format has a largest and a smallest value. Beyond the largest, values "
                              "become inf or are clipped; below the smallest, they become zero."};
  section.body += layer_maps(
      {.title = "Too large: overflow and saturation",
       .reading =
           "Each cell is the worst value of a layer in one step: the share of its elements that became inf "
           "or NaN, or were clipped to the largest value of the format. The stronger the colour, the more "
           "elements.",
       .nothing = "No value reached the upper end of its format.",
       .unmeasured = "No value was observed."},
      rows_of(audit.values,
              [](const ValueStep& s) {
                return std::max({s.saturated, s.inf + s.nan, s.overflowed.value_or(0)});
              }),
      order, share_scale());
  section.body += layer_maps(
      {.title = "Too small: underflow",
       .reading =
           "Each cell is the worst value of a layer in one step: the share of its elements that were not "
           "zero before rounding and are zero after it.",
       .nothing = "No value became zero by rounding.",
       .unmeasured = "No observed value is rounded to a narrower format."},
      rows_of(audit.values, [](const ValueStep& s) { return s.flushed.value_or(std::nan("")); }), order,
      share_scale());
  return section;
}

report::Section rounding_section(const Audit& audit) {
  const std::vector<ModulePlace> order = rows_in_order(scopes_of(audit));
  report::Section section{
      .id = "rounding",
      .link = "Rounding",
      .heading = "What rounding changed",
      .intro =
          "Each step ran again without each of its roundings, and the results were compared: the stored "
          "values with those before rounding, and results with those without a rounding inside the op."};
  section.body += layer_maps(
      {.title = "Size of the rounding error",
       .reading =
           "The root mean square of the error, divided by that of the values. About 0.0002 is usual for f16, "
           "0.0015 for bf16 and 0.03 for e4m3. A cell that stands out from its neighbours deserves a look.",
       .nothing = "Rounding changed no value.",
       .unmeasured = "No observed value is rounded to a narrower format."},
      rows_of(audit.values, [](const ValueStep& s) { return s.error_rms.value_or(std::nan("")); }), order,
      error_scale());
  section.body += layer_maps(
      {.title = "Direction of the rounding error",
       .reading = "The mean error divided by its size: 0 if rounding goes up as often as down, ±100 % if it "
                  "always goes one way. A layer of one colour over many steps is biased, and such errors add "
                  "up.",
       .nothing = "The mean error of every value is near zero: rounding is not biased.",
       .unmeasured = "No observed value is rounded to a narrower format."},
      rows_of(audit.values,
              [](const ValueStep& s) {
                return s.error_mean && s.error_rms && *s.error_rms > 0 ? *s.error_mean / *s.error_rms
                                                                       : std::nan("");
              }),
      order, bias_scale());
  return section;
}

report::Section updates_section(const Audit& audit) {
  const std::vector<ModulePlace> order = rows_in_order(scopes_of(audit));
  report::Section section{
      .id = "updates",
      .link = "Updates",
      .heading = "Updates that were lost",
      .intro =
          "A weight moves only if its update is large compared with the spacing of its format. A smaller "
          "update is rounded away, and the weight stays where it was."};
  section.body += layer_maps(
      {.title = "Lost updates",
       .reading =
           "Each cell is the worst parameter of a layer in one step: the share of its elements whose update "
           "was not zero, but left the stored weight as it was.",
       .nothing = "Every update changed its weight.",
       .unmeasured = "No optimizer step was observed."},
      rows_of(audit.weights, [](const runtime::ParameterHealth& h) { return h.updates_lost; }), order,
      updates_scale());
  section.body += layer_maps(
      {.title = "Gradients flushed to zero",
       .reading =
           "Each cell is the worst parameter of a layer in one step: the share of its gradient that was not "
           "zero, but became zero in the gradient's format.",
       .nothing =
           "No gradient of a parameter became zero by rounding. Other gradients are in the maps above.",
       .unmeasured = "No optimizer step was observed."},
      rows_of(audit.weights, [](const runtime::ParameterHealth& h) { return h.grads_flushed; }), order,
      share_scale());
  section.body += layer_maps(
      {.title = "Gradients beside f32",
       .reading =
           "Each cell is the worst parameter of a layer in one step: the rms of the difference between its "
           "gradient and that of the same step in f32, divided by the rms in f32. All roundings of the step "
           "add up here.",
       .nothing = "The gradients equal those of the same steps in f32.",
       .unmeasured = audit.no_reference.empty()
                         ? "No gradient was compared with that in f32."
                         : "Gradients were not compared with f32: " + audit.no_reference + "."},
      gradient_rows(audit.weights, [](const GradientStep& g) { return g.error; }), order, gradient_scale());
  section.body += parameter_table(audit);
  return section;
}

}  // namespace mantissa::lab
