// Scales of 8-bit weights in separate tensors, as in fp8 checkpoints: a weight's value is its code's value
// times its scale.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/files/io/checkpoint.h"

namespace mantissa::convert {

/// Rows and columns per scale block, as config.json's quantization_config may specify.
using BlockSize = std::pair<std::int64_t, std::int64_t>;

/// Returns the block size in the quantization_config of the file `config`, a config.json, if it has one.
std::optional<BlockSize> block_size_in(const std::filesystem::path& config);

class WeightScale {
 public:
  /// Returns the scale of `weight` in `files`, or null if it has none. There is one scale for the tensor, one
  /// for each row of a matrix, or one for each block: of size `block` if given, else of 128 × 128, or of a
  /// size that divides the matrix evenly. Throws ShapeError if none of these fits.
  static std::shared_ptr<const WeightScale> of(const io::WeightFiles& files, const io::TensorInfo& weight,
                                               const std::optional<BlockSize>& block);

  /// Multiplies values[i] by the scale of element first + i, for i < n.
  void multiply(std::uint64_t first, std::size_t n, float* values) const;
  void multiply(std::uint64_t first, std::size_t n, double* values) const;

 private:
  template <class T>
  void multiply_row(std::uint64_t first, std::size_t n, T* values) const;

  std::vector<float> scales_;
  std::uint64_t columns_ = 1;  // of the weight
  std::uint64_t block_rows_ = 1, block_columns_ = 1;
  std::uint64_t across_ = 1;  // scales per row of blocks
};

/// True if `name` names a tensor that only a quantized model has: a scale of weights or activations.
bool is_scale_name(std::string_view name);

}  // namespace mantissa::convert
