#include "mantissa/files/gguf/k_quants.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include "mantissa/core/base/error.h"
#include "mantissa/core/numeric/convert.h"

namespace mantissa::gguf {
namespace {

constexpr std::size_t kBlock = 256;
constexpr float kTiny = 1e-15F;  // groups of smaller values are zeros
using Values = std::span<const float>;
using Codes = std::array<int, kBlock>;

/// Rounds to nearest even, and limits to [least, most]. NaN, of a scale that is zero, gives `least`.
int code_of(float x, int least, int most) {
  if (std::isnan(x)) return least;
  return static_cast<int>(std::clamp(std::nearbyint(x), static_cast<float>(least), static_cast<float>(most)));
}

/// Writes an f16, and returns the number written.
float write_half(float value, std::byte* to) {
  store_row(&value, 1, to, Scalar::f16, 0);
  float stored = 0;
  load_row(to, Scalar::f16, 0, 1, &stored);
  return stored;
}

std::byte byte_of(int value) {
  return static_cast<std::byte>(static_cast<std::uint8_t>(value));
}

/// Returns the first value of the largest magnitude.
float largest_of(Values x) {
  float largest = 0;
  for (const float value : x) largest = std::abs(value) > std::abs(largest) ? value : largest;
  return largest;
}

/// Σ w x code and Σ w code² of a group, with w = x²: the best scale is their quotient.
struct Moments {
  float products = 0, squares = 0;
  void add(float x, int code) {
    const float w = x * x, l = static_cast<float>(code);
    products += w * x * l;
    squares += w * l * l;
  }
};

/// Finds the codes in [−half, half) of a group, and returns the scale.
float fit_scale(Values x, int half, int* codes) {
  const float largest = largest_of(x);
  std::fill_n(codes, x.size(), -half);  // stored as 0
  if (std::abs(largest) < kTiny) return 0;
  const auto encode = [&](float inverse, int* to) {
    Moments moments;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const int code = code_of(inverse * x[i], -half, half - 1);
      if (to != nullptr) to[i] = code;
      moments.add(x[i], code);
    }
    return moments;
  };
  Moments moments = encode(static_cast<float>(-half) / largest, codes);
  float scale = moments.squares != 0 ? moments.products / moments.squares : 0,
        best = scale * moments.products;
  for (int step = -9; step <= 9; ++step) {
    if (step == 0) continue;
    const float inverse = -(static_cast<float>(half) + 0.1F * static_cast<float>(step)) / largest;
    moments = encode(inverse, nullptr);
    if (!(moments.squares > 0) || !(moments.products * moments.products > best * moments.squares)) continue;
    encode(inverse, codes);
    scale = moments.products / moments.squares;
    best = scale * moments.products;
  }
  return scale;
}

/// As fit_scale(), but improves one code after the other.
float refine_scale(Values x, int half, int* codes) {
  const float largest = largest_of(x);
  std::fill_n(codes, x.size(), -half);  // stored as 0
  if (std::abs(largest) < kTiny) return 0;
  const float inverse = static_cast<float>(-half) / largest;
  Moments all;
  for (std::size_t i = 0; i < x.size(); ++i) {
    codes[i] = code_of(inverse * x[i], -half, half - 1);
    all.add(x[i], codes[i]);
  }
  constexpr int kPasses = 5;
  bool changed = true;
  for (int pass = 0; pass < kPasses && changed; ++pass) {
    changed = false;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float w = x[i] * x[i], l = static_cast<float>(codes[i]);
      Moments others{all.products - w * x[i] * l, 0};
      if (!(others.products > 0)) continue;
      others.squares = all.squares - w * l * l;
      const int code = code_of(x[i] * others.squares / others.products, -half, half - 1);
      if (code == codes[i]) continue;
      others.add(x[i], code);
      if (!(others.squares > 0) ||
          !(others.products * others.products * all.squares > all.products * all.products * others.squares))
        continue;
      codes[i] = code;
      all = others;
      changed = true;
    }
  }
  return all.squares > 0 ? all.products / all.squares : 0;
}

