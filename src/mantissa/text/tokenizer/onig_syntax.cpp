#include "mantissa/text/tokenizer/onig_syntax.h"

#include <fmt/format.h>

#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "mantissa/text/tokenizer/onig_classes.h"
#include "mantissa/text/tokenizer/onig_reader.h"
#include "mantissa/text/tokenizer/utf8.h"

namespace mantissa::tokenizer {
namespace {

constexpr int kDeepestGroup = 100;
constexpr int kMostRepeats = 65535;  // PCRE2's limit

std::string bracketed(const ClassItems& items) {
  return fmt::format("[{}{}]", items.negated ? "^" : "", items.text);
}

// Reads Oniguruma's Ruby syntax, writes PCRE2's.
class Rewriter : OnigReader {
 public:
  explicit Rewriter(std::string_view pattern) : OnigReader(pattern) {}

  std::string whole() {
    std::string out = alternatives(0);
    if (more()) fail("unmatched )");
    return out;
  }

 private:
  // What quantifiers apply to.
  struct Atom {
    std::string text;
    bool character = false;  // matches exactly one code point
  };

  std::string alternatives(int depth) {
    if (depth > kDeepestGroup) fail("groups nest too deep");
    std::string out;
    while (more() && peek() != ')') {
      if (take("|")) {
        out += '|';
        continue;
      }
      if (extended_ && skip_comment()) continue;
      std::string rest;
      if (peek() == '(' && options_to_the_end(depth, rest)) {
        out += rest;
        continue;
      }
      out += quantified(atom(depth));
    }
    return out;
  }

  bool skip_comment() {
    if (peek() == '#') {
      while (more() && peek() != '\n') ++at_;
      return true;
    }
    if (peek() != ' ' && (peek() < '\t' || peek() > '\r')) return false;
    ++at_;
    return true;
  }

  // Options of "(?i-m:" from the character after "(?". Returns PCRE2's letters and the end character, ':' or
  // ')', or null if this is not a group with options.
  struct Options {
    std::string letters;
    char end;
    bool extended, caseless;
  };
  std::optional<Options> options() {
    std::size_t i = at_ + 2;
    Options result{"", '\0', extended_, caseless_};
    bool off = false;
    for (; i < in_.size() && in_[i] != ':' && in_[i] != ')'; ++i) {
      const char letter = in_[i];
      if (letter == '-') {
        off = true;
        result.letters += '-';
      } else if (letter == 'i') {
        result.letters += 'i';
        result.caseless = !off;
      } else if (letter == 'm') {
        result.letters += 's';
      } else if (letter == 'x') {
        result.extended = !off;
      } else {
        return std::nullopt;
      }
    }
    if (i == in_.size() || i == at_ + 2) return std::nullopt;
    if (result.letters == "-") result.letters.clear();
    result.end = in_[i];
    at_ = i + 1;
    return result;
  }

  // "(?i)": applies to all that follows in the group, with its alternatives.
  bool options_to_the_end(int depth, std::string& out) {
    if (peek(1) != '?') return false;
    const std::size_t start = at_;
    const std::optional<Options> found = options();
    if (!found || found->end != ')') {
      at_ = start;
      return false;
    }
    const bool extended = std::exchange(extended_, found->extended);
    const bool caseless = std::exchange(caseless_, found->caseless);
    out = fmt::format("(?{}:{})", found->letters, alternatives(depth + 1));
    extended_ = extended;
    caseless_ = caseless;
    return true;
  }

  std::string group(int depth) {
    std::string open;
    for (const std::string_view start : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (take(start)) open = start;
    }
    const bool extended = extended_, caseless = caseless_;
    if (open.empty()) {
      if (peek(1) != '?') {
        ++at_;
        open.push_back('(');
      } else if (peek(2) == '<') {
        const std::size_t end = in_.find('>', at_);
        if (end == in_.npos) fail("a group name without >");
        open = in_.substr(at_, end + 1 - at_);
        at_ = end + 1;
      } else if (const std::optional<Options> found = options()) {
        open = fmt::format("(?{}:", found->letters);
        extended_ = found->extended;
        caseless_ = found->caseless;
      } else {
        fail("an unsupported group");
      }
    }
    std::string out = open + alternatives(depth + 1) + ")";
    if (!take(")")) fail("a group without )");
    extended_ = extended;
    caseless_ = caseless;
    return out;
  }

