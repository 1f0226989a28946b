// Frozen weights that a program holds in quantized blocks (plan::Buffer::quants): made from the values of the
// model's files when they are read, one matrix at a time, and read back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "mantissa/core/numeric/error_stats.h"
#include "mantissa/engine/runtime/weights.h"

namespace mantissa::weights {

/// Returns true if slot `slot` of the first program is held in blocks.
bool is_quantized(const runtime::WeightSet& weights, std::size_t slot);

/// What quantization lost, by format.
class QuantizationErrors {
 public:
  void add(QuantFormat format, const ErrorStats& errors, std::size_t bytes);
  /// Returns a note for each format, such as "frozen weights in nf4: 4.500 bits per weight, SNR 20.5 dB".
  std::vector<std::string> notes() const;

 private:
  struct Sum {
    ErrorStats errors;
    std::size_t bytes = 0;
  };
  std::map<QuantFormat, Sum> sums_;
};

/// Quantizes `values`, the matrix of a slot in f32, into the weight set, on all threads. The bytes depend on
/// neither these nor the instruction set. Adds the errors to `errors`.
void quantize_frozen(runtime::WeightSet& weights, std::size_t slot, std::span<const float> values,
                     QuantizationErrors& errors);

/// Writes elements [first, first + n) of a slot that is held in blocks, rounded to the master's format, as
/// steps read them, and to `format`; n is the number that fits `out`.
void read_quantized(const runtime::WeightSet& weights, std::size_t slot, std::int64_t first, Scalar format,
                    std::span<std::byte> out);

}  // namespace mantissa::weights
