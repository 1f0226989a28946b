// The head, one chunk of the vocabulary after the other: a product into a small buffer, then one pass over
// its rows.
#include "mantissa/kernels/head.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "mantissa/core/numeric/convert.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/kernels/cpu/head/leaf_groups.h"
#include "mantissa/kernels/cpu/head/memory.h"
#include "mantissa/kernels/cpu/head/rows.h"
#include "mantissa/kernels/update.h"

namespace mantissa::kernels {
namespace {

using head_groups::groups_within;
using head_groups::has_parts;
using head_groups::largest_of;
using head_groups::LeafGroup;
using head_memory::BackwardScratch;
using head_memory::ForwardScratch;
using head_memory::kBackwardTokens;
using head_memory::read_number;
using head_memory::row_of;
using head_memory::Scratch;
using head_memory::write_number;
using head_rows::Running;

/// Rows per task: about 10 µs at the chunk's width.
constexpr std::int64_t kRowsPerTask = 8;

Scalar arithmetic_of(const GemmOperand& x) {
  return x.operand.format == Scalar::f64 ? Scalar::f64 : Scalar::f32;
}

GemmOperand rows_from(GemmOperand o, std::int64_t row) {
  if (o.quants) {
    o.matrix.data =
        static_cast<const std::byte*>(o.matrix.data) +
        static_cast<std::size_t>(row) * quant_bytes(*o.quants, static_cast<std::size_t>(o.matrix.ld));
  } else {
    o.matrix.data = row_of(o.matrix, row);
  }
  return o;
}

void logits_of(const Context& ctx, const GemmOperand& x, const GemmOperand& weight, std::int64_t tokens,
               std::int64_t first_entry, std::int64_t entries, std::int64_t channels, Accumulator accumulator,
               Scalar rounded, Matrix logits) {
  Gemm g;
  g.rounded = rounded;
  g.accumulator = accumulator;
  g.m = tokens;
  g.n = entries;
  g.k = channels;
  g.a = x;
  g.b = rows_from(weight, first_entry);
  g.b.transposed = true;
  g.c = logits;
  gemm(ctx, g);
}

void for_rows(const Context& ctx, std::int64_t rows, const std::function<void(std::int64_t)>& body) {
  parallel_for(ctx, (rows + kRowsPerTask - 1) / kRowsPerTask, [&](std::int64_t task, int) {
    for (std::int64_t r = task * kRowsPerTask; r < std::min(rows, (task + 1) * kRowsPerTask); ++r) body(r);
  });
}

/// Computes log-probabilities of tokens [begin, begin + count).
void forward_group(const Context& ctx, const LogProb& h, const ForwardScratch& s, std::int64_t begin,
                   std::int64_t count) {
  const Scalar arithmetic = s.logits.memory.type;
  const bool entropy = h.entropy.data != nullptr, top = h.top.data != nullptr;
  std::fill_n(s.running, count, Running());
  for (std::int64_t v = 0; v < h.vocabulary; v += kVocabularyChunk) {
    const std::int64_t n = std::min(kVocabularyChunk, h.vocabulary - v);
    const Matrix chunk = s.logits.chunk(v, count);
    logits_of(ctx, rows_from(h.x, begin), h.weight, count, v, n, h.channels, h.accumulator, h.rounded, chunk);
    for_rows(ctx, count, [&](std::int64_t i) {
      void* logits = row_of(chunk, i);
      if (h.soft_cap != 0) {
        head_rows::soft_cap(ctx, arithmetic, logits, static_cast<std::size_t>(n), h.soft_cap);
      }
      Running& running = s.running[i];
      const double before = running.max;
      head_rows::merge(ctx, arithmetic, logits, static_cast<std::size_t>(n), entropy, h.softmax, running);
      if (top && running.max > before)
        running.top = v + head_rows::first_of(arithmetic, logits, n, running.max);
      const std::int64_t id = h.ids[begin + i] - v;
      if (id >= 0 && id < n) write_number(h.log_prob, begin + i, read_number(logits, arithmetic, id));
    });
  }
  for_rows(ctx, count, [&](std::int64_t i) {
    const std::int64_t t = begin + i;
    const Running& r = s.running[i];
    const double lse = head_rows::log_sum_exp(ctx, arithmetic, r, h.softmax);
    write_number(h.lse, t, lse);
    // The double difference and quotient of two f32 values, rounded once, equal the f32 results.
    const double logit = h.ids[t] < 0 ? lse : read_number(h.log_prob.data, h.log_prob.type, t);
    write_number(h.log_prob, t, round_to(logit - lse, h.softmax));
    if (entropy) {
      write_number(h.entropy, t, round_to(lse - r.weighted / r.sum, h.softmax));
    }
    if (top) write_number(h.top, t, static_cast<double>(r.top));
  });
}

/// Adds the contribution of entries [v, v + n) of the vocabulary to dx of one group of tokens.
void add_dx(const Context& ctx, const LogProbBackward& h, Matrix dx, const LeafGroup& group,
            ConstMatrix dlogits, std::int64_t v, std::int64_t n) {
  Gemm to_x;
  to_x.accumulator = h.accumulator;
  to_x.m = group.count;
  to_x.n = h.channels;
  to_x.k = n;
  to_x.a = GemmOperand{dlogits, h.operand, false};
  to_x.b = rows_from(h.weight, v);
  to_x.b.transposed = false;
  to_x.c = {row_of(dx, group.begin), dx.type, dx.ld};
  to_x.accumulate = to_x.continue_blocks = v > 0;
  gemm(ctx, to_x);
}

/// The chunk of dlogits as the products read it: in a 16-bit format of factors, from each row's start on.
Matrix factors_in(Matrix chunk, const Factor& operand) {
  if (chunk.type != Scalar::f32 || !operand.plain() || bytes_of(operand.format) != 2) return chunk;
  return {chunk.data, operand.format, 2 * chunk.ld};
}

/// Stores n ≤ kVocabularyChunk f32 values as `type` in their place.
void narrow(const Context& ctx, void* row, std::int64_t n, Scalar type) {
  alignas(64) std::byte stored[2 * kVocabularyChunk];
  store_row(static_cast<const float*>(row), static_cast<std::size_t>(n), stored, type, 0,
            simd_target(ctx.simd));
  std::memcpy(row, stored, static_cast<std::size_t>(2 * n));
}

/// Adds the contribution of one group of tokens to `dweight`, the gradient of n entries of the vocabulary.
void add_dweight(const Context& ctx, const LogProbBackward& h, const BackwardScratch& s,
                 const LeafGroup& group, const Extent& extent, Matrix dlogits, std::int64_t n, Matrix dweight,
                 bool collects) {
  Gemm to_weight;
  to_weight.accumulator = h.accumulator;
  to_weight.m = n;
  to_weight.n = h.channels;
  to_weight.k = group.count;
  to_weight.a = GemmOperand{dlogits, h.operand, true};
  to_weight.b = rows_from(h.x, group.begin);
  if (group.part) {
    to_weight.c = s.leaf;
    to_weight.accumulate = to_weight.continue_blocks = !group.opens;
    gemm(ctx, to_weight);
    if (group.closes) {
      collect_gradient(ctx, n * h.channels, s.leaf.data, s.leaf.type, dweight.data, dweight.type, collects);
    }
    return;
  }
  std::vector<Row> rows(extent.rows.begin() + static_cast<std::ptrdiff_t>(group.first_row),
                        extent.rows.begin() + static_cast<std::ptrdiff_t>(group.last_row));
  for (Row& r : rows) r.begin -= group.begin;
  to_weight.c = dweight;
  if (dweight.type == s.logits.memory.type) {
    to_weight.accumulate = collects;
  } else {
    if (collects) to_weight.addend = dweight;
    to_weight.losses = h.losses;
  }
  to_weight.rows = rows;
  to_weight.rows_per_leaf = extent.rows_per_leaf;
  gemm(ctx, to_weight);
}

/// Entries [v, v + n) of the vocabulary for one group of tokens. The logits are recomputed, or taken from s
/// if `kept`. `collects`: the group's sums are added to `dweight`.
void backward_part(const Context& ctx, const LogProbBackward& h, const BackwardScratch& s,
                   const LeafGroup& group, const Extent& extent, std::int64_t v, std::int64_t n,
                   Matrix dweight, bool collects, bool kept) {
  const Scalar arithmetic = s.logits.memory.type;
  const Matrix chunk = s.logits.chunk(v, group.count);
  if (!kept)
    logits_of(ctx, rows_from(h.x, group.begin), h.weight, group.count, v, n, h.channels, h.accumulator,
              h.rounded, chunk);
  const Matrix factors = factors_in(chunk, h.operand);
  for_rows(ctx, group.count, [&](std::int64_t i) {
    const std::int64_t t = group.begin + i;
    const std::int32_t id = h.ids[t];
    if (id < 0) {
      std::fill_n(static_cast<std::byte*>(row_of(chunk, i)),
                  static_cast<std::size_t>(n) * bytes_of(arithmetic), std::byte{0});
      return;
    }
    void* logits = row_of(chunk, i);
    if (!kept && h.soft_cap != 0) {
      head_rows::soft_cap(ctx, arithmetic, logits, static_cast<std::size_t>(n), h.soft_cap);
    }
    head_rows::Upstream upstream{read_number(h.dlog_prob.data, h.dlog_prob.type, t)};
    if (h.dentropy.data != nullptr) {
      upstream.entropy = read_number(h.dentropy.data, h.dentropy.type, t);
      upstream.entropy_value = read_number(h.entropy.data, h.entropy.type, t);
    }
    if (h.l2wrap != 0) {
      upstream.l2wrap = h.l2wrap;
      upstream.top = static_cast<std::int64_t>(read_number(h.top.data, h.top.type, t)) - v;
    }
    upstream.z_loss = h.z_loss;
    head_rows::gradient(ctx, arithmetic, logits, static_cast<std::size_t>(n),
                        read_number(h.lse.data, h.lse.type, t), upstream, id - v, h.softmax, h.soft_cap);
    if (factors.type != chunk.type) narrow(ctx, logits, n, factors.type);
  });
  if (h.dx.data != nullptr) add_dx(ctx, h, h.dx.type == arithmetic ? h.dx : s.dx, group, factors, v, n);
  if (h.dweight.data == nullptr) return;
  add_dweight(ctx, h, s, group, extent, factors, n, dweight, collects);
}
/// Gradients of some groups, chunk by chunk. `collects`: dweight is added to.
void backward_groups(const Context& ctx, const LogProbBackward& h, const BackwardScratch& s,
                     std::span<const LeafGroup> groups, const Extent& extent, bool collects, bool kept) {
  for (std::int64_t v = 0; v < h.vocabulary; v += kVocabularyChunk) {
    const std::int64_t n = std::min(kVocabularyChunk, h.vocabulary - v);
    Matrix dweight = h.dweight;
    if (dweight.data != nullptr) dweight.data = row_of(h.dweight, v);
    const bool apart = s.dweight.data != nullptr;
    bool adds = collects && !apart;
    for (const LeafGroup& g : groups) {
      backward_part(ctx, h, s, g, extent, v, n, apart ? s.dweight : dweight, adds, kept);
      adds = adds || !g.part || g.closes;
    }
    if (apart) {
      if (h.losses != nullptr) {
        h.losses->add(count_gradient_losses(ctx, n * h.channels, s.dweight.data, s.dweight.type, dweight.data,
                                            dweight.type, collects));
      }
      collect_gradient(ctx, n * h.channels, s.dweight.data, s.dweight.type, dweight.data, dweight.type,
                       collects);
    }
  }
}

/// Stores dx in its storage format.
void store_dx(const Context& ctx, std::int64_t tokens, const LogProbBackward& h, Matrix dx) {
  if (dx.data != nullptr) cast(ctx, tokens * h.channels, dx.data, dx.type, h.dx.data, h.dx.type);
}

}  // namespace

void log_prob(const Context& ctx, const Extent& extent, const LogProb& h) {
  const std::int64_t group = std::min(extent.tokens, head_memory::kForwardTokens);
  Scratch scratch(ctx);
  ForwardScratch s;
  s.logits = scratch.take_logits(group, h.vocabulary, arithmetic_of(h.x), false);
  s.running = scratch.take_running(group);
  for (std::int64_t t = 0; t < extent.tokens; t += group) {
    forward_group(scratch.rest(), h, s, t, std::min(group, extent.tokens - t));
  }
}

void log_prob_backward(const Context& ctx, const Extent& extent, const LogProbBackward& h) {
  const Scalar arithmetic = arithmetic_of(h.x);
  const bool splits = head_memory::splits_leaves(h.x.operand.parts, h.accumulator.rounds());
  const std::vector<LeafGroup> groups = groups_within(
      ctx.workspace_bytes, extent, kBackwardTokens, splits, [&](const std::vector<LeafGroup>& all) {
        return head_memory::backward_workspace(ctx, extent.tokens, largest_of(all), has_parts(all),
                                               h.channels, h.vocabulary, arithmetic, h.dx.type,
                                               h.dweight.type, h.x.operand.parts);
      });
  Scratch scratch(ctx);
  BackwardScratch s;
  s.logits = scratch.take_logits(largest_of(groups), h.vocabulary, arithmetic, false);
  if (h.dx.data != nullptr && h.dx.type != arithmetic)
    s.dx = scratch.take_matrix(extent.tokens, h.channels, arithmetic);
  // A dweight that must round once is first summed separately if it has several contributions.
  if (h.dweight.data != nullptr && h.dweight.type != arithmetic && groups.size() > 1)
    s.dweight = scratch.take_matrix(head_memory::chunk_of(h.vocabulary), h.channels, arithmetic);
  if (h.dweight.data != nullptr && has_parts(groups))
    s.leaf = scratch.take_matrix(head_memory::chunk_of(h.vocabulary), h.channels, arithmetic);
  backward_groups(scratch.rest(), h, s, groups, extent, h.accumulate, false);
  store_dx(ctx, extent.tokens, h, s.dx);
}

void log_prob_training(const Context& ctx, const Extent& extent, const LogProb& forward,
                       const LogProbBackward& backward) {
  const Scalar arithmetic = arithmetic_of(forward.x);
  const auto workspace = [&](const std::vector<LeafGroup>& all) {
    return head_memory::kept_workspace(ctx, extent.tokens, largest_of(all), forward.channels,
                                       forward.vocabulary, arithmetic, backward.dx.type,
                                       forward.x.operand.parts);
  };
  const std::vector<LeafGroup> groups = groups_within(
      ctx.workspace_bytes, extent, head_memory::kept_tokens(forward.vocabulary), false, workspace);
  const std::int64_t largest = largest_of(groups);
  // A dweight that must round once cannot be summed group by group.
  const bool rounds_parts =
      backward.dweight.data != nullptr && backward.dweight.type != arithmetic && groups.size() > 1;
  if (rounds_parts || !keeps_logits(largest, forward.vocabulary) || workspace(groups) > ctx.workspace_bytes) {
    log_prob(ctx, extent, forward);
    return log_prob_backward(ctx, extent, backward);
  }
  Scratch scratch(ctx);
  BackwardScratch back;
  back.logits = scratch.take_logits(largest, forward.vocabulary, arithmetic, true);
  const ForwardScratch front{back.logits, scratch.take_running(largest)};
  if (backward.dx.data != nullptr && backward.dx.type != arithmetic)
    back.dx = scratch.take_matrix(extent.tokens, backward.channels, arithmetic);
  bool collects = backward.accumulate;
  for (const LeafGroup& g : groups) {
    forward_group(scratch.rest(), forward, front, g.begin, g.count);
    backward_groups(scratch.rest(), backward, back, {&g, 1}, extent, collects, true);
    collects = true;
  }
  store_dx(ctx, extent.tokens, backward, back.dx);
}

void log_sum_exp(const Context& ctx, std::int64_t count, std::int64_t vocabulary, ConstMatrix logits,
                 Matrix lse, Scalar softmax) {
  for_rows(ctx, count, [&](std::int64_t i) {
    Running running;
    alignas(64) std::byte chunk[kVocabularyChunk * sizeof(double)];
    for (std::int64_t v = 0; v < vocabulary; v += kVocabularyChunk) {
      const std::int64_t n = std::min(kVocabularyChunk, vocabulary - v);
      const std::size_t size = bytes_of(logits.type);
      std::memcpy(chunk,
                  static_cast<const std::byte*>(row_of(logits, i)) + static_cast<std::size_t>(v) * size,
                  static_cast<std::size_t>(n) * size);
      head_rows::merge(ctx, logits.type, chunk, static_cast<std::size_t>(n), false, softmax, running);
    }
    write_number(lse, i, head_rows::log_sum_exp(ctx, logits.type, running, softmax));
  });
}

}  // namespace mantissa::kernels
