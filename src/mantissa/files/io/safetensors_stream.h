// Writes a safetensors file and computes the checksums that a checkpoint or a state needs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

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

using SeePiece = std::function<void(std::size_t tensor, std::span<const std::byte>)>;

/// A safetensors file whose tensors are written in any order, also by other processes.
class PlacedSafetensors {
 public:
  /// Writes the header and takes the space. `target` is in an unfinished directory.
  PlacedSafetensors(const disk::Target& target, std::span<const TensorToWrite> tensors);
  const std::filesystem::path& path() const { return path_; }
  /// Returns the place of a tensor's first byte in the file.
  std::uint64_t offset(std::size_t tensor) const { return offsets_[tensor]; }
  /// Reads the file once more, after all tensors were written, for its hash. `sees` is called with all pieces
  /// of each tensor.
  WrittenFile commit(const SeePiece& sees);

 private:
  std::filesystem::path path_;
  disk::AtomicFile file_;
  std::vector<std::uint64_t> offsets_;  // and that of the end
};

/// Writes a tensor's bytes from `offset` on, and adds them to `hash`.
void write_tensor(disk::File& file, std::uint64_t offset, const TensorToWrite& tensor, Hash64& hash);

}  // namespace mantissa::io
