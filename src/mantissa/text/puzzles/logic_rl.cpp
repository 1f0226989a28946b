#include "mantissa/text/puzzles/logic_rl.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "mantissa/core/base/error.h"
#include "mantissa/text/puzzles/kk_reasoning.h"

namespace mantissa::text {
namespace {

using Json = nlohmann::ordered_json;
using Kind = KkStatement::Kind;

constexpr std::string_view kStart = "<|im_start|>", kEnd = "<|im_end|>", kThink = "<think>";

/// Reads tuples of names and numbers. A fault is remembered, and ends the reading.
class TupleReader {
 public:
  TupleReader(std::string_view text, int people) : text_(text), people_(people) {}

  std::vector<KkStatement> statements() {
    std::vector<KkStatement> all;
    expect('(');
    while (good_ && all.size() < kKkMostPeople && !accept(')')) {
      all.push_back(statement(0));
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return good_ && at_ == text_.size() ? all : std::vector<KkStatement>();
  }

 private:
  static constexpr int kDeepest = 16;

  KkStatement statement(int depth) {
    KkStatement s;
    expect('(');
    const std::string_view op = word();
    const auto kind = std::ranges::find(kOps, op, &std::pair<std::string_view, Kind>::first);
    if (kind == kOps.end() || depth == kDeepest) return fail();
    s.kind = kind->second;
    if (s.kind == Kind::knight || s.kind == Kind::knave) {
      expect(',');
      s.person = number();
    } else {
      const int parts = s.kind == Kind::negation ? 1 : 2;
      for (int i = 0; i < parts && good_; ++i) {
        expect(',');
        s.parts.push_back(statement(depth + 1));
      }
    }
    expect(')');
    return s;
  }
  std::string_view word() {
    expect('\'');
    const std::size_t end = text_.find('\'', at_);
    if (!good_ || end == std::string_view::npos) {
      good_ = false;
      return {};
    }
    const std::string_view found = text_.substr(at_, end - at_);
    at_ = end + 1;
    return found;
  }
  int number() {
    const int digit = at_ < text_.size() ? text_[at_] - '0' : -1;
    if (digit < 0 || digit >= people_) return fail().person;
    ++at_;
    return digit;
  }
  bool accept(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    skip();
    return true;
  }
  void expect(char c) { good_ = good_ && accept(c); }
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  KkStatement fail() {
    good_ = false;
    return {};
  }

  static constexpr std::array<std::pair<std::string_view, Kind>, 7> kOps = {{{"telling-truth", Kind::knight},
                                                                             {"lying", Kind::knave},
                                                                             {"not", Kind::negation},
                                                                             {"and", Kind::conjunction},
                                                                             {"or", Kind::disjunction},
                                                                             {"->", Kind::implication},
                                                                             {"<=>", Kind::equivalence}}};

  std::string_view text_;
  int people_;
  std::size_t at_ = 0;
  bool good_ = true;
};

std::string text_of(const Json& row, const char* name) {
  const auto found = row.find(name);
  return found != row.end() && found->is_string() ? found->get<std::string>() : "";
}

std::vector<std::string> texts_of(const Json& row, const char* name) {
  std::vector<std::string> texts;
  const auto found = row.find(name);
  if (found == row.end() || !found->is_array()) return texts;
  for (const Json& text : *found) {
    if (!text.is_string()) return {};
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

/// Returns a reasoning for the row, or "".
std::string reasoning_of(const Json& row) {
  const std::vector<std::string> names = texts_of(row, "names");
  const bool few = !names.empty() && names.size() <= kKkMostPeople;
  const std::vector<KkStatement> statements =
      few ? parse_kk_statements(text_of(row, "statements"), static_cast<int>(names.size()))
          : std::vector<KkStatement>();
  if (!statements.empty() && statements.size() == names.size()) {
    const std::vector<std::uint32_t> solutions = kk_solutions(statements);
    const auto said = row.find("solution");
    const auto agrees = [&](std::uint32_t knights) {
      if (said == row.end() || !said->is_array() || said->size() != names.size()) return false;
      for (std::size_t i = 0; i < names.size(); ++i) {
        if ((*said)[i] != Json(is_knight(knights, static_cast<int>(i)))) return false;
      }
      return true;
    };
    if (solutions.size() == 1 && agrees(solutions.front()))
      return fmt::format("{}", fmt::join(kk_reasoning(statements, names, solutions.front()), " "));
  }
  std::vector<std::string> steps = texts_of(row, "cot_repeat_steps");
  const std::string head = text_of(row, "cot_head"), foot = text_of(row, "cot_foot");
  if (!head.empty() && !steps.empty()) steps.insert(steps.begin(), head);
  if (!foot.empty() && !steps.empty()) steps.push_back(foot);
  return fmt::format("{}", fmt::join(steps, " "));
}

/// Returns the number of people: that of the names, else that of the lines of the solution.
std::int64_t people_of(const Json& row) {
  const auto names = row.find("names");
  if (names != row.end() && names->is_array() && !names->empty()) return std::ssize(*names);
  return std::ranges::count(text_of(row, "solution_text_format"), '\n') + 1;
}

/// Returns the messages of a ChatML text. The last one may be unfinished: the beginning of an answer, which
/// is moved to `begun`. Returns null for other text.
std::optional<Json> chatml_messages(std::string_view text, std::string& begun) {
  Json messages = Json::array();
  while (!text.empty()) {
    if (!text.starts_with(kStart)) return std::nullopt;
    text.remove_prefix(kStart.size());
    const std::size_t line = text.find('\n'), end = text.find(kEnd);
    if (line == std::string_view::npos || line > end) return std::nullopt;
    const std::string role(text.substr(0, line));
    if (end == std::string_view::npos) {
      if (role != "assistant") return std::nullopt;
      begun = text.substr(line + 1);
      break;
    }
    messages.push_back({{"role", role}, {"content", std::string(text.substr(line + 1, end - line - 1))}});
    text.remove_prefix(end + kEnd.size());
    if (text.starts_with('\n')) text.remove_prefix(1);
  }
  return messages.empty() ? std::nullopt : std::optional(messages);
}

/// Removes `end` and white space before it from the end of `text`. Returns true if it was there.
bool remove_end(std::string& text, std::string_view end) {
  const std::size_t last = text.find_last_not_of(" \n");
  if (last == std::string::npos || !std::string_view(text).substr(0, last + 1).ends_with(end)) return false;
  text.erase(last + 1 - end.size());
  text.erase(text.find_last_not_of(" \n") + 1);
  return true;
}

}  // namespace

std::vector<KkStatement> parse_kk_statements(std::string_view text, int people) {
  return TupleReader(text, people).statements();
}

bool is_logic_rl(const Json& row) {
  const auto has = [&](const char* name) { return row.contains(name) && !row[name].is_null(); };
  return has("solution_text_format") && (has("quiz") || has("prompt"));
}

LogicRlRow read_logic_rl(const Json& row, const std::string& where) {
  const auto text = [&](const Json& value, const char* field) {
    if (value.is_string()) return value.get<std::string>();
    throw FileError(
        fmt::format("{}: \"{}\" is of type {}; expected a string", where, field, value.type_name()));
  };
  const Json& prompt = row.contains("prompt") && !row["prompt"].is_null() ? row["prompt"] : row["quiz"];
  std::string answer = fmt::format("<think>{}</think> <answer>{}</answer>", reasoning_of(row),
                                   text(row["solution_text_format"], "solution_text_format"));
  LogicRlRow out{.people = people_of(row)};
  const auto finish = [&] {
    out.messages.push_back({{"role", "assistant"}, {"content", answer}});
    return out;
  };
  const bool list = prompt.is_array();
  if (list) {
    for (const Json& m : prompt) {
      const bool valid =
          m.is_object() && m.contains("role") && m["role"].is_string() && m.contains("content");
      if (!valid) {
        throw FileError(fmt::format(
            "{}: \"prompt\" has an element without \"role\" and \"content\"; expected messages", where));
      }
      out.messages.push_back({{"role", m["role"]}, {"content", text(m["content"], "prompt[].content")}});
    }
    if (out.messages.empty()) throw FileError(fmt::format("{}: \"prompt\" is empty", where));
    if (out.messages.size() > 1) return finish();
  }
  const std::string whole = list ? out.messages[0]["content"].get<std::string>() : text(prompt, "prompt");
  // As texts, the completion continues the prompt.
  const bool thinks = whole.ends_with(kThink),
             open = whole.empty() || whole.back() == '\n' || whole.back() == ' ';
  out.texts.emplace(whole, thinks ? answer.substr(kThink.size()) : (open ? "" : " ") + answer);
  // A template begins the answer itself.
  std::string& begun = out.begun;
  if (std::optional<Json> messages = chatml_messages(whole, begun)) {
    out.messages = std::move(*messages);
    if (!answer.starts_with(begun)) answer = begun + answer;
  } else {
    if (thinks) begun = kThink;
    std::string user = whole;
    remove_end(user, kThink);
    remove_end(user, "Assistant:");
    out.messages = Json::array({{{"role", "user"}, {"content", user}}});
  }
  return finish();
}

}  // namespace mantissa::text
