#include "kernels/reference/gemm.h"

#include <cmath>

#include "mantissa/core/numeric/convert.h"
#include "mantissa/core/numeric/quants.h"

namespace mantissa::kernels::reference {
namespace {

using Values = std::vector<double>;

/// Loads elements [begin, begin + n), rounded to `rounded`.
Values load(const void* data, Scalar type, std::int64_t begin, std::int64_t n, Scalar rounded) {
  Values values(static_cast<std::size_t>(n));
  load_row(data, type, static_cast<std::size_t>(begin), values.size(), values.data());
  round_row(values.data(), values.size(), rounded);
  return values;
}

/// Loads the rows of a matrix, rounded to `rounded`.
std::vector<Values> load_rows(ConstMatrix x, std::int64_t rows, std::int64_t columns,
                              Scalar rounded = Scalar::f64) {
  std::vector<Values> all;
  for (std::int64_t i = 0; i < rows; ++i) all.push_back(load(x.data, x.type, i * x.ld, columns, rounded));
  return all;
}

/// Loads the rows of an operand, which may be in quantized blocks.
std::vector<Values> load_operand(const GemmOperand& o, std::int64_t rows, std::int64_t columns) {
  if (!o.quants) return load_rows(o.matrix, rows, columns, o.operand.format);
  const QuantRows blocks(*o.quants, static_cast<std::size_t>(o.matrix.ld), o.matrix.data, o.scales);
  std::vector<float> row(static_cast<std::size_t>(columns));
  std::vector<Values> all;
  for (std::int64_t i = 0; i < rows; ++i) {
    dequantize(blocks, static_cast<std::size_t>(i), 0, row.size(), row.data());
    Values& values = all.emplace_back(row.begin(), row.end());
    round_row(values.data(), values.size(), o.matrix.type);
    round_row(values.data(), values.size(), o.operand.format);
  }
  return all;
}

bool is_f64(const Gemm& g) {
  return g.a.operand.format == Scalar::f64 && g.b.operand.format == Scalar::f64 && g.c.type == Scalar::f64;
}

/// An element's running sum and the sum of its terms' magnitudes.
struct Sum {
  double value = 0;
  double magnitude = 0;
  void add(double term) {
    value += term;
    magnitude += std::abs(term);
  }
};

}  // namespace

GemmResult gemm(const Gemm& g) {
  const auto a = load_operand(g.a, g.a.transposed ? g.k : g.m, g.a.transposed ? g.m : g.k);
  const auto b = load_operand(g.b, g.b.transposed ? g.n : g.k, g.b.transposed ? g.k : g.n);
  const auto element = [](const std::vector<Values>& x, bool transposed, std::int64_t i, std::int64_t j) {
    return x[static_cast<std::size_t>(transposed ? j : i)][static_cast<std::size_t>(transposed ? i : j)];
  };
  const auto before = g.accumulate ? load_rows(g.c, g.m, g.n) : std::vector<Values>();
  const auto bias = g.bias != nullptr ? load(g.bias, g.bias_type, 0, g.n, Scalar::f64) : Values();
  const auto addend = g.addend.data != nullptr ? load_rows(g.addend, g.m, g.n) : std::vector<Values>();
  const Row whole{0, g.k};
  const std::span<const Row> rows = g.rows.empty() ? std::span(&whole, 1) : g.rows;

  GemmResult result;
  for (std::size_t i = 0; i < static_cast<std::size_t>(g.m); ++i) {
    Values c, magnitude;
    for (std::size_t j = 0; j < static_cast<std::size_t>(g.n); ++j) {
      Sum sum;
      if (g.accumulate) sum.add(before[i][j]);
      for (const Row& row : rows) {
        for (std::int64_t k = row.begin; k < row.begin + row.length; ++k) {
          sum.add(element(a, g.a.transposed, static_cast<std::int64_t>(i), k) *
                  element(b, g.b.transposed, k, static_cast<std::int64_t>(j)));
        }
      }
      if (!bias.empty()) sum.add(bias[j]);
      c.push_back(sum.value);
      magnitude.push_back(sum.magnitude);
    }
    if (!is_f64(g)) round_row(c.data(), c.size(), g.rounded);
    for (std::size_t j = 0; !addend.empty() && j < c.size(); ++j) {
      c[j] += addend[i][j];
      magnitude[j] += std::abs(addend[i][j]);
    }
    round_row(c.data(), c.size(), g.c.type);
    result.c.insert(result.c.end(), c.begin(), c.end());
    result.magnitude.insert(result.magnitude.end(), magnitude.begin(), magnitude.end());
  }
  return result;
}

}  // namespace mantissa::kernels::reference
