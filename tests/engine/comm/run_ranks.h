// Ranks on threads of this process.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/engine/comm/thread_ranks.h"

namespace mantissa::testing {

/// Calls body(communicator) on a thread for each rank, and waits for all of them. A rank whose body has not
/// said how it ended has no error.
inline void run_ranks(int ranks, const std::function<void(comm::Communicator&)>& body,
                      std::chrono::milliseconds timeout = comm::Communicator::kTimeout) {
  std::vector<std::jthread> threads;
  for (std::unique_ptr<comm::Transport>& transport : comm::thread_ranks(ranks)) {
    threads.emplace_back([&body, timeout, transport = std::move(transport)]() mutable {
      comm::Communicator communicator(std::move(transport), timeout);
      body(communicator);
      if (!communicator.has_left()) communicator.leave(comm::Ending::done);
    });
  }
}

}  // namespace mantissa::testing
