// Writes a safetensors file and computes the checksums that a checkpoint or a state needs.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "mantissa/core/disk/atomic.h"
#include "mantissa/files/io/hash.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::io {

struct WrittenFile {
  std::uint64_t bytes = 0;      // of the file
  std::uint64_t file_hash = 0;  // xxh64 of the whole file, including the header
};

/// Like write_safetensors. Also adds the data section to `data`, which may span several files.
WrittenFile stream_safetensors(const disk::Target& target, std::span<const TensorToWrite> tensors,
                               const std::map<std::string, std::string>& metadata, Hash64& data);

}  // namespace mantissa::io
