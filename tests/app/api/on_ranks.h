// Calls of the library by several ranks, as threads of this process.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <memory>
#include <vector>

#include "engine/comm/run_ranks.h"
#include "mantissa/app/api/ranks.h"

namespace mantissa::testing {

/// Returns what body(ranks) returns on each of `size` ranks. Throws the error of the first one.
template <class Body>
auto on_ranks(int size, const Body& body) {
  std::vector<decltype(body(api::Ranks()))> all(static_cast<std::size_t>(size));
  std::exception_ptr failure;
  run_ranks(size, [&](comm::Communicator& ranks) {
    try {
      all[static_cast<std::size_t>(ranks.rank())] =
          body(api::Ranks(std::shared_ptr<comm::Communicator>(&ranks, [](auto*) {})));
    } catch (...) {
      if (ranks.leads()) failure = std::current_exception();
      ranks.leave(comm::Ending::failed);
    }
    if (size > 1) {
      EXPECT_GT(ranks.sent_bytes(), 0U) << "the ranks share nothing";
    }
  });
  if (failure) std::rethrow_exception(failure);
  return all;
}

}  // namespace mantissa::testing
