// The rows of a source by number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mantissa/text/rows/corpus.h"
#include "mantissa/text/rows/row.h"

namespace mantissa::text {

/// Rows in the order of the data. Immutable.
class RowStore {
 public:
  virtual ~RowStore() = default;
  virtual std::int64_t rows() const = 0;
  /// Returns the number of inputs of row `row`.
  virtual std::int64_t length(std::int64_t row) const = 0;
  /// Appends row `row` to `step`, with its number in `origin`. A row of several documents becomes a pack of
  /// them (StepData::packs). Throws FileError if a token file cannot be read.
  virtual void append(std::int64_t row, std::int64_t origin, StepData& step) const = 0;
  /// Returns the ids of the data, also those that no row uses; 0 for separate rows.
  virtual std::int64_t tokens() const { return 0; }
  /// Returns the lengths of the documents in the data; of separate rows, of the rows.
  virtual std::vector<std::int64_t> document_lengths() const = 0;
  /// Returns the ids in all rows without padding.
  virtual std::int64_t ids_in_rows() const = 0;
  /// Returns the bytes in memory.
  virtual std::size_t bytes() const = 0;
  /// Returns what is missing if `purpose` needs `wanted` rows and there are fewer.
  virtual std::string shortage(std::int64_t wanted, const std::string& purpose) const = 0;
};

/// Row j is ids [j·T, j·T + T] with T = `sequence_length`, so neighbours share one id. Several stores may
/// share a corpus.
std::shared_ptr<const RowStore> sequences(std::shared_ptr<const Corpus> corpus, std::int64_t sequence_length);
std::shared_ptr<const RowStore> sequences(Corpus corpus, std::int64_t sequence_length);

/// Rows in memory.
std::shared_ptr<const RowStore> listed(std::vector<Row> rows);

/// Pairs of rows: row i is the pack of rows[2·i] and rows[2·i + 1].
std::shared_ptr<const RowStore> paired(std::vector<Row> rows);

/// Rows of whole documents, by pack(). A document of more than T + 1 ids becomes parts [j·T, j·T + T], which
/// share one id, and a shorter last part. Parts of one id are left out, because they predict nothing.
std::shared_ptr<const RowStore> packed(Corpus corpus, std::int64_t sequence_length);

}  // namespace mantissa::text
