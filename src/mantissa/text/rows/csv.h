// Rows of comma-separated values (RFC 4180).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/text/rows/buffered_bytes.h"
#include "mantissa/text/rows/file_place.h"

namespace mantissa::text {

/// A file whose first record has the names of the columns. A value in quotes may have commas, line ends, and
/// quotes that are doubled. A record ends with LF, CRLF or CR; empty lines are skipped. As in Python's csv, a
/// quote within a value that does not begin with one is an ordinary character.
class CsvRows {
 public:
  /// Reads the names, unless the file is empty. Throws FileError as next(), and for a name that occurs twice
  /// or a header without a comma whose columns are divided by something else. `bytes` must outlive the rows.
  explicit CsvRows(BufferedBytes& bytes);

  /// Returns the names of the columns. A column without a name, as of pandas' index, has no field.
  const std::vector<std::string>& names() const { return names_; }
  /// Reads the next record, one value for each name. Returns false at the end of the file. Throws FileError
  /// with the line and the row for another number of values, a quote that does not end or that text follows,
  /// a zero byte, text that is not UTF-8, and a row of more than 256 MiB.
  bool next(std::vector<std::string>& values);
  /// Returns where the last record begins; the header is row 0.
  const FilePlace& place() const { return place_; }

 private:
  bool read_record(std::vector<std::string>& values, std::size_t most);
  /// Appends a value. Returns true if another one follows it.
  bool read_value(std::string& value);
  void read_quoted(std::string& value);
  void append(std::string& value, int byte);
  [[noreturn]] void refuse(std::string_view why) const;

  BufferedBytes& bytes_;
  std::vector<std::string> names_;
  FilePlace place_;
  std::size_t size_ = 0;  // bytes of the record
};

}  // namespace mantissa::text
