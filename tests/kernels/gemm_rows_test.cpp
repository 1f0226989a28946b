// Weight gradients over some of the tokens, such as those that a router sends to an expert:
// docs/adding.md, "A sparse router".
#include <random>
#include <vector>

#include "kernels/gemm_case.h"

namespace mantissa::kernels::gemm_rows_test {
namespace {

using namespace gemm_test;  // NOLINT(google-build-using-namespace): shared by these tests

constexpr std::int64_t kOut = 19, kIn = 37;

/// The chosen tokens of a batch, one row of dy and x for each, and how many lie in each row of the batch.
struct Chosen {
  Tensor dy, x;
  std::vector<std::int64_t> counts;

  Chosen(Scalar type, const std::vector<std::int64_t>& of_rows)
      : dy(type, total(of_rows), kOut), x(type, total(of_rows), kIn), counts(of_rows) {
    std::mt19937 random(kSeed);
    dy.fill_normal(random);
    x.fill_normal(random);
  }

  static std::int64_t total(const std::vector<std::int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  }

  /// Adds dyᵀ·x over rows [first, last) of the batch to `dw`. `empty`: rows without a chosen token count too.
  void add_to(Tensor& dw, std::size_t first, std::size_t last, std::int64_t rows_per_leaf, bool empty,
              const Context& ctx) const {
    std::vector<Row> rows;
    std::int64_t k = 0;
    for (std::size_t r = first; r < last; ++r) {
      if (empty || counts[r] > 0) rows.push_back({k, counts[r]});
      k += counts[r];
    }
    const std::int64_t before = total({counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(first)});
    const auto from = [&](const Tensor& t, bool transposed) {
      const std::byte* data = t.bytes.data() + t.at(before, 0) * bytes_of(t.type);
      return GemmOperand{{data, t.type, t.ld}, t.type, transposed};
    };
    Gemm g;
    g.m = kOut;
    g.n = kIn;
    g.k = k;
    g.a = from(dy, true);
    g.b = from(x, false);
    g.c = dw;
    g.accumulate = true;
    g.accumulator.order = dy.type == Scalar::bf16 ? SumOrder::tile : SumOrder::chain;
    g.rows = rows;
    g.rows_per_leaf = rows_per_leaf;
    run(g, ctx);
  }

  /// Returns the gradient of micro-batches that end before the rows `ends`.
  Tensor gradient(const std::vector<std::size_t>& ends, std::int64_t rows_per_leaf, bool empty,
                  const Context& ctx = best()) const {
    Tensor dw(Scalar::f32, kOut, kIn);
    for (std::int64_t i = 0; i < kOut; ++i) {
      for (std::int64_t j = 0; j < kIn; ++j) dw.set(i, j, 0);
    }
    std::size_t first = 0;
    for (const std::size_t end : ends) {
      add_to(dw, first, end, rows_per_leaf, empty, ctx);
      first = end;
    }
    return dw;
  }
};

TEST(GemmRows, OfSomeTokensHaveTheirBitsInAnySplit) {
  const std::vector<std::int64_t> counts = {300, 0, 41, 7, 520, 33, 0, 0, 0, 90, 280, 5};
  for (const Scalar type : {Scalar::f32, Scalar::bf16}) {
    const Chosen chosen(type, counts);
    for (const std::int64_t leaf : {1, 2}) {
      const Tensor whole = chosen.gradient({12}, leaf, true);
      for (const Context& ctx : product_contexts()) {
        EXPECT_TRUE(chosen.gradient({12}, leaf, true, ctx) == whole) << describe(ctx);
        EXPECT_TRUE(chosen.gradient({2, 4, 6, 8, 12}, leaf, true, ctx) == whole) << describe(ctx);
      }
    }
    // Without the rows that have none of the tokens, leaves of two rows consist of others.
    EXPECT_FALSE(chosen.gradient({12}, 2, false) == chosen.gradient({12}, 2, true)) << name(type);
    EXPECT_FALSE(chosen.gradient({12}, 2, false) == chosen.gradient({2, 12}, 2, false)) << name(type);
  }
}

}  // namespace
}  // namespace mantissa::kernels::gemm_rows_test
