// Forward attention: divides segments and key heads into tasks.
#include "mantissa/kernels/attention.h"

#include <cassert>
#include <cstdint>

#include "mantissa/kernels/cpu/attention/check.h"
#include "mantissa/kernels/cpu/attention/layout.h"
#include "mantissa/kernels/cpu/read_ahead.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/attention/attention.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/kernels/cpu/attention/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

namespace {

using namespace attention_parts;  // NOLINT(google-build-using-namespace)

template <class T>
void ForwardOf(const Context& ctx, const Extent& extent, const Attention& a) {
  const std::int64_t heads = static_cast<std::int64_t>(extent.segments.size()) * a.shape.kv_heads;
  const std::int64_t queries = task_queries(heads >= 2 * ctx.threads ? kTaskRows : kFewTaskRows, a.shape);
  const auto pieces = [&](const Segment& segment) { return ceil_div(segment.length, queries); };
  const std::int64_t count = count_tasks(extent, a.shape.kv_heads, pieces);
  const auto body = [&](std::int64_t index, int thread) {
    const auto scratch = scratch_of<ForwardScratch, T>(ctx.workspace, thread, a.shape,
                                                       static_cast<std::size_t>(a.operand.parts));
    const auto task = [&](std::int64_t i) {
      return ForwardTask<T>(ctx.simd, a, task_at(extent, a.shape.kv_heads, pieces, i),
                            static_cast<std::size_t>(queries), scratch);
    };
    ReadAhead ahead;
    if (index + ctx.threads < count) task(index + ctx.threads).Announce(ahead);
    task(index).Run(ahead);
  };
  parallel_for(ctx, count, body);
}

}  // namespace

void AttentionImpl(const Context& ctx, const Extent& extent, const Attention& a) {
  if (a.q.type == Scalar::f64) {
    ForwardOf<double>(ctx, extent, a);
  } else {
    ForwardOf<float>(ctx, extent, a);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {
namespace {

template <class T>
std::size_t forward_bytes(const Context& ctx, const AttentionShape& shape, int parts) {
  using attention_layout::ForwardScratch, attention_layout::scratch_elements;
  const auto count = static_cast<std::size_t>(parts);
  return static_cast<std::size_t>(ctx.threads) * scratch_elements<ForwardScratch, T>(shape, count) *
         sizeof(T);
}

}  // namespace

HWY_EXPORT(AttentionImpl);

std::size_t attention_workspace(const Context& ctx, const AttentionShape& shape, std::int64_t /*tokens*/,
                                std::int64_t /*longest_row*/, Scalar arithmetic, int parts) {
  return arithmetic == Scalar::f64 ? forward_bytes<double>(ctx, shape, parts)
                                   : forward_bytes<float>(ctx, shape, parts);
}

void attention(const Context& ctx, const Extent& extent, const Attention& a) {
  assert(ctx.workspace_bytes >=
         attention_workspace(ctx, a.shape, extent.tokens, 0, a.lse.type, a.operand.parts));
  check_sums(a.accumulator, a.operand, a.q.type);
  HWY_DISPATCH_TABLE(AttentionImpl)[ctx.target()](ctx, extent, a);
}

}  // namespace mantissa::kernels
#endif
