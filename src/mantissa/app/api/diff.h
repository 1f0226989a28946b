// Comparison of two runs, states, checkpoints or traces.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "mantissa/app/api/hardware.h"

namespace mantissa::api {

struct DiffOptions {
  std::filesystem::path a, b;
  bool bitwise = false;   // compare bytes; otherwise values, with NaN equal to NaN and −0 to +0
  std::size_t limit = 6;  // most tensors, missing tensors and config keys in the text
  Hardware hardware = {};
};

/// A comparison as text and as JSON (docs/cli/diff.md).
struct Diff {
  bool equal = false;
  bool beyond_rounding = false;  // of two traces: rounding does not explain a difference
  std::string verdict;           // one sentence: the first step, op or tensor that differs, and by how much
  std::vector<std::string>
      more;  // of two traces: where formats differ, and whether rounding explains the differences
  std::string text, json;
};

/// Finds the first step, op or tensor that differs, and measures the differences in units of the formats'
/// rounding. Throws FileError, also if the two cannot be compared, and ConfigError for an invalid config of a
/// run.
Diff diff(const DiffOptions& options);

}  // namespace mantissa::api
