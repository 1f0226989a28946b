// The tokenizers of GGUF files, for the text of their models.
#include "files/convert/gguf_testing.h"
#include "mantissa/core/base/error.h"
#include "mantissa/files/gguf/gguf_file.h"
#include "mantissa/setup/data/file_rows.h"
#include "mantissa/setup/data/tokenizer.h"
#include "text/rows/temp_files.h"

namespace mantissa::data {
namespace {

using test::message_of;
using text::has;

class TokenizerOfGguf : public convert::GgufModel {
 protected:
  /// Writes a model of `entries` entries, with `vocabulary` in its header.
  template <class Vocabulary>
  void write_model(std::int64_t entries, const Vocabulary& vocabulary) const {
    nlohmann::json config = convert::small_models().front().config;
    config["vocab_size"] = entries;
    write(config);
    convert_to_gguf();
    const gguf::GgufFile old(file());
    gguf::HeaderWriter header;
    for (const auto& [key, value] : old.header().metadata) {
      if (!key.starts_with("tokenizer.")) convert::add_value(header, key, value);
    }
    vocabulary(header);
    std::vector<gguf::TensorToStore> tensors;
    for (const gguf::FileTensor& t : old.tensors())
      tensors.push_back({t.name, static_cast<gguf::TensorType>(t.type->number), t.shape});
    std::string bytes = header.finish(tensors);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      bytes.resize(tensors[i].begin, '\0');
      const auto values = old.data(old.tensors()[i]);
      bytes.append(reinterpret_cast<const char*>(values.data()), values.size());
    }
    test::put(file(), bytes);
  }

  /// <|end|>, letters, digits and the space are 0 to 63. The model has no rows for "ab" and <extra>.
  static void more_than_the_model(gguf::HeaderWriter& header) {
    std::vector<std::string> tokens = {"<|end|>"};
    for (char c = 'a'; c <= 'z'; ++c) tokens.emplace_back(1, c);
    for (char c = 'A'; c <= 'Z'; ++c) tokens.emplace_back(1, c);
    for (char c = '0'; c <= '9'; ++c) tokens.emplace_back(1, c);
    for (const char* token : {"\u0120", "ab", "<extra>"}) tokens.emplace_back(token);
    std::vector<std::int32_t> kinds(tokens.size(), 1);
    kinds.front() = kinds.back() = 3;  // special
    header.add("tokenizer.ggml.model", "gpt2");
    header.add("tokenizer.ggml.pre", "gpt-2");
    header.add("tokenizer.ggml.tokens", tokens);
    header.add("tokenizer.ggml.token_type", kinds);
    header.add("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
    header.add("tokenizer.ggml.eos_token_id", 0U);
  }

  std::string text_file(const std::string& name, const std::string& text) const {
    test::put(folder / name, text);
    return (folder / name).string();
  }
  config::RunConfig run_over(const std::string& data, const std::string& tokenizer) const {
    return config::parse_config("[run]\nsteps = 1\n[model]\npath = \"" + file().string() +
                                    "\"\n[data]\nsource = \"" + data + "\"\nsequence_length = 4\n" +
                                    tokenizer + "[batch]\nglobal_batch_size = 1\n",
                                folder / "run.toml");
  }
};

TEST_F(TokenizerOfGguf, MayHaveMoreEntriesThanTheModelIfTheTextHasNone) {
  write_model(64, more_than_the_model);
  const weights::ModelSource source = weights::find_model(file());
  ASSERT_EQ(tokenizer_of(source)->vocabulary(), 66);
  ASSERT_EQ(source.config.vocab_size, 64);
  const std::string good = text_file("good.txt", "b a cd b a cd b a cd b a cd");
  EXPECT_EQ(file_rows(source, {good}, "auto", 4).rows, 6);
  const config::RunConfig run = run_over(good, "");
  EXPECT_EQ(run.data.tokenizer, "model");
  EXPECT_GT(load_dataset(run, source.config).training_rows(), 0);
  // The ids of both tokens are named with their line.
  for (const auto& [text, token] :
       {std::pair{"b a cd ab", "\"ab\" has the id 64"}, {"b a cd <extra>", "\"<extra>\" has the id 65"}}) {
    const std::string bad = text_file("bad.txt", text);
    for (const std::string& message :
         {message_of<ConfigError>([&] { file_rows(source, {bad}, "auto", 4); }),
          message_of<ConfigError>([&] { load_dataset(run_over(bad, ""), source.config); })}) {
      EXPECT_TRUE(has(message, "bad.txt:1: the token " + std::string(token))) << message;
      EXPECT_TRUE(has(message, "vocab_size is 64")) << message;
    }
  }
}

TEST_F(TokenizerOfGguf, IsNotReplacedByBytes) {
  write_model(256, more_than_the_model);
  const model::ModelConfig model = weights::find_model(file()).config;
  const std::string text = text_file("text.txt", "text and more text");
  const std::string message =
      message_of<ConfigError>([&] { load_dataset(run_over(text, "tokenizer = \"byte\"\n"), model); });
  EXPECT_TRUE(has(message, "the ids of this model are those of " + file().string())) << message;
  EXPECT_TRUE(has(message, "data.tokenizer = \"model\"")) << message;
}

TEST_F(TokenizerOfGguf, WithoutAVocabularyIsThatOfBytesForAModelWith256Entries) {
  const auto none = [](gguf::HeaderWriter& header) { header.add("tokenizer.ggml.model", "none"); };
  write_model(256, none);
  const weights::ModelSource source = weights::find_model(file());
  ASSERT_NE(tokenizer_of(source), nullptr);
  EXPECT_EQ(tokenizer_of(source)->name(), "byte");
  const std::string text = text_file("text.txt", "text and more text");
  EXPECT_EQ(file_rows(source, {text}, "auto", 4).rows, 4);
  for (const char* tokenizer : {"", "tokenizer = \"byte\"\n"})
    EXPECT_GT(load_dataset(run_over(text, tokenizer), source.config).training_rows(), 0) << tokenizer;
  write_model(64, none);
  const std::string message =
      message_of<ConfigError>([&] { file_rows(weights::find_model(file()), {text}, "auto", 4); });
  EXPECT_TRUE(has(message, "has a vocabulary of 64 entries and no tokenizer file")) << message;
}

TEST_F(TokenizerOfGguf, OfAnUnsupportedKindIsNotBytes) {
  write_model(256, more_than_the_model);
  std::string bytes = test::contents_of(file());
  bytes.replace(bytes.find("gpt2"), 4, "bert");
  test::put(file(), bytes);
  const weights::ModelSource source = weights::find_model(file());
  EXPECT_EQ(tokenizer_of(source), nullptr);
  const std::string text = text_file("text.txt", "text and more text");
  for (const std::string& message :
       {message_of<ConfigError>([&] { file_rows(source, {text}, "auto", 4); }),
        message_of<ConfigError>([&] { load_dataset(run_over(text, ""), source.config); }),
        message_of<ConfigError>(
            [&] { load_dataset(run_over(text, "tokenizer = \"byte\"\n"), source.config); }),
        message_of<ConfigError>([&] { make_tokenizer(file().string()); })}) {
    EXPECT_TRUE(has(message, "the vocabulary of " + file().string() + " is not supported")) << message;
  }
}

}  // namespace
}  // namespace mantissa::data
