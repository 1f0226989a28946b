// The hash of the rows that a run trains on: a resumed run needs the same ones.
#pragma once

#include <string>

#include "mantissa/text/dataset.h"

namespace mantissa::run {

/// Returns the xxh64 of the ids, targets and weights of training rows, with the number of rows, as 16
/// hexadecimal digits; "" without rows, such as those of a callback, and for generated puzzles, whose number
/// follows the number of steps. All rows count if they have at most 2^24 ids together; otherwise 1024 of
/// them, evenly spaced, so that data larger than memory are not read as a whole. Throws FileError if a token
/// file cannot be read.
std::string hash_of_rows(const text::Dataset& data);

}  // namespace mantissa::run
