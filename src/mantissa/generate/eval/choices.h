// Multiple choice: which continuation of a text a model finds most likely.
#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/generate/eval/last_words.h"
#include "mantissa/generate/eval/passages.h"
#include "mantissa/precision/policy/policy.h"
#include "mantissa/setup/weights/model_files.h"

namespace mantissa::eval {

/// A question with its choices.
struct ChoiceQuestion {
  std::vector<Passage> passages;                // the context and one choice each
  std::vector<std::int64_t> characters, bytes;  // of the choices
  std::int64_t gold = 0;
};

/// Reads JSON lines with the context in `query` or `context`, an array of strings `choices`, and the index
/// `gold` of the right one. As in lm-evaluation-harness, a space joins context and choice unless white space
/// is already there, white space at the end of the context belongs to the choice, the choice's tokens are
/// those beyond as many as the context alone has, and a context that is too long loses its beginning. Throws
/// ConfigError if the model has no tokenizer, and FileError with the line of a row that is not such a
/// question.
std::vector<ChoiceQuestion> read_choices(const weights::ModelSource& source, const PassageFile& file);

/// The answer to one question.
struct ChoiceAnswer {
  std::vector<double> log_probs;  // of the choices
  std::int64_t gold = 0;
  // The choices with the largest log-probability, the largest per character (acc_norm of
  // lm-evaluation-harness) and per byte (its acc_bytes); the first of equal ones.
  std::int64_t chosen = 0, chosen_norm = 0, chosen_bytes = 0;
};

struct ChoiceScores {
  std::vector<ChoiceAnswer> answers;  // of the completed questions, in their order
  std::int64_t tokens = 0;
  double seconds = 0;
  std::size_t weight_bytes = 0;
  bool interrupted = false;

  /// Return shares of right answers; 0 without any.
  double accuracy() const;
  double accuracy_norm() const;
  double accuracy_bytes() const;
};

/// Computes the log-probability of every choice after its context. `ranks` share the passes, as in
/// predict_last_words().
ChoiceScores answer_choices(const weights::ModelSource& source, const precision::Policy& policy,
                            std::span<const ChoiceQuestion> questions, const std::string& name,
                            const runtime::Device& device, const std::stop_token& stop = {},
                            comm::Communicator* ranks = nullptr);

/// Returns the standard error of a share p of n answers: √(p(1 − p) / (n − 1)); 0 for fewer than two.
double share_error(double share, std::size_t count);

}  // namespace mantissa::eval
