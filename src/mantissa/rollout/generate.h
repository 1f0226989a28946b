// Text from a model, token by token with a key-value cache, with the log-probability of each token: one
// sequence, or many side by side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "mantissa/model/config.h"
#include "mantissa/plan/program.h"
#include "mantissa/precision/policy.h"
#include "mantissa/rollout/sampler.h"
#include "mantissa/runtime/device.h"
#include "mantissa/runtime/session.h"

namespace mantissa::rollout {

/// What a sequence begins with. Its draws are keyed by (seed, `sequence`, position): several continuations of
/// one prompt have numbers of their own.
struct Request {
  std::vector<std::int32_t> prompt;
  std::int64_t sequence = 0;
};

struct Generation {
  std::vector<std::int32_t> ids;  // generated, the stop token included
  std::vector<double> log_probs;  // of each, under the untempered distribution; the bits that a trace gives
  double seconds = 0;             // from the call of generate() to this sequence's end
  bool ended = false;             // by itself or by on_token; not by an interrupt
};

struct GenerateOptions {
  std::int64_t max_new_tokens = 128;
  std::vector<std::int32_t> stop;  // ids that end the text
  SamplingOptions sampling;
  /// Called for each token, on the caller's thread; false ends this request's sequence.
  std::function<bool(std::size_t request, std::int32_t id, double log_prob)> on_token;
  /// Ends all sequences; the tokens that they have are returned.
  std::stop_token interrupt;
};

/// The compiled decoding program for `streams` sequences at once of up to `capacity` positions each.
std::shared_ptr<const plan::Program> compile_decode(const model::ModelConfig& config,
                                                    const precision::Policy& policy, std::int64_t capacity,
                                                    const runtime::Device& device, std::int64_t streams = 1);

/// compile_decode() for at most `streams` sequences: for as many as `bytes` hold with the weights, or one.
std::shared_ptr<const plan::Program> compile_decode_within(
    std::size_t bytes, const model::ModelConfig& config, const precision::Policy& policy,
    std::int64_t capacity, const runtime::Device& device, std::int64_t streams);

/// Generates after each prompt; the results are in the order of the requests. As many sequences are decoded
/// at once as the program has slots, and where one ends the next takes its slot; what a request gives does
/// not depend on the others. `session` runs compile_decode()'s program. Throws ConfigError where a prompt is
/// empty, has ids out of the vocabulary, or does not fit the capacity with one new token; RunStopped where
/// logits are not finite, naming the first such value.
std::vector<Generation> generate(runtime::Session& session, const model::ModelConfig& config,
                                 std::span<const Request> requests, const GenerateOptions& options);
/// The same of one prompt, as sequence 0.
Generation generate(runtime::Session& session, const model::ModelConfig& config,
                    std::span<const std::int32_t> prompt, const GenerateOptions& options);

}  // namespace mantissa::rollout
