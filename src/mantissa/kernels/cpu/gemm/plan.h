// The partition of gemm()'s work and of its scratch memory. Nothing here changes a bit of a result.
//
// The smaller operand is packed once for all of k and shared by all threads. The tasks pack the larger one,
// each its own part, block by block into the inner cache, and use it at once. So both are packed once, and
// little of the packed data is used much later.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mantissa/core/numeric/factor.h"
#include "mantissa/core/tensor/extent.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/units.h"

namespace mantissa::kernels::gemm_plan {

/// A multiple of the rows of every micro-kernel with f32 panels (6 and 14), so the scratch size does not
/// depend on the instruction set.
inline constexpr std::size_t kRowUnit = 42;
/// Returns the unit of chunks of rows for a micro-kernel of `rows` rows.
constexpr std::size_t row_unit(std::size_t rows) {
  return kRowUnit % rows == 0 ? kRowUnit : rows;
}
/// Limits of a packed chunk: rows of A, columns of B, and elements if that allows a few units.
inline constexpr std::size_t kMostRows = 24 * kRowUnit;
inline constexpr std::size_t kMostColumns = 2048;
inline constexpr std::size_t kChunkElements = std::size_t{1} << 21;
inline constexpr std::size_t kLeastRows = 4 * kRowUnit;
inline constexpr std::size_t kLeastColumns = 256;
/// Columns of a tile in bytes. A packed block of B, 256 deep, has at most 128 KB and stays in the inner
/// cache.
inline constexpr std::size_t kTileBytes = 512;
inline constexpr std::size_t kLeastTileBytes = 256;
/// Most rows of A that a task packs at once.
inline constexpr std::size_t kTaskRows = 6 * kRowUnit;
/// Most rows of a tile whose products of parts have sums of their own.
inline constexpr std::size_t kMostPartRows = 12 * kRowUnit;
/// Tasks per thread, so that a slow core does not delay the others.
inline constexpr std::size_t kTasksPerThread = 4;
/// Products with fewer multiplications run on one thread: waking another one costs more.
inline constexpr std::int64_t kParallelWork = std::int64_t{1} << 17;

constexpr std::size_t round_up(std::size_t n, std::size_t unit) {
  return (n + unit - 1) / unit * unit;
}
constexpr std::size_t ceil_div(std::size_t n, std::size_t unit) {
  return (n + unit - 1) / unit;
}

/// Rows [row, row + rows) × columns [column, column + columns) of C.
struct GemmTile {
  std::size_t row, rows, column, columns;
};

/// The rows of A and columns of B that a packed operand holds at most, under every instruction set: panels of
/// 6 or 14 rows, strips of up to 16 rows, panels of 8 to 32 columns, tiles of 32 rows or columns.
constexpr std::size_t most_packed_rows(std::size_t m) {
  return std::max({round_up(m, 6), round_up(m, 14), round_up(m, 32)});
}
constexpr std::size_t most_packed_columns(std::size_t n) {
  return round_up(n, 32);
}
/// True if A is shared, which is packed whole: it is the smaller operand.
constexpr bool shares_rows(std::size_t m, std::size_t n) {
  return most_packed_rows(m) < most_packed_columns(n);
}

/// The scratch of a product, in elements of its arithmetic type. No size shrinks as m, n or k grows.
struct GemmScratch {
  std::size_t shared = 0;     // the packed chunk of the smaller operand
  std::size_t own = 0;        // packed data of a task, per thread
  std::size_t temporary = 0;  // sums that are not in C, per thread

