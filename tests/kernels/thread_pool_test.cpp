// Every index of a loop runs exactly once, on a thread of the pool, and has finished when the loop returns.
#include "mantissa/kernels/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "mantissa/kernels/context.h"

namespace mantissa::kernels::thread_pool_test {
namespace {

TEST(ThreadPool, RunsEveryIndexOnceInManyLoopsOfAllSizes) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const std::int64_t count : {0, 1, 2, 5, 64, 1000}) {
      for (int repeat = 0; repeat < 20; ++repeat) {
        std::vector<int> seen(static_cast<std::size_t>(count), 0);
        std::vector<int> by(static_cast<std::size_t>(count), -1);
        pool.run(count, [&](std::int64_t i, int thread) {
          ++seen[static_cast<std::size_t>(i)];
          by[static_cast<std::size_t>(i)] = thread;
        });
        EXPECT_EQ(seen, std::vector<int>(static_cast<std::size_t>(count), 1));
        for (const int thread : by) EXPECT_TRUE(thread >= 0 && thread < threads) << thread;
      }
    }
  }
}

TEST(ThreadPool, WakesUpAfterASleep) {
  ThreadPool pool(3);
  for (int repeat = 0; repeat < 3; ++repeat) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<std::int64_t> sum = 0;
    pool.run(100, [&](std::int64_t i, int) { sum += i; });
    EXPECT_EQ(sum, 4950);
  }
}

TEST(ThreadPool, RunsLoopsThatEndBeforeOtherThreadsWakeUp) {
  // Loops of one index, which the caller takes while the others wake up, then a loop with one for each.
  ThreadPool pool(4);
  for (int repeat = 0; repeat < 200; ++repeat) {
    int calls = 0;
    for (int i = 0; i < 20; ++i) pool.run(1, [&](std::int64_t, int) { ++calls; });
    EXPECT_EQ(calls, 20);
    std::vector<int> seen(4, 0);
    pool.run(4, [&](std::int64_t i, int) { ++seen[static_cast<std::size_t>(i)]; });
    EXPECT_EQ(seen, std::vector<int>(4, 1));
  }
}

TEST(ThreadPool, SeveralCallersTakeTurns) {
  ThreadPool pool(2);
  std::atomic<int> done = 0;
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int i = 0; i < 50; ++i) pool.run(10, [&](std::int64_t, int) { ++done; });
    });
  }
  for (std::thread& c : callers) c.join();
  EXPECT_EQ(done, 4 * 50 * 10);
}

TEST(ThreadPool, TheFirstExceptionEndsTheLoopAndTheNextOneRuns) {
  ThreadPool pool(3);
  for (std::int64_t bad = 0; bad < 40; ++bad) {
    std::atomic<int> running = 0;
    const auto body = [&](std::int64_t i, int) {
      ++running;
      if (i == bad || i == bad + 3) {
        --running;
        throw std::runtime_error("call");
      }
      --running;
    };
    EXPECT_THROW(pool.run(50, body), std::runtime_error);
    EXPECT_EQ(running, 0) << "all calls have ended";
    std::atomic<int> done = 0;
    pool.run(50, [&](std::int64_t, int) { ++done; });
    EXPECT_EQ(done, 50);
  }
}

TEST(ParallelFor, WorksWithAndWithoutAPool) {
  for (const auto& pool : {std::shared_ptr<ThreadPool>(), std::make_shared<ThreadPool>(3)}) {
    Context ctx;
    ctx.threads = 3;
    ctx.pool = pool;
    std::vector<int> seen(50, 0);
    parallel_for(ctx, 50, [&](std::int64_t i, int) { ++seen[static_cast<std::size_t>(i)]; });
    EXPECT_EQ(seen, std::vector<int>(50, 1));
  }
}

}  // namespace
}  // namespace mantissa::kernels::thread_pool_test
