// Sequences that grow side by side, each in a slot of the key-value cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "mantissa/runtime/session.h"
#include "mantissa/tensor/extent.h"

namespace mantissa::rollout {

/// Runs a program of compile_decode(). Tokens that were given to a slot and not fed yet wait there; a step
/// feeds the slots that wait for one token, and prompts as far as the program's tokens reach.
class Decoder {
 public:
  /// `session` must outlive the decoder.
  explicit Decoder(runtime::Session& session);

  std::size_t slots() const { return slots_.size(); }
  /// Positions of a slot.
  std::int64_t capacity() const { return capacity_; }

  /// Begins a sequence in `slot`, over what was there. `sequence` keys its random numbers.
  void open(std::size_t slot, std::span<const std::int32_t> prompt, std::int64_t sequence);
  /// Appends one token to the sequence in `slot`, all of whose tokens were fed.
  void append(std::size_t slot, std::int32_t id);

  /// Feeds what waits. Afterwards asked()[i] is the slot whose last token's logits are row i of logits().
  void step();
  std::span<const std::size_t> asked() const { return asked_; }

  const plan::Program& program() const { return session_.program(); }
  /// [asked, vocabulary].
  runtime::Values logits() const;

 private:
  struct Slot {
    std::vector<std::int32_t> waiting;
    std::size_t next = 0;       // of `waiting`
    std::int64_t position = 0;  // of waiting[next]
    std::int64_t sequence = 0;
    std::size_t left() const { return waiting.size() - next; }
  };
  void take(std::size_t slot, std::int64_t most);

  runtime::Session& session_;
  std::int64_t capacity_ = 0;
  std::int64_t vocabulary_ = 0;
  std::vector<Slot> slots_;
  std::vector<std::size_t> asked_;
  std::vector<Row> rows_;  // one for each asked token
  std::vector<Segment> segments_;
  std::int64_t tokens_ = 0;  // of this step
};

}  // namespace mantissa::rollout
