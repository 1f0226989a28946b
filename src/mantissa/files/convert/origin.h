// The origin of weights, as recorded in their files' metadata and extended by a conversion.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "mantissa/files/convert/rewrite.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::convert {

using Metadata = std::map<std::string, std::string>;

/// Metadata keys: the policy's line, the format of the last rounding, and the conversions since training,
/// separated by "; ".
inline constexpr const char* kPolicyKey = "mantissa.policy";
inline constexpr const char* kRoundedToKey = "mantissa.rounded_to";
inline constexpr const char* kHistoryKey = "mantissa.history";

/// Describes a change, for example "F32 to bf16, rounded to nearest". Returns null if `change` keeps all of
/// `outputs`.
std::optional<std::string> described(std::span<const OutputTensor> outputs, const Change& change);

/// Returns `before`, the metadata of a file with `outputs`, updated for `change`. If anything is rounded, the
/// format of the last rounding becomes the new one. Otherwise it stays, or becomes the format of the
/// narrowest widened values.
Metadata metadata_after(Metadata before, std::span<const OutputTensor> outputs, const Change& change);

/// Returns the config.json text `text` with `stored` in "torch_dtype" or "dtype", whichever exists, also in
/// the parts of a composed model. Removes "quantization_config" if `dequantized`. Messages name `file`.
/// Throws FileError if `text` is not JSON.
std::string config_with_dtype(const std::string& text, const std::filesystem::path& file, io::Dtype stored,
                              bool dequantized = false);

}  // namespace mantissa::convert
