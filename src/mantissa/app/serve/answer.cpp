#include "mantissa/app/serve/answer.h"

#include <new>
#include <utility>

namespace mantissa::serve {

void Answer::push(Event event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
  changed_.notify_one();
}

void Answer::end(std::size_t choice, const std::exception_ptr& error) noexcept {
  try {
    push({.choice = choice, .token = {}, .text = {}, .finish = {}, .error = error});
  } catch (const std::bad_alloc&) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    changed_.notify_one();
  }
}

std::optional<Event> Answer::next(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, deadline, [&] { return !events_.empty() || failure_ != nullptr; }))
    return std::nullopt;
  if (events_.empty()) return Event{.token = {}, .text = {}, .finish = {}, .error = failure_};
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

}  // namespace mantissa::serve
