// A map of rows × columns, whose cells are coloured by value.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace mantissa::report {

/// A colour scale of classes. Each class has a colour of the style sheet: its values and their colours can be
/// read off the legend.
struct ColorScale {
  std::string name;            // of the values, with their unit: "share of elements"
  std::vector<double> bounds;  // ascending and positive, at most 7; or at most 4 if signed
  bool is_signed = false;      // the bounds are those of magnitudes
  std::function<std::string(double)> text;
  bool high_is_good = false;  // not signed: warm colours for low values, blue ones for high values

  /// Returns the class of a value: 0 for zero (signed: below the first bound), else the number of bounds that
  /// the magnitude reaches, plus 1 if not signed; negative for negative values of a signed scale. `value` is
  /// not NaN.
  int class_of(double value) const;
  /// Returns the style sheet's class for a class of this scale.
  std::string css_of(int color) const;
};

struct HeatRow {
  std::string label;           // shown at the left
  std::string name;            // shown for a cell
  std::vector<double> values;  // by column; NaN: not measured
};

struct HeatMap {
  std::string label;  // one sentence for screen readers
  std::string row_name, column_name = "step";
  std::vector<std::string> columns;
  std::vector<HeatRow> rows;
  int height = 300;  // pixels at most; rows are between 4 and 15 pixels high, and up to 40 rows at least 12
                     // if labels that are words follow each other
};

/// Returns the map. Neighbours of equal class in a row share one mark, whose text has the range of their
/// values.
std::string to_html(const HeatMap& map, const ColorScale& scale);

/// Returns the legend of a scale, one swatch for each class. `missing` adds one for "not measured".
std::string legend_html(const ColorScale& scale, bool missing = false);

/// Returns the number of marks of to_html().
std::size_t marks_of(const HeatMap& map, const ColorScale& scale);

/// Returns true if a cell has no value.
bool has_missing(const HeatMap& map);

/// Joins neighbouring columns until at most `most` are left. A joined cell has the value with the largest
/// magnitude.
void join_columns(HeatMap& map, std::size_t most);

}  // namespace mantissa::report
