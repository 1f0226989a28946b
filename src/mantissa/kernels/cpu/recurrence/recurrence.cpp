#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "mantissa/core/base/error.h"
#include "mantissa/kernels/cpu/recurrence/prefetch_row.h"
#include "mantissa/kernels/recurrence.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/recurrence/recurrence.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/kernels/cpu/recurrence/step-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

template <class T>
void RunHead(const Recurrence& c, const Segment& segment, std::uint64_t seed, std::size_t head,
             std::span<std::byte> memory) {
  const KeptStates kept(c.shape, c.kept, c.rounding, seed, head, segment);
  const TokenScratch size(c.shape);
  Scratch<T> scratch(memory);
  const auto slot = static_cast<std::size_t>(segment.slot);
  T* const in_place = c.state.data == nullptr ? nullptr : StateInPlace<T>(c.state, slot, head, c.shape);
  T* const copy = scratch.take(size.state(c.shape));
  T* const state = in_place == nullptr ? copy : in_place;
  const TokenRows<T> rows = TakeRows(size, scratch);
  T* const y = scratch.take(size.values);
  T* const next_s = scratch.take(size.values);
  T* const next_alpha = scratch.take(size.keys);
  const auto keys = static_cast<std::size_t>(c.shape.key_dim);
  const auto width = static_cast<std::size_t>(c.shape.value_dim);
  const bool continues = segment.position > 0, carried = continues && c.before.data != nullptr;
  const bool ready = continues && !carried && in_place != nullptr;  // the state is where it is read
  if (!ready) std::fill_n(state, size.state(c.shape), T{0});
  if (continues) {
    if (!ready) LoadState(carried ? c.before : ConstMatrix(c.state), slot, head, c.shape, state);
  } else if (c.initial.data != nullptr) {
    LoadState(c.initial, 0, head, c.shape, state);
  }
  const auto begin = static_cast<std::size_t>(segment.begin),
             end = begin + static_cast<std::size_t>(segment.length);
  LoadHead(c.alpha, begin, head, keys, next_alpha);
  Combine(next_alpha, state, keys, size.values, next_s);
  for (std::size_t t = begin; t < end; ++t) {
    if (t + kTokensAhead < end) {
      prefetch_head(c, t + kTokensAhead, head);
      prefetch_row(c.y, t + kTokensAhead, head * width, width);
    }
    std::copy_n(next_s, size.values, rows.s);
    LoadHead(c.r, t, head, keys, rows.r);
    LoadDecays(c.decay, c.head_decay, t, head, keys, rows.w);
    LoadHead(c.k, t, head, keys, rows.k);
    LoadHead(c.beta, t, head, keys, rows.beta);
    LoadHead(c.v, t, head, width, rows.v);
    if (t + 1 < end) LoadHead(c.alpha, t + 1, head, keys, next_alpha);
    Step<false>(rows, next_alpha, state, keys, size.values, kept, t, state, y, next_s);
    StoreRow(y, width, c.y.data, c.y.type, t * static_cast<std::size_t>(c.y.ld) + head * width);
  }
  if (c.state.data != nullptr && in_place == nullptr) StoreState(state, c.state, slot, head, c.shape);
}

void RunRecurrence(const Recurrence& c, const Segment& segment, std::uint64_t seed, std::size_t head,
                   std::span<std::byte> memory) {
  c.arithmetic == Scalar::f64 ? RunHead<double>(c, segment, seed, head, memory)
                              : RunHead<float>(c, segment, seed, head, memory);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(RunRecurrence);

std::size_t recurrence_workspace(const Context& ctx, const RecurrenceShape& shape, Scalar arithmetic) {
  const TokenScratch size(shape);
  return aligned((size.state(shape) + size.elements() + size.values + size.keys) * bytes_of(arithmetic)) *
         static_cast<std::size_t>(ctx.threads);
}

void recurrence(const Context& ctx, const Extent& extent, const Recurrence& c) {
  const auto run = HWY_DISPATCH_TABLE(RunRecurrence)[ctx.target()];
  for (const Segment& s : extent.segments) {
    if (s.position > 0 && c.state.data == nullptr && c.before.data == nullptr)
      throw ShapeError(fmt::format("recurrence: a segment at position {} needs a state", s.position));
  }
  const std::span<std::byte> memory(ctx.workspace, recurrence_workspace(ctx, c.shape, c.arithmetic));
  parallel_for(ctx, std::ssize(extent.segments) * c.shape.heads, [&](std::int64_t task, int thread) {
    run(c, extent.segments[static_cast<std::size_t>(task / c.shape.heads)], extent.seed,
        static_cast<std::size_t>(task % c.shape.heads),
        {memory.data() +
             memory.size() / static_cast<std::size_t>(ctx.threads) * static_cast<std::size_t>(thread),
         memory.size() / static_cast<std::size_t>(ctx.threads)});
  });
}

}  // namespace mantissa::kernels
#endif  // HWY_ONCE
