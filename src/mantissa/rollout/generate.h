// Text from a model, token by token with a key-value cache, with the log-probability of each token.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "mantissa/kernels/context.h"
#include "mantissa/model/config.h"
#include "mantissa/plan/program.h"
#include "mantissa/precision/policy.h"
#include "mantissa/rollout/sampler.h"
#include "mantissa/runtime/executor.h"

namespace mantissa::rollout {

struct Generation {
  std::vector<std::int32_t> ids;  // generated, the stop token included
  std::vector<double> log_probs;  // of each, under the untempered distribution; the bits that a trace gives
  double seconds = 0;
};

struct GenerateOptions {
  std::int64_t max_new_tokens = 128;
  std::vector<std::int32_t> stop;  // ids that end the text
  SamplingOptions sampling;
  std::function<bool(std::int32_t id)> on_token;  // called for each; false stops
};

/// The compiled decoding program for one sequence of up to `capacity` positions.
plan::Program compile_decode(const model::ModelConfig& config, const precision::Policy& policy,
                             std::int64_t capacity, const kernels::Context& ctx);

/// Generates after `prompt`. `executor` runs compile_decode()'s program. Throws ConfigError where the prompt
/// is empty, has ids out of the vocabulary, or does not fit the capacity with one new token.
Generation generate(runtime::Executor& executor, const model::ModelConfig& config,
                    std::span<const std::int32_t> prompt, const GenerateOptions& options);

}  // namespace mantissa::rollout
