// Puzzles in a file, as `mantissa data kk` writes them.
#pragma once

#include <filesystem>

#include "mantissa/text/puzzles/kk.h"

namespace mantissa::text {

/// Writes the puzzles to the file `out`, one JSON object on each line. Throws FileError if `out` exists,
/// unless `overwrite`, and ResourceError if the disk is full; the old file then keeps its contents.
void write_kk(const KkOptions& options, const std::filesystem::path& out, bool overwrite);

}  // namespace mantissa::text
