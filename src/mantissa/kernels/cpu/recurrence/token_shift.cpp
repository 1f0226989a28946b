#include "mantissa/kernels/token_shift.h"

#include <algorithm>
#include <vector>

#include "mantissa/core/base/error_text.h"
#include "mantissa/kernels/cpu/recurrence/prefetch_row.h"
#include "mantissa/kernels/cpu/recurrence/segment_begins.h"
#include "mantissa/kernels/cpu/tasks.h"
#include "mantissa/kernels/update.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/recurrence/token_shift.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/kernels/cpu/rows/rows-inl.h"
#include "mantissa/kernels/cpu/rows/token_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

/// Channels are processed in pieces that stay in the first-level cache.
constexpr std::size_t kPiece = 1024;

template <class T>
HWY_INLINE const T* View(ConstMatrix m, std::size_t row, std::size_t c, std::size_t count, T* buffer) {
  return ViewRow<T>(m.data, m.type, row * static_cast<std::size_t>(m.ld) + c, count, buffer);
}

/// Computes channels [c, c + count) of tokens [begin, end) of a segment. `first` is the predecessor of token
/// `begin`, or null for zeros.
template <class T>
void MixPiece(const TokenShift& s, std::size_t begin, std::size_t end, const ConstMatrix* first,
              std::size_t first_row, std::size_t c, std::size_t count) {
  alignas(64) T buffers[2][kPiece], mix_buffer[kPiece], out_buffer[kPiece], zeros[kPiece];
  const T* before = zeros;
  if (first == nullptr) {
    std::fill_n(zeros, count, T{0});
  } else {
    before = View(*first, first_row, c, count, buffers[1]);
  }
  for (std::size_t t = begin; t < end; ++t) {
    if (t + kTokensAhead < end) prefetch_row(s.x, t + kTokensAhead, c, count);
    const T* const x = View(s.x, t, c, count, buffers[(t - begin) % 2]);
    for (std::size_t j = 0; j < s.mix.size(); ++j) {
      const T* const mix = View(s.mix[j], 0, c, count, mix_buffer);
      const Matrix& to = s.mixed[j];
      if (t + kTokensAhead < end) prefetch_row(to, t + kTokensAhead, c, count);
      const OutRow<T> out(to.data, to.type, t * static_cast<std::size_t>(to.ld) + c, count, out_buffer);
      T* const y = out.data();
      ForEachVector<T>(count, [&](auto d, std::size_t i) HWY_ATTR {
        const auto here = hn::LoadU(d, x + i);
        const auto step = hn::Sub(hn::LoadU(d, before + i), here);
        hn::StoreU(hn::MulAdd(step, hn::LoadU(d, mix + i), here), d, y + i);
      });
      out.Store();
    }
    before = x;
  }
}

void MixTokens(const TokenShift& s, std::size_t begin, std::size_t end, const ConstMatrix* first,
               std::size_t first_row) {
  const auto channels = static_cast<std::size_t>(s.channels);
  for (std::size_t c = 0; c < channels; c += kPiece) {
    const std::size_t count = std::min(kPiece, channels - c);
    s.x.type == Scalar::f64 ? MixPiece<double>(s, begin, end, first, first_row, c, count)
                            : MixPiece<float>(s, begin, end, first, first_row, c, count);
  }
}

/// q = Σ_j mix[j] ∘ dy[j][t] and, if `sum` is not null, Σ_j dy[j][t]. Prefetches the rows of token `next`,
/// unless it is t.
template <class T>
void SumGradients(const TokenShiftBackward& s, std::size_t t, std::size_t next, std::size_t c,
                  std::size_t count, T* q, T* sum) {
  alignas(64) T mix_buffer[kPiece], dy_buffer[kPiece];
  std::fill_n(q, count, T{0});
  if (sum != nullptr) std::fill_n(sum, count, T{0});
  for (std::size_t j = 0; j < s.mix.size(); ++j) {
    if (next != t) prefetch_row(s.dy[j], next, c, count);
    const T* const mix = View(s.mix[j], 0, c, count, mix_buffer);
    const T* const dy = View(s.dy[j], t, c, count, dy_buffer);
    ForEachVector<T>(count, [&](auto d, std::size_t i) HWY_ATTR {
      const auto g = hn::LoadU(d, dy + i);
      hn::StoreU(hn::MulAdd(hn::LoadU(d, mix + i), g, hn::LoadU(d, q + i)), d, q + i);
      if (sum != nullptr) hn::StoreU(hn::Add(hn::LoadU(d, sum + i), g), d, sum + i);
    });
  }
}

