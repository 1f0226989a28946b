// Compiled regular expressions and the matches of a text.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace mantissa::tokenizer {

/// What one thread needs to match: memory for results and a stack. Any pattern can use it.
class MatchMemory {
 public:
  MatchMemory();
  MatchMemory(MatchMemory&&) noexcept;
  ~MatchMemory();

  struct State;
  State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

/// A regular expression. Immutable.
class Pattern {
 public:
  /// Compiles an expression in Oniguruma's syntax. Throws std::invalid_argument.
  static Pattern onig(std::string_view expression);
  /// Compiles an expression that matches exactly `text`.
  static Pattern literal(std::string_view text);
  /// Compiles an expression in PCRE2's syntax.
  static Pattern pcre2(std::string_view expression, std::string_view shown);

  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;
  ~Pattern();

  /// Finds the first match that starts at or after `from`.
  /// `text` must be UTF-8. Throws ConfigError if the search needs too many steps.
  bool find(std::string_view text, std::size_t from, MatchMemory& memory, std::size_t& start,
            std::size_t& end) const;

  /// Calls each(start, end) for the matches from left to right, without overlaps. An empty match right after
  /// a match does not count.
  template <class Each>
  void for_each(std::string_view text, MatchMemory& memory, const Each& each) const {
    constexpr std::size_t kNone = static_cast<std::size_t>(-1);
    std::size_t from = 0, last_end = kNone, start = 0, end = 0;
    while (from <= text.size() && find(text, from, memory, start, end)) {
      if (start == end && end == last_end) {
        ++from;
        while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
        continue;
      }
      from = last_end = end;
      each(start, end);
    }
  }

 private:
  struct Code;
  explicit Pattern(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

}  // namespace mantissa::tokenizer
