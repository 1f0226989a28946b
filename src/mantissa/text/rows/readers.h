// One reader per file format. sources.h describes the formats. All readers throw FileError with the file and
// the position.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mantissa/text/rows/corpus.h"
#include "mantissa/text/rows/row_reader.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::text {

/// Appends the ids of a plain-text file as one document, after a separator unless the corpus is empty or ends
/// with one. Throws ConfigError with the line if the text has an id that is not below `vocabulary`.
void append_text_file(const std::string& path, const tokenizer::Tokenizer& tokenizer, std::int64_t vocabulary,
                      Corpus& corpus);

/// Appends the documents of a file of rows, each with its separator. Throws ConfigError as append_text_file
/// does.
void append_rows_file(const std::string& path, const FileFormat& format,
                      const tokenizer::Tokenizer& tokenizer, std::int64_t vocabulary, Corpus& corpus);

inline constexpr std::array<const char*, 1> kTextField{"text"};

/// One document of a file, and its place.
struct RowDocument {
  std::string text;
  FilePlace place;
};

/// The documents of a file of rows, one at a time.
class RowDocuments {
 public:
  explicit RowDocuments(const std::string& path, const FileFormat& format = {}) : rows_(path, format) {}
  /// Returns false at the end of the file. Throws FileError for a row that is not such a document.
  bool next(RowDocument& document);
  const ByteReader& input() const { return rows_.input(); }

 private:
  RowReader rows_;
};

/// Returns the first `most` documents of a file of rows, or of one with a document per line if the name ends
/// with .txt or .text. Skips blank lines. Throws FileError for a line that is not UTF-8, and a row that is
/// not such a document. A document is in the first of `fields` that a row has.
std::vector<RowDocument> read_row_documents(const std::string& path, std::int64_t most,
                                            std::span<const char* const> fields = kTextField);

/// Appends the ids of a token file. Checks all of them if there are at most 2^28.
void append_token_file(const std::string& path, std::int64_t vocabulary, Corpus& corpus,
                       IdType type = IdType::automatic);

/// Appends the ids of the pair of Megatron that `path` belongs to, and checks them as above.
void append_binidx(const std::string& path, std::int64_t vocabulary, Corpus& corpus);

}  // namespace mantissa::text
