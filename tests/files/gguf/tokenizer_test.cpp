// Tokenizers in GGUF files: tokenizer.json to metadata and back.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"
#include "mantissa/files/gguf/read_tokenizer.h"
#include "mantissa/files/gguf/sentencepiece_merges.h"
#include "mantissa/files/gguf/special_tokens.h"
#include "mantissa/files/gguf/split_patterns.h"
#include "mantissa/files/gguf/write_tokenizer.h"

namespace mantissa::gguf {
namespace {

using nlohmann::json;
using Files = std::vector<std::pair<std::string, std::string>>;

class GgufTokenizer : public test::TemporaryFolder {
 protected:
  /// Writes a file without tensors, with `more` before the tokenizer.
  template <class Write>
  GgufFile written(const Write& write) const {
    HeaderWriter header;
    header.add("general.architecture", "llama");
    write(header);
    test::put(folder / "x.gguf", header.finish({}));
    return GgufFile(folder / "x.gguf");
  }

  /// Returns the notes of writing `files` and config.json's fields, and the file.
  std::pair<std::vector<std::string>, GgufFile> header_of(const Files& files, const json& fields,
                                                          std::int64_t vocabulary) const {
    model::ModelConfig config;
    config.vocab_size = vocabulary;
    config.source = fields;
    std::vector<std::string> notes;
    GgufFile file = written([&](HeaderWriter& header) {
      notes = write_tokenizer(
          [&](std::string_view name) -> std::optional<std::string> {
            for (const auto& [known, text] : files) {
              if (known == name) return text;
            }
            return std::nullopt;
          },
          "m", config, header);
    });
    return {std::move(notes), std::move(file)};
  }

  /// Returns the notes of writing `files`, and the tokenizer that is read again.
  std::pair<std::vector<std::string>, TokenizerFiles> through(const Files& files,
                                                              std::int64_t vocabulary) const {
    const auto [notes, file] = header_of(files, json::object(), vocabulary);
    return {notes, read_tokenizer(file)};
  }

