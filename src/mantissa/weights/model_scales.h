// What a model directory keeps of the scales of its run: the largest magnitudes of tensors in 8 bits and of
// nvfp4 under scaling=delayed (docs/numerics.md, "Scales of tensors").
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "mantissa/runtime/scales.h"

namespace mantissa::weights {

/// The text of the entry io::kAmaxKey; empty where no tensor has a history.
std::string amax_text(const runtime::Scales& scales);

/// Begins the histories of `scales` with what `metadata` of `file` says; nothing where it says nothing, or
/// where no tensor has a history. Throws FileError where the entry is no object of positive numbers.
void read_amax(runtime::Scales& scales, const std::map<std::string, std::string>& metadata,
               const std::filesystem::path& file);

}  // namespace mantissa::weights