  /// Packed operands hold all `parts` of each element. Each product of parts may have its own sums, besides
  /// those of the whole product and of a leaf.
  GemmScratch(std::size_t m, std::size_t n, std::size_t k, std::size_t element_bytes, std::size_t parts) {
    const std::size_t columns = kTileBytes / element_bytes, depth = std::min<std::size_t>(k, kSumBlock);
    // Few rows are packed even if the columns are fewer.
    const std::size_t rows = most_packed_rows(m), few = std::min<std::size_t>(rows, kThinRows);
    const std::size_t side = std::max(std::min(rows, most_packed_columns(n)), few);
    shared = std::min(side * k * parts, std::max(kChunkElements, kLeastColumns * k * parts));
    own = parts * depth * std::max(columns, std::min(kTaskRows, round_up(m, kRowUnit)));
    temporary = std::clamp(round_up(m, kRowUnit), 2 * kRowUnit, kMostRows) * columns;
    if (parts > 1)
      temporary = std::min(round_up(m, kRowUnit), kMostPartRows) * columns * (products_of_parts(parts) + 2);
    // Every region starts at a cache line.
    shared = round_up(shared, kAlignment / element_bytes);
    own = round_up(own, kAlignment / element_bytes);
  }
  std::size_t elements(int threads) const {
    return shared + static_cast<std::size_t>(threads) * (own + temporary);
  }
};

/// Returns the part of `size` in one chunk: evenly divided, in units, at most `most` and within
/// kChunkElements.
inline std::size_t chunk(std::size_t size, std::size_t depth, std::size_t unit, std::size_t least,
                         std::size_t most) {
  const std::size_t fitting = kChunkElements / std::max<std::size_t>(depth, 1) / unit * unit;
  const std::size_t limit = std::min(std::max(fitting, least), most);
  return round_up(ceil_div(size, ceil_div(size, limit)), unit);
}

constexpr std::size_t tasks_wanted(int threads) {
  return threads == 1 ? 1 : kTasksPerThread * static_cast<std::size_t>(threads);
}

/// Returns the number of `strips` per task, between `least` and `most`, that lets all threads finish soonest
/// if each takes the next task after finishing one.
inline std::size_t task_strips(std::size_t strips, std::size_t least, std::size_t most, int threads) {
  const auto n = static_cast<std::size_t>(threads);
  std::size_t best = most, shortest = strips + most;
  for (std::size_t s = most; s >= least; --s) {
    const std::size_t tasks = ceil_div(strips, s), rounds = ceil_div(tasks, n);
    const std::size_t last = tasks % n == 1 ? strips - (tasks - 1) * s : s;  // the only task of its round
    const std::size_t end = (rounds - 1) * s + (n == 1 ? s : last);
    if (end < shortest) {
      shortest = end;
      best = s;
    }
  }
  return best;
}

/// Returns the columns of one tile, a multiple of `unit`.
inline std::size_t tile_columns(std::size_t n, std::size_t unit, std::size_t element_bytes, int threads) {
  const std::size_t most = kTileBytes / element_bytes, least = kLeastTileBytes / element_bytes;
  return round_up(std::clamp(ceil_div(n, tasks_wanted(threads)), least, most), unit);
}

/// Tasks made of tiles. The first tiles are whole; the last ones, which end the work, are split by rows.
struct TileTasks {
  std::size_t whole = 0;  // tiles
  std::size_t parts = 1;  // of each split tile
  std::size_t count = 0;

  /// `units`: units of rows, which are not split further.
  TileTasks(std::size_t tiles, std::size_t units, int threads) {
    const auto n = static_cast<std::size_t>(threads);
    if (n > 1) {
      whole = tiles < 2 * n ? 0 : (tiles / n - 1) * n;
      parts = std::min(units, ceil_div(tasks_wanted(threads), tiles - whole));
    } else {
      whole = tiles;
    }
    count = whole + (tiles - whole) * parts;
  }
  std::size_t tile(std::size_t task) const { return task < whole ? task : whole + (task - whole) / parts; }
  std::size_t part(std::size_t task) const { return task < whole ? 0 : (task - whole) % parts; }
  std::size_t parts_of(std::size_t task) const { return task < whole ? 1 : parts; }
};

}  // namespace mantissa::kernels::gemm_plan
