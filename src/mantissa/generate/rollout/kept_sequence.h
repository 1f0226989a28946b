// One sequence that grows over several calls: unchanged tokens are not fed again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "mantissa/engine/runtime/device.h"
#include "mantissa/engine/runtime/session.h"
#include "mantissa/generate/rollout/generate.h"
#include "mantissa/precision/policy/policy.h"
#include "mantissa/setup/weights/model_files.h"

namespace mantissa::rollout {

struct Continuation {
  Generation generation;
  std::int64_t kept = 0;  // tokens of the prompt that had been fed by earlier calls
};

/// Continues prompts of which each usually begins with the previous one and its continuation. The results
/// equal those of generate(), with the same bits.
class KeptSequence {
 public:
  /// Loads the weights at the first call of extend(). `device` must outlive the object.
  KeptSequence(weights::ModelSource source, precision::Policy policy, const runtime::Device& device);

  /// Continues `prompt` by up to `options.max_new_tokens` tokens; the sum of both may be limited by the
  /// caller. The memory of the states grows with the sequence; larger states are filled again from the start.
  /// If the model's states cannot rewind, a prompt that does not begin with all tokens fed so far is fed from
  /// its start. Throws as generate() does.
  Continuation extend(std::span<const std::int32_t> prompt, const GenerateOptions& options);

  /// Returns the states after the tokens that were fed, with these; null before the first of them, and after
  /// an interrupt if the states cannot rewind.
  std::optional<SequenceStates> states();
  /// Continues from `states`. Throws as check_states() does.
  void restore(const SequenceStates& states);

 private:
  void reserve(std::int64_t positions);

  weights::ModelSource source_;
  precision::Policy policy_;
  const runtime::Device& device_;
  std::shared_ptr<const plan::Program> weights_program_;  // the weights refer to it
  std::shared_ptr<runtime::WeightSet> weights_;
  std::optional<runtime::Session> session_;
  std::vector<std::int32_t> fed_;  // the tokens that the states have taken in
  bool rewinds_ = true;            // the states after each number of them remain
};

}  // namespace mantissa::rollout
