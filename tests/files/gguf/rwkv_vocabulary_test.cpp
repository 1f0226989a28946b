// RWKV vocabularies in GGUF files, and files of other generations.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"
#include "mantissa/files/gguf/foreign_model.h"
#include "mantissa/files/gguf/read_tokenizer.h"
#include "mantissa/files/gguf/rwkv_vocabulary.h"
#include "mantissa/files/gguf/special_tokens.h"
#include "mantissa/files/gguf/write_tokenizer.h"
#include "mantissa/text/tokenizer/kinds.h"

namespace mantissa::gguf {
namespace {

using nlohmann::json;

/// Every byte, and a few tokens of several.
const std::vector<std::string>& tokens() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> some;
    for (int byte = 0; byte < 256; ++byte) some.emplace_back(1, static_cast<char>(byte));
    for (const char* more : {"\n\n", "it's", "\"", "'\"'", "a\\b", "\xC3\xA9", "\xE4\xB8", " the"})
      if (std::string(more).size() > 1) some.emplace_back(more);
    return some;
  }();
  return all;
}

std::string vocabulary_text() {
  std::string text;
  for (std::size_t i = 0; i < tokens().size(); ++i) text += vocabulary_line(i + 1, tokens()[i]);
  return text;
}

class RwkvVocabulary : public test::TemporaryFolder {
 protected:
  template <class Write>
  GgufFile written(const Write& write, const char* architecture = "rwkv7") const {
    HeaderWriter header;
    header.add("general.architecture", architecture);
    write(header);
    test::put(folder / "x.gguf", header.finish({}));
    return GgufFile(folder / "x.gguf");
  }

  GgufFile written_vocabulary(std::int64_t size, std::vector<std::string>* notes = nullptr,
                              const char* template_text = nullptr) const {
    model::ModelConfig config;
    config.vocab_size = size;
    return written([&](HeaderWriter& header) {
      const auto found = write_tokenizer(
          [&](std::string_view name) -> std::optional<std::string> {
            if (name == "chat_template.jinja" && template_text != nullptr) return template_text;
            return name == kRwkvVocabulary ? std::optional(vocabulary_text()) : std::nullopt;
          },
          "m", config, header);
      if (notes != nullptr) *notes = found;
    });
  }

  static std::string file_of(const TokenizerFiles& files, const std::string& name) {
    for (const auto& [known, text] : files.files) {
      if (known == name) return text;
    }
    return {};
  }
};

TEST(RwkvTokens, AreEscapedAsPythonEscapesBytes) {
  EXPECT_EQ(escaped_token("\n\t\r\\"), "\\n\\t\\r\\\\");
  EXPECT_EQ(escaped_token(std::string("\0\x7f\xff", 3)), "\\x00\\x7f\\xff");
  EXPECT_EQ(escaped_token("it's"), "it's");
  EXPECT_EQ(escaped_token("\"'"), "\"\\'");
  for (const std::string& token : tokens()) EXPECT_EQ(token_bytes(escaped_token(token)), token);
  for (const char* broken : {"\\", "\\x", "\\x1", "\\xzz"}) EXPECT_FALSE(token_bytes(broken)) << broken;
}

TEST(RwkvTokens, LinesOfTheVocabularyAreReadBack) {
  const auto read = tokenizer::parse_rwkv_tokenizer(vocabulary_text(), "vocabulary");
  for (std::size_t i = 0; i < tokens().size(); ++i)
    EXPECT_EQ(read->token_of(static_cast<std::int32_t>(i + 1)), tokens()[i]) << i;
}

TEST_F(RwkvVocabulary, GoesThroughAGgufFileWithEveryToken) {
  const auto size = static_cast<std::int64_t>(tokens().size()) + 3;  // with rows that no token has
  const GgufFile file = written_vocabulary(size);
  EXPECT_EQ(file.text("tokenizer.ggml.model"), "rwkv");
  const Texts& stored = *file.texts("tokenizer.ggml.tokens");
  ASSERT_EQ(stored.size(), static_cast<std::size_t>(size));
  EXPECT_EQ(stored.front(), "<s>");
  EXPECT_EQ(stored.back(), "[PAD" + std::to_string(size - 1) + "]");
  EXPECT_EQ(stored[257], "\\n\\n");
  EXPECT_EQ(file.integer("tokenizer.ggml.eos_token_id"), 0);
  EXPECT_EQ(file.integer("tokenizer.ggml.eot_token_id"), 257);
  EXPECT_EQ(file.text("tokenizer.chat_template"), "rwkv-world");
  const TokenizerFiles read = read_tokenizer(file);
  EXPECT_EQ(file_of(read, kRwkvVocabulary), vocabulary_text());
  EXPECT_EQ(json::parse(file_of(read, "generation_config.json")),
            (json{{"bos_token_id", 0}, {"eos_token_id", 0}}));
  // It is the name of a template, and no template.
  EXPECT_FALSE(json::parse(file_of(read, "tokenizer_config.json")).contains("chat_template"));
}

