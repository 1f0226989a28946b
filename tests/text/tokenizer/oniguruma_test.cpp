// Patterns rewritten for PCRE2 find the matches of Oniguruma itself, for random patterns and texts, in
// Unicode 14.0 (Debian's Oniguruma). The file is empty where libonig is not installed.
#include <gtest/gtest.h>

#if __has_include(<oniguruma.h>) && defined(MANTISSA_ONIGURUMA)
#define ONIG_ESCAPE_UCHAR_COLLISION
#define ONIG_ESCAPE_REGEX_T_COLLISION
#define re_registers onig_re_registers  // the C library's regex.h, which GoogleTest includes, has this name
#include <fmt/format.h>
#include <oniguruma.h>
#undef re_registers

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "mantissa/core/base/error.h"
#include "mantissa/text/tokenizer/patterns.h"
#include "mantissa/text/tokenizer/unicode.h"
#include "mantissa/text/tokenizer/utf8.h"

namespace mantissa::tokenizer::oniguruma_test {
namespace {

using Match = std::pair<std::size_t, std::size_t>;
using Matches = std::vector<Match>;

const OnigUChar* bytes(const std::string& text) {
  return reinterpret_cast<const OnigUChar*>(text.data());
}

/// An expression compiled by Oniguruma, with the syntax that the library `tokenizers` uses.
class Reference {
 public:
  explicit Reference(const std::string& expression) {
    OnigErrorInfo error;
    valid_ = onig_new(&code_, bytes(expression), bytes(expression) + expression.size(), ONIG_OPTION_NONE,
                      ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &error) == ONIG_NORMAL;
  }
  ~Reference() {
    if (valid_) onig_free(code_);
    onig_region_free(region_, 1);
  }
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;

  bool valid() const { return valid_; }

  /// Returns the matches, or null if Oniguruma gives up.
  std::optional<Matches> matches(const std::string& text) const {
    constexpr std::size_t kNone = static_cast<std::size_t>(-1);
    const OnigUChar *begin = bytes(text), *end = begin + text.size();
    Matches found;
    for (std::size_t from = 0, last_end = kNone; from <= text.size();) {
      const auto at = onig_search(code_, begin, end, begin + from, end, region_, ONIG_OPTION_NONE);
      if (at == ONIG_MISMATCH) break;
      if (at < 0) return std::nullopt;
      const Match match(region_->beg[0], region_->end[0]);
      if (match.first == match.second && match.second == last_end) {
        ++from;
        while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
        continue;
      }
      from = last_end = match.second;
      found.push_back(match);
    }
    return found;
  }

 private:
  OnigRegex code_ = nullptr;
  OnigRegion* region_ = onig_region_new();
  bool valid_ = false;
};

std::optional<Matches> matches(const Pattern& pattern, const std::string& text, MatchMemory& memory) {
  Matches found;
  try {
    pattern.for_each(text, memory,
                     [&](std::size_t start, std::size_t end) { found.emplace_back(start, end); });
  } catch (const ConfigError&) {
    return std::nullopt;
  }
  return found;
}

/// What the generator leaves out differs between Oniguruma's versions (\R, look-behinds before the end of the
/// text, symbols in [:punct:]) or is rare (captures of earlier repeats; classes with && or nested ones in
/// negated classes or under (?i)).
class Oniguruma : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    ASSERT_EQ(onig_initialize(encodings, 1), ONIG_NORMAL);
  }
};

using SlowOniguruma = Oniguruma;

/// Draws expressions and texts over few characters, so that many expressions match.
class Drawn {
 public:
  explicit Drawn(std::uint32_t seed) : random_(seed) {}

  std::string expression() {
    caseless_ = false;
    return alternatives(3);
  }
  std::string text() {
    std::string out;
    for (std::size_t n = below(24); n > 0; --n) out += one_of(kCharacters);
    return out;
  }

 private:
  static constexpr auto kCharacters = std::to_array<const char*>(
      {"a", "b", "c", "A", "B", "k", "s", "0", "1", "9",  " ", " ",      "\n",     "\t",     "_",
       "-", "'", ".", "é", "É", "ö", "²", "Σ", "σ", "中", "٣", "\u00a0", "\u2003", "\u0301", "😀"});

