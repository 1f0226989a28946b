// Answers with a label as rows of a run.
#include "mantissa/setup/data/labelled_rows.h"

#include <gtest/gtest.h>

#include <fstream>

#include "app/api/tiny.h"
#include "mantissa/core/base/error.h"

namespace mantissa::data {
namespace {

using mantissa::testing::has;

class LabelledFiles : public ::testing::Test {
 protected:
  LabelledSet load(const std::string& more, std::vector<std::string>* notes = nullptr) const {
    const config::RunConfig c = config::parse_config(
        "[run]\nsteps = 2\n[model]\nvocab_size = 258\nhidden_size = 16\nintermediate_size = 24\n"
        "num_hidden_layers = 1\nnum_attention_heads = 2\n[train]\nobjective = \"kto\"\n[data]\n"
        "sequence_length = 40\n" +
            more,
        folder_ / "run.toml");
    return load_labelled(c, model::parse_model_config(c.model.fields, "[model]"), notes);
  }
  std::string refusal(const std::string& more) const {
    try {
      load(more);
    } catch (const Error& e) {
      return e.what();
    }
    ADD_FAILURE() << "no error";
    return {};
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  mantissa::testing::TemporaryFolder folder_;
};

/// A row that is not used takes its label with it.
TEST_F(LabelledFiles, KeepTheLabelsOfTheRowsThatAreUsed) {
  write("l.jsonl",
        "{\"prompt\": \"q\", \"completion\": \"a\", \"label\": true}\n"
        "{\"prompt\": \"q\", \"completion\": \" \", \"label\": true}\n"
        "{\"prompt\": \"q\", \"chosen\": \"b\", \"rejected\": \"c\"}\n"
        "{\"prompt\": \"q\", \"completion\": \"d\", \"label\": 0}\n");
  std::vector<std::string> notes;
  const LabelledSet set =
      load("source = \"l.jsonl\"\ntemplate = \"none\"\nvalidation = 0.2\nshuffle = false\n", &notes);
  EXPECT_EQ(set.desirable, (std::vector<bool>{true, true, false, false}));
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_TRUE(has(notes[0], "l.jsonl: 5 rows, 4 used with 12 tokens")) << notes[0];
  EXPECT_TRUE(notes[0].ends_with("; 2 of the used rows are desirable")) << notes[0];
  EXPECT_EQ(set.rows.training_rows(), 3);
  const text::StepData held_out = set.rows.validation(0, 1);
  EXPECT_EQ(held_out.origin, std::vector<std::int64_t>{3});
  EXPECT_EQ(held_out.ids[1], 'd');
}

TEST_F(LabelledFiles, MayBeHeldOutInFilesOfTheirOwn) {
  write("l.jsonl", "{\"prompt\": \"q\", \"completion\": \"a\", \"label\": true}\n");
  write("v.jsonl", "{\"prompt\": \"q\", \"chosen\": \"b\", \"rejected\": \"c\"}\n");
  const LabelledSet set = load("source = \"l.jsonl\"\ntemplate = \"none\"\nvalidation = [\"v.jsonl\"]\n");
  EXPECT_EQ(set.desirable, std::vector<bool>{true});
  EXPECT_EQ(set.held_out_desirable, (std::vector<bool>{true, false}));
  EXPECT_EQ(set.rows.validation_rows(), 2);
}

/// Of a conversation, the last answer alone has the label.
TEST_F(LabelledFiles, TrainTheLastAnswer) {
  write("l.jsonl",
        R"({"messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "first"},)"
        R"( {"role": "user", "content": "q"}, {"role": "assistant", "content": "last"}], "label": true})"
        "\n");
  const LabelledSet set =
      load("source = \"l.jsonl\"\ntemplate = \"chatml\"\ntruncate = \"left\"\nvalidation = 0\n");
  const text::StepData step = set.rows.step(1, 1);
  std::string trained;
  for (std::size_t t = 0; t < step.targets.size(); ++t)
    if (step.weights[t] != 0) trained += static_cast<char>(step.targets[t]);
  EXPECT_TRUE(trained.starts_with("last<|im_end|>")) << trained;
}

TEST_F(LabelledFiles, WithErrorsAreNamedByFileAndLine) {
  write("l.jsonl", "{\"prompt\": \"q\", \"completion\": \"a\", \"label\": true}\n{\"prompt\": \"q\"}\n");
  EXPECT_TRUE(has(refusal("source = \"l.jsonl\"\ntemplate = \"none\"\n"), "l.jsonl:2: no \"label\""));
  write("texts.jsonl", "{\"chosen\": \"one\", \"rejected\": \"other\"}\n");
  EXPECT_TRUE(has(refusal("source = \"texts.jsonl\"\ntemplate = \"chatml\"\n"),
                  "texts.jsonl:1: the row has texts without a prompt, and a chat template needs messages"));
  EXPECT_EQ(load("source = \"texts.jsonl\"\ntemplate = \"none\"\nvalidation = 0\n").desirable.size(), 2U);
  write("empty.jsonl", "\n");
  EXPECT_TRUE(has(refusal("source = \"empty.jsonl\"\ntemplate = \"none\"\n"), "empty.jsonl: no rows. Fix: "));
  EXPECT_TRUE(has(refusal("source = \"kk\"\ntemplate = \"none\"\n"), "generated rows have no label"));
}

}  // namespace
}  // namespace mantissa::data
