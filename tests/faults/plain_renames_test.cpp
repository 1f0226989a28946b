// File systems that cannot exchange two names, where a replaced directory has another name for a moment.
#include <gtest/gtest.h>

#include "faults/campaign.h"

namespace mantissa::faults {
namespace {

class PlainRenames : public ::testing::TestWithParam<const char*> {};

TEST_P(PlainRenames, ADirectoryIsReplacedAfterAKillAtAnyChangeOfNames) {
  Prepared prepared(command_named(GetParam()));
  ASSERT_NO_FATAL_FAILURE(prepared.prepare());
  for (const char* group : {"rename", "remove", "mode"}) {
    Fault fault{.calls = group, .at = 0, .does = "KILL"};
    fault.plain_renames = true;
    EXPECT_EQ(run_with(prepared, fault), "") << "without a kill";
    prepared.restore();
    const Ran counted = prepared.machine.run(with_options(prepared.command().run), fault);
    ASSERT_EQ(counted.code, 0) << counted.err;
    for (fault.at = 1; fault.at <= counted.counts.numbered; ++fault.at)
      EXPECT_EQ(run_with(prepared, fault), "") << group;
  }
}
INSTANTIATE_TEST_SUITE_P(Commands, PlainRenames,
                         ::testing::Values("convert_overwrite", "train_adapter", "train_overwrite"),
                         [](const auto& p) { return std::string(p.param); });

}  // namespace
}  // namespace mantissa::faults
