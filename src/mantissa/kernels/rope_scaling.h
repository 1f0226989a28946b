// Changes of rotary frequencies for contexts longer than those of pre-training: the kinds of transformers'
// `rope_scaling`.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "mantissa/core/numeric/format.h"

namespace mantissa::kernels {

/// A plain value. Each kind uses only the numbers listed with it, by the names in transformers.
struct RopeScaling {
  enum class Kind : std::uint8_t {
    none,
    linear,   // factor: divides all frequencies
    dynamic,  // factor, original_positions: the base grows with the length (NTK)
    llama3,   // factor, original_positions, low_freq_factor, high_freq_factor
    yarn,     // factor, original_positions and the numbers below them. Peng et al., YaRN (2023)
  };
  Kind kind = Kind::none;
  double factor = 1;
  std::int64_t original_positions = 0;  // original_max_position_embeddings; dynamic: max_position_embeddings
  double low_freq_factor = 1, high_freq_factor = 4;
  double beta_fast = 32, beta_slow = 1;
  std::optional<double> attention_factor = {};  // null: computed from the factor and both mscale numbers
  double mscale = 0, mscale_all_dim = 0;        // 0: not given
  bool truncate = true;                         // rounds the corrected range to whole dimensions

  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

/// Returns the factor on cosines and sines: YaRN's attention factor, 1 for the other kinds.
double rope_attention_factor(const RopeScaling& scaling);

/// Returns the angle per position of each pair i in [0, head_dim / 2): theta^(−2i / head_dim), scaled. Every
/// step rounds to `arithmetic`, f32 or f64, in the order of transformers' operations, except the numbers that
/// transformers computes as Python floats (YaRN's range and attention factor). A power is the C library's in
/// double, rounded once; PyTorch's own f32 power is off by 1 ulp in places that differ between processors.
/// `length` is the sequence length, which only the kind `dynamic` uses: up to original_positions the base is
/// theta.
std::vector<double> inverse_frequencies(std::int64_t head_dim, double theta, const RopeScaling& scaling,
                                        std::int64_t length, Scalar arithmetic);

}  // namespace mantissa::kernels
