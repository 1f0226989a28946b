// The rows of the stages of a run: where each begins, and what is held out.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/config/stages.h"
#include "mantissa/setup/data/inspect.h"
#include "mantissa/setup/data/rows.h"
#include "precision/policy/message.h"

namespace mantissa::data {
namespace {

using precision::message_of;

/// A file of 250 bytes 0, 1, 2, …, so that a byte is its place in the stream.
class StageRowsOf : public ::testing::Test {
 protected:
  StageRowsOf()
      : file_(std::filesystem::temp_directory_path() / ("mantissa-stages-" + std::to_string(getpid()))) {
    std::ofstream out(file_, std::ios::binary);
    for (int i = 0; i < 250; ++i) out.put(static_cast<char>(i));
  }
  ~StageRowsOf() override { std::filesystem::remove(file_); }

  config::RunConfig config_of(const std::string& stages, const std::string& data) const {
    return config::parse_config("[run]\n" + stages +
                                    "[model]\nhidden_size = 16\nintermediate_size = 16\nnum_hidden_layers = "
                                    "1\nnum_attention_heads = 1\n"
                                    "vocab_size = 256\n[data]\nformat = \"text\"\nsource = \"" +
                                    file_.string() + "\"\n" + data,
                                "run.toml");
  }
  DataDescription describe_of(const std::string& stages, const std::string& data) const {
    const config::RunConfig run = config_of(stages, data);
    return describe_run(run, model::parse_model_config(run.model.fields, "[model]"), 1);
  }
  text::Dataset rows_of(const std::string& stages, const std::string& data) const {
    const config::RunConfig run = config_of(stages, data);
    return load_dataset(run, model::parse_model_config(run.model.fields, "[model]"));
  }

