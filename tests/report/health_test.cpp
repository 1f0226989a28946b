// health.jsonl, and health in few groups for TensorBoard.
#include "mantissa/report/health.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"

namespace mantissa::report {
namespace {

using runtime::ParameterHealth;

ParameterHealth some(const std::string& name, double lost, std::int64_t elements = 10) {
  ParameterHealth p;
  p.name = name;
  p.elements = elements;
  p.updates_lost = lost;
  p.grad_absmax = 2 * lost;
  return p;
}

TEST(HealthLine, HasWhatIsKnownOfEachParameter) {
  std::vector<ParameterHealth> health = {some("a.\"weight", 0.25), some("b", 1.0 / 3)};
  health[0].scale = std::numeric_limits<double>::infinity();
  health[1].never_moved = 0.5;
  EXPECT_EQ(
      health_line(20, health),
      R"({"step":20,"health":{"a.\"weight":{"updates_lost":0.25,"grads_flushed":0,"grads_saturated":0,)"
      R"("grad_absmax":0.5,"weight_absmax":0,"scale":null},"b":{"updates_lost":0.333333333,"never_moved":0.5,)"
      R"("grads_flushed":0,"grads_saturated":0,"grad_absmax":0.666666667,"weight_absmax":0}}})");
}

TEST(HealthScalars, OfLayersAreThoseOfTheWorstLayer) {
  std::vector<ParameterHealth> health = {some("m.layers.0.up.weight", 0.125),
                                         some("m.layers.17.up.weight", 0.5), some("m.norm.weight", 1, 20)};
  health[0].least_scale = 4;
  health[1].least_scale = 2;
  std::map<std::string, double> scalars;
  for (const auto& [tag, value] : health_scalars(health))
    EXPECT_TRUE(scalars.emplace(tag, value).second) << tag;
  EXPECT_EQ(scalars.at("updates_lost/m.layers.*.up.weight"), 0.5);
  EXPECT_EQ(scalars.at("updates_lost/m.norm.weight"), 1);
  EXPECT_EQ(scalars.at("health/updates_lost"), (0.125 * 10 + 0.5 * 10 + 1 * 20) / 40);
  EXPECT_EQ(scalars.at("health/grad_absmax"), 2);
  EXPECT_EQ(scalars.at("health/least_scale"), 2);
  EXPECT_FALSE(scalars.contains("health/never_moved")) << "it is not known";
}

TEST(HealthScalars, AreAsManyForThirtyLayersAsForOne) {
  const auto count = [](int layers) {
    std::vector<ParameterHealth> health = {some("m.embed.weight", 0)};
    for (int i = 0; i < layers; ++i) {
      for (const char* part : {"q_proj", "k_proj", "up_proj"})
        health.push_back(some(fmt::format("m.layers.{}.{}.weight", i, part), 0.5));
    }
    return health_scalars(health).size();
  };
  EXPECT_EQ(count(30), count(1));
}

class HealthFile : public test::TemporaryFolder {
 protected:
  std::filesystem::path file() const { return folder / "health.jsonl"; }
  void write_steps(std::int64_t first, std::int64_t last, std::int64_t resumed) const {
    HealthWriter writer(file(), resumed);
    for (std::int64_t step = first; step <= last; ++step) writer.write(step, std::vector{some("w", 0.5)});
  }
};

TEST_F(HealthFile, OfAResumedRunKeepsTheLinesUpToItsStep) {
  write_steps(1, 3, 0);
  const std::string three = test::contents_of(file());
  write_steps(4, 9, 3);
  write_steps(4, 3, 3);
  EXPECT_EQ(test::contents_of(file()), three);
  test::put(file(), three + "{\"step\":4,\"hea");
  const HealthWriter resumed(file(), 9);
  EXPECT_EQ(test::contents_of(file()), three) << "a crash truncated the last line";
}

TEST_F(HealthFile, OfAnEarlierRunIsRemovedByANewOne) {
  test::put(file(), "whatever was here");
  HealthWriter writer(file());
  EXPECT_FALSE(std::filesystem::exists(file()));
  writer.write(1, {});
  EXPECT_FALSE(std::filesystem::exists(file())) << "nothing was measured";
  writer.write(2, std::vector{some("w", 0.5)});
  EXPECT_EQ(test::contents_of(file()), health_line(2, std::vector{some("w", 0.5)}) + "\n");
}

}  // namespace
}  // namespace mantissa::report
