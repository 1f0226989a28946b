// Last words and paired changes of a trained model.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"

namespace mantissa::api {
namespace {

using mantissa::testing::has;
using mantissa::testing::into;
using mantissa::testing::TemporaryFolder;
using mantissa::testing::tiny_config;

/// A model that has learned one text by heart.
class LastWordOfAModel : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 300; ++i) text += "one two ";
    write("text.txt", text);
    write("passages.jsonl",
          "{\"text\": \"one two one two\"}\n{\"text\": \"one two one six\"}\n"
          "{\"text\": \"two one two one\"}\n{\"text\": \"two one two, one\"}\n");
    model_ =
        train(Config::parse(tiny_config(200, "32-true"),
                            {"data.source=" + (folder_ / "text.txt").string(), "checkpoint.interval=1000"}),
              into(folder_ / "run"))
            .model;
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  EvaluateOptions passages() const {
    EvaluateOptions o;
    o.last_words = (folder_ / "passages.jsonl").string();
    return o;
  }
  EvaluateOptions both() const {
    EvaluateOptions o = passages();
    o.data = {(folder_ / "text.txt").string()};
    o.sequence_length = 100;
    return o;
  }
  const TemporaryFolder folder_;
  std::filesystem::path model_;
};

TEST_F(LastWordOfAModel, IsRightIfGenerationGivesIt) {
  const Evaluation e = evaluate(model_, passages());
  ASSERT_EQ(e.last_words.size(), 4U);
  EXPECT_EQ(e.tokens, 0);
  EXPECT_EQ(e.bytes, 0);
  const std::string texts[] = {"one two one", "one two one", "two one two", "two one two,"},
                    words[] = {" two", " six", " one", " one"};
  std::int64_t right = 0;
  double sum = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    GenerateOptions o;
    o.prompt = texts[i];
    o.max_new_tokens = static_cast<std::int64_t>(words[i].size());
    const Generation g = generate(model_, o);
    EXPECT_EQ(e.last_words[i].right, g.text == words[i]) << i << g.text;
    if (g.text == words[i]) {
      double log_prob = 0;
      for (const double x : g.log_probs) log_prob += x;
      EXPECT_EQ(e.last_words[i].log_prob, log_prob) << i;
    }
    right += g.text == words[i] ? 1 : 0;
    sum += e.last_words[i].log_prob;
  }
  EXPECT_GE(right, 2);
  EXPECT_FALSE(e.last_words[1].right);
  EXPECT_EQ(e.last_words_right, right);
  EXPECT_EQ(e.last_word_accuracy, static_cast<double>(right) / 4);
  EXPECT_EQ(e.last_word_perplexity, std::exp(-sum / 4));
}

TEST_F(LastWordOfAModel, AndTheLossAreMeasuredTogetherWithTheSameBits) {
  const Evaluation e = evaluate(model_, both()), words = evaluate(model_, passages()),
                   loss = evaluate(model_, both().data, "auto", 100, 0, {});
  EXPECT_EQ(e.loss, loss.loss);
  EXPECT_EQ(e.bytes, e.tokens);
  EXPECT_EQ(e.last_word_perplexity, words.last_word_perplexity);
  EXPECT_EQ(e.rows.size(), 23U);  // of 2400 bytes
  EXPECT_GT(e.tokens_per_second, 0);
  EXPECT_GT(e.weight_bytes, 0U);
  EvaluateOptions limited = passages();
  limited.passage_limit = 3;
  EXPECT_EQ(evaluate(model_, limited).last_words.size(), 3U);
}

TEST_F(LastWordOfAModel, ChangesUnderAnotherPolicyByTheMeanOfItsRows) {
  const Precision bf16{.policy = "bf16-mixed", .rules = {}, .deepspeed = {}};
  const Evaluation a = evaluate(model_, both()), b = evaluate(model_, both(), bf16);
  const PairedChange change = paired_change(a, b);
  ASSERT_TRUE(change.loss && change.accuracy && change.word_log_prob);
  // Means in another order of the same numbers, of which none is far from 1.
  EXPECT_NEAR(change.loss->difference, b.loss - a.loss, 1e-12);
  EXPECT_NE(change.loss->difference, 0);
  EXPECT_GT(change.loss->standard_error.value(), 0);
  EXPECT_EQ(change.loss->pairs, 23);
  EXPECT_NEAR(change.word_log_prob->difference,
              std::log(a.last_word_perplexity) - std::log(b.last_word_perplexity), 1e-12);
  EXPECT_EQ(change.accuracy->pairs, 4);
  EXPECT_LT(b.weight_bytes, 2 * a.weight_bytes);
}

TEST_F(LastWordOfAModel, NeedsTextAndATokenizer) {
  const auto refused = [](const auto& run) -> std::string {
    try {
      run();
    } catch (const Error& e) {
      return e.what();
    }
    return {};
  };
  EXPECT_TRUE(has(refused([&] { evaluate(model_, EvaluateOptions()); }), "nothing to evaluate"));
  write("passages.jsonl", "{\"text\": \"one two\"}\n{\"text\": \"one\"}\n");
  EXPECT_TRUE(
      has(refused([&] { evaluate(model_, both()); }), "passages.jsonl:2: the passage has no two words"));
  const Summary other =
      train(Config::parse(tiny_config(2, "32-true"), {"model.vocab_size=300"}), into(folder_ / "other"));
  std::filesystem::remove(other.model / "tokenizer.json");
  EXPECT_TRUE(has(refused([&] { evaluate(other.model, passages()); }), "no tokenizer file"));
}

}  // namespace
}  // namespace mantissa::api
