// Sequences that join and leave while others grow, for a server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/engine/model/config.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/engine/runtime/session.h"
#include "mantissa/generate/rollout/decode_session.h"
#include "mantissa/generate/rollout/sampler.h"
#include "mantissa/precision/policy/policy.h"
#include "mantissa/setup/weights/model_files.h"

namespace mantissa::rollout {

/// An id and its log-probability, without temperature.
struct Likely {
  std::int32_t id = 0;
  double log_prob = 0;
};

/// A token of a live sequence.
struct LiveToken {
  std::int32_t id = 0;
  double log_prob = 0;              // as Generation::log_probs
  std::vector<Likely> most_likely;  // as many as asked for, by decreasing log-probability
  bool of_prompt = false;
};

struct LiveRequest {
  std::vector<std::int32_t> prompt;
  std::int64_t sequence = 0;          // as Request::sequence
  std::int64_t max_new_tokens = 128;  // 0: only the log-probabilities of the prompt
  std::vector<std::int32_t> stop;     // ids that end the sequence
  SamplingOptions sampling;
  bool prompt_log_probs = false;  // on_token also receives the prompt's tokens after the first
  std::int64_t most_likely = 0;   // the number of most likely ids that come with each token
  /// Returns false to end the sequence.
  std::function<bool(const LiveToken&)> on_token;
  /// Called once at the end, also of a cancelled sequence, with the error that ended it or null.
  std::function<void(const std::exception_ptr&)> on_end;
  std::stop_token cancel;
};

/// Returns the largest number of positions, up to `wanted` and the model's own, on which its values do not
/// depend. (Those of a model with dynamic RoPE depend on the longest sequence beyond its original context.)
std::int64_t live_capacity(const model::ModelConfig& config, std::int64_t wanted);

/// Continues sequences step by step. Each gets the tokens and log-probabilities that generate() gives to its
/// prompt alone, whatever else is in work. A sequence begins with the states that a slot has of the beginning
/// of its prompt, as an earlier turn of a conversation leaves them. Use an object from one thread at a time;
/// the functions of a request are called on that thread.
class LiveSequences {
 public:
  /// Loads the weights. Sequences have up to `capacity` positions; up to `streams` grow at once, fewer if the
  /// machine's memory is short, and one under a policy by which sequences depend on each other
  /// (depends_on_others). `device` must outlive the object. Throws as complete() does.
  LiveSequences(const weights::ModelSource& source, const precision::Policy& policy, std::int64_t capacity,
                std::int64_t streams, const runtime::Device& device);

  /// Throws ConfigError for options of sampling out of range, and if the prompt is empty, has ids outside the
  /// vocabulary, or leaves no room for `max_new_tokens`.
  void check(const LiveRequest& request) const;
  /// Appends a request that check() accepts. It waits for a free slot in the order of calls. Without memory
  /// for it, ends it with std::bad_alloc.
  void add(LiveRequest request);
  /// Returns true if nothing is in work and nothing waits.
  bool idle() const { return waiting_.empty() && active_ == 0; }
  /// Feeds the waiting tokens once. An error of one sequence, such as logits that are not finite, goes to its
  /// on_end; an error of the step ends all sequences in work. After a stop, call end_all().
  void step(const std::stop_token& stop = {});
  /// Ends all sequences, also those that wait, with `error`.
  void end_all(const std::exception_ptr& error);

  std::int64_t streams() const { return std::ssize(slots_); }
  std::int64_t capacity() const { return decoder_->capacity(); }

 private:
  struct Slot {
    std::optional<LiveRequest> request;
    std::vector<std::int32_t> ids;      // of the sequence, the last one also of one that ended
    std::size_t scored = 0;             // tokens of the prompt whose logits were used, if each has logits
    bool every = false;                 // each token of the prompt has logits
    std::optional<std::size_t> leader;  // the slot that feeds the same prompt, while this one waits for it
    std::uint64_t used = 0;             // when a request took the slot
  };
  /// A row of logits, and what follows from it.
  struct Chosen {
    std::size_t slot = 0;
    std::size_t position = 0;  // of the token that follows
    std::int32_t target = -1;  // the next token of the prompt; −1: a token is drawn
    bool finite = true;
    LiveToken token;
  };

  void admit();
  std::size_t slot_for(const LiveRequest& request) const;
  void open(std::size_t slot);
  std::int64_t states_for(std::size_t slot, const LiveRequest& request) const;
  std::optional<std::size_t> leader_for(std::size_t slot) const;
  void follow_leaders();
  void cancel();
  void end(std::size_t slot, const std::exception_ptr& error);
  /// Ends the sequences in work, and forgets their states.
  void end_active(const std::exception_ptr& error);
  void choose();
  template <class T>
  void choose_row(const runtime::Values& logits, std::size_t row);
  void accept(Chosen& chosen);

  std::unique_ptr<runtime::Session> session_;
  std::optional<DecodeSession> decoder_;
  std::int64_t vocabulary_ = 0;
  std::string policy_;       // its name
  bool keyed_ = false;       // states depend on the random numbers of the sequence
  bool independent_ = true;  // of others, and of how prompts are split into steps
  std::deque<LiveRequest> waiting_;
  std::vector<Slot> slots_;
  std::vector<Chosen> chosen_;  // of this step, in the order of decoder_->asked()
  std::size_t active_ = 0;      // slots with a request
  std::uint64_t admitted_ = 0;  // requests
};

}  // namespace mantissa::rollout
