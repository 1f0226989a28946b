#include "mantissa/tokenizer/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "mantissa/tokenizer/onig_syntax.h"
#include "mantissa/tokenizer/unicode.h"
#include "mantissa/tokenizer/utf8.h"

namespace mantissa::tokenizer {
namespace {

// The start of the white space before `end`.
std::size_t space_before(std::string_view text, std::size_t end) {
  while (end > 0) {
    std::size_t start = end - 1;
    while ((static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    std::size_t at = start;
    if (!is_space(next_code_point(text, at))) break;
    end = start;
  }
  return end;
}

// The end of the white space after `start`.
std::size_t space_after(std::string_view text, std::size_t start) {
  while (start < text.size()) {
    std::size_t next = start;
    if (!is_space(next_code_point(text, next))) break;
    start = next;
  }
  return start;
}

std::vector<std::string_view> patterns_of(const std::vector<const AddedToken*>& tokens) {
  std::vector<std::string_view> patterns;
  for (const AddedToken* token : tokens) patterns.push_back(token->pattern);
  return patterns;
}

}  // namespace

TokenFinder::TokenFinder(std::vector<const AddedToken*> tokens)
    : tokens_(std::move(tokens)), search_(patterns_of(tokens_)) {
  if (std::ranges::none_of(tokens_, &AddedToken::single_word)) return;
  const std::string word = word_class(true);
  word_after_ = Pattern::pcre2("\\G" + word, "\\w");
  word_before_ = Pattern::pcre2("\\G(?<=" + word + ")", "\\w");
}

bool TokenFinder::stands_alone(std::string_view text, std::size_t start, std::size_t end,
                               MatchMemory& memory) const {
  std::size_t a = 0, b = 0;
  const bool word_before = start > 0 && word_before_->find(text, start, memory, a, b);
  const bool word_after = end < text.size() && word_after_->find(text, end, memory, a, b);
  return !word_before && !word_after;
}

void TokenFinder::split(const Piece& piece, MatchMemory& memory, AddedSink sink) const {
  const std::string_view text = piece.text;
  std::size_t done = 0;
  const auto rest = [&](std::size_t end) {
    if (done < end) sink(nullptr, piece.part(done, end));
  };
  for (std::size_t at = 0; const auto found = search_.find(text, at);) {
    const AddedToken& token = *tokens_[found->pattern];
    auto [start, end, pattern] = *found;
    at = end;  // also if the token does not stand alone
    if (token.single_word && !stands_alone(text, start, end, memory)) continue;
    if (token.strip_left) start = std::max(space_before(text, start), done);
    if (token.strip_right) end = space_after(text, end);
    rest(start);
    sink(&token, Piece{});
    done = end;
  }
  rest(text.size());
}

AddedTokens::AddedTokens(const std::optional<JsonView>& json, const Model& model,
                         const Normalizer* normalizer) {
  MatchMemory memory;
  auto next_id = static_cast<std::int64_t>(model.size());
  constexpr std::size_t kMostNormalized = std::size_t{64} << 20;
  std::size_t normalized_bytes = 0;
  if (json) {
    for (const JsonView& entry : json->items()) {
      AddedToken token;
      entry.at("id").integer(0xFFFFFFFF);
      token.content = entry.at("content").text();
      token.single_word = entry.at("single_word").boolean();
      token.strip_left = entry.at("lstrip").boolean();
      token.strip_right = entry.at("rstrip").boolean();
      token.normalized = entry.at("normalized").boolean();
      token.special = entry.at("special").boolean();
      if (token.content.empty()) continue;
      std::optional<std::int32_t> id = ids_.find(token.content);
      if (!id) id = model.id_of(token.content);
      if (!id) {
        if (next_id >= kMostIds) entry.fail(fmt::format("more than {} ids", kMostIds));
        id = static_cast<std::int32_t>(next_id++);
      }
      token.id = *id;
      token.pattern = token.content;
      if (token.normalized && normalizer) {
        OwnedPiece piece{token.content, 0};
        normalizer->apply(piece, memory);
        token.pattern = piece.text;
        if (token.pattern.empty())
          entry.fail("the normalizer removes the whole token", "set normalized to false");
        normalized_bytes += token.pattern.size();
        if (normalized_bytes > kMostNormalized)
          entry.fail(fmt::format("the normalized tokens have more than {} bytes", kMostNormalized),
                     "set normalized to false");
      }
      ids_.set(token.content, *id);
      tokens_[*id] = std::move(token);
    }
  }
  std::vector<const AddedToken*> raw, normalized;
  std::set<std::string_view> patterns;
  for (const auto& [id, token] : tokens_) {
    (token.normalized ? normalized : raw).push_back(&token);
    if (token.normalized && !patterns.insert(token.pattern).second)
      json->fail(fmt::format("two tokens are \"{}\" after normalization", token.pattern),
                 "set normalized to false");
  }
  raw_.emplace(std::move(raw));
  normalized_.emplace(std::move(normalized));
}

}  // namespace mantissa::tokenizer
