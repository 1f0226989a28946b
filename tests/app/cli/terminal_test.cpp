// Terminal output: a plan on a narrow terminal, a run's lines without a terminal, the end of a run.
#include "mantissa/app/cli/terminal.h"

#include <gtest/gtest.h>
#include <pty.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "app/cli/run_program.h"
#include "mantissa/app/cli/fit.h"
#include "mantissa/core/base/words.h"

namespace mantissa::cli {
namespace {

using mantissa::testing::has;
using mantissa::testing::read_all;
using mantissa::testing::Result;
using mantissa::testing::TemporaryFolder;
using mantissa::testing::tiny_config;
using mantissa::testing::write;

/// Returns the program's output on a terminal of `columns` columns.
std::string on_terminal(const TemporaryFolder& folder, const std::string& arguments, unsigned short columns) {
  winsize size{};
  size.ws_row = 24;
  size.ws_col = columns;
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    setenv("TERM", "xterm", 1);
    const std::string command =
        "cd " + folder.path().string() + " && " MANTISSA_BINARY_DIR "/mantissa " + arguments;
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  std::string text;
  char part[4096];
  for (ssize_t n = 0; (n = read(terminal, part, sizeof part)) > 0;)
    text.append(part, static_cast<std::size_t>(n));
  close(terminal);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0) << text;
  std::erase(text, '\r');
  return text;
}

TEST(Colours, AreOnTerminalsAlone) {
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(1, "bf16-mixed"));
  const auto piped = [&](const std::string& arguments) {
    const Result r = mantissa::testing::mantissa(folder, arguments);
    return r.out + r.err;
  };
  for (const char* arguments : {"help", "explain run.toml", "train nowhere.toml", "generate"})
    EXPECT_FALSE(has(piped(arguments), "\x1b")) << arguments;
  EXPECT_TRUE(has(on_terminal(folder, "help", 80), "\x1b[1musage:\x1b[0m mantissa"));
  EXPECT_TRUE(has(on_terminal(folder, "help", 80), "\n\x1b[1mtrain:\x1b[0m\n"));
  EXPECT_TRUE(has(on_terminal(folder, "explain run.toml", 200), "\n\x1b[1mforward\x1b[0m\n"));
  const std::string error = "train nowhere.toml || true";
  EXPECT_TRUE(
      has(on_terminal(folder, error, 80), "\x1b[1;31mmantissa:\x1b[0m nowhere.toml: there is no such file"));
}

TEST(Colours, FollowNoColorAndTheOption) {
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(1, "bf16-mixed"));
  const auto piped = [&](const std::string& arguments) {
    const Result r = mantissa::testing::mantissa(folder, arguments);
    return r.out + r.err;
  };
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(has(on_terminal(folder, "help", 80), "\x1b"));
  EXPECT_TRUE(has(piped("help --color always"), "\x1b[1m")) << "the option overrides the environment";
  unsetenv("NO_COLOR");
  EXPECT_FALSE(has(on_terminal(folder, "help --color=never", 80), "\x1b"));
  EXPECT_TRUE(has(piped("train --nothing --color=always"), "\x1b[1;31mmantissa:\x1b[0m --nothing"));
  const std::string late = "train run.toml --color always --set run.steps=x";
  EXPECT_TRUE(has(piped(late), "\x1b[1;31mmantissa:\x1b[0m ")) << piped(late);
  const std::string warned = piped("generate nowhere --prompt x --color always --rule 'a: out=bf16'");
  EXPECT_TRUE(has(warned, "\x1b[1;31mmantissa:\x1b[0m")) << warned;
  EXPECT_FALSE(has(piped("explain run.toml --json --color always"), "\x1b"));
}

