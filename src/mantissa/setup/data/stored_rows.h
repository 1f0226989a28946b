// Rows that are kept as text until they are used, or generated then.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mantissa/text/rows/file_format.h"
#include "mantissa/text/rows/file_place.h"
#include "mantissa/text/rows/generated_rows.h"

namespace mantissa::data {

struct StoredRow {
  nlohmann::ordered_json row;
  std::string where;  // its file and line, or its number
};

/// The rows of files or of a generator, by number.
class StoredRows {
 public:
  /// No rows.
  StoredRows() = default;
  /// Reads all rows of files, whose names may be globs. Throws FileError with file and line.
  static StoredRows of_files(const std::vector<std::string>& files, const text::FileFormat& format = {});
  static StoredRows of(const text::GeneratedRows& generated);

  std::int64_t size() const { return static_cast<std::int64_t>(rows_.size()); }
  StoredRow at(std::int64_t i) const;
  /// Keeps only the rows with these numbers, which are ascending.
  void keep(const std::vector<std::int64_t>& numbers);
  /// Moves the last `count` rows into another store.
  StoredRows split_off(std::int64_t count);
  std::size_t bytes() const;

 private:
  struct Kept {
    std::string json;  // empty: a generated row
    std::size_t file = 0;
    text::FilePlace place;  // `row`: the number of a generated row
  };
  std::vector<Kept> rows_;
  std::vector<std::string> files_;
  text::GeneratedRows generated_;
};

}  // namespace mantissa::data
