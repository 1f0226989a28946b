// Adapters, where a command needs a model.
#pragma once

#include <filesystem>

#include "mantissa/files/io/model_path.h"

namespace mantissa::convert {

/// Throws FileError if `source`, opened from the path `given`, is an adapter, or a state of one. These have
/// no weights of their own.
void refuse_adapter(const io::ModelPath& source, const std::filesystem::path& given);

}  // namespace mantissa::convert
