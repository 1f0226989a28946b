// The prompts of a run with rl: which rows they are, in which order they are asked, and which are held out.
#include "mantissa/setup/data/prompt_rows.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "mantissa/core/base/error.h"
#include "mantissa/text/puzzles/kk.h"
#include "text/rows/temp_files.h"

namespace mantissa::data {
namespace {

using Json = nlohmann::ordered_json;
using text::error_of;
using text::has;
using text::TempFiles;
using Texts = std::vector<std::string>;

/// Prompts of bytes. `data` and `rl` are keys of their sections.
class Prompts : public ::testing::Test {
 protected:
  static config::RunConfig config_of(const std::string& data, const std::string& rl = "",
                                     const std::string& run = "steps = 2\n") {
    return config::parse_config(
        "[run]\n" + run +
            "[model]\nhidden_size = 16\nintermediate_size = 16\nnum_hidden_layers = 1\nnum_attention_heads = "
            "1\nvocab_size = 256\n[train]\nobjective = \"rl\"\n[data]\nsequence_length = 1200\n" +
            data + "\n[rl]\nmax_new_tokens = 100\n" + rl,
        "run.toml");
  }
  static PromptSet set_of(const config::RunConfig& run, const CheckRow& check = {}) {
    return {run, model::parse_model_config(run.model.fields, "[model]"), check, &notes()};
  }
  static PromptSet set_of(const std::string& data, const std::string& rl = "",
                          const std::string& run = "steps = 2\n") {
    return set_of(config_of(data, rl, run));
  }
  static std::vector<std::string>& notes() {
    static std::vector<std::string> notes;
    return notes;
  }
  void SetUp() override { notes().clear(); }

  /// Writes rows with the prompts first, first + 1, … and returns the key that names the file.
  std::string source(const std::string& name, int first, int count) const {
    std::string lines;
    for (int i = 0; i < count; ++i)
      lines += Json{{"prompt", std::to_string(first + i)}, {"answer", -i}, {"id", name}}.dump() + "\n";
    return "\"" + files.write(name, lines) + "\"";
  }
  std::string data(const std::string& sources, const std::string& more = "validation = 0\n") const {
    return "template = \"none\"\nsource = " + sources + "\n" + more;
  }
  /// Returns the texts of the first rollouts, as asked.
  static Texts asked(const PromptSet& set, int rollouts, int each) {
    Texts texts;
    for (int r = 0; r < rollouts; ++r) {
      for (int i = 0; i < each; ++i) texts.push_back(set.at(r, i).text);
    }
    return texts;
  }