/// x ≈ scale · code − minimum, minimum ≥ 0.
struct Affine {
  float scale = 0, minimum = 0;
};

/// The scales that fit_affine() tries: of largest codes from most + first on.
struct Search {
  int most;  // the largest code
  float first;
  int steps;
};

/// Finds the codes in [0, most] of a group of 32.
Affine fit_affine(Values x, const Search& search, int* codes) {
  constexpr std::size_t kGroup = 32;
  float squares = 0;
  for (const float value : x) squares += value * value;
  const float rms = std::sqrt(squares / static_cast<float>(kGroup));
  std::array<float, kGroup> weights{};
  for (std::size_t i = 0; i < kGroup; ++i) weights[i] = rms + std::abs(x[i]);

  float least = x[0], most = x[0], sum_w = weights[0], sum_x = sum_w * x[0];
  for (std::size_t i = 1; i < kGroup; ++i) {
    least = std::min(least, x[i]);
    most = std::max(most, x[i]);
    sum_w += weights[i];
    sum_x += weights[i] * x[i];
  }
  least = std::min(least, 0.0F);
  std::fill_n(codes, kGroup, 0);
  if (most == least) return {0, -least};

  const auto top = static_cast<float>(search.most);
  float offset = least;  // each trial begins at the best so far
  const auto encode = [&](float inverse, int* to) {
    for (std::size_t i = 0; i < kGroup; ++i) to[i] = code_of(inverse * (x[i] - offset), 0, search.most);
  };
  const auto error_of = [&](float by_scale, float by_offset, const int* of) {
    float error = 0;
    for (std::size_t i = 0; i < kGroup; ++i) {
      const float difference = by_scale * static_cast<float>(of[i]) + by_offset - x[i];
      error += weights[i] * (difference * difference);
    }
    return error;
  };
  const float inverse = top / (most - least);
  float scale = 1 / inverse;
  encode(inverse, codes);
  float best = error_of(scale, offset, codes);
  std::array<int, kGroup> tried{};
  for (int step = 0; step <= search.steps; ++step) {
    encode((search.first + 0.1F * static_cast<float>(step) + top) / (most - offset), tried.data());
    float sum_l = 0, sum_ll = 0, sum_xl = 0;
    for (std::size_t i = 0; i < kGroup; ++i) {
      const float l = static_cast<float>(tried[i]), w = weights[i];
      sum_l += w * l;
      sum_ll += w * l * l;
      sum_xl += w * l * x[i];
    }
    const float determinant = sum_w * sum_ll - sum_l * sum_l;
    if (!(determinant > 0)) continue;
    float this_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    float this_offset = (sum_ll * sum_x - sum_l * sum_xl) / determinant;
    if (this_offset > 0) {
      this_offset = 0;
      this_scale = sum_xl / sum_ll;
    }
    const float error = error_of(this_scale, this_offset, tried.data());
    if (!(error < best)) continue;
    std::ranges::copy(tried, codes);
    best = error;
    scale = this_scale;
    offset = this_offset;
  }
  return {scale, -offset};
}

/// Writes the 6-bit scales and minima of eight groups.
void pack_six_bits(const std::array<int, 8>& scales, const std::array<int, 8>& minima, std::byte* to) {
  std::array<int, 12> packed{};
  for (std::size_t g = 0; g < 4; ++g) {
    packed[g] = scales[g] | (scales[g + 4] >> 4) << 6;
    packed[g + 4] = minima[g] | (minima[g + 4] >> 4) << 6;
    packed[g + 8] = (scales[g + 4] & 15) | (minima[g + 4] & 15) << 4;
  }
  std::ranges::transform(packed, to, byte_of);
}

