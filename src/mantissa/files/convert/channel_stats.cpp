#include "mantissa/files/convert/channel_stats.h"

#include <algorithm>
#include <cmath>

#include "mantissa/core/numeric/convert.h"
#include "mantissa/core/numeric/value_stats.h"
#include "mantissa/files/convert/pieces.h"

namespace mantissa::convert {
namespace {

/// Consecutive rows of a matrix, which one thread reads from first to last.
struct Slab {
  std::size_t first = 0, end = 0;
  std::vector<double> sum_squares, absmax;  // of each column
  std::vector<std::uint32_t> nonfinite;     // of each column; empty if there are none
};

/// Returns slabs that depend only on the shape. All slabs together keep at most about kMostChannels sums.
std::vector<Slab> slabs_of(std::size_t rows, std::size_t columns) {
  constexpr std::size_t kMostSlabs = 16;
  const std::size_t fitting = std::max<std::size_t>(1, static_cast<std::size_t>(kMostChannels) / columns);
  const std::size_t count = std::min({kMostSlabs, rows, fitting});
  std::vector<Slab> slabs(count);
  for (std::size_t i = 0; i < count; ++i) {
    slabs[i].first = rows * i / count;
    slabs[i].end = rows * (i + 1) / count;
  }
  return slabs;
}

template <class T>
void add_to_columns(const T* row, std::size_t n, Slab& slab) {
  double* sums = slab.sum_squares.data();
  double* largest = slab.absmax.data();
  for (std::size_t i = 0; i < n; ++i) {
    const double x = std::abs(static_cast<double>(row[i]));
    sums[i] += x * x;
    largest[i] = largest[i] < x ? x : largest[i];
  }
}

/// Replaces values that are not finite by zeros, and counts them.
template <class T>
void leave_out_nonfinite(T* row, std::size_t n, Slab& slab) {
  slab.nonfinite.resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    if (std::isfinite(row[i])) continue;
    row[i] = 0;
    ++slab.nonfinite[i];
  }
}

/// Reads the rows of a slab.
template <class T>
void measure_slab(const io::WeightFiles& files, const io::TensorInfo& matrix, SimdTarget target, Slab& slab,
                  std::vector<Channel>& rows) {
  const Scalar type = *io::scalar_of(matrix.dtype);
  const std::size_t width = bytes_of(type), columns = slab.sum_squares.size();
  const std::size_t most = std::max<std::size_t>(1, kPiece / columns);
  std::vector<std::byte> stored;
  std::vector<T> row(columns);
  for (std::size_t at = slab.first; at < slab.end; at += most) {
    const std::size_t n = std::min(most, slab.end - at);
    stored.resize(n * columns * width);
    files.read(matrix.name, stored, at * columns * width);
    for (std::size_t r = 0; r < n; ++r) {
      load_row(stored.data(), type, r * columns, columns, row.data(), target);
      ValueStats seen;
      seen.add_row(row.data(), columns, target);
      if (seen.nonfinite > 0) leave_out_nonfinite(row.data(), columns, slab);
      add_to_columns(row.data(), columns, slab);
      const double absmax = seen.finite() == 0 ? 0 : std::max(std::abs(seen.min), std::abs(seen.max));
      rows[at + r] = {seen.sum_squares, absmax, seen.finite()};
    }
  }
}

}  // namespace

double Channel::rms() const {
  return count == 0 ? 0 : std::sqrt(sum_squares / static_cast<double>(count));
}

ChannelStats channel_stats(const io::WeightFiles& files, const io::TensorInfo& matrix,
                           const kernels::Context& ctx) {
  const auto rows = static_cast<std::size_t>(matrix.shape.at(0)),
             columns = static_cast<std::size_t>(matrix.shape.at(1));
  const SimdTarget target = kernels::simd_target(ctx.simd);
  ChannelStats all{std::vector<Channel>(rows), std::vector<Channel>(columns)};
  std::vector<Slab> slabs = slabs_of(rows, columns);
  for_each_on_threads(ctx, slabs.size(), [&](std::size_t i, int /*thread*/) {
    slabs[i].sum_squares.resize(columns);
    slabs[i].absmax.resize(columns);
    if (io::scalar_of(matrix.dtype) == Scalar::f64) {
      measure_slab<double>(files, matrix, target, slabs[i], all.rows);
    } else {
      measure_slab<float>(files, matrix, target, slabs[i], all.rows);
    }
  });
  for (Channel& column : all.columns) column.count = rows;
  for (const Slab& slab : slabs) {
    for (std::size_t i = 0; i < columns; ++i) {
      Channel& column = all.columns[i];
      column.sum_squares += slab.sum_squares[i];
      column.absmax = std::max(column.absmax, slab.absmax[i]);
      if (!slab.nonfinite.empty()) column.count -= slab.nonfinite[i];
    }
  }
  return all;
}

}  // namespace mantissa::convert
