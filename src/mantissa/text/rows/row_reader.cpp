#include "mantissa/text/rows/row_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mantissa/core/base/error_text.h"
#include "mantissa/text/rows/file_kinds.h"
#include "mantissa/text/tokenizer/characters.h"

namespace mantissa::text {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

bool is_csv(const std::string& path, const std::string& format) {
  const std::string_view name = without_compression(path);
  return format == kCsv || (format == "auto" && name.ends_with(".csv"));
}

/// Returns the largest number of arrays and objects of a JSON text that lie within one another.
std::size_t nesting(std::string_view json) {
  std::size_t depth = 0, most = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      i += c == '\\' ? 1 : 0;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      most = std::max(most, ++depth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return most;
}

}  // namespace

RowReader::RowReader(const std::string& path, const FileFormat& format)
    : lines_(path), fields_(format.fields) {
  BufferedBytes& bytes = lines_.bytes();
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (bytes.rest().starts_with(kMark)) bytes.take(kMark.size());
  if (is_csv(path, format.name)) {
    csv_.emplace(bytes);
  } else if (const std::string_view rest = bytes.rest();
             rest.substr(std::min(rest.size(), rest.find_first_not_of(kSpace))).starts_with('[')) {
    array_.emplace(bytes);
  }
}

bool RowReader::next_text() {
  if (array_) {
    if (!array_->next(text_)) return false;
    place_ = {array_->line(), array_->row()};
    return true;
  }
  do {
    if (!lines_.next(text_)) return false;
  } while (text_.find_first_not_of(kSpace) == std::string::npos);
  place_.line = lines_.number();
  return true;
}

template <class Json>
Json RowReader::parse() const {
  const char* const unit = array_ ? "row" : "line";
  if (const std::size_t invalid = find_invalid_utf8(text_); invalid != std::string_view::npos)
    throw FileError("{}: byte {} of the {} is not UTF-8; JSON must be UTF-8", where(), invalid + 1, unit);
  const auto not_json = [&](std::size_t byte) {
    return FileError(fmt::format(
        "{}: not JSON at byte {} of the {}; {}{}", where(), byte, unit,
        array_ ? "every element of the array must be one JSON object" : "every line must be one JSON object",
        array_ || lines_.ended() ? "" : ". The file ends within this line: check that it is complete"));
  };
  if (const std::size_t zero = text_.find('\0'); zero != std::string::npos) {  // the parser would stop there
    throw not_json(zero + 1);
  }
  // Values are copied and written by functions that call themselves for each level.
  constexpr std::size_t kDeepest = 256;
  if (nesting(text_) > kDeepest) {
    throw FileError("{}: arrays and objects nest deeper than {} levels; write the row without them", where(),
                    kDeepest);
  }
  try {
    return Json::parse(text_);
  } catch (const nlohmann::json::parse_error& error) {
    throw not_json(error.byte);
  } catch (const nlohmann::json::exception&) {
    throw FileError("{}: a number of the {} is out of range; write it as a string or remove it", where(),
                    unit);
  }
}

template <class Json>
bool RowReader::read(Json& row) {
  if (csv_) {
    if (!csv_->next(values_)) {
      if (place_.row > 0) fields_.check_found(input().path());
      return false;
    }
    place_ = csv_->place();
    row = Json::object();
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (!csv_->names()[i].empty()) row[csv_->names()[i]] = std::move(values_[i]);
    }
  } else {
    if (!next_text()) {
      if (place_.line > 0) fields_.check_found(input().path());
      return false;
    }
    row = parse<Json>();
  }
  if (fields_.any()) fields_.apply(row, where());
  return true;
}

bool RowReader::next(nlohmann::json& row) {
  return read(row);
}

bool RowReader::next(nlohmann::ordered_json& row) {
  return read(row);
}

void read_rows(const std::string& path, const TakeRow& take, const FileFormat& format) {
  RowReader rows(path, format);
  for (nlohmann::ordered_json row; rows.next(row);) {
    if (!row.is_object()) {
      throw FileError("{}: is a JSON {}; every line must be one JSON object", rows.where(), row.type_name());
    }
    if (!take(std::move(row), rows.place())) return;
  }
}

}  // namespace mantissa::text