/// Tokens [begin, end) of a segment that ends at `segment_end`, from the last one on.
template <class T>
void BackwardPiece(const TokenShiftBackward& s, std::size_t begin, std::size_t end, std::size_t segment_end,
                   std::int64_t after_row, std::size_t c, std::size_t count) {
  alignas(64) T here[kPiece], after[kPiece], sum[kPiece], out_buffer[kPiece];
  std::fill_n(after, count, T{0});
  if (end < segment_end) {
    SumGradients<T>(s, end, end, c, count, after, nullptr);
  } else if (after_row >= 0) {
    std::copy_n(View(s.after, static_cast<std::size_t>(after_row), c, count, here), count, after);
  }
  for (std::size_t t = end; t-- > begin;) {
    const std::size_t next = t >= begin + kTokensAhead ? t - kTokensAhead : t;
    SumGradients(s, t, next, c, count, here, sum);
    if (next != t) prefetch_row(s.dx, next, c, count);
    const OutRow<T> out(s.dx.data, s.dx.type, t * static_cast<std::size_t>(s.dx.ld) + c, count, out_buffer);
    T* const dx = out.data();
    ForEachVector<T>(count, [&](auto d, std::size_t i) HWY_ATTR {
      const auto rest = hn::Sub(hn::LoadU(d, sum + i), hn::LoadU(d, here + i));
      hn::StoreU(hn::Add(rest, hn::LoadU(d, after + i)), d, dx + i);
    });
    out.Store();
    std::copy_n(here, count, after);
  }
}

void FirstToken(const TokenShiftBackward& s, std::size_t token, Matrix q, std::size_t row) {
  const auto channels = static_cast<std::size_t>(s.channels);
  const auto write = [&]<class T>(T* to) {
    for (std::size_t c = 0; c < channels; c += kPiece)
      SumGradients<T>(s, token, token, c, std::min(kPiece, channels - c), to + c, nullptr);
  };
  const std::size_t at = row * static_cast<std::size_t>(q.ld);
  s.f64 ? write(static_cast<double*>(q.data) + at) : write(static_cast<float*>(q.data) + at);
}

void BackwardTokens(const TokenShiftBackward& s, std::size_t begin, std::size_t end, std::size_t segment_end,
                    std::int64_t after_row) {
  const auto channels = static_cast<std::size_t>(s.channels);
  for (std::size_t c = 0; c < channels; c += kPiece) {
    const std::size_t count = std::min(kPiece, channels - c);
    s.f64 ? BackwardPiece<double>(s, begin, end, segment_end, after_row, c, count)
          : BackwardPiece<float>(s, begin, end, segment_end, after_row, c, count);
  }
}

/// Tokens between prefetching and reading a few columns.
constexpr std::size_t kBlockAhead = 12;

/// Adds the chain of tokens [begin, end) and channels [c, c + width) to `leaf`.
template <class T>
void AddMixBlock(const TokenShiftMix& s, const std::vector<std::int64_t>& opens, std::size_t begin,
                 std::size_t end, std::size_t c, std::size_t width, T* leaf) {
  alignas(64) T chain[kSumColumns], buffers[2][kSumColumns], dy_buffer[kSumColumns], zeros[kSumColumns],
      carried[kSumColumns];
  std::fill_n(chain, width, T{0});
  std::fill_n(zeros, width, T{0});
  const T* before = opens[begin] == kInside ? View(s.x, begin - 1, c, width, buffers[1]) : zeros;
  for (std::size_t t = begin; t < end; ++t) {
    if (opens[t] == kOpens) before = zeros;
    if (opens[t] >= 0) before = View(s.before, static_cast<std::size_t>(opens[t]), c, width, carried);
    if (t + kBlockAhead < end) {
      prefetch_row(s.x, t + kBlockAhead, c, width);
      prefetch_row(s.dy, t + kBlockAhead, c, width);
    }
    const T* const x = View(s.x, t, c, width, buffers[(t - begin) % 2]);
    const T* const dy = View(s.dy, t, c, width, dy_buffer);
    ForEachVector<T>(width, [&](auto d, std::size_t i) HWY_ATTR {
      const auto step = hn::Sub(hn::LoadU(d, before + i), hn::LoadU(d, x + i));
      hn::StoreU(hn::MulAdd(hn::LoadU(d, dy + i), step, hn::LoadU(d, chain + i)), d, chain + i);
    });
    before = x;
  }
  AddRow(chain, width, leaf);
}

template <class T>
void MixChannels(const Extent& extent, const TokenShiftMix& s, const std::vector<std::int64_t>& opens,
                 std::size_t c, std::size_t width) {
  SumBlocks(extent, width, s.accumulate, static_cast<T*>(s.dmix.data) + c,
            [&](std::size_t begin, std::size_t end, T* leaf)
                HWY_ATTR { AddMixBlock(s, opens, begin, end, c, width, leaf); });
}

