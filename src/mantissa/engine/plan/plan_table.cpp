// Formats the rows of a plan as a table. Equal layers share a row, and so do equal ops of a layer.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>
#include <utility>

#include "mantissa/core/base/words.h"
#include "mantissa/engine/plan/explain.h"

namespace mantissa::plan {
namespace {

using Cells = std::array<std::string, 6>;

Cells cells(const PlanRow& r) {
  const bool twice = !r.rounded.empty() && r.rounded != r.output;
  // Chain order is the usual one and not displayed.
  const std::string accumulated = r.order == "tile" ? r.accumulated + " tile" : r.accumulated;
  return {r.shown_op(), r.stored, r.multiplied, accumulated, twice ? r.rounded + "→" + r.output : r.output,
          r.decided_by};
}

/// Returns "a.b.{q,k}_proj" for "a.b.q_proj" and "a.b.k_proj", if only their last parts differ.
std::string join_scopes(const std::vector<std::string>& scopes) {
  if (scopes.size() == 1) return scopes.front();
  const std::string& first = scopes.front();
  const std::string parent = first.substr(0, first.rfind('.') + 1);
  std::string tail = first.substr(parent.size());
  const std::size_t underscore = tail.find('_');
  const std::string suffix = underscore == std::string::npos ? "" : tail.substr(underscore);
  std::string heads;
  for (const std::string& s : scopes) {
    if (!s.starts_with(parent) || !s.ends_with(suffix)) return "";
    if (!heads.empty()) heads += ",";
    heads += s.substr(parent.size(), s.size() - parent.size() - suffix.size());
  }
  return fmt::format("{}{{{}}}{}", parent, heads, suffix);
}

/// A scope in parts: "model.layers.12.mlp" as "model.layers.", 12, ".mlp". Without a number, the first part
/// is the whole scope.
struct Scope {
  std::string before, after;
  std::int64_t layer = -1;

  explicit Scope(const std::string& scope) : before(scope) {
    for (std::size_t i = 0; i < scope.size(); i = std::min(scope.find('.', i), scope.size() - 1) + 1) {
      const std::size_t end = std::min(scope.find('.', i), scope.size());
      const std::string_view part = std::string_view(scope).substr(i, end - i);
      const bool number =
          !part.empty() && std::ranges::all_of(part, [](unsigned char c) { return std::isdigit(c) != 0; });
      if (!number) continue;
      before = scope.substr(0, i);
      after = scope.substr(end);
      layer = std::stoll(std::string(part));
      return;
    }
  }
  std::string of(std::string_view layers) const {
    return layer < 0 ? before : fmt::format("{}{}{}", before, layers, after);
  }
};

/// Formats numbers: "1", "{0,2-3}".
std::string numbers_text(const std::set<std::int64_t>& numbers) {
  std::vector<std::pair<std::int64_t, std::int64_t>> runs;
  for (const std::int64_t n : numbers) {
    if (!runs.empty() && runs.back().second + 1 == n) {
      runs.back().second = n;
    } else {
      runs.emplace_back(n, n);
    }
  }
  std::string text;
  for (const auto& [first, last] : runs) {
    text += text.empty() ? "" : ",";
    text += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
  }
  return numbers.size() == 1 ? text : fmt::format("{{{}}}", text);
}

/// The scopes of displayed rows: "model.layers.*.mlp" if all layers have such a row, otherwise with the
/// numbers of those that have.
class Layers {
 public:
  void add(const PlanRow& row) {
    const Scope scope(row.scope);
    all_[scope.of("*")].insert(scope.layer);
    of_row_[{scope.of("*"), cells(row)}].insert(scope.layer);
  }
  std::string shown(const PlanRow& row) const {
    const Scope scope(row.scope);
    const std::set<std::int64_t>& these = of_row_.at({scope.of("*"), cells(row)});
    return scope.of(these == all_.at(scope.of("*")) ? "*" : numbers_text(these));
  }

 private:
  std::map<std::string, std::set<std::int64_t>> all_;
  std::map<std::pair<std::string, Cells>, std::set<std::int64_t>> of_row_;
};

}  // namespace

std::string plan_table(const std::vector<PlanRow>& rows, graph::Phase phase, bool recomputed) {
  const std::string pass(precision::name(pass_of(phase)));
  struct Line {
    std::vector<std::string> scopes;
    Cells cells;
  };
  const auto is_here = [&](const PlanRow& r) { return r.pass == pass && r.recomputed == recomputed; };
  Layers layers;
  for (const PlanRow& r : rows) {
    if (is_here(r)) layers.add(r);
  }
  std::vector<Line> lines;
  for (const PlanRow& r : rows) {
    if (!is_here(r)) continue;
    const std::string scope = layers.shown(r);
    const Cells text = cells(r);
    const auto same = std::find_if(lines.begin(), lines.end(), [&](const Line& l) {
      return l.cells == text && std::find(l.scopes.begin(), l.scopes.end(), scope) != l.scopes.end();
    });
    if (same != lines.end()) continue;
    if (!lines.empty() && lines.back().cells == text) {
      std::vector<std::string> joined = lines.back().scopes;
      joined.push_back(scope);
      if (!join_scopes(joined).empty()) {
        lines.back().scopes = joined;
        continue;
      }
    }
    lines.push_back({{scope}, text});
  }
  std::size_t width = 5;
  Cells heads = {"op", "store", "mul", "acc", "out", "decided by"};
  // smallest widths, including the space after a column
  std::array<std::size_t, 5> widths = {10, 7, 6, 6, 9};
  for (const Line& l : lines) {
    width = std::max(width, join_scopes(l.scopes).size());
    for (std::size_t c = 0; c < widths.size(); ++c) widths[c] = std::max(widths[c], width_of(l.cells[c]) + 1);
  }
  const auto line = [&](const std::string& scope, const Cells& row) {
    std::string text = fmt::format("{:<{}}  ", scope, width);
    for (std::size_t c = 0; c < widths.size(); ++c) text += fmt::format("{:<{}}", row[c], widths[c]);
    return text + row.back() + "\n";
  };
  std::string out = line("scope", heads);
  for (const Line& l : lines) out += line(join_scopes(l.scopes), l.cells);
  return out;
}

}  // namespace mantissa::plan
