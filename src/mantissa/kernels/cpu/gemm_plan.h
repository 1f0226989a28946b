// How gemm() cuts its work and its scratch memory. Nothing here changes a bit of a result.
//
// A is packed in chunks of rows × the whole of k, which all threads share from the outer cache. A task is a
// tile of columns times a part of the chunk's rows: it packs its tile of B block by block into the inner
// cache and runs along the chunk. So few rows cost one pass over B, and many rows pay for the packing of B.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mantissa/tensor/extent.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::kernels::gemm_plan {

/// A multiple of every micro-kernel's rows (6 and 14), so that scratch does not depend on the instruction
/// set.
inline constexpr std::size_t kRowUnit = 42;
inline constexpr std::size_t kMostChunkRows = 24 * kRowUnit;
inline constexpr std::size_t kLeastChunkRows = 4 * kRowUnit;
/// Elements of a packed chunk of A that stays in the outer cache.
inline constexpr std::size_t kChunkElements = std::size_t{1} << 19;
/// Columns of a tile in bytes, at most and (for the sake of balance) at least: a packed block of B, 256 deep,
/// is 128 KB at most and stays in the inner cache.
inline constexpr std::size_t kTileBytes = 512;
inline constexpr std::size_t kLeastTileBytes = 256;
/// Tasks for each thread, so that a slow core does not hold up the others.
inline constexpr std::size_t kTasksPerThread = 2;
/// Products of fewer multiplications than this run on one thread: waking another costs more.
inline constexpr std::int64_t kParallelWork = std::int64_t{1} << 17;

constexpr std::size_t round_up(std::size_t n, std::size_t unit) {
  return (n + unit - 1) / unit * unit;
}
constexpr std::size_t ceil_div(std::size_t n, std::size_t unit) {
  return (n + unit - 1) / unit;
}

/// The scratch of a product, in elements of its arithmetic type. Each size grows with m, n and k.
struct GemmScratch {
  std::size_t a = 0;          // the packed chunk
  std::size_t b = 0;          // a packed tile, of each thread
  std::size_t temporary = 0;  // sums that are not in C, of each thread
  std::size_t temporary_rows = 0;

  GemmScratch(std::size_t m, std::size_t k, std::size_t element_bytes) {
    const std::size_t columns = kTileBytes / element_bytes, depth = std::min<std::size_t>(k, kSumBlock);
    a = std::min((m + kRowUnit) * k, std::max(kChunkElements, kLeastChunkRows * k));
    b = depth * columns;
    temporary_rows = std::clamp(round_up(m, kRowUnit), 2 * kRowUnit, kMostChunkRows);
    temporary = temporary_rows * columns;
    // Every part begins on a cache line.
    a = round_up(a, kAlignment / element_bytes);
  }
  std::size_t elements(int threads) const { return a + static_cast<std::size_t>(threads) * (b + temporary); }
};

/// Rows of one chunk: what fits the outer cache and the temporaries, dealt evenly.
inline std::size_t chunk_rows(std::size_t m, std::size_t depth, std::size_t most) {
  const std::size_t fitting = kChunkElements / std::max<std::size_t>(depth, 1) / kRowUnit * kRowUnit;
  const std::size_t rows = std::min(std::clamp(fitting, kLeastChunkRows, kMostChunkRows), most);
  return round_up(ceil_div(m, ceil_div(m, rows)), kRowUnit);
}

/// Columns of one tile: a multiple of `unit`.
inline std::size_t tile_columns(std::size_t n, std::size_t unit, std::size_t element_bytes, int threads) {
  const std::size_t most = kTileBytes / element_bytes, least = kLeastTileBytes / element_bytes;
  if (threads == 1) return most;
  const std::size_t even = ceil_div(n, kTasksPerThread * static_cast<std::size_t>(threads));
  return round_up(std::clamp(even, least, most), unit);
}

constexpr std::size_t tasks_wanted(int threads) {
  return threads == 1 ? 1 : kTasksPerThread * static_cast<std::size_t>(threads);
}

/// Panels of one part of a chunk: all of them, or fewer where the tiles alone are too few tasks.
inline std::size_t part_panels(std::size_t panels, std::size_t tiles, int threads) {
  return ceil_div(panels, std::min(panels, ceil_div(tasks_wanted(threads), tiles)));
}

}  // namespace mantissa::kernels::gemm_plan
