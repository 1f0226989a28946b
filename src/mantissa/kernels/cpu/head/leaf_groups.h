// Groups of tokens whose logits the head's backward pass holds at once: whole leaves of the sums over tokens,
// or parts of a long leaf.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "mantissa/core/tensor/extent.h"

namespace mantissa::kernels::head_groups {

/// Whole leaves, rows [first_row, last_row) of the extent, and their tokens; or a part of one leaf, in one
/// row.
struct LeafGroup {
  std::size_t first_row = 0, last_row = 0;
  std::int64_t begin = 0, count = 0;
  bool part = false, opens = false, closes = false;  // a part; the first and the last of its leaf
};

/// Returns the tokens of the largest group.
std::int64_t largest_of(const std::vector<LeafGroup>& groups);

bool has_parts(const std::vector<LeafGroup>& groups);

/// Returns groups of at most `most` tokens, smaller if `workspace` is smaller than bytes(groups): shorter
/// leaves than the workspace was sized for may fill a group further. A longer leaf is a group of its own, or
/// in parts if `splits`.
std::vector<LeafGroup> groups_within(std::size_t workspace, const Extent& extent, std::int64_t most,
                                     bool splits,
                                     const std::function<std::size_t(const std::vector<LeafGroup>&)>& bytes);

}  // namespace mantissa::kernels::head_groups
