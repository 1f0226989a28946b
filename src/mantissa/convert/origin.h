// Where weights come from, as the metadata of their files say it and what is added by a conversion.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "mantissa/convert/rewrite.h"
#include "mantissa/io/safetensors.h"

namespace mantissa::convert {

using Metadata = std::map<std::string, std::string>;

/// The keys of a file's metadata: the policy's line, the format of the last rounding, and what was done since
/// the weights were trained, "; " between.
inline constexpr const char* kPolicyKey = "mantissa.policy";
inline constexpr const char* kRoundedToKey = "mantissa.rounded_to";
inline constexpr const char* kHistoryKey = "mantissa.history";

/// "F32 to bf16, rounded to nearest"; nothing where `change` leaves all of `parts` as they are.
std::optional<std::string> described(std::span<const Part> parts, const Change& change);

/// `before` of a file with `parts`, after `change`. The format of the last rounding is the new one where
/// something is rounded; else what it was, or that of the narrowest values that were widened.
Metadata metadata_after(Metadata before, std::span<const Part> parts, const Change& change);

/// The text of config.json `text` with "torch_dtype" or "dtype", whichever it has, naming `stored`; so in the
/// parts of a composed model. Without "quantization_config" where `dequantised`. `file` names it in messages.
/// Throws FileError where it is not JSON.
std::string config_with_dtype(const std::string& text, const std::filesystem::path& file, io::Dtype stored,
                              bool dequantised = false);

}  // namespace mantissa::convert
