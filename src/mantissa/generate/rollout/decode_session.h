// Sequences that grow together, each in a slot of the states that the model keeps of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/engine/runtime/session.h"
#include "mantissa/generate/rollout/sequence_states.h"

namespace mantissa::rollout {

/// Runs a program of compile_decode(). Tokens given to a slot wait there until a step feeds them. A step
/// feeds all slots with one waiting token, and prompts within the program's token capacity.
class DecodeSession {
 public:
  /// `session` must outlive the decoder. `seed` is a key of the random numbers of its ops, as that of a
  /// batch.
  explicit DecodeSession(runtime::Session& session, std::uint64_t seed = 0);

  std::size_t slots() const { return slots_.size(); }
  /// Returns the number of positions of a slot.
  std::int64_t capacity() const { return capacity_; }

  /// Starts a sequence in `slot`, replacing the previous one. `sequence` keys its random numbers. The slot's
  /// states have taken in the first `fed` tokens of the prompt, which are not fed again. `every`: each token
  /// of the prompt gets logits, not only the last one; a step then feeds as many as there are rows for them.
  void open(std::size_t slot, std::span<const std::int32_t> prompt, std::int64_t sequence,
            std::int64_t fed = 0, bool every = false);
  /// Removes the tokens of `slot` that wait. Its states stay.
  void drop(std::size_t slot);
  /// Returns the number of tokens of the sequence in `slot` that its states have taken in.
  std::int64_t fed(std::size_t slot) const { return slots_[slot].position; }
  /// Returns true if slot `slot` holds what its states were after their first `tokens` tokens.
  bool has_states_after(std::size_t slot, std::int64_t tokens) const {
    return rewinds_ ? fed(slot) >= tokens : fed(slot) == tokens;
  }
  /// Returns true if the states of each number of tokens remain (SequenceState::positions).
  bool rewinds() const { return rewinds_; }
  /// Copies the states after the first `tokens` tokens of slot `from` to slot `to`. Throws InternalError
  /// unless has_states_after().
  void share(std::size_t from, std::size_t to, std::int64_t tokens);
  /// Returns the states of `slot` after its fed() tokens, without ids.
  SequenceStates states_of(std::size_t slot) const;
  /// Replaces the states of `slot` with `states`, which check_states() must have accepted; open() follows.
  void restore(std::size_t slot, const SequenceStates& states);
  /// Appends one token to the sequence in `slot`, whose earlier tokens must all have been fed.
  void append(std::size_t slot, std::int32_t id);

  /// Feeds waiting tokens. Afterwards row i of logits() belongs to the last token of slot asked()[i], or with
  /// `every` to its next token.
  void step();
  std::span<const std::size_t> asked() const { return asked_; }

  const plan::Program& program() const { return session_.program(); }
  /// Returns the logits [asked, vocabulary].
  runtime::Values logits() const;

 private:
  struct Slot {
    std::vector<std::int32_t> waiting;
    std::size_t next = 0;       // index into `waiting`
    std::int64_t position = 0;  // of waiting[next]
    std::int64_t sequence = 0;
    bool every = false;  // each token gets logits
    std::size_t left() const { return waiting.size() - next; }
  };
  void take(std::size_t slot, std::int64_t most);
  /// Requests logits of token `token` of this step.
  void ask(std::size_t slot, std::int64_t token, Row row);
  /// The memory of a state for a slot: its first `tokens` positions, or that of the prefix.
  std::span<std::byte> part_of(plan::BufferId state, std::size_t slot, std::int64_t tokens) const;

  runtime::Session& session_;
  std::uint64_t seed_;
  std::int64_t capacity_ = 0;
  std::int64_t vocabulary_ = 0;
  std::vector<plan::BufferId> states_;
  bool rewinds_ = true;
  std::vector<Slot> slots_;
  std::vector<std::size_t> asked_;
  std::vector<Row> rows_;  // one for each asked token
  std::vector<Segment> segments_;
  std::int64_t tokens_ = 0;  // of this step
};

}  // namespace mantissa::rollout
