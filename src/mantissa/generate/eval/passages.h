// Passages whose last word a model predicts, as in LAMBADA (https://arxiv.org/abs/1606.06031).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/setup/weights/model_files.h"
#include "mantissa/text/rows/file_place.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::eval {

/// A file of passages: rows (RowReader) with the passage in the field `text`, or plain lines if the name ends
/// with .txt or .text.
struct PassageFile {
  std::string name;        // empty: none
  std::int64_t limit = 0;  // read only the first passages; 0: all
};

struct Passage {
  std::vector<std::int32_t> ids;  // begins with the ids that the tokenizer's template puts before a text
  std::size_t word = 0;           // index of the first id of the last word, at least 1
  text::FilePlace place;
};

/// The largest number of tokens of a last word, whose logits are kept together.
inline constexpr std::size_t kMostWordTokens = 256;

/// Reads passages for a model. The last word begins at the last space, after white space at the end of the
/// passage is removed; its ids are those that the whole passage has beyond the text before it. Throws
/// ConfigError if the model has no tokenizer, and FileError with the line for a passage without two words,
/// with more tokens than the model has positions, or with a word of more than kMostWordTokens tokens, and if
/// the file has no passages.
std::vector<Passage> read_passages(const weights::ModelSource& source, const PassageFile& file);

/// Returns the ids that the tokenizer's template puts before `text`.
std::vector<std::int32_t> tokens_before(const tokenizer::Tokenizer& tokenizer, std::string_view text);

}  // namespace mantissa::eval