TEST(Explain, FitsATerminalOfEightyColumns) {
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(2, "bf16-mixed"));
  for (const char* arguments :
       {"explain run.toml --target v100 --set model.num_hidden_layers=3",
        "explain run.toml --rule 'model.layers.0.mlp.down_proj: compute=f32 residual=f32' --set "
        "model.num_hidden_layers=3",
        "train run.toml --dry-run"}) {
    std::istringstream lines(on_terminal(folder, arguments, 80));
    for (std::string line; std::getline(lines, line);)
      EXPECT_LE(width_of(line), 80U) << arguments << "\n" << line;
  }
  const std::string narrow = on_terminal(folder, "explain run.toml", 80);
  EXPECT_TRUE(has(narrow,
                  "\nmodel.layers.*\n  input_layernorm           rmsnorm    f32    –     f32      bf16     "
                  "bf16-mixed\n"))
      << narrow;
  const std::string wide = on_terminal(folder, "explain run.toml", 200);
  EXPECT_TRUE(has(wide, "\nmodel.layers.*.input_layernorm           rmsnorm ")) << wide;
  EXPECT_TRUE(
      has(mantissa::testing::mantissa(folder, "explain run.toml").out, "\nmodel.layers.*.input_layernorm  "));
}

TEST(Inspect, FitsATerminalOfEightyColumns) {
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(1, "bf16-mixed"));
  const Result run =
      mantissa::testing::mantissa(folder, "train run.toml --out r --set schedule.warmup_steps=1");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_TRUE(has(run.out, "\nwork        1 step, ")) << run.out;
  const std::string fitted = on_terminal(folder, "inspect r", 80);
  std::istringstream lines(fitted);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(width_of(line), 80U) << line;
  EXPECT_TRUE(has(fitted, "model.layers.0.mlp.down_proj.weight")) << fitted;
}

TEST(Fit, KeepsEveryWord) {
  const std::string text =
      "policy  a line that is longer than the columns there are\nscope            op      out   decided by\n"
      "a.layers.3.b     matmul  f32   --rule 1\na.layers.{0,2}.b matmul  bf16  bf16-mixed\nhead             "
      "log     f32   --rule 1+--rule 2\n\nshort\n";
  EXPECT_EQ(fit(text, 0), text);
  EXPECT_EQ(fit(text, 100), text);
  const std::string narrow = fit(text, 30);
  EXPECT_EQ(
      narrow,
      "policy  a line that is longer\n        than the columns there\n        are\n"
      "scope  op      out   decided\n       by\na.layers.3\n  b    matmul  f32   --rule 1\na.layers.{0,2}\n"
      "  b    matmul  bf16\n       bf16-mixed\nhead   log     f32   --rule\n       1+--rule 2\n\nshort\n");
}

api::Step step(std::int64_t number) {
  api::Step s;
  s.step = number;
  s.steps = 100000;
  return s;
}

TEST(StepTable, HasALineNowAndThenAndMoreWhereTheyAreSlow) {
  using namespace std::chrono_literals;
  const auto printed = [](std::chrono::milliseconds longest) {
    ::testing::internal::CaptureStdout();
    {
      StepTable table(false, longest);
      for (int i = 1; i <= 20; ++i) {
        table.show(step(i));
        std::this_thread::sleep_for(5ms);
      }
    }
    const std::string text = ::testing::internal::GetCapturedStdout();
    return std::count(text.begin(), text.end(), '\n');
  };
  EXPECT_EQ(printed(1h), 2) << "the heads and the first step";
  EXPECT_GE(printed(20ms), 2 + 3) << "100 ms with a line at least every 20 ms, one of them late";
}

