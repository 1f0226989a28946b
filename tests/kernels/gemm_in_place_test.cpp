// Tiles of rows that lie right are loaded from the source, with the same bits and guard as packed ones.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "kernels/gemm_case.h"
#include "mantissa/kernels/guard_count.h"

namespace mantissa::kernels::gemm_in_place_test {
namespace {

using namespace gemm_test;  // NOLINT(google-build-using-namespace): shared by these tests

constexpr Formats kBf16ToF32 = {Scalar::bf16, Scalar::bf16, Scalar::bf16, Scalar::f32};

/// A product in tile order whose A starts at a line and has rows of `width` elements.
class InPlace {
 public:
  Case x;

  InPlace(const Size& size, std::int64_t width) : x(size, kBf16ToF32, 2), a_(bytes(size.m, width)) {
    x.g.accumulator.order = SumOrder::tile;
    x.g.a.matrix = {a_.data(), Scalar::bf16, width};
    copy();
  }
  /// Copies x.a again after a change.
  void copy() {
    const auto width = static_cast<std::size_t>(x.g.a.matrix.ld);
    for (std::int64_t i = 0; i < x.a.rows; ++i) {
      std::memcpy(a_.data() + static_cast<std::size_t>(i) * width * 2, x.a.bytes.data() + x.a.at(i, 0) * 2,
                  static_cast<std::size_t>(x.a.columns) * 2);
    }
  }

 private:
  static std::size_t bytes(std::int64_t rows, std::int64_t width) {
    return static_cast<std::size_t>(rows * width) * 2;
  }
  Storage a_;
};

std::vector<Context> contexts_of_tiles() {
  std::vector<Context> all;
  for (const Simd simd : testing::tile_simds()) {
    for (const int threads : {3, 1}) all.push_back({.simd = simd, .threads = threads});
  }
  return all;
}

/// Returns what the guard counted with one thread.
GuardCount expect_stated_bits(const Case& x) {
  const Tensor expected = as_stated(x, Scalar::f32);
  GuardCount counted;
  for (const Context& ctx : contexts_of_tiles()) {
    const GuardCount before = guard_count();
    EXPECT_TRUE(x.result(ctx) == expected) << describe(ctx) << ", accumulate " << x.g.accumulate;
    counted = guard_count() - before;
  }
  return counted;
}

/// Returns true if the product copies elements of A, all of which are 1.5, to its workspace.
bool copies(const Gemm& g, Context ctx) {
  ctx.workspace_bytes = gemm_workspace(ctx, g.m, g.n, g.k, Scalar::f32);
  const Storage workspace(ctx.workspace_bytes);
  std::memset(workspace.data(), 0xff, workspace.size());
  ctx.workspace = workspace.data();
  gemm(ctx, g);
  const auto* words = reinterpret_cast<const std::uint32_t*>(workspace.data());
  return std::find(words, words + workspace.size() / 4, 0x3fc03fc0U) != words + workspace.size() / 4;
}

TEST(GemmTilesInPlace, AreNotCopied) {
  for (const Context& ctx : contexts_of_tiles()) {
    for (const auto& [m, n, width, copied] : {std::tuple{96, 40, 96, false},
                                              {96, 400, 96, false},
                                              {80, 40, 128, false},
                                              {80, 400, 128, false},
                                              {96, 40, 97, true},     // rows do not start at lines
                                              {96, 40, 1024, true},   // rows share sets of the cache
                                              {90, 40, 96, true}}) {  // the last rows
      SCOPED_TRACE(fmt::format("{}, {} × {}, rows of {}", describe(ctx), m, n, width));
      InPlace product({m, n, 96}, width);
      Case& x = product.x;
      for (Tensor* t : {&x.a, &x.b}) {
        for (std::int64_t i = 0; i < t->rows; ++i) {
          for (std::int64_t k = 0; k < t->columns; ++k) t->set(i, k, t == &x.a ? 1.5 : 1);
        }
      }
      product.copy();
      EXPECT_EQ(copies(x.g, ctx), copied);
    }
  }
}

TEST(GemmTilesInPlace, HaveTheStatedBits) {
  for (const Size& size : {Size{96, 40, 512}, Size{80, 131, 992}, Size{112, 33, 32}, Size{300, 64, 480}}) {
    for (const std::int64_t gap : {0, 32}) {
      SCOPED_TRACE(fmt::format("{} × {} × {} + {}", size.m, size.n, size.k, gap));
      InPlace product(size, size.k + gap);
      for (const bool accumulate : {false, true}) {
        product.x.g.accumulate = accumulate;
        EXPECT_EQ(expect_stated_bits(product.x).slow, 0);
      }
    }
  }
}

/// Some rows of a leaf start within a line.
TEST(GemmTilesInPlace, HaveTheStatedBitsWithLeaves) {
  const std::vector<std::int64_t> lengths = {64, 32, 40, 56, 320};
  for (const std::int64_t rows_per_leaf : {1, 2}) {
    InPlace product({96, 40, 512}, 512 + 32);
    product.x.cut(lengths, rows_per_leaf);
    EXPECT_EQ(expect_stated_bits(product.x).slow, 0);
  }
}

TEST(GemmTilesInPlace, AreGuarded) {
  for (const double small : {0x1p-133, 0x1p-127, 0x1p-126, 0x1p-110}) {
    for (const std::int64_t term : {0, 511, 512, 959}) {
      SCOPED_TRACE(fmt::format("factor {} at term {}", small, term));
      InPlace product({80, 70, 960}, 960);
      product.x.a.set(79, term, small);
      product.copy();
      const GuardCount counted = expect_stated_bits(product.x);
      EXPECT_EQ(counted.slow, 3);  // panels of columns; half of the terms
      EXPECT_EQ(counted.all(), 3 * 3 * 2);
    }
  }
}

}  // namespace
}  // namespace mantissa::kernels::gemm_in_place_test
