// The commands that the program prints to continue run as printed.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "app/cli/run_program.h"

namespace mantissa {
namespace {

using mantissa::testing::has;

using testing::mantissa;
using testing::Result;
using testing::shell;
using testing::TemporaryFolder;
using testing::tiny_config;
using testing::train_tiny;
using testing::write;

/// Returns the commands of an error or a warning: the lines after "fix:" and "or:".
std::vector<std::string> commands_in(const std::string& text) {
  std::vector<std::string> commands;
  std::istringstream lines(text);
  bool next = false;
  for (std::string line; std::getline(lines, line);) {
    if (next) commands.push_back(line.substr(line.find_first_not_of(' ')));
    next = line.ends_with(':');
  }
  return commands;
}

/// A folder with a run that stops in step 3 at the minimum scale.
void stopped_run(const TemporaryFolder& folder, const std::string& flags, Result& stopped) {
  write(folder / "my run.toml", tiny_config(6, "16-mixed loss_scale=dynamic:2^24") +
                                    "[precision.loss_scale]\nmin_loss_scale = 8388608\n");
  stopped = mantissa(folder, "train 'my run.toml' --out 'a b' " + flags);
  EXPECT_EQ(stopped.code, 1) << stopped.err;
}

TEST(Cures, OfAStoppedRunAreCommandsThatRun) {
  const std::string flags = "--threads 1 --set run.name=it --rule 'model.norm: compute=f32' --quiet";
  for (std::size_t which = 0; which < 3; ++which) {
    const TemporaryFolder folder;
    Result stopped;
    stopped_run(folder, flags, stopped);
    const std::vector<std::string> commands = commands_in(stopped.err);
    ASSERT_EQ(commands.size(), 3U) << stopped.err;
    EXPECT_EQ(
        commands[0].find(MANTISSA_BINARY_DIR "/mantissa train 'my run.toml' --out 'a b' --threads 1 --set "
                                             "run.name=it --rule 'model.norm: compute=f32' --quiet --resume "
                                             "--rule '"),
        0U)
        << commands[0];
    EXPECT_TRUE(
        has(stopped.err,
            "\nor (skips such steps without a limit; a higher min_loss_scale stops sooner, not later):\n"));
    // A cure is for one op; the next op that overflows has another.
    Result mended = shell(folder, commands[which]);
    for (int times = 0; which == 0 && mended.code == 1 && times < 20; ++times)
      mended = shell(folder, commands_in(mended.err).at(0));
    EXPECT_EQ(mended.code, 0) << commands[which] << "\n" << mended.err;
    EXPECT_TRUE(std::filesystem::exists(folder / "a b/model")) << commands[which];
  }
}

TEST(Cures, KeepADeepSpeedFileAndDropKeysOfTheOldPolicy) {
  const TemporaryFolder folder;
  write(folder / "ds.json",
        "{'fp16': {'enabled': True, 'initial_scale_power': 24, 'min_loss_scale': 8388608}, "
        "'zero_optimization': {'stage': 2}}");
  write(folder / "run.toml", tiny_config(6, "32-true"));
  const Result stopped = mantissa(
      folder, "train run.toml --out r --deepspeed ds.json --set precision.loss_scale.loss_scale_window=500");
  EXPECT_EQ(stopped.code, 1) << stopped.err;
  const std::vector<std::string> commands = commands_in(stopped.err);
  ASSERT_EQ(commands.size(), 3U) << stopped.err;
  for (const std::string& command : commands) {
    EXPECT_TRUE(has(command, "train run.toml --out r --deepspeed ds.json ")) << command;
    EXPECT_EQ(has(command, "loss_scale_window"), !has(command, "--precision")) << command;
  }
  const Result mended = shell(folder, commands[1]);
  EXPECT_EQ(mended.code, 0) << commands[1] << "\n" << mended.err;
}

TEST(Cures, OfARunDirectoryThatHoldsAState) {
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(6, "bf16-mixed"));
  ASSERT_EQ(mantissa(folder, "train run.toml --out r --quiet --set run.steps=3").code, 0);
  const Result refused = mantissa(folder, "train run.toml --out r --quiet");
  EXPECT_EQ(refused.code, 2);
  const std::vector<std::string> commands = commands_in(refused.err);
  ASSERT_EQ(commands.size(), 1U) << refused.err;
  const Result resumed = shell(folder, commands[0]);
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_TRUE(has(resumed.out, "work        3 of 6 steps, 384 tokens in ")) << resumed.out;
}

TEST(Cures, OfADamagedStateIsTheOneBeforeIt) {
  const TemporaryFolder folder;
  ASSERT_EQ(train_tiny(folder, 6, "bf16-mixed").code, 0);
  std::filesystem::resize_file(folder / "r/state/step-00000006/state.safetensors", 100);
  const Result damaged = mantissa(folder, "train run.toml --out r --resume --quiet");
  EXPECT_EQ(damaged.code, 2);
  const std::vector<std::string> commands = commands_in(damaged.err);
  ASSERT_EQ(commands.size(), 1U) << damaged.err;
  EXPECT_TRUE(has(commands[0], "train run.toml --out r --quiet --resume=3")) << commands[0];
  EXPECT_EQ(shell(folder, commands[0]).code, 0);
}

/// A command that cannot resume gets no cure with --resume, and the path of the state.
TEST(Cures, OfADamagedStateAreOptionsOfTheCommand) {
  const TemporaryFolder folder;
  ASSERT_EQ(train_tiny(folder, 6, "bf16-mixed").code, 0);
  const std::string state = "r/state/step-00000006";
  std::string bytes = read_all(folder / (state + "/state.safetensors"));
  bytes[bytes.size() / 2] ^= 1;
  write(folder / (state + "/state.safetensors"), bytes);
  const Result damaged = mantissa(folder, "convert " + state + " c");
  EXPECT_EQ(damaged.code, 2);
  EXPECT_TRUE(commands_in(damaged.err).empty()) << damaged.err;
  EXPECT_TRUE(has(damaged.err, "; an earlier state is intact: r/state/step-00000003\n")) << damaged.err;
  EXPECT_EQ(mantissa(folder, "convert r/state/step-00000003 c").code, 0);
  const Result compared = mantissa(folder, "compare r r");
  EXPECT_EQ(compared.code, 2);
  EXPECT_TRUE(has(compared.err, "this state is damaged")) << compared.err;
}

TEST(Cures, OfADiffThatRunsOutOfMemoryHaveItsCodeForErrors) {
  const TemporaryFolder folder;
  ASSERT_EQ(train_tiny(folder, 1, "32-true").code, 0);
  EXPECT_EQ(mantissa(folder, "diff r r").code, 0);
  EXPECT_EQ(shell(folder, "ulimit -s 256; " MANTISSA_BINARY_DIR "/mantissa diff r r").code, 2);
}

TEST(Cures, AreNotOfferedWhileALossScaleLooksForItsValue) {
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(12, "16-mixed loss_scale=dynamic:2^40"));
  const Result r = mantissa(folder, "train run.toml --out r");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_FALSE(has(r.out, "warn    the loss scale")) << r.out;
  EXPECT_FALSE(has(r.out, "fix")) << r.out;
}

