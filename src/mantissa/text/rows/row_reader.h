// The rows of a file with fields: JSON lines, a JSON array of objects, or comma-separated values.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/text/rows/csv.h"
#include "mantissa/text/rows/field_map.h"
#include "mantissa/text/rows/file_format.h"
#include "mantissa/text/rows/file_place.h"
#include "mantissa/text/rows/json_array.h"
#include "mantissa/text/rows/lines.h"

namespace mantissa::text {

/// Reads one row after the other; only one is in memory. A file is CSV if its format or, under "auto", its
/// name says so. Else it is JSON: an array of objects if its first character is "[", and JSON lines if not. A
/// byte order mark of UTF-8 at the beginning is skipped, and so are blank lines.
class RowReader {
 public:
  /// Throws FileError if the file cannot be read, or as CsvRows does.
  explicit RowReader(const std::string& path, const FileFormat& format = {});

  /// Reads the next row, with the fields that the format gives: of CSV an object of strings, of JSON lines
  /// any value. Returns false at the end of the file. Throws FileError, with file and line, for a row that is
  /// not such a value, as JsonArray and CsvRows do, and as FieldMapper does.
  bool next(nlohmann::json& row);
  bool next(nlohmann::ordered_json& row);
  /// Returns the place of the last row, and how messages name it.
  const FilePlace& place() const { return place_; }
  std::string where() const { return place_.in(input().path()); }
  const ByteReader& input() const { return lines_.input(); }

 private:
  template <class Json>
  bool read(Json& row);
  template <class Json>
  Json parse() const;
  /// Reads the text of the next row of JSON.
  bool next_text();

  Lines lines_;
  std::optional<JsonArray> array_;
  std::optional<CsvRows> csv_;
  FieldMapper fields_;
  FilePlace place_;
  std::string text_;                 // of a row of JSON
  std::vector<std::string> values_;  // of a row of CSV
};

/// Passes each row of a file to `take`, until it returns false, with its place. Throws FileError as RowReader
/// does, and for a row that is not an object.
using TakeRow = std::function<bool(nlohmann::ordered_json row, const FilePlace& place)>;
void read_rows(const std::string& path, const TakeRow& take, const FileFormat& format = {});

}  // namespace mantissa::text
