// Outliers among weights: rows and columns of a matrix and elements of a vector that are much larger than the
// others, and tensors that are much larger or smaller than those of the other layers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/files/convert/channel_stats.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::convert {

/// The ratio of an outlier's root mean square to the median's. The largest of a million rows of 16 normal
/// values is 2.1 times the median, the largest row or column of a Llama of 0.86 M parameters, trained on
/// generated text, 4.0 times. At 8, an 8-bit format with one scale for all rows loses three binades of the
/// others.
inline constexpr double kOutlierRatio = 8;
/// The ratio of a single magnitude to the median: of an element of a vector to the others, of a tensor's
/// largest to those of the other layers. Single weights vary more than a root mean square: 32 is five
/// binades.
inline constexpr double kOutlierAbsmaxRatio = 32;

struct Outlier {
  enum class Against { rows, columns, elements, layers };
  std::string tensor;
  Against against = Against::rows;
  std::optional<std::uint64_t> index = std::nullopt;  // of the row, column or element
  double rms = 0;
  double absmax = 0;
  double ratio = 0;        // to the median; below 1 for a tensor that is smaller than those of other layers
  bool of_absmax = false;  // `ratio` is that of the largest magnitudes, otherwise of `rms`
  double norm = 0;  // root of the sum of squares of a row or column: the RMS of its products with independent
                    // inputs of RMS 1

  /// Returns how far the ratio is from 1, as a factor; infinite for a tensor of zeros.
  double distance() const { return ratio < 1 ? 1 / ratio : ratio; }
  /// Returns the magnitude that one of 16,000 normal products with inputs of RMS 1 exceeds (four standard
  /// deviations).
  double large_product() const { return 4 * norm; }
};

/// The magnitudes of a tensor, to compare with those of other layers.
struct TensorSize {
  std::string tensor;
  double rms = 0, absmax = 0;
};

/// True if rows and columns of the tensor are examined: it has two dimensions of 8 to kMostChannels, and
/// floating-point values.
bool has_channels(const io::TensorInfo& tensor);

/// Returns the rows and columns of at least 16 elements whose RMS is kOutlierRatio times the median of those
/// that are not zero, or more. If more than an eighth of them are that large, the values have no typical size
/// and none is an outlier.
std::vector<Outlier> channel_outliers(const std::string& tensor, const ChannelStats& stats);

/// Returns the elements of a vector whose magnitude is kOutlierAbsmaxRatio times the median of those that are
/// not zero, or more; none if they are more than an eighth. `elements`: channels of one value.
std::vector<Outlier> element_outliers(const std::string& tensor, const std::vector<Channel>& elements);

/// Returns the tensors whose RMS (or largest magnitude) is kOutlierRatio (kOutlierAbsmaxRatio) times the
/// median of the same tensor in the other layers, or more. Also returns those whose RMS is a part of that of
/// at least two other layers, one over kOutlierAbsmaxRatio or less, and tensors of zeros that are not zero in
/// another layer. Layers are numbers between dots of a name.
std::vector<Outlier> layer_outliers(const std::vector<TensorSize>& tensors);

}  // namespace mantissa::convert
