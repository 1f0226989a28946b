#include "mantissa/text/puzzles/kk_reward.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "mantissa/text/tokenizer/characters.h"

namespace mantissa::text {
namespace {

using Points = std::u32string;
using PointsView = std::u32string_view;

constexpr PointsView kKnight = U"knight";
constexpr PointsView kKnave = U"knave";

Points decode(std::string_view text) {
  Points points;
  points.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) points += decode_utf8(text, at);
  return points;
}

using Fold = char32_t (*)(char32_t);

/// The lower case of a letter of a role, as Python's str.lower() gives it. Other characters whose lower case
/// is an ASCII letter (U+0130) become two characters there, so they are not part of a role.
char32_t lower(char32_t c) {
  if (c >= U'A' && c <= U'Z') return c - U'A' + U'a';
  return c == U'\u212a' ? U'k' : c;  // kelvin sign
}

bool starts_with(PointsView text, std::size_t at, PointsView word, Fold fold) {
  if (text.size() - at < word.size()) return false;
  return std::equal(word.begin(), word.end(), text.begin() + static_cast<std::ptrdiff_t>(at),
                    [&](char32_t a, char32_t b) { return fold(a) == fold(b); });
}

/// True if a word begins or ends at `at`.
bool is_boundary(PointsView text, std::size_t at) {
  const bool before = at > 0 && is_word(text[at - 1]);
  const bool after = at < text.size() && is_word(text[at]);
  return before != after;
}

/// Skips one or more white spaces at `at`. Returns the position after them, or null without any.
std::optional<std::size_t> skip_spaces(PointsView text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && is_space(text[end])) ++end;
  return end == at ? std::nullopt : std::optional(end);
}

/// Returns the role (true: knight) at `at` if it is a whole word.
std::optional<bool> role_at(PointsView text, std::size_t at) {
  for (const bool knight : {true, false}) {
    const PointsView role = knight ? kKnight : kKnave;
    if (starts_with(text, at, role, lower) && is_boundary(text, at) && is_boundary(text, at + role.size()))
      return knight;
  }
  return std::nullopt;
}

/// Returns the role in "NAME is a ROLE" at `at`, if any.
std::optional<bool> claim_at(PointsView text, std::size_t at, PointsView name) {
  if (!starts_with(text, at, name, caseless) || !is_boundary(text, at)) return std::nullopt;
  at += name.size();
  for (const PointsView word : {PointsView(U"is"), PointsView(U"a"), PointsView()}) {
    const std::optional<std::size_t> next = skip_spaces(text, at);
    if (!next || !starts_with(text, *next, word, caseless)) return std::nullopt;
    at = *next + word.size();
  }
  return role_at(text, at);
}

std::optional<bool> claim(PointsView text, PointsView name) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (const std::optional<bool> role = claim_at(text, at, name)) return role;
  }
  return std::nullopt;
}

/// Counts occurrences of the roles, inside words too.
std::size_t count_roles(PointsView text) {
  Points folded(text);
  std::transform(folded.begin(), folded.end(), folded.begin(), lower);
  std::size_t count = 0;
  for (const PointsView role : {kKnight, kKnave}) {
    for (std::size_t at = folded.find(role); at != Points::npos; at = folded.find(role, at + role.size()))
      ++count;
  }
  return count;
}

/// Returns the first all-letter word of `line` that a role follows, with that role.
std::optional<std::pair<Points, bool>> name_and_role(PointsView line) {
  for (std::size_t begin = 0; begin < line.size(); ++begin) {
    if (!is_word(line[begin]) || !is_boundary(line, begin)) continue;
    std::size_t end = begin;
    while (end < line.size() && is_word(line[end])) ++end;
    const PointsView word = line.substr(begin, end - begin);
    if (!std::all_of(word.begin(), word.end(), is_letter)) continue;
    for (std::size_t at = end; at < line.size(); ++at) {
      if (const std::optional<bool> role = role_at(line, at)) return std::pair(Points(word), *role);
    }
    return std::nullopt;  // no role after this word, so none after a later one
  }
  return std::nullopt;
}

/// Returns whether each named person is a knight.
std::map<Points, bool> expected_roles(std::string_view solution) {
  const Points text = decode(solution);
  std::map<Points, bool> roles;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(U'\n', at), text.size());
    if (const auto found = name_and_role(PointsView(text).substr(at, end - at))) {
      roles[found->first] = found->second;
    }
    at = end + 1;
  }
  return roles;
}

std::size_t count(std::string_view text, std::string_view what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + what.size())) ++n;
  return n;
}

bool well_formed(std::string_view text) {
  std::size_t last = 0;
  for (const std::string_view tag : {"<think>", "</think>", "<answer>", "</answer>"}) {
    const std::size_t at = text.find(tag);
    if (count(text, tag) != 1 || at < last) return false;
    last = at;
  }
  return true;
}

/// Scores the answer. `text` must be well formed.
double score_answer(std::string_view text, std::string_view solution) {
  const std::size_t begin = text.find("<answer>") + std::string_view("<answer>").size();
  const Points body = decode(text.substr(begin, text.find("</answer>") - begin));
  const std::map<Points, bool> expected = expected_roles(solution);
  if (expected.empty() || count_roles(body) != expected.size()) return -2;
  bool right = true;
  for (const auto& [name, knight] : expected) {
    const std::optional<bool> role = claim(body, name);
    if (!role) return -2;
    right = right && *role == knight;
  }
  return right ? 2 : -1.5;
}

}  // namespace

KkReward kk_reward(std::string_view response, std::string_view solution_text_format) {
  bool marked = false;
  std::string_view text = response;
  for (const std::string_view marker : {"Assistant:", "<|im_start|>assistant"}) {
    const std::size_t at = response.find(marker);
    if (at == response.npos) continue;
    text = response.substr(at + marker.size());
    marked = true;
    break;
  }
  KkReward reward;
  reward.format = well_formed(text) ? 1 : -1;
  if (marked && reward.format > 0) reward.answer = score_answer(text, solution_text_format);
  return reward;
}

}  // namespace mantissa::text
