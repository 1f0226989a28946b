// RWKV vocabularies: Python literals, the longest match, and damaged files.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "mantissa/core/base/error.h"
#include "mantissa/text/tokenizer/python_literal.h"
#include "mantissa/text/tokenizer/tokenizer.h"
#include "mantissa/text/tokenizer/trie.h"
#include "text/rows/temp_files.h"
#include "text/tokenizer/streams.h"

namespace mantissa::tokenizer {
namespace {

using text::error_of;
using text::has;

/// Returns a vocabulary with each byte, as id 1 + byte, and then `more`.
std::string vocabulary(const std::string& more) {
  std::string lines;
  for (int byte = 0; byte < 256; ++byte) lines += fmt::format("{} b'\\x{:02x}' 1\n", byte + 1, byte);
  return lines + more;
}

TEST(PythonLiteral, IsReadAsPythonReadsIt) {
  const std::pair<const char*, std::string> cases[] = {
      {"'a b'", "a b"},
      {R"("it's")", "it's"},
      {R"('\'\\\"')", "'\\\""},
      {R"('\n\r\t\a\b\f\v')", "\n\r\t\a\b\f\v"},
      {R"('\xe9\u65e5\U0001f600')", "\xC3\xA9\xE6\x97\xA5\xF0\x9F\x98\x80"},
      {R"(b'\xe9\x00z')", std::string("\xE9\0z", 3)},
      {R"('\0\1234')", std::string("\0S4", 3)},
      {"'\xE6\x97\xA5'", "\xE6\x97\xA5"}};
  for (const auto& [literal, bytes] : cases) EXPECT_EQ(bytes_of_literal(literal), bytes) << literal;
}

TEST(PythonLiteral, OfAnyOtherKindIsRefused) {
  for (const char* literal : {"",
                              "'",
                              "a",
                              "'a",
                              "'a\"",
                              "'a'b'",
                              "r'a'",
                              "f'{1}'",
                              "''.join([])",
                              R"('\q')",
                              R"('\x1')",
                              R"('\ud800')",
                              R"('\U00110000')",
                              R"('\N{DIGIT ONE}')",
                              R"(b'\u0041')",
                              R"(b'\400')",
                              "b'\xC3\xA9'",
                              "'\xC3'",
                              R"('a\')",
                              "__import__('os')"})
    EXPECT_EQ(bytes_of_literal(literal), std::nullopt) << literal;
}

TEST(Trie, FindsTheLongestEntryThatBeginsTheText) {
  const Trie trie({{"b", 0}, {"abc", 1}, {"a", 2}, {"abcde", 3}, {std::string("\xFF\0", 2), 4}});
  const auto found = [&](std::string_view text) {
    const Trie::Match m = trie.longest(text);
    return std::pair(m.id, m.length);
  };
  using Match = std::pair<std::int32_t, std::size_t>;
  EXPECT_EQ(found("abcd"), Match(1, 3));
  EXPECT_EQ(found("abcde"), Match(3, 5));
  EXPECT_EQ(found("ab"), Match(2, 1));
  EXPECT_EQ(found(std::string_view("\xFF\0x", 3)), Match(4, 2));
  EXPECT_EQ(found("c"), Match(-1, 0));
  EXPECT_EQ(found(""), Match(-1, 0));
}

TEST(RwkvTokenizer, TakesTheLongestTokenAndReturnsTheBytes) {
  text::TempFiles files;
  const auto tokenizer = make_tokenizer(files.write(
      "rwkv_vocab_small.txt", vocabulary("257 'ab' 2\n258 'abcd' 4\r\n300 '日本' 6\n301 b'\\xe6\\x97' 2\n")));
  EXPECT_EQ(tokenizer->vocabulary(), 302);
  const std::string text = "abcabcd\xE6\x97\xA5\xE6\x9C\xAC\xE6\x97z\xFF" + std::string(1, '\0');
  const std::vector<std::int32_t> ids = {257, 'c' + 1, 258, 300, 301, 'z' + 1, 256, 1};
  EXPECT_EQ(tokenizer->encode(text), ids);
  EXPECT_EQ(tokenizer->decode(ids), text);
  EXPECT_EQ(tokenizer->encode(""), std::vector<std::int32_t>());
  EXPECT_EQ(tokenizer->encode(std::string(1'000'000, 'a')), std::vector<std::int32_t>(1'000'000, 'a' + 1));
  EXPECT_EQ(tokenizer->separator(), 0);
  EXPECT_EQ(tokenizer->eos(), 0);
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{0, 257, 0}), "ab");
  EXPECT_EQ(tokenizer->id_of("abcd"), 258);
  EXPECT_EQ(tokenizer->id_of("abc"), std::nullopt);
  EXPECT_EQ(tokenizer->token_of(299), std::nullopt);
}

TEST(RwkvTokenizer, StreamsWholeCharacters) {
  text::TempFiles files;
  const auto tokenizer = make_tokenizer(files.write("rwkv_vocab.txt", vocabulary("")));
  TextStream stream(*tokenizer);
  std::vector<std::string> parts;
  for (const unsigned char byte : std::string("a\xE6\x97\xA5")) parts.push_back(stream.push(byte + 1));
  EXPECT_EQ(parts, (std::vector<std::string>{"a", "", "", "\xE6\x97\xA5"}));
  EXPECT_EQ(stream.push(0xE6 + 1), "");
  EXPECT_EQ(stream.finish(), "\xE6");
  expect_streams_join(*tokenizer, "rwkv");
  expect_streams_join(*make_tokenizer("byte"), "byte");
}

TEST(RwkvTokenizer, NeedsMemoryForItsTokensAndNotForTheIdsBetween) {
  text::TempFiles files;
  const auto pages = [] {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;  // of the address space
    return pages;
  };
  const std::string path = files.write("rwkv_vocab.txt", vocabulary("16777215 'ab' 2\n"));
  const std::size_t before = pages();
  const auto tokenizer = make_tokenizer(path);
  EXPECT_LT(pages() - before, std::size_t{32} << 8);  // 32 MiB; a token for each id would take 512
  EXPECT_EQ(tokenizer->vocabulary(), 16777216);
  EXPECT_EQ(tokenizer->encode("abc"), (std::vector<std::int32_t>{16777215, 'c' + 1}));
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{16777215}), "ab");
  EXPECT_FALSE(tokenizer->known(16777214));
}

