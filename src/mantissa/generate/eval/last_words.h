// Measures how well a model predicts the last words of passages.
#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/generate/eval/passages.h"
#include "mantissa/precision/policy/policy.h"
#include "mantissa/setup/weights/model_files.h"

namespace mantissa::eval {

/// The last word of a passage.
struct LastWord {
  bool right = false;   // every token is the most likely one after those before it
  double log_prob = 0;  // sum over its tokens
};

struct LastWords {
  std::vector<LastWord> words;  // of the completed passages, in their order
  std::int64_t tokens = 0;      // that were computed
  double seconds = 0;           // of the computation, without reading the weights
  std::size_t weight_bytes = 0;
  bool interrupted = false;

  std::int64_t right() const;
  /// Return the share of right words, and exp(−mean log-probability of a word); 0 without words.
  double accuracy() const;
  double perplexity() const;
};

/// Predicts all tokens of each word in one forward pass (teacher forcing): a word is right if greedy
/// generation would give it. Several passages share a pass, which changes no bit except under
/// `scaling=current`. `name` is the file of the passages, for the message about logits that are not finite,
/// which are RunStopped. Throws ConfigError if the model does not support the policy. `ranks` share the
/// passes, if they are several: all call it alike, and return the same.
LastWords predict_last_words(const weights::ModelSource& source, const precision::Policy& policy,
                             std::span<const Passage> passages, const std::string& name,
                             const runtime::Device& device, const std::stop_token& stop = {},
                             comm::Communicator* ranks = nullptr);

}  // namespace mantissa::eval
