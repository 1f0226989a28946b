// Token ids from files: plain text, JSON lines, and files of raw ids.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/text/tokenizer.h"

namespace mantissa::text {

/// The files that names and globs (`*`, `?`, `[…]`) stand for: in the order given, those of one glob sorted
/// by bytes. A file whose name is the pattern letter for letter wins over the glob. Throws FileError for a
/// name without a file, a glob without a match, and what is not a regular file; ConfigError for an empty
/// list.
std::vector<std::string> expand_files(const std::vector<std::string>& patterns);

/// Whether any of the files, read as read_tokens() reads them, is text that a tokenizer turns into ids.
bool holds_text(const std::vector<std::string>& patterns, const std::string& format);

/// Puts a document and the separator that ends it behind `ids`.
void append_document(std::string_view document, const Tokenizer& tokenizer, std::vector<std::int32_t>& ids);

/// The ids of all files, one behind the other. `patterns` as for expand_files. Formats:
///   "text"    the bytes of a file as they are; a separator stands between this file and what was before it,
///   none within "jsonl"   one JSON object a line, its document in the string field `text`; a separator after
///   each document;
///             lines of white space are passed over
///   "tokens"  raw little-endian ids without header or separators, uint16 where `vocabulary` is below 65,536,
///   else
///             uint32
///   "auto"    by the end of each file's name: .txt .text .md: text; .jsonl .ndjson: jsonl; .bin .tokens:
///   tokens
/// `vocabulary`: number of entries of the model's embedding; every id is below it.
/// Throws ConfigError for an unknown format and for a tokenizer larger than `vocabulary`; FileError, naming
/// file and line or position, for a file that is not what its format says, and where all files together hold
/// no token.
std::vector<std::int32_t> read_tokens(const std::vector<std::string>& patterns, const std::string& format,
                                      const Tokenizer& tokenizer, std::int64_t vocabulary);

}  // namespace mantissa::text
