// Conversations with a tiny model in memory, whose tokenizer knows letters and two special tokens.
#include "mantissa/generate/dialog/conversation.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/api/tiny.h"
#include "engine/runtime/device.h"
#include "engine/runtime/program.h"
#include "mantissa/core/base/error.h"
#include "mantissa/generate/rollout/generate.h"
#include "mantissa/setup/programs/decoding.h"

namespace mantissa::dialog {
namespace {

namespace fs = std::filesystem;
using mantissa::testing::best_device;
using mantissa::testing::has;
using nlohmann::json;

constexpr std::int64_t kVocabulary = 29, kContext = 64;
constexpr std::int32_t kBegin = 27, kEnd = 28;
const precision::Policy kPolicy = precision::Policy::parse("32-true");
constexpr const char* kTemplate =
    "{% for m in messages %}{% if m.role == 'system' %}!{% endif %}<s>{{ m.content }}<e>{% endfor %}"
    "{% if add_generation_prompt %}<s>{% endif %}";

json special(std::int32_t id, const std::string& content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

json tokenizer_json() {
  json vocabulary;
  for (std::int32_t i = 0; i < 26; ++i) vocabulary[std::string(1, static_cast<char>('a' + i))] = i;
  vocabulary["!"] = 26;
  vocabulary["<s>"] = kBegin;
  vocabulary["<e>"] = kEnd;
  return {
      {"version", "1.0"},
      {"added_tokens", {special(kBegin, "<s>"), special(kEnd, "<e>")}},
      {"normalizer", nullptr},
      {"pre_tokenizer", nullptr},
      {"post_processor", nullptr},
      {"decoder", {{"type", "Fuse"}}},
      {"model", {{"type", "BPE"}, {"unk_token", nullptr}, {"vocab", vocabulary}, {"merges", json::array()}}}};
}

/// A model of 64 positions with weights of a seed, in memory; its tokenizer and template are in a folder.
class Conversations : public ::testing::Test {
 protected:
  void SetUp() override {
    write("tokenizer.json", tokenizer_json().dump());
    write("tokenizer_config.json", json{{"chat_template", kTemplate}}.dump());
    const model::ModelConfig config =
        mantissa::testing::tiny_llama(false, kVocabulary, {{"max_position_embeddings", kContext}});
    const auto program = programs::compile_decode(config, kPolicy, 8, best_device());
    runtime::WeightSet weights(*program, best_device());
    weights.initialize(7);
    auto saved = std::make_shared<weights::SavedModel>(weights::save_to_memory(weights, config, kPolicy));
    auto tensors = std::make_shared<io::MemoryTensors>();
    for (const weights::SavedTensor& t : saved->tensors)
      tensors->tensors.push_back({t.name, t.dtype, t.shape, t.bytes});
    tensors->keep = saved;
    source = weights::model_in_memory(saved->config_json, tensors);
    source.directory = folder.path();
  }

  void write(const std::string& name, const std::string& text) const { std::ofstream(folder / name) << text; }
  Conversation conversation(std::int64_t max_new_tokens = 6) const {
    Settings settings;
    settings.max_new_tokens = max_new_tokens;
    return {source, kPolicy, settings, best_device()};
  }
  std::string error_of_format(const std::string& name) const {
    try {
      const PromptFormat format(source, name);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

  mantissa::testing::TemporaryFolder folder;
  weights::ModelSource source;
};

TEST_F(Conversations, PromptIsThatOfTheTemplate) {
  const PromptFormat format(source, "auto");
  EXPECT_EQ(format.ids_of({{"system", "b"}, {"user", "ac"}}),
            (std::vector<std::int32_t>{26, kBegin, 1, kEnd, kBegin, 0, 2, kEnd, kBegin}));
}

TEST_F(Conversations, TheTemplateOfRwkvEndsAnAnswerBeforeTheNextMessage) {
  EXPECT_EQ(PromptFormat(source, "rwkv").format().turn_ends(), std::vector<std::string>{"\n\nUser:"});
  EXPECT_TRUE(PromptFormat(source, "auto").format().turn_ends().empty());
  EXPECT_TRUE(PromptFormat(source, "chatml").format().turn_ends().empty());
}

TEST_F(Conversations, EndIdsComeFromTheFilesAndTheTemplate) {
  EXPECT_EQ(PromptFormat(source, "auto").ends(), std::vector<std::int32_t>{kEnd}) << "of the template";
  write("generation_config.json", R"({"eos_token_id": [3, 5]})");
  EXPECT_EQ(PromptFormat(source, "auto").ends(), (std::vector<std::int32_t>{3, 5, kEnd}));
  EXPECT_EQ(answer_ends(*tokenizer::make_tokenizer("byte"), nullptr, source), std::vector<std::int32_t>{0})
      << "without a template an answer ends as a document does";
  write("generation_config.json", "[");
  EXPECT_TRUE(has(error_of_format("auto"), "generation_config.json"));
}

TEST_F(Conversations, AnswersEqualThoseWithoutTheKeptCache) {
  Conversation kept = conversation();
  for (const char* text : {"hello", "abc", "xyz", "yes"}) {
    std::string told;
    const Answer answer = kept.ask(text, [&](std::string_view part) { told += part; }, {});
    EXPECT_EQ(told, answer.text);
    std::vector<Message> messages = kept.messages();
    messages.pop_back();
    const std::vector<std::int32_t> prompt = kept.format().ids_of(messages);
    ASSERT_EQ(answer.prompt_tokens, std::ssize(prompt));
    rollout::KeptSequence fresh(source, kPolicy, best_device());
    rollout::GenerateOptions options;
    options.max_new_tokens = std::ssize(answer.ids);
    const rollout::Continuation alone = fresh.extend(prompt, options);
    EXPECT_EQ(alone.kept, 0);
    EXPECT_EQ(answer.ids, alone.generation.ids);
    EXPECT_EQ(answer.log_probs, alone.generation.log_probs);
  }
}

TEST_F(Conversations, OnlyTokensAfterTheCommonPrefixAreComputed) {
  Conversation talk = conversation();
  EXPECT_EQ(talk.ask("abc", {}, {}).kept_tokens, 0);
  const Answer second = talk.ask("d", {}, {});
  EXPECT_GE(second.kept_tokens, 6) << "<s> a b c <e> <s>";
  EXPECT_LT(second.kept_tokens, second.prompt_tokens);
  talk.reset();
  EXPECT_TRUE(talk.messages().empty());
  EXPECT_EQ(talk.ask("abz", {}, {}).kept_tokens, 3) << "<s> a b";
  talk.set_system("q");
  EXPECT_EQ(talk.messages().front().content, "q");
  EXPECT_EQ(talk.ask("a", {}, {}).kept_tokens, 0) << "the new system message comes first";
}

TEST_F(Conversations, StopEndsTheAnswerAndTheNextOneIsUnaffected) {
  Conversation stopped = conversation(), whole = conversation();
  std::stop_source stop;
  std::int64_t parts = 0;
  const auto stop_early = [&](std::string_view) {
    if (++parts == 2) stop.request_stop();
  };
  const Answer answer = stopped.ask("abc", stop_early, stop.get_token());
  const Answer all = whole.ask("abc", {}, {});
  ASSERT_GT(all.text.size(), 2U);
  EXPECT_EQ(answer.end, End::interrupted);
  EXPECT_TRUE(all.text.starts_with(answer.text));
  stopped.reset();
  whole.reset();
  EXPECT_EQ(stopped.ask("abd", {}, {}).log_probs, whole.ask("abd", {}, {}).log_probs);
}

TEST_F(Conversations, FullContextIsAnErrorThatKeepsTheMessages) {
  json endless = tokenizer_json();  // no token ends an answer
  for (json& token : endless["added_tokens"]) token["special"] = false;
  write("tokenizer.json", endless.dump());
  Conversation talk = conversation(1000);
  const Answer first = talk.ask("a", {}, {});
  const std::size_t messages = talk.messages().size();
  ASSERT_EQ(first.end, End::context);
  EXPECT_EQ(first.prompt_tokens + std::ssize(first.ids), kContext);
  try {
    talk.ask(std::string(kContext, 'b'), {}, {});
    FAIL() << "no error";
  } catch (const ConfigError& e) {
    EXPECT_TRUE(has(e.what(), "max_position_embeddings")) << e.what();
    EXPECT_TRUE(has(e.what(), "/reset")) << e.what();
  }
  EXPECT_EQ(talk.messages().size(), messages);
}

TEST_F(Conversations, MissingFilesAndWrongNamesAreErrorsWithTheFix) {
  EXPECT_TRUE(has(error_of_format("chatlm"), "did you mean chatml?"));
  write("tokenizer_config.json", "{}");
  for (const char* part : {"no chat template", "--template", "chatml, llama3, qwen, mistral, gemma, rwkv"})
    EXPECT_TRUE(has(error_of_format("auto"), part)) << part;
  EXPECT_EQ(error_of_format("chatml"), "");
  fs::remove(folder / "tokenizer.json");
  EXPECT_TRUE(has(error_of_format("auto"), "no tokenizer"));
}

TEST_F(Conversations, AMessageWithATokenBeyondTheModelIsRefusedAndTheConversationGoesOn) {
  json tokenizer = tokenizer_json();
  tokenizer["added_tokens"].push_back(special(kVocabulary, "<x>"));
  write("tokenizer.json", tokenizer.dump());
  Conversation talk = conversation();
  try {
    talk.ask("a<x>b", {}, {});
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_TRUE(has(e.what(), "the conversation: the token \"<x>\" has the id 29")) << e.what();
  }
  EXPECT_TRUE(talk.messages().empty());
  EXPECT_FALSE(talk.ask("ab", {}, {}).ids.empty());
}

TEST_F(Conversations, AJinjaFileReplacesTheModelsTemplate) {
  write("short.jinja", "{% for m in messages %}{{ m.content }}<e>{% endfor %}");
  const std::string file = (folder / "short.jinja").string();
  const PromptFormat format(source, file);
  EXPECT_EQ(format.template_name(), file);
  EXPECT_EQ(format.ids_of({{"user", "ab"}}), (std::vector<std::int32_t>{0, 1, kEnd}));
  write("bad.jinja", "{% for %}");
  EXPECT_TRUE(has(error_of_format((folder / "bad.jinja").string()), (folder / "bad.jinja").string()));
  EXPECT_TRUE(has(error_of_format((folder / "none.jinja").string()), "none.jinja"));
  EXPECT_TRUE(has(error_of_format(folder.path().string()), "not a regular file"));
  EXPECT_TRUE(has(error_of_format("chatmll"), "did you mean chatml?"));
}

}  // namespace
}  // namespace mantissa::dialog
