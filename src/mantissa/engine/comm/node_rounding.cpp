#include "mantissa/engine/comm/node_rounding.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>

#include "mantissa/core/numeric/convert.h"
#include "mantissa/core/numeric/encode_row.h"
#include "mantissa/kernels/expression.h"

namespace mantissa::comm {
namespace {

constexpr std::size_t kPiece = 1024;  // elements
using Piece = std::array<float, kPiece>;

/// Rounds n values, of which the first has index `from` among the node's elements, in place.
void round_piece(float* values, std::size_t n, std::size_t from, const NodeRounding& node) {
  if (node.rounding == Rounding::nearest) return round_row(values, n, node.format);
  Piece stored;  // no format of a sum is larger
  encode_row(values, n, stored.data(), node.format, {.rounding = node.rounding, .stream = node.stream},
             node.first + from);
  load_row(stored.data(), node.format, 0, n, values);
}

/// Loads elements [from, from + n) of `newer`, rounded by `own`, unless it is null.
void load_newer(Matrix newer, std::size_t from, std::size_t n, const NodeRounding* own, float* values) {
  load_row(newer.data, newer.type, from, n, values);
  if (own != nullptr) round_piece(values, n, from, *own);
}

/// Computes `to` piece by piece, as add_into, or as round_into if `older` is null.
void round_pieces(const kernels::Context& ctx, std::int64_t count, const Matrix* older, Matrix newer,
                  Matrix to, const NodeRounding* own, const NodeRounding& node) {
  assert(node.format != Scalar::f64);
  const auto all = static_cast<std::size_t>(count);
  kernels::parallel_for(
      ctx, static_cast<std::int64_t>((all + kPiece - 1) / kPiece), [&](std::int64_t p, int) {
        const std::size_t from = static_cast<std::size_t>(p) * kPiece, n = std::min(kPiece, all - from);
        Piece values, other;
        load_newer(newer, from, n, own, values.data());
        if (older != nullptr) {
          load_row(older->data, older->type, from, n, other.data());
          for (std::size_t i = 0; i < n; ++i) values[i] += other[i];
        }
        round_piece(values.data(), n, from, node);
        store_row(values.data(), n, to.data, to.type, from);
      });
}

}  // namespace

RandomStream random_bits(std::uint64_t seed, std::int64_t step, std::uint64_t name_hash, ShardRange node) {
  const std::array<std::uint64_t, 3> key = {name_hash, static_cast<std::uint64_t>(node.first),
                                            static_cast<std::uint64_t>(node.count)};
  const std::uint64_t hash = hash_name({reinterpret_cast<const char*>(key.data()), sizeof key});
  return {seed, RandomUse::rounding, hash, static_cast<std::uint64_t>(step)};
}

void round_into(const kernels::Context& ctx, std::int64_t count, Matrix from, Matrix to,
                const NodeRounding& node) {
  if (node.rounding != Rounding::nearest) return round_pieces(ctx, count, nullptr, from, to, nullptr, node);
  kernels::ExpressionBuilder b;
  b.store(b.round(b.load(0), node.format), 0);
  const std::array inputs = {kernels::PointwiseInput{from.data, from.type}};
  const std::array outputs = {kernels::PointwiseOutput{to.data, to.type}};
  kernels::pointwise(ctx, b.build(), 1, count, inputs, outputs);
}

void add_into(const kernels::Context& ctx, std::int64_t count, Matrix older, Matrix newer, Matrix to,
              const NodeRounding* own, const NodeRounding& sum) {
  if (sum.rounding != Rounding::nearest) return round_pieces(ctx, count, &older, newer, to, own, sum);
  kernels::ExpressionBuilder b;
  b.store(b.round(b.add(b.load(0), b.round(b.load(1), sum.format)), sum.format), 0);
  const std::array inputs = {kernels::PointwiseInput{older.data, older.type},
                             kernels::PointwiseInput{newer.data, newer.type}};
  const std::array outputs = {kernels::PointwiseOutput{to.data, to.type}};
  kernels::pointwise(ctx, b.build(), 1, count, inputs, outputs);
}

void count_rounding(std::int64_t count, const Matrix* older, Matrix newer, const NodeRounding* own,
                    const NodeRounding& node, ValueCounts& counts) {
  const auto all = static_cast<std::size_t>(count);
  Piece values, other;
  std::array<double, kPiece> before, after;
  for (std::size_t from = 0; from < all; from += kPiece) {
    const std::size_t n = std::min(kPiece, all - from);
    load_newer(newer, from, n, older != nullptr ? own : nullptr, values.data());
    std::copy_n(values.data(), n, before.data());
    if (older != nullptr) {
      load_row(older->data, older->type, from, n, other.data());
      for (std::size_t i = 0; i < n; ++i) {
        before[i] += other[i];
        values[i] += other[i];
      }
    }
    round_piece(values.data(), n, from, node);
    std::copy_n(values.data(), n, after.data());
    counts.add(after.data(), n, node.format);
    counts.add_errors(before.data(), after.data(), n, node.format);
  }
}

}  // namespace mantissa::comm