void MixRange(const Extent& extent, const TokenShiftMix& s, const std::vector<std::int64_t>& opens,
              std::size_t c, std::size_t width) {
  s.x.type == Scalar::f64 ? MixChannels<double>(extent, s, opens, c, width)
                          : MixChannels<float>(extent, s, opens, c, width);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(MixTokens);
HWY_EXPORT(BackwardTokens);
HWY_EXPORT(FirstToken);
HWY_EXPORT(MixRange);

namespace {

void check_begin(const Segment& segment, bool has_states) {
  if (segment.position > 0 && !has_states)
    throw ShapeError("token_shift: a segment at position {} needs a state", segment.position);
}

/// Tokens [begin, end) of a segment.
struct SegmentPart {
  const Segment* segment = nullptr;
  std::int64_t begin = 0, end = 0;
};

/// Calls body(part) for parts of all segments: several for each thread, but of enough tokens that reading one
/// more at a part's end costs little.
template <class Body>
void for_segment_parts(const Context& ctx, const Extent& extent, std::int64_t width, const Body& body) {
  constexpr std::int64_t kPartsOfThread = 4, kTokens = 64;
  const std::int64_t share = extent.tokens / (kPartsOfThread * std::max(ctx.threads, 1));
  const std::int64_t most = std::max({std::int64_t{1}, kTaskElements / width, std::min(share, kTokens)});
  std::vector<SegmentPart> parts;
  for (const Segment& s : extent.segments) {
    for (std::int64_t begin = 0; begin < s.length; begin += most)
      parts.push_back({&s, s.begin + begin, s.begin + std::min(s.length, begin + most)});
  }
  parallel_for(ctx, std::ssize(parts),
               [&](std::int64_t i, int) { body(parts[static_cast<std::size_t>(i)]); });
}

}  // namespace

void token_shift(const Context& ctx, const Extent& extent, const TokenShift& s) {
  for (const Segment& segment : extent.segments)
    check_begin(segment, s.state.data != nullptr || s.before.data != nullptr);
  const auto mix = HWY_DISPATCH_TABLE(MixTokens)[ctx.target()];
  const ConstMatrix state =
      s.before.data != nullptr ? s.before : ConstMatrix{s.state.data, s.state.type, s.state.ld};
  const auto width = s.channels * (1 + std::ssize(s.mix));
  for_segment_parts(ctx, extent, width, [&](const SegmentPart& part) {
    const Segment& segment = *part.segment;
    const ConstMatrix* first = nullptr;
    std::int64_t row = 0;
    if (part.begin > segment.begin) {
      first = &s.x;
      row = part.begin - 1;
    } else if (segment.position > 0) {
      first = &state;
      row = segment.slot;
    }
    mix(s, static_cast<std::size_t>(part.begin), static_cast<std::size_t>(part.end), first,
        static_cast<std::size_t>(row));
  });
  if (s.state.data == nullptr) return;
  const auto row_of = [](const auto& m, std::int64_t row) {
    return static_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(m.data))) +
           static_cast<std::size_t>(row * m.ld) * bytes_of(m.type);
  };
  for (const Segment& segment : extent.segments) {
    if (segment.length == 0) continue;
    cast(ctx, s.channels, row_of(s.x, segment.begin + segment.length - 1), s.x.type,
         row_of(s.state, segment.slot), s.state.type);
  }
}

void token_shift_backward(const Context& ctx, const Extent& extent, const TokenShiftBackward& s) {
  const auto run = HWY_DISPATCH_TABLE(BackwardTokens)[ctx.target()];
  for_segment_parts(ctx, extent, s.channels * (1 + std::ssize(s.mix)), [&](const SegmentPart& part) {
    const auto segment = static_cast<std::size_t>(part.segment - extent.segments.data());
    run(s, static_cast<std::size_t>(part.begin), static_cast<std::size_t>(part.end),
        static_cast<std::size_t>(part.segment->begin + part.segment->length),
        s.after_rows.empty() ? -1 : s.after_rows[segment]);
  });
}

void token_shift_first(const Context& ctx, const TokenShiftBackward& s, std::int64_t token, Matrix q,
                       std::int64_t row) {
  HWY_DISPATCH_TABLE(FirstToken)
  [ctx.target()](s, static_cast<std::size_t>(token), q, static_cast<std::size_t>(row));
}

void token_shift_mix(const Context& ctx, const Extent& extent, const TokenShiftMix& s) {
  for (const Segment& segment : extent.segments) check_begin(segment, s.before.data != nullptr);
  const std::vector<std::int64_t> opens = segment_begins(extent);
  const auto range = HWY_DISPATCH_TABLE(MixRange)[ctx.target()];
  for_column_ranges(ctx, s.channels, extent.tokens,
                    [&](std::size_t c, std::size_t width) { range(extent, s, opens, c, width); });
}

}  // namespace mantissa::kernels
#endif
