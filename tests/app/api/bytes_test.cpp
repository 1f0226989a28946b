// Only a byte model accepts text. A run directory is accepted wherever a model is read.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"

namespace mantissa::api {
namespace {

GenerateOptions prompt_of(const char* text) {
  GenerateOptions options;
  options.prompt = text;
  return options;
}

using mantissa::testing::has;
using mantissa::testing::into;
using mantissa::testing::read_all;
using mantissa::testing::TemporaryFolder;
using mantissa::testing::tiny_config;

template <class F>
std::string refused(const F& run) {
  try {
    run();
  } catch (const ConfigError& e) {
    return e.what();
  }
  ADD_FAILURE() << "it was not refused";
  return {};
}

/// A trained model of `vocabulary` entries.
std::filesystem::path model_of(const TemporaryFolder& folder, int vocabulary) {
  const std::vector<std::string> set = {"model.vocab_size=" + std::to_string(vocabulary)};
  TrainOptions options = into(folder / "run");
  for (int i = 0; i < 2000; ++i) options.data.tokens.push_back(i % 7);
  return train(Config::parse(tiny_config(2, "32-true"), set), options).model;
}

/// A run that starts from `model`.
Config from(const std::filesystem::path& model, const std::vector<std::string>& set) {
  std::string text = tiny_config(2, "32-true");
  const std::size_t first = text.find("hidden_size"), last = text.find("[data]");
  text.replace(first, last - first, "path = \"" + model.string() + "\"\n");
  return Config::parse(text, set);
}

class Bytes : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(folder / "text.txt") << std::string(4000, 'a');
    std::ofstream(folder / "ids.bin", std::ios::binary) << std::string(4000, '\0');
    text = {"data.source=" + (folder / "text.txt").string()};
    ids = {"data.source=" + (folder / "ids.bin").string(), "data.format=tokens"};
  }
  TemporaryFolder folder;
  std::vector<std::string> text, ids;
};

TEST_F(Bytes, AreNotFedToAModelWithAnUnsupportedTokenizerAndItsFileIsNamed) {
  for (const char* name : {"vocab.json", "vocab.txt"}) {
    const std::filesystem::path model = model_of(folder, 256);
    std::filesystem::path copy = folder / name;
    copy += ".dir";
    std::filesystem::copy(model, copy);
    std::filesystem::remove_all(folder / "run");
    for (const char* own : {"tokenizer.json", "tokenizer_config.json"}) std::filesystem::remove(copy / own);
    std::ofstream(copy / name) << "{}";
    for (const std::string& message : {refused([&] { train(from(copy, text), into(folder / "a")); }),
                                       refused([&] { train(from(copy, {}), into(folder / "a")); }),
                                       refused([&] { explain(from(copy, text)); }), refused([&] {
                                         evaluate(copy, {(folder / "text.txt").string()}, "auto", 32, 0, {});
                                       }),
                                       refused([&] { evaluate(copy, {"kk"}, "auto", 32, 0, {}); })}) {
      EXPECT_TRUE(has(message, (copy / name).string())) << message;
      EXPECT_TRUE(has(message, "tokens")) << message;
    }
    const std::string prompt = refused([&] { generate(copy, prompt_of("a")); });
    EXPECT_TRUE(has(prompt, (copy / name).string()) && has(prompt, "--prompt-ids")) << prompt;
    // The data are ids of the model.
    EXPECT_EQ(evaluate(copy, {(folder / "ids.bin").string()}, "tokens", 32, 0, {}).bits_per_byte, 0);
    EXPECT_EQ(train(from(copy, ids), into(folder / "a")).steps, 2);
    std::filesystem::remove_all(folder / "a");
  }
}

