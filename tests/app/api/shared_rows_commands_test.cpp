// Commands that take the config of a run whose rows ranks share.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "app/api/on_ranks.h"
#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"

namespace mantissa::api::shared_rows_commands_test {
namespace {

using mantissa::testing::has;
using mantissa::testing::into;
using mantissa::testing::on_ranks;
using mantissa::testing::TemporaryFolder;

std::string config_of(int parts, const std::string& policy = "32-true") {
  return mantissa::testing::tiny_config(6, policy) +
         "[distributed]\nsequence_shards = " + std::to_string(parts) + "\n";
}

bool tells_whole_rows(const std::vector<std::string>& notes) {
  return std::ranges::any_of(notes, [](const std::string& note) {
    return has(note, "distributed.sequence_shards = 2: this command runs whole rows");
  });
}

TEST(CommandsOfSharedRows, EvaluateWholeRows) {
  const TemporaryFolder folder;
  const Summary run = train(Config::parse(config_of(2)), into(folder / "run"));
  const Config config =
      Config::load(folder / "run/config.toml", {"run.out=\"" + (folder / "run").string() + "\""});
  const Evaluation e = evaluate(config, 0);
  EXPECT_NEAR(e.loss, *run.validation_loss, 1e-5);
  EXPECT_TRUE(tells_whole_rows(e.notes));
  for (const Evaluation& shared :
       on_ranks(3, [&](const Ranks& ranks) { return evaluate(config, 0, {}, {}, {}, ranks); }))
    EXPECT_EQ(shared.loss, e.loss) << "ranks deal rows, in any number";
}

TEST(CommandsOfSharedRows, AuditWholeRows) {
  const TemporaryFolder folder;
  train(Config::parse(config_of(2, "bf16-true")), into(folder / "run"));
  AuditOptions options;
  options.steps = 2;
  const AuditReport replay = audit_replay(folder / "run", 5, {}, options);
  EXPECT_EQ(replay.steps, 2);
  EXPECT_TRUE(tells_whole_rows(replay.notes));
  EXPECT_TRUE(tells_whole_rows(audit(Config::parse(config_of(2)), options).notes));
  EXPECT_FALSE(tells_whole_rows(audit(Config::parse(config_of(1)), options).notes));
}

TEST(CommandsOfSharedRows, CompareWholeRows) {
  const TemporaryFolder folder;
  std::ofstream(folder / "run.toml") << config_of(2);
  CompareOptions options;
  options.policies = {"32-true", "bf16-mixed"};
  options.seeds = 1;
  options.steps = 3;
  const CompareReport report = compare(folder / "run.toml", options);
  EXPECT_EQ(report.runs, 2);
  EXPECT_TRUE(tells_whole_rows(report.notes));
}

/// The cures of a run that stops are tried on whole rows.
TEST(CommandsOfSharedRows, CuresOfAStopAreTried) {
  const TemporaryFolder folder;
  std::string text = config_of(2, "compute=f16");
  text.replace(text.find("tie_word"), 0, "initializer_range = 3e4\n");
  try {
    train(Config::parse(text), into(folder / "run"));
    FAIL() << "the run did not stop";
  } catch (const RunStopped& e) {
    EXPECT_TRUE(has(e.what(), "--resume --rule '*: compute=f32' (tested)")) << e.what();
  }
}

}  // namespace
}  // namespace mantissa::api::shared_rows_commands_test
