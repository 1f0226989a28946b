// A pattern that responses match or do not.
#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <new>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/text/reward/reference.h"
#include "mantissa/text/reward/rules.h"

namespace mantissa::reward {
namespace {

using Code = std::unique_ptr<pcre2_code_8, decltype(&pcre2_code_free_8)>;

constexpr std::string_view kAnswer = "{answer}";

std::string pcre2_message(int code) {
  PCRE2_UCHAR8 text[256];
  if (pcre2_get_error_message_8(code, text, sizeof text) < 0) return fmt::format("PCRE2 error {}", code);
  return reinterpret_cast<const char*>(text);
}

/// Compiles without JIT, whose limits are those of its stack: so the same steps are given up everywhere.
/// Throws ConfigError.
Code compile(std::string_view pattern) {
  int error = 0;
  PCRE2_SIZE at = 0;
  Code code(pcre2_compile_8(reinterpret_cast<PCRE2_SPTR8>(pattern.data()), pattern.size(),
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &error, &at, nullptr),
            pcre2_code_free_8);
  if (code != nullptr) return code;
  throw ConfigError("the pattern is invalid at byte {}: {}; it is {}", at + 1, pcre2_message(error),
                    in_quotes(pattern));
}

/// Appends `text` as characters of a pattern.
void append_literal(std::string_view text, std::string& pattern) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte >= 0x80 || (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
                       (byte >= 'A' && byte <= 'Z');
    if (!plain) pattern += '\\';
    pattern += c;
  }
}

/// A pattern in which the answer of a row may have a place.
class Template {
 public:
  explicit Template(std::string_view pattern) {
    bool quoted = false;  // between \Q and \E, where other backslashes are characters
    std::string part;
    for (std::size_t at = 0; at < pattern.size();) {
      const std::string_view rest = pattern.substr(at);
      std::size_t length = 1;
      if (rest.starts_with(kAnswer)) {
        parts_.push_back(part + (quoted ? "\\E" : ""));
        part = quoted ? "\\Q" : "";
        at += kAnswer.size();
        continue;
      }
      if (rest.starts_with(quoted ? "\\E" : "\\Q")) quoted = !quoted;
      if (!quoted && rest.front() == '\\') length = 2;  // the next character is escaped
      part += rest.substr(0, length);
      at += length;
    }
    parts_.push_back(part);
  }

  bool has_place() const { return parts_.size() > 1; }
  std::string with(std::string_view answer) const {
    std::string pattern = parts_.front();
    for (std::size_t i = 1; i < parts_.size(); ++i) {
      append_literal(answer, pattern);
      pattern += parts_[i];
    }
    return pattern;
  }

 private:
  std::vector<std::string> parts_;  // before, between and after the places of the answer
};

/// The memory and limits of a search.
class Matcher {
 public:
  Matcher() {
    if (!data_ || !context_) throw std::bad_alloc();
    pcre2_set_match_limit_8(context_.get(), kMostSteps);
    pcre2_set_heap_limit_8(context_.get(), kMostHeap >> 10);
  }

  /// Returns 1 part `match`, and `over_limit`.
  Score score(const Code& code, std::string_view text) {
    const int found = pcre2_match_8(code.get(), reinterpret_cast<PCRE2_SPTR8>(text.data()), text.size(), 0, 0,
                                    data_.get(), context_.get());
    const bool over =
        found == PCRE2_ERROR_MATCHLIMIT || found == PCRE2_ERROR_DEPTHLIMIT || found == PCRE2_ERROR_HEAPLIMIT;
    if (found < 0 && found != PCRE2_ERROR_NOMATCH && !over)
      throw RunStopped("reward \"regex:…\": the pattern cannot be matched: {}", pcre2_message(found));
    const bool match = found >= 0;
    const double reward = match ? 1 : 0;
    return {reward, {{"match", reward}, {"over_limit", over ? 1.0 : 0.0}}, match};
  }

 private:
  std::unique_ptr<pcre2_match_data_8, decltype(&pcre2_match_data_free_8)> data_{
      pcre2_match_data_create_8(1, nullptr), pcre2_match_data_free_8};
  std::unique_ptr<pcre2_match_context_8, decltype(&pcre2_match_context_free_8)> context_{
      pcre2_match_context_create_8(nullptr), pcre2_match_context_free_8};
};

class RegexRule final : public Rule {
 public:
  explicit RegexRule(std::string_view pattern) : pattern_(pattern), code_(compile(pattern_.with("answer"))) {}

  void check_row(const nlohmann::ordered_json& row, const std::string& where) const override {
    if (pattern_.has_place()) code_of(row, where);
  }

  std::vector<Score> score(std::span<const Sample> samples, const std::stop_token&) override {
    std::vector<Score> scores;
    for (const Sample& s : samples) {
      scores.push_back(pattern_.has_place() ? matcher_.score(code_of(*s.row, "the row"), s.response)
                                            : matcher_.score(code_, s.response));
    }
    return scores;
  }

 private:
  Code code_of(const nlohmann::ordered_json& row, const std::string& where) const {
    const std::string pattern = pattern_.with(reference_answer(row, where));
    try {
      return compile(pattern);
    } catch (const ConfigError& e) {  // such as an answer in the name of a group
      throw FileError("{}: with the answer of the row, {}", where, e.what());
    }
  }

  Template pattern_;
  Code code_;  // without the answer of a row
  Matcher matcher_;
};

}  // namespace

std::unique_ptr<Rule> regex_rule(std::string_view pattern) {
  return std::make_unique<RegexRule>(pattern);
}

}  // namespace mantissa::reward
