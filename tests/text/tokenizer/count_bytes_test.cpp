// Bytes of text by token: characters cut between tokens, spaces that decoders remove, and special tokens.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mantissa/text/tokenizer/byte_level.h"
#include "mantissa/text/tokenizer/tokenizer.h"
#include "text/rows/temp_files.h"

namespace mantissa::tokenizer {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

json added_token(int id, const char* content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

json bpe(const json& vocab, const json& decoder, const json& pre_tokenizer, const json& normalizer) {
  return {{"version", "1.0"},
          {"added_tokens", {added_token(0, "<s>"), added_token(1, "</s>")}},
          {"normalizer", normalizer},
          {"pre_tokenizer", pre_tokenizer},
          {"post_processor", nullptr},
          {"decoder", decoder},
          {"model", {{"type", "BPE"}, {"byte_fallback", true}, {"vocab", vocab}, {"merges", json::array()}}}};
}

/// Tokens of one byte after "<s>" and "</s>", and the piece of a space, as in Llama 2.
json byte_fallback() {
  json vocab = {{"<s>", 0}, {"</s>", 1}};
  for (int byte = 0; byte < 256; ++byte) vocab[fmt::format("<0x{:02X}>", byte)] = byte + 2;
  vocab["▁"] = 258;
  vocab["a"] = 259;
  const json decoders = {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                         {{"type", "ByteFallback"}},
                         {{"type", "Fuse"}},
                         {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}};
  const json normalizers = {{{"type", "Prepend"}, {"prepend", "▁"}},
                            {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}};
  return bpe(vocab, {{"type", "Sequence"}, {"decoders", decoders}}, nullptr,
             {{"type", "Sequence"}, {"normalizers", normalizers}});
}

/// A token for each byte, as in GPT-2.
json byte_level() {
  json vocab = {{"<s>", 0}, {"</s>", 1}};
  for (int byte = 0; byte < 256; ++byte)
    vocab[to_byte_characters(std::string(1, static_cast<char>(byte)))] = byte + 2;
  return bpe(vocab, {{"type", "ByteLevel"}}, {{"type", "ByteLevel"}, {"add_prefix_space", false}}, nullptr);
}

class CountBytes : public ::testing::Test {
 protected:
  std::unique_ptr<Tokenizer> make(const json& file) const {
    return make_tokenizer(files_.write("tokenizer.json", file.dump()));
  }
  text::TempFiles files_;
};

TEST_F(CountBytes, OfPartsOfAStreamAddUpWhereverItIsCut) {
  const std::string text = "a größer 日本 🎉a";
  for (const json& file : {byte_fallback(), byte_level()}) {
    const auto tokenizer = make(file);
    const Ids ids = tokenizer->encode(text);
    ASSERT_EQ(tokenizer->decode(ids), text);
    EXPECT_EQ(added_bytes(*tokenizer, ids, 0), static_cast<std::int64_t>(text.size()));
    for (std::size_t cut = 0; cut <= ids.size(); ++cut) {
      const auto before = added_bytes(*tokenizer, std::span(ids).first(cut), 0);
      EXPECT_EQ(before + added_bytes(*tokenizer, ids, cut), static_cast<std::int64_t>(text.size())) << cut;
    }
    // A row knows only the id before its targets.
    std::int64_t sum = added_bytes(*tokenizer, std::span(ids).first(1), 0);
    constexpr std::size_t kRow = 3;
    for (std::size_t begin = 0; begin + 1 < ids.size(); begin += kRow)
      sum +=
          added_bytes(*tokenizer, std::span(ids).subspan(begin, std::min(kRow + 1, ids.size() - begin)), 1);
    EXPECT_EQ(sum, static_cast<std::int64_t>(text.size()));
  }
}

TEST_F(CountBytes, OfACharacterThatTheLastIdLeavesIncompleteAreThoseOfItsTokens) {
  for (const json& file : {byte_fallback(), byte_level()}) {
    const auto tokenizer = make(file);
    const Ids ids = {0xE6 + 2, 0x97 + 2, 0xA5 + 2, 0xE6 + 2, 0x9C + 2};  // 日, and two bytes of 本
    EXPECT_EQ(added_bytes(*tokenizer, ids, 0), 5);
    EXPECT_EQ(added_bytes(*tokenizer, ids, 3), 2);
    // A stream holds these two back to its end, where they are U+FFFD.
    TextStream stream(*tokenizer);
    for (const std::int32_t id : ids) stream.push(id);
    EXPECT_FALSE(stream.finish().empty());
  }
}

TEST_F(CountBytes, OfCompleteTextAreThoseThatAStreamReturns) {
  const auto tokenizer = make(byte_fallback());
  const Ids ids = tokenizer->encode("größer\xEF\xBF\xBD");  // ends with a U+FFFD of the text itself
  TextStream stream(*tokenizer);
  std::string text;
  for (const std::int32_t id : ids) text += stream.push(id);
  const std::string held_back = stream.finish();
  EXPECT_EQ(text, "");
  EXPECT_EQ(held_back, "größer\xEF\xBF\xBD");  // a run of byte tokens has no text before its end
  EXPECT_EQ(added_bytes(*tokenizer, ids, 0), static_cast<std::int64_t>((text + held_back).size()));
}

TEST_F(CountBytes, IncludeTheSpaceOfAWordOnlyWhereTheTextHasIt) {
  const auto tokenizer = make(byte_fallback());
  const Ids ids = tokenizer->encode("a a");
  ASSERT_EQ(ids, (Ids{258, 259, 258, 259}));
  EXPECT_EQ(added_bytes(*tokenizer, ids, 0), 3);
  EXPECT_EQ(added_bytes(*tokenizer, ids, 1), 3);  // the first piece has no text
  EXPECT_EQ(added_bytes(*tokenizer, ids, 2), 2);
}

TEST_F(CountBytes, OfSpecialTokensAreNoneAndTheTextAfterThemBeginsAnew) {
  const auto tokenizer = make(byte_fallback());
  const Ids documents = {0, 258, 259, 1, 258, 259, 259, 1};  // "a" and "aa"
  EXPECT_EQ(added_bytes(*tokenizer, documents, 0), 3);
  EXPECT_EQ(added_bytes(*tokenizer, documents, 1), 3);
  EXPECT_EQ(added_bytes(*tokenizer, documents, 4), 2);
  EXPECT_EQ(added_bytes(*tokenizer, documents, 6), 1);
  EXPECT_EQ(added_bytes(*tokenizer, Ids{1, 1, 0}, 1), 0);
  EXPECT_EQ(added_bytes(*tokenizer, {}, 0), 0);
}

TEST(CountBytesOfBytes, AreTheNumberOfIds) {
  EXPECT_EQ(added_bytes(*make_tokenizer("byte"), Ids{0, 200, 7, 255}, 1), 3);
}

}  // namespace
}  // namespace mantissa::tokenizer
