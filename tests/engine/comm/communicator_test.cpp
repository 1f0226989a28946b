// The operations of ranks, on threads of one process.
#include "mantissa/engine/comm/communicator.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <string>

#include "engine/comm/run_ranks.h"

namespace mantissa::comm {
namespace {

std::vector<std::byte> bytes_of_text(const std::string& text) {
  const auto all = std::as_bytes(std::span(text));
  return {all.begin(), all.end()};
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(Communicator, BroadcastsFromAnyRank) {
  for (int size = 1; size <= 9; ++size) {
    testing::run_ranks(size, [&](Communicator& ranks) {
      for (int root = 0; root < size; ++root) {
        const std::string text = "from " + std::to_string(root);
        const std::vector<std::byte> got =
            ranks.broadcast(ranks.rank() == root ? bytes_of_text(text) : std::vector<std::byte>{}, root);
        EXPECT_EQ(text_of(got), text) << size << " ranks, rank " << ranks.rank();
      }
    });
  }
}

TEST(Communicator, GathersBytesOfAnyNumber) {
  for (int size = 1; size <= 7; ++size) {
    testing::run_ranks(size, [&](Communicator& ranks) {
      const std::string own(static_cast<std::size_t>(ranks.rank() * 3 % 5),
                            static_cast<char>('a' + ranks.rank()));
      const std::vector<std::vector<std::byte>> all = ranks.all_gather(bytes_of_text(own));
      ASSERT_EQ(all.size(), static_cast<std::size_t>(size));
      for (int r = 0; r < size; ++r) {
        EXPECT_EQ(text_of(all[static_cast<std::size_t>(r)]),
                  std::string(static_cast<std::size_t>(r * 3 % 5), static_cast<char>('a' + r)));
      }
    });
  }
}

TEST(Communicator, AgreesIfAnyRankSaysSo) {
  for (int one = -1; one < 4; ++one) {
    testing::run_ranks(4, [&](Communicator& ranks) { EXPECT_EQ(ranks.any(ranks.rank() == one), one >= 0); });
  }
}

TEST(Communicator, OperationsRunInTheirOrderWhileTheRankComputes) {
  testing::run_ranks(3, [](Communicator& ranks) {
    std::vector<std::array<std::int32_t, 3>> values(20);
    std::vector<std::future<void>> started;
    for (std::int32_t i = 0; i < 20; ++i) {
      auto& v = values[static_cast<std::size_t>(i)];
      v[static_cast<std::size_t>(ranks.rank())] = 100 * i + ranks.rank();
      std::vector<std::span<std::byte>> blocks;
      for (std::int32_t& x : v) blocks.push_back(std::as_writable_bytes(std::span(&x, 1)));
      started.push_back(ranks.all_gather(std::move(blocks)));
    }
    for (std::future<void>& s : started) s.get();
    for (std::int32_t i = 0; i < 20; ++i) {
      for (std::int32_t r = 0; r < 3; ++r)
        EXPECT_EQ(values[static_cast<std::size_t>(i)][static_cast<std::size_t>(r)], 100 * i + r);
    }
  });
}

TEST(Communicator, ARankThatEndsIsNamed) {
  testing::run_ranks(3, [](Communicator& ranks) {
    ranks.barrier();
    if (ranks.rank() == 1) {
      const Communicator::Farewell farewell = ranks.leave(Ending::failed);
      EXPECT_TRUE(farewell.together);
      EXPECT_TRUE(farewell.tells) << "the others only lost this rank";
      return;
    }
    try {
      ranks.barrier();
      ADD_FAILURE() << "the barrier is complete";
    } catch (const RankLost& e) {
      EXPECT_NE(std::string(e.what()).find("rank 1 has ended with an error"), std::string::npos) << e.what();
    }
    EXPECT_THROW(ranks.barrier(), RankLost) << "an operation after a failure";
    EXPECT_FALSE(ranks.leave(Ending::lost).tells) << "rank 1 has said why";
  });
}

TEST(Communicator, OfRanksWithTheSameErrorOneTells) {
  std::atomic<int> tell = 0;
  testing::run_ranks(4, [&](Communicator& ranks) {
    const Communicator::Farewell farewell = ranks.leave(Ending::failed);
    EXPECT_TRUE(farewell.together);
    EXPECT_EQ(farewell.tells, ranks.rank() == 0);
    if (farewell.tells) ++tell;
  });
  EXPECT_EQ(tell, 1);
}

TEST(Communicator, ARankThatVanishesIsNoticed) {
  std::vector<std::unique_ptr<Transport>> ranks = thread_ranks(2);
  ranks.pop_back();
  Communicator left(std::move(ranks.front()));
  EXPECT_THROW(left.barrier(), RankLost);
  EXPECT_FALSE(left.leave(Ending::lost).together);
}

TEST(Communicator, AnErrorOfOneRankIsNotWaitedForForever) {
  testing::run_ranks(2, [](Communicator& ranks) {
    if (ranks.rank() == 0) {
      EXPECT_FALSE(ranks.leave(Ending::failed, std::chrono::milliseconds(20)).together)
          << "rank 1 still works";
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      ranks.leave(Ending::done);
    }
  });
}

TEST(Communicator, ARankThatDoesNotAnswerIsNamed) {
  std::promise<void> others_gave_up;
  std::shared_future<void> over = others_gave_up.get_future().share();
  std::atomic<int> waiting = 2;
  testing::run_ranks(
      3,
      [&](Communicator& ranks) {
        if (ranks.rank() == 2) return over.wait();
        try {
          ranks.run([](Messages& m) {
            std::byte mine{}, theirs{};
            m.send(2, {&mine, 1});
            m.receive(2, {&theirs, 1});
            m.complete();
          });
          ADD_FAILURE() << "the message came";
        } catch (const RankLost& e) {
          EXPECT_NE(std::string(e.what()).find("rank 2: no answer for 0.05 s (distributed.timeout)"),
                    std::string::npos)
              << e.what();
        }
        if (--waiting == 0) others_gave_up.set_value();
      },
      std::chrono::milliseconds(50));
}

/// Rank 0 waits for rank 1, which waits for rank 2: neither of both that gave up is the one to name.
TEST(Communicator, OfRanksThatWaitForEachOtherTheOneThatHangsIsNamed) {
  std::promise<void> others_left;
  std::shared_future<void> over = others_left.get_future().share();
  std::barrier both_gave_up(2);
  std::atomic<int> working = 2, tell = 0;
  testing::run_ranks(
      3,
      [&](Communicator& ranks) {
        if (ranks.rank() == 2) return over.wait();
        EXPECT_THROW(ranks.run([next = ranks.rank() + 1](Messages& m) {
          std::byte theirs{};
          m.receive(next, {&theirs, 1});
          m.complete();
        }),
                     NoAnswer);
        both_gave_up.arrive_and_wait();
        const Communicator::Farewell farewell = ranks.leave(Ending::lost, std::chrono::milliseconds(200));
        if (farewell.tells) {
          ++tell;
          EXPECT_TRUE(farewell.hanging.starts_with("rank 2: no answer for 0.05 s")) << farewell.hanging;
        }
        if (--working == 0) others_left.set_value();
      },
      std::chrono::milliseconds(50));
  EXPECT_EQ(tell, 1);
}

}  // namespace
}  // namespace mantissa::comm
