// Last words of passages: how a file is read, and that passages that share a pass do not affect each other.
#include "mantissa/generate/eval/last_words.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/runtime/device.h"
#include "engine/runtime/program.h"
#include "generate/eval/tiny_model.h"
#include "mantissa/core/base/error.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/engine/plan/compile.h"
#include "mantissa/generate/rollout/generate.h"
#include "mantissa/kernels/context.h"
#include "mantissa/setup/programs/decoding.h"
#include "mantissa/setup/weights/model_files.h"
#include "text/rows/temp_files.h"

namespace mantissa::eval {
namespace {

using mantissa::testing::best_device;
using text::error_of;
using text::has;

constexpr std::int64_t kPositions = kTinyPositions;
weights::ModelSource llama(const nlohmann::json& more = {{"max_position_embeddings", kPositions}}) {
  return tiny_model(more);
}

class LastWordsOfFiles : public ::testing::Test {
 protected:
  std::vector<Passage> read(const std::string& content, const std::string& name = "p.txt",
                            std::int64_t limit = 0) const {
    return read_passages(source, {files.write(name, content), limit});
  }
  std::string refused(const std::string& content, const std::string& name = "p.txt") const {
    return error_of<FileError>([&] { read(content, name); });
  }
  const text::TempFiles files;
  const weights::ModelSource source = llama();
};

TEST_F(LastWordsOfFiles, BeginAtTheLastSpace) {
  const std::vector<Passage> passages = read("a bc d\n\n  \nef gh \t\r\n x  yz");
  ASSERT_EQ(passages.size(), 3U);
  EXPECT_EQ(passages[0].ids, (std::vector<std::int32_t>{'a', ' ', 'b', 'c', ' ', 'd'}));
  EXPECT_EQ(passages[0].word, 4U);
  EXPECT_EQ(passages[1].ids, (std::vector<std::int32_t>{'e', 'f', ' ', 'g', 'h'}));
  EXPECT_EQ(passages[1].word, 2U);
  EXPECT_EQ(passages[1].place.line, 4);
  EXPECT_EQ(passages[2].word, 3U) << "the first of two spaces belongs to the text before";
}

TEST_F(LastWordsOfFiles, AreThoseOfJsonLines) {
  const std::vector<Passage> plain = read("a bc\nef gh"),
                             json =
                                 read("{\"text\": \"a bc\"}\n{\"text\": \"ef gh\", \"id\": 2}\n", "p.jsonl"),
                             csv = read("id,text\n1,a bc\n2,ef gh\n", "p.csv"),
                             first = read("a bc\nef\n", "q.txt", 1);
  ASSERT_EQ(json.size(), 2U);
  ASSERT_EQ(csv.size(), 2U);
  EXPECT_EQ(csv[1].ids, plain[1].ids);
  EXPECT_EQ(json[1].ids, plain[1].ids);
  EXPECT_EQ(json[1].place.line, 2);
  ASSERT_EQ(first.size(), 1U) << "lines after the limit are not read";
}

TEST_F(LastWordsOfFiles, ThatCannotBePredictedAreAnErrorWithTheLine) {
  EXPECT_TRUE(has(refused("a b\nword\n"), "p.txt:2: the passage has no two words"));
  EXPECT_TRUE(has(refused(" word\n"), "p.txt:1: the passage has no two words"));
  EXPECT_TRUE(has(refused("a b\na \xC3\n"), "p.txt:2: byte 3 of the line is not UTF-8"));
  EXPECT_TRUE(has(refused("{\"text\": \"a b\"}\n{\"text\": 3}\n", "p.jsonl"), "p.jsonl:2: no string field"));
  EXPECT_TRUE(has(refused("{\"text\": \"\"}\n", "p.jsonl"), "p.jsonl:1: the passage has no two words"));
  EXPECT_TRUE(has(refused("a b\n", "p.jsonl"), "p.jsonl:1: not JSON"));
  EXPECT_TRUE(has(refused(""), "contains no passages"));
  EXPECT_TRUE(has(refused("\n \n"), "contains no passages"));
  EXPECT_TRUE(has(error_of<FileError>([&] {
                    read_passages(source, {files.path("none.txt"), 0});
                  }),
                  "none.txt"));
}

TEST_F(LastWordsOfFiles, OfTooLongPassagesAreAnErrorWithTheLine) {
  const auto fits = std::string(kPositions - 1, 'a') + " b", longer = "a" + fits;
  EXPECT_EQ(read(fits).size(), 1U);
  const std::string message = refused("a b\n" + longer);
  EXPECT_TRUE(has(message, "p.txt:2: the passage has 97 tokens before its last one"));
  EXPECT_TRUE(has(message, "96 positions"));
  const weights::ModelSource longest = llama({{"max_position_embeddings", 1024}});
  const std::string file = files.write("word.txt", "a b\na " + std::string(kMostWordTokens, 'c'));
  EXPECT_TRUE(has(error_of<FileError>([&] {
                    read_passages(longest, {file, 0});
                  }),
                  "word.txt:2: the last word has 257 tokens, of at most 256"));
}

/// Returns the log-probabilities and the most likely ids of a passage, from a pass over all of it.
struct Whole {
  std::vector<double> log_probs;
  bool right = true;
};
Whole whole(const weights::ModelSource& source, const precision::Policy& policy, const Passage& p) {
  const auto length = static_cast<std::int64_t>(p.ids.size()) - 1;
  plan::CompileOptions options;
  options.longest_row = options.longest_leaf = length;
  runtime::Session session =
      weights::open_session(runtime::compile(model::build_logits(source.config, length, length, false),
                                             policy, options, best_device()),
                            source, best_device());
  runtime::Batch batch;
  batch.add({.ids = std::span(p.ids).first(p.ids.size() - 1), .targets = std::span(p.ids).subspan(1)});
  session.feed(batch);
  session.run(graph::Phase::forward, batch.extent());
  const runtime::Values log_prob = session.read("log_prob", length),
                        logits = session.read("logits", length * source.config.vocab_size);
  Whole result;
  const auto width = static_cast<std::size_t>(source.config.vocab_size);
  for (std::size_t t = p.word; t < p.ids.size(); ++t) {
    result.log_probs.push_back(log_prob[t - 1]);
    for (std::size_t v = 0; v < width; ++v) {
      if (logits[(t - 1) * width + v] > logits[(t - 1) * width + static_cast<std::size_t>(p.ids[t])])
        result.right = false;
    }
  }
  return result;
}

TEST_F(LastWordsOfFiles, HaveTheBitsOfAPassOverEachPassage) {
  // Of 31 passages of 2 to 92 tokens, several share a pass and several passes are needed. Words of one byte
  // and of several.
  std::string content;
  for (int i = 0; i < 31; ++i)
    content += std::string(static_cast<std::size_t>(1 + 3 * i), static_cast<char>('a' + i % 7)) + " " +
               std::string(static_cast<std::size_t>(1 + i % 3), 'b') + "\n";
  std::vector<Passage> passages = read(content);
  // The model is random, so the most likely continuations are inserted as further passages.
  for (const char* text : {"passage", "another", "ccccccccccc"}) {
    rollout::GenerateOptions options;
    options.max_new_tokens = 3;
    const auto program = programs::compile_decode(source.config, precision::Policy::parse("32-true"),
                                                  kPositions, best_device());
    runtime::Session session = weights::open_session(program, source, best_device());
    const std::string prompt = text;
    Passage p{
        {prompt.begin(), prompt.end()}, prompt.size(), static_cast<std::int64_t>(100 + passages.size())};
    const rollout::Request request{p.ids, 0};
    const auto made = rollout::generate(session, source.config, {&request, 1}, options).front();
    p.ids.insert(p.ids.end(), made.ids.begin(), made.ids.end());
    passages.insert(passages.begin() + 5, p);
  }
  for (const char* name : {"32-true", "64-true", "bf16-mixed", "fp8-hybrid"}) {
    const precision::Policy policy = precision::Policy::parse(name);
    const LastWords found = predict_last_words(source, policy, passages, "p.txt", best_device());
    ASSERT_EQ(found.words.size(), passages.size());
    EXPECT_FALSE(found.interrupted);
    EXPECT_GT(found.weight_bytes, 0U);
    double sum = 0;
    for (std::size_t i = 0; i < passages.size(); ++i) {
      const Whole expected = whole(source, policy, passages[i]);
      double log_prob = 0;
      for (const double x : expected.log_probs) log_prob += x;
      sum += log_prob;
      EXPECT_EQ(found.words[i].right, expected.right) << name << " " << i;
      EXPECT_EQ(found.words[i].log_prob, log_prob) << name << " " << i;
    }
    EXPECT_EQ(found.perplexity(), std::exp(-sum / static_cast<double>(passages.size()))) << name;
    if (std::string(name) == "32-true") {
      EXPECT_GE(found.right(), 3) << "greedy continuations are right";
    }
    EXPECT_LT(found.right(), static_cast<std::int64_t>(passages.size()));
  }
}

TEST_F(LastWordsOfFiles, DoNotDependOnOtherPassagesUnderDynamicRope) {
  const weights::ModelSource dynamic =
      llama({{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}}, {"max_position_embeddings", 8}});
  const precision::Policy policy = precision::Policy::parse("32-true");
  const std::string file = files.write("d.txt", "ab c\nthe fat cat sat on the mat\nabcd ef\n");
  const std::vector<Passage> passages = read_passages(dynamic, {file, 0});
  const LastWords together = predict_last_words(dynamic, policy, passages, file, best_device());
  ASSERT_EQ(together.words.size(), 3U);
  for (std::size_t i = 0; i < passages.size(); ++i) {
    const LastWords alone =
        predict_last_words(dynamic, policy, std::span(passages).subspan(i, 1), file, best_device());
    EXPECT_EQ(together.words[i].log_prob, alone.words[0].log_prob) << i;
  }
}

TEST_F(LastWordsOfFiles, KeepTheCompletedPassagesAfterAStop) {
  std::stop_source stop;
  stop.request_stop();
  const std::vector<Passage> passages = read("a b\nc d\n");
  const LastWords found = predict_last_words(source, precision::Policy::parse("32-true"), passages, "p.txt",
                                             best_device(), stop.get_token());
  EXPECT_TRUE(found.interrupted);
  EXPECT_TRUE(found.words.empty());
  EXPECT_EQ(found.accuracy(), 0);
  EXPECT_EQ(found.perplexity(), 0);
}

}  // namespace
}  // namespace mantissa::eval
