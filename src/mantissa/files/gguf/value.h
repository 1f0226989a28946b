// The metadata values of a GGUF file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace mantissa::gguf {

/// A list. Integers of all widths become 64-bit integers, and f32 and f64 become double.
using Integers = std::vector<std::int64_t>;
using Numbers = std::vector<double>;
using Texts = std::vector<std::string>;

/// A value of a file. Integers above 2^63 - 1 are not accepted. A 32-bit float keeps its type, since its
/// shortest decimal ("1e-05") is the number that was meant. A list of booleans becomes Integers.
using Value = std::variant<bool, std::int64_t, float, double, std::string, Integers, Numbers, Texts>;

using Metadata = std::map<std::string, Value, std::less<>>;

/// Returns the double nearest to the shortest decimal that identifies `value`: 1e-05 for the f32 nearest to
/// it.
double shortest(float value);

}  // namespace mantissa::gguf
