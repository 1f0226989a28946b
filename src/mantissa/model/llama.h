// Llama-type transformers as graphs: RMSNorm, rotary grouped-query attention, SwiGLU, tied or untied head.
// Names are those of Hugging Face's LlamaForCausalLM (Touvron et al., 2023).
#pragma once

#include <cstdint>

#include "mantissa/graph/graph.h"
#include "mantissa/model/config.h"

namespace mantissa::model {

/// Inputs "ids" and "targets" [tokens] (−1: not asked); outputs "log_prob" and "lse" [tokens]. With `train`
/// the backward pass of every parameter follows, seeded by the input "dlog_prob" [tokens]. `tokens`: capacity
/// of a micro-batch; `positions`: longest sequence.
graph::Graph build_log_prob(const ModelConfig& config, std::int64_t tokens, std::int64_t positions,
                            bool train);

/// As build_log_prob without training, and output "logits" [tokens, vocabulary].
graph::Graph build_logits(const ModelConfig& config, std::int64_t tokens, std::int64_t positions, bool train);

/// Reads from and appends to a key-value cache: inputs "ids" [tokens] and "rows" [rows], the tokens whose
/// "logits" [rows, vocabulary] are wanted. `slots` sequences of up to `capacity` positions.
graph::Graph build_decode(const ModelConfig& config, std::int64_t tokens, std::int64_t slots,
                          std::int64_t capacity);

}  // namespace mantissa::model