  std::size_t below(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_); }
  bool chance(std::size_t percent) { return below(100) < percent; }
  template <std::size_t n>
  std::string one_of(const std::array<const char*, n>& all) {
    return all[below(n)];
  }

  std::string alternatives(int depth) {
    std::string out = sequence(depth);
    while (chance(25)) out += "|" + sequence(depth);
    return out;
  }
  std::string sequence(int depth) {
    std::string out;
    for (std::size_t n = 1 + below(3); n > 0; --n) out += quantified(depth);
    return out;
  }
  std::string quantified(int depth) {
    std::string out = atom(depth);
    static constexpr auto kQuantifiers =
        std::to_array<const char*>({"*", "+", "?", "*?", "+?", "??", "*+", "++", "?+", "{2}", "{1,2}", "{,2}",
                                    "{2,}", "{1,3}?", "{1,2}+", "{0,2}"});
    while (chance(30)) out += one_of(kQuantifiers);
    return out;
  }
  std::string literal() {
    const std::string c = one_of(kCharacters);
    return c == "." || c == "-" ? "\\" + c : c;
  }
  std::string shorthand() {
    static constexpr auto kNames = std::to_array<const char*>(
        {"\\s",    "\\S",        "\\d",         "\\D",    "\\w",     "\\W",    "\\h",      "\\H",
         "\\p{L}", "\\p{N}",     "\\p{Lu}",     "\\P{L}", "\\p{^N}", "\\p{P}", "\\p{Han}", "\\p{Greek}",
         "\\p{M}", "\\p{Alpha}", "\\p{Letter}", "\\x41",  "\\x{e9}", "\\t",    "\\n"});
    return one_of(kNames);
  }
  std::string character_class(int depth) {
    static constexpr auto kItems = std::to_array<const char*>(
        {"a-c", "A-Z", "0-9", "à-ö", "[:alpha:]", "[:^space:]", "[:digit:]", "[:upper:]", "[:word:]", "\\n"});
    const bool negated = chance(30);
    std::string out = negated ? "[^" : "[";
    out += literal();
    for (std::size_t n = below(3); n > 0; --n) {
      const std::size_t kind = below(10);
      if (kind < 4)
        out += literal();
      else if (kind < 7)
        out += one_of(kItems);
      else if (kind < 9 || depth == 0 || caseless_)
        out += shorthand();
      else if (!negated)
        out += character_class(depth - 1);
    }
    if (depth > 0 && !negated && !caseless_ && chance(15)) out += "&&" + character_class(depth - 1);
    return out + "]";
  }
  std::string atom(int depth) {
    static constexpr auto kAnchors = std::to_array<const char*>({"^", "$", "\\b", "\\B", "\\A", "\\G", "."});
    static constexpr auto kOpen = std::to_array<const char*>(
        {"(?:", "(?:", "(?>", "(?=", "(?!", "(?i:", "(?m:", "(?x:", "(?-i:", "(?i-m:"});
    const std::size_t kind = below(20);
    if (kind < 7 || depth == 0) return literal();
    if (kind < 10) return shorthand();
    if (kind < 13) return character_class(1);
    if (kind < 15) return one_of(kAnchors);
    if (kind == 15) return (chance(50) ? "(?<=" : "(?<!") + literal() + ")";
    if (kind < 18) return "(" + alternatives(depth - 1) + ")";
    const std::string open = one_of(kOpen);
    const bool before = caseless_;
    if (open.starts_with("(?i")) caseless_ = true;
    if (open.starts_with("(?-i")) caseless_ = false;
    const std::string inner = alternatives(depth - 1);
    caseless_ = before;
    return open + inner + ")";
  }

  std::mt19937 random_;
  bool caseless_ = false;
};

/// Compares patterns with these seeds. Returns how many find other matches, and adds a failure beyond
/// `allowed`.
void compare_random_patterns(std::uint32_t first, std::uint32_t count, int allowed) {
  MatchMemory memory;
  std::uint32_t compared = 0;
  std::string differences;
  int differ = 0;
  for (std::uint32_t seed = first; seed < first + count && differ <= allowed + 10; ++seed) {
    Drawn drawn(seed);
    const std::string expression = drawn.expression();
    const Reference reference(expression);
    std::optional<Pattern> pattern;
    try {
      pattern.emplace(Pattern::onig(expression));
    } catch (const std::invalid_argument&) {
    }
    if (!reference.valid() || !pattern) continue;
    ++compared;
    for (int i = 0; i < 8; ++i) {
      const std::string text = drawn.text();
      const std::optional<Matches> want = reference.matches(text), got = matches(*pattern, text, memory);
      if (!want || !got || *want == *got) continue;
      ++differ;
      differences +=
          fmt::format("seed {}: {} in {}: Oniguruma finds {}, PCRE2 {}\n", seed, expression,
                      nlohmann::json(text).dump(), nlohmann::json(*want).dump(), nlohmann::json(*got).dump());
      break;
    }
  }
  EXPECT_GT(compared, count * 3 / 4);
  EXPECT_LE(differ, allowed) << differences;
}