TEST(RwkvTokenizer, OfADamagedFileIsOneErrorWithTheLine) {
  text::TempFiles files;
  const std::pair<const char*, const char*> cases[] = {
      {"257 'ab'\n", "line 257"},         {"x 'ab' 2\n", "id of 1 to"},
      {"0 'ab' 2\n", "id of 1 to"},       {"257 ab 2\n", "no Python string"},
      {"257 'ab' 3\n", "2 bytes"},        {"257 '' 0\n", "0 bytes"},
      {"256 'ab' 2\n", "id 256 occurs"},  {"257 'A' 1\n", "the same token"},
      {"99999999 'ab' 2\n", "id of 1 to"}};
  for (const auto& [line, message] : cases) {
    const std::string file = files.write("rwkv_vocab_bad.txt", vocabulary(line));
    const std::string error = error_of<FileError>([&] { make_tokenizer(file); });
    EXPECT_TRUE(has(error, file) && has(error, message)) << error;
  }
  const std::string empty = files.write("rwkv_vocab_empty.txt", "");
  EXPECT_TRUE(has(error_of<FileError>([&] { make_tokenizer(empty); }), "rwkv_vocab_empty.txt: is empty"));
  const std::string blank = files.write("rwkv_vocab_blank.txt", "\n");
  EXPECT_THROW(make_tokenizer(blank), FileError);
  const auto tokenizer = make_tokenizer(files.write("rwkv_vocab.txt", vocabulary("")));
  for (const std::int32_t bad : {-1, 257}) {
    const std::string error = error_of<ConfigError>([&] { tokenizer->decode(std::vector{65, bad}); });
    EXPECT_TRUE(has(error, std::to_string(bad)) && has(error, "position 1")) << error;
  }
}

}  // namespace
}  // namespace mantissa::tokenizer
