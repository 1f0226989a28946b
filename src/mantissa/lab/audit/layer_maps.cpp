#include "mantissa/lab/audit/layer_maps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "mantissa/core/base/words.h"
#include "mantissa/report/html.h"
#include "mantissa/report/page.h"

namespace mantissa::lab {
namespace {

constexpr std::size_t kMostColumns = 60, kMostSmallColumns = 40, kLeastSmallColumns = 5;
constexpr std::size_t kMostMarks = 1800;  // of the small maps of a pass, about 100 bytes each

using Rows = std::vector<const MapRow*>;

std::vector<std::int64_t> steps_of(const Rows& rows) {
  std::set<std::int64_t> steps;
  for (const MapRow* r : rows)
    for (const auto& [step, value] : r->values) steps.insert(step);
  return {steps.begin(), steps.end()};
}

// Adds the values to a row of a map where they are larger in magnitude.
void add(std::vector<double>& row, const std::vector<std::int64_t>& steps, const MapRow& from) {
  for (const auto& [step, value] : from.values) {
    double& cell = row[static_cast<std::size_t>(std::ranges::lower_bound(steps, step) - steps.begin())];
    if (std::isnan(cell) || std::fabs(value) > std::fabs(cell)) cell = value;
  }
}

report::HeatMap empty_map(const std::vector<std::int64_t>& steps, std::string label) {
  report::HeatMap map{.label = std::move(label), .row_name = "", .columns = {}, .rows = {}};
  for (const std::int64_t s : steps) map.columns.push_back(std::to_string(s));
  return map;
}

// The largest magnitude of each row of the model that is in `order`.
report::HeatMap overview(const Rows& rows, const std::vector<ModulePlace>& order, const std::string& label) {
  const std::vector<std::int64_t> steps = steps_of(rows);
  report::HeatMap map = empty_map(steps, label);
  std::map<std::string, Rows> by_row;
  for (const MapRow* r : rows) by_row[r->place.row()].push_back(r);
  for (const ModulePlace& place : order) {
    const auto found = by_row.find(place.row());
    report::HeatRow row{place.label(), place.row() + (place.layer >= 0 ? " (worst of the layer)" : ""),
                        std::vector<double>(steps.size(), std::nan(""))};
    if (found != by_row.end())
      for (const MapRow* r : found->second) add(row.values, steps, *r);
    if (place.layer >= 0) map.row_name = "layer";
    map.rows.push_back(std::move(row));
  }
  report::join_columns(map, kMostColumns);
  return map;
}

// One map for each module kind and op, in the order of their first rows.
struct Module {
  std::string name, what;
  Rows rows;
};

std::vector<Module> modules_of(const Rows& rows) {
  std::vector<Module> out;
  std::map<std::pair<std::string, std::string>, std::size_t> index;
  for (const MapRow* r : rows) {
    const auto [at, is_new] = index.try_emplace({r->place.module, r->what}, out.size());
    if (is_new) out.push_back({r->place.module, r->what, {}});
    out[at->second].rows.push_back(r);
  }
  return out;
}

report::HeatMap module_map(const Module& module) {
  const std::vector<std::int64_t> steps = steps_of(module.rows);
  report::HeatMap map = empty_map(steps, module.name + " " + module.what + " by layer and step");
  map.height = 190;
  Rows rows = module.rows;
  std::ranges::stable_sort(
      rows, {}, [](const MapRow* r) { return std::pair<int, const std::string&>(r->place.layer, r->scope); });
  std::string scope;
  for (const MapRow* r : rows) {
    if (r != rows.front() && r->scope == scope) {  // an op with several results, of which none has a name
      add(map.rows.back().values, steps, *r);
      continue;
    }
    scope = r->scope;
    report::HeatRow row{r->place.label(), r->scope + (r->what.empty() ? "" : " " + r->what),
                        std::vector<double>(steps.size(), std::nan(""))};
    if (r->place.layer < 0) row.label = "";
    add(row.values, steps, *r);
    map.rows.push_back(std::move(row));
  }
  report::join_columns(map, kMostSmallColumns);
  return map;
}

bool is_quiet(const Rows& rows, const report::ColorScale& scale) {
  return std::ranges::all_of(rows, [&](const MapRow* r) {
    return std::ranges::all_of(
        r->values, [&](const auto& v) { return std::isnan(v.second) || scale.class_of(v.second) == 0; });
  });
}

std::string titled(std::string name) {
  if (!name.empty() && name.front() >= 'a' && name.front() <= 'z')
    name.front() = static_cast<char>(name.front() - 'a' + 'A');
  return name;
}

// The maps of single modules of one pass. Modules of class 0 are only named.
std::string details(const std::string& pass, const Rows& rows, const report::ColorScale& scale) {
  std::vector<std::pair<const Module*, report::HeatMap>> maps;
  std::vector<std::string> quiet;
  const std::vector<Module> modules = modules_of(rows);
  for (const Module& m : modules) {
    if (is_quiet(m.rows, scale)) {
      const std::string text = m.name + (m.what.empty() ? "" : " " + m.what);
      quiet.push_back(text);
      continue;
    }
    maps.emplace_back(&m, module_map(m));
  }
  // Noise has a mark for each cell; fewer columns bound the size of the page.
  for (std::size_t columns = kMostSmallColumns; columns / 2 >= kLeastSmallColumns; columns /= 2) {
    std::size_t marks = 0;
    for (const auto& [module, map] : maps) marks += marks_of(map, scale);
    if (marks <= kMostMarks) break;
    for (auto& [module, map] : maps) report::join_columns(map, columns / 2);
  }
  std::string body = "<div class=\"small\">";
  for (const auto& [module, map] : maps)
    body += fmt::format("<div><h4>{} <span>{}</span></h4>{}</div>\n", report::module_html(module->name),
                        report::escaped(module->what), to_html(map, scale));
  body += "</div>\n";
  if (!quiet.empty())
    body +=
        fmt::format("<p class=\"none-line\">Nothing to show in: {}.</p>\n", report::escaped(list_of(quiet)));
  const std::string heading = pass.empty() ? "By module" : titled(pass) + " pass, by module";
  return report::disclosure(fmt::format("{}<small>{} {}</small>", report::escaped(heading), maps.size(),
                                        maps.size() == 1 ? "module" : "modules"),
                            body);
}

void keep_measured(std::vector<MapRow>& rows, MapRow row) {
  std::erase_if(row.values, [](const auto& v) { return std::isnan(v.second); });
  if (!row.values.empty()) rows.push_back(std::move(row));
}

}  // namespace

std::string layer_maps(const MapTexts& texts, const std::vector<MapRow>& rows,
                       const std::vector<ModulePlace>& order, const report::ColorScale& scale) {
  std::vector<std::pair<std::string, Rows>> passes;
  for (const MapRow& r : rows) {
    auto at = std::ranges::find(passes, r.pass, &std::pair<std::string, Rows>::first);
    if (at == passes.end()) at = passes.insert(passes.end(), {r.pass, {}});
    at->second.push_back(&r);
  }
  const auto line = [&](report::Status status, const std::string& text) {
    return fmt::format("<figure class=\"quiet\">{}<figcaption><h3>{}</h3><p>{}</p></figcaption></figure>\n",
                       report::status_mark(status), report::escaped(texts.title), report::escaped(text));
  };
  if (passes.empty()) return line(report::Status::unknown, texts.unmeasured);
  if (std::ranges::all_of(passes, [&](const auto& p) { return is_quiet(p.second, scale); }))
    return line(report::Status::good, texts.nothing);
  // All passes show the same rows, so that they can be compared.
  std::set<std::string> measured;
  for (const MapRow& r : rows) measured.insert(r.place.row());
  std::vector<ModulePlace> shown;
  for (const ModulePlace& p : order)
    if (measured.contains(p.row())) shown.push_back(p);
  std::string maps, quiet, more;
  bool missing = false;
  for (const auto& [pass, of_pass] : passes) {
    if (is_quiet(of_pass, scale)) {
      quiet += fmt::format("<p class=\"none-line\">{} pass: {}</p>\n", report::escaped(titled(pass)),
                           report::escaped(texts.nothing));
      continue;
    }
    const report::HeatMap map = overview(of_pass, shown, texts.title + ", by layer and step");
    missing = missing || has_missing(map);
    maps += fmt::format("<div>{}{}</div>\n",
                        pass.empty() ? "" : fmt::format("<h4>{} pass</h4>", report::escaped(titled(pass))),
                        to_html(map, scale));
    more += details(pass, of_pass, scale);
  }
  return to_html(
      report::Figure{.title = texts.title,
                     .reading = texts.reading,
                     .body = "<div class=\"pair\">" + maps + "</div>" + legend_html(scale, missing) + quiet,
                     .legend = more});
}

std::vector<MapRow> rows_of(const std::vector<ValueSeries>& values,
                            double (*measure)(const ValueStep& step)) {
  std::vector<MapRow> out;
  for (const ValueSeries& v : values) {
    MapRow row{ModulePlace(v.scope), v.scope, v.op_and_name(), v.pass, {}};
    for (const ValueStep& s : v.steps) row.values.emplace_back(s.step, measure(s));
    keep_measured(out, std::move(row));
  }
  return out;
}

std::vector<MapRow> rows_of(const std::vector<ParameterSeries>& weights,
                            double (*measure)(const runtime::ParameterHealth& health)) {
  std::vector<MapRow> out;
  for (const ParameterSeries& p : weights) {
    MapRow row{ModulePlace(p.name), p.name, "", "", {}};
    for (const auto& [step, health] : p.steps) row.values.emplace_back(step, measure(health));
    keep_measured(out, std::move(row));
  }
  return out;
}

std::vector<MapRow> gradient_rows(const std::vector<ParameterSeries>& weights,
                                  double (*measure)(const GradientStep& gradient)) {
  std::vector<MapRow> out;
  for (const ParameterSeries& p : weights) {
    MapRow row{ModulePlace(p.name), p.name, "", "", {}};
    for (const GradientStep& g : p.gradient_steps) row.values.emplace_back(g.step, measure(g));
    keep_measured(out, std::move(row));
  }
  return out;
}

}  // namespace mantissa::lab
