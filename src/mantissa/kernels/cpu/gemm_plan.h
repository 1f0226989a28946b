// How gemm() cuts its work and its scratch memory. Nothing here changes a bit of a result.
//
// The smaller operand is packed once for the whole of k and shared by all threads. The larger one is packed
// by the tasks, each its own part of it, block by block into the inner cache, and used there at once. So both
// are packed once, and what is packed and used far apart is as little as can be.
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
/// Rows of a packed chunk of A, and columns of one of B, at most; their elements, where that allows a few
/// units.
inline constexpr std::size_t kMostRows = 24 * kRowUnit;
inline constexpr std::size_t kMostColumns = 2048;
inline constexpr std::size_t kChunkElements = std::size_t{1} << 21;
inline constexpr std::size_t kLeastRows = 4 * kRowUnit;
inline constexpr std::size_t kLeastColumns = 256;
/// Columns of a tile in bytes: a packed block of B, 256 deep, is 128 KB at most and stays in the inner cache.
inline constexpr std::size_t kTileBytes = 512;
inline constexpr std::size_t kLeastTileBytes = 256;
/// Rows of A that a task packs at once, at most.
inline constexpr std::size_t kTaskRows = 6 * kRowUnit;
/// Tasks for each thread, so that a slow core does not hold up the others.
inline constexpr std::size_t kTasksPerThread = 4;
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
  std::size_t shared = 0;     // the packed chunk of the smaller operand
  std::size_t own = 0;        // what a task packs, of each thread
  std::size_t temporary = 0;  // sums that are not in C, of each thread

  /// Packed operands hold all `parts` of each element.
  GemmScratch(std::size_t m, std::size_t n, std::size_t k, std::size_t element_bytes, std::size_t parts) {
    const std::size_t columns = kTileBytes / element_bytes, depth = std::min<std::size_t>(k, kSumBlock);
    const std::size_t side = std::min(m + kRowUnit, n + columns);
    shared = std::min(side * k * parts, std::max(kChunkElements, kLeastColumns * k * parts));
    own = parts * depth * std::max(columns, std::min(kTaskRows, round_up(m, kRowUnit)));
    temporary = std::clamp(round_up(m, kRowUnit), 2 * kRowUnit, kMostRows) * columns;
    // Every part begins on a cache line.
    shared = round_up(shared, kAlignment / element_bytes);
    own = round_up(own, kAlignment / element_bytes);
  }
  std::size_t elements(int threads) const {
    return shared + static_cast<std::size_t>(threads) * (own + temporary);
  }
};

/// How much of `size` one chunk takes: dealt evenly, in units, at most `most` and what kChunkElements allow.
inline std::size_t chunk(std::size_t size, std::size_t depth, std::size_t unit, std::size_t least,
                         std::size_t most) {
  const std::size_t fitting = kChunkElements / std::max<std::size_t>(depth, 1) / unit * unit;
  const std::size_t limit = std::min(std::max(fitting, least), most);
  return round_up(ceil_div(size, ceil_div(size, limit)), unit);
}

constexpr std::size_t tasks_wanted(int threads) {
  return threads == 1 ? 1 : kTasksPerThread * static_cast<std::size_t>(threads);
}

/// How many of `strips` a task takes, between `least` and `most`: as many as let all threads end soonest
/// where each takes the next task when it has done one.
inline std::size_t task_strips(std::size_t strips, std::size_t least, std::size_t most, int threads) {
  const auto n = static_cast<std::size_t>(threads);
  std::size_t best = most, shortest = strips + most;
  for (std::size_t s = most; s >= least; --s) {
    const std::size_t tasks = ceil_div(strips, s), rounds = ceil_div(tasks, n);
    const std::size_t last = tasks % n == 1 ? strips - (tasks - 1) * s : s;  // alone in its round
    const std::size_t end = (rounds - 1) * s + (n == 1 ? s : last);
    if (end < shortest) {
      shortest = end;
      best = s;
    }
  }
  return best;
}

/// Columns of one tile, a multiple of `unit`.
inline std::size_t tile_columns(std::size_t n, std::size_t unit, std::size_t element_bytes, int threads) {
  const std::size_t most = kTileBytes / element_bytes, least = kLeastTileBytes / element_bytes;
  return round_up(std::clamp(ceil_div(n, tasks_wanted(threads)), least, most), unit);
}

/// Tiles times parts of their rows: the first tiles are whole, the last ones, which end the work, are cut.
struct TileTasks {
  std::size_t whole = 0;  // tiles
  std::size_t parts = 1;  // of each other tile
  std::size_t count = 0;

  /// `units`: of rows, which are not cut further.
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
