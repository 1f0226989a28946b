#include "mantissa/app/serve/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "mantissa/app/serve/request_error.h"
#include "mantissa/core/base/counted.h"

namespace mantissa::serve {
namespace {

/// One sequence of an answer, on the thread of the model: its text, and the reason of its end.
class Sequence {
 public:
  Sequence(std::size_t choice, const EncodedPrompt& prompt, std::optional<tokenizer::GrowingText> text,
           std::int64_t max_new_tokens, std::shared_ptr<Answer> answer)
      : choice_(choice),
        ends_(prompt.ends),
        text_(std::move(text)),
        max_new_tokens_(max_new_tokens),
        answer_(std::move(answer)) {}

  /// Returns false to end the sequence.
  bool push(const rollout::LiveToken& token) {
    Event event{.choice = choice_, .token = token, .text = {}, .finish = {}};
    if (!token.of_prompt) {
      const bool ended = std::ranges::find(ends_, token.id) != ends_.end();
      if (text_ && !ended) event.text = text_->push(token.id);
      const bool stopped = text_ && text_->stopped();
      if (++made_ == max_new_tokens_) event.finish = "length";
      if (ended || stopped) event.finish = "stop";
      if (text_ && !event.finish.empty()) event.text += text_->finish();
    }
    const bool goes_on = event.finish.empty();
    answer_->push(std::move(event));
    return goes_on;
  }

  void end(const std::exception_ptr& error) { answer_->end(choice_, error); }

 private:
  std::size_t choice_;
  std::vector<std::int32_t> ends_;
  std::optional<tokenizer::GrowingText> text_;
  std::int64_t made_ = 0, max_new_tokens_;
  std::shared_ptr<Answer> answer_;
};

RequestError stopping() {
  return {503, "the server is shutting down", "", "shutting_down"};
}

}  // namespace

Scheduler::Scheduler(std::unique_ptr<rollout::LiveSequences> sequences, const Language& language,
                     const Limits& limits, std::int64_t max_new_tokens)
    : sequences_(std::move(sequences)),
      language_(language),
      limits_(limits),
      max_new_tokens_(max_new_tokens),
      thread_([this] { run(); }) {}

Scheduler::~Scheduler() {
  stop();
  thread_.join();
}

void Scheduler::stop() {
  const std::lock_guard lock(mutex_);
  stop_.request_stop();
  changed_.notify_one();
}

/// Returns how many tokens may follow the prompt. A request that names no number gets what is left.
std::int64_t Scheduler::new_tokens(const TextRequest& request, const EncodedPrompt& prompt) const {
  const std::int64_t length = std::ssize(prompt.ids), room = capacity() - length;
  const std::string field = request.chat ? "messages" : "prompt";
  if (room < (request.max_tokens == 0 ? 0 : 1)) {
    throw RequestError(
        400,
        fmt::format("{}: has {}, but a sequence has at most {} with one new token. Fix: shorten it, or "
                    "start the server with a larger --max-tokens, up to the model's context",
                    field, counted(prompt.ids.size(), "token"), capacity()),
        field, "context_length_exceeded");
  }
  if (!request.max_tokens) return std::min(max_new_tokens_, room);
  if (*request.max_tokens > room) {
    throw RequestError(
        400,
        fmt::format("max_tokens: expected at most {} after a prompt of {}, got {}. Fix: a smaller "
                    "number, or start the server with a larger --max-tokens",
                    room, counted(prompt.ids.size(), "token"), *request.max_tokens),
        "max_tokens", "context_length_exceeded");
  }
  return *request.max_tokens;
}

std::shared_ptr<Answer> Scheduler::submit(const TextRequest& request,
                                          const std::vector<EncodedPrompt>& prompts) {
  auto answer = std::make_shared<Answer>();
  std::vector<rollout::LiveRequest> all;
  // Dropped with the last function that holds it.
  const std::shared_ptr<void> ticket(nullptr, [this](void*) { --requests_; });
  if (++requests_ > limits_.queue) {
    throw RequestError(
        429,
        fmt::format("{} requests are in work or wait. Fix: try again later, or start the server with a "
                    "larger --max-queue",
                    limits_.queue),
        "", "queue_full");
  }
  for (const EncodedPrompt& prompt : prompts) {
    for (std::int64_t sample = 0; sample < request.n; ++sample) {
      rollout::LiveRequest live;
      live.prompt = prompt.ids;
      live.sequence = sample;
      live.max_new_tokens = new_tokens(request, prompt);
      live.stop = prompt.ends;
      live.sampling = request.sampling;
      live.prompt_log_probs = request.echo && request.log_probs;
      live.most_likely = request.log_probs ? request.most_likely : 0;
      live.cancel = answer->cancelled();
      const auto sequence = std::make_shared<Sequence>(
          all.size(), prompt, language_.growing_text(prompt, request.chat), live.max_new_tokens, answer);
      live.on_token = [sequence](const rollout::LiveToken& token) { return sequence->push(token); };
      live.on_end = [sequence, ticket](const std::exception_ptr& error) { sequence->end(error); };
      sequences_->check(live);
      all.push_back(std::move(live));
    }
  }
  const std::lock_guard lock(mutex_);
  if (stop_.stop_requested()) throw stopping();
  for (rollout::LiveRequest& live : all) arrived_.push_back(std::move(live));
  changed_.notify_one();
  return answer;
}

void Scheduler::run() {
  std::unique_lock lock(mutex_);
  while (!stop_.stop_requested()) {
    if (sequences_->idle()) {
      changed_.wait(lock, [&] { return !arrived_.empty() || stop_.stop_requested(); });
    }
    for (rollout::LiveRequest& live : std::exchange(arrived_, {})) sequences_->add(std::move(live));
    lock.unlock();
    try {
      sequences_->step(stop_.get_token());
    } catch (const std::bad_alloc&) {  // beside the sequences, which know their errors
    }
    lock.lock();
  }
  for (rollout::LiveRequest& live : std::exchange(arrived_, {})) sequences_->add(std::move(live));
  lock.unlock();
  sequences_->end_all(std::make_exception_ptr(stopping()));
}

}  // namespace mantissa::serve
