// Interleaved matrices, and products of few rows that read them.
#include "mantissa/kernels/interleave.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/gemm_case.h"
#include "mantissa/kernels/units.h"

namespace mantissa::kernels::interleave_test {
namespace {

using namespace gemm_test;  // NOLINT(google-build-using-namespace): shared by these tests

constexpr int kWeightsByRows = 2;  // B is transposed: its columns are contiguous along k
constexpr Scalar kTypes[] = {Scalar::f32, Scalar::bf16, Scalar::f16};

std::vector<Context> all_contexts() {
  std::vector<Context> all;
  for (const Simd simd : kSimds) {
    if (!is_supported(simd)) continue;
    for (const int threads : {1, 3}) all.push_back({.simd = simd, .threads = threads});
  }
  return all;
}

/// The element as it lies in memory.
std::uint32_t bits_at(const std::byte* memory, std::size_t index, std::size_t size) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, memory + index * size, size);
  return bits;
}

TEST(Interleave, PutsWordsOfSixteenRowsSideBySide) {
  std::mt19937 random(kSeed);
  for (const Scalar type : kTypes) {
    const std::size_t size = bytes_of(type), per_word = 4 / size;
    for (const auto& [rows, width] : {std::pair{1, 1}, {15, 7}, {16, 16}, {17, 33}, {50, 8}, {64, 259}}) {
      Tensor from(type, rows, width, 3);
      from.fill_normal(random);
      const ConstMatrix matrix = from;
      for (const Context& ctx : all_contexts()) {
        const std::size_t bytes = interleaved_bytes(rows, width, type);
        const Storage to(bytes + 64);
        std::memset(to.data(), 0xab, to.size());
        interleave(ctx, rows, width, matrix, to.data());
        const auto wide = static_cast<std::size_t>(interleaved_width(width, type));
        ASSERT_EQ(bytes, (static_cast<std::size_t>(rows) + 15) / 16 * 16 * wide * size);
        for (std::size_t row = 0; row < bytes / (wide * size); ++row) {
          for (std::size_t i = 0; i < wide; ++i) {
            const std::size_t word = row / 16 * wide / per_word * 16 + i / per_word * 16 + row % 16;
            const bool inside = row < static_cast<std::size_t>(rows) && i < static_cast<std::size_t>(width);
            const std::uint32_t expected = inside
                                               ? bits_at(static_cast<const std::byte*>(matrix.data),
                                                         row * static_cast<std::size_t>(matrix.ld) + i, size)
                                               : 0;
            ASSERT_EQ(bits_at(to.data(), word * per_word + i % per_word, size), expected)
                << name(type) << ", row " << row << ", element " << i << ", " << describe(ctx);
          }
        }
        for (std::size_t i = 0; i < 64; ++i) ASSERT_EQ(to.data()[bytes + i], std::byte{0xab});
      }
    }
  }
}

/// Returns the product, whose matrix B is destroyed once it has been interleaved.
Tensor result_of_interleaved(Case& x, const Context& ctx) {
  const Tensor b = x.b;
  const Storage copy(interleaved_bytes(x.g.n, x.g.k, x.b.type));
  interleave(ctx, x.g.n, x.g.k, x.b, copy.data());
  if (x.g.m < kStripRows) std::memset(x.b.bytes.data(), 0xff, x.b.bytes.size());
  x.g.b.interleaved = copy.data();
  Tensor result = x.result(ctx);
  x.g.b.interleaved = nullptr;
  std::memcpy(x.b.bytes.data(), b.bytes.data(), b.bytes.size());
  return result;
}

TEST(Interleave, ProductsOfFewRowsReadItAndHaveTheSameBits) {
  for (const Scalar type : kTypes) {
    for (const SumOrder order : {SumOrder::chain, SumOrder::tile}) {
      if (order == SumOrder::tile && type != Scalar::bf16) continue;
      for (const std::int64_t m : {1, 2, 3, 4, 5, 7, 8, 20}) {
        for (const auto& [n, k] : {std::pair{1, 1}, {15, 31}, {16, 256}, {48, 97}, {131, 515}, {200, 576}}) {
          Case x({m, n, k}, {Scalar::f32, type, type, Scalar::f32}, kWeightsByRows);
          x.g.accumulator.order = order;
          x.add_bias();
          x.add_addend();
          const Tensor expected = x.result();
          for (const Context& ctx : all_contexts()) {
            ASSERT_TRUE(result_of_interleaved(x, ctx) == expected)
                << fmt::format("{} in {}, {} × {} × {}, ", name(type),
                               order == SumOrder::tile ? "tiles" : "chains", m, n, k)
                << describe(ctx);
          }
        }
      }
    }
  }
}

