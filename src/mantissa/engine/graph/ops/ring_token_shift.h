// Token shift of rows whose tokens several ranks share: the last token before each block, and the gradient
// that the first token after it adds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "mantissa/engine/graph/op.h"
#include "mantissa/kernels/token_shift.h"

namespace mantissa::graph {

/// The last tokens of the blocks before this rank's, of input 0; of the first block, those of `carried`.
class TokensBefore {
 public:
  explicit TokensBefore(const Call& c, const ConstMatrix& carried = {});
  /// Returns them by the slots of extent(), whose segments are those of the call.
  ConstMatrix tokens() const { return tokens_; }
  const Extent& extent() const { return extent_; }

 private:
  std::vector<Segment> segments_;
  Extent extent_;
  Matrix tokens_;
};

/// Writes the last tokens of rows to their slots of `carried`, if this rank has them.
void end_with_tokens(const Call& c, Matrix carried);

/// q of the first tokens of the blocks after this rank's (kernels::TokenShiftBackward).
class GradientsAfter {
 public:
  GradientsAfter(const Call& c, const kernels::TokenShiftBackward& s);
  ConstMatrix gradients() const { return gradients_; }
  /// Returns the row of gradients() for each segment of the call, or −1.
  std::span<const std::int64_t> rows() const { return rows_; }

 private:
  Matrix gradients_;
  std::vector<std::int64_t> rows_;
};

/// Returns the bytes of workspace for micro-batches of `rows` rows.
std::size_t ring_shift_workspace(std::int64_t rows, std::int64_t channels, Scalar arithmetic);

}  // namespace mantissa::graph
