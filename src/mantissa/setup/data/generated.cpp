#include "mantissa/setup/data/generated.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "mantissa/core/base/error.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/text/rows/row_reader.h"
#include "mantissa/text/rows/sources.h"

namespace mantissa::data {

bool is_generated(const std::vector<std::string>& source) {
  return source.size() == 1 && text::names_generator(source.front());
}

bool has_generated(const std::vector<std::string>& source) {
  return std::ranges::any_of(source, text::names_generator);
}

bool holds_text(const std::vector<std::string>& source, const std::string& format) {
  return has_generated(source) || text::holds_text(source, format);
}

text::GeneratedRows training_rows(const config::RunConfig& config) {
  return {
      .seed = config.run.seed, .people_min = config.data.people_min, .people_max = config.data.people_max};
}

text::GeneratedRows held_out_rows(const config::RunConfig& config) {
  text::GeneratedRows rows = training_rows(config);
  rows.held_out = true;
  return rows;
}

text::GeneratedRows held_out_rows() {
  return {.people_max = 3, .held_out = true, .count = 200};
}

std::vector<std::int32_t> generated_tokens(const text::GeneratedRows& rows,
                                           const tokenizer::Tokenizer& tokenizer, std::int64_t most) {
  // One allocation: a growing one would leave holes between the documents' strings that the process keeps.
  constexpr std::int64_t kLongestDocument = 4096;
  std::vector<std::int32_t> ids;
  ids.reserve(static_cast<std::size_t>(std::min(most, kLongestDocument * rows.count) + kLongestDocument));
  for (std::int64_t i = 0; i < rows.count && std::ssize(ids) <= most; ++i) {
    const std::vector<std::int32_t> document = tokenizer.encode(rows.document(i));
    ids.insert(ids.end(), document.begin(), document.end());
    ids.push_back(tokenizer.separator());
  }
  return ids;
}

text::FileFormat file_format(const config::DataSection& data) {
  return {data.format, text::id_type_named(data.id_type, "data.id_type ="), data.fields};
}

void check_has_fields(const std::vector<std::string>& files, const text::FileFormat& format,
                      std::string_view key) {
  if (format.fields.empty()) return;
  for (const std::string& file : files) {
    if (is_generated({file})) continue;
    for (const std::string& path : text::expand_files({file})) {
      if (text::holds_rows(path, format.name)) return;
    }
  }
  throw ConfigError(fmt::format(
      "{}: {} has no rows with fields. Fix: remove {}, or give files of JSON or CSV, or their format", key,
      printable(files.front()), key));
}

void for_each_row(const std::vector<std::string>& files, const TakeRow& take,
                  const text::FileFormat& format) {
  bool more = true;
  for (const std::string& path : text::expand_files(files)) {
    text::read_rows(
        path,
        [&](nlohmann::ordered_json row, const text::FilePlace& place) {
          more = take(std::move(row), place.in(path));
          return more;
        },
        format);
    if (!more) return;
  }
}

}  // namespace mantissa::data
