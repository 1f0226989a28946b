// Whose the names in a run directory are.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/train/run/directory.h"

namespace mantissa::run {

/// Throws FileError if `out`, whose lock this process holds, cannot be the directory of a run: it contains a
/// name that a run writes, but no list (core/disk/owned.h) and no state of a run, or a model, adapter or
/// tokenizer with files that this program did not write.
void check_claim(const std::filesystem::path& out);

/// Makes `out`, for which check_claim() holds, the directory of a run: writes the list of a run's names, and
/// removes what killed processes left.
void claim(const std::filesystem::path& out);

/// Removes the files of an earlier run that a run which begins in `out` may not write again. Its model and
/// adapter stay until remove_earlier(), and meanwhile are named in `out` as earlier ones (io/model_path.h).
void begin_anew(const std::filesystem::path& out);

/// Removes the earlier run's model and adapter, but `kept`, which this run has written.
void remove_earlier(const std::filesystem::path& out, std::string_view kept);

}  // namespace mantissa::run
