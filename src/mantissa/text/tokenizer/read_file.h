// The contents of a tokenizer's file.
#pragma once

#include <filesystem>
#include <string>

namespace mantissa::tokenizer {

/// Returns the bytes of a file. Throws FileError if it cannot be read or is larger than any tokenizer.
std::string read_tokenizer_file(const std::filesystem::path& file);

}  // namespace mantissa::tokenizer