TEST(StepTable, ReportsThatALongStepIsRunning) {
  using namespace std::chrono_literals;
  ::testing::internal::CaptureStdout();
  {
    StepTable table(false, 20ms);
    table.show(step(1));
    std::this_thread::sleep_for(200ms);
  }
  const std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_TRUE(has(text, "\n     2 running, 0:00 since the start of the command\n")) << text;
  ::testing::internal::CaptureStdout();
  {
    StepTable table(false, 20ms);
    api::Step last = step(1);
    last.step = last.steps;
    table.show(last);
    std::this_thread::sleep_for(200ms);
  }
  const std::string end = ::testing::internal::GetCapturedStdout();
  EXPECT_TRUE(has(end, " complete, 0:00 since the start of the command\n") && !has(end, "running")) << end;
  ::testing::internal::CaptureStdout();
  {
    StepTable quiet(true, 1ms);
    std::this_thread::sleep_for(30ms);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
}

/// Returns the table's lines of some steps.
std::vector<std::string> table_of(const std::vector<api::Step>& steps) {
  StepColumns columns(steps.front());
  std::vector<std::string> lines = {columns.headings()};
  for (const api::Step& s : steps) lines.push_back(columns.row(s));
  return lines;
}

TEST(StepColumns, OfReinforcementLearningAreThoseOfItsRollouts) {
  api::Step fresh = step(1), later = step(2), last = step(3);
  fresh.metrics = {{"reward", 0.5},   {"accuracy", 0.25},        {"response_length", 87.5},
                   {"entropy", 1.25}, {"rollout_difference", 0}, {"policy_loss", 0.125},
                   {"kl", 0}};
  later.metrics = {{"policy_loss", 0.125}, {"kl", 1.5e-4}};
  last.metrics = {{"policy_loss", 0.125}, {"reward", 1}, {"rollout_difference", 0.0025}};
  const std::vector<std::string> lines = table_of({fresh, later, last});
  EXPECT_EQ(lines[0], "  step   reward  acc length       kl entropy mismatch   gnorm    tok/s     left");
  EXPECT_EQ(lines[1], "     1   0.5000  25%   87.5        0  1.2500        0   0.000        0     0:00");
  EXPECT_EQ(lines[2], "     2   0.5000  25%   87.5  1.5e-04  1.2500        0   0.000        0     0:00")
      << "the rollout is that of step 1";
  EXPECT_EQ(lines[3], "     3   1.0000  25%   87.5  1.5e-04  1.2500  2.5e-03   0.000        0     0:00");
  EXPECT_EQ(table_of({last})[1],
            "     3   1.0000    –      –        –       –  2.5e-03   0.000        0     0:00");
  for (const std::string& line : lines) EXPECT_LE(width_of(line), 80U) << line;
}

TEST(StepColumns, OfPretrainingHaveTheLossAndTheLossScaleIfThereIsOne) {
  api::Step plain = step(7), scaled = step(7);
  plain.loss = scaled.loss = 2.5;
  scaled.loss_scale = 65536;
  scaled.metrics = {{"masked_share", 0.4}};
  EXPECT_EQ(table_of({plain})[0], "  step     loss   gnorm        lr    tok/s  peak     left");
  EXPECT_EQ(table_of({plain})[1], "     7   2.5000   0.000  0.00e+00        0    0%     0:00");
  EXPECT_EQ(table_of({scaled})[0], "  step     loss   gnorm        lr  scale mask    tok/s  peak     left");
  EXPECT_EQ(table_of({scaled})[1], "     7   2.5000   0.000  0.00e+00   2^16  40%        0    0%     0:00");
}

TEST(Train, PrintsThePolicyOnceAndTheStepOfTheFirstLoss) {
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(6, "bf16-mixed"));
  const auto times = [](const std::string& text, const std::string& part) {
    std::size_t n = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
  };
  const Result whole = mantissa::testing::mantissa(folder, "train run.toml --out r");
  EXPECT_EQ(times(whole.out, "params=f32 compute=bf16"), 1U) << whole.out;
  EXPECT_TRUE(has(whole.out, "\nprecision   bf16-mixed; 0 steps skipped\n")) << whole.out;
  EXPECT_TRUE(has(whole.out, " at the first step, ")) << whole.out;
  const Result resumed = mantissa::testing::mantissa(folder, "train run.toml --out r --resume=3");
  EXPECT_TRUE(has(resumed.out, " at step 4, ") && !has(resumed.out, "at the first step")) << resumed.out;
  const Result quiet = mantissa::testing::mantissa(folder, "train run.toml --out r --resume=3 --quiet");
  EXPECT_EQ(times(quiet.out, "params=f32 compute=bf16"), 1U) << quiet.out;
}

