// Owners of parameters, and what a program of one rank keeps.
#include "mantissa/engine/plan/sharing.h"

#include <gtest/gtest.h>

#include <array>

#include "engine/plan/planned.h"

namespace mantissa::plan {
namespace {

TEST(Sharing, GivesTheLargestFirstToTheRankThatHasTheLeast) {
  const std::array<std::size_t, 6> bytes = {3, 7, 1, 7, 4, 0};
  EXPECT_EQ(owners_by_bytes(bytes, 2), (std::vector{1, 0, 1, 1, 0, 0}));
  EXPECT_EQ(owners_by_bytes(bytes, 8), (std::vector{3, 0, 4, 1, 2, 5})) << "two ranks own nothing";
}

/// A rank that owns nothing: steps read gathered weights alone, from a transfer that starts before, and
/// gradients leave after they are complete.
TEST(Sharing, ARankReadsNothingThatIsElsewhere) {
  const Program whole = plan_for(precision::Policy::parse("bf16-mixed"));
  Program shared = whole;
  share_weights(shared,
                {.rank = 0, .stage = 3, .streams = true, .owners = std::vector(whole.slots.size(), 1)});
  ASSERT_FALSE(shared.gathers.empty());
  EXPECT_EQ(shared.memory.weights(), 0U);
  EXPECT_EQ(shared.memory.gradients, 0U);
  for (std::size_t i = 0; i < shared.steps.size(); ++i) {
    for (const Operand& o : shared.steps[i].inputs) {
      const Buffer& b = shared.buffer(o.buffer);
      EXPECT_FALSE(b.elsewhere) << shared.steps[i].scope << " reads " << b.name;
      if (b.home != Home::gathered) continue;
      const auto gather = std::ranges::find(shared.gathers, o.buffer, &Gather::buffer);
      ASSERT_NE(gather, shared.gathers.end());
      EXPECT_LE(gather->start, gather->first);
      EXPECT_LE(gather->first, i);
      EXPECT_EQ(shared.steps[gather->start].phase, shared.steps[i].phase);
    }
  }
  std::size_t trained = 0;
  for (const Slot& slot : shared.slots) trained += slot.gradient != kNoBuffer ? 1 : 0;
  ASSERT_EQ(shared.reductions.size(), trained);
  for (const Reduction& r : shared.reductions) {
    EXPECT_LE(r.after, r.until);
    for (std::size_t i = r.after + 1; i < shared.steps.size(); ++i) {
      const std::vector<BufferId>& written = shared.steps[i].outputs;
      EXPECT_EQ(std::ranges::find(written, shared.slots[r.slot].gradient), written.end());
    }
  }
}

}  // namespace
}  // namespace mantissa::plan
