#include <algorithm>
#include <cmath>

#include "engine/graph/references/references.h"
#include "kernels/reference/pointwise.h"
#include "mantissa/kernels/reduce.h"

namespace mantissa::graph::testing {
namespace {

/// Returns the program's outputs at element `e` of operands with `width` columns.
std::vector<double> evaluate(const ReferenceCall& c, std::int64_t rows, std::int64_t width, std::int64_t e) {
  std::vector<double> element;
  for (const ReferenceOperand& in : c.inputs) {
    // A row, a column or one number is broadcast.
    const std::int64_t row = in.rows == rows ? e / width : 0, column = in.width == width ? e % width : 0;
    element.push_back(in.values[static_cast<std::size_t>(row * in.width + column)]);
  }
  return kernels::reference::evaluate(*c.expression, element);
}

void update(const ReferenceCall& c) {
  const std::int64_t rows = c.outputs[0].rows, width = c.outputs[0].width;
  for (std::int64_t e = 0; e < rows * width; ++e) {
    const std::vector<double> results = evaluate(c, rows, width, e);
    for (std::size_t o = 0; o < results.size(); ++o)
      c.outputs[o].values[static_cast<std::size_t>(e)] = results[o];
  }
}

void reduce(const ReferenceCall& c) {
  const std::int64_t rows = c.inputs[0].rows, width = c.inputs[0].width;
  const auto over = static_cast<kernels::Over>(c.attributes.integer("over"));
  std::vector<double>& sums = c.outputs[0].values;
  std::ranges::fill(sums, 0.0);
  for (std::int64_t e = 0; e < rows * width; ++e) {
    const double x = evaluate(c, rows, width, e)[0];
    const std::int64_t result = sums.size() == 1                  ? 0
                                : over == kernels::Over::each_row ? e / width
                                                                  : e % width;
    sums[static_cast<std::size_t>(result)] += c.attributes.flag("squares") ? x * x : x;
  }
  const double terms = static_cast<double>(rows * width) / static_cast<double>(sums.size());
  for (double& sum : sums) {
    if (c.attributes.flag("mean")) sum /= terms;
    if (c.attributes.flag("root")) sum = std::sqrt(sum);
  }
}

}  // namespace

std::span<const NamedReference> update_references() {
  static constexpr NamedReference kAll[] = {
      {"update", update},
      {"update.reduce", reduce},
  };
  return kAll;
}

}  // namespace mantissa::graph::testing
