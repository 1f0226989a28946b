// Items that ranks work on apart.
#include "mantissa/engine/comm/deal.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "engine/comm/run_ranks.h"
#include "mantissa/core/base/error.h"

namespace mantissa::comm {
namespace {

std::optional<Bytes> text_of_item(std::int64_t item, const std::stop_token& /*stop*/) {
  return bytes_of_text(std::string(static_cast<std::size_t>(item % 5), 'x') + std::to_string(item));
}

/// Returns the error of each rank, or "".
template <class Body>
std::vector<std::string> errors_on(int size, const Body& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  testing::run_ranks(size, [&](Communicator& ranks) {
    try {
      body(ranks);
    } catch (const Error& e) {
      errors[static_cast<std::size_t>(ranks.rank())] = e.what();
    }
  });
  return errors;
}

TEST(Deal, ReturnsAllResultsInTheirOrderOnEveryRank) {
  for (int size = 1; size <= 5; ++size) {
    for (const std::int64_t items : {0, 1, 3, 17}) {
      testing::run_ranks(size, [&](Communicator& ranks) {
        std::vector<std::int64_t> own;
        const std::vector<Bytes> all =
            deal(&ranks, items, {"a"}, {}, [&](std::int64_t item, const std::stop_token& stop) {
              own.push_back(item);
              return text_of_item(item, stop);
            });
        ASSERT_EQ(std::ssize(all), items) << size;
        for (std::int64_t i = 0; i < items; ++i)
          EXPECT_EQ(all[static_cast<std::size_t>(i)], text_of_item(i, {})) << size;
        for (const std::int64_t item : own) EXPECT_EQ(item % size, ranks.rank());
      });
    }
  }
}

TEST(Deal, ThrowsTheErrorOfTheFirstItemWithOneOnEveryRank) {
  for (const int size : {1, 2, 3, 4}) {
    const std::vector<std::string> errors = errors_on(size, [&](Communicator& ranks) {
      deal(&ranks, 40, {}, {}, [&](std::int64_t item, const std::stop_token& stop) {
        if (item == 8) std::this_thread::sleep_for(std::chrono::milliseconds(20));  // later items fail before
        if (item == 8 || item == 9 || item == 11)
          throw RunStopped("item " + std::to_string(item), {Cure{{"--rule", "a b"}, "slow", true}});
        return text_of_item(item, stop);
      });
    });
    for (const std::string& error : errors) {
      EXPECT_EQ(error, RunStopped("item 8", {Cure{{"--rule", "a b"}, "slow", true}}).what()) << size;
    }
  }
}

TEST(Deal, KeepsTheKindOfAnError) {
  testing::run_ranks(2, [&](Communicator& ranks) {
    const auto failing = [&](const auto& error) {
      deal(&ranks, 2, {}, {}, [&](std::int64_t item, const std::stop_token& stop) {
        if (item == 1) throw error;
        return text_of_item(item, stop);
      });
    };
    EXPECT_THROW(failing(ConfigError(std::string("c"))), ConfigError);
    EXPECT_THROW(failing(ProgramFailed(std::string("p"))), ProgramFailed);
    try {
      failing(FileError(std::string("no such file")));
      ADD_FAILURE() << "nothing was thrown";
    } catch (const FileError& e) {
      EXPECT_EQ(std::string(e.what()), ranks.place(1) + ": no such file") << "it may exist on other machines";
    }
  });
}

TEST(Deal, AStopOfAnyRankStopsAll) {
  for (const int size : {1, 3}) {
    std::vector<std::stop_source> stops(3);
    std::vector<std::size_t> results(static_cast<std::size_t>(size));
    testing::run_ranks(size, [&](Communicator& ranks) {
      const std::stop_source& own = stops[static_cast<std::size_t>(ranks.rank())];
      const std::vector<Bytes> all =
          deal(&ranks, 1'000'000, {}, own.get_token(), [&](std::int64_t item, const std::stop_token& stop) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            if (item >= 20 && ranks.rank() == size - 1)
              stops[static_cast<std::size_t>(size - 1)].request_stop();
            return stop.stop_requested() ? std::nullopt : text_of_item(item, stop);
          });
      results[static_cast<std::size_t>(ranks.rank())] = all.size();
      for (std::size_t i = 0; i < all.size(); ++i)
        ASSERT_EQ(all[i], text_of_item(static_cast<std::int64_t>(i), {})) << "no gap";
    });
    EXPECT_GT(results[0], 0U);
    EXPECT_LT(results[0], 100'000U);
    for (const std::size_t result : results) EXPECT_EQ(result, results[0]);
  }
}

TEST(Deal, ARankMayWorkLongerThanTheTimeLimitOfAMessage) {
  testing::run_ranks(
      2,
      [&](Communicator& ranks) {
        const std::vector<Bytes> all =
            deal(&ranks, 2, {}, {}, [&](std::int64_t item, const std::stop_token& stop) {
              if (item == 1) std::this_thread::sleep_for(std::chrono::milliseconds(900));
              return text_of_item(item, stop);
            });
        EXPECT_EQ(all.size(), 2U);
      },
      std::chrono::milliseconds(400));
}

TEST(Deal, OtherInputsAreAnError) {
  const std::vector<std::string> errors = errors_on(3, [&](Communicator& ranks) {
    deal(&ranks, 2, {"model", ranks.rank() == 1 ? "b" : "a"}, {}, text_of_item);
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("rank 1 has other inputs than rank 0"), std::string::npos) << error;
  }
}

TEST(Deal, ABugOfOneRankEndsTheOthers) {
  std::atomic<int> lost = 0;
  testing::run_ranks(3, [&](Communicator& ranks) {
    try {
      deal(&ranks, 3, {}, {}, [&](std::int64_t item, const std::stop_token& stop) {
        if (item == 2) throw std::logic_error("a bug");
        return text_of_item(item, stop);
      });
    } catch (const RankLost&) {
      ++lost;
      ranks.leave(Ending::lost);
    } catch (const std::logic_error&) {
      ranks.leave(Ending::failed);
    }
  });
  EXPECT_EQ(lost, 2);
}

}  // namespace
}  // namespace mantissa::comm
