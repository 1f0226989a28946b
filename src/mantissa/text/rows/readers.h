// One reader per file format. sources.h describes the formats. All readers throw FileError with the file and
// the position.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "mantissa/text/rows/corpus.h"
#include "mantissa/text/rows/lines.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::text {

/// Appends the ids of a plain-text file as one document, after a separator unless the corpus is empty or ends
/// with one. Throws ConfigError with the line if the text has an id that is not below `vocabulary`.
void append_text_file(const std::string& path, const tokenizer::Tokenizer& tokenizer, std::int64_t vocabulary,
                      Corpus& corpus);

/// Appends the documents of a file of JSON lines, each with its separator. Throws ConfigError as
/// append_text_file does.
void append_jsonl_file(const std::string& path, const tokenizer::Tokenizer& tokenizer,
                       std::int64_t vocabulary, Corpus& corpus);

inline constexpr std::array<const char*, 1> kTextField{"text"};

/// One document of a file, and its line from 1.
struct LineDocument {
  std::string text;
  std::int64_t line = 0;
};

/// The documents of a file of JSON lines, one at a time.
class JsonLines {
 public:
  explicit JsonLines(const std::string& path) : lines_(path) {}
  /// Returns false at the end of the file. Throws FileError for a line that is not such a document.
  bool next(LineDocument& document);
  const ByteReader& input() const { return lines_.input(); }

 private:
  Lines lines_;
  std::string line_;
};

/// Returns the first `most` documents of a file with one per line: JSON lines, or plain lines if the name
/// ends with .txt or .text. Skips blank lines. Throws FileError for a line that is not UTF-8 or not such a
/// document. A document is in the first of `fields` that a JSON object has.
std::vector<LineDocument> read_line_documents(const std::string& path, std::int64_t most,
                                              std::span<const char* const> fields = kTextField);

/// Passes each line of a file of JSON lines to `take`, until it returns false, with its number from 1. Skips
/// blank lines. Throws FileError with the line if it is not a JSON object.
using JsonLine = std::function<bool(nlohmann::ordered_json row, std::int64_t line)>;
void read_json_lines(const std::string& path, const JsonLine& take);

/// Appends the ids of a token file. Checks all of them if there are at most 2^28.
void append_token_file(const std::string& path, std::int64_t vocabulary, Corpus& corpus,
                       IdType type = IdType::automatic);

/// Appends the ids of the pair of Megatron that `path` belongs to, and checks them as above.
void append_binidx(const std::string& path, std::int64_t vocabulary, Corpus& corpus);

}  // namespace mantissa::text
