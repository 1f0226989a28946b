#include "mantissa/text/rows/known_ids.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"

namespace mantissa::text {
namespace {

/// Returns the position of the first id that is not below `vocabulary`, or the number of ids.
std::size_t first_unknown(std::span<const std::int32_t> ids, std::int64_t vocabulary) {
  const auto found = std::ranges::find_if(ids, [&](std::int32_t id) { return id >= vocabulary; });
  return static_cast<std::size_t>(found - ids.begin());
}

bool may_exceed(const tokenizer::Tokenizer& tokenizer, std::int64_t vocabulary) {
  return tokenizer.vocabulary() > vocabulary;
}

/// Returns the text of the ids around position `at`, in quotes.
std::string passage(std::span<const std::int32_t> ids, const tokenizer::Tokenizer& tokenizer,
                    std::size_t at) {
  constexpr std::size_t kIds = 8, kBytes = 24;
  const std::size_t first = at - std::min(at, kIds), last = std::min(ids.size(), at + kIds);
  std::string before = tokenizer.decode(ids.subspan(first, at - first));
  if (before.size() > kBytes) {
    std::size_t cut = before.size() - kBytes;
    while ((static_cast<unsigned char>(before[cut]) & 0xC0U) == 0x80U) --cut;  // whole characters
    before.replace(0, cut, "…");
  }
  return in_quotes(before + tokenizer.decode(ids.subspan(at, last - at)));
}

std::string token_name(const tokenizer::Tokenizer& tokenizer, std::int32_t id) {
  const auto token = tokenizer.token_of(id);
  return token ? "the token " + in_quotes(*token) : "a token";
}

/// Returns the number of the first line, from 1, up to whose end `text` has an unknown id. Doubles the number
/// of lines until they have one, so that a fault at the beginning of a large file is found at once.
std::int64_t line_of_unknown(std::string_view text, const tokenizer::Tokenizer& tokenizer,
                             std::int64_t vocabulary) {
  std::vector<std::size_t> ends;
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string_view::npos;) ends.push_back(++at);
  if (ends.empty() || ends.back() != text.size()) ends.push_back(text.size());
  const auto unknown_within = [&](std::size_t lines) {
    const std::vector<std::int32_t> ids = tokenizer.encode(text.substr(0, ends[lines - 1]));
    return first_unknown(ids, vocabulary) < ids.size();
  };
  std::size_t low = 0, high = 1;  // none within `low` lines
  while (high < ends.size() && !unknown_within(high)) {
    low = high;
    high = std::min(2 * high, ends.size());
  }
  while (high - low > 1) {
    const std::size_t middle = low + (high - low) / 2;
    (unknown_within(middle) ? high : low) = middle;
  }
  return static_cast<std::int64_t>(high);
}

[[noreturn]] void refuse(std::span<const std::int32_t> ids, std::size_t at,
                         const tokenizer::Tokenizer& tokenizer, std::int64_t vocabulary,
                         const std::string& where) {
  throw ConfigError(
      "{}: {} has the id {} in {}, but the model's vocab_size is {}; the text there is {}. Fix: "
      "remove this token from the text, or use a model with at least {} entries",
      where, token_name(tokenizer, ids[at]), ids[at], tokenizer.name(), vocabulary,
      passage(ids, tokenizer, at), tokenizer.vocabulary());
}

}  // namespace

void check_known_ids(std::span<const std::int32_t> ids, const tokenizer::Tokenizer& tokenizer,
                     std::int64_t vocabulary, const std::string& where) {
  if (!may_exceed(tokenizer, vocabulary)) return;
  const std::size_t at = first_unknown(ids, vocabulary);
  if (at < ids.size()) refuse(ids, at, tokenizer, vocabulary, where);
}

void check_known_ids_of_file(std::span<const std::int32_t> ids, std::string_view text,
                             const tokenizer::Tokenizer& tokenizer, std::int64_t vocabulary,
                             const std::string& path) {
  if (!may_exceed(tokenizer, vocabulary)) return;
  const std::size_t at = first_unknown(ids, vocabulary);
  if (at == ids.size()) return;
  refuse(ids, at, tokenizer, vocabulary,
         fmt::format("{}:{}", path, line_of_unknown(text, tokenizer, vocabulary)));
}

std::int32_t known_separator(const tokenizer::Tokenizer& tokenizer, std::int64_t vocabulary) {
  const std::int32_t id = tokenizer.separator();
  if (id < vocabulary) return id;
  throw ConfigError(
      "{} separates documents; it has the id {} in {}, but the model's vocab_size is {}. Fix: write the ids "
      "to a file and read them with data.format = \"tokens\", or use a model with at least {} entries",
      token_name(tokenizer, id), id, tokenizer.name(), vocabulary, id + 1);
}

}  // namespace mantissa::text