  const TempFiles files;
};

TEST_F(Prompts, OfFilesHaveTheirRowsAndPlaces) {
  const PromptSet set = set_of(data(source("a.jsonl", 10, 3)));
  ASSERT_EQ(set.training_count(), 3);
  EXPECT_EQ(set.held_out_count(), 0);
  const Prompt prompt = set.training(2);
  EXPECT_EQ(prompt.text, "12");
  EXPECT_EQ(prompt.ids, (std::vector<std::int32_t>{'1', '2'}));
  EXPECT_EQ(prompt.row.dump(), R"({"prompt":"12","answer":-2,"id":"a.jsonl"})");
  EXPECT_TRUE(prompt.where.ends_with("a.jsonl:3"));
  EXPECT_EQ(prompt.people, 0);
  EXPECT_EQ(set.longest(), 2);
  EXPECT_EQ(set.format(), nullptr);
  EXPECT_EQ(set.answer(prompt, {'4', 0}).text, "4");
  ASSERT_EQ(notes().size(), 1U);
  EXPECT_TRUE(notes()[0].ends_with("a.jsonl: 3 prompts; the longest has 2 tokens")) << notes()[0];
}

TEST_F(Prompts, AreAskedInAnotherOrderInEveryEpoch) {
  const std::string rows = source("a.jsonl", 10, 10);
  const PromptSet set = set_of(data(rows), "prompts_per_step = 4\n");
  const Texts texts = asked(set, 5, 4);  // two epochs: a rollout crosses the end of the first
  const Texts first(texts.begin(), texts.begin() + 10), second(texts.begin() + 10, texts.end());
  EXPECT_EQ(std::set(first.begin(), first.end()).size(), 10U);
  EXPECT_EQ(std::set(second.begin(), second.end()).size(), 10U);
  EXPECT_NE(first, second);
  EXPECT_EQ(asked(set_of(data(rows), "prompts_per_step = 4\n"), 5, 4), texts)
      << "the order is that of the seed";
  EXPECT_EQ(asked(set_of(data(rows), "prompts_per_step = 5\n"), 4, 5), texts)
      << "and not that of the rollouts";
  EXPECT_NE(asked(set_of(data(rows), "prompts_per_step = 4\n", "steps = 2\nseed = 2\n"), 5, 4), texts);
  const Texts in_order =
      asked(set_of(data(rows, "shuffle = false\nvalidation = 0\n"), "prompts_per_step = 4\n"), 3, 4);
  EXPECT_EQ(in_order, (Texts{"10", "11", "12", "13", "14", "15", "16", "17", "18", "19", "10", "11"}));
}

TEST_F(Prompts, OfSeveralSourcesTakeTurnsByTheirWeights) {
  const std::string sources = "[" + source("a.jsonl", 100, 30) + ", " + source("b.jsonl", 900, 5) + "]";
  const PromptSet set =
      set_of(data(sources, "weights = [0.75, 0.25]\nvalidation = 0.2\n"), "prompts_per_step = 8\n");
  EXPECT_EQ(set.training_count(), 24 + 4);
  EXPECT_EQ(set.held_out_count(), 6 + 1);
  std::map<char, int> of_source;
  for (const std::string& text : asked(set, 100, 8)) ++of_source[text[0]];
  EXPECT_NEAR(of_source['9'], 200, 8) << "a quarter of 800 prompts, up to about one of each block";
  const PromptSet joined = set_of(data(sources), "prompts_per_step = 35\n");
  EXPECT_EQ(joined.training_count(), 35);
  const Texts texts = asked(joined, 1, 35);
  EXPECT_EQ(std::set(texts.begin(), texts.end()).size(), 35U) << "without weights the files are one source";
}

TEST_F(Prompts, TheLastRowsAreHeldOut) {
  const std::string rows = source("a.jsonl", 10, 10);
  const PromptSet set = set_of(data(rows, "validation = 0.25\n"), "prompts_per_step = 8\n");
  EXPECT_EQ(set.training_count(), 8);
  ASSERT_EQ(set.held_out_count(), 2);
  EXPECT_EQ(set.held_out(0).text, "18");
  EXPECT_TRUE(set.held_out(1).where.ends_with("a.jsonl:10"));
  const Texts texts = asked(set, 4, 8);
  EXPECT_EQ(std::ranges::count(texts, "18") + std::ranges::count(texts, "19"), 0);
  EXPECT_EQ(set_of(data(rows, "validation = 0.01\n")).held_out_count(), 1) << "at least one";
  EXPECT_TRUE(
      has(error_of<ConfigError>([&] { set_of(data(source("one.jsonl", 1, 1), "validation = 0.5\n")); }),
          "1 prompt, and data.validation holds out 1"));
}

TEST_F(Prompts, MayBeHeldOutInAFileOfTheirOwn) {
  const std::string rows = source("a.jsonl", 10, 10), other = source("b.jsonl", 20, 3);
  const PromptSet set = set_of(data(rows, "validation = [" + other + "]\n"));
  EXPECT_EQ(set.training_count(), 10);
  ASSERT_EQ(set.held_out_count(), 3);
  EXPECT_EQ(set.held_out(2).text, "22");
}

TEST_F(Prompts, OfThePuzzlesAreThoseOfTheGenerator) {
  const std::string kk =
      "source = \"kk\"\ntemplate = \"none\"\npeople_min = 2\npeople_max = 4\nvalidation = 0.2\n";
  // Three rollouts of 16 prompts for ten steps of four each.
  const PromptSet set = set_of(kk, "minibatches = 2\nepochs = 2\n", "steps = 10\nseed = 7\n");
  ASSERT_EQ(set.training_count(), 48);
  ASSERT_EQ(set.held_out_count(), 9);
  text::KkOptions options;
  options.seed = 7;
  options.people_max = 4;
  options.count = 48;
  const std::vector<text::KkPuzzle> train = text::generate(options);
  options.split = text::KkSplit::test;
  const std::vector<text::KkPuzzle> test = text::generate(options);
  std::set<std::string> trained, held_out;
  for (std::int64_t i = 0; i < 48; ++i) {
    const Prompt prompt = set.training(i);
    const text::KkPuzzle& puzzle = train[static_cast<std::size_t>(i)];
    EXPECT_EQ(prompt.text, puzzle.prompt);
    EXPECT_EQ(prompt.row.dump(), text::to_jsonl_row(puzzle));
    EXPECT_EQ(prompt.people, std::ssize(puzzle.names));
    EXPECT_EQ(prompt.where, "puzzle " + std::to_string(i));
    trained.insert(prompt.row["statements"]);
  }
  for (std::int64_t i = 0; i < 9; ++i) {
    const Prompt prompt = set.held_out(i);
    EXPECT_EQ(prompt.row.dump(), text::to_jsonl_row(test[static_cast<std::size_t>(i)]));
    EXPECT_EQ(prompt.where, "held-out puzzle " + std::to_string(i));
    EXPECT_FALSE(trained.contains(prompt.row["statements"].get<std::string>()));
  }
  const Texts texts = asked(set, 3, 16);
  EXPECT_EQ(std::set(texts.begin(), texts.end()).size(), 48U) << "every rollout has new ones";
  EXPECT_EQ(set_of(kk + "shuffle = false\n", "", "steps = 1\n").at(0, 3).where, "puzzle 3");
}

TEST_F(Prompts, ThatAreTooLongAreRefusedOrSkipped) {
  std::string lines;
  for (const int length : {5, 30, 8, 25, 3})
    lines += Json{{"prompt", std::string(length, 'x')}}.dump() + "\n";
  const std::string sources = "\"" + files.write("a.jsonl", lines) + "\"";
  const auto config = [&](const std::string& truncate) {
    config::RunConfig run = config_of(data(sources, "validation = 0\ntruncate = \"" + truncate + "\"\n"));
    run.data.sequence_length = 108;
    return run;
  };
  const std::string message = error_of<ConfigError>([&] { set_of(config("refuse")); });
  EXPECT_TRUE(has(message,
                  "2 of 5 prompts are longer than data.sequence_length − rl.max_new_tokens = 108 − 100 = 8; "
                  "the longest has 30 ids ("));
  EXPECT_TRUE(has(message, "a.jsonl:2)"));
  EXPECT_TRUE(has(message,
                  "--set data.sequence_length=130 (more memory), or --set rl.max_new_tokens=78 (shorter "
                  "answers), or --set data.truncate=skip (long prompts are not used)"));
  std::vector<std::string> checked;
  const PromptSet set = set_of(config("skip"), [&](const Json& row, const std::string& where) {
    checked.push_back(where.substr(where.size() - 2) + row["prompt"].get<std::string>().substr(0, 1));
  });
  EXPECT_EQ(set.training_count(), 3);
  EXPECT_EQ(set.training(1).text, "xxxxxxxx") << "8 ids fit";
  EXPECT_TRUE(set.training(2).where.ends_with(":5"));
  EXPECT_EQ(set.longest(), 8);
  EXPECT_EQ(checked, (Texts{":1x", ":3x", ":5x"})) << "only rows that are used are checked";
  EXPECT_TRUE(notes().back().ends_with("3 prompts; the longest has 8 tokens; not used: 2 too long"))
      << notes().back();
  config::RunConfig none = config("skip");
  none.data.sequence_length = 102;
  EXPECT_TRUE(has(error_of<ConfigError>([&] { set_of(none); }), "5 of 5 prompts are longer"));
}

TEST_F(Prompts, ARowThatIsNotOneIsNamed) {
  const auto error = [&](const std::string& line) {
    const std::string sources = "\"" + files.write("a.jsonl", "{\"prompt\": \"a\"}\n" + line + "\n") + "\"";
    return error_of<FileError>([&] { set_of("template = \"chatml\"\nsource = " + sources); });
  };
  EXPECT_TRUE(has(error("{"), "a.jsonl:2: not JSON"));
  EXPECT_TRUE(
      has(error(R"({"text": "a"})"), "a.jsonl:2: no prompt; a row has \"messages\", or one of prompt"));
  EXPECT_TRUE(has(error(R"({"prompt": 3})"), "a.jsonl:2: \"prompt\" is a number"));
  EXPECT_TRUE(
      has(error(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"),
          "a.jsonl:2: the last of \"messages\" is an answer"));
  EXPECT_TRUE(has(error(R"({"messages": []})"), "a.jsonl:2: \"messages\" is empty"));
  const std::string empty = "\"" + files.write("e.jsonl", "\n") + "\"";
  EXPECT_TRUE(has(error_of<ConfigError>([&] { set_of(data(empty)); }), "no prompts"));
  const std::string good = source("g.jsonl", 1, 5);
  EXPECT_TRUE(has(error_of<FileError>([&] {
                    set_of(config_of(data(good)), [](const Json&, const std::string& where) {
                      throw FileError(where + ": no answer");
                    });
                  }),
                  "g.jsonl:1: no answer"));
}

TEST_F(Prompts, AreRenderedByTheTemplate) {
  const std::string sources = source("a.jsonl", 7, 1);
  const PromptSet set = set_of("template = \"chatml\"\nvalidation = 0\nsource = " + sources);
  EXPECT_EQ(set.training(0).text, "<|im_start|>user\n7<|im_end|>\n<|im_start|>assistant\n");
  ASSERT_NE(set.format(), nullptr);
  EXPECT_EQ(set.format()->name(), "chatml");
  EXPECT_TRUE(has(error_of<ConfigError>([&] { set_of("source = " + sources); }), "no chat template"));
}

}  // namespace
}  // namespace mantissa::data
