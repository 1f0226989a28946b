// RWKV's "User: … Assistant: …" format: when it is the template, and the ids of its conversations.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "mantissa/core/base/error.h"
#include "mantissa/engine/model/family.h"
#include "mantissa/setup/data/answers.h"
#include "mantissa/setup/data/chat_format.h"
#include "mantissa/text/chat/templates.h"
#include "text/rows/temp_files.h"

namespace mantissa::data {
namespace {

using Ids = std::vector<std::int32_t>;
using Json = nlohmann::ordered_json;

/// A vocabulary with each byte as id 1 + byte, and "\n\n" as 257.
std::unique_ptr<tokenizer::Tokenizer> rwkv_tokenizer(const text::TempFiles& files) {
  std::string lines;
  for (int byte = 0; byte < 256; ++byte) lines += fmt::format("{} b'\\x{:02x}' 1\n", byte + 1, byte);
  return tokenizer::make_tokenizer(files.write("rwkv_vocab_test.txt", lines + "257 '\\n\\n' 2\n"));
}

const Json kTalk = {{{"role", "user"}, {"content", " Hi "}},
                    {{"role", "assistant"}, {"content", "Hello."}},
                    {{"role", "user"}, {"content", "And?"}},
                    {{"role", "assistant"}, {"content", "Done."}}};

weights::ModelSource model_of(const std::string& model_type) {
  weights::ModelSource source;
  source.config.model_type = model_type;
  return source;
}

class RwkvChat : public ::testing::Test {
 protected:
  ChatFormat format(const weights::ModelSource& source) const {
    return {source, "auto", "--template", *tokenizer};
  }
  text::TempFiles files;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer = rwkv_tokenizer(files);
};

TEST_F(RwkvChat, IsTheTemplateOfItsModelsWithoutOne) {
  EXPECT_EQ(format(model_of("rwkv7")).name(), "rwkv");
  EXPECT_EQ(format(model_of("rwkv7")).render(kTalk, false).text,
            "User: Hi\n\nAssistant: Hello.\n\nUser: And?\n\nAssistant: Done.");
  EXPECT_TRUE(text::has(text::error_of<ConfigError>([&] { format(model_of("llama")); }), "no chat template"));
  weights::ModelSource own = model_of("rwkv7");
  files.write("tokenizer_config.json", R"({"chat_template": "own"})");
  own.directory = std::filesystem::path(files.path("")).parent_path();
  EXPECT_EQ(format(own).render(kTalk, false).text, "own");
}

TEST_F(RwkvChat, IsTheTemplateOfItsFamilyAndEveryFamilyNamesABuiltInOneOrNone) {
  EXPECT_EQ(model::find_family("rwkv7")->chat_template, chat::kRwkvTemplate);
  for (const model::Family* family : model::all_families()) {
    const std::string_view name = family->chat_template;
    EXPECT_TRUE(name.empty() || chat::builtin_template(name)) << family->model_type << ": " << name;
  }
}

TEST_F(RwkvChat, IsTheTemplateThatLlamaCppNamesInPlaceOfOne) {
  weights::ModelSource gguf = model_of("rwkv7");
  gguf.files = std::make_shared<const std::map<std::string, std::string>>(
      std::map<std::string, std::string>{{"tokenizer_config.json", R"({"chat_template": "rwkv-world"})"}});
  EXPECT_EQ(format(gguf).name(), "rwkv");
}

TEST_F(RwkvChat, TrainsTheEndOfEveryAnswerAndEndsWithTheEndToken) {
  const AnswerIds row =
      answer_ids(format(model_of("rwkv7")), *tokenizer, kTalk, nullptr, TrainOn::assistant, "row");
  ASSERT_EQ(row.answers.size(), 2U);
  const auto ids_of = [&](std::size_t answer) {
    const auto [begin, end] = row.answers[answer];
    return Ids(row.ids.begin() + static_cast<std::ptrdiff_t>(begin),
               row.ids.begin() + static_cast<std::ptrdiff_t>(end));
  };
  Ids first = tokenizer->encode(" Hello."), last = tokenizer->encode(" Done.");
  first.push_back(257);
  last.push_back(0);
  EXPECT_EQ(ids_of(0), first);
  EXPECT_EQ(ids_of(1), last);
  EXPECT_EQ(row.ids.back(), 0);
  EXPECT_EQ(std::ranges::count(row.ids, 0), 1);
}

TEST_F(RwkvChat, DoesNotEndAConversationWhoseAnswerIsMissing) {
  Json asked = kTalk;
  asked.erase(3);
  const AnswerIds row =
      answer_ids(format(model_of("rwkv7")), *tokenizer, asked, nullptr, TrainOn::assistant, "row");
  EXPECT_EQ(std::ranges::count(row.ids, 0), 0);
}

}  // namespace
}  // namespace mantissa::data
