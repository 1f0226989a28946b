// Hadamard transforms along tokens, compared with Sylvester's definition and with Transformer Engine's
// reference for the recipe of nvfp4.
#include "mantissa/kernels/hadamard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernels/block_testing.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::kernels::hadamard_test {
namespace {

using testing::Batch;
using testing::best;
using testing::contexts;
using testing::describe;
using testing::kSeed;
using testing::matrix;
using testing::packed;
using testing::Tensor;

Tensor transformed(const Context& ctx, const Tensor& x, std::uint16_t signs, std::span<const Row> rows = {},
                   std::optional<Scalar> rounded = {}) {
  Tensor to(Scalar::f32, x.rows, x.columns);
  hadamard(ctx, x.rows, x.columns, x, to, signs, rounded.value_or(x.type), rows);
  return to;
}

TEST(Hadamard, RoundsToTheFormatOfItsCallerAlone) {
  const Tensor x = matrix(32, 40);
  const Tensor wide = transformed(best(), x, 0x35), narrow = transformed(best(), x, 0x35, {}, Scalar::bf16);
  EXPECT_FALSE(wide == narrow);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t c = 0; c < x.columns; ++c)
      ASSERT_EQ(narrow.get(r, c), round_to(wide.get(r, c), Scalar::bf16));
  }
}

/// H diag(±1) / 4 by Sylvester's definition: H[i][j] is −1 to the number of bits that i and j share.
TEST(Hadamard, MultipliesEvery16TokensOfARow) {
  const Batch batch({5, 50, 16});
  const Tensor x = matrix(batch.tokens, 200);
  const std::uint16_t signs = hadamard_signs(7);
  EXPECT_NE(signs, hadamard_signs(8));
  const Tensor got = transformed(best(), x, signs, batch.rows);
  for (const Row& row : batch.rows) {
    for (std::int64_t i = 0; i < row.length; ++i) {
      const std::int64_t first = i / 16 * 16;
      for (std::int64_t c = 0; c < x.columns; ++c) {
        double want = x.get(row.begin + i, c), bound = 0;
        if (first + 16 <= row.length) {
          want = 0;
          for (std::int64_t j = 0; j < 16; ++j) {
            const bool minus = __builtin_parityll(static_cast<unsigned long long>((i - first) & j)) != 0;
            const double value = x.get(row.begin + first + j, c) * ((signs >> j & 1) != 0 ? -1 : 1) / 4;
            want += minus ? -value : value;
            bound += std::abs(value);
          }
        }
        ASSERT_NEAR(got.get(row.begin + i, c), want, bound * 0x1p-22) << i << ", " << c;
      }
    }
  }
  for (const Context& ctx : contexts())
    EXPECT_TRUE(transformed(ctx, x, signs, batch.rows) == got) << describe(ctx);
}

TEST(Hadamard, OfBothFactorsKeepsTheirProduct) {
  const Tensor a = matrix(64, 3, 1), b = matrix(64, 3, 2);
  const Tensor ha = transformed(best(), a, 0xa5c3), hb = transformed(best(), b, 0xa5c3);
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t j = 0; j < 3; ++j) {
      double want = 0, got = 0, norm = 0;
      for (std::int64_t t = 0; t < 64; ++t) {
        want += a.get(t, i) * b.get(t, j);
        got += ha.get(t, i) * hb.get(t, j);
        norm += std::abs(a.get(t, i) * b.get(t, j)) + std::abs(ha.get(t, i) * hb.get(t, j));
      }
      EXPECT_NEAR(got, want, norm * 0x1p-20);
    }
  }
}

