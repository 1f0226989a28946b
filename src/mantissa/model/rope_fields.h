// Rotary positions between config.json and the decoder's description: rope_theta and rope_scaling of
// transformers 4, rope_parameters of transformers 5.
#pragma once

#include <nlohmann/json.hpp>

#include "mantissa/model/decoder.h"
#include "mantissa/model/fields.h"

namespace mantissa::model {

/// The one table of a model whose layers all rotate alike. `theta`: the default base. Throws ConfigError for
/// a kind that is unknown, and for its numbers.
Rope read_rope(const FieldReader& fields, double theta, std::int64_t max_positions);

/// The scaling that an object such as rope_scaling asks for. `positions`: max_position_embeddings.
kernels::RopeScaling read_rope_scaling(const FieldReader& rope, std::int64_t positions);

/// Turns rope_parameters, of one table or of two (full and sliding layers), into the fields of
/// transformers 4.
void write_rope(const DecoderSpec& spec, nlohmann::json& config);

}  // namespace mantissa::model