TEST(Cures, OfARunWithoutABatchIsToSkipFewer) {
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(4, "32-true"));
  const Result r = mantissa(folder, "train run.toml --out r --quiet --skip-batches 1-4");
  EXPECT_EQ(r.code, 1) << r.err;
  EXPECT_TRUE(has(r.err, "all 4 batches were skipped as run.skip_batches requests")) << r.err;
  EXPECT_FALSE(has(r.err, "32-true")) << r.err;
}

TEST(Cures, OfAnAuditOfARunContinueTheRun) {
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(6, "16-mixed"));
  ASSERT_EQ(mantissa(folder,
                     "train run.toml --out 'a b' --set model.initializer_range=60 --set "
                     "schedule.warmup_steps=0 --quiet")
                .code,
            1);
  const Result audit = mantissa(folder, "audit 'a b' --from-step last-good --quiet");
  ASSERT_EQ(audit.code, 0) << audit.err;
  const std::vector<std::string> commands = commands_in(audit.out);
  ASSERT_FALSE(commands.empty()) << audit.out;
  EXPECT_EQ(commands[0].find(MANTISSA_BINARY_DIR "/mantissa train 'a b/config.toml' --out 'a b' --resume="),
            0U)
      << commands[0];
  const Result mended = shell(folder, commands[0]);
  EXPECT_EQ(mended.code, 0) << commands[0] << "\n" << mended.err;
}

