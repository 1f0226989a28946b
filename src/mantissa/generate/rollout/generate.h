// Generation: tokens and their log-probabilities, one token at a time with the states of earlier ones, for
// one sequence or several together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "mantissa/engine/model/config.h"
#include "mantissa/engine/plan/program.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/engine/runtime/session.h"
#include "mantissa/generate/rollout/sampler.h"
#include "mantissa/generate/rollout/sequence_states.h"

namespace mantissa::rollout {

/// The start of a sequence. Its draws are keyed by (seed, `sequence`, position), so continuations of one
/// prompt with different `sequence` numbers are independent.
struct Request {
  std::vector<std::int32_t> prompt;
  std::int64_t sequence = 0;
  /// Tokens of the prompt, not all, that the session's states have taken in by an earlier call; of states
  /// that cannot rewind, exactly these. Only for a single request and a program of one stream.
  std::int64_t fed = 0;
  /// The states after the first `fed` tokens, for a program of any number of streams. Null: those of the
  /// session.
  std::shared_ptr<const SequenceStates> states = {};
};

struct Generation {
  std::vector<std::int32_t> ids;  // generated, with the stop token
  std::vector<double> log_probs;  // of each, without temperature, with the bits of a trace
  std::vector<double> entropies =
      {};              // in nats, of the distribution of each, if GenerateOptions asks for them
  double seconds = 0;  // from the call of generate() to the end of this sequence
  bool ended = false;  // completely or by on_token, not by an interrupt
  /// The states after the sequence, if GenerateOptions asks for them and it ended.
  std::shared_ptr<const SequenceStates> states = {};
};

/// Called for each token on the caller's thread. Returns false to end the sequence of this request.
using OnToken = std::function<bool(std::size_t request, std::int32_t id, double log_prob)>;

/// Changes the logits of the token after `ids`, which request `request` has got so far: after the repetition
/// penalty, and before the temperature. −∞ excludes a token. Called on the caller's thread.
using ProcessLogits =
    std::function<void(std::size_t request, std::span<const std::int32_t> ids, std::span<double> logits)>;

struct GenerateOptions {
  std::int64_t max_new_tokens = 128;
  std::vector<std::int32_t> stop;  // ids that end the text
  SamplingOptions sampling;
  bool entropies = false;
  bool keep_states = false;
  std::uint64_t rounding_seed = 0;  // a key of activations that are rounded stochastically, as run.seed is
  OnToken on_token;
  ProcessLogits process_logits;
  /// Names a request at the beginning of a message; by default "generate".
  std::function<std::string(std::size_t request)> name_of;
  /// Ends all sequences. Their completed tokens are returned.
  std::stop_token interrupt;
};

/// Stores weights a second time, as products of few rows read them fastest (engine/runtime/interleaved.h), if
/// `program` decodes few sequences at once and half of the available memory holds the copies. They must not
/// change afterwards. Changes no bit.
void interleave_weights(runtime::WeightSet& weights, const plan::Program& program);

/// Continues the prompt of each request and returns the results in the order of the requests. `session` runs
/// the program of compile_decode(). It decodes as many sequences at once as the program has slots; when one
/// ends, the next takes its slot. Requests with equal prompts share the work on them: the states after a
/// prompt are copied. The result of a request does not depend on the others. Throws
/// ConfigError if a prompt is empty, has ids outside the vocabulary, or leaves no room for one new token, and
/// as check_states() does.
/// Throws RunStopped if logits are not finite, with the first such value and the cures for a command with a
/// policy but without training.
std::vector<Generation> generate(runtime::Session& session, const model::ModelConfig& config,
                                 std::span<const Request> requests, const GenerateOptions& options);

}  // namespace mantissa::rollout