/// Encodes a block of Q4_K or Q5_K up to its codes: the two f16 scales and the packed ones of the groups.
bool affine_block(Values x, const Search& search, Codes& codes, std::byte* to) {
  constexpr std::size_t kGroups = 8, kGroup = kBlock / kGroups;
  constexpr int kMost = 63;
  std::array<Affine, kGroups> fits;
  float most_scale = 0, most_minimum = 0;
  for (std::size_t g = 0; g < kGroups; ++g) {
    fits[g] = fit_affine(x.subspan(g * kGroup, kGroup), search, &codes[g * kGroup]);
    most_scale = std::max(most_scale, fits[g].scale);
    most_minimum = std::max(most_minimum, fits[g].minimum);
  }
  const float to_scale = most_scale > 0 ? kMost / most_scale : 0,
              to_minimum = most_minimum > 0 ? kMost / most_minimum : 0;
  std::array<int, kGroups> scales{}, minima{};
  for (std::size_t g = 0; g < kGroups; ++g) {
    scales[g] = code_of(to_scale * fits[g].scale, 0, kMost);
    minima[g] = code_of(to_minimum * fits[g].minimum, 0, kMost);
  }
  const float scale = write_half(most_scale / kMost, to), minimum = write_half(most_minimum / kMost, to + 2);
  if (!std::isfinite(scale) || !std::isfinite(minimum)) return false;
  pack_six_bits(scales, minima, to + 4);
  for (std::size_t g = 0; g < kGroups; ++g) {
    const float d = scale * static_cast<float>(scales[g]), least = minimum * static_cast<float>(minima[g]);
    if (d == 0) continue;
    for (std::size_t i = g * kGroup; i < (g + 1) * kGroup; ++i)
      codes[i] = code_of((x[i] + least) / d, 0, search.most);
  }
  return true;
}

bool block_q4_k(Values x, std::byte* to) {
  Codes codes;
  if (!affine_block(x, {15, -1, 20}, codes, to)) return false;
  for (std::size_t i = 0; i < kBlock / 2; ++i) {
    const std::size_t at = i / 32 * 64 + i % 32;
    to[16 + i] = byte_of(codes[at] | codes[at + 32] << 4);
  }
  return true;
}

bool block_q5_k(Values x, std::byte* to) {
  Codes codes;
  if (!affine_block(x, {31, -0.5F, 15}, codes, to)) return false;
  std::array<int, 32> high{};
  for (std::size_t i = 0; i < kBlock; ++i) high[i % 32] |= (codes[i] >> 4) << (i / 32);
  std::ranges::transform(high, to + 16, byte_of);
  for (std::size_t i = 0; i < kBlock / 2; ++i) {
    const std::size_t at = i / 32 * 64 + i % 32;
    to[48 + i] = byte_of((codes[at] & 15) | (codes[at + 32] & 15) << 4);
  }
  return true;
}

/// The scales of 16 groups of 16, as whole numbers in [−half, half) under an f16 scale.
struct GroupScales {
  static constexpr std::size_t kGroups = 16, kGroup = kBlock / kGroups;
  std::array<int, kGroups> codes{};
  float scale = 0;     // as it is stored
  bool empty = false;  // all groups are zeros: so are all bits of the block
};

/// Fits each group by `fit`, writes the f16 scale to `to`, and encodes the values under the rounded scales.
template <class Fit>
GroupScales scaled_block(Values x, int half, int scale_half, const Fit& fit, Codes& codes, std::byte* to) {
  GroupScales out;
  constexpr std::size_t kGroup = GroupScales::kGroup;
  std::array<float, GroupScales::kGroups> scales{};
  for (std::size_t g = 0; g < scales.size(); ++g)
    scales[g] = fit(x.subspan(g * kGroup, kGroup), half, &codes[g * kGroup]);
  const float largest = largest_of(scales);
  if (std::abs(largest) < kTiny) {
    out.scale = write_half(0, to);
    out.empty = true;
    return out;
  }
  const float inverse = static_cast<float>(-scale_half) / largest;
  out.scale = write_half(1 / inverse, to);
  for (std::size_t g = 0; g < scales.size(); ++g)
    out.codes[g] = code_of(inverse * scales[g], -scale_half, scale_half - 1);
  for (std::size_t i = 0; i < kBlock; ++i) {
    const float d = out.scale * static_cast<float>(out.codes[i / kGroup]);
    if (d != 0) codes[i] = code_of(x[i] / d, -half, half - 1);
  }
  return out;
}

