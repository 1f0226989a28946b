// The writing of a safetensors file, with the checksums that a checkpoint or a state needs beside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "mantissa/io/hash.h"
#include "mantissa/io/safetensors.h"

namespace mantissa::io {

struct WrittenFile {
  std::uint64_t bytes = 0;      // of the file
  std::uint64_t file_hash = 0;  // xxh64 of the whole file, header and all
};

/// As write_safetensors; the data section is also added to `data`, which may go on over several files.
WrittenFile stream_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                               const std::map<std::string, std::string>& metadata, Hash64& data);

}  // namespace mantissa::io