  static json file_of(const TokenizerFiles& files, const std::string& name) {
    for (const auto& [known, text] : files.files) {
      if (known == name) return json::parse(text);
    }
    return {};
  }
};

json added(int id, const char* content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

json byte_level(const SplitPattern& split) {
  json step = {
      {"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  json post = step;
  post["trim_offsets"] = false;
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", {added(0, "<|end|>", true), added(5, "<think>", false)}},
          {"normalizer", split.normalizes ? json({{"type", "NFC"}}) : json()},
          {"pre_tokenizer", pre_tokenizer(split)},
          {"post_processor", post},
          {"decoder", step},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", split.ignores_merges},
            {"vocab", {{"<|end|>", 0}, {"a", 1}, {"b", 2}, {"ab", 3}, {"aba", 4}, {"<think>", 5}}},
            {"merges", json::parse(R"([["a", "b"], ["ab", "a"]])")}}}};
}

TEST_F(GgufTokenizer, TokensWithoutARowInTheModelAreLeftOutWithTheirMergesAndANote) {
  json tokenizer = byte_level(*find_split("smollm"));
  tokenizer["added_tokens"].push_back(added(6, "<|extra|>", true));
  const auto [one, same] = through({{"tokenizer.json", tokenizer.dump()}}, 6);
  ASSERT_EQ(one.size(), 1U);
  EXPECT_NE(one.front().find("1 token of tokenizer.json left out"), std::string::npos) << one.front();
  EXPECT_NE(one.front().find("\"<|extra|>\" with the id 6"), std::string::npos) << one.front();
  EXPECT_EQ(file_of(same, "tokenizer.json"), byte_level(*find_split("smollm")));
  const auto [notes, fewer] = through({{"tokenizer.json", tokenizer.dump()}}, 4);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes.front().find("3 tokens"), std::string::npos) << notes.front();
  const json model = file_of(fewer, "tokenizer.json")["model"];
  EXPECT_EQ(model["vocab"], (json{{"<|end|>", 0}, {"a", 1}, {"b", 2}, {"ab", 3}}));
  EXPECT_EQ(model["merges"], json::parse(R"([["a", "b"]])"));
}

TEST_F(GgufTokenizer, ByteLevelBpeOfEverySplitComesBackUnchanged) {
  for (const char* name : {"gpt-2", "smollm", "llama-bpe", "qwen2", "tekken", "gpt-4o"}) {
    const json tokenizer = byte_level(*find_split(name));
    const json settings = {{"eos_token", "<|end|>"}, {"chat_template", "{{ x }}"}};
    const auto [notes, files] =
        through({{"tokenizer.json", tokenizer.dump()}, {"tokenizer_config.json", settings.dump()}}, 6);
    EXPECT_TRUE(notes.empty()) << name;
    EXPECT_EQ(file_of(files, "tokenizer.json"), tokenizer) << name;
    EXPECT_EQ(file_of(files, "tokenizer_config.json")["chat_template"], "{{ x }}");
    EXPECT_EQ(file_of(files, "tokenizer_config.json")["eos_token"], "<|end|>");
    EXPECT_EQ(file_of(files, "generation_config.json"), (json{{"eos_token_id", 0}}));
  }
}

TEST_F(GgufTokenizer, IdsOfSpecialTokensAreWrittenWithoutAVocabulary) {
  const json generation = {{"bos_token_id", 1}, {"eos_token_id", {2, 3, 4}}};
  const auto [notes, file] =
      header_of({{"generation_config.json", generation.dump()}}, {{"pad_token_id", 5}}, 6);
  EXPECT_EQ(file.text("tokenizer.ggml.model"), "none");
  EXPECT_EQ(file.integer("tokenizer.ggml.bos_token_id"), 1);
  EXPECT_EQ(file.integer("tokenizer.ggml.eos_token_id"), 2);
  EXPECT_EQ(file.integer("tokenizer.ggml.eot_token_id"), 3);
  EXPECT_EQ(file.integer("tokenizer.ggml.padding_token_id"), 5);
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_NE(notes[1].find("left out: 4"), std::string::npos) << notes[1];
  const SpecialTokens special = special_tokens(file);
  EXPECT_EQ(special.eos, 2);
  EXPECT_FALSE(special.add_bos);
  const GgufFile other =
      header_of({{"generation_config.json", generation.dump()}}, {{"eos_token_id", 5}}, 5).second;
  EXPECT_EQ(other.integer("tokenizer.ggml.eos_token_id"), 2) << "5 is not in the vocabulary";
}

TEST_F(GgufTokenizer, AnUnknownSplitIsReportedAndNoTokenizerWritten) {
  const GgufFile file = written([](HeaderWriter& header) {
    header.add("tokenizer.ggml.model", "gpt2");
    header.add("tokenizer.ggml.pre", "martian");
    header.add("tokenizer.ggml.tokens", Texts{"a"});
  });
  const TokenizerFiles files = read_tokenizer(file);
  ASSERT_EQ(files.notes.size(), 1U);
  EXPECT_NE(files.notes.front().find("\"martian\""), std::string::npos);
  EXPECT_TRUE(file_of(files, "tokenizer.json").is_null());
}

TEST_F(GgufTokenizer, OfEqualTokensTheLastIsWritten) {
  const GgufFile file = written([](HeaderWriter& header) {
    header.add("tokenizer.ggml.model", "gpt2");
    header.add("tokenizer.ggml.pre", "gpt-2");
    header.add("tokenizer.ggml.tokens", Texts{"a", "b", "a"});
    header.add("tokenizer.ggml.merges", Texts{});
  });
  EXPECT_EQ(file_of(read_tokenizer(file), "tokenizer.json")["model"]["vocab"], (json{{"b", 1}, {"a", 2}}));
}

TEST_F(GgufTokenizer, ATokenizerThatGgufCannotNameIsReported) {
  json tokenizer = byte_level(*find_split("gpt-2"));
  tokenizer["normalizer"] = {{"type", "Lowercase"}};
  const auto [notes, files] = through({{"tokenizer.json", tokenizer.dump()}}, 6);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes.front().find("no vocabulary"), std::string::npos);
}

TEST_F(GgufTokenizer, ASplitWithValuesOfOtherTypesHasNoName) {
  for (const char* step :
       {R"({"type": "ByteLevel", "add_prefix_space": "no"})", R"({"type": "ByteLevel", "use_regex": [1]})",
        R"({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": 3},
                                                                     {"type": "ByteLevel"}]})",
        R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": 7},
                                                                      "behavior": [], "invert": "x"},
                                                                     {"type": "ByteLevel"}]})"}) {
    json tokenizer = byte_level(*find_split("gpt-2"));
    tokenizer["pre_tokenizer"] = json::parse(step);
    const auto [notes, files] = through({{"tokenizer.json", tokenizer.dump()}}, 6);
    ASSERT_EQ(notes.size(), 1U) << step;
    EXPECT_NE(notes.front().find("no vocabulary"), std::string::npos) << step;
  }
}

