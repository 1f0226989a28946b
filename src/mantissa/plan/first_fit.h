// Blocks of memory with lifetimes, placed by first fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace mantissa::plan {

/// Places blocks one after the other, each at the lowest offset at which no block that lives at the same time
/// lies. A tree over time keeps what is taken: a node knows the offsets that are taken at some time of its
/// range, and those that are taken at all of it. Neighbours are merged, so that the stacks of activations
/// that a deep model keeps are few ranges.
class FirstFit {
 public:
  /// Times are in [0, `times`).
  explicit FirstFit(std::int64_t times);

  /// The offset of a block of `bytes` that lives in [first, last].
  std::size_t place(std::size_t bytes, std::int64_t first, std::int64_t last);

 private:
  using Taken = std::map<std::size_t, std::size_t>;  // disjoint ranges: begin → end

  static void take(Taken& taken, std::size_t begin, std::size_t end);
  /// Where the last range of `taken` that meets [begin, end) ends; `begin` where none does.
  static std::size_t end_of_conflict(const Taken& taken, std::size_t begin, std::size_t end);

  /// Calls `visit(node, covered)` for each node of the tree that meets [first, last]: `covered` where all of
  /// its range lies inside. Nothing below a covered node is visited.
  template <class Visit>
  void walk(std::size_t node, std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t last,
            const Visit& visit);

  std::int64_t times_;
  std::vector<Taken> sometimes_, always_;  // by node; node n has the children 2n and 2n + 1
};

}  // namespace mantissa::plan
