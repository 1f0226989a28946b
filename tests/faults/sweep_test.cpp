// Every command that writes, with a fault at one call after the other.
#include <gtest/gtest.h>

#include "faults/sweep.h"

namespace mantissa::faults {
namespace {

std::string command_name(const Command& command) {
  return command.name;
}

class OneFault : public ::testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(prepared.prepare()); }
  /// Checks the points of which the number divided by `of` leaves `part`.
  void check(const std::vector<Fault>& points, std::size_t part, std::size_t of) const {
    std::size_t checked = 0;
    for (std::size_t i = part; i < points.size(); i += of, ++checked) {
      const std::string wrong = run_with(prepared, points[i]);
      if (!wrong.empty()) ADD_FAILURE() << wrong;
    }
    RecordProperty("points", static_cast<int>(checked));
    std::cout << checked << " of " << points.size() << " points\n";
  }
  const Command& command() const { return commands()[GetParam() % commands().size()]; }
  Prepared prepared{command()};
};

/// A few points of each command.
constexpr std::size_t kFew = 5;

TEST_P(OneFault, LosesNothingAndChangesNoOtherFile) {
  const std::vector<Fault> all = points(prepared.counts(), 40);
  const std::size_t of = std::max<std::size_t>(1, all.size() / kFew);
  check(all, (seed() + 7 * GetParam()) % of, of);
}
INSTANTIATE_TEST_SUITE_P(Commands, OneFault, ::testing::Range<std::size_t>(0, commands().size()),
                         [](const auto& p) { return command_name(commands()[p.param]); });

/// All points, in parts that can run beside each other.
constexpr std::size_t kParts = 4;
using SlowOneFault = OneFault;

TEST_P(SlowOneFault, AtAnyCallLosesNothingAndChangesNoOtherFile) {
  check(points(prepared.counts(), 200), GetParam() / commands().size(), kParts);
}
INSTANTIATE_TEST_SUITE_P(Slow, SlowOneFault, ::testing::Range<std::size_t>(0, kParts* commands().size()),
                         [](const auto& p) {
                           return fmt::format("{}_{}", command_name(commands()[p.param % commands().size()]),
                                              p.param / commands().size());
                         });

}  // namespace
}  // namespace mantissa::faults
