#include "mantissa/engine/plan/first_fit.h"

#include <algorithm>
#include <bit>

namespace mantissa::plan {

FirstFit::FirstFit(std::int64_t times)
    : times_(static_cast<std::int64_t>(
          std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(times, 1))))),
      sometimes_(static_cast<std::size_t>(2 * times_)),
      always_(sometimes_.size()) {}

void FirstFit::take(Taken& taken, std::size_t begin, std::size_t end) {
  auto it = taken.upper_bound(begin);
  if (it != taken.begin() && std::prev(it)->second >= begin) --it;
  while (it != taken.end() && it->first <= end) {
    begin = std::min(begin, it->first);
    end = std::max(end, it->second);
    it = taken.erase(it);
  }
  taken.emplace_hint(it, begin, end);
}

std::size_t FirstFit::end_of_conflict(const Taken& taken, std::size_t begin, std::size_t end) {
  const auto it = taken.lower_bound(end);
  return it == taken.begin() ? begin : std::max(begin, std::prev(it)->second);
}

template <class Visit>
void FirstFit::walk(std::size_t node, std::int64_t begin, std::int64_t end, std::int64_t first,
                    std::int64_t last, const Visit& visit) {
  if (last < begin || end <= first) return;
  const bool covered = first <= begin && end <= last + 1;
  visit(node, covered);
  if (covered) return;
  const std::int64_t middle = begin + (end - begin) / 2;
  walk(2 * node, begin, middle, first, last, visit);
  walk(2 * node + 1, middle, end, first, last, visit);
}

std::size_t FirstFit::place(std::size_t bytes, std::int64_t first, std::int64_t last) {
  // Collects the ranges that overlap [first, last]: blocks in a covered node, and blocks over all of a node
  // around the range.
  std::vector<const Taken*> there;
  walk(1, 0, times_, first, last, [&](std::size_t node, bool covered) {
    const Taken& taken = covered ? sometimes_[node] : always_[node];
    if (!taken.empty()) there.push_back(&taken);
  });
  std::size_t offset = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (const Taken* taken : there) {
      const std::size_t after = end_of_conflict(*taken, offset, offset + bytes);
      moved = moved || after != offset;
      offset = after;
    }
  }
  walk(1, 0, times_, first, last, [&](std::size_t node, bool covered) {
    take(sometimes_[node], offset, offset + bytes);
    if (covered) take(always_[node], offset, offset + bytes);
  });
  return offset;
}

}  // namespace mantissa::plan
