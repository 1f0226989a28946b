// A product with operands in given formats, and the header's order of summation, written out. Shared by the
// tests of gemm.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <ostream>
#include <random>
#include <vector>

#include "core/base/sanitized.h"
#include "kernels/row_testing.h"
#include "kernels/tile_simds.h"
#include "kernels/workspace.h"
#include "mantissa/core/numeric/card_sum.h"
#include "mantissa/core/numeric/product.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/kernels/gemm.h"

namespace mantissa::kernels::gemm_test {

using testing::contexts;
using testing::describe;
using testing::kSeed;
using testing::Tensor;

struct Size {
  std::int64_t m, n, k;
};

/// The storage formats of A, B and C, and the format that operands round to.
struct Formats {
  Scalar a, b, operand, c;
  Scalar arithmetic() const { return operand == Scalar::f64 && c == Scalar::f64 ? Scalar::f64 : Scalar::f32; }
};

constexpr Formats all_of(Scalar s) {
  return {s, s, s, s};
}
constexpr Formats kF32 = all_of(Scalar::f32);
constexpr Formats kF64 = all_of(Scalar::f64);
constexpr Formats kBf16 = all_of(Scalar::bf16);

/// Bit 0: A is transposed; bit 1: B is transposed.
constexpr bool a_transposed(int transposes) {
  return (transposes & 1) != 0;
}
constexpr bool b_transposed(int transposes) {
  return (transposes & 2) != 0;
}

inline Context best() {
  return {.simd = best_simd()};
}
inline Context with_threads(int threads) {
  return {.simd = best_simd(), .threads = threads};
}

/// Those with tile registers, emulated ones too, and with their model.
inline std::vector<Context> tile_contexts() {
  std::vector<Context> all;
  for (const Simd simd : testing::tile_simds()) all.push_back({.simd = simd, .threads = 5});
  return all;
}

/// All contexts, and those with tile registers or their model.
inline std::vector<Context> product_contexts() {
  std::vector<Context> all = contexts();
  for (const Context& ctx : tile_contexts()) all.push_back(ctx);
  if (!mantissa::testing::kSanitized) all.push_back({.simd = Simd::amx_model, .threads = 1});
  return all;
}

/// Runs `g` in a workspace of exactly the stated size that is filled with NaN, and checks that nothing after
/// it is written.
inline void run(const Gemm& g, Context ctx = best()) {
  constexpr std::size_t kGuard = 256;
  const bool f64 =
      g.a.operand.format == Scalar::f64 && g.b.operand.format == Scalar::f64 && g.c.type == Scalar::f64;
  ctx.workspace_bytes =
      gemm_workspace(ctx, g.m, g.n, g.k, f64 ? Scalar::f64 : Scalar::f32, g.a.operand.parts);
  std::byte* const workspace = filled_workspace(ctx.workspace_bytes + kGuard);
  ctx.workspace = workspace;
  gemm(ctx, g);
  for (std::size_t i = 0; i < kGuard; ++i) {
    ASSERT_EQ(workspace[ctx.workspace_bytes + i], std::byte{0xff}) << "byte " << i << " after the workspace";
  }
}

/// A product of random operands with gaps between their rows. C contains numbers before it.
struct Case {
  Tensor a, b, c, bias, addend;
  std::vector<Row> rows;
  Gemm g;

  Case(const Size& s, const Formats& f, int transposes = 0)
      : a(f.a, a_transposed(transposes) ? s.k : s.m, a_transposed(transposes) ? s.m : s.k, 3),
        b(f.b, b_transposed(transposes) ? s.n : s.k, b_transposed(transposes) ? s.k : s.n, 5),
        c(f.c, s.m, s.n, 2),
        bias(f.c, 1, s.n),
        addend(f.c, s.m, s.n, 1) {
    std::mt19937 random(kSeed);
    for (Tensor* t : {&a, &b, &c, &bias, &addend}) t->fill_normal(random);
    g.m = s.m;
    g.n = s.n;
    g.k = s.k;
    g.a = {a, f.operand, a_transposed(transposes)};
    g.b = {b, f.operand, b_transposed(transposes)};
    g.c = c;
  }
  Case(const Case&) = delete;

