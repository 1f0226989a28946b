// Backward attention: a task has a segment and a key head. With fewer of them than threads, separate tasks
// compute dK and dV of one key block and dQ of one query block. The sums have the same terms in the same
// order.
#include <algorithm>
#include <cassert>
#include <cstdint>

#include "mantissa/kernels/attention.h"
#include "mantissa/kernels/cpu/attention/check.h"
#include "mantissa/kernels/cpu/attention/layout.h"
#include "mantissa/kernels/cpu/read_ahead.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/attention/backward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/kernels/cpu/attention/backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

namespace {

using namespace attention_parts;  // NOLINT(google-build-using-namespace)

template <class T>
class Backward {
 public:
  Backward(const Context& ctx, const Extent& extent, const AttentionBackward& a)
      : ctx_(ctx), extent_(extent), a_(a) {
    for (const Segment& s : extent.segments)
      longest_ = std::max(longest_, static_cast<std::size_t>(s.length));
  }

  void Run() const {
    const auto whole = [](const Segment&) { return std::int64_t{1}; };
    const bool split = count_tasks(extent_, a_.shape.kv_heads, whole) < ctx_.threads;
    if (!split) {
      ForEach(whole, [&](const Segment& s, std::size_t) {
        return std::pair<Range, Range>(KeysOf(s), QueriesOf(s));
      });
      return;
    }
    ForEach([&](const Segment& s) { return Pieces(KeysOf(s), kKeyBlock); },
            [&](const Segment& s, std::size_t piece) {
              return std::pair<Range, Range>(Piece(KeysOf(s), piece, kKeyBlock), {});
            });
    ForEach([&](const Segment& s) { return Pieces(QueriesOf(s), kQueryBlock); },
            [&](const Segment& s, std::size_t piece) {
              return std::pair<Range, Range>({}, Piece(QueriesOf(s), piece, kQueryBlock));
            });
  }

 private:
  /// Return the positions of a segment's keys and queries, counted from its first key.
  Range KeysOf(const Segment& s) const { return {0, keys_of(s, a_.span).end}; }
  Range QueriesOf(const Segment& s) const {
    const std::size_t first = keys_of(s, a_.span).position;
    return {first, first + static_cast<std::size_t>(s.length)};
  }
  static std::int64_t Pieces(Range all, std::int64_t size) {
    return ceil_div(static_cast<std::int64_t>(all.count()), size);
  }
  static Range Piece(Range all, std::size_t piece, std::int64_t size) {
    const std::size_t begin = all.begin + piece * static_cast<std::size_t>(size);
    return {begin, std::min(all.end, begin + static_cast<std::size_t>(size))};
  }

  /// Runs a task for every piece of every segment and key head. ranges_of returns its keys and queries.
  template <class PiecesOf, class RangesOf>
  void ForEach(PiecesOf pieces_of, RangesOf ranges_of) const {
    const std::int64_t count = count_tasks(extent_, a_.shape.kv_heads, pieces_of);
    parallel_for(ctx_, count, [&](std::int64_t index, int thread) {
      const auto scratch = scratch_of<BackwardScratch, T>(ctx_.workspace, thread, a_.shape, longest_,
                                                          static_cast<std::size_t>(a_.operand.parts));
      const auto task = [&](std::int64_t i) {
        const Task t = task_at(extent_, a_.shape.kv_heads, pieces_of, i);
        const auto [keys, queries] = ranges_of(*t.segment, t.piece);
        return BackwardTask<T>(ctx_.simd, a_, *t.segment, t.kv_head, keys, queries, scratch);
      };
      ReadAhead ahead;
      if (index + ctx_.threads < count) task(index + ctx_.threads).Announce(ahead);
      task(index).Run(ahead);
    });
  }

  const Context& ctx_;
  const Extent& extent_;
  const AttentionBackward& a_;
  std::size_t longest_ = 0;
};

}  // namespace

void AttentionBackwardImpl(const Context& ctx, const Extent& extent, const AttentionBackward& a) {
  if (a.q.type == Scalar::f64) {
    Backward<double>(ctx, extent, a).Run();
  } else {
    Backward<float>(ctx, extent, a).Run();
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {
namespace {

template <class T>
std::size_t backward_bytes(const Context& ctx, const AttentionShape& shape, std::int64_t longest, int parts) {
  using attention_layout::BackwardScratch, attention_layout::scratch_elements;
  const auto rows = static_cast<std::size_t>(longest), count = static_cast<std::size_t>(parts);
  return static_cast<std::size_t>(ctx.threads) * scratch_elements<BackwardScratch, T>(shape, rows, count) *
         sizeof(T);
}

}  // namespace

HWY_EXPORT(AttentionBackwardImpl);

std::size_t attention_backward_workspace(const Context& ctx, const AttentionShape& shape,
                                         std::int64_t /*tokens*/, std::int64_t longest_row, Scalar arithmetic,
                                         int parts) {
  return arithmetic == Scalar::f64 ? backward_bytes<double>(ctx, shape, longest_row, parts)
                                   : backward_bytes<float>(ctx, shape, longest_row, parts);
}

void attention_backward(const Context& ctx, const Extent& extent, const AttentionBackward& a) {
  assert(ctx.workspace != nullptr);
  check_sums(a.accumulator, a.operand, a.q.type);
  HWY_DISPATCH_TABLE(AttentionBackwardImpl)[ctx.target()](ctx, extent, a);
}

}  // namespace mantissa::kernels
#endif
