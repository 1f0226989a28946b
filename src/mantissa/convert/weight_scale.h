// Scales of 8-bit weights that lie in tensors of their own, as checkpoints in fp8 have them: a weight's value
// is its code's times its scale's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/io/checkpoint.h"

namespace mantissa::convert {

/// Rows and columns of the blocks that share a scale, as config.json's quantization_config may say.
using BlockSize = std::pair<std::int64_t, std::int64_t>;

class WeightScale {
 public:
  /// The scale of `weight` in `files`; nothing where it has none. One for the tensor, one for each row of a
  /// matrix, or one for each block: of `block` where it is given, else of 128 × 128, or what divides the
  /// matrix evenly. Throws ShapeError where none of these fits.
  static std::shared_ptr<const WeightScale> of(const io::WeightFiles& files, const io::TensorInfo& weight,
                                               const std::optional<BlockSize>& block);

  /// values[i] = values[i] × the scale of element first + i, i < n.
  void multiply(std::uint64_t first, std::size_t n, float* values) const;
  void multiply(std::uint64_t first, std::size_t n, double* values) const;

 private:
  template <class T>
  void multiply_row(std::uint64_t first, std::size_t n, T* values) const;

  std::vector<float> scales_;
  std::uint64_t columns_ = 1;  // of the weight
  std::uint64_t block_rows_ = 1, block_columns_ = 1;
  std::uint64_t across_ = 1;  // scales of a row of blocks
};

/// Whether `name` is of a tensor that only a quantised model has: a scale of weights or of activations.
bool is_scale_name(std::string_view name);

}  // namespace mantissa::convert
