// Names of models on Hugging Face's hub, which are given where a path is expected.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace mantissa::disk {

/// Returns true for the name of a model or of its owner on the hub.
bool is_hub_name(std::string_view text);

/// Returns the end of a message about a `path` that does not exist: the command that downloads a model to it,
/// if the path may be a name of the hub, "OWNER/NAME". Else returns "". A path is such a name in the current
/// directory, and in another one, such as that of a config, if it has no folder OWNER.
std::string hub_cure(const std::filesystem::path& path);

}  // namespace mantissa::disk
