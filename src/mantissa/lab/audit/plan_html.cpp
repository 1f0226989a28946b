// The plan of an audit as tables, with formats on the colours of their widths.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "mantissa/lab/audit/sections.h"
#include "mantissa/lab/module_place.h"

namespace mantissa::lab {
namespace {

// The colour class of a word, or "" if it is not a format.
std::string format_class(std::string_view word) {
  for (const std::string_view block : {"mxfp", "nvfp", "nf4", "int8"})
    if (word.starts_with(block)) return "block";
  for (const Scalar s : kScalars)
    if (word.starts_with(name(s))) {
      const std::string_view rest = word.substr(name(s).size());
      if (!rest.empty() && !rest.starts_with("x") && !rest.starts_with("-")) continue;  // "bf16x3" is bf16
      return bytes_of(s) == 1 ? "fp8" : std::string(name(s));
    }
  return "";
}

bool of_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
}

struct PlanLine {
  ModulePlace place;
  std::vector<std::string> cells;  // without the scope
  std::set<int> layers;
};

// Rows that differ only by their layer share a line.
std::vector<PlanLine> lines_of(const std::vector<const plan::PlanRow*>& rows) {
  std::vector<PlanLine> out;
  std::map<std::vector<std::string>, std::size_t> index;
  for (const plan::PlanRow* r : rows) {
    PlanLine line{ModulePlace(r->scope), {}, {}};
    const bool twice = !r->rounded.empty() && r->rounded != r->output;
    line.cells = {r->shown_op(),
                  r->stored,
                  r->multiplied,
                  r->accumulated,
                  twice ? r->rounded + "→" + r->output : r->output,
                  r->decided_by};
    std::vector<std::string> key = line.cells;
    key.push_back(line.place.stack + "." + line.place.module + (line.place.layer < 0 ? "" : "*"));
    const auto [at, is_new] = index.try_emplace(key, out.size());
    if (is_new) out.push_back(line);
    if (line.place.layer >= 0) out[at->second].layers.insert(line.place.layer);
  }
  return out;
}

// "model.layers.*.mlp", or "model.layers.{0-4,6}.mlp" if other layers differ.
std::string scope_of(const PlanLine& line, std::size_t all_layers) {
  if (line.layers.empty()) return line.place.module;
  std::string layers = "*";
  if (line.layers.size() < all_layers) {
    layers.clear();
    for (auto at = line.layers.begin(); at != line.layers.end();) {
      const int first = *at;
      int last = first;
      while (++at != line.layers.end() && *at == last + 1) last = *at;
      layers += (layers.empty() ? "" : ",") +
                (first == last ? std::to_string(first) : fmt::format("{}-{}", first, last));
    }
    if (line.layers.size() > 1) layers = "{" + layers + "}";
  }
  return line.place.stack + "." + layers + (line.place.module.empty() ? "" : "." + line.place.module);
}

std::string plan_html(const std::string& pass, const std::vector<const plan::PlanRow*>& rows) {
  report::Table table{
      .label = "Plan of the " + pass + " pass",
      .columns =
          {{"Module"}, {"Operation"}, {"Stored as"}, {"Factors"}, {"Sums"}, {"Result"}, {"Decided by"}},
      .rows = {}};
  std::map<std::string, std::set<int>> layers;  // of a stack
  for (const plan::PlanRow* r : rows) {
    const ModulePlace place(r->scope);
    if (place.layer >= 0) layers[place.stack].insert(place.layer);
  }
  for (const PlanLine& line : lines_of(rows)) {
    std::vector<report::Cell> cells{{report::module_html(scope_of(line, layers[line.place.stack].size()))}};
    for (std::size_t i = 0; i < line.cells.size(); ++i)
      cells.push_back({i == 0 || i + 1 == line.cells.size() ? report::escaped(line.cells[i])
                                                            : formats_html(line.cells[i])});
    table.rows.push_back(std::move(cells));
  }
  return to_html(table);
}

}  // namespace

std::string formats_html(const std::string& formats) {
  std::string out;
  for (std::size_t from = 0; from < formats.size();) {
    const bool word = of_word(formats[from]);
    std::size_t to = from;
    while (to < formats.size() && of_word(formats[to]) == word) ++to;
    const std::string text = formats.substr(from, to - from);
    const std::string css = word ? format_class(text) : "";
    out += css.empty() ? report::escaped(text)
                       : fmt::format("<span class=\"fmt {}\">{}</span>", css, report::escaped(text));
    from = to;
  }
  return out;
}

report::Section plan_section(const Audit& audit) {
  report::Section section{
      .id = "plan",
      .link = "Plan",
      .heading = "The format of every operation",
      .intro = "The plan of the policy. Equal layers share a row; \"*\" stands for all layers."};
  if (audit.plan.empty()) {
    section.intro = "No plan was recorded.";
    return section;
  }
  section.body = report::legend_html({{"f64", "f64: 64 bits"},
                                      {"f32", "f32: 32 bits"},
                                      {"tf32", "tf32: 19 bits in products"},
                                      {"bf16", "bf16: 16 bits, range of f32"},
                                      {"f16", "f16: 16 bits, up to 65 504"},
                                      {"fp8", "e4m3, e5m2: 8 bits"},
                                      {"block", "blocks that share a scale: mxfp8, mxfp4, nvfp4"}});
  std::vector<std::pair<std::string, std::vector<const plan::PlanRow*>>> passes;
  for (const plan::PlanRow& r : audit.plan) {
    const std::string pass = r.recomputed ? "recomputed forward" : r.pass;
    auto at = std::ranges::find(passes, pass, [](const auto& p) { return p.first; });
    if (at == passes.end()) at = passes.insert(passes.end(), {pass, {}});
    at->second.push_back(&r);
  }
  bool first = true;
  for (const auto& [pass, rows] : passes) {
    std::string heading = pass.empty() ? "Operations" : pass + " pass";
    if (pass == "update") heading = "update of the weights";
    if (heading.front() >= 'a' && heading.front() <= 'z')
      heading.front() = static_cast<char>(heading.front() - 'a' + 'A');
    section.body += report::disclosure(report::escaped(heading), plan_html(pass, rows), first);
    first = false;
  }
  return section;
}

}  // namespace mantissa::lab