TEST(Hadamard, PrecedesTheScalesOfBlocksAndOfTheTensor) {
  const Batch batch({5, 50, 16});
  const Tensor x = matrix(batch.tokens, 200);
  const std::uint16_t signs = 0x1234;
  const Tensor h = transformed(best(), x, signs, batch.rows);
  for (const BlockFormat f : kBlockFormats) {
    StoreScaled how{.blocks = f, .along_rows = true, .current = true};
    TensorScale want_scale, scale;
    Tensor want(Scalar::f32, x.rows, x.columns), got(Scalar::f32, x.rows, x.columns);
    store_scaled(best(), x.rows, x.columns, h, want, how, &want_scale, batch.rows);
    how.rounding.hadamard = signs;
    for (const Context& ctx : contexts()) {
      store_scaled(ctx, x.rows, x.columns, x, got, how, &scale, batch.rows);
      EXPECT_EQ(scale.scale, want_scale.scale) << traits(f).name;
      EXPECT_TRUE(got == want) << traits(f).name << ", " << describe(ctx);
    }
  }
}

/// The tensors of tools/golden_blocks.py: Transformer Engine's reference for the recipe of nvfp4.
class GoldenRecipe : public ::testing::Test {
 protected:
  Tensor read(const std::string& name) const {
    const io::TensorInfo* info = file_.find("recipe." + name);
    std::vector<float> values(static_cast<std::size_t>(info->count()));
    file_.read(*info, std::as_writable_bytes(std::span(values)));
    const std::int64_t columns = info->shape.back();
    Tensor t(Scalar::f32, info->count() / columns, columns);
    for (std::int64_t i = 0; i < info->count(); ++i)
      t.set(i / columns, i % columns, values[static_cast<std::size_t>(i)]);
    return t;
  }
  io::SafetensorsReader file_{std::filesystem::path(MANTISSA_SOURCE_DIR) / "tests/golden/blocks.safetensors"};
};

TEST_F(GoldenRecipe, SquareScalesOfWeightsEqualTransformerEngines) {
  const Tensor w = read("values"), want = read("square"), scales = read("scales");
  const BlockRounding how{.scaling = {.length = 16, .square = true}};
  for (const Context& ctx : contexts()) {
    for (const bool along_rows : {false, true}) {
      const Tensor got =
          packed(ctx, w, {BlockFormat::nvfp4, along_rows}, static_cast<float>(scales.get(0, 0)), how);
      for (std::int64_t r = 0; r < w.rows; ++r) {
        for (std::int64_t c = 0; c < w.columns; ++c)
          ASSERT_EQ(got.get(r, c), want.get(r, c)) << r << ", " << c;
      }
    }
  }
}

TEST_F(GoldenRecipe, HadamardTransformsAndTheirBlocksEqualTransformerEngines) {
  const Tensor from = read("values"), want = read("hadamard"), signs = read("signs");
  Tensor x(Scalar::bf16, from.rows, from.columns);
  std::uint16_t negated = 0;
  for (std::int64_t i = 0; i < 16; ++i) {
    if (signs.get(0, i) < 0) negated = static_cast<std::uint16_t>(negated | 1 << i);
  }
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t c = 0; c < x.columns; ++c) x.set(r, c, from.get(r, c));
  }
  EXPECT_TRUE(transformed(best(), x, negated) == want);
  StoreScaled how{.blocks = BlockFormat::nvfp4, .along_rows = true, .current = true};
  how.rounding.hadamard = negated;
  TensorScale scale;
  Tensor got(Scalar::f32, x.rows, x.columns);
  store_scaled(best(), x.rows, x.columns, x, got, how, &scale);
  EXPECT_EQ(scale.scale, read("scales").get(0, 1));
  const Tensor rotated = read("rotated");
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t c = 0; c < x.columns; ++c)
      ASSERT_EQ(got.get(r, c), rotated.get(r, c)) << r << ", " << c;
  }
}

TEST(Hadamard, RoundsToTheFormatOfItsTokens) {
  std::mt19937 random(kSeed);
  const Tensor x = Tensor(Scalar::bf16, 32, 40).fill_normal(random);
  const Tensor got = transformed(best(), x, 3);
  for (std::int64_t r = 0; r < 32; ++r) {
    for (std::int64_t c = 0; c < 40; ++c) ASSERT_EQ(got.get(r, c), round_to(got.get(r, c), Scalar::bf16));
  }
}

}  // namespace
}  // namespace mantissa::kernels::hadamard_test
