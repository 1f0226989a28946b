#include "mantissa/core/numeric/weight_format.h"

#include <array>
#include <cmath>
#include <limits>

#include "mantissa/core/numeric/convert.h"
#include "mantissa/core/numeric/quantize_blocks.h"
#include "mantissa/core/numeric/quantize_rows.h"
#include "mantissa/core/numeric/same_name.h"
#include "mantissa/core/numeric/scaled.h"

namespace mantissa {
namespace {

struct WeightTraits {
  std::string_view name;
  std::size_t block;
};

constexpr WeightTraits kTraits[] = {{"none", 1}, {"q4_0", 32},  {"q8_0", 32}, {"int4-32", 32},
                                    {"nf4", 64}, {"mxfp4", 32}, {"nvfp4", 16}};

const WeightTraits& traits(WeightFormat f) {
  return kTraits[static_cast<std::size_t>(f)];
}

/// Values that are quantized at a time: a multiple of all blocks.
constexpr std::size_t kPart = 1024;

void make_nan(float* x, std::size_t n) {
  std::fill_n(x, n, std::numeric_limits<float>::quiet_NaN());
}

void round_quants(QuantFormat f, float* x, std::size_t n, SimdTarget target) {
  std::array<std::uint8_t, kPart / kQuantBlock * traits(QuantFormat::q8_0).bytes> blocks;
  const std::size_t fine = quantize_blocks(f, x, n, blocks.data());
  dequantize(QuantRows(f, n, blocks.data(), nullptr), 0, 0, fine * kQuantBlock, x, target);
  if (fine * kQuantBlock == n) return;
  make_nan(x + fine * kQuantBlock, kQuantBlock);
  const std::size_t done = (fine + 1) * kQuantBlock;
  if (done < n) round_quants(f, x + done, n - done, target);
}

void round_nf4(float* x, std::size_t n, SimdTarget target) {
  alignas(float) std::array<std::uint8_t, quant_bytes(QuantFormat::nf4, 1, kPart)> blocks;
  std::array<bool, kPart / kNormalFloatBlock> broken = {};
  for (std::size_t b = 0; b < n / kNormalFloatBlock; ++b) {
    float* const block = x + b * kNormalFloatBlock;
    broken[b] = !std::all_of(block, block + kNormalFloatBlock, [](float v) { return std::isfinite(v); });
    if (broken[b]) std::fill_n(block, kNormalFloatBlock, 0.0F);
  }
  quantize_rows({QuantFormat::nf4, 1, n, blocks.data()}, 0, 1, x, nullptr, target);
  dequantize(quant_rows(QuantFormat::nf4, blocks.data(), 1, n), 0, 0, n, x, target);
  for (std::size_t b = 0; b < n / kNormalFloatBlock; ++b) {
    if (broken[b]) make_nan(x + b * kNormalFloatBlock, kNormalFloatBlock);
  }
}

void round_int4(float* x, std::size_t n) {
  constexpr std::size_t kBlock = 32;
  constexpr float kMost = 7, kLeastScale = 0x1p-100F;
  constexpr float kToInteger = 0x1.8p23F;  // adding and subtracting it rounds to the nearest even integer
  for (std::size_t b = 0; b < n; b += kBlock) {
    float* const block = x + b;
    float largest = 0, sum = 0;
    for (std::size_t i = 0; i < kBlock; ++i) {
      sum += block[i] * 0;  // NaN if a value is not finite
      largest = std::max(largest, std::abs(block[i]));
    }
    float scale = largest / kMost;
    round_row(&scale, 1, Scalar::bf16);
    if (std::isnan(sum)) {
      make_nan(block, kBlock);
    } else if (scale < kLeastScale) {
      std::fill_n(block, kBlock, 0.0F);
    } else {
      for (std::size_t i = 0; i < kBlock; ++i) {
        const float code = std::max(-kMost, std::min(block[i] / scale, kMost));
        block[i] = ((code + kToInteger) - kToInteger) * scale;
      }
    }
  }
}

void round_part(WeightFormat f, float* x, std::size_t n, float tensor_scale, SimdTarget target) {
  switch (f) {
    case WeightFormat::none:
      return;
    case WeightFormat::q4_0:
      return round_quants(QuantFormat::q4_0, x, n, target);
    case WeightFormat::q8_0:
      return round_quants(QuantFormat::q8_0, x, n, target);
    case WeightFormat::int4_32:
      return round_int4(x, n);
    case WeightFormat::nf4:
      return round_nf4(x, n, target);
    case WeightFormat::mxfp4:
      return round_blocks(BlockFormat::mxfp4, x, n, 1, target);
    case WeightFormat::nvfp4:
      round_blocks(BlockFormat::nvfp4, x, n, tensor_scale, target);
      for (std::size_t i = 0; i < n; ++i) x[i] *= tensor_scale;
  }
}

}  // namespace

std::string_view name(WeightFormat f) {
  return traits(f).name;
}

std::optional<WeightFormat> parse_weight_format(std::string_view text) {
  const auto* found = std::ranges::find_if(
      kWeightFormats, [&](WeightFormat f) { return is_same_name(text, traits(f).name); });
  return found == std::end(kWeightFormats) ? std::nullopt : std::optional(*found);
}

std::size_t block_of(WeightFormat f) {
  return traits(f).block;
}

void round_weights(WeightFormat f, float* row, std::size_t n, float tensor_scale, SimdTarget target) {
  for (std::size_t at = 0; at < n; at += kPart)
    round_part(f, row + at, std::min(kPart, n - at), tensor_scale, target);
}

}  // namespace mantissa
