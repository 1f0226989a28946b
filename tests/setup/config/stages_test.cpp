// The stages of a run: their keys, defaults, and errors.
#include "mantissa/setup/config/stages.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "mantissa/core/base/error.h"
#include "setup/config/config_text.h"

namespace mantissa::config {
namespace {

constexpr const char* kStaged = R"([run]
seed = 3
[[run.stage]]
steps = 10
sequence_length = 4096
[[run.stage]]
steps = 5
sequence_length = 32768
global_batch_size = 4
lr = 4e-5
warmup_steps = 1
source = ["long.txt"]
[[run.stage]]
steps = 2
sequence_length = 131072
rope_theta = 5e6
[model]
hidden_size = 64
rope_theta = "lwm"
[data]
source = "kk"
validation = 0
[batch]
global_batch_size = 16
micro_batch_size = 8
[optimizer]
lr = 1e-3
[schedule]
warmup_steps = 3
)";

/// Returns the error message for one stage with `lines` after the smallest config without run.steps.
std::string stage_refusal(const std::string& lines, const std::string& sections = "") {
  return message_of([&] {
    parse("[run]\n[[run.stage]]\n" + lines + "\n[model]\nhidden_size = 64\n[data]\nsource = \"kk\"\n" +
          sections);
  });
}

TEST(Stages, HaveTheConfigsValuesForKeysThatTheyOmit) {
  const RunConfig config = parse(kStaged);
  ASSERT_EQ(config.run.stages.size(), 3U);
  const Stage &a = config.run.stages[0], &b = config.run.stages[1], &c = config.run.stages[2];
  EXPECT_EQ(config.run.steps, 17);
  EXPECT_EQ(a.rope_theta, 1e4);
  EXPECT_EQ(b.rope_theta, 1e6);
  EXPECT_EQ(c.rope_theta, 5e6);
  EXPECT_EQ(a.lr, 1e-3);
  EXPECT_EQ(b.lr, 4e-5);
  EXPECT_EQ(a.warmup_steps, 3);
  EXPECT_EQ(b.warmup_steps, 1);
  EXPECT_EQ(c.warmup_steps, 2);  // of its two steps
  EXPECT_EQ(a.global_batch_size, 16);
  EXPECT_EQ(b.global_batch_size, 4);
  // No micro-batch has more tokens than one of the first stage: 8 · 4096.
  EXPECT_EQ(a.micro_batch_size, 8);
  EXPECT_EQ(b.micro_batch_size, 1);
  EXPECT_EQ(c.micro_batch_size, 1);
  EXPECT_EQ(a.source, Strings{"kk"});
  EXPECT_EQ(b.source, Strings{here("dir/long.txt")});
}

TEST(Stages, ANoteOnAWarmUpHasTheLineOfItsKey) {
  Told told;
  parse_config(
      "[run]\n[[run.stage]]\nsteps = 2\nwarmup_steps = 3\n\n[[run.stage]]\nsteps = 2\nwarmup_steps = 4\n"
      "[model]\nhidden_size = 64\n[data]\nsource = \"kk\"\n",
      "run.toml", {}, {}, &told);
  std::string notes;
  for (const std::string& note : told.notes) notes += note + "\n";
  EXPECT_NE(notes.find("run.toml:4: run.stage 1: warmup_steps = 3"), std::string::npos) << notes;
  EXPECT_NE(notes.find("run.toml:8: run.stage 2: warmup_steps = 4"), std::string::npos) << notes;
}

TEST(Stages, BeginOneAfterTheOther) {
  const RunConfig config = parse(kStaged);
  EXPECT_EQ(stage_count(config), 3U);
  EXPECT_EQ(first_step(config, 2), 15);
  const std::pair<std::int64_t, std::size_t> done[] = {{0, 0}, {9, 0}, {10, 1}, {14, 1}, {15, 2}, {17, 2}};
  for (const auto& [steps, stage] : done) EXPECT_EQ(stage_at(config, steps), stage) << steps;
  const RunConfig second = stage_config(config, 1);
  EXPECT_EQ(second.run.steps, 5);
  EXPECT_EQ(second.data.sequence_length, 32768);
  EXPECT_EQ(second.batch.global_batch_size, 4);
  EXPECT_EQ(second.optimizer.lr, 4e-5);
  EXPECT_EQ(second.run.seed, 3U);
}

TEST(Stages, OfAConfigWithoutThemAreTheWholeRun) {
  const RunConfig config = parse(kSmallest);
  EXPECT_EQ(stage_count(config), 1U);
  EXPECT_EQ(stage_at(config, 299), 0U);
  EXPECT_EQ(stage_config(config, 0), config);
}

TEST(Stages, ArePrintedSoThatTheyReadTheSame) {
  const RunConfig config = parse(kStaged);
  EXPECT_EQ(parse_config(config.to_toml(), "other/run.toml"), config);
}

TEST(Stages, ErrorsNameTheLineTheStageAndTheKey) {
  EXPECT_EQ(stage_refusal(""),
            "dir/run.toml:2: run.stage 1: steps is missing; write steps = N in this [[run.stage]]");
  EXPECT_EQ(stage_refusal("steps = 0"),
            "dir/run.toml:3: run.stage 1: steps = 0: must be a whole number from 1 to 9007199254740992");
  EXPECT_EQ(stage_refusal("steps = 1\nsequence_lenght = 4"),
            "dir/run.toml:4: run.stage 1: unknown key \"sequence_lenght\" of a stage; did you mean "
            "\"sequence_length\"? (keys: steps, sequence_length, rope_theta, lr, global_batch_size, "
            "micro_batch_size, warmup_steps, source)");
  EXPECT_EQ(stage_refusal("steps = 1\nrope_theta = \"llama\""),
            "dir/run.toml:4: run.stage 1: rope_theta = \"llama\": must be a number, or \"lwm\"");
  EXPECT_EQ(
      stage_refusal("steps = 1\nsequence_length = 2000000\nrope_theta = \"lwm\""),
      "dir/run.toml:2: run.stage 1: rope_theta = \"lwm\" has no base for 2000000 tokens; its table ends at "
      "1048576. Fix: a number");
  EXPECT_EQ(
      stage_refusal("steps = 1\nglobal_batch_size = 6\nmicro_batch_size = 4"),
      "dir/run.toml:2: run.stage 1: micro_batch_size = 4: must divide the sequences of a shard, 6, and be a "
      "multiple of batch.leaf, 1");
}

TEST(Stages, ErrorsNameWhatCannotHaveStages) {
  EXPECT_EQ(stage_refusal("steps = 4", "[train]\nobjective = \"sft\"\n"),
            "dir/run.toml:2: run.stage: stages are for train.objective = \"pretrain\". Fix: one run for each "
            "length, with model.path");
  EXPECT_EQ(
      stage_refusal("steps = 4", "packing = true\n"),
      "dir/run.toml:2: run.stage: with data.packing, a held-out share differs between stages. Fix: files as "
      "data.validation, or data.validation = 0");
  EXPECT_EQ(message_of([] { parse(kStaged, {"run.steps=18"}); }),
            "--set: run.steps = 18: the stages have 17 steps together. Fix: remove the key");
  std::string both = kStaged;
  both.insert(both.find("seed"), "steps = 9\n");
  EXPECT_EQ(message_of([&] { parse(both); }),
            "dir/run.toml:2: run.steps = 9: the stages have 17 steps together. Fix: remove the key");
}

TEST(Stages, AreShortenedByRunStepsOfTheCommandLine) {
  for (const std::int64_t steps : {1, 9, 10, 11, 15, 16, 17}) {
    Told told;
    const RunConfig config =
        parse_config(kStaged, "dir/run.toml", Strings{fmt::format("run.steps={}", steps)}, {}, &told);
    EXPECT_EQ(config.run.steps, steps);
    std::int64_t sum = 0;
    for (const Stage& stage : config.run.stages) sum += stage.steps;
    EXPECT_EQ(sum, steps);
    EXPECT_EQ(config.run.stages.size(), steps <= 10 ? 1U : steps <= 15 ? 2U : 3U);
    EXPECT_LE(config.run.stages[0].warmup_steps, config.run.stages[0].steps);
    EXPECT_EQ(told.notes, steps == 17
                              ? Strings{}
                              : Strings{fmt::format("--set run.steps={}: the run has the first {} step{} of "
                                                    "the 17 of its stages",
                                                    steps, steps, steps == 1 ? "" : "s")});
    EXPECT_EQ(parse_config(config.to_toml(), "printed.toml"), config);
  }
}

TEST(Stages, WarmUpLongerThanAStageIsCutWithANote) {
  Told told;
  std::string text = kStaged;
  text.replace(text.find("warmup_steps = 1"), 16, "warmup_steps = 9");
  EXPECT_EQ(parse_config(text, "dir/run.toml", {}, {}, &told).run.stages[1].warmup_steps, 5);
  ASSERT_EQ(told.notes.size(), 1U);
  EXPECT_EQ(
      told.notes[0],
      "run.toml:11: run.stage 2: warmup_steps = 9 is more than its steps, 5; the warm-up has 5 steps, so the "
      "learning rate rises until the last step");
}

TEST(Stages, ThatAreTooLongForLearnedPositionsAreErrors) {
  const RunConfig config = parse(kStaged);
  const model::ModelConfig gpt2 = model::parse_model_config(
      {{"model_type", "gpt2"}, {"n_embd", 16}, {"n_layer", 1}, {"n_head", 2}, {"vocab_size", 64}},
      "config.json");
  EXPECT_EQ(message_of([&] { stage_model(config, gpt2, 1); }),
            "run.stage 2: sequence_length = 32768 exceeds the model's 1024 learned positions. Fix: a shorter "
            "sequence_length");
}

TEST(Stages, TheBaseOfTheAnglesMayStandBesideTheModelsPath) {
  const std::string text =
      "[run]\nsteps = 1\n[model]\npath = \"m\"\nrope_theta = \"lwm\"\n[data]\nsource = \"kk\"\n";
  EXPECT_EQ(parse(text).model.fields["rope_theta"], "lwm");
  EXPECT_EQ(parse_config(parse(text).to_toml(), "other/run.toml"), parse(text));
  EXPECT_EQ(message_of([&] { parse(text, {"model.rope_theta=big"}); }),
            "--set: model.rope_theta = \"big\": must be a number, or \"lwm\"");
}

}  // namespace
}  // namespace mantissa::config
