// Maps of layers × steps: an overview of the worst value of each layer, and one map for each module.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/lab/audit/audit.h"
#include "mantissa/lab/module_place.h"
#include "mantissa/report/heat_map.h"

namespace mantissa::lab {

/// A measurement of one value over the steps.
struct MapRow {
  ModulePlace place;
  std::string scope;
  std::string what;  // op and name of the result: "matmul q"; or ""
  std::string pass;
  std::vector<std::pair<std::int64_t, double>> values;  // by step, ascending; NaN: not measured
};

/// A measurement with its texts.
struct MapTexts {
  std::string title, reading;
  std::string nothing;     // where every value is zero: "No value overflowed."
  std::string unmeasured;  // where nothing was measured
};

/// Returns the figure, or a line of text if there is nothing to show: every value is of class 0.
/// `order` has the rows of the model (rows_in_order()).
std::string layer_maps(const MapTexts& texts, const std::vector<MapRow>& rows,
                       const std::vector<ModulePlace>& order, const report::ColorScale& scale);

/// Returns a row for each value for which `measure` has a number in some step.
std::vector<MapRow> rows_of(const std::vector<ValueSeries>& values, double (*measure)(const ValueStep& step));
std::vector<MapRow> rows_of(const std::vector<ParameterSeries>& weights,
                            double (*measure)(const runtime::ParameterHealth& health));
/// Returns a row for each parameter whose gradient was compared with that in f32.
std::vector<MapRow> gradient_rows(const std::vector<ParameterSeries>& weights,
                                  double (*measure)(const GradientStep& gradient));

}  // namespace mantissa::lab
