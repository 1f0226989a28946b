// The tokens of a request while they are made: written by the thread of the model, read by that of the
// client.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "mantissa/generate/rollout/live_sequences.h"

namespace mantissa::serve {

/// A token of one sequence of an answer, or its end.
struct Event {
  std::size_t choice = 0;                   // the sequence
  std::optional<rollout::LiveToken> token;  // null: the end
  std::string text;                         // that becomes certain with the token
  std::string finish;                       // "stop" or "length" with the last token; else ""
  std::exception_ptr error = nullptr;       // that ended the sequence
};

/// Events in order, of all sequences of a request.
class Answer {
 public:
  void push(Event event);
  /// Ends sequence `choice` with `error`, or null. Without memory for the event, ends the answer with
  /// std::bad_alloc.
  void end(std::size_t choice, const std::exception_ptr& error) noexcept;
  /// Returns the next event, or null if none comes before `deadline`.
  std::optional<Event> next(std::chrono::steady_clock::time_point deadline);

  /// Ends all sequences: nobody waits for them.
  void cancel() { cancel_.request_stop(); }
  std::stop_token cancelled() const { return cancel_.get_token(); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Event> events_;
  std::exception_ptr failure_;
  std::stop_source cancel_;
};

}  // namespace mantissa::serve
