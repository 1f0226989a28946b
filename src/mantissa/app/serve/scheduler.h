// The thread of the model: it continues the sequences of all requests, step by step.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "mantissa/app/serve/answer.h"
#include "mantissa/app/serve/language.h"
#include "mantissa/app/serve/options.h"
#include "mantissa/app/serve/request.h"
#include "mantissa/generate/rollout/live_sequences.h"

namespace mantissa::serve {

class Scheduler {
 public:
  /// `language` must outlive the object.
  Scheduler(std::unique_ptr<rollout::LiveSequences> sequences, const Language& language, const Limits& limits,
            std::int64_t max_new_tokens);
  /// Stops.
  ~Scheduler();

  /// Starts the sequences of a request: those of its first prompt, then those of the next one. Throws
  /// RequestError: 400 for a prompt that is too long, 429 if the queue is full, 503 after stop().
  std::shared_ptr<Answer> submit(const TextRequest& request, const std::vector<EncodedPrompt>& prompts);

  /// Ends all requests with an error (503), also later ones.
  void stop();

  /// Returns the number of requests that are in work or wait.
  std::int64_t requests() const { return requests_; }
  std::int64_t streams() const { return sequences_->streams(); }
  std::int64_t capacity() const { return sequences_->capacity(); }

 private:
  std::int64_t new_tokens(const TextRequest& request, const EncodedPrompt& prompt) const;
  void run();

  std::unique_ptr<rollout::LiveSequences> sequences_;
  const Language& language_;
  Limits limits_;
  std::int64_t max_new_tokens_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<rollout::LiveRequest> arrived_;
  std::atomic<std::int64_t> requests_ = 0;
  std::stop_source stop_;
  std::thread thread_;
};

}  // namespace mantissa::serve
