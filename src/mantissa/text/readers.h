// One reader per file format. sources.h describes the formats. All readers throw FileError with the file and
// the position.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "mantissa/tokenizer/tokenizer.h"

namespace mantissa::text {

/// Appends the ids of a plain-text file to `ids`, after a separator unless `ids` is empty or ends with one.
/// Throws ConfigError with the line if the text has an id that is not below `vocabulary`.
void append_text_file(const std::string& path, const tokenizer::Tokenizer& tokenizer, std::int64_t vocabulary,
                      std::vector<std::int32_t>& ids);

/// Appends the documents of a file of JSON lines to `ids`, each with its separator. Throws ConfigError as
/// append_text_file does.
void append_jsonl_file(const std::string& path, const tokenizer::Tokenizer& tokenizer,
                       std::int64_t vocabulary, std::vector<std::int32_t>& ids);

/// One document of a file, and its line from 1.
struct LineDocument {
  std::string text;
  std::int64_t line = 0;
};
/// Returns the first `most` documents of a file with one per line: JSON lines, or plain lines if the name
/// ends with .txt or .text. Skips blank lines. Throws FileError for a line that is not UTF-8 or not such a
/// document.
std::vector<LineDocument> read_line_documents(const std::string& path, std::int64_t most);

/// Passes each line of a file of JSON lines to `take`, until it returns false, with its number from 1. Skips
/// blank lines. Throws FileError with the line if it is not a JSON object.
using JsonLine = std::function<bool(nlohmann::ordered_json row, std::int64_t line)>;
void read_json_lines(const std::string& path, const JsonLine& take);

/// Appends the raw ids of a token file to `ids`.
void append_token_file(const std::string& path, std::int64_t vocabulary, std::vector<std::int32_t>& ids);

}  // namespace mantissa::text