/// A config may have been trained before it is audited: its cure keeps that run, and begins another.
TEST(Cures, OfAnAuditOfAConfigKeepAnEarlierRun) {
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(6, "bf16-true"));
  const std::string rate = " --quiet --set optimizer.lr=1e-7 --set run.out=r";
  ASSERT_EQ(mantissa(folder, "train run.toml" + rate).code, 0);
  for (const char* place : {"r-cured", "r-cured-2"}) {
    const Result audit = mantissa(folder, "audit run.toml" + rate);
    ASSERT_EQ(audit.code, 0) << audit.err;
    const std::vector<std::string> commands = commands_in(audit.out);
    ASSERT_FALSE(commands.empty()) << audit.out;
    const Result mended = shell(folder, commands[0]);
    EXPECT_EQ(mended.code, 0) << commands[0] << "\n" << mended.err;
    EXPECT_TRUE(std::filesystem::exists(folder / place / "model")) << commands[0];
  }
}

/// The data are the cause, and not the precision.
TEST(Audit, ReportsRowsWithoutLabels) {
  const TemporaryFolder folder;
  write(folder / "run.toml",
        "[run]\nsteps = 4\n[model]\nhidden_size = 32\nintermediate_size = 48\nnum_hidden_layers = 1\n"
        "num_attention_heads = 2\nvocab_size = 256\n[train]\nobjective = \"sft\"\n"
        "[data]\nsource = \"rows.jsonl\"\ntemplate = \"none\"\nsequence_length = 32\nvalidation = 0\n"
        "[batch]\nglobal_batch_size = 2\n[precision]\npolicy = \"16-mixed\"\n");
  const auto finding = [&](const std::string& rows, const std::string& more) {
    write(folder / "rows.jsonl", rows);
    const Result r = mantissa(folder, "audit run.toml --json " + more);
    EXPECT_EQ(r.code, 0) << r.err;
    const auto found = nlohmann::json::parse(r.out).at("findings");
    EXPECT_FALSE(found.empty()) << r.out;
    EXPECT_TRUE(std::filesystem::exists(folder / "run-audit/report.html"));
    return found.empty() ? nlohmann::json() : found[0];
  };
  const std::string good = R"({"prompt": "ab", "completion": "cdefgh"})"
                           "\n",
                    empty = R"({"prompt": "ab", "completion": ""})"
                            "\n";
  const auto all = finding(empty + empty, "");
  EXPECT_EQ(all["kind"], "no_labels");
  EXPECT_EQ(all["scope"], "lm_head");
  EXPECT_EQ(all["op"], "log_prob");
  EXPECT_EQ(all["pass"], "forward");
  EXPECT_EQ(all["step"], 1);
  EXPECT_TRUE(all["cure"].is_null());
  const auto masked = R"({"input_ids": [1, 2, 3], "labels": [-100, -100, -100]})"
                      "\n";
  EXPECT_EQ(finding(std::string(masked) + masked, "")["kind"], "no_labels");
  const auto some = finding(good + good + good + empty, "");
  EXPECT_EQ(some["kind"], "masked_row");
  EXPECT_EQ(some["share"], 0.25);
  const auto one = finding(good + empty + empty, "--set data.validation=0.1");
  EXPECT_EQ(one["kind"], "no_labels");
  EXPECT_TRUE(has(one["text"].get<std::string>(), "3 rows, 1 used")) << one;
  EXPECT_TRUE(has(one["text"].get<std::string>(),
                  "2 with an empty answer; training with held-out rows needs at least 2"))
      << one;
  const std::string cut = R"({"prompt": ")" + std::string(60, 'p') +
                          R"(", "completion": "answer"})"
                          "\n";
  const auto right = finding(cut + cut, "--set data.truncate=right");
  EXPECT_EQ(right["kind"], "no_labels");
  EXPECT_EQ(right["tested"], true);
  EXPECT_EQ(right["cure"], (nlohmann::json{"--set", "data.truncate=left"}));
  EXPECT_EQ(mantissa(folder, "train run.toml --out r --quiet --set data.truncate=right").code, 2);
  EXPECT_EQ(mantissa(folder, "train run.toml --out r --quiet --set data.truncate=left").code, 0);
}

TEST(Audit, BeginsLaterOnlyInARun) {
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(2, "32-true"));
  const Result config = mantissa(folder, "audit run.toml --from-step 2");
  EXPECT_EQ(config.code, 2);
  EXPECT_TRUE(has(config.err, "name the directory of its run: mantissa audit RUN --from-step 2"))
      << config.err;
  ASSERT_EQ(mantissa(folder, "train run.toml --out r --quiet").code, 0);
  const Result word = mantissa(folder, "audit run.toml --from-step abc");
  EXPECT_TRUE(has(word.err, "--from-step abc: expected a step, or last-good")) << word.err;
  const Result model = mantissa(folder, "audit r/model --from-step 2");
  EXPECT_EQ(model.code, 2);
  EXPECT_TRUE(has(model.err, "r/model has no config.toml")) << model.err;
}

