// The numbers of the codes of nf4, and of the codes of its scales under double quantization.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace mantissa {

/// The 16 numbers of 4-bit NormalFloat: quantiles of the normal distribution, scaled to [−1, 1], with an
/// exact zero. Source: QLoRA, arXiv:2305.14314, appendix E.
inline constexpr std::array<float, 16> kNormalFloat4 = {-1.0F,
                                                        -0.6961928009986877F,
                                                        -0.5250730514526367F,
                                                        -0.39491748809814453F,
                                                        -0.28444138169288635F,
                                                        -0.18477343022823334F,
                                                        -0.09105003625154495F,
                                                        0.0F,
                                                        0.07958029955625534F,
                                                        0.16093020141124725F,
                                                        0.24611230194568634F,
                                                        0.33791524171829224F,
                                                        0.44070982933044434F,
                                                        0.5626170039176941F,
                                                        0.7229568362236023F,
                                                        1.0F};

namespace quant_codes {

/// The positive numbers of dynamic_codes(), except 1.
inline constexpr std::array<float, 127> kDynamicMagnitudes = {
    5.5000004e-07F, 3.2500002e-06F, 7.75e-06F,      2.1249998e-05F, 4.375e-05F,     6.625e-05F,
    8.875e-05F,     0.00015625001F, 0.00026875004F, 0.00038125002F, 0.00049375003F, 0.0006062501F,
    0.00071875006F, 0.00083125F,    0.0009437501F,  0.0012812499F,  0.00184375F,    0.00240625F,
    0.00296875F,    0.0035312497F,  0.00409375F,    0.0046562497F,  0.0052187503F,  0.00578125F,
    0.00634375F,    0.00690625F,    0.00746875F,    0.00803125F,    0.00859375F,    0.009156249F,
    0.00971875F,    0.01140625F,    0.01421875F,    0.01703125F,    0.019843752F,   0.02265625F,
    0.02546875F,    0.028281251F,   0.03109375F,    0.03390625F,    0.036718752F,   0.03953125F,
    0.042343747F,   0.04515625F,    0.04796875F,    0.05078125F,    0.05359375F,    0.05640625F,
    0.059218753F,   0.06203125F,    0.06484375F,    0.067656256F,   0.070468746F,   0.07328125F,
    0.07609375F,    0.07890625F,    0.08171876F,    0.08453125F,    0.08734375F,    0.09015625F,
    0.092968754F,   0.09578126F,    0.09859375F,    0.107031256F,   0.12109375F,    0.13515624F,
    0.14921875F,    0.16328125F,    0.17734376F,    0.19140625F,    0.20546874F,    0.21953125F,
    0.23359375F,    0.24765624F,    0.26171875F,    0.27578127F,    0.28984374F,    0.30390626F,
    0.31796873F,    0.33203125F,    0.34609374F,    0.36015624F,    0.37421876F,    0.38828123F,
    0.40234375F,    0.41640624F,    0.43046874F,    0.44453126F,    0.45859373F,    0.47265625F,
    0.4867187F,     0.50078124F,    0.5148437F,     0.5289062F,     0.54296875F,    0.5570313F,
    0.5710938F,     0.58515626F,    0.5992187F,     0.61328125F,    0.6273438F,     0.6414063F,
    0.65546876F,    0.6695312F,     0.68359375F,    0.6976563F,     0.7117188F,     0.72578126F,
    0.7398437F,     0.75390625F,    0.7679688F,     0.78203124F,    0.79609376F,    0.8101562F,
    0.82421875F,    0.8382813F,     0.85234374F,    0.86640626F,    0.8804687F,     0.89453125F,
    0.9085938F,     0.92265624F,    0.93671876F,    0.9507812F,     0.96484375F,    0.9789063F,
    0.99296874F};

}  // namespace quant_codes

/// The 256 numbers of the signed 8-bit dynamic data type, ascending: 0, 1, and ±10^(e − 6) · (0.1 + 0.9 (k +
/// ½) / 2^e) for e in [0, 6] and k in [0, 2^e), evaluated in f32 as bitsandbytes does. Source: 8-bit
/// Approximations, arXiv:1511.04561, as used by bitsandbytes (create_dynamic_map).
constexpr std::array<float, 256> dynamic_codes() {
  std::array<float, 256> codes{};
  constexpr std::size_t kZero = quant_codes::kDynamicMagnitudes.size();
  for (std::size_t i = 0; i < kZero; ++i) {
    codes[kZero + 1 + i] = quant_codes::kDynamicMagnitudes[i];
    codes[kZero - 1 - i] = -quant_codes::kDynamicMagnitudes[i];
  }
  codes[255] = 1;
  return codes;
}
inline constexpr std::array<float, 256> kDynamicCodes = dynamic_codes();

/// Returns the midpoints of neighbouring numbers.
template <std::size_t kCount>
constexpr std::array<float, kCount - 1> midpoints(const std::array<float, kCount>& numbers) {
  std::array<float, kCount - 1> all{};
  for (std::size_t i = 0; i + 1 < kCount; ++i) all[i] = (numbers[i] + numbers[i + 1]) / 2;
  return all;
}

/// Returns the factor that takes values of magnitudes up to `most` to [−1, 1].
inline float factor_to_one(float most) {
  return 1 / std::max(most, 1e-38F);
}

}  // namespace mantissa