TEST_F(RwkvVocabulary, AnEmptyLineEndsNoText) {
  const SpecialTokens special = special_tokens(written_vocabulary(300));
  EXPECT_EQ(special.eos, 0);
  EXPECT_FALSE(special.end_of_turn);
  EXPECT_FALSE(special.add_bos);
}

TEST_F(RwkvVocabulary, ItsChatTemplateIsKept) {
  const GgufFile file = written_vocabulary(300, nullptr, "{{ messages }}");
  EXPECT_EQ(json::parse(file_of(read_tokenizer(file), "tokenizer_config.json"))["chat_template"],
            "{{ messages }}");
}

TEST_F(RwkvVocabulary, ALargerOneThanTheModelsIsANote) {
  std::vector<std::string> notes;
  EXPECT_EQ(written_vocabulary(100, &notes).text("tokenizer.ggml.model"), "none");
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes.front().find("entries, and the model 100"), std::string::npos) << notes.front();
}

TEST_F(RwkvVocabulary, ABrokenEscapeIsAnError) {
  const GgufFile file = written([](HeaderWriter& header) {
    header.add("tokenizer.ggml.model", "rwkv");
    header.add("tokenizer.ggml.tokens", std::vector<std::string>{"<s>", "\\x1"});
  });
  EXPECT_NE(test::message_of<FileError>([&] { read_tokenizer(file); }).find("with the id 1"),
            std::string::npos);
}

TEST_F(RwkvVocabulary, OtherGenerationsAreNamed) {
  const auto message = [&](const char* architecture) {
    const auto file = std::make_shared<const GgufFile>(written([](HeaderWriter&) {}, architecture));
    return test::message_of<FileError>([&] { open_model(file, {}); });
  };
  EXPECT_NE(message("rwkv6").find("expected RWKV-7 (rwkv7), got the architecture rwkv6, RWKV-6 (x060)"),
            std::string::npos);
  EXPECT_NE(message("arwkv7").find("the norms and the MLP of Qwen"), std::string::npos);
}

struct WrongSize {
  const char* key;
  std::uint32_t value;
  const char* message;
};

class RwkvSizes : public RwkvVocabulary, public ::testing::WithParamInterface<WrongSize> {};

TEST_P(RwkvSizes, AreBlamedOnTheirKey) {
  HeaderWriter header;
  header.add("general.architecture", "rwkv7");
  const std::pair<const char*, std::uint32_t> sizes[] = {
      {"rwkv7.embedding_length", 8},         {"rwkv7.block_count", 1},
      {"rwkv7.feed_forward_length", 12},     {"rwkv7.wkv.head_size", 4},
      {"rwkv7.attention.head_count", 0},     {"rwkv7.attention.decay_lora_rank", 2},
      {"rwkv7.attention.iclr_lora_rank", 2}, {"rwkv7.attention.gate_lora_rank", 2},
      {"rwkv7.token_shift_count", 2},        {"rwkv7.attention.value_residual_mix_lora_rank", 2}};
  for (const auto& [key, value] : sizes)
    header.add(key, std::string_view(key) == GetParam().key ? GetParam().value : value);
  header.add("rwkv7.attention.layer_norm_epsilon", 1e-5F);
  std::vector<TensorToStore> tensors = {{"token_embd.weight", TensorType::f32, {16, 8}},
                                        {"blk.0.attn_norm.weight", TensorType::f32, {8}},
                                        {"blk.0.channel_mix_key.weight", TensorType::f32, {12, 8}},
                                        {"blk.0.time_mix_w1.weight", TensorType::f32, {2, 8}}};
  std::string bytes = header.finish(tensors);
  bytes.resize(tensors.back().begin + tensors.back().bytes());
  test::put(folder / "x.gguf", bytes);
  const auto file = std::make_shared<const GgufFile>(folder / "x.gguf");
  const std::string text = test::message_of<FileError>([&] { open_model(file, {}); });
  EXPECT_NE(text.find(GetParam().message), std::string::npos) << text;
}

const WrongSize kWrong[] = {
    {"rwkv7.wkv.head_size", 3,
     "rwkv7.wkv.head_size is 3, but it does not divide rwkv7.embedding_length, which is 8"},
    {"rwkv7.wkv.head_size", 0, "rwkv7.wkv.head_size is 0"},
    {"rwkv7.attention.decay_lora_rank", 5,
     "rwkv7.attention.decay_lora_rank is 5, but tensor blk.0.time_mix_w1.weight has 2 rows"},
    {"rwkv7.feed_forward_length", 13,
     "rwkv7.feed_forward_length is 13, but tensor blk.0.channel_mix_key.weight has 12 rows"},
    {"rwkv7.token_shift_count", 1, "rwkv7.token_shift_count is 1, which is not supported"},
    {"none", 0, "tensor \"token_embd_norm.weight\" is missing"},
};

INSTANTIATE_TEST_SUITE_P(Files, RwkvSizes, ::testing::ValuesIn(kWrong));

}  // namespace
}  // namespace mantissa::gguf
