// JSON files that others may have written or damaged: bounded in size and depth, faults as FileError.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

namespace mantissa::io {

/// Parses `text`. Throws FileError, which names `file`, where it is not JSON, nests deeper than 64 levels, or
/// has a key twice.
nlohmann::json parse_json(std::string_view text, const std::filesystem::path& file);

/// Parses a file of at most 100 MB.
nlohmann::json read_json_file(const std::filesystem::path& file);

}  // namespace mantissa::io
