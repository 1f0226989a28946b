// Quantization to int8 and nf4, against bitsandbytes (tools/golden_quants.py writes the file) and by
// definition.
#include "mantissa/core/numeric/quantize_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "mantissa/files/io/safetensors.h"

namespace mantissa::quantize_rows_test {
namespace {

/// A matrix quantized on one instruction set.
class Quantized {
 public:
  Quantized(QuantFormat f, std::size_t rows, std::size_t width, const std::vector<float>& values,
            SimdTarget target, std::size_t step = 0)
      : memory(quant_bytes(f, rows, width), 0xab), to{f, rows, width, memory.data()} {
    if (step == 0) step = rows;
    const bool nested = f == QuantFormat::nf4_double;
    std::vector<float> scales(nested ? quant_scales(f, rows, width) : 0);
    for (std::size_t r = 0; r < rows; r += step) {
      quantize_rows(to, r, std::min(step, rows - r), values.data() + r * width,
                    nested ? scales.data() + r * quant_scales(f, 1, width) : nullptr, target);
    }
    if (nested) quantize_scales(to, scales);
  }
  QuantRows view() const { return quant_rows(to.format, memory.data(), to.rows, to.width); }
  std::vector<float> row(std::size_t r, SimdTarget target) const {
    std::vector<float> values(to.width);
    dequantize(view(), r, 0, to.width, values.data(), target);
    return values;
  }
  std::vector<std::uint8_t> codes() const {
    return {memory.begin(),
            memory.begin() + static_cast<std::ptrdiff_t>(quant_bytes(to.format, to.rows * to.width))};
  }

  std::vector<std::uint8_t> memory;
  QuantMatrix to;
};

class GoldenQuants : public ::testing::TestWithParam<SimdTarget> {
 protected:
  static constexpr std::size_t kRows = 32, kWidth = 640, kShown = 8;

  template <class T>
  std::vector<T> read(const std::string& name) const {
    const io::TensorInfo* info = file_.find(name);
    std::vector<T> values(static_cast<std::size_t>(info->count()));
    file_.read(*info, std::as_writable_bytes(std::span(values)));
    return values;
  }
  Quantized quantized(QuantFormat f) const { return {f, kRows, kWidth, read<float>("values"), GetParam()}; }
  void expect_rows(const Quantized& q, const std::string& name) const {
    const std::vector<float> want = read<float>(name);
    for (std::size_t r = 0; r < kShown; ++r) {
      const std::vector<float> got = q.row(r, GetParam());
      for (std::size_t i = 0; i < kWidth; ++i)
        ASSERT_EQ(got[i], want[r * kWidth + i]) << "row " << r << ", element " << i;
    }
  }

