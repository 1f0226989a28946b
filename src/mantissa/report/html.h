// Parts of a page: text, disclosures, commands, figures, tables. Each function returns well-formed HTML.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mantissa::report {

/// Returns any text for use in an element or in a quoted attribute. Control characters and bytes that are not
/// UTF-8 become "�".
std::string escaped(std::string_view text);

/// Returns text with a line break allowed after each dot and underscore, so that a long name of a module
/// fits on a phone.
std::string module_html(std::string_view name);

/// Returns a part that opens on a click. `summary` and `body` are HTML.
std::string disclosure(std::string_view summary, std::string_view body, bool open = false);

/// Returns a command in a box, with a button that copies it if scripts run.
std::string command_box(std::string_view command);

/// A chart with its surroundings. `reading` is a sentence that says how to read it.
struct Figure {
  std::string title, reading;  // text
  std::string body, legend;    // HTML
};
std::string to_html(const Figure& figure);

/// An entry of a legend: a colour class of the style sheet, and text.
struct LegendEntry {
  std::string css_class, text;
};
std::string legend_html(const std::vector<LegendEntry>& entries);

/// A fact for a list of facts; `html` is HTML.
struct Fact {
  std::string name, html;
};
std::string facts_html(const std::vector<Fact>& facts);

/// One cell of a table. With a share in [0, 1], a bar is drawn behind the number.
struct Cell {
  std::string html;
  double bar = -1;
};

struct Column {
  std::string name;
  bool number = false;  // aligned to the right
};

/// A table that scrolls inside its box on a narrow screen.
struct Table {
  std::string label;  // for screen readers
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
};
std::string to_html(const Table& table);

}  // namespace mantissa::report
