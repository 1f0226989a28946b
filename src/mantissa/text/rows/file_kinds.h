// The kinds of data files, one row for each: what data.format, --format, help, messages and docs/data.md
// name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/text/rows/corpus.h"
#include "mantissa/text/rows/file_format.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::text {

/// The kind whose files are not recognized by their contents.
inline constexpr std::string_view kCsv = "csv";

struct FileKind {
  std::string_view name;      // in data.format
  std::string_view endings;   // by which "auto" chooses it, separated by spaces
  bool text;                  // a tokenizer makes its ids; such files may be compressed
  bool rows;                  // RowReader reads its rows, which have fields
  std::string_view contents;  // in docs/data.md
  /// Appends the ids of a file.
  void (*append)(const std::string& path, const FileFormat& format, const tokenizer::Tokenizer& tokenizer,
                 std::int64_t vocabulary, Corpus& corpus);
};

std::span<const FileKind> file_kinds();

/// Returns the kind of this name, or null.
const FileKind* find_file_kind(std::string_view name);
/// Returns the kind whose files end with `ending`, or null.
const FileKind* file_kind_by_ending(std::string_view ending);

/// Returns the values of data.format: "auto" and the names, or only those of text, or of rows with fields.
enum class Formats { all, text, rows };
std::vector<std::string> format_names(Formats which = Formats::all);

}  // namespace mantissa::text