  io::SafetensorsReader file_{std::filesystem::path(MANTISSA_SOURCE_DIR) / "tests/golden/quants.safetensors"};
};
INSTANTIATE_TEST_SUITE_P(On, GoldenQuants, ::testing::ValuesIn(simd_targets()),
                         [](const auto& i) { return "target" + std::to_string(i.param); });

TEST_P(GoldenQuants, Nf4HasTheCodesScalesAndValuesOfBitsandbytes) {
  const Quantized q = quantized(QuantFormat::nf4);
  EXPECT_EQ(q.codes(), read<std::uint8_t>("nf4.codes"));
  const std::vector<float> scales = read<float>("nf4.scales");
  for (std::size_t i = 0; i < scales.size(); ++i)
    ASSERT_EQ(quant_scale(q.view(), i * 64 / kWidth, i * 64 % kWidth), scales[i]);
  expect_rows(q, "nf4.values");
}

TEST_P(GoldenQuants, DoubleQuantizationHasTheValuesOfBitsandbytes) {
  const Quantized q = quantized(QuantFormat::nf4_double);
  EXPECT_EQ(q.codes(), read<std::uint8_t>("nf4.codes"));
  const std::vector<std::uint8_t> codes = read<std::uint8_t>("double.codes");
  const std::vector<float> groups = read<float>("double.groups"), mean = read<float>("double.mean");
  const std::uint8_t* at = q.view().scales;
  EXPECT_EQ(std::memcmp(at, mean.data(), 4), 0);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    at = q.view().scales + 4 + g * 260;
    EXPECT_EQ(std::memcmp(at, &groups[g], 4), 0);
    const std::size_t n = std::min<std::size_t>(256, codes.size() - 256 * g);
    EXPECT_TRUE(std::equal(at + 4, at + 4 + n, codes.begin() + static_cast<std::ptrdiff_t>(256 * g)));
  }
  expect_rows(q, "double.values");
}

TEST_P(GoldenQuants, Int8HasTheCodesOfBitsandbytesAndItsValuesUpToRoundings) {
  const Quantized q = quantized(QuantFormat::int8);
  const std::vector<std::uint8_t> codes = read<std::uint8_t>("int8.codes");
  const std::vector<float> values = read<float>("values"), absmax = read<float>("int8.absmax"),
                           want = read<float>("int8.values");
  EXPECT_EQ(q.codes(), codes);
  for (std::size_t r = 0; r < kShown; ++r) {
    ASSERT_EQ(quant_scale(q.view(), r, 0), absmax[r] / 127);
    const std::vector<float> got = q.row(r, GetParam());
    for (std::size_t i = 0; i < kWidth; ++i) {
      // bitsandbytes multiplies by the largest magnitude and then by 1 / 127: three roundings, here two.
      const float x = want[r * kWidth + i];
      ASSERT_LE(std::abs(got[i] - x), std::max(std::abs(x) * 3 * 0x1p-24F, 0x1p-149F)) << r << ", " << i;
    }
  }
}

std::vector<float> normal(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> values(n);
  std::ranges::generate(values, [&] { return distribution(random); });
  return values;
}

const QuantFormat kFormats[] = {QuantFormat::int8, QuantFormat::nf4, QuantFormat::nf4_double};

TEST(QuantizeRows, GivesTheSameBytesInPartsAndOnEveryInstructionSet) {
  const std::vector<float> values = normal(std::size_t{21} * 192, 7);
  for (const QuantFormat f : kFormats) {
    const Quantized want(f, 21, 192, values, kBestTarget);
    for (const SimdTarget target : simd_targets()) {
      for (const std::size_t step : {1, 4, 20}) {
        const Quantized got(f, 21, 192, values, target, step);
        EXPECT_EQ(got.memory.size(), want.memory.size());
        // Bytes between the codes and the scales are not written.
        EXPECT_EQ(got.memory, want.memory) << traits(f).name;
      }
    }
  }
}

TEST(QuantizeRows, Int8TakesAnyWidth) {
  for (const std::size_t width : {1, 7, 33, 250}) {
    const std::vector<float> values = normal(5 * width, 3);
    const Quantized q(QuantFormat::int8, 5, width, values, kBestTarget);
    EXPECT_EQ(q.memory.size(), (5 * width + 63) / 64 * 64 + 5 * sizeof(float));
    for (const SimdTarget target : simd_targets()) {
      EXPECT_EQ(Quantized(QuantFormat::int8, 5, width, values, target).memory, q.memory);
      for (std::size_t r = 0; r < 5; ++r) {
        const std::vector<float> got = q.row(r, target);
        float most = 0;
        for (std::size_t i = 0; i < width; ++i) most = std::max(most, std::abs(values[r * width + i]));
        for (std::size_t i = 0; i < width; ++i) {
          // Half a step, and the roundings of code and scale.
          EXPECT_LE(std::abs(got[i] - values[r * width + i]), most * (0.5F / 127 + 4 * 0x1p-24F));
        }
      }
    }
  }
}

TEST(QuantizeRows, RowsOfZerosAndOfTheSmallestNumbersStayFinite) {
  std::vector<float> values(3 * 64, 0.0F);
  for (std::size_t i = 0; i < 64; ++i) values[64 + i] = (i % 2 == 0 ? 1.0F : -1.0F) * 0x1p-149F;
  for (std::size_t i = 0; i < 64; ++i) values[128 + i] = static_cast<float>(i) * 1e36F;
  for (const QuantFormat f : kFormats) {
    const Quantized q(f, 3, 64, values, kBestTarget);
    for (std::size_t r = 0; r < 3; ++r) {
      for (const float x : q.row(r, kBestTarget)) {
        EXPECT_TRUE(std::isfinite(x)) << traits(f).name;
        if (r == 0 && f != QuantFormat::nf4_double) {
          EXPECT_EQ(x, 0);
        }
      }
    }
  }
}

/// The mean squared error over the variance of normal values, measured by simulation of the definition in f64
/// with 64 elements a block: nf4 loses 20.5 ± 0.3 dB.
TEST(QuantizeRows, Nf4LosesTwentyDecibelsOfNormalWeights) {
  const std::vector<float> values = normal(std::size_t{256} * 1024, 11);
  for (const QuantFormat f : {QuantFormat::nf4, QuantFormat::nf4_double}) {
    const Quantized q(f, 256, 1024, values, kBestTarget);
    double signal = 0, noise = 0;
    for (std::size_t r = 0; r < 256; ++r) {
      const std::vector<float> got = q.row(r, kBestTarget);
      for (std::size_t i = 0; i < 1024; ++i) {
        const double x = values[r * 1024 + i], e = static_cast<double>(got[i]) - x;
        signal += x * x;
        noise += e * e;
      }
    }
    EXPECT_NEAR(10 * std::log10(signal / noise), 20.5, 0.4) << traits(f).name;
  }
}

TEST(QuantBytes, AreThoseOfTheFormats) {
  // 256 × 1024: 8, 4 + 32 / 64, and 4 + 8 / 64 + 32 / (64 · 256) bits per weight, and a scale per row or a
  // mean.
  EXPECT_EQ(quant_bytes(QuantFormat::int8, 256, 1024), 256U * 1024 + 256 * 4);
  EXPECT_EQ(quant_bytes(QuantFormat::nf4, 256, 1024), 128U * 1024 + 4096 * 4);
  EXPECT_EQ(quant_bytes(QuantFormat::nf4_double, 256, 1024), 128U * 1024 + 4096 + 16 * 4 + 4);
  EXPECT_EQ(quant_bytes(QuantFormat::q4_0, 256, 1024), std::size_t{256} * 1024 / 32 * 18);
}

}  // namespace
}  // namespace mantissa::quantize_rows_test