TEST(Audit, OfAModelTakesSettings) {
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(2, "32-true"));
  ASSERT_EQ(mantissa(folder, "train run.toml --out r --quiet").code, 0);
  const Result large = mantissa(folder, "audit r/model --steps 2 --set optimizer.lr=1e30 --no-cures --quiet");
  EXPECT_EQ(large.code, 0) << large.err;
  EXPECT_TRUE(has(large.out, "nonfinite") || has(large.out, "learning_rate")) << large.out;
  write(folder / "data.txt", std::string(5000, 'x'));
  const Result ids = mantissa(folder, "audit r/model --data data.txt --format tokens --steps 1 --quiet");
  EXPECT_EQ(ids.code, 2) << "two bytes are an id beyond 255";
  EXPECT_TRUE(has(ids.err, "data.txt")) << ids.err;
  EXPECT_EQ(mantissa(folder, "audit r/model --data data.txt --steps 1 --quiet").code, 0);
}

TEST(Cures, OfResultsThatAreNotFinite) {
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(2, "32-true"));
  ASSERT_EQ(
      mantissa(folder,
               "train run.toml --out r --quiet --set model.initializer_range=60 --set optimizer.lr=1e-9")
          .code,
      0);
  for (const char* arguments : {"generate r --prompt 'Ada said' --precision 16-mixed --max-new-tokens 3",
                                "eval r --data kk --puzzles 0 --precision 16-mixed --json",
                                "convert r c --dtype bf16 --data kk --precision 16-mixed"}) {
    const Result broken = mantissa(folder, arguments);
    EXPECT_EQ(broken.code, 1) << arguments << broken.err;
    EXPECT_EQ(broken.out, "") << arguments;
    EXPECT_TRUE(has(broken.err, "the first non-finite value is model.")) << broken.err;
    const std::vector<std::string> commands = commands_in(broken.err);
    ASSERT_FALSE(commands.empty()) << broken.err;
    EXPECT_TRUE(has(commands.back(), "--precision 32-true")) << commands.back();
    const Result mended = shell(folder, commands.back());
    EXPECT_EQ(mended.code, 0) << commands.back() << mended.err;
    EXPECT_FALSE(has(mended.out, "nan")) << mended.out;
  }
  const Result trained = mantissa(folder,
                                  "train run.toml --out nan --set run.steps=1 --set schedule.warmup_steps=0 "
                                  "--set optimizer.lr=3000 --precision '16-mixed loss_scale=128' --quiet");
  EXPECT_EQ(trained.code, 1) << trained.err;
  EXPECT_TRUE(has(trained.err, "the loss on held-out rows is nan")) << trained.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "nan/model"));
  for (const std::string& command : commands_in(trained.err))
    EXPECT_NE(shell(folder, command).code, 2) << command;
  EXPECT_EQ(shell(folder, commands_in(trained.err).back()).code, 0);
}

TEST(Cures, OfDivergedWeightsStartOverAtALowerRate) {
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(6, "32-true"));
  const Result broken = mantissa(folder,
                                 "train run.toml --out r --quiet --set schedule.warmup_steps=0 --set "
                                 "optimizer.lr=1e20 --set optimizer.max_grad_norm=0");
  ASSERT_EQ(broken.code, 1) << broken.err;
  const std::string command = commands_in(broken.err).back();
  EXPECT_TRUE(has(command, "--overwrite --set optimizer.lr=0.001")) << command;
  EXPECT_FALSE(has(command, "1e20")) << command;
  EXPECT_EQ(shell(folder, command).code, 0) << command;
}

TEST(Eval, OfARunWithoutAModelUsesItsNewestState) {
  const TemporaryFolder folder;
  ASSERT_EQ(train_tiny(folder, 4, "bf16-mixed").code, 0);
  const Result finished = mantissa(folder, "eval r --puzzles 0 --json");
  std::filesystem::remove_all(folder / "r/model");
  const Result state = mantissa(folder, "eval r --puzzles 0 --json");
  EXPECT_EQ(state.code, 0) << state.err;
  EXPECT_EQ(state.out, finished.out);
  std::filesystem::remove_all(folder / "r/state");
  EXPECT_TRUE(has(mantissa(folder, "eval r").err, "does not exist yet; train the config first"));
}

}  // namespace
}  // namespace mantissa