TEST(Train, OfACompleteRunSaysSoWithoutASpeed) {
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(6, "bf16-mixed checkpoint=bf16"));
  const Result first = mantissa::testing::mantissa(folder, "train run.toml --out r");
  EXPECT_TRUE(has(first.out, "\nwork        6 steps, 768 tokens in ")) << first.out;
  EXPECT_TRUE(has(first.out, "\nmodel       r/model (bf16, xxh64 ")) << first.out;
  const Result again = mantissa::testing::mantissa(folder, "train run.toml --out r --resume");
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_TRUE(has(again.out, "\nwork        the run was already complete: 6 steps\n")) << again.out;
  EXPECT_FALSE(has(again.out, "tokens/s")) << again.out;
  EXPECT_FALSE(has(again.out, "at the first step")) << again.out;
  EXPECT_EQ(first.out.substr(first.out.find("xxh64")), again.out.substr(again.out.find("xxh64")));
}

TEST(RunDirectory, IsAModelToEveryCommand) {
  const TemporaryFolder folder;
  ASSERT_EQ(train_tiny(folder, 6, "bf16-mixed").code, 0);
  for (const char* arguments : {"generate r --prompt Ada --max-new-tokens 3", "explain r", "inspect r",
                                "convert r c --dtype bf16 --data kk", "eval r --data kk --puzzles 0"}) {
    const Result r = mantissa::testing::mantissa(folder, arguments);
    EXPECT_EQ(r.code, 0) << arguments << r.err;
  }
  // Without data, a run is evaluated over its own held-out rows, for any run.out in its config.
  const Result own = mantissa::testing::mantissa(folder, "eval r --puzzles 0 --json");
  ASSERT_EQ(own.code, 0) << own.err;
  const double loss = nlohmann::json::parse(own.out)["loss"];
  const double expected = nlohmann::json::parse(read_all(folder / "r/summary.json"))["validation_loss"];
  EXPECT_NEAR(loss, expected, 1e-12);
}

TEST(LossScale, IsReplayedAsADeepSpeedFileHasIt) {
  const TemporaryFolder folder;
  const std::string fp16 =
      "'fp16': {'enabled': True, 'initial_scale_power': 4, 'loss_scale_window': 3, 'hysteresis': 2}";
  write(folder / "ds.json", "{" + fp16 + ", 'zero_optimization': {'stage': 2}}");
  write(folder / "zero.json", "{" + fp16 + ", 'zero_optimization': {'stage': 0}}");
  write(folder / "constant.json", "{'fp16': {'enabled': True, 'loss_scale': 128}}");
  write(folder / "bf16.json", "{'bf16': {'enabled': True}}");
  const auto scales = [&](const std::string& arguments) {
    const Result r = mantissa::testing::mantissa(folder, "loss-scale --json " + arguments);
    EXPECT_EQ(r.code, 0) << arguments << r.err;
    return nlohmann::json::parse(r.out)["scales"];
  };
  // The golden trace of docs/numerics.md.
  EXPECT_EQ(scales("--deepspeed ds.json --overflows 1110000100000001"),
            nlohmann::json({16, 8, 4, 4, 4, 4, 8, 8, 8, 8, 8, 16, 16, 16, 32, 32}));
  EXPECT_EQ(scales("--deepspeed ds.json --initial-scale-power 5 --overflows 11"), nlohmann::json({32, 16}));
  EXPECT_EQ(scales("--deepspeed constant.json --overflows 11"), nlohmann::json({128, 128}));
  const Result zero =
      mantissa::testing::mantissa(folder, "loss-scale --deepspeed zero.json --overflows 1 --json");
  EXPECT_EQ(nlohmann::json::parse(zero.out)["scales"], nlohmann::json({8})) << "stage 0 has no hysteresis";
  EXPECT_TRUE(has(zero.err, "warning: zero.json: zero_optimization.stage is 0")) << zero.err;
  const Result none = mantissa::testing::mantissa(folder, "loss-scale --deepspeed bf16.json --overflows 1");
  EXPECT_EQ(none.code, 2);
  EXPECT_TRUE(has(none.err, "fp16 is not enabled")) << none.err;
}

}  // namespace
}  // namespace mantissa::cli
