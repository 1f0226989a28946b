// The graphs of a model, for any family: log-probabilities for training, logits for traces, decoding.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "mantissa/graph/graph.h"
#include "mantissa/model/config.h"

namespace mantissa::model {

/// Whether a parameter, by its name, is frozen: it gets no gradient.
using Frozen = std::function<bool(std::string_view)>;

/// Inputs "ids" and "targets" [tokens] (−1: no log-probability is asked); outputs "log_prob" and "lse"
/// [tokens]. With `train` the backward pass of every trainable parameter follows, seeded by the input
/// "dlog_prob" [tokens]; `frozen`: which are not. `tokens`: capacity of a micro-batch; `positions`: the
/// longest sequence. Throws ConfigError where the model has fewer positions.
graph::Graph build_log_prob(const ModelConfig& config, std::int64_t tokens, std::int64_t positions,
                            bool train, const Frozen& frozen = {});

/// As build_log_prob, with the output "logits" [tokens, vocabulary].
graph::Graph build_logits(const ModelConfig& config, std::int64_t tokens, std::int64_t positions, bool train);

/// Reads from and appends to a key-value cache: inputs "ids" [tokens] and "rows" [slots], the tokens whose
/// "logits" [slots, vocabulary] are wanted. `slots` sequences of up to `capacity` positions.
graph::Graph build_decode(const ModelConfig& config, std::int64_t tokens, std::int64_t slots,
                          std::int64_t capacity);

}  // namespace mantissa::model
