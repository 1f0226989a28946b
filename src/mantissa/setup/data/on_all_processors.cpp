#include "mantissa/setup/data/on_all_processors.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace mantissa::data {

void on_all_processors(std::size_t count, const std::function<void(std::size_t)>& body) {
  std::vector<std::exception_ptr> failed(count);
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        body(i);
      } catch (...) {
        failed[i] = std::current_exception();
      }
    }
  };
  {
    constexpr std::size_t kMostThreads = 16;
    const std::size_t threads =
        std::min({count, kMostThreads, static_cast<std::size_t>(std::thread::hardware_concurrency())});
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < threads; ++i) others.emplace_back(work);
    work();
  }
  for (const std::exception_ptr& e : failed) {
    if (e != nullptr) std::rethrow_exception(e);
  }
}

}  // namespace mantissa::data
