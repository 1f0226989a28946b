// The masters that a run trains, before its first step, in a file, so that they take no memory. The weights
// that a run never writes, such as the base of an adapter, stay where they are: the file names their place
// and hash.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "mantissa/engine/runtime/weights.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::weights {

/// The frozen weights of a run.
struct StartBase {
  std::string path;    // their model; empty: no file has them
  std::string policy;  // the line of the policy, under which the hashes hold
  std::string fixed,
      frozen;              // the hashes of a state (setup/weights/frozen_hash.h); empty: none, or not known
  std::string files = {};  // of an adapter's base in its files (setup/weights/base_hash.h); empty: not known
};

/// Writes the masters of `weights` that are trained. Throws ResourceError if the disk is full.
void save_start(const std::filesystem::path& path, const runtime::WeightSet& weights, const StartBase& base);

class StartWeights {
 public:
  /// Throws FileError if the file cannot be read or is damaged.
  explicit StartWeights(const std::filesystem::path& path);

  /// Throws FileError if the frozen weights are not those with which the run began. Compares only hashes that
  /// are known, and none if the policies differ.
  void check_base(const StartBase& now) const;

  /// Returns the frozen weights that the file names; its texts are empty if there are none.
  StartBase base() const;

  /// Returns the number of elements of a slot's master that equal those of the start as numbers, or null if
  /// the file does not have this tensor.
  std::optional<std::int64_t> unchanged(const plan::Slot& slot, ConstMatrix master,
                                        const runtime::Device& device) const;

 private:
  io::SafetensorsReader file_;
};

}  // namespace mantissa::weights
