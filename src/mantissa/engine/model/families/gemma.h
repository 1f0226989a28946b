// The common part of Gemma 2 and 3.
#pragma once

#include <vector>

#include "mantissa/engine/model/decoder.h"
#include "mantissa/engine/model/fields.h"

namespace mantissa::model {

/// Reads the decoder with norms on both sides of each branch that multiply by 1 + gain, scaled embeddings,
/// GELU gates, the attention scale of query_pre_attn_scalar, and soft-capped scores and logits.
DecoderSpec read_gemma(const FieldReader& fields, ModelConfig& config, const DecoderDefaults& defaults,
                       double score_cap, double logit_cap);

std::vector<Field> gemma_fields(std::vector<Field> more);

/// Returns the window of the layers with sliding attention.
std::int64_t read_gemma_window(const FieldReader& fields);

}  // namespace mantissa::model
