// Files of tensors that this program writes and that hold no weights: they may lie beside those of a model.
#pragma once

#include <filesystem>

namespace mantissa::io {

/// The metadata entry that names the kind of such a file.
inline constexpr const char* kKindKey = "mantissa.kind";

/// Returns true for a file that `trace` wrote. Throws FileError if the system cannot read it.
bool is_trace_file(const std::filesystem::path& path);

/// Returns true for a safetensors file that is a trace or names another kind, such as states of a sequence.
/// False for a file that is none. Throws FileError if the system cannot read it.
bool is_result_file(const std::filesystem::path& path);

}  // namespace mantissa::io
