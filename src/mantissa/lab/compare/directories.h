// Compares runs that have ended, from their directories.
#pragma once

#include <filesystem>
#include <span>

#include "mantissa/engine/runtime/device.h"
#include "mantissa/lab/compare/compare.h"

namespace mantissa::lab {

/// Compares the runs in `directories`, of which the first is the reference. Runs that differ only in run.seed
/// are one policy: its runs are paired with those of the reference that have the same seeds. The losses come
/// from metrics.jsonl; other figures are null if the files that hold them are missing: config.toml,
/// summary.json, start.safetensors (of the reference), and the newest state or the model. Throws FileError
/// and ConfigError if a file is damaged or metrics.jsonl is missing.
Comparison compare_directories(std::span<const std::filesystem::path> directories,
                               const runtime::Device& device);

}  // namespace mantissa::lab