  std::filesystem::path file_;
};

constexpr const char* kGrowing =
    "[[run.stage]]\nsteps = 2\nsequence_length = 10\nglobal_batch_size = 3\n"
    "[[run.stage]]\nsteps = 1\nsequence_length = 25\nglobal_batch_size = 2\n"
    "[[run.stage]]\nsteps = 2\nsequence_length = 40\nglobal_batch_size = 1\n";

TEST_F(StageRowsOf, ContinueInTheStreamAtTheFirstRowAfterTheStageBefore) {
  const text::Dataset set = rows_of(kGrowing, "shuffle = false\nvalidation = 0\n");
  EXPECT_EQ(set.step(1, 3).ids.front(), 0);
  EXPECT_EQ(set.step(2, 3).ids.front(), 30);  // ids up to 60
  const text::StepData second = set.step(3, 2);
  EXPECT_EQ(second.sequence_length, 25);
  EXPECT_EQ(second.ids.front(), 75);  // the first multiple of 25 from 60 on; ids up to 125
  EXPECT_EQ(second.sequence, 6U);     // random numbers are not those of an earlier row
  EXPECT_EQ(set.step(4, 1).ids.front(), 160);
  EXPECT_EQ(set.step(5, 1).ids.front(), 200);
  EXPECT_EQ(set.step(5, 1).sequence, 9U);
}

TEST_F(StageRowsOf, ContinueInTheSameEpoch) {
  const text::Dataset set = rows_of(
      "[[run.stage]]\nsteps = 13\nsequence_length = 10\nglobal_batch_size = 2\n"
      "[[run.stage]]\nsteps = 1\nsequence_length = 20\nglobal_batch_size = 1\n",
      "shuffle = false\nvalidation = 0\n");
  EXPECT_EQ(set.step(13, 2).ids.front(), 0);  // 24 rows an epoch: this is the second
  EXPECT_EQ(set.step(14, 1).ids.front(), 20);
}

TEST_F(StageRowsOf, BeginAnotherSourceAtItsBeginning) {
  const std::string other = "source = [\"" + file_.string() + "\", \"" + file_.string() + "\"]\n";
  const text::Dataset set = rows_of(
      "[[run.stage]]\nsteps = 2\nsequence_length = 10\nglobal_batch_size = 3\n"
      "[[run.stage]]\nsteps = 1\nsequence_length = 25\nglobal_batch_size = 2\n" +
          other + "[[run.stage]]\nsteps = 1\nsequence_length = 40\nglobal_batch_size = 1\n",
      "shuffle = false\nvalidation = 0\n");
  EXPECT_EQ(set.step(3, 2).ids.front(), 0);
  EXPECT_EQ(set.step(4, 1).ids.front(), 80);  // continues the first stage, which ended at 60
}

TEST_F(StageRowsOf, TrainOnNothingThatAnyStageHoldsOut) {
  // Shares of 24, 9 and 6 rows: at least one row of 40 tokens, from id 200 on.
  const text::Dataset set = rows_of(kGrowing, "validation = 0.05\n");
  for (std::int64_t step = 1; step <= 40; ++step) {
    const text::Dataset& stage = set.at_step(step);
    const std::int64_t batch = step <= 2 ? 3 : step == 3 ? 2 : 1;
    const text::StepData rows = stage.step(step, batch);
    for (std::int64_t r = 0; r < rows.rows; ++r) {
      const std::size_t last = static_cast<std::size_t>((r + 1) * (rows.sequence_length + 1) - 1);
      EXPECT_LE(rows.ids[last], 200) << step;
    }
  }
  EXPECT_EQ(set.at_step(1).validation_rows(), 1);
  EXPECT_EQ(set.at_step(1).validation(0, 1).ids.front(), 230);
  EXPECT_EQ(set.at_step(5).validation(0, 1).ids.front(), 200);
}

TEST(StagesOfPuzzles, HaveARowToTrainAndOneToHoldOutOfTheLongestStage) {
  const config::RunConfig run = config::parse_config(
      "[[run.stage]]\nsteps = 1\nsequence_length = 1024\n[[run.stage]]\nsteps = 1\nsequence_length = 32768\n"
      "[model]\nhidden_size = 16\nintermediate_size = 16\nnum_hidden_layers = 1\nnum_attention_heads = "
      "1\nvocab_size = 256\n[data]\nsource = \"kk\"\n"
      "[batch]\nglobal_batch_size = 1\n",
      "run.toml");
  const model::ModelConfig model = model::parse_model_config(run.model.fields, "[model]");
  EXPECT_NO_THROW(load_dataset(run, model));
  const text::Dataset rows = load_dataset(config::stage_config(run, 1), model);
  EXPECT_EQ(rows.training_rows(), 1);
  EXPECT_EQ(rows.validation_rows(), 1);
}

TEST_F(StageRowsOf, AreDescribedByStageWithoutPadding) {
  const std::string config = "shuffle = false\nvalidation = 0.05\n";
  const DataDescription d = describe_of(kGrowing, config);
  EXPECT_EQ(d.rows, rows_of(kGrowing, config).training_rows());
  EXPECT_LT(d.rows + d.held_out_rows, 24) << "a later stage holds out more";
  EXPECT_EQ(d.padding, 0);
  EXPECT_EQ(d.masked, 0);
  ASSERT_EQ(d.stages.size(), 3U);
  const std::int64_t lengths[] = {10, 25, 40};
  for (std::size_t s = 0; s < 3; ++s) EXPECT_EQ(d.stages[s].sequence_length, lengths[s]);
  EXPECT_EQ(d.stages[0].rows, d.rows);
  EXPECT_DOUBLE_EQ(d.stages[0].repeats, 6.0 / static_cast<double>(d.rows));
  EXPECT_DOUBLE_EQ(d.stages[2].repeats, 2.0 / static_cast<double>(d.stages[2].rows));
}

TEST_F(StageRowsOf, ThatDoNotExistAreAnError) {
  const std::string message = message_of([&] {
    rows_of(
        "[[run.stage]]\nsteps = 1\nsequence_length = 10\n[[run.stage]]\nsteps = 1\nsequence_length = 300\n",
        "");
  });
  EXPECT_NE(message.find("sequence_length = 300"), std::string::npos) << message;
}

}  // namespace
}  // namespace mantissa::data
