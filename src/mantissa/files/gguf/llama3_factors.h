// The factors of the RoPE scaling "llama3". A GGUF file holds them as a tensor, one factor for each
// frequency, and config.json holds the four numbers that they follow from.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "mantissa/files/gguf/architecture.h"

namespace mantissa::gguf {

struct Llama3Scaling {
  double factor = 8, low_freq_factor = 1, high_freq_factor = 4, original_positions = 8192;
};

/// Returns the divisor of each of the head_dim / 2 frequencies, rounded to f32.
std::vector<float> llama3_factors(const Llama3Scaling& scaling, double theta, std::int64_t head_dim);

/// Returns the rope_scaling that gives `factors`, null JSON if all are 1, or nothing if none does. Only the
/// ratios of low_freq_factor, high_freq_factor and the original context matter: low_freq_factor is 1 in
/// the result.
std::optional<nlohmann::json> llama3_scaling(const std::vector<float>& factors, double theta,
                                             std::int64_t head_dim);

/// Returns query_pre_attn_scalar of a Gemma model, which GGUF files do not hold: llama.cpp takes the size of
/// a head, and for the largest models (27B) the width divided by the heads.
std::int64_t gemma_query_scale(const Architecture& architecture, std::int64_t layers, std::int64_t heads,
                               std::int64_t hidden, std::int64_t head_dim);

}  // namespace mantissa::gguf