TEST_F(GgufTokenizer, UnusedIdsArePadded) {
  const json tokenizer = byte_level(*find_split("gpt-2"));
  const auto [notes, files] = through({{"tokenizer.json", tokenizer.dump()}}, 8);
  EXPECT_EQ(file_of(files, "tokenizer.json")["model"]["vocab"]["[PAD7]"], 7);
}

TEST_F(GgufTokenizer, SentencePieceScoresBecomeMergesAndBack) {
  const GgufFile file = written([](HeaderWriter& header) {
    header.add("tokenizer.ggml.model", "llama");
    header.add("tokenizer.ggml.tokens", Texts{"<unk>", "<s>", "<0x41>", "a", "b", "ab", "ba", "aba"});
    header.add("tokenizer.ggml.scores", std::vector<float>{0, 0, 0, -9, -9, -2, -1, -3});
    header.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{2, 3, 6, 1, 1, 1, 1, 1});
    header.add("tokenizer.ggml.bos_token_id", 1U);
    header.add("tokenizer.ggml.unknown_token_id", 0U);
  });
  const TokenizerFiles files = read_tokenizer(file);
  const json tokenizer = file_of(files, "tokenizer.json");
  EXPECT_EQ(tokenizer["model"]["merges"],
            json::parse(R"([["b", "a"], ["a", "b"], ["ab", "a"], ["a", "ba"]])"));
  EXPECT_EQ(tokenizer["model"]["byte_fallback"], true);
  EXPECT_EQ(tokenizer["post_processor"]["single"][0]["SpecialToken"]["id"], "<s>");
  Files again;
  for (const auto& entry : files.files) again.push_back(entry);
  const auto [notes, back] = through(again, 8);
  EXPECT_TRUE(notes.empty());
  EXPECT_EQ(file_of(back, "tokenizer.json"), tokenizer);
}

TEST(SentencePieceMerges, TokensWhoseMergesAlternateShareAScore) {
  const std::vector<std::string> tokens = {"a", "aa", "aaa", "aaaa", "b", "ab"};
  const std::vector<double> scores = {0, -5, -5, -5, 0, -7};
  const auto merges = sentencepiece_merges(tokens, scores);
  EXPECT_EQ(merges.front(), (std::pair<std::string, std::string>{"aaa", "a"}));
  const std::vector<float> again = merge_scores(tokens, merges);
  EXPECT_EQ(sentencepiece_merges(tokens, {again.begin(), again.end()}), merges);
}

TEST_F(GgufTokenizer, ListsThatContradictEachOtherAreErrors) {
  const auto message = [&](const auto& write) {
    return test::message_of<FileError>([&] { read_tokenizer(written(write)); });
  };
  const auto begin = [](HeaderWriter& header, const char* model) {
    header.add("tokenizer.ggml.model", model);
    header.add("tokenizer.ggml.pre", "gpt-2");
    header.add("tokenizer.ggml.tokens", Texts{"a", "b"});
  };
  EXPECT_NE(message([&](HeaderWriter& h) { begin(h, "gpt2"); }).find("merges is missing"), std::string::npos);
  EXPECT_NE(message([&](HeaderWriter& h) { begin(h, "llama"); }).find("one score"), std::string::npos);
  EXPECT_NE(message([&](HeaderWriter& h) {
              begin(h, "gpt2");
              h.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{1});
            }).find("types of 1"),
            std::string::npos);
  EXPECT_NE(message([&](HeaderWriter& h) {
              begin(h, "gpt2");
              h.add("tokenizer.ggml.merges", Texts{"ab"});
            }).find("not a pair"),
            std::string::npos);
  EXPECT_NE(message([&](HeaderWriter& h) {
              begin(h, "gpt2");
              h.add("tokenizer.ggml.eos_token_id", 2U);
            }).find("not in the vocabulary"),
            std::string::npos);
}

}  // namespace
}  // namespace mantissa::gguf
