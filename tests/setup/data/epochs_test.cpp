// The steps of run.epochs and checkpoint.epochs.
#include "mantissa/setup/data/epochs.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "app/api/tiny.h"
#include "mantissa/setup/data/rows.h"
#include "precision/policy/message.h"

namespace mantissa::data {
namespace {

using precision::message_of;

constexpr const char* kModel =
    "[model]\nhidden_size = 16\nintermediate_size = 16\nnum_hidden_layers = 1\nnum_attention_heads = 1\n"
    "vocab_size = 256\n";

class Epochs : public ::testing::Test {
 protected:
  /// A config with `epochs` on a file of 250 bytes, in 24 rows of 10 tokens.
  config::RunConfig on_bytes(const std::string& epochs, const std::string& data, int batch = 7) const {
    std::ofstream(folder_ / "bytes.txt") << std::string(250, 'a');
    return parse(epochs, "format = \"text\"\nsequence_length = 10\n" + source("bytes.txt") + data, batch);
  }
  /// Conversations of several lengths.
  config::RunConfig on_conversations(const std::string& epochs, const std::string& more) const {
    std::ofstream out(folder_ / "rows.jsonl");
    for (int i = 0; i < 40; ++i) {
      out << R"({"prompt": "a", "completion": ")"
          << std::string(static_cast<std::size_t>(1 + i * 7 % 23), 'b') << "\"}\n";
    }
    out.close();
    return parse(epochs,
                 "sequence_length = 64\ntemplate = \"none\"\nvalidation = 0\n" + source("rows.jsonl") + more +
                     "[train]\nobjective = \"sft\"\n",
                 4);
  }
  static config::EpochSteps steps(const config::RunConfig& config) {
    return steps_of_epochs(config, model::parse_model_config(config.model.fields, "[model]"));
  }

  config::RunConfig parse(const std::string& epochs, const std::string& data, int batch) const {
    return config::parse_config("[run]\nepochs = " + epochs + "\n" + kModel +
                                    "[batch]\nglobal_batch_size = " + std::to_string(batch) + "\n[data]\n" +
                                    data,
                                "run.toml");
  }
  std::string source(const std::string& name) const {
    return "source = \"" + (folder_ / name).string() + "\"\n";
  }

  mantissa::testing::TemporaryFolder folder_;
};

TEST_F(Epochs, AreRowsDividedByTheBatchAndRoundedUp) {
  const auto of = [&](const std::string& epochs, const std::string& data, int batch) {
    return steps(on_bytes(epochs, "validation = " + data + "\n", batch));
  };
  EXPECT_EQ(of("3", "0", 7).steps, 11);  // 72 rows
  EXPECT_EQ(of("3", "0", 7).rows, 24);
  EXPECT_EQ(of("3", "0", 8).steps, 9);
  EXPECT_EQ(of("0.5", "0", 7).steps, 2);
  EXPECT_EQ(of("0.001", "0", 7).steps, 1);
  EXPECT_EQ(of("1", "0", 100).steps, 1);
  EXPECT_EQ(of("1", "0.25", 6).steps, 3) << "held-out rows are not trained";
}

TEST_F(Epochs, BetweenStatesAreCountedAlike) {
  config::RunConfig config = on_bytes("3", "validation = 0\n", 7);
  config.checkpoint.epochs = 1;
  EXPECT_EQ(steps(config).interval, 4);  // 24 rows
  EXPECT_EQ(steps(config).steps, 11);
  config.run.epochs = 0;
  EXPECT_EQ(steps(config).steps, 0);
  config.data.source = {"kk"};
  EXPECT_EQ(message_of([&] { steps(config); }),
            "checkpoint.epochs: generated rows have no end. Fix: set checkpoint.interval in its place");
}

TEST_F(Epochs, OfPacksEndWithTheLastRow) {
  const config::RunConfig config = on_conversations("2", "packing = true\n");
  const text::Dataset set = load_dataset(config, model::parse_model_config(config.model.fields, "[model]"));
  const config::EpochSteps got = steps(config);
  EXPECT_EQ(got.rows, 40);
  EXPECT_LT(got.steps, 20) << "a pack has several rows";
  EXPECT_GE(set.rows_of_steps(got.steps, 4), 80);
  EXPECT_LT(set.rows_of_steps(got.steps - 1, 4), 80);
  EXPECT_EQ(steps(on_conversations("2", "")).steps, 20);
}

TEST_F(Epochs, OfCarriedStatesAreThoseOfTheShortestStream) {
  const config::EpochSteps got =
      steps(on_bytes("2", "carry_state = true\nshuffle = false\nvalidation = 0\n", 7));
  EXPECT_EQ(got.rows, 21) << "three rows in each of seven streams";
  EXPECT_EQ(got.steps, 6);
}

TEST_F(Epochs, OfPairsCountPairs) {
  std::ofstream out(folder_ / "pairs.jsonl");
  for (int i = 0; i < 10; ++i)
    out << R"({"prompt": "a", "chosen": "b", "rejected": "c"})"
        << "\n";
  out.close();
  const config::EpochSteps got = steps(parse("1.5",
                                             "sequence_length = 64\ntemplate = \"none\"\nvalidation = 0\n" +
                                                 source("pairs.jsonl") + "[train]\nobjective = \"dpo\"\n",
                                             4));
  EXPECT_EQ(got.steps, 4);
  EXPECT_EQ(got.rows, 10);
  EXPECT_EQ(got.noun, "pair");
}

TEST_F(Epochs, NeedRowsThatEnd) {
  const auto refused = [&](const std::string& data) {
    return message_of([&] { steps(parse("1", data, 8)); });
  };
  EXPECT_EQ(refused("source = \"kk\"\n"),
            "run.epochs: generated rows have no end. Fix: set run.steps in its place");
  EXPECT_EQ(refused("source = [\"a.txt\", \"b.txt\"]\nweights = [1, 2]\n"),
            "run.epochs: each source of a mixture has epochs of its own. Fix: set run.steps in its place");
}

}  // namespace
}  // namespace mantissa::data
