// The origin of the values of a GGUF file.
#pragma once

#include <map>
#include <string>

#include "mantissa/files/gguf/gguf_file.h"

namespace mantissa::gguf {

/// Returns metadata for the weights of a file, with the keys of files that are written here: what the file
/// itself records of its origin, the narrowest type that values were rounded to, and the types of its
/// tensors. Dequantized weights then do not pass for unrounded ones.
std::map<std::string, std::string> origin_of(const GgufFile& file);

}  // namespace mantissa::gguf