/// Numbers that fused multiply-adds keep and VDPBF16PS drops.
TEST(Interleave, ProductsKeepSubnormalNumbers) {
  Case x({2, 32, 64}, {Scalar::bf16, Scalar::bf16, Scalar::bf16, Scalar::f32}, kWeightsByRows);
  x.g.accumulator.order = SumOrder::tile;
  for (std::size_t i = 0; i + 1 < x.b.bytes.size(); i += 2) x.b.bytes.data()[i + 1] &= std::byte{0x80};
  const Tensor expected = x.result();
  for (const Context& ctx : all_contexts())
    ASSERT_TRUE(result_of_interleaved(x, ctx) == expected) << describe(ctx);
}

/// Compares products in one call with those one by one. The first is the largest; `workspaces`: how many
/// times its workspace there is.
void expect_together(std::span<const std::unique_ptr<Case>> cases, const std::string& what,
                     std::size_t workspaces = 1) {
  for (Context ctx : all_contexts()) {
    ctx.workspace_bytes =
        workspaces * gemm_workspace(ctx, cases[0]->g.m, cases[0]->g.n, cases[0]->g.k, Scalar::f32);
    const Storage workspace(ctx.workspace_bytes);
    ctx.workspace = workspace.data();
    std::vector<Tensor> results;
    results.reserve(cases.size());
    std::vector<Gemm> products;
    for (const auto& x : cases) {
      products.push_back(x->g);
      products.back().c = results.emplace_back(x->c);
    }
    gemm_together(ctx, products);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      ASSERT_TRUE(results[i] == cases[i]->result())
          << what << ", product " << i << " of " << cases.size() << ", " << describe(ctx);
    }
  }
}

/// Compares those of q, k and v, and one without a whole number of vectors.
void expect_together(Scalar type, SumOrder order, std::int64_t m, bool interleaved) {
  constexpr std::int64_t kDepth = 320;
  std::vector<std::unique_ptr<Case>> cases;
  std::vector<Storage> copies;
  for (const std::int64_t n : {576, 192, 16, 100}) {
    const Formats formats{Scalar::f32, type, type, Scalar::f32};
    Case& x = *cases.emplace_back(std::make_unique<Case>(Size{m, n, kDepth}, formats, kWeightsByRows));
    x.g.accumulator.order = order;
    x.add_bias();
    x.g.a = cases.front()->g.a;
    if (!interleaved) continue;
    interleave(best(), n, kDepth, x.b, copies.emplace_back(interleaved_bytes(n, kDepth, type)).data());
    x.g.b.interleaved = copies.back().data();
  }
  const std::string what = fmt::format("{}, {} rows", name(type), m);
  expect_together(std::span(cases).first(3), what);
  expect_together(cases, what);
}

TEST(GemmTogether, GivesTheBitsOfTheProductsOneByOne) {
  for (const std::int64_t m : {1, 3, 8, 40}) {
    for (const bool interleaved : {false, true}) {
      for (const Scalar type : kTypes) expect_together(type, SumOrder::chain, m, interleaved);
      expect_together(Scalar::bf16, SumOrder::tile, m, interleaved);
    }
  }
}

/// Products of other rows and depths, as those of RWKV-7's mixtures and low-rank layers.
TEST(GemmTogether, GivesTheSameBitsForRowsOfTheirOwn) {
  for (const Scalar type : kTypes) {
    for (const bool interleaved : {false, true}) {
      std::vector<std::unique_ptr<Case>> cases;
      std::vector<Storage> copies;
      const std::pair<std::int64_t, std::int64_t> sizes[] = {
          {576, 320}, {64, 320}, {576, 64}, {32, 320}, {192, 32}};
      for (const auto& [n, k] : sizes) {
        const Formats formats{Scalar::f32, type, type, Scalar::f32};
        Case& x = *cases.emplace_back(std::make_unique<Case>(Size{1, n, k}, formats, kWeightsByRows));
        if (cases.size() == 2) x.g.a = cases.front()->g.a;
        x.add_bias();
        if (!interleaved) continue;
        interleave(best(), n, k, x.b, copies.emplace_back(interleaved_bytes(n, k, type)).data());
        x.g.b.interleaved = copies.back().data();
      }
      for (const std::size_t workspaces : {1, 5})
        expect_together(cases, fmt::format("{}, {} workspaces", name(type), workspaces), workspaces);
    }
  }
}

/// Elements that are rounded or scaled before they are multiplied are read from the matrix.
TEST(Interleave, IsNotReadWhereElementsAreConverted) {
  for (const bool scaled : {false, true}) {
    Case x({1, 32, 64}, {Scalar::f32, Scalar::f32, scaled ? Scalar::f32 : Scalar::bf16, Scalar::f32},
           kWeightsByRows);
    if (scaled) x.g.b.unscale = 3;
    const Tensor expected = x.result();
    const Storage wrong(interleaved_bytes(32, 64, Scalar::f32));
    x.g.b.interleaved = wrong.data();
    EXPECT_TRUE(x.result() == expected);
  }
}

}  // namespace
}  // namespace mantissa::kernels::interleave_test