  Atom atom(int depth) {
    const char c = peek();
    if (c == '(') {
      if (take("(?#")) {
        const std::size_t end = in_.find(')', at_);
        if (end == in_.npos) fail("a comment without )");
        at_ = end + 1;
        return {""};
      }
      return {group(depth)};
    }
    if (c == '[') return {character_class(depth), true};
    if (c == '\\') return escape();
    if (c == '.') return ++at_, Atom{".", true};
    if (c == '^' || c == '$') return ++at_, Atom{std::string(1, c)};
    if (c == '*' || c == '+' || c == '?') fail("a quantifier without a target");
    return {class_item(next_code_point(in_, at_)), true};
  }

  Atom escape() {
    ++at_;
    if (!more()) fail("a lone backslash");
    if (take("w")) return {word_class(false), true};
    if (take("W")) return {word_class(false).insert(1, 1, '^'), true};
    if (const std::optional<ClassItems> items = escaped_class()) return {bracketed(*items), true};
    const char c = peek();
    if (c >= '1' && c <= '9') {
      const std::size_t start = at_;
      while (more() && peek() >= '0' && peek() <= '9') ++at_;
      return {fmt::format("\\g{{{}}}", in_.substr(start, at_ - start))};
    }
    if (const std::optional<char32_t> point = escaped_point()) return {class_item(*point), true};
    ++at_;
    const std::string word = word_class(false);
    switch (c) {
      case 'b':
        return {fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)};
      case 'B':
        return {fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word)};
      case 'R':
        return {"(?>\\r\\n|[\\x{a}-\\x{d}\\x{85}\\x{2028}\\x{2029}])"};
      case 'A':
      case 'z':
      case 'Z':
      case 'G':
      case 'K':
      case 'X':
        return {std::string("\\") + c};
      default:
        if (std::isalpha(static_cast<unsigned char>(c)) &&
            std::string_view("kgyYONQE").find(c) == std::string_view::npos)
          return {class_item(static_cast<char32_t>(c)), true};
        fail(fmt::format("\\{} is not supported", c));
    }
  }

  std::string quantified(Atom target) {
    while (more()) {
      if (extended_ && skip_comment()) continue;
      const char c = peek();
      if (c == '*' || c == '+' || c == '?') {
        ++at_;
        std::string sign(1, c);
        if (take("?"))
          sign += '?';
        else if (take("+"))
          sign += '+';
        target = {stackable(target) + sign, false};
        repeated_ = true;
        continue;
      }
      int low = 0, high = -1;
      bool exact = false;
      if (c != '{' || !interval(low, high, exact)) break;
      const std::string bounds = exact      ? fmt::format("{{{}}}", low)
                                 : high < 0 ? fmt::format("{{{},}}", low)
                                            : fmt::format("{{{},{}}}", low, high);
      if (!exact && take("?")) {
        target = {stackable(target) + bounds + "?", false};
      } else if (target.character && !repeated_ && low <= 1 && peek() == '+' && peek(1) != '?' &&
                 peek(1) != '+') {
        // A repeat of repeats: x{1,3}+ is x+. Written so, it needs no stack. +? and ++ are quantifiers of
        // their own: x{1,3}+? takes three at most.
        ++at_;
        target = {target.text + (low == 0 ? "*" : "+"), false};
      } else {
        target = {stackable(target) + bounds, false};
      }
      repeated_ = true;
    }
    repeated_ = false;
    return target.text;
  }

  // A quantifier after a quantifier repeats what the first gave.
  std::string stackable(const Atom& target) const {
    return repeated_ ? fmt::format("(?:{})", target.text) : target.text;
  }

