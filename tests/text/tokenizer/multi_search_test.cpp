// The search for added tokens, against one that tries every string at every place.
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

#include "mantissa/text/tokenizer/added_tokens.h"
#include "mantissa/text/tokenizer/multi_search.h"

namespace mantissa::tokenizer {
namespace {

std::vector<std::string_view> views(const std::vector<std::string>& all) {
  return {all.begin(), all.end()};
}

std::string random_text(std::mt19937& random, std::size_t size, const std::string& alphabet) {
  std::string text(size, ' ');
  for (char& c : text) c = alphabet[random() % alphabet.size()];
  return text;
}

std::optional<MultiSearch::Match> naive(const std::vector<std::string>& patterns, std::string_view text,
                                        std::size_t from) {
  for (; from < text.size(); ++from) {
    std::optional<MultiSearch::Match> longest;
    for (std::size_t p = 0; p < patterns.size(); ++p) {
      const std::size_t end = from + patterns[p].size();
      if (text.substr(from).starts_with(patterns[p]) && (!longest || end > longest->end))
        longest = {from, end, p};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

TEST(MultiSearch, FindsTheFirstAndOfThoseTheLongest) {
  constexpr unsigned kSeed = 3;
  std::mt19937 random(kSeed);
  for (int round = 0; round < 3000; ++round) {
    const std::string alphabet = round % 2 == 0 ? "ab" : std::string("ab\0\xFF<", 5);
    std::set<std::string> distinct;
    const std::size_t count = random() % 8;
    while (distinct.size() < count) distinct.insert(random_text(random, 1 + random() % 6, alphabet));
    // With all bytes, the automaton has no table.
    for (int byte = 0; round % 50 == 0 && byte < 256; ++byte) distinct.emplace(3, static_cast<char>(byte));
    const std::vector<std::string> patterns(distinct.begin(), distinct.end());
    const MultiSearch search(views(patterns));
    const std::string text = random_text(random, random() % 40, alphabet);
    for (std::size_t from = 0; from <= text.size(); ++from) {
      const auto found = search.find(text, from), expected = naive(patterns, text, from);
      ASSERT_EQ(found.has_value(), expected.has_value()) << "seed " << kSeed << ", round " << round;
      if (!found) continue;
      EXPECT_EQ(found->start, expected->start) << "seed " << kSeed << ", round " << round;
      EXPECT_EQ(found->end, expected->end) << "seed " << kSeed << ", round " << round;
      EXPECT_EQ(found->pattern, expected->pattern) << "seed " << kSeed << ", round " << round;
    }
  }
}

TEST(MultiSearch, ReadsATextWithoutMatchesOnce) {
  // Each place is a long prefix of a pattern: trying all places would read 10^11 bytes.
  const std::string as(400'000, 'a'), pattern = as + "b";
  const std::vector<std::string> patterns = {pattern, "c"};
  const MultiSearch search(views(patterns));
  EXPECT_FALSE(search.find(std::string(1'000'000, 'a'), 0));
  const auto found = search.find(std::string(1'000'000, 'a') + "b", 0);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->start, 600'000U);
}

/// Splits as `tokenizers` does: tokens do not overlap, one inside a word is passed over, and tokens take the
/// white space beside them.
std::vector<std::string> expected_split(const std::vector<AddedToken>& tokens, const std::string& text) {
  std::vector<std::string> parts, patterns;
  for (const AddedToken& t : tokens) patterns.push_back(t.pattern);
  const auto is_word = [&](std::size_t at) { return at < text.size() && text[at] >= 'a' && text[at] <= 'z'; };
  std::size_t done = 0;
  const auto rest = [&](std::size_t end) {
    if (done < end) parts.push_back("text " + text.substr(done, end - done));
  };
  for (std::size_t at = 0; const auto found = naive(patterns, text, at);) {
    const AddedToken& token = tokens[found->pattern];
    std::size_t start = found->start, end = found->end;
    at = end;
    if (token.single_word && ((start > 0 && is_word(start - 1)) || is_word(end))) continue;
    while (token.strip_left && start > done && text[start - 1] == ' ') --start;
    if (token.strip_left) start = std::max(start, done);
    while (token.strip_right && end < text.size() && text[end] == ' ') ++end;
    if (start > end) continue;
    rest(start);
    if (start < end) parts.push_back("token " + token.content);
    done = end;
  }
  rest(text.size());
  return parts;
}

TEST(TokenFinder, KeepsSingleWordsAndStripsSpaces) {
  constexpr unsigned kSeed = 11;
  std::mt19937 random(kSeed);
  for (int round = 0; round < 3000; ++round) {
    std::set<std::string> distinct;
    const std::size_t count = 1 + random() % 6;
    while (distinct.size() < count) distinct.insert(random_text(random, 1 + random() % 4, "ab <"));
    std::vector<AddedToken> tokens;
    for (const std::string& content : distinct) {
      AddedToken& token = tokens.emplace_back();
      token.content = token.pattern = content;
      token.single_word = random() % 2 == 0;
      token.strip_left = random() % 2 == 0;
      token.strip_right = random() % 2 == 0;
    }
    std::vector<SearchedToken> searched;
    for (const AddedToken& token : tokens) searched.push_back({token.pattern, &token});
    const TokenFinder finder(searched);
    const std::string text = random_text(random, random() % 30, "ab <>");
    MatchMemory memory;
    std::vector<std::string> parts;
    finder.split({text, 0}, memory, [&](const AddedToken* token, const Piece& piece) {
      parts.push_back(token != nullptr ? "token " + token->content : "text " + std::string(piece.text));
    });
    EXPECT_EQ(parts, expected_split(tokens, text)) << text << ", seed " << kSeed << ", round " << round;
  }
}

}  // namespace
}  // namespace mantissa::tokenizer
