#include "mantissa/text/rows/pieces.h"

#include <gtest/gtest.h>

#include "text/rows/temp_files.h"

namespace mantissa::text {
namespace {

using Ids = std::vector<std::int32_t>;

/// Ids of bytes, but a line end before an "l" is one id with it.
class Joins final : public tokenizer::Tokenizer {
 public:
  Ids encode(std::string_view text) const override {
    Ids ids;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const bool joined = text.substr(i).starts_with("\nl");
      ids.push_back(joined ? 256 : static_cast<unsigned char>(text[i]));
      i += joined ? 1 : 0;
    }
    return ids;
  }
  std::string decode(std::span<const std::int32_t>) const override { return {}; }
  std::int64_t vocabulary() const override { return 257; }
  std::string name() const override { return "joins"; }
  std::int32_t separator() const override { return 0; }
};

std::vector<std::string> pieces_of(const std::string& path, const tokenizer::Tokenizer& tokenizer,
                                   std::size_t bytes) {
  TextPieces pieces(path, tokenizer, bytes);
  std::vector<std::string> all;
  for (std::string piece; pieces.next(piece);) all.push_back(piece);
  return all;
}

std::string lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += i % 5 == 0 ? "\n  \n" : (i % 7 == 0 ? "k " : "l ") + std::to_string(i * i) + "\n";
  return text;
}

TEST(TextPieces, EndAtLineEndsBetweenTexts) {
  TempFiles files;
  const std::string text = lines(2000);
  const auto tokenizer = tokenizer::make_tokenizer("byte");
  const std::vector<std::string> pieces = pieces_of(files.write("a.txt", text), *tokenizer, 1000);
  std::string joined;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    joined += pieces[i];
    if (i + 1 == pieces.size()) break;
    EXPECT_GE(pieces[i].size(), 1000U);
    EXPECT_LT(pieces[i].size(), 1100U);
    EXPECT_TRUE(pieces[i].ends_with('\n') && !pieces[i + 1].starts_with('\n') &&
                !pieces[i + 1].starts_with(' '));
  }
  EXPECT_EQ(joined, text);
  EXPECT_GT(pieces.size(), 15U);
  EXPECT_TRUE(pieces_of(files.write("b.txt", ""), *tokenizer, 1000).empty());
}

TEST(TextPieces, JoinedTheirIdsAreThoseOfTheText) {
  TempFiles files;
  const Joins joins;
  const std::string text = lines(2000);
  Ids ids;
  const std::vector<std::string> pieces = pieces_of(files.write("a.txt", text), joins, 1000);
  EXPECT_GT(pieces.size(), 5U);
  EXPECT_TRUE(pieces[1].starts_with('k')) << "no line end before an l divides";
  for (const std::string& piece : pieces) {
    const Ids of = joins.encode(piece);
    ids.insert(ids.end(), of.begin(), of.end());
  }
  EXPECT_EQ(ids, joins.encode(text));
}

TEST(TextPieces, ATextThatNoLineEndDividesIsOnePiece) {
  TempFiles files;
  const auto tokenizer = tokenizer::make_tokenizer("byte");
  const std::string blank(5000, '\n'), one(5000, 'x');
  EXPECT_EQ(pieces_of(files.write("a.txt", blank), *tokenizer, 100), std::vector<std::string>{blank});
  EXPECT_EQ(pieces_of(files.write("b.txt", one), *tokenizer, 100), std::vector<std::string>{one});
}

}  // namespace
}  // namespace mantissa::text
