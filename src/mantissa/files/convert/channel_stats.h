// The magnitudes of the rows and columns of a matrix.
#pragma once

#include <cstdint>
#include <vector>

#include "mantissa/files/io/checkpoint.h"
#include "mantissa/kernels/context.h"

namespace mantissa::convert {

/// A row or a column of a matrix. Values that are not finite are left out.
struct Channel {
  double sum_squares = 0;
  double absmax = 0;
  std::uint64_t count = 0;  // finite values
  /// Root mean square; 0 without values.
  double rms() const;
};

struct ChannelStats {
  std::vector<Channel> rows, columns;
};

/// The most rows or columns that are measured: more would take much memory.
inline constexpr std::int64_t kMostChannels = std::int64_t{1} << 22;

/// Measures all rows and columns of a floating-point tensor with two dimensions of 1 to kMostChannels. Reads
/// the tensor once, in pieces, on all threads; the result does not depend on their number. Throws FileError.
ChannelStats channel_stats(const io::WeightFiles& files, const io::TensorInfo& matrix,
                           const kernels::Context& ctx);

}  // namespace mantissa::convert
