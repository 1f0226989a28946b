// Means and norms of programs over a parameter: the documented order of every sum, on every instruction set
// and thread count.
#include "mantissa/kernels/reduce.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/row_testing.h"
#include "mantissa/kernels/expression.h"

namespace mantissa::kernels::reduce_test {
namespace {

using testing::contexts;
using testing::describe;
using testing::lane_sum;
using testing::Tensor;

/// in0 · in1, where in1 has one number per row.
Expression product() {
  ExpressionBuilder b;
  b.store(b.mul(b.load(0), b.load(1)), 0);
  return b.build();
}

struct Operands {
  Operands(Scalar type, Scalar arithmetic_, std::int64_t rows, std::int64_t width)
      : x(type, rows, width), column(arithmetic_, 1, rows), arithmetic(arithmetic_) {
    std::mt19937 random(testing::kSeed);
    x.fill_normal(random, 0.5);
    column.fill_normal(random);
  }
  std::vector<PointwiseInput> inputs() const {
    return {{x.bytes.data(), x.type}, {column.bytes.data(), column.type, Broadcast::over_columns}};
  }
  /// Returns the program's output for element (i, j), widened, or its square if `squares`.
  double term(std::int64_t i, std::int64_t j, bool squares) const {
    const double value = arithmetic == Scalar::f64
                             ? x.get(i, j) * column.get(0, i)
                             : static_cast<float>(x.get(i, j)) * static_cast<float>(column.get(0, i));
    return squares ? value * value : value;
  }
  Tensor x, column;
  Scalar arithmetic;
};

/// Adds sum_of(begin, end) over chunks of `chunk` elements, in order.
double chunked(std::int64_t n, std::int64_t chunk, const auto& sum_of) {
  double sum = 0;
  for (std::int64_t begin = 0; begin < n; begin += chunk) sum += sum_of(begin, std::min(n, begin + chunk));
  return sum;
}

double row_sum(const Operands& o, std::int64_t i, bool squares) {
  return chunked(o.x.columns, 4096, [&](std::int64_t begin, std::int64_t end) {
    return lane_sum<double>(
        end - begin, [&](std::int64_t k, double lane) { return lane + o.term(i, begin + k, squares); });
  });
}

std::vector<double> expected(const Operands& o, Over over, bool squares) {
  const auto in_order = [](const auto& term) {
    return [term](std::int64_t begin, std::int64_t end) {
      double sum = 0;
      for (std::int64_t k = begin; k < end; ++k) sum += term(k);
      return sum;
    };
  };
  std::vector<double> sums;
  if (over == Over::each_column) {
    for (std::int64_t j = 0; j < o.x.columns; ++j)
      sums.push_back(chunked(o.x.rows, 256, in_order([&](std::int64_t i) { return o.term(i, j, squares); })));
    return sums;
  }
  for (std::int64_t i = 0; i < o.x.rows; ++i) sums.push_back(row_sum(o, i, squares));
  if (over == Over::all)
    sums = {
        chunked(o.x.rows, 4096, in_order([&](std::int64_t i) { return sums[static_cast<std::size_t>(i)]; }))};
  return sums;
}

std::int64_t terms(const Operands& o, Over over) {
  return over == Over::all ? o.x.rows * o.x.columns : over == Over::each_row ? o.x.columns : o.x.rows;
}

class Reduces : public ::testing::TestWithParam<std::pair<std::int64_t, std::int64_t>> {};

TEST_P(Reduces, InTheDocumentedOrderEverywhere) {
  const auto [rows, width] = GetParam();
  const Expression program = product();
  for (const auto& [type, arithmetic] :
       {std::pair{Scalar::f64, Scalar::f64}, {Scalar::f32, Scalar::f32}, {Scalar::bf16, Scalar::f32}}) {
    const Operands o(type, arithmetic, rows, width);
    for (const Over over : {Over::all, Over::each_row, Over::each_column}) {
      for (const bool squares : {false, true}) {
        std::vector<double> want = expected(o, over, squares);
        for (double& x : want) {
          x /= static_cast<double>(terms(o, over));
          if (squares) x = std::sqrt(x);
        }
        const Tensor wanted(arithmetic, 1, static_cast<std::int64_t>(want.size()), want.data());
        const std::vector<PointwiseInput> inputs = o.inputs();
        for (Context ctx : contexts()) {
          Storage work(reduce_workspace(rows, width, over));
          ctx.workspace = work.data();
          ctx.workspace_bytes = work.size();
          Tensor got(arithmetic, 1, wanted.columns);
          reduce(ctx, {program, rows, width, inputs, arithmetic, over, squares, true, squares,
                       got.bytes.data(), arithmetic});
          ASSERT_EQ(got, wanted) << describe(ctx) << " over " << static_cast<int>(over);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Reduces,
                         ::testing::Values(std::pair<std::int64_t, std::int64_t>{1, 1}, std::pair{1, 9001},
                                           std::pair{3, 17}, std::pair{700, 33}, std::pair{5000, 3}),
                         [](const auto& i) { return fmt::format("{}x{}", i.param.first, i.param.second); });

TEST(Reduce, SumsWithoutDividing) {
  const std::vector<double> values = {3, 4};
  const Tensor x(Scalar::f32, 1, 2, values.data());
  ExpressionBuilder b;
  b.store(b.load(0), 0);
  const Expression program = b.build();
  const std::vector<PointwiseInput> inputs = {{x.bytes.data(), x.type}};
  double sum = 0;
  Context ctx{.simd = best_simd()};
  ctx.workspace = reinterpret_cast<std::byte*>(&sum);
  ctx.workspace_bytes = sizeof sum;
  Tensor got(Scalar::f32, 1, 1);
  reduce(ctx, {program, 1, 2, inputs, Scalar::f32, Over::all, true, false, true, got.bytes.data()});
  EXPECT_EQ(got.get(0, 0), 5);
}

}  // namespace
}  // namespace mantissa::kernels::reduce_test
