#include "mantissa/app/cli/fit.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "mantissa/core/base/words.h"

namespace mantissa::cli {
namespace {

constexpr std::size_t kIndent = 8;  // width of a line's label: "policy  ", "note    "

/// Returns the layer of a scope: "model.layers.*.mlp" → "model.layers.*", or "" without a layer number or
/// set.
std::string_view layer_of(std::string_view scope) {
  for (std::size_t at = 0; at < scope.size();) {
    const std::size_t end = std::min(scope.find('.', at), scope.size());
    const std::string_view part = scope.substr(at, end - at);
    const bool layer = !part.empty() && part.find_first_not_of("0123456789*{},-") == std::string_view::npos;
    if (layer && end < scope.size()) return scope.substr(0, end);
    at = end + 1;
  }
  return {};
}

/// A row of a table: the scope (ASCII), and the other columns.
struct Row {
  std::string_view scope, rest;
};

/// Formats the rows with layers as headings. The first row contains the column names.
std::string narrowed(const std::vector<Row>& rows, std::size_t columns) {
  constexpr std::string_view kBelow = "  ";
  const auto name_of = [&](const Row& row) {
    const std::string_view layer = layer_of(row.scope);
    if (layer.empty()) return std::string(row.scope);
    return std::string(kBelow) + std::string(row.scope.substr(std::min(layer.size() + 1, row.scope.size())));
  };
  std::size_t width = 0;
  for (const Row& row : rows) width = std::max(width, name_of(row).size());
  std::string text;
  std::string_view before;
  for (const Row& row : rows) {
    const std::string_view layer = layer_of(row.scope);
    if (!layer.empty() && layer != before) text += std::string(layer) + "\n";
    before = layer;
    text += wrapped(fmt::format("{:<{}}  {}", name_of(row), width, row.rest), width + 2, columns) + "\n";
  }
  return text;
}

/// Formats the lines of a table. The first line contains the column names.
std::string table(const std::vector<std::string_view>& lines, std::size_t columns) {
  const auto wide = [&](std::string_view line) { return width_of(line) > columns; };
  if (std::ranges::none_of(lines, wide)) return fmt::format("{}\n", fmt::join(lines, "\n"));
  const std::size_t second = lines.front().find(" op ") + 1;
  std::vector<Row> rows;
  for (const std::string_view line : lines) {
    const std::string_view scope = line.substr(0, std::min(second, line.size()));
    rows.push_back({trimmed(scope), line.substr(scope.size())});
  }
  return narrowed(rows, columns);
}

}  // namespace

std::size_t terminal_columns() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  constexpr std::size_t kLeast = 40;
  return size.ws_col == 0 ? 0 : std::max<std::size_t>(size.ws_col, kLeast);
}

std::string fit(std::string_view text, std::size_t columns) {
  if (columns == 0) return std::string(text);
  std::string out;
  std::vector<std::string_view> rows;  // of the current table
  const auto end_table = [&] {
    if (!rows.empty()) out += table(rows, columns);
    rows.clear();
  };
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const bool begins = line.starts_with("scope ") && line.find(" op ") != std::string_view::npos;
    if (begins || (!rows.empty() && !line.empty())) {
      rows.push_back(line);
      continue;
    }
    end_table();
    out += wrapped(line, kIndent, columns) + "\n";
  }
  end_table();
  return out;
}

}  // namespace mantissa::cli
