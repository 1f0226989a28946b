// How the attention kernels cut their work and lay out their scratch memory: the same for every instruction
// set.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "mantissa/kernels/attention.h"

namespace mantissa::kernels::attention_layout {

inline constexpr std::size_t kLanes = 16;       // virtual lanes of row sums; rows are padded to whole ones
inline constexpr std::size_t kWidestTile = 32;  // queries of a score tile, on any instruction set

constexpr std::size_t padded(std::size_t n) {
  return (n + kLanes - 1) / kLanes * kLanes;
}

/// Deals consecutive pieces of one scratch buffer, each a whole number of 16-element lines. Without a buffer
/// it only counts.
template <class T>
class Arena {
 public:
  explicit Arena(T* begin) : begin_(begin) {}
  T* take(std::size_t elements) {
    T* piece = begin_ == nullptr ? nullptr : begin_ + used_;
    used_ += padded(elements);
    return piece;
  }
  std::size_t used() const { return used_; }

 private:
  T* begin_;
  std::size_t used_ = 0;
};

/// Where a segment's keys are: row of position 0, and the position of the segment's first query.
struct Keys {
  std::size_t row = 0;
  std::size_t position = 0;
};

inline Keys keys_of(const Segment& segment, const KeyCache& cache) {
  if (cache.slots == 0) return {static_cast<std::size_t>(segment.begin), 0};
  return {static_cast<std::size_t>(segment.slot * cache.capacity),
          static_cast<std::size_t>(segment.position)};
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// One unit of parallel work: a piece of a segment for one key head.
struct Task {
  const Segment* segment = nullptr;
  std::size_t kv_head = 0;
  std::size_t piece = 0;
};

/// The number of tasks when each segment is cut into pieces_of(segment) for every key head.
template <class PiecesOf>
std::int64_t count_tasks(const Extent& extent, std::int64_t kv_heads, PiecesOf pieces_of) {
  std::int64_t count = 0;
  for (const Segment& segment : extent.segments) count += pieces_of(segment) * kv_heads;
  return count;
}

/// Task `index` of them; within a segment the last pieces, which see most keys, come first.
template <class PiecesOf>
Task task_at(const Extent& extent, std::int64_t kv_heads, PiecesOf pieces_of, std::int64_t index) {
  for (const Segment& segment : extent.segments) {
    const std::int64_t pieces = pieces_of(segment);
    if (index < pieces * kv_heads) {
      return {&segment, static_cast<std::size_t>(index % kv_heads),
              static_cast<std::size_t>(pieces - 1 - index / kv_heads)};
    }
    index -= pieces * kv_heads;
  }
  assert(false && "there are fewer tasks than this");
  __builtin_unreachable();
}

// ---- Forward ----

/// Rows of a forward task: (query, head of the group) pairs, query-major, so that neighbours see almost the
/// same keys. More rows convert K and V less often; fewer are dealt more evenly.
inline constexpr std::int64_t kTaskRows = 512;
inline constexpr std::int64_t kFewTaskRows = 128;

inline std::int64_t task_queries(std::int64_t task_rows, const AttentionShape& shape) {
  return std::max<std::int64_t>(1, task_rows * shape.kv_heads / shape.heads);
}

/// Scratch of one thread of the forward pass. The tile that begins at row r owns every per-row buffer from r
/// on. Factors of products have a plane for each of their parts, one after the other.
template <class T>
struct ForwardScratch {
  T *keys, *values;              // [kKeyBlock, padded(head_dim)]
  T* rows;                       // [kWidestTile, padded(head_dim)]: query rows before they are transposed
  T* queries;                    // per tile [padded(head_dim), width]
  T* scores;                     // [kKeyBlock, width], then probabilities
  T* chain;                      // [kWidestTile, padded(head_dim)]: one key block's P·V
  T* sums;                       // [rows, padded(head_dim)]: the output before it is divided
  T* maximum;                    // [rows]
  T* denominator;                // per tile [16 lanes, width]
  T *rescale, *limit, *log_sum;  // [kWidestTile]: of the tile at hand
  std::size_t keys_plane, queries_plane, scores_plane;  // elements; values have as many as keys

  ForwardScratch(Arena<T>& arena, const AttentionShape& shape, std::size_t parts) {
    const std::size_t d = padded(static_cast<std::size_t>(shape.head_dim)), block = kKeyBlock;
    const auto group = static_cast<std::size_t>(shape.heads / shape.kv_heads);
    const std::size_t most = static_cast<std::size_t>(task_queries(kTaskRows, shape)) * group;
    const std::size_t count = (most + kWidestTile - 1) / kWidestTile * kWidestTile;
    keys_plane = block * d;
    queries_plane = count * d;
    scores_plane = block * kWidestTile;
    keys = arena.take(parts * keys_plane);
    values = arena.take(parts * keys_plane);
    rows = arena.take(kWidestTile * d);
    queries = arena.take(parts * queries_plane);
    scores = arena.take(parts * scores_plane);
    chain = arena.take(kWidestTile * d);
    sums = arena.take(count * d);
    maximum = arena.take(count);
    denominator = arena.take(count * kLanes);
    for (T** each : {&rescale, &limit, &log_sum}) *each = arena.take(kWidestTile);
  }
};

// ---- Backward ----

/// Keys of which scores are held at a time in the backward: with 128 queries, P and dS take 64 KiB each in
/// f32.
inline constexpr std::size_t kKeyPart = 128;

/// Scratch of one thread of the backward pass, for `rows` queries of every head of the group. Factors of
/// products have a plane for each of their parts, one after the other.
template <class T>
struct BackwardScratch {
  T *keys, *values;                  // [kKeyBlock, padded(head_dim)]
  T *dkeys, *dvalues;                // [kKeyBlock, padded(head_dim)]: the sums of dK and dV
  T *queries, *douts;                // [kQueryBlock, padded(head_dim)]
  T *queries_across, *douts_across;  // [padded(head_dim), kQueryBlock]: transposed
  T *p, *ds;                         // [kKeyPart, kQueryBlock]
  T* chain;                          // [kQueryBlock, padded(head_dim)]: one key block's dS·K
  T* dqueries;                       // [group, rows, padded(head_dim)]: the sums of dQ
  T *log_sum, *delta;                // [kQueryBlock]
  std::size_t keys_plane, queries_plane, scores_plane;  // elements: of K and V; of Q and dO; of P and dS

  BackwardScratch(Arena<T>& arena, const AttentionShape& shape, std::size_t rows, std::size_t parts) {
    const std::size_t d = padded(static_cast<std::size_t>(shape.head_dim)), block = kQueryBlock;
    const auto group = static_cast<std::size_t>(shape.heads / shape.kv_heads);
    keys_plane = kKeyBlock * d;
    queries_plane = block * d;
    scores_plane = kKeyPart * block;
    for (T** each : {&keys, &values}) *each = arena.take(parts * keys_plane);
    for (T** each : {&dkeys, &dvalues}) *each = arena.take(keys_plane);
    for (T** each : {&queries, &douts, &queries_across, &douts_across})
      *each = arena.take(parts * queries_plane);
    chain = arena.take(queries_plane);
    for (T** each : {&p, &ds}) *each = arena.take(parts * scores_plane);
    for (T** each : {&log_sum, &delta}) *each = arena.take(block);
    dqueries = arena.take(group * rows * d);
  }
};

}  // namespace mantissa::kernels::attention_layout
