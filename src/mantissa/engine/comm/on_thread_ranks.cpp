#include "mantissa/engine/comm/on_thread_ranks.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "mantissa/core/base/error.h"
#include "mantissa/engine/comm/thread_ranks.h"

namespace mantissa::comm {
namespace {

bool is_lost(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const RankLost&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

void on_thread_ranks(int count, const std::function<void(const std::shared_ptr<Communicator>&)>& body) {
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(count));
  const auto run = [&](std::unique_ptr<Transport> transport) {
    const auto ranks = std::make_shared<Communicator>(std::move(transport));
    std::exception_ptr& failure = failures[static_cast<std::size_t>(ranks->rank())];
    try {
      body(ranks);
    } catch (...) {
      failure = std::current_exception();
    }
    ranks->leave(failure == nullptr ? Ending::done : is_lost(failure) ? Ending::lost : Ending::failed);
  };
  {
    std::vector<std::unique_ptr<Transport>> transports = thread_ranks(count);
    std::vector<std::jthread> others;
    for (std::size_t rank = 1; rank < transports.size(); ++rank)
      others.emplace_back(
          [&run, transport = std::move(transports[rank])]() mutable { run(std::move(transport)); });
    run(std::move(transports.front()));
  }
  std::erase(failures, nullptr);
  if (failures.empty()) return;
  const auto own = std::ranges::find_if_not(failures, is_lost);
  std::rethrow_exception(own != failures.end() ? *own : failures.front());
}

}  // namespace mantissa::comm
