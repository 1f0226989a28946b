// Token ids from files: plain text, JSON lines, and files of raw ids.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/tokenizer/tokenizer.h"

namespace mantissa::text {

/// Expands names and globs (`*`, `?`, `[…]`) to files in the given order; the files of one glob are sorted by
/// bytes. A file whose name equals the pattern takes precedence over the glob. Throws FileError for a missing
/// file, a glob without a match, or anything that is not a regular file, and ConfigError for an empty list.
std::vector<std::string> expand_files(const std::vector<std::string>& patterns);

/// Returns true if any of the files, read as read_tokens() reads them, is text that a tokenizer turns into
/// ids.
bool holds_text(const std::vector<std::string>& patterns, const std::string& format);

/// Returns true if the name of `path` is one of JSON lines.
bool is_jsonl(const std::string& path);

/// Returns the concatenated ids of all files. `patterns` as for expand_files. Formats:
///   text    The bytes of a file, unchanged. A separator precedes each file but the first.
///   jsonl   One JSON object per line with the document in the string field `text`. A separator
///           follows each document. Blank lines are skipped.
///   tokens  Raw little-endian ids without header or separators: uint16 if `vocabulary` is below
///           65,536, else uint32.
///   auto    By file name extension. .txt .text .md: text; .jsonl .ndjson: jsonl; .bin .tokens: tokens.
///
/// `vocabulary` is the number of entries of the model's embedding; every id is below it. Throws ConfigError
/// for an unknown format, and for text in which an id of the tokenizer is not below `vocabulary`. Throws
/// FileError, with file and line or position, for a file that does not match its format, and if all files
/// together contain no tokens.
std::vector<std::int32_t> read_tokens(const std::vector<std::string>& patterns, const std::string& format,
                                      const tokenizer::Tokenizer& tokenizer, std::int64_t vocabulary);

}  // namespace mantissa::text
