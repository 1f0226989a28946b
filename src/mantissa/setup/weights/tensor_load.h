// Reads a tensor of a file into masters and copies: one pass reads, checks, rounds and stores it, piece by
// piece on all threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "mantissa/engine/plan/program.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/files/io/checkpoint.h"

namespace mantissa::weights {

/// Loads one tensor from its file into allocated memory.
class TensorLoad {
 public:
  TensorLoad(const io::WeightFiles& files, const io::TensorInfo& tensor, const plan::Slot& slot);

  /// Destinations; those with null data are not filled.
  Matrix master;
  std::vector<Matrix> copies;
  /// The stored values, if they are mapped.
  const std::byte* mapped = nullptr;

  Scalar stored() const { return stored_; }

  /// Throws FileError if a value is not finite or beyond the master's range.
  void run(const runtime::Device& device);

 private:
  /// The buffers in which a thread converts pieces.
  struct Buffers {
    std::vector<std::byte> stored, wide, master, copy;
  };

  /// Loads elements [first, first + n).
  void run_piece(const runtime::Device& device, std::int64_t first, std::int64_t n, Buffers& buffers) const;
  [[noreturn]] void refuse_nonfinite(const runtime::Device& device, const std::byte* values,
                                     std::int64_t first, std::int64_t n) const;
  /// `wide` contains the values of the file, `rounded` those in the master's format.
  [[noreturn]] void refuse_range(const runtime::Device& device, const std::byte* wide,
                                 const std::byte* rounded, std::int64_t first, std::int64_t n) const;
  const io::WeightFiles& files_;
  const plan::Slot& slot_;
  const std::string& name_;  // of the tensor in its file
  const std::filesystem::path& file_;
  Scalar stored_, wide_;
};

}  // namespace mantissa::weights