  // {n}, {n,}, {,m} or {n,m}; anything else is text.
  bool interval(int& low, int& high, bool& exact) {
    std::size_t i = at_ + 1;
    const auto number = [&](int& value) {
      const std::size_t start = i;
      long read = 0;
      for (; i < in_.size() && in_[i] >= '0' && in_[i] <= '9'; ++i) {
        read = read * 10 + (in_[i] - '0');
        if (read > kMostRepeats) fail("a repeat that is too large");
      }
      if (i > start) value = static_cast<int>(read);
      return i > start;
    };
    const bool has_low = number(low);
    bool has_high = false;
    exact = i < in_.size() && in_[i] == '}';
    if (!exact) {
      if (i == in_.size() || in_[i] != ',') return false;
      ++i;
      has_high = number(high);
      if (i == in_.size() || in_[i] != '}') return false;
    }
    if (!has_low && !has_high) return false;
    at_ = i + 1;
    return true;
  }

  // A class with nested classes and intersections, as an expression that matches one code point.
  std::string character_class(int depth) {
    if (depth > kDeepestGroup) fail("classes nest too deep");
    ++at_;
    const bool negated = take("^");
    std::vector<std::string> operands;
    std::string items;
    std::vector<std::string> others;
    const auto finish_operand = [&] {
      std::string text = items.empty() ? "" : fmt::format("[{}]", items);
      for (const std::string& other : others) text += (text.empty() ? "" : "|") + other;
      operands.push_back(text.empty() ? "(?!)" : others.empty() ? text : fmt::format("(?:{})", text));
      items.clear();
      others.clear();
    };
    const auto add = [&](const ClassItems& found) {
      // Oniguruma adds the other case of every letter to a class, PCRE2 only to single letters and ranges.
      if (caseless_ && found.one_case) fail("a class of letters of one case in [] under (?i)");
      if (found.negated)
        others.push_back(bracketed(found));
      else
        items += found.text;
    };
    bool first = true;
    for (;; first = false) {
      if (!more()) fail("a class without ]");
      if (peek() == ']' && !first) break;
      if (take("&&")) {
        finish_operand();
        continue;
      }
      if (take("[:")) {
        const bool without = take("^");
        const std::size_t end = in_.find(":]", at_);
        if (end == in_.npos) fail("a class name without :]");
        ClassItems found = posix_class(in_.substr(at_, end - at_));
        found.negated = without;
        at_ = end + 2;
        add(found);
        continue;
      }
      if (peek() == '[') {
        others.push_back(character_class(depth + 1));
        continue;
      }
      const std::optional<char32_t> low = class_point(add);
      if (!low) continue;
      items += class_item(*low);
      if (peek() != '-' || peek(1) == ']' || peek(1) == '\0' || in_.substr(at_ + 1).starts_with("["))
        continue;
      ++at_;
      const std::optional<char32_t> high = class_point(add);
      if (!high) {
        items += class_item('-');
        continue;
      }
      if (*high < *low) fail("a range that goes backwards");
      items += fmt::format("-{}", class_item(*high));
    }
    ++at_;
    if (operands.empty() && others.empty() && !items.empty())
      return fmt::format("[{}{}]", negated ? "^" : "", items);
    finish_operand();
    std::string all;
    for (std::size_t i = 0; i + 1 < operands.size(); ++i) all += fmt::format("(?={})", operands[i]);
    all += operands.back();
    return negated ? fmt::format("(?:(?!{})(?s:.))", all) : fmt::format("(?:{})", all);
  }

  // The next code point of a class, or null after adding a named class.
  template <class Add>
  std::optional<char32_t> class_point(const Add& add) {
    if (peek() != '\\') return next_code_point(in_, at_);
    ++at_;
    if (!more()) fail("a lone backslash");
    if (const std::optional<ClassItems> items = escaped_class()) {
      add(*items);
      return std::nullopt;
    }
    if (take("b")) return U'\b';
    if (const std::optional<char32_t> point = escaped_point()) return point;
    return next_code_point(in_, at_);
  }

  bool extended_ = false, caseless_ = false;
  bool repeated_ = false;  // the target of the next quantifier is itself a repeat
};

}  // namespace

std::string pcre2_from_onig(std::string_view pattern) {
  return Rewriter(pattern).whole();
}

}  // namespace mantissa::tokenizer
