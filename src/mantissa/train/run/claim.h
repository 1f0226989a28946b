// Whose the names in a run directory are.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/train/run/directory.h"

namespace mantissa::run {

/// Makes `out`, whose lock this process holds, the directory of a run: writes the list of the names that a
/// run writes (core/disk/owned.h), if it has none. Throws FileError, before anything is changed, if it
/// contains one of these names without a list or a state of a run, or a model, adapter or tokenizer with
/// files that this program did not write.
void claim(const std::filesystem::path& out);

/// Removes the files of an earlier run that a run which begins in `out` may not write again. Its model and
/// adapter stay until remove_earlier(), and meanwhile are named in `out` as earlier ones (io/model_path.h).
void begin_anew(const std::filesystem::path& out);

/// Removes the earlier run's model and adapter, but `kept`, which this run has written.
void remove_earlier(const std::filesystem::path& out, std::string_view kept);

}  // namespace mantissa::run
