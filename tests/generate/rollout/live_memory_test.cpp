// Sequences while memory runs out: each failed allocation ends what is in work, and what follows is whole.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "engine/runtime/device.h"
#include "engine/runtime/program.h"
#include "generate/eval/tiny_model.h"
#include "mantissa/generate/rollout/live_sequences.h"
#include "mantissa/setup/weights/model_files.h"

namespace {
thread_local long allocations_left = -1;  // of this thread, until one fails; negative: none does
}

// NOLINTBEGIN(cppcoreguidelines-no-malloc)
void* operator new(std::size_t bytes) {
  if (allocations_left >= 0 && allocations_left-- == 0) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}
// NOLINTEND(cppcoreguidelines-no-malloc)

namespace mantissa::rollout::live_memory_test {
namespace {

struct Got {
  std::vector<std::int32_t> ids;
  std::vector<double> log_probs;
  int ends = 0;
  std::exception_ptr error;
};

/// `got` needs room, so that a failed allocation is one of the program.
LiveRequest request_of(Got& got, std::int64_t length) {
  got.ids.reserve(64);
  got.log_probs.reserve(64);
  LiveRequest r;
  for (std::int64_t i = 0; i < length; ++i) r.prompt.push_back(static_cast<std::int32_t>((3 + i * i) % 29));
  r.max_new_tokens = 6;
  r.sampling = {.temperature = 1.3, .seed = 5};
  r.on_token = [&got](const LiveToken& token) {
    got.ids.push_back(token.id);
    got.log_probs.push_back(token.log_prob);
    return true;
  };
  r.on_end = [&got](const std::exception_ptr& error) {
    ++got.ends;
    got.error = error;
  };
  return r;
}

/// Runs until nothing is in work. The first step may lack memory after `allocations`.
void finish(LiveSequences& live, long allocations = -1) {
  allocations_left = allocations;
  live.step();
  allocations_left = -1;
  while (!live.idle()) live.step();
}

TEST(LiveSequences, SurviveEveryAllocationThatFailsInAStep) {
  const weights::ModelSource source =
      eval::tiny_model_of(mantissa::testing::tiny_llama(false, 29, {{"max_position_embeddings", 256}}));
  const runtime::Device& device = mantissa::testing::best_device();
  LiveSequences live(source, precision::Policy::parse("32-true"), 128, 2, device);
  Got want[2];
  for (std::size_t i = 0; i < 2; ++i) live.add(request_of(want[i], 20 + 7 * static_cast<std::int64_t>(i)));
  finish(live);
  std::int64_t failed = 0;
  for (long allocations = 0; allocations < 400; allocations += allocations < 100 ? 1 : 7) {
    Got lacking[2], whole[2];
    // Other lengths, so that the step prepares its operands anew.
    for (std::size_t i = 0; i < 2; ++i)
      live.add(request_of(lacking[i], 11 + allocations % 5 + 9 * static_cast<std::int64_t>(i)));
    finish(live, allocations);
    for (const Got& got : lacking) {
      EXPECT_EQ(got.ends, 1) << allocations;
      failed += got.error != nullptr ? 1 : 0;
    }
    for (std::size_t i = 0; i < 2; ++i) live.add(request_of(whole[i], 20 + 7 * static_cast<std::int64_t>(i)));
    finish(live);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(whole[i].error, nullptr) << allocations;
      EXPECT_EQ(whole[i].ids, want[i].ids) << allocations;
      EXPECT_EQ(whole[i].log_probs, want[i].log_probs) << allocations;
    }
  }
  EXPECT_GT(failed, 100);
}

}  // namespace
}  // namespace mantissa::rollout::live_memory_test
