#include "mantissa/kernels/cpu/head/leaf_groups.h"

#include <algorithm>

namespace mantissa::kernels::head_groups {
namespace {

/// Appends the parts of a leaf of rows [first, last), each of at most `tokens` tokens in whole blocks.
void add_parts(const Extent& extent, std::size_t first, std::size_t last, std::int64_t tokens,
               std::vector<LeafGroup>& groups) {
  const std::int64_t most = std::max(tokens / kSumBlock, std::int64_t{1}) * kSumBlock;
  const std::size_t begin = groups.size();
  for (std::size_t r = first; r < last; ++r) {
    const Row& row = extent.rows[r];
    for (std::int64_t at = 0; at < row.length; at += most)
      groups.push_back({r, r + 1, row.begin + at, std::min(most, row.length - at), true});
  }
  groups[begin].opens = groups.back().closes = true;
}

/// Groups leaves so that each group has at most `tokens` tokens. A longer leaf is a group of its own, or in
/// parts if `splits`.
std::vector<LeafGroup> leaf_groups(const Extent& extent, std::int64_t tokens, bool splits) {
  std::vector<LeafGroup> groups;
  const auto step = static_cast<std::size_t>(std::max<std::int64_t>(1, extent.rows_per_leaf));
  for (std::size_t r = 0; r < extent.rows.size(); r += step) {
    const std::size_t end = std::min(extent.rows.size(), r + step);
    const std::int64_t begin = extent.rows[r].begin;
    const std::int64_t count = extent.rows[end - 1].begin + extent.rows[end - 1].length - begin;
    if (splits && count > tokens && count > kSumBlock) {
      add_parts(extent, r, end, tokens, groups);
    } else if (!groups.empty() && !groups.back().part && groups.back().count + count <= tokens) {
      groups.back().last_row = end;
      groups.back().count += count;
    } else {
      groups.push_back({r, end, begin, count});
    }
  }
  return groups;
}

}  // namespace

std::int64_t largest_of(const std::vector<LeafGroup>& groups) {
  std::int64_t largest = 0;
  for (const LeafGroup& g : groups) largest = std::max(largest, g.count);
  return largest;
}

bool has_parts(const std::vector<LeafGroup>& groups) {
  return std::any_of(groups.begin(), groups.end(), [](const LeafGroup& g) { return g.part; });
}

std::vector<LeafGroup> groups_within(std::size_t workspace, const Extent& extent, std::int64_t most,
                                     bool splits,
                                     const std::function<std::size_t(const std::vector<LeafGroup>&)>& bytes) {
  std::vector<LeafGroup> groups = leaf_groups(extent, most, splits);
  for (std::int64_t largest = largest_of(groups); bytes(groups) > workspace && most > 1;) {
    most = largest - 1;
    groups = leaf_groups(extent, most, splits);
    if (largest_of(groups) == largest) break;  // one leaf, or one block
    largest = largest_of(groups);
  }
  return groups;
}

}  // namespace mantissa::kernels::head_groups
