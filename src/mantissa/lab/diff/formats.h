// The formats in which the ops of two traces compute, and where they differ.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "mantissa/files/io/checkpoint.h"

namespace mantissa::lab {

/// The formats of the op that computed a tensor of a trace, by the names that `explain` uses; "" if the op
/// has none.
struct ValueFormats {
  std::string store, multiply, accumulate, interior, output;
  friend bool operator==(const ValueFormats&, const ValueFormats&) = default;
};

/// The formats that a trace records, by the name of the tensor. Empty for traces that do not record them: of
/// other programs, and of versions before this one.
using TraceFormats = std::map<std::string, ValueFormats, std::less<>>;

/// Reads the formats from the metadata of a trace.
TraceFormats formats_of(const io::WeightFiles& trace);

struct FormatDifferences {
  bool known_a = false, known_b = false;  // the trace records its formats
  std::size_t compared = 0;               // tensors whose formats both record
  std::size_t different = 0;
  std::string first;  // the first tensor whose formats differ, or ""
  ValueFormats a, b;  // its formats
};

/// Compares the formats of the tensors in the order of `names`.
FormatDifferences compare_formats(const std::vector<std::string>& names, const TraceFormats& a,
                                  const TraceFormats& b);

/// Returns for example "A is f32 and B is bf16; A multiplies f32 and B bf16".
std::string formats_text(const ValueFormats& a, const ValueFormats& b);

/// Returns one sentence, or "" if the formats are known and do not differ.
std::string to_text(const FormatDifferences& formats);

}  // namespace mantissa::lab
