// Conversion of rotary positions between config.json and the decoder's description: rope_theta and
// rope_scaling of transformers 4, rope_parameters of transformers 5.
#pragma once

#include <nlohmann/json.hpp>

#include "mantissa/engine/model/decoder.h"
#include "mantissa/engine/model/fields.h"

namespace mantissa::model {

/// Reads the only table of a model whose layers all use the same angles. `theta` is the default base. Throws
/// ConfigError for an unknown kind and for invalid numbers.
Rope read_rope(const FieldReader& fields, double theta, std::int64_t max_positions);

/// The field partial_rotary_factor, for the table of a family that reads it.
inline constexpr Field kPartialRotary = {"partial_rotary_factor", Field::Kind::number,
                                         "share of each head's values that is rotated"};

/// Reads partial_rotary_factor, which stands beside the sizes or beside rope_theta in rope_scaling or
/// rope_parameters. Without `otherwise`, the family's default, throws ConfigError for another factor than 1.
void read_rotated(const FieldReader& fields, DecoderSpec& spec, std::optional<double> otherwise);

/// Throws ConfigError for an object of angles with a partial_rotary_factor other than 1.
void refuse_partial_rotary(const FieldReader& rope);

/// Reads the scaling of an object such as rope_scaling. `positions` is max_position_embeddings.
kernels::RopeScaling read_rope_scaling(const FieldReader& rope, std::int64_t positions);

/// Converts rope_parameters of one table, or of two (full and sliding layers), to the fields of transformers
/// 4.
void write_rope(const DecoderSpec& spec, nlohmann::json& config);

}  // namespace mantissa::model
