// mantissa runs: what it lists, and what it leaves alone.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "app/cli/run_program.h"

namespace mantissa::testing {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const char* const kConfig =
    "[run]\nsteps = 3\n[model]\nmodel_type = \"llama\"\nhidden_size = 16\nintermediate_size = 24\n"
    "num_hidden_layers = 1\nnum_attention_heads = 2\nnum_key_value_heads = 2\nvocab_size = 256\n"
    "eos_token_id = 0\n[data]\nsource = \"kk\"\nsequence_length = 32\nvalidation = 0.02\n"
    "[batch]\nglobal_batch_size = 1\n[schedule]\nwarmup_steps = 0\n[checkpoint]\ninterval = 2\n";

class Runs : public ::testing::Test {
 protected:
  void SetUp() override { write(folder / "run.toml", kConfig); }

  void train(const std::string& more) const {
    const Result r = mantissa(folder, "train run.toml --quiet " + more);
    ASSERT_EQ(r.code, 0) << r.err;
  }
  /// Returns the runs by their path.
  std::map<std::string, json> listed(const std::string& more = "") const {
    const Result r = mantissa(folder, "runs --json " + more);
    EXPECT_EQ(r.code, 0) << r.err;
    std::map<std::string, json> all;
    for (const json& run : json::parse(r.out)) all[run["run"]] = run;
    return all;
  }
  const TemporaryFolder folder;
};

TEST_F(Runs, AreListedWithWhatTheirFilesSay) {
  train("--out a");
  train("--out deep/er/b --precision bf16-mixed --set run.steps=2");
  fs::remove(folder / "deep/er/b/summary.json");
  const auto all = listed();
  ASSERT_EQ(all.size(), 2U);
  const json &a = all.at("a"), &b = all.at("deep/er/b");
  const json summary = json::parse(read_all(folder / "a/summary.json"));
  EXPECT_EQ(a["state"], "complete");
  EXPECT_EQ(a["step"], 3);
  EXPECT_EQ(a["steps"], 3);
  EXPECT_EQ(a["saved_step"], 3);
  EXPECT_NEAR(a["validation_loss"].get<double>(), summary["validation_loss"].get<double>(), 1e-8);
  EXPECT_NEAR(a["loss"].get<double>(), summary["final_loss"].get<double>(), 1e-8);
  EXPECT_TRUE(a["reward"].is_null() && a["process"].is_null() && a["error"].is_null()) << a;
  EXPECT_EQ(a["policy"], "32-true");
  EXPECT_EQ(b["state"], "stopped");
  EXPECT_EQ(b["policy"], "bf16-mixed");
  EXPECT_EQ(b["steps"], 2);

  const Result table = mantissa(folder, "runs");
  EXPECT_TRUE(has(table.out, "\ndeep/er/b  stopped ")) << table.out;
  EXPECT_FALSE(has(table.out, "reward")) << table.out;
  EXPECT_LT(table.out.find("deep/er/b"), table.out.find("\na ")) << "the newest first: " << table.out;
  EXPECT_EQ(listed("a").begin()->first, "a");
  EXPECT_EQ(listed("deep").begin()->first, "deep/er/b");
}

TEST_F(Runs, OneThatIsBeingWrittenHasItsProcess) {
  train("--out a");
  const pid_t child = start(folder, "train run.toml --out b --quiet --set run.steps=100000000");
  while (runs(child) && read_all(folder / "b/metrics.jsonl").empty()) ::usleep(1000);
  const json during = json::parse(mantissa(folder, "runs --json").out);
  ::kill(child, SIGKILL);
  wait_for(child);
  const json after = json::parse(mantissa(folder, "runs --json").out);
  ASSERT_EQ(during.size(), 2U);
  EXPECT_EQ(during[0]["run"], "b");
  EXPECT_EQ(during[0]["state"], "running");
  EXPECT_EQ(during[0]["process"], child);
  EXPECT_EQ(during[1]["state"], "complete");
  EXPECT_EQ(after[0]["state"], "stopped");
  EXPECT_TRUE(after[0]["process"].is_null());
}

TEST_F(Runs, DamagedOnesAreListedWithAWarning) {
  train("--out a");
  train("--out b");
  const std::string metrics = read_all(folder / "a/metrics.jsonl");
  write(folder / "a/metrics.jsonl", metrics + std::string(40, '\0') + "\n{\"step\":9,\"lo");
  write(folder / "b/config.toml", "[run]\nsteps = \"many\"\n");
  const Result r = mantissa(folder, "runs --json");
  EXPECT_EQ(r.code, 0);
  EXPECT_TRUE(has(r.err, "warning: b/config.toml:2: run.steps")) << r.err;
  EXPECT_TRUE(has(mantissa(folder, "runs --quiet").err, "warning: b/config.toml")) << "the list is not whole";
  train("--out c");
  train("--out d");
  write(folder / "c/metrics.jsonl", "not a\nline of JSON\n");
  fs::remove(folder / "d/metrics.jsonl");
  const auto all = listed();
  EXPECT_TRUE(has(all.at("c")["error"].get<std::string>(), "none of its last lines is that of a step"));
  EXPECT_TRUE(has(all.at("d")["error"].get<std::string>(), "is missing, although the run is complete"));
  EXPECT_EQ(all.at("a")["step"], 3) << "a line that a crash truncated says nothing";
  EXPECT_EQ(all.at("b")["state"], "unreadable");
  EXPECT_TRUE(has(all.at("b")["error"].get<std::string>(), "run.steps"));
}

TEST_F(Runs, OneThatWasToReplaceAnotherIsNotComplete) {
  train("--out a");
  write(folder / "a/.mantissa-earlier", "");
  EXPECT_EQ(listed().at("a")["state"], "stopped");
}

TEST_F(Runs, ALossThatIsNotFiniteIsNotReplacedByAnEarlierOne) {
  train("--out a");
  const std::string metrics = read_all(folder / "a/metrics.jsonl");
  write(folder / "a/metrics.jsonl", metrics + "{\"step\":4,\"loss\":null}\n");
  EXPECT_TRUE(listed().at("a")["loss"].is_null());
  EXPECT_TRUE(has(mantissa(folder, "runs").out, " nan ")) << mantissa(folder, "runs").out;
}

TEST_F(Runs, LinksHiddenFoldersAndFoldersOfRunsAreNotSearched) {
  train("--out a");
  fs::create_directories(folder / ".hidden");
  fs::copy(folder / "a", folder / ".hidden/b", fs::copy_options::recursive);
  fs::create_directory_symlink("a", folder / "link");
  fs::create_directory_symlink("..", folder / "a/state/loop");
  EXPECT_EQ(listed().size(), 1U);
  EXPECT_EQ(listed(".hidden").size(), 1U);
  EXPECT_TRUE(has(mantissa(folder, "runs a/model").out, "no runs"));
  const Result none = mantissa(folder, "runs nowhere");
  EXPECT_EQ(none.code, 2);
  EXPECT_TRUE(has(none.err, "nowhere: is not a folder; give one that contains runs")) << none.err;
}

TEST_F(Runs, AFolderThatCannotBeReadIsAWarning) {
  train("--out a");
  fs::create_directories(folder / "folder/of/others");
  write(folder / "folder/of/.mantissa.json", "not a list");
  const Result r = mantissa(folder, "runs");
  EXPECT_EQ(r.code, 0);
  EXPECT_TRUE(has(r.err, "warning: folder/of/.mantissa.json")) << r.err;
  EXPECT_TRUE(has(r.out, "\na ")) << r.out;
}

}  // namespace
}  // namespace mantissa::testing
