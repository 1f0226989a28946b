// The masters of a run before its first step, in a file, so that they take no memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "mantissa/io/safetensors.h"
#include "mantissa/runtime/weights.h"

namespace mantissa::weights {

/// Writes all masters of `weights` that are not held in quantised blocks. Throws ResourceError if the disk is
/// full.
void save_start(const std::filesystem::path& path, const runtime::WeightSet& weights);

class StartWeights {
 public:
  /// Throws FileError if the file cannot be read.
  explicit StartWeights(const std::filesystem::path& path) : file_(path) {}

  /// Returns the number of elements of a slot's master that equal those of the start as numbers, or null if
  /// the file does not have this tensor.
  std::optional<std::int64_t> unchanged(const plan::Slot& slot, ConstMatrix master,
                                        const runtime::Device& device) const;

 private:
  io::SafetensorsReader file_;
};

}  // namespace mantissa::weights
