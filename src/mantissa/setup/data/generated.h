// The source of rows that a generator makes, in place of files, and the rows of any source.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mantissa/setup/config/run_config.h"
#include "mantissa/text/rows/file_format.h"
#include "mantissa/text/rows/generated_rows.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::data {

/// Returns true for a generator alone.
bool is_generated(const std::vector<std::string>& source);
/// Returns true if a generator is among the entries of a mixture.
bool has_generated(const std::vector<std::string>& source);
/// Returns true if any of the entries, generators or files, is text that a tokenizer turns into ids.
bool holds_text(const std::vector<std::string>& source, const std::string& format);

/// Returns the generated rows of a config's training data.
text::GeneratedRows training_rows(const config::RunConfig& config);
/// Return the held-out ones with the same numbers of people, and those for a model without a config.
text::GeneratedRows held_out_rows(const config::RunConfig& config);
text::GeneratedRows held_out_rows();

/// Returns the documents of the rows, with a separator after each: all of them, or the first that have more
/// than `most` tokens.
std::vector<std::int32_t> generated_tokens(const text::GeneratedRows& rows,
                                           const tokenizer::Tokenizer& tokenizer,
                                           std::int64_t most = INT64_MAX);

/// Returns how the files of a config are read.
text::FileFormat file_format(const config::DataSection& data);

/// Throws ConfigError if the format names fields and none of the files has rows with fields. `key` is what
/// gave the names: "data.fields", "--fields".
void check_has_fields(const std::vector<std::string>& files, const text::FileFormat& format,
                      std::string_view key);

/// Passes each row of the files with its place to `take` until that returns false. Throws FileError with file
/// and line.
using TakeRow = std::function<bool(nlohmann::ordered_json row, std::string where)>;
void for_each_row(const std::vector<std::string>& files, const TakeRow& take,
                  const text::FileFormat& format = {});

}  // namespace mantissa::data
