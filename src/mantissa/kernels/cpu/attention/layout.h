// Partition of the attention kernels' work and layout of their scratch memory, the same for every instruction
// set.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "mantissa/kernels/attention.h"

namespace mantissa::kernels::attention_layout {

inline constexpr std::size_t kLanes = 16;       // virtual lanes of row sums; rows are padded to a multiple
inline constexpr std::size_t kWidestTile = 32;  // queries of a score tile, on any instruction set

constexpr std::size_t padded(std::size_t n) {
  return (n + kLanes - 1) / kLanes * kLanes;
}

/// Allocates consecutive pieces of one scratch buffer, each a whole number of 16-element lines. Without a
/// buffer it only counts.
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

/// Returns the elements of the scratch memory of one thread: Scratch<T>(arena, args…).
template <template <class> class Scratch, class T, class... Args>
std::size_t scratch_elements(const Args&... args) {
  Arena<T> arena(nullptr);
  Scratch<T>{arena, args...};
  return arena.used();
}

/// Returns the scratch memory of `thread` in the workspace of all threads.
template <template <class> class Scratch, class T, class... Args>
Scratch<T> scratch_of(std::byte* workspace, int thread, const Args&... args) {
  const std::size_t before = static_cast<std::size_t>(thread) * scratch_elements<Scratch, T>(args...);
  Arena<T> arena(reinterpret_cast<T*>(workspace) + before);
  return Scratch<T>(arena, args...);
}

/// The location of a segment's keys: the row of position 0, the position of the segment's first query, and
/// the position after the last key.
struct Keys {
  std::size_t row = 0;
  std::size_t position = 0;
  std::size_t end = 0;
};

inline Keys keys_of(const Segment& segment, const KeySpan& span, const KeyCache& cache = {}) {
  const auto length = static_cast<std::size_t>(segment.length);
  if (span.count > 0)
    return {0, static_cast<std::size_t>(span.distance), static_cast<std::size_t>(span.count)};
  if (cache.slots == 0) return {static_cast<std::size_t>(segment.begin), 0, length};
  const auto position = static_cast<std::size_t>(segment.position);
  return {static_cast<std::size_t>(segment.slot * cache.capacity), position, position + length};
}

/// The keys visible to a query, and the queries that attend to a key, by positions in the sequence.
class Window {
 public:
  explicit Window(const AttentionShape& shape)
      : size_(static_cast<std::size_t>(shape.window > 0 ? shape.window : kEndless)) {}
  /// The first key that the query at `position` attends to. The last one is its own.
  std::size_t first_key(std::size_t position) const { return position + 1 - std::min(position + 1, size_); }
  /// The position after the last query that attends to `key`.
  std::size_t end_query(std::size_t key) const { return key + size_; }
  /// The largest number of keys that a query of a sequence of `length` attends to.
  std::size_t most_keys(std::size_t length) const { return std::min(length, size_); }

 private:
  static constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max();
  std::size_t size_;
};

/// The rows of a key block that consecutive queries attend to: each of [begin, end) is visible to some query,
/// and rows from all_begin up to all_end are visible to all of them. all_begin may exceed all_end.
struct Visible {
  std::size_t begin = 0, all_begin = 0, all_end = 0, end = 0;
};

/// Returns the keys of [key, key + count) that the queries at positions [first, last] attend to.
inline Visible visible(const Window& window, std::size_t first, std::size_t last, std::size_t key,
                       std::size_t count) {
  const auto row = [key, count](std::size_t position) {
    return std::min(count, std::max(position, key) - key);
  };
  return {row(window.first_key(first)), row(window.first_key(last)), row(first + 1), row(last + 1)};
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// Positions [begin, end) of a segment.
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t count() const { return end - begin; }
};

/// One unit of parallel work: a piece of a segment for one key head.
struct Task {
  const Segment* segment = nullptr;
  std::size_t kv_head = 0;
  std::size_t piece = 0;
};

/// Returns the number of tasks if each segment has pieces_of(segment) pieces for every key head.
template <class PiecesOf>
std::int64_t count_tasks(const Extent& extent, std::int64_t kv_heads, PiecesOf pieces_of) {
  std::int64_t count = 0;
  for (const Segment& segment : extent.segments) count += pieces_of(segment) * kv_heads;
  return count;
}

/// Returns task `index`. Within a segment the last pieces, which have the most visible keys, come first.
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
  assert(false && "task index out of range");
  __builtin_unreachable();
}

// ---- Forward ----

/// Rows of a forward task: (query, head of the group) pairs in query-major order, so neighbours have almost
/// the same visible keys. More rows convert K and V less often; fewer rows balance the load better.
inline constexpr std::int64_t kTaskRows = 512;
inline constexpr std::int64_t kFewTaskRows = 128;

inline std::int64_t task_queries(std::int64_t task_rows, const AttentionShape& shape) {
  return std::max<std::int64_t>(1, task_rows * shape.kv_heads / shape.heads);
}

/// Scratch of one thread in the forward pass. The tile that starts at row r owns every per-row buffer from r
/// on. Operands have a plane for each of their parts, one after the other.
template <class T>
struct ForwardScratch {
  T *keys, *values;              // [kKeyBlock, padded(head_dim)]
  T* rows;                       // [kWidestTile, padded(head_dim)]: query rows before transposition
  T* queries;                    // per tile [padded(head_dim), width]
  T* scores;                     // [kKeyBlock, width], then probabilities
  T* chain;                      // [kWidestTile, padded(head_dim)]: one key block's P·V
  T* sums;                       // [rows, padded(head_dim)]: the output before division
  T* maximum;                    // [rows]
  T* denominator;                // per tile [16 lanes, width]
  T *rescale, *limit, *log_sum;  // [kWidestTile]: of the current tile
  T* lowest;                     // [kWidestTile], with a window: the first visible row of the key block
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
    lowest = arena.take(shape.window > 0 ? kWidestTile : 0);
  }
};

// ---- Backward ----

/// Keys whose scores are held at a time in the backward pass. With 128 queries, P and dS take 64 KiB each in
/// f32.
inline constexpr std::size_t kKeyPart = 128;

/// Scratch of one thread in the backward pass, for `rows` queries of every head of the group. Operands have a
/// plane for each of their parts, one after the other.
template <class T>
struct BackwardScratch {
  T *keys, *values;                  // [kKeyBlock, padded(head_dim)]
  T *dkeys, *dvalues;                // [kKeyBlock, padded(head_dim)]: the sums of dK and dV
  T *queries, *douts;                // [kQueryBlock, padded(head_dim)]
  T *queries_across, *douts_across;  // [padded(head_dim), kQueryBlock]: transposed
  T *p, *ds;                         // [kKeyPart, kQueryBlock]
  T *keys_across, *ds_across;  // for operands in one part: other layouts of K and dS, half as many words
  T* chain;                    // [kQueryBlock, padded(head_dim)]: one key block's dS·K, or a plane
                               // for each product of parts
  T* dqueries;                 // [group, rows, padded(head_dim)]: the sums of dQ
  T *log_sum, *delta;          // [kQueryBlock]
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
    keys_across = arena.take(parts > 1 ? 0 : keys_plane / 2);
    ds_across = arena.take(parts > 1 ? 0 : scores_plane / 2);
    chain = arena.take(products_of_parts(parts) * queries_plane);
    for (T** each : {&p, &ds}) *each = arena.take(parts * scores_plane);
    for (T** each : {&log_sum, &delta}) *each = arena.take(block);
    dqueries = arena.take(group * rows * d);
  }
};

}  // namespace mantissa::kernels::attention_layout
