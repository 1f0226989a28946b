// The rearrangements of values between Hugging Face and llama.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "mantissa/engine/model/config.h"
#include "mantissa/files/gguf/architecture.h"
#include "mantissa/files/io/dtype.h"

namespace mantissa::gguf {

/// Returns the number of heads whose rows `transform` interleaves; 1 for other transforms.
std::int64_t heads_of(const model::ModelConfig& config, Transform transform);

/// The order of the rows of q and k. Hugging Face rotates rows i and i + h of a head together (h is half of
/// its size), llama.cpp's "llama" rows 2i and 2i + 1.
class HeadRows {
 public:
  HeadRows(std::uint64_t rows, std::uint64_t heads) : size_(rows / heads) {}
  /// Returns the row in a GGUF file of row `row` in a Hugging Face file.
  std::uint64_t interleaved(std::uint64_t row) const {
    const std::uint64_t half = size_ / 2, within = row % size_;
    return row - within + within % half * 2 + within / half;
  }
  /// Returns the inverse.
  std::uint64_t halves(std::uint64_t row) const {
    const std::uint64_t half = size_ / 2, within = row % size_;
    return row - within + within % 2 * half + within / 2;
  }

 private:
  std::uint64_t size_;
};

/// Writes from[i] + constant to `to`, computed in f32, or in f64 if `to_dtype` is f64.
void add_constant(std::span<const std::byte> from, io::Dtype from_dtype, std::span<std::byte> to,
                  io::Dtype to_dtype, float constant);

}  // namespace mantissa::gguf
