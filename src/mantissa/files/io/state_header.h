// state.json: a state's header, with a checksum of the file itself.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "mantissa/files/io/state.h"

namespace mantissa::io {

nlohmann::json json_of_header(const StateHeader& header);

/// Returns the text of state.json: `json` plus its own xxh64. Throws ConfigError if a string in it is not
/// UTF-8.
std::string sealed(nlohmann::json json);

/// Returns the header in `json` after comparing its checksum. Throws FileError, with the name of `file`, if
/// the checksum differs or another version wrote it. Throws nlohmann's exceptions if an entry is missing or
/// of the wrong type.
StateHeader open_sealed(nlohmann::json json, const std::filesystem::path& file);

}  // namespace mantissa::io