  /// Splits k into rows of the given lengths.
  void cut(const std::vector<std::int64_t>& lengths, std::int64_t rows_per_leaf) {
    rows = testing::Batch(lengths).rows;
    g.rows = rows;
    g.rows_per_leaf = rows_per_leaf;
  }
  void add_bias() {
    g.bias = bias.bytes.data();
    g.bias_type = bias.type;
  }
  void add_addend() { g.addend = addend; }

  /// Returns C after the product, starting from the same C.
  Tensor result(const Context& ctx = best()) const {
    Tensor to = c;
    Gemm with = g;
    with.c = to;
    run(with, ctx);
    return to;
  }
};

/// Lengths of more rows than a product's tasks pack at the same time, of few terms in all.
inline std::vector<std::int64_t> many_short_rows() {
  std::vector<std::int64_t> lengths;
  for (int i = 0; i < 40; ++i) lengths.push_back(1 + i % 6);
  return lengths;
}
/// Sizes of products over these rows: A is the smaller operand, or B; of several tiles.
inline std::vector<Size> sizes_of_short_rows() {
  const std::int64_t k = testing::Batch(many_short_rows()).tokens;
  return {{37, 300, k}, {300, 37, k}};
}

/// Returns part `part` of the dense values of `t` as operands, in T.
template <class T>
std::vector<T> values_as(const Tensor& t, const Factor& factor = Scalar::f64, int part = 0) {
  std::vector<T> all;
  for (double x : t.values()) {
    double whole = round_to(x, factor.format,
                            {.saturate = factor.saturate, .flush_subnormals = factor.flush_subnormals});
    for (int p = 0; p < part; ++p) {
      x -= whole;
      whole = std::isfinite(x) ? round_to(x, factor.format) : 0;
    }
    all.push_back(static_cast<T>(whole));
  }
  return all;
}

/// Computes C as the header states: leaves, rows, blocks of 256 or up to where the accumulator rounds,
/// products of parts, chains or tiles, the separate tile sums of products of parts, one rounding per
/// operation in T.
template <class T>
Tensor as_stated(const Case& x) {
  const Gemm& g = x.g;
  const int parts = g.a.operand.parts;
  std::vector<std::vector<T>> a, b;
  for (int part = 0; part < parts; ++part) {
    a.push_back(values_as<T>(x.a, g.a.operand, part));
    b.push_back(values_as<T>(x.b, g.b.operand, part));
  }
  const auto before = values_as<T>(x.c);
  const auto bias = values_as<T>(x.bias), addend = values_as<T>(x.addend);
  const testing::Batch whole({g.k});
  const std::vector<Row>& rows = x.rows.empty() ? whole.rows : x.rows;
  const auto at = [](const std::vector<T>& v, std::int64_t i) { return v[static_cast<std::size_t>(i)]; };
  const auto chain = [&](const std::vector<T>& left, const std::vector<T>& right, std::int64_t i,
                         std::int64_t j, std::int64_t begin, std::int64_t end, std::int64_t step = 1) {
    T sum = 0;
    for (std::int64_t k = begin; k < end; k += step) {
      sum = std::fma(at(left, g.a.transposed ? k * g.m + i : i * g.k + k),
                     at(right, g.b.transposed ? j * g.k + k : k * g.n + j), sum);
    }
    return sum;
  };
  const auto card_sum = find_card_sum(g.accumulator, factor_of(x.a.type, g.a.operand).format,
                                      factor_of(x.b.type, g.b.operand).format);
  const auto card = [&](float leaf, std::int64_t i, std::int64_t j, const Row& row) {
    std::vector<float> left, right;
    for (std::int64_t k = row.begin; k < row.begin + row.length; ++k) {
      left.push_back(static_cast<float>(at(a[0], g.a.transposed ? k * g.m + i : i * g.k + k)));
      right.push_back(static_cast<float>(at(b[0], g.b.transposed ? j * g.k + k : k * g.n + j)));
    }
    return card_dot(*card_sum, left, right, leaf);
  };
  const bool rounds = g.accumulator.rounds();
  const std::int64_t cut = rounds ? g.accumulator.block : 0;
  const auto sum_of_leaf = [&](std::int64_t i, std::int64_t j, std::size_t first, std::size_t last) {
    T leaf = 0;
    std::int64_t seen = 0;
    const bool separate = parts > 1 && g.accumulator.order == SumOrder::tile;
    std::vector<T> of_parts(static_cast<std::size_t>(parts * (parts + 1) / 2));
    for (std::size_t r = first; r < last; ++r) {
      if (card_sum) leaf = card(static_cast<float>(leaf), i, j, rows[r]);
      const std::int64_t end = card_sum ? rows[r].begin : rows[r].begin + rows[r].length;
      for (std::int64_t k = rows[r].begin, next = k; k < end; k = next) {
        next = std::min(end, k + kSumBlock);
        if (cut > 0) next = std::min({next, k + cut - seen % cut, k + kSumBlock - seen % cut % kSumBlock});
        auto of_piece = of_parts.begin();
        for (int sum = parts - 1; sum >= 0; --sum) {
          for (int p = sum; p >= 0; --p, ++of_piece) {
            const auto of_a = static_cast<std::size_t>(g.swap_parts ? sum - p : p);
            const auto of_b = static_cast<std::size_t>(sum) - of_a;
            if (g.accumulator.order == SumOrder::chain) {
              leaf += chain(a[of_a], b[of_b], i, j, k, next);
              continue;
            }
            for (std::int64_t t = k, end_of_tile = k; t < next; t = end_of_tile) {
              end_of_tile = std::min(next, t + static_cast<std::int64_t>(kTileBlock));
              (separate ? *of_piece : leaf) += chain(a[of_a], b[of_b], i, j, t, end_of_tile, 2) +
                                               chain(a[of_a], b[of_b], i, j, t + 1, end_of_tile, 2);
            }
          }
        }
        seen += next - k;
        const bool rounds_here = rounds && (cut == 0 || seen % cut == 0);
        if (separate && (next == end || rounds_here)) {
          leaf += std::accumulate(of_parts.begin() + 1, of_parts.end(), of_parts.front());
          std::fill(of_parts.begin(), of_parts.end(), T{0});
        }
        if (rounds_here) leaf = static_cast<T>(round_to(leaf, g.accumulator.format));
      }
    }
    if (rounds) leaf = static_cast<T>(round_to(leaf, g.accumulator.format));
    if (g.accumulator.order == SumOrder::chain) return leaf;
    const auto of_a = static_cast<T>(g.a.unscale), of_b = static_cast<T>(g.b.unscale);
    return g.swap_parts ? leaf * of_b * of_a : leaf * of_a * of_b;
  };
  Tensor to = x.c;
  for (std::int64_t i = 0; i < g.m; ++i) {
    std::vector<T> c;
    for (std::int64_t j = 0; j < g.n; ++j) {
      T total = g.accumulate ? at(before, i * g.n + j) : 0;
      const auto step = static_cast<std::size_t>(g.rows_per_leaf);
      for (std::size_t first = 0; first < rows.size(); first += step) {
        total += sum_of_leaf(i, j, first, std::min(rows.size(), first + step));
      }
      c.push_back(g.bias == nullptr ? total : total + at(bias, j));
    }
    if (sizeof(T) == 4) round_row(c.data(), c.size(), g.rounded);
    for (std::int64_t j = 0; g.addend.data != nullptr && j < g.n; ++j)
      c[static_cast<std::size_t>(j)] += at(addend, i * g.n + j);
    store_row(c.data(), c.size(), to.bytes.data(), to.type, to.at(i, 0));
  }
  return to;
}

inline Tensor as_stated(const Case& x, Scalar arithmetic) {
  return arithmetic == Scalar::f64 ? as_stated<double>(x) : as_stated<float>(x);
}

}  // namespace mantissa::kernels::gemm_test
