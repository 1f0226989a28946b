// run.epochs in a config.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "mantissa/setup/config/run_config.h"
#include "setup/config/config_text.h"

namespace mantissa::config {
namespace {

TEST(ConfigEpochs, AreStepsOnceTheDataHaveToldThem) {
  std::string text = kSmallest;
  text.replace(text.find("steps = 300"), 11, "epochs = 3");
  text += "[schedule]\nwarmup_ratio = 0.1";
  const auto with = [&](const std::vector<std::string>& overrides, const std::optional<EpochSteps>& known,
                        Told* told = nullptr) {
    return parse_config(text, "dir/run.toml", overrides, {}, told, false, known);
  };
  EXPECT_EQ(with({}, {}).run.epochs, 3);
  Told told;
  const RunConfig known = with({}, EpochSteps{50, 133, "row"}, &told);
  EXPECT_EQ(known.run.steps, 50);
  EXPECT_EQ(known.run.epochs, 0);
  EXPECT_EQ(known.schedule.warmup_steps, 5);
  EXPECT_EQ(parse(known.to_toml(), {}), known);
  EXPECT_EQ(told.notes.front(),
            "run.toml:2: run.epochs = 3.0: 50 steps of batch.global_batch_size = 32; an epoch has 133 rows");
  EXPECT_EQ(with({"run.epochs=2"}, {}).run.epochs, 2);
}

TEST(ConfigEpochs, GiveWayToStepsOfAnOverride) {
  EXPECT_EQ(parse(kSmallest, {"run.epochs=2"}).run.epochs, 2);
  std::string text = kSmallest;
  text.replace(text.find("steps = 300"), 11, "epochs = 3");
  Told told;
  const RunConfig config =
      parse_config(text, "dir/run.toml", std::vector<std::string>{"run.steps=70"}, {}, &told);
  EXPECT_EQ(config.run.steps, 70);
  EXPECT_EQ(config.run.epochs, 0);
  EXPECT_EQ(told.notes.front(), "--set run.steps=70: replaces run.epochs = 3.0");
}

TEST(ConfigEpochs, BetweenStatesAreAnInterval) {
  const std::string text = std::string(kSmallest) + "[checkpoint]\nepochs = 0.5\n";
  EXPECT_EQ(parse(text, {}).checkpoint.epochs, 0.5) << "the data have not told the steps";
  Told told;
  const RunConfig known =
      parse_config(text, "dir/run.toml", {}, {}, &told, false, EpochSteps{0, 133, "row", 3});
  EXPECT_EQ(known.run.steps, 300);
  EXPECT_EQ(known.checkpoint.interval, 3);
  EXPECT_EQ(known.checkpoint.epochs, 0);
  EXPECT_NE(told.notes.front().find("checkpoint.epochs = 0.5: a state and a validation every 3 steps"),
            std::string::npos)
      << told.notes.front();
  EXPECT_EQ(parse(text, {"checkpoint.interval=7"}).checkpoint.interval, 7);
  EXPECT_EQ(parse(text, {"checkpoint.interval=7"}).checkpoint.epochs, 0);
  EXPECT_THROW(parse(text + "interval = 7\n", {}), ConfigError);
}

}  // namespace
}  // namespace mantissa::config
