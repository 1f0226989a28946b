#include "mantissa/text/rows/csv.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/text/rows/lines.h"
#include "mantissa/text/tokenizer/characters.h"

namespace mantissa::text {
namespace {

constexpr std::size_t kMostColumns = 4096;

bool ends_line(int byte) {
  return byte == '\n' || byte == '\r';
}

}  // namespace

CsvRows::CsvRows(BufferedBytes& bytes) : bytes_(bytes) {
  if (!read_record(names_, kMostColumns)) return;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const auto before = names_.begin() + static_cast<std::ptrdiff_t>(i);
    if (!names_[i].empty() && std::find(names_.begin(), before, names_[i]) != before) {
      refuse(fmt::format("the header has the name {} twice. Fix: rename one of the columns",
                         in_quotes(names_[i])));
    }
  }
  if (names_.size() > 1) return;
  for (const char other : {';', '\t', '|'}) {
    if (names_.front().find(other) == std::string::npos) continue;
    refuse(fmt::format("the header {} has no comma. Fix: write the file again with commas between the values",
                       in_quotes(names_.front())));
  }
}

void CsvRows::refuse(std::string_view why) const {
  throw FileError("{}: {}", place_.in(bytes_.input().path()), why);
}

bool CsvRows::next(std::vector<std::string>& values) {
  ++place_.row;
  if (!read_record(values, names_.size())) return false;
  if (values.size() == names_.size()) return true;
  refuse(fmt::format("{}, but the header has {} ({}). Fix: put a value with a comma or a line end in quotes",
                     counted(values.size(), "value"), names_.size(), fmt::join(names_, ", ")));
}

bool CsvRows::read_record(std::vector<std::string>& values, std::size_t most) {
  values.clear();
  size_ = 0;
  while (ends_line(bytes_.peek())) bytes_.get();
  place_.line = bytes_.line();
  if (bytes_.peek() < 0) return false;
  for (bool more = true; more;) {
    if (values.size() == most)
      refuse(fmt::format("more than {}. Fix: put a value with a comma in quotes", counted(most, "value")));
    more = read_value(values.emplace_back());
    if (find_invalid_utf8(values.back()) != std::string_view::npos)
      refuse(fmt::format("value {} is not UTF-8. Fix: save the file as UTF-8", values.size()));
  }
  return true;
}

bool CsvRows::read_value(std::string& value) {
  const bool quoted = bytes_.peek() == '"';
  if (quoted) read_quoted(value);
  while (true) {
    const int byte = bytes_.get();
    if (byte == '\r' && bytes_.peek() == '\n') bytes_.get();
    if (byte == ',') return true;
    if (byte < 0 || ends_line(byte)) return false;
    if (quoted) {
      refuse("text follows the quote that ends a value. Fix: write a quote within a value twice (\"\")");
    }
    append(value, byte);
  }
}

void CsvRows::read_quoted(std::string& value) {
  const std::int64_t line = bytes_.line();
  bytes_.get();
  while (true) {
    const int byte = bytes_.get();
    if (byte < 0) {
      refuse(fmt::format(
          "the quote that begins a value on line {} does not end. Fix: write a quote within a value twice "
          "(\"\"), or check that the file is complete",
          line));
    }
    if (byte == '"') {
      if (bytes_.peek() != '"') return;
      bytes_.get();
    }
    append(value, byte);
  }
}

void CsvRows::append(std::string& value, int byte) {
  if (byte == 0) refuse("the row has a zero byte. Fix: save the file as text in UTF-8");
  if (++size_ > kMostRowBytes) {
    refuse(fmt::format("the row has more than {} MiB. Fix: check its quotes, or split it into several rows",
                       kMostRowBytes >> 20U));
  }
  value += static_cast<char>(byte);
}

}  // namespace mantissa::text