bool block_q6_k(Values x, std::byte* to) {
  constexpr int kHalf = 32, kScaleHalf = 128;
  Codes codes;
  const GroupScales scales = scaled_block(x, kHalf, kScaleHalf, fit_scale, codes, to + 208);
  std::ranges::transform(scales.codes, to + 192, byte_of);
  std::fill_n(to, 192, std::byte{0});
  for (std::size_t i = 0; i < kBlock; ++i) {
    const std::size_t part = i / 128, quarter = i / 32 % 4, at = i % 32;
    const int code = scales.empty ? 0 : codes[i] + kHalf;
    to[64 * part + 32 * (quarter % 2) + at] |= byte_of((code & 15) << (quarter < 2 ? 0 : 4));
    to[128 + 32 * part + at] |= byte_of((code >> 4) << (2 * quarter));
  }
  return std::isfinite(scales.scale);
}

bool block_q3_k(Values x, std::byte* to) {
  constexpr int kHalf = 4, kScaleHalf = 32;
  Codes codes;
  const GroupScales scales = scaled_block(x, kHalf, kScaleHalf, refine_scale, codes, to + 108);
  std::fill_n(to, 108, std::byte{0});
  for (std::size_t g = 0; g < scales.codes.size(); ++g) {
    const int code = scales.empty ? 0 : scales.codes[g] + kScaleHalf;
    to[96 + g % 8] |= byte_of((code & 15) << (g < 8 ? 0 : 4));
    to[104 + g % 4] |= byte_of((code >> 4) << (2 * (g / 4)));
  }
  for (std::size_t i = 0; i < kBlock; ++i) {
    const int code = codes[i] + kHalf;
    to[i % 32] |= byte_of((code >> 2) << (i / 32));
    to[32 + i / 128 * 32 + i % 32] |= byte_of((code & 3) << (2 * (i / 32 % 4)));
  }
  return std::isfinite(scales.scale);
}

struct Writer {
  TensorType type;
  bool (*write)(Values, std::byte*);
  float most;  // the largest magnitude of code and scale of a group: no larger value fits under an f16 scale
};
constexpr Writer kWriters[] = {{TensorType::q3_k, block_q3_k, 4 * 32},
                               {TensorType::q4_k, block_q4_k, 15 * 63},
                               {TensorType::q5_k, block_q5_k, 31 * 63},
                               {TensorType::q6_k, block_q6_k, 32 * 128}};

const Writer* writer_of(TensorType type) {
  const auto* found = std::ranges::find(kWriters, type, &Writer::type);
  return found == std::end(kWriters) ? nullptr : found;
}

}  // namespace

bool is_k_type(TensorType type) {
  return writer_of(type) != nullptr;
}

bool quantize_k(TensorType type, const float* values, std::size_t n, std::byte* out) {
  const Writer* writer = writer_of(type);
  if (writer == nullptr) throw InternalError("a tensor type is not written");
  constexpr float kMostHalf = 65504;
  const auto fits = [most = writer->most * kMostHalf](float x) {
    return std::abs(x) <= most;
  };  // false for NaN
  for (std::size_t at = 0; at < n; at += kBlock, out += traits(type).bytes) {
    const Values block(values + at, kBlock);
    if (!std::ranges::all_of(block, fits) || !writer->write(block, out)) return false;
  }
  return true;
}

}  // namespace mantissa::gguf
