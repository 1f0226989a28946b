#include "mantissa/app/serve/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "mantissa/app/serve/request_error.h"

namespace mantissa::serve {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kCompletions = "/v1/completions", kChat = "/v1/chat/completions",
                           kModels = "/v1/models", kModel = "/v1/models/", kHealth = "/health";

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string event_of(const std::string& data) {
  return "data: " + data + "\n\n";
}

}  // namespace

Exchange::Exchange(TextRequest request, std::vector<EncodedPrompt> prompts, const Language& language,
                   Scheduler& scheduler, ReplyHead head, std::chrono::seconds time)
    : request_(std::move(request)),
      prompts_(std::move(prompts)),
      seconds_(time.count()),
      deadline_(Clock::now() + time),
      reply_(request_, prompts_, language, std::move(head)),
      answer_(scheduler.submit(request_, prompts_)) {}

Exchange::~Exchange() {
  answer_->cancel();
}

/// Returns null if the client has gone.
std::optional<Event> Exchange::next(const Alive& alive) {
  constexpr std::chrono::milliseconds kLook(100);
  while (alive()) {
    if (std::optional<Event> event = answer_->next(std::min(Clock::now() + kLook, deadline_))) return event;
    if (Clock::now() < deadline_) continue;
    throw RequestError(
        408,
        fmt::format(
            "the answer took more than {} s. Fix: ask for fewer tokens, or start the server with a larger "
            "--timeout",
            seconds_),
        "", "timeout");
  }
  return std::nullopt;
}

std::optional<std::string> Exchange::whole(const Alive& alive) {
  try {
    while (!reply_.complete()) {
      const std::optional<Event> event = next(alive);
      if (!event) return std::nullopt;
      reply_.take(*event);
    }
  } catch (const std::exception&) {
    throw current_request_error();
  }
  return line_of(reply_.whole());
}

std::optional<std::string> Exchange::next_events(const Alive& alive) {
  std::string text;
  try {
    if (!std::exchange(begun_, true)) {
      for (const Json& part : reply_.begin()) text += event_of(line_of(part));
    }
    while (text.empty() && !reply_.complete() && !over_) {
      const std::optional<Event> event = next(alive);
      if (!event) return std::nullopt;
      for (const Json& part : reply_.take(*event)) text += event_of(line_of(part));
    }
  } catch (const std::exception&) {
    over_ = true;
    return event_of(line_of(current_request_error().to_json()));
  }
  if (!text.empty()) return text;
  if (std::exchange(over_, true)) return std::nullopt;
  if (request_.include_usage) text += event_of(line_of(reply_.usage_part()));
  return text + event_of("[DONE]");
}

Service::Service(std::string model, const Language& language, Scheduler& scheduler, const Defaults& defaults,
                 const Limits& limits)
    : model_(std::move(model)),
      language_(language),
      scheduler_(scheduler),
      defaults_(defaults),
      limits_(limits),
      created_(now()) {}

std::optional<std::string> Service::method_of(std::string_view path) const {
  if (path == kCompletions || path == kChat) return "POST";
  if (path == kHealth || path == kModels || path.starts_with(kModel)) return "GET";
  return std::nullopt;
}

Json Service::model_entry() const {
  return {{"id", model_}, {"object", "model"}, {"created", created_}, {"owned_by", "mantissa"}};
}

std::string Service::get(std::string_view path) const {
  if (path == kHealth) return line_of({{"status", "ok"}});
  if (path == kModels) return line_of({{"object", "list"}, {"data", Json::array({model_entry()})}});
  if (path.substr(std::min(path.size(), kModel.size())) == model_) return line_of(model_entry());
  throw RequestError(404, fmt::format("there is only the model \"{}\"", model_), "model", "model_not_found");
}

std::unique_ptr<Exchange> Service::post(std::string_view path, std::string_view body) {
  const bool chat = path == kChat;
  try {
    TextRequest request = (chat ? read_chat : read_completion)(body, defaults_, limits_);
    std::vector<EncodedPrompt> prompts = language_.encode(request);
    ReplyHead head{fmt::format("{}-{:x}-{}", chat ? "chatcmpl" : "cmpl", created_, ++count_), model_, now()};
    return std::make_unique<Exchange>(std::move(request), std::move(prompts), language_, scheduler_,
                                      std::move(head), std::chrono::seconds(limits_.request_seconds));
  } catch (const std::exception&) {
    throw current_request_error();
  }
}

}  // namespace mantissa::serve
