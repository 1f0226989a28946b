// JSON files from untrusted sources: limited in size and depth, with errors as FileError.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

namespace mantissa::io {

/// Parses `text`. Throws FileError with the name of `file` if it is not JSON, nests deeper than 64 levels, or
/// repeats a key.
nlohmann::json parse_json(std::string_view text, const std::filesystem::path& file);

/// Parses a file of at most 100 MB.
nlohmann::json read_json_file(const std::filesystem::path& file);

}  // namespace mantissa::io