TEST_F(Bytes, AreNotFedToWeightsOfAnotherVocabulary) {
  const std::filesystem::path model = model_of(folder, 300);
  for (const std::string& message :
       {refused([&] { train(from(model, text), into(folder / "a")); }),
        refused([&] { evaluate(model, {(folder / "text.txt").string()}, "auto", 32, 0, {}); })}) {
    EXPECT_TRUE(has(message, "has a vocabulary of 300 entries and no tokenizer file")) << message;
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
  EXPECT_EQ(train(from(model, ids), into(folder / "a")).steps, 2);
}

TEST_F(Bytes, AreReadByANewModelWithALargerVocabularyWithANote) {
  std::vector<std::string> notes;
  Events events;
  events.on_note = [&](const std::string& note) { notes.push_back(note); };
  const auto run = [&](const std::vector<std::string>& set) {
    notes.clear();
    return train(Config::parse(tiny_config(2, "32-true"), set), into(folder / set.front()), events);
  };
  const std::string expected =
      "data.tokenizer = \"byte\" gives the ids 0 to 255: the other 44 entries of model.vocab_size = 300 are "
      "never used";
  EXPECT_EQ(run({"model.vocab_size=300"}).steps, 2);
  EXPECT_NE(std::find(notes.begin(), notes.end(), expected), notes.end());
  EXPECT_EQ(run({"model.vocab_size=256"}).steps, 2);
  EXPECT_EQ(std::find(notes.begin(), notes.end(), expected), notes.end());
  const Config wide = Config::parse(tiny_config(2, "32-true"), {"model.vocab_size=300"});
  EXPECT_TRUE(has(explain(wide).text, expected));
  EXPECT_TRUE(has(refused([&] { run({"model.vocab_size=255"}); }), "vocab_size"));
  // Evaluate the written model over the run's held-out rows.
  const std::vector<std::string> its = {"model.vocab_size=300",
                                        "run.out=" + (folder / "model.vocab_size=300").string()};
  EXPECT_GT(evaluate(Config::parse(tiny_config(2, "32-true"), its), 0).bits_per_byte, 0);
}

TEST(RunDirectory, IsItsModelOrItsNewestStateWhereverAModelIsRead) {
  const TemporaryFolder folder;
  for (const char* policy : {"bf16-mixed", "bf16-true", "bf16-mixed params=e4m3", "fp8-hybrid"}) {
    const std::filesystem::path run = folder / policy;
    // Interrupted after its last step, a run has a state and no model.
    const Config config = Config::parse(tiny_config(3, policy), {"checkpoint.interval=1"});
    train(config, into(run));
    const std::filesystem::path state = run / "state/step-00000003";
    GenerateOptions options;
    options.prompt = "Ada said";
    options.max_new_tokens = 9;
    options.precision.policy = policy;
    const auto generated = [&](const std::filesystem::path& model) {
      return generate(model, options).log_probs;
    };
    const std::vector<double> expected = generated(run / "model");
    EXPECT_EQ(generated(run), expected) << policy;
    EXPECT_EQ(generated(state), expected) << policy;
    std::filesystem::remove_all(run / "model");
    EXPECT_EQ(generated(run), expected) << policy;
    EXPECT_GT(evaluate(run, {"kk"}, "auto", 32, 0, options.precision).loss, 0);
    EXPECT_TRUE(has(explain_model(run, options.precision).text, "llama"));
    TraceOptions trace_options;
    trace_options.model = run;
    trace_options.ids = {{1, 2, 3}};
    EXPECT_EQ(trace(trace_options).predicted, 2);
  }
}

TEST(RunDirectory, MayBeAModelToStartFrom) {
  const TemporaryFolder folder;
  train(Config::parse(tiny_config(2, "32-true")), into(folder / "run"));
  EXPECT_EQ(train(from(folder / "run", {}), into(folder / "next")).steps, 2);
}

TEST(RunDirectory, WithoutAModelOrAStateIsRefused) {
  const TemporaryFolder folder;
  try {
    generate(folder.path(), prompt_of("a"));
    FAIL();
  } catch (const FileError& e) {
    EXPECT_TRUE(has(e.what(), "no model/ or state/")) << e.what();
  }
}

}  // namespace
}  // namespace mantissa::api
