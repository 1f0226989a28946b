// state.json: a state's header, and a checksum of the file over itself.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "mantissa/io/state.h"

namespace mantissa::io {

nlohmann::json json_of_header(const StateHeader& header);

/// The text of state.json: `json` with its own xxh64 added. Throws ConfigError where a text in it is not
/// UTF-8.
std::string sealed(nlohmann::json json);

/// The header in `json`, its checksum compared. Throws FileError, which names `file`, where that differs or
/// another version wrote it; nlohmann's exceptions where an entry is missing or of the wrong type.
StateHeader open_sealed(nlohmann::json json, const std::filesystem::path& file);

}  // namespace mantissa::io
