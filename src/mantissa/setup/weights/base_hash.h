// The hash of an adapter's base in its files. Unlike the hashes of setup/weights/frozen_hash.h it does not
// depend on the policy, so that every command that uses the adapter can compare it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "mantissa/setup/weights/model_files.h"

namespace mantissa::weights {

/// Returns the xxh64 of the tensors of `source` with their names, formats and shapes, or of its whole file if
/// that is not a safetensors file, as 16 hexadecimal digits; "" for weights in memory, a state, or none.
/// Reads all bytes once, in pieces.
std::string hash_of_files(const ModelSource& source);

/// Returns a warning if the run of the adapter in `path` (the run, its adapter or its state) began with other
/// weights than those of `source`. Null: they are equal, or the run has no hash of its base. Throws FileError
/// if the run's start.safetensors cannot be read.
std::optional<std::string> changed_base(const ModelSource& source, const std::filesystem::path& path);

}  // namespace mantissa::weights
