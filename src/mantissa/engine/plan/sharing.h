// How the ranks of a run divide the memory of its weights among them (ZeRO; Rajbhandari et al., 2020,
// arXiv:1910.02054): each parameter has one rank, its owner, which updates it. From stage 3 on the others
// have its weights only while steps read them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "mantissa/engine/plan/program.h"

namespace mantissa::plan {

/// No owner: every rank has the parameter and updates it.
inline constexpr int kEveryRank = -1;

struct Sharing {
  int rank = 0;
  std::int64_t stage = 0;           // of ZeRO
  std::int64_t least_gathered = 0;  // elements of the smallest parameter that stage 3 divides
  bool streams = false;  // a shard is one micro-batch, so that its gradients can leave as they are complete
  std::vector<int> owners = {};  // by slot; empty: every rank has all parameters

  bool divides() const { return !owners.empty(); }
  int owner(std::size_t slot) const { return owners.empty() ? kEveryRank : owners[slot]; }
  /// Returns true if this rank updates the parameter.
  bool owns(std::size_t slot) const { return owner(slot) == kEveryRank || owner(slot) == rank; }
};

/// Returns the owners of things of these sizes: the largest goes first, each to the rank that has the least
/// so far.
std::vector<int> owners_by_bytes(std::span<const std::size_t> bytes, int ranks);

/// Returns the owners of the parameters of `training`, which has its whole update: trained parameters are
/// dealt by the bytes of their masters and of what the optimizer keeps.
std::vector<int> owners_of(const Program& training, int ranks);

/// Returns for each buffer whether a step reads it.
std::vector<bool> read_by_steps(const Program& program);

/// Leaves out of `training` the masters that other ranks own and no step reads; in stage 3 also the weights
/// that steps read, which are gathered; from stage 2 on gradients, if they are streamed. Assigns its memory
/// again.
void share_weights(Program& training, const Sharing& sharing);

}  // namespace mantissa::plan
