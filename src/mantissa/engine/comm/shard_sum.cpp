#include "mantissa/engine/comm/shard_sum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>

#include "mantissa/core/numeric/convert.h"
#include "mantissa/kernels/expression.h"

namespace mantissa::comm {
namespace {

/// The storage format of a sum; tf32 is stored as f32.
Scalar stored(Scalar reduce) {
  return reduce == Scalar::tf32 ? Scalar::f32 : reduce;
}

/// Computes to = from, rounded to `reduce`.
void round_into(const kernels::Context& ctx, std::int64_t count, Matrix from, Matrix to, Scalar reduce) {
  kernels::ExpressionBuilder b;
  b.store(b.round(b.load(0), reduce), 0);
  const std::array inputs = {kernels::PointwiseInput{from.data, from.type}};
  const std::array outputs = {kernels::PointwiseOutput{to.data, to.type}};
  kernels::pointwise(ctx, b.build(), 1, count, inputs, outputs);
}

/// Computes to = older + newer, rounded to `reduce`, after rounding `newer` to `reduce`.
void add_into(const kernels::Context& ctx, std::int64_t count, Matrix older, Matrix newer, Matrix to,
              Scalar reduce) {
  kernels::ExpressionBuilder b;
  b.store(b.round(b.add(b.load(0), b.round(b.load(1), reduce)), reduce), 0);
  const std::array inputs = {kernels::PointwiseInput{older.data, older.type},
                             kernels::PointwiseInput{newer.data, newer.type}};
  const std::array outputs = {kernels::PointwiseOutput{to.data, to.type}};
  kernels::pointwise(ctx, b.build(), 1, count, inputs, outputs);
}

/// Adds the values of a gradient, or of `older` plus it, as rounded to `reduce`, and the errors of that
/// rounding. `older` may be null. `rounds_newer`: the gradient itself rounds before it is added, which is not
/// counted.
void count_rounding(std::int64_t count, const Matrix* older, Matrix newer, bool rounds_newer, Scalar reduce,
                    ValueCounts& counts) {
  constexpr std::size_t kPiece = 1024;
  std::array<double, kPiece> before, other, after;
  for (std::size_t from = 0; from < static_cast<std::size_t>(count); from += kPiece) {
    const std::size_t n = std::min(kPiece, static_cast<std::size_t>(count) - from);
    load_row(newer.data, newer.type, from, n, before.data());
    if (older != nullptr) {
      load_row(older->data, older->type, from, n, other.data());
      if (rounds_newer) round_row(before.data(), n, reduce);
      for (std::size_t i = 0; i < n; ++i) before[i] += other[i];
    }
    std::copy_n(before.data(), n, after.data());
    round_row(after.data(), n, reduce);
    counts.add(after.data(), n, reduce);
    counts.add_errors(before.data(), after.data(), n, reduce);
  }
}

}  // namespace

std::int64_t waiting_sums(std::int64_t shards) {
  return std::bit_width(static_cast<std::uint64_t>(shards)) - 1;
}

std::size_t shard_sum_bytes(std::int64_t count, std::int64_t shards, Scalar reduce) {
  return static_cast<std::size_t>(waiting_sums(shards)) *
         aligned(static_cast<std::size_t>(count) * bytes_of(stored(reduce)));
}

ShardSum::ShardSum(std::span<const Gradient> gradients, std::int64_t shards, Scalar reduce)
    : shards_(shards), reduce_(reduce) {
  std::size_t bytes = 0;
  for (const Gradient& g : gradients) bytes += shard_sum_bytes(g.count, shards, reduce);
  storage_ = Storage(bytes);
  std::byte* at = storage_.data();
  for (const Gradient& g : gradients) {
    std::vector<Matrix>& sums = sums_.emplace_back();
    for (std::int64_t i = 0; i < waiting_sums(shards); ++i) {
      sums.push_back({at, stored(reduce), g.values.ld});
      at += aligned(static_cast<std::size_t>(g.count) * bytes_of(stored(reduce)));
    }
  }
}

void ShardSum::add(const kernels::Context& ctx, std::span<const Gradient> gradients, std::int64_t shard,
                   std::span<ValueCounts> counts) {
  assert(shard < shards_ && gradients.size() == sums_.size());
  if (shards_ == 1) return;
  if (shard == 0) waiting_ = 0;  // an interrupted step may have left sums
  const bool last = shard + 1 == shards_;
  // Like a binary counter: shard 7 completes a pair, a pair of pairs, and a pair of those.
  const std::size_t joins =
      last ? waiting_ : static_cast<std::size_t>(std::countr_one(static_cast<std::uint64_t>(shard)));
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    const Gradient& gradient = gradients[p];
    if (!counts.empty()) count_rounding(gradient.count, nullptr, gradient.values, false, reduce_, counts[p]);
    if (joins == 0) round_into(ctx, gradient.count, gradient.values, sums_[p][waiting_], reduce_);
    Matrix newer = gradient.values;
    for (std::size_t j = 1; j <= joins; ++j) {
      const Matrix older = sums_[p][waiting_ - j];
      if (!counts.empty()) count_rounding(gradient.count, &older, newer, j == 1, reduce_, counts[p]);
      const Matrix to = last && j == joins ? gradient.values : older;
      add_into(ctx, gradient.count, older, newer, to, reduce_);
      newer = to;
    }
  }
  waiting_ = waiting_ - joins + 1;
}

}  // namespace mantissa::comm
