#include "mantissa/text/tokenizer/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "mantissa/text/tokenizer/onig_syntax.h"
#include "mantissa/text/tokenizer/unicode.h"
#include "mantissa/text/tokenizer/utf8.h"

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

/// Returns the first token of each pattern.
std::vector<SearchedToken> distinct(const std::vector<SearchedToken>& tokens) {
  std::vector<SearchedToken> first;
  std::set<std::string_view> patterns;
  for (const SearchedToken& token : tokens) {
    if (patterns.insert(token.pattern).second) first.push_back(token);
  }
  return first;
}

std::vector<std::string_view> patterns_of(const std::vector<SearchedToken>& tokens) {
  std::vector<std::string_view> patterns;
  for (const SearchedToken& searched : distinct(tokens)) {
    if (!searched.pattern.empty()) patterns.push_back(searched.pattern);
  }
  return patterns;
}

}  // namespace

TokenFinder::TokenFinder(const std::vector<SearchedToken>& tokens) : search_(patterns_of(tokens)) {
  bool words = false;
  for (const auto& [pattern, token] : distinct(tokens)) {
    words = words || token->single_word;
    if (pattern.empty()) {
      of_nothing_ = token;
    } else {
      tokens_.push_back(token);
    }
  }
  if (!words) return;
  const std::string word = word_class(true);
  word_after_ = Pattern::pcre2("\\G" + word, "\\w");
  word_before_ = Pattern::pcre2("\\G(?<=" + word + ")", "\\w");
}

/// The matches in a text, in order.
class TokenFinder::Matches {
 public:
  Matches(const TokenFinder& finder, std::string_view text) : finder_(finder), text_(text) {}

  struct Match {
    std::size_t start = 0, end = 0;
    const AddedToken* token = nullptr;
  };
  std::optional<Match> next() {
    if (found_.start < at_) found_ = find();
    const AddedToken* nothing = finder_.of_nothing_;
    if (nothing && at_ == last_end_ && found_.start != at_) {
      if (at_ == text_.size()) return std::nullopt;
      at_ = std::min(at_ + utf8_length(text_[at_]), text_.size());
    }
    if (found_.start == at_ || (!nothing && found_.start != npos)) return take();
    if (!nothing) return std::nullopt;
    last_end_ = at_;
    return Match{at_, at_, nothing};
  }

 private:
  static constexpr std::size_t npos = std::string_view::npos;

  MultiSearch::Match find() const {
    return finder_.search_.find(text_, at_).value_or(MultiSearch::Match{npos, npos, 0});
  }
  Match take() {
    at_ = last_end_ = found_.end;
    return {found_.start, found_.end, finder_.tokens_[found_.pattern]};
  }

  const TokenFinder& finder_;
  std::string_view text_;
  std::size_t at_ = 0, last_end_ = npos;
  MultiSearch::Match found_ = find();  // of a pattern that is not empty, from at_ on; at npos: none
};

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
  Matches matches(*this, text);
  while (const auto found = matches.next()) {
    const AddedToken& token = *found->token;
    auto [start, end] = std::pair(found->start, found->end);
    if (token.single_word && !stands_alone(text, start, end, memory)) continue;
    if (token.strip_left) start = std::max(space_before(text, start), done);
    if (token.strip_right) end = space_after(text, end);
    if (start > end) continue;  // the token before has stripped all of it
    rest(start);
    if (start < end) sink(&token, Piece{});
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
  std::vector<AddedToken> special, others;  // in the order of the search
  std::set<std::string> special_contents;
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
        normalized_bytes += token.pattern.size();
        if (normalized_bytes > kMostNormalized)
          entry.fail(fmt::format("the normalized tokens have more than {} bytes", kMostNormalized),
                     "set normalized to false");
      }
      ids_.set(token.content, *id);
      if (token.special && special_contents.insert(token.content).second) special.push_back(token);
      if (!token.special) others.push_back(token);
      tokens_[*id] = std::move(token);
    }
  }
  std::erase_if(others, [&](const AddedToken& token) { return special_contents.contains(token.content); });
  special.insert(special.end(), others.begin(), others.end());
  std::vector<SearchedToken> raw, normalized;
  for (const AddedToken& token : special)
    (token.normalized ? normalized : raw).push_back({token.pattern, &tokens_.at(token.id)});
  raw_.emplace(raw);
  normalized_.emplace(normalized);
}

}  // namespace mantissa::tokenizer
