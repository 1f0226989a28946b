// The token ids of a corpus, and where its documents begin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "mantissa/text/rows/token_file.h"

namespace mantissa::text {

/// One stream of ids: those of texts are in memory, those of token files stay in the files.
class Corpus {
 public:
  Corpus() = default;
  /// Ids in memory, one document.
  explicit Corpus(std::vector<std::int32_t> ids);

  /// Marks that a document begins at the end of the stream.
  void begin_document();
  void append(std::span<const std::int32_t> ids);
  /// Takes the memory of `ids` if no others are in memory.
  void append(std::vector<std::int32_t>&& ids);
  void append(std::int32_t id) { append(std::span<const std::int32_t>(&id, 1)); }
  /// Appends the ids of a file as one document.
  void append(const TokenFile& file);
  /// Begins a document after each `separator`.
  void split(std::int32_t separator);
  /// Begins a document after each `separator` of the token files; null: after the one in a file's header, and
  /// where an index states it. Reads all token files that have a separator.
  void split_token_files(std::optional<std::int32_t> separator);

  std::int64_t tokens() const { return tokens_; }
  /// Returns the last id, or null.
  std::optional<std::int32_t> last() const;
  /// Reads ids [first, first + out.size()) of the stream. Throws FileError as TokenFile does.
  void read(std::int64_t first, std::span<std::int32_t> out) const;
  /// Returns the lengths of the documents in order; none are 0.
  std::vector<std::int64_t> document_lengths() const;
  /// Returns the bytes in memory.
  std::size_t bytes() const;

 private:
  /// Consecutive ids of a file or of memory.
  struct Stretch {
    std::int64_t begin = 0;  // in the stream
    std::optional<TokenFile> file = {};
    std::size_t in_memory = 0;  // without a file: index of the first id in memory_
  };
  std::int64_t end_of(std::size_t stretch) const;
  /// Begins a document after each `separator` of a stretch.
  void split_stretch(std::size_t stretch, std::int32_t separator);
  void sort_documents();

  std::vector<std::int32_t> memory_;
  std::vector<Stretch> stretches_;
  std::vector<std::int64_t> documents_;  // where they begin, ascending
  std::int64_t tokens_ = 0;
};

}  // namespace mantissa::text