TEST_F(Oniguruma, FindsTheMatchesOfRewrittenPatterns) {
  compare_random_patterns(1, 3000, 0);
}

/// Returns the code points of the first two planes, but those that are newer than Unicode 14.0 or whose
/// properties have changed since.
std::string code_points() {
  // Alphabetic or Lowercase since Unicode 15.0 or 16.0.
  constexpr std::pair<char32_t, char32_t> kChanged[] = {{0x363, 0x36F},   {0xC04, 0xC04},    {0xF82, 0xF83},
                                                        {0x10FC, 0x10FC}, {0x1DD3, 0x1DE6},  {0xA7F2, 0xA7F4},
                                                        {0xAB69, 0xAB69}, {0x11080, 0x11081}};
  std::string text;
  for (char32_t point = 1; point < 0x20000; ++point) {
    const bool surrogate = point >= 0xD800 && point < 0xE000;
    const bool newer = std::ranges::any_of(
        newer_categories(), [&](const NewerCategory& n) { return n.first <= point && point <= n.last; });
    const bool changed = std::ranges::any_of(
        kChanged, [&](const auto& range) { return range.first <= point && point <= range.second; });
    if (!surrogate && !newer && !changed) append_utf8(point, text);
  }
  return text;
}

TEST_F(Oniguruma, ClassesHaveItsCodePoints) {
  const std::string text = code_points();
  MatchMemory memory;
  for (const char* expression :
       {"\\s",           "\\d",         "\\w",          "\\h",           "[\\s]",       "[\\w]",
        "[[:alpha:]]",   "[[:alnum:]]", "[[:upper:]]",  "[[:lower:]]",   "[[:space:]]", "[[:digit:]]",
        "[[:cntrl:]]",   "[[:blank:]]", "[[:xdigit:]]", "[[:word:]]",    "\\p{L}",      "\\p{Lu}",
        "\\p{Ll}",       "\\p{Lt}",     "\\p{Lm}",      "\\p{Lo}",       "\\p{M}",      "\\p{Mn}",
        "\\p{Mc}",       "\\p{Me}",     "\\p{N}",       "\\p{Nd}",       "\\p{Nl}",     "\\p{No}",
        "\\p{P}",        "\\p{S}",      "\\p{Z}",       "\\p{Zs}",       "\\p{C}",      "\\p{Cf}",
        "\\p{Han}",      "\\p{Latin}",  "\\p{Greek}",   "\\p{Cyrillic}", "\\p{Arabic}", "\\p{Hiragana}",
        "\\p{Katakana}", "\\p{Hangul}", "\\p{Thai}"}) {
    const auto set_of = [&](const Matches& found) {
      std::string points;
      for (const auto& [start, end] : found) points += text.substr(start, end - start);
      return points;
    };
    const std::string want = set_of(*Reference(expression).matches(text));
    const std::string got = set_of(*matches(Pattern::onig(expression), text, memory));
    EXPECT_FALSE(want.empty()) << expression;
    std::string differ;
    for (std::size_t at = 0; want != got && at < text.size();) {
      const std::size_t start = at;
      const char32_t point = next_code_point(text, at);
      const std::string c = text.substr(start, at - start);
      const Matches a = *Reference(expression).matches(c), b = *matches(Pattern::onig(expression), c, memory);
      if (a != b) differ += fmt::format(" U+{:04X}", static_cast<unsigned>(point));
    }
    EXPECT_EQ(differ, "") << expression;
  }
}

TEST_F(SlowOniguruma, FindsTheMatchesOfRewrittenPatterns) {
  // The rest are repeats of groups that match nothing, which the two end in different ways.
  compare_random_patterns(1'000'000, 200'000, 10);
}

}  // namespace
}  // namespace mantissa::tokenizer::oniguruma_test
#endif
