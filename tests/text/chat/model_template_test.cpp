// The template and the special tokens of a model directory.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "mantissa/core/base/error.h"
#include "mantissa/text/chat/templates.h"

namespace mantissa::chat {
namespace {

namespace fs = std::filesystem;

class ModelTemplates : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        fs::temp_directory_path() /
        ("mantissa_chat_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((directory_ / name).parent_path());
    std::ofstream(directory_ / name) << text;
  }
  fs::path directory_;
};

TEST_F(ModelTemplates, AStringInTheTokenizerConfigIsFoundWithItsTokens) {
  write(
      "tokenizer_config.json",
      R"({"chat_template": "{{ bos_token }}", "bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>",
                                     "pad_token": null, "extra_special_tokens": {"image_token": "<img>"}})");
  const auto found = find_model_template(directory_);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->source, "{{ bos_token }}");
  EXPECT_EQ(found->name, (directory_ / "tokenizer_config.json").string() + ": chat_template");
  EXPECT_EQ(found->special_tokens.dump(), R"({"bos_token":"<s>","eos_token":"</s>","image_token":"<img>"})");
  EXPECT_EQ(special_tokens(directory_), found->special_tokens);
}

TEST_F(ModelTemplates, AFileComesBeforeTheConfig) {
  write("tokenizer_config.json", R"({"chat_template": "old", "eos_token": "</s>"})");
  write("chat_template.jinja", "new");
  const auto found = find_model_template(directory_);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->source, "new");
  EXPECT_EQ(found->special_tokens["eos_token"], "</s>");
}

TEST_F(ModelTemplates, NamedTemplatesAreChosenByName) {
  write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]})");
  write("additional_chat_templates/rag.jinja", "c");
  EXPECT_EQ(find_model_template(directory_)->source, "a");
  EXPECT_EQ(find_model_template(directory_, "tool_use")->source, "b");
  EXPECT_EQ(find_model_template(directory_, "rag")->source, "c");
  EXPECT_THROW(find_model_template(directory_, "nosuch"), ConfigError);
}

TEST_F(ModelTemplates, ADirectoryWithoutOneHasNone) {
  EXPECT_FALSE(find_model_template(directory_));
  EXPECT_TRUE(special_tokens(directory_).empty());
  write("tokenizer_config.json", R"({"chat_template": null})");
  EXPECT_FALSE(find_model_template(directory_));
}

TEST_F(ModelTemplates, DamagedFilesAreErrors) {
  for (const char* damaged :
       {"{", "[]", R"({"chat_template": 1})", R"({"chat_template": [{"name": "default"}]})"}) {
    write("tokenizer_config.json", damaged);
    EXPECT_THROW(find_model_template(directory_), FileError) << damaged;
  }
}

}  // namespace
}  // namespace mantissa::chat
