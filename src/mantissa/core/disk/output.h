// Output files that must not destroy other files.
#pragma once

#include <filesystem>
#include <span>

namespace mantissa::disk {

/// Throws FileError if the output file `out` must not be written: if it is a directory, one of `inputs` (also
/// through a link) or, unless `overwrite`, any other regular file that is not empty. A directory among the
/// inputs stands for its files.
void check_output(const std::filesystem::path& out, std::span<const std::filesystem::path> inputs,
                  bool overwrite);

}  // namespace mantissa::disk
