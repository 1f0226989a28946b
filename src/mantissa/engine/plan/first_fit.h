// Blocks of memory with lifetimes, placed by first fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace mantissa::plan {

/// Places each block at the lowest offset that is free during the block's lifetime. A tree over time records
/// the taken ranges: each node knows the offsets taken at some time of its range, and those taken during all
/// of it. Adjacent ranges are merged, so the activations that a deep model keeps form few ranges.
class FirstFit {
 public:
  /// Times are in [0, `times`).
  explicit FirstFit(std::int64_t times);

  /// Returns the offset of a block of `bytes` with the lifetime [first, last].
  std::size_t place(std::size_t bytes, std::int64_t first, std::int64_t last);

 private:
  using Taken = std::map<std::size_t, std::size_t>;  // disjoint ranges: begin → end

  static void take(Taken& taken, std::size_t begin, std::size_t end);
  /// Returns the end of the last range of `taken` that overlaps [begin, end), or `begin`.
  static std::size_t end_of_conflict(const Taken& taken, std::size_t begin, std::size_t end);

  /// Calls `visit(node, covered)` for each node of the tree that overlaps [first, last]. `covered` is true
  /// for a node entirely inside; nodes below it are not visited.
  template <class Visit>
  void walk(std::size_t node, std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t last,
            const Visit& visit);

  std::int64_t times_;
  std::vector<Taken> sometimes_, always_;  // by node; the children of node n are 2n and 2n + 1
};

}  // namespace mantissa::plan
