// The base of the rotary angles by the length of the context, in place of that of a model's config.json.
#pragma once

#include <cstdint>
#include <string_view>

#include "mantissa/engine/model/config.h"

namespace mantissa::model {

/// The name of the table of bases of the Large World Model, as a value of rope_theta.
inline constexpr std::string_view kLwm = "lwm";

/// Returns the base that the Large World Model has for sequences of `length` tokens: that of its smallest
/// context of at least this length. From 128K on: LargeWorldModel/LWM, README.md, "theta"; 32K: table 1 of
/// arXiv:2402.08268; 4K: Llama 2, from which it starts. Throws ConfigError beyond its largest context, 1M.
double lwm_theta(std::int64_t length);

/// Returns `model` with the base `theta` of its rotary angles (0: its own) and at least `positions`
/// max_position_embeddings (0: its own). `where` names the setting in messages. Throws ConfigError if the
/// model has no rotary positions, or if the angles are scaled, because their scaling is meant for the model's
/// own base and positions.
ModelConfig with_rope(const ModelConfig& model, double theta, std::int64_t positions, std::string_view where);

/// Returns the base of the rotary angles of `model`, or 0 if it has none.
double rope_theta(const ModelConfig& model);

}  // namespace mantissa::model
