// The scales of a run in its model directory: the largest magnitudes of 8-bit and nvfp4 tensors under
// scaling=delayed (docs/numerics.md, "Scales of tensors").
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "mantissa/engine/runtime/scales.h"

namespace mantissa::weights {

/// Returns the text of the entry io::kAmaxKey, or "" if no tensor has a history.
std::string amax_text(const runtime::Scales& scales);

/// Initializes the histories of `scales` from the `metadata` of `file`. Does nothing without an entry, and if
/// no tensor has a history. Throws FileError if the entry is not an object of positive numbers.
void read_amax(runtime::Scales& scales, const std::map<std::string, std::string>& metadata,
               const std::filesystem::path& file);

}  // namespace mantissa::weights
