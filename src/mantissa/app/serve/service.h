// The endpoints, without sockets: a method, a path and a body give a reply.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/app/serve/language.h"
#include "mantissa/app/serve/options.h"
#include "mantissa/app/serve/reply.h"
#include "mantissa/app/serve/request.h"
#include "mantissa/app/serve/scheduler.h"

namespace mantissa::serve {

/// A request for text in work. Its destruction ends the sequences.
class Exchange {
 public:
  /// Returns false if the client has gone.
  using Alive = std::function<bool()>;

  Exchange(TextRequest request, std::vector<EncodedPrompt> prompts, const Language& language,
           Scheduler& scheduler, ReplyHead head, std::chrono::seconds time);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  bool streams() const { return request_.stream; }
  /// Waits for the whole reply. Returns null if the client has gone. Throws RequestError.
  std::optional<std::string> whole(const Alive& alive);
  /// Waits for the next server-sent events of a streamed reply. The last ones end with "data: [DONE]", or are
  /// an error. Returns null after the last ones, and if the client has gone.
  std::optional<std::string> next_events(const Alive& alive);

 private:
  std::optional<Event> next(const Alive& alive);

  TextRequest request_;
  std::vector<EncodedPrompt> prompts_;
  std::int64_t seconds_;
  std::chrono::steady_clock::time_point deadline_;
  Reply reply_;
  std::shared_ptr<Answer> answer_;
  bool begun_ = false, over_ = false;
};

class Service {
 public:
  /// `model` is the name of the model. All references must outlive the object.
  Service(std::string model, const Language& language, Scheduler& scheduler, const Defaults& defaults,
          const Limits& limits);

  /// Returns the method of the endpoint `path`, or null for an unknown path.
  std::optional<std::string> method_of(std::string_view path) const;
  /// Returns the reply of a GET endpoint. Throws RequestError.
  std::string get(std::string_view path) const;
  /// Starts the work of a POST endpoint. Throws RequestError.
  std::unique_ptr<Exchange> post(std::string_view path, std::string_view body);

  const Limits& limits() const { return limits_; }
  void stop() { scheduler_.stop(); }

 private:
  Json model_entry() const;

  std::string model_;
  const Language& language_;
  Scheduler& scheduler_;
  Defaults defaults_;
  Limits limits_;
  std::int64_t created_;
  std::atomic<std::uint64_t> count_ = 0;  // requests so far
};

}  // namespace mantissa::serve
