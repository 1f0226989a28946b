// Tokens that are found in the text before the model sees it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/text/tokenizer/flat_map.h"
#include "mantissa/text/tokenizer/json.h"
#include "mantissa/text/tokenizer/model.h"
#include "mantissa/text/tokenizer/multi_search.h"
#include "mantissa/text/tokenizer/normalizers.h"
#include "mantissa/text/tokenizer/patterns.h"
#include "mantissa/text/tokenizer/piece.h"

namespace mantissa::tokenizer {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  std::string pattern;  // the content, normalized if the token is
  bool single_word = false, strip_left = false, strip_right = false, normalized = false, special = false;
};

/// Receives the parts of a text: an added token, or null and a part for the model.
using AddedSink = FunctionRef<void(const AddedToken*, const Piece&)>;

/// A pattern, and the token that it stands for.
struct SearchedToken {
  std::string_view pattern;
  const AddedToken* token;
};

/// Finds tokens in a text: the leftmost first, of those the longest, without overlaps. Of equal patterns the
/// first counts. An empty pattern, which a normalizer leaves of some tokens, matches at every character where
/// no other does and no match ends: it divides the text, and becomes a token only of white space that it
/// strips.
class TokenFinder {
 public:
  explicit TokenFinder(const std::vector<SearchedToken>& tokens);
  /// Passes the parts of `piece` to `sink`. Empty parts are dropped.
  void split(const Piece& piece, MatchMemory& memory, AddedSink sink) const;

 private:
  class Matches;
  bool stands_alone(std::string_view text, std::size_t start, std::size_t end, MatchMemory& memory) const;

  std::vector<const AddedToken*> tokens_;
  const AddedToken* of_nothing_ = nullptr;  // the token whose pattern is empty
  MultiSearch search_;                      // for the other patterns, in the order of tokens_
  std::optional<Pattern> word_before_, word_after_;
};

/// The added tokens of a file.
class AddedTokens {
 public:
  /// Reads "added_tokens". As in `tokenizers`, a token that the model has keeps the model's id, and others
  /// get the next free ones, in the order of the file; the ids in the file do not count. Of tokens with equal
  /// patterns, special ones precede others, and then the order of the file counts.
  AddedTokens(const std::optional<JsonView>& json, const Model& model, const Normalizer* normalizer);

  /// Those that are found in the text as it is, and those that are found in the normalized text.
  const TokenFinder& raw() const { return *raw_; }
  const TokenFinder& normalized() const { return *normalized_; }
  const std::map<std::int32_t, AddedToken>& by_id() const { return tokens_; }
  std::optional<std::int32_t> id_of(std::string_view content) const { return ids_.find(content); }

 private:
  std::map<std::int32_t, AddedToken> tokens_;
  StringMap ids_;
  std::optional<TokenFinder> raw_, normalized_;
};

}  // namespace mantissa::tokenizer
