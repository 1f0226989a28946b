#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "mantissa/core/base/error.h"
#include "mantissa/kernels/recurrence.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/recurrence/backward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/kernels/cpu/recurrence/row_products-inl.h"
#include "mantissa/kernels/cpu/recurrence/step-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

/// The gradients of one token's rows.
template <class T>
struct TokenGradients {
  T *dr, *dw, *dk, *dbeta;  // [key_dim]
  T *dv, *ds, *dy;          // [padded values]
};

/// What a token still has to do to G, the gradient of the state before it, when the one before it begins.
template <class T>
struct Waiting {
  T *w, *alpha, *dalpha;  // [key_dim]
  T* ds;                  // [padded values]; zeros: there is no such token
};

/// Writes the sums of the first `kRows` rows.
template <std::size_t kRows, class T>
HWY_INLINE void StoreSums(const RowSum<T>* rows, T* to) {
  if constexpr (kRows == kJoinedRows) {
    JoinRows(rows, to);
  } else {
    T all[kJoinedRows];
    JoinRows(rows, all);
    std::copy_n(all, kRows, to);
  }
}

/// Sweep() for rows [j, j + kRows), a number that the compiler knows, so that all sums stay in registers.
template <std::size_t kRows, class T>
HWY_INLINE void SweepRows(const Waiting<T>& next, const TokenRows<T>& t, const TokenGradients<T>& g,
                          const T* HWY_RESTRICT before, const T* HWY_RESTRICT after, std::size_t j,
                          std::size_t values, T* HWY_RESTRICT G) {
  using Sum = RowSum<T>;
  const typename Sum::D d;
  constexpr std::size_t kLanes = Sum::kLanes, kVectors = Sum::kVectors;
  // In variables of their own, which no store can change.
  const T *HWY_RESTRICT r = t.r + j, *HWY_RESTRICT k = t.k + j, *HWY_RESTRICT beta = t.beta + j,
                        *HWY_RESTRICT next_alpha = next.alpha + j, *HWY_RESTRICT next_w = next.w + j;
  const T *HWY_RESTRICT all_dy = g.dy, *HWY_RESTRICT all_v = t.v, *HWY_RESTRICT all_s = t.s,
                        *HWY_RESTRICT all_next = next.ds;
  T *HWY_RESTRICT all_dv = g.dv, *HWY_RESTRICT all_ds = g.ds;
  Sum dr[kJoinedRows], dw[kJoinedRows], dk[kJoinedRows], dbeta[kJoinedRows], dalpha[kJoinedRows];
  for (std::size_t c = 0; c < values; c += kVirtualLanes) {
    for (std::size_t x = 0; x < kVectors; ++x) {
      const std::size_t at = c + x * kLanes;
      const auto dy = hn::Load(d, all_dy + at), v = hn::Load(d, all_v + at), s = hn::Load(d, all_s + at),
                 ds_next = hn::Load(d, all_next + at);
      auto dv = hn::Load(d, all_dv + at), ds = hn::Load(d, all_ds + at);
      for (std::size_t i = 0; i < kRows; ++i) {
        const std::size_t row = (j + i) * values + at;
        const auto state = hn::Load(d, after + row);
        dalpha[i].lanes[x] = hn::MulAdd(state, ds_next, dalpha[i].lanes[x]);
        dr[i].lanes[x] = hn::MulAdd(state, dy, dr[i].lanes[x]);
        const auto corrected = hn::Mul(hn::Set(d, next_alpha[i]), ds_next);
        const auto passed = hn::MulAdd(hn::Set(d, next_w[i]), hn::Load(d, G + row), corrected);
        const auto grad = hn::MulAdd(hn::Set(d, r[i]), dy, passed);
        hn::Store(grad, d, G + row);
        dv = hn::MulAdd(hn::Set(d, k[i]), grad, dv);
        ds = hn::MulAdd(hn::Set(d, beta[i]), grad, ds);
        dk[i].lanes[x] = hn::MulAdd(grad, v, dk[i].lanes[x]);
        dbeta[i].lanes[x] = hn::MulAdd(grad, s, dbeta[i].lanes[x]);
        dw[i].lanes[x] = hn::MulAdd(grad, hn::Load(d, before + row), dw[i].lanes[x]);
      }
      hn::Store(dv, d, all_dv + at);
      hn::Store(ds, d, all_ds + at);
    }
  }
  StoreSums<kRows>(dalpha, next.dalpha + j);
  StoreSums<kRows>(dr, g.dr + j);
  StoreSums<kRows>(dw, g.dw + j);
  StoreSums<kRows>(dk, g.dk + j);
  StoreSums<kRows>(dbeta, g.dbeta + j);
}

/// In one sweep over the state: ends the token after this one, for which `after` is the state before, adds
/// the token's own part to G, and computes all its gradients but dalpha.
template <class T>
HWY_INLINE void Sweep(const Waiting<T>& next, const TokenRows<T>& t, const TokenGradients<T>& g,
                      const T* before, const T* after, std::size_t keys, std::size_t values, T* G) {
  std::fill_n(g.dv, values, T{0});
  std::fill_n(g.ds, values, T{0});
  std::size_t j = 0;
  for (; j + kJoinedRows <= keys; j += kJoinedRows)
    SweepRows<kJoinedRows>(next, t, g, before, after, j, values, G);
  for (; j < keys; ++j) SweepRows<1>(next, t, g, before, after, j, values, G);
}

/// EndFirst() for rows [j, j + kRows).
template <std::size_t kRows, class T>
HWY_INLINE void EndRows(const Waiting<T>& first, const T* before, std::size_t j, std::size_t values, T* G) {
  using Sum = RowSum<T>;
  const typename Sum::D d;
  constexpr std::size_t kLanes = Sum::kLanes, kVectors = Sum::kVectors;
  Sum dalpha[kJoinedRows];
  for (std::size_t c = 0; c < values; c += kVirtualLanes) {
    for (std::size_t x = 0; x < kVectors; ++x) {
      const std::size_t at = c + x * kLanes;
      const auto ds = hn::Load(d, first.ds + at);
      for (std::size_t i = 0; i < kRows; ++i) {
        const std::size_t row = (j + i) * values + at;
        dalpha[i].lanes[x] = hn::MulAdd(hn::Load(d, before + row), ds, dalpha[i].lanes[x]);
        const auto corrected = hn::Mul(hn::Set(d, first.alpha[j + i]), ds);
        hn::Store(hn::MulAdd(hn::Set(d, first.w[j + i]), hn::Load(d, G + row), corrected), d, G + row);
      }
    }
  }
  StoreSums<kRows>(dalpha, first.dalpha + j);
}

/// Ends the first token of a segment: its dalpha, and G as the gradient of `before`.
template <class T>
HWY_INLINE void EndFirst(const Waiting<T>& first, const T* before, std::size_t keys, std::size_t values,
                         T* G) {
  std::size_t j = 0;
  for (; j + kJoinedRows <= keys; j += kJoinedRows) EndRows<kJoinedRows>(first, before, j, values, G);
  for (; j < keys; ++j) EndRows<1>(first, before, j, values, G);
}

template <class T>
HWY_INLINE void StoreHead(const T* from, Matrix m, std::size_t token, std::size_t head, std::size_t width) {
  StoreRow(from, width, m.data, m.type, token * static_cast<std::size_t>(m.ld) + head * width);
}

/// The backward pass of one head.
template <class T>
class HeadBackward {
 public:
  HeadBackward(const RecurrenceBackward& c, std::size_t head, std::span<std::byte> memory)
      : c_(c), head_(head), size_(c.shape), keys_(static_cast<std::size_t>(c.shape.key_dim)) {
    Scratch<T> scratch(memory);
    for (T*& state : states_) state = scratch.take(size_.state(c.shape));
    G_ = scratch.take(size_.state(c.shape));
    for (TokenRows<T>& rows : rows_) rows = TakeRows(size_, scratch);
    const TokenRows<T> of = TakeRows(size_, scratch);
    gradients_ = {of.r, of.w, of.k, of.beta, of.v, of.s, scratch.take(size_.values)};
    next_ = {scratch.take(size_.keys), scratch.take(size_.keys), of.alpha, scratch.take(size_.values)};
    std::fill_n(gradients_.dy, size_.values, T{0});
    next_alpha_ = scratch.take(size_.keys);
    next_s_ = scratch.take(size_.values);
    starts_ = scratch.take(0);
  }

  void Run(const Segment& segment, std::uint64_t seed) {
    const KeptStates kept(c_.shape, c_.kept, c_.rounding, seed, head_, segment);
    kept_ = &kept;
    begin_ = static_cast<std::size_t>(segment.begin);
    end_ = begin_ + static_cast<std::size_t>(segment.length);
    FindStarts(segment);
    std::fill_n(G_, size_.state(c_.shape), T{0});
    std::fill_n(next_.w, keys_, T{0});
    std::fill_n(next_.alpha, keys_, T{0});
    std::fill_n(next_.ds, size_.values, T{0});
    for (std::size_t end = end_; end > begin_;) {
      const std::size_t begin = begin_ + (end - 1 - begin_) / kStateInterval * kStateInterval;
      Recompute(begin, end);
      for (std::size_t t = end; t-- > begin;) Token(t, t - begin);
      end = begin;
    }
    EndFirst(next_, states_[0], keys_, size_.values, G_);
    StoreHead(next_.dalpha, c_.dalpha, begin_, head_, keys_);
  }
  /// The gradient of the state before the segment, padded.
  const T* first_gradient() const { return G_; }

 private:
  /// The state before token `t` of an interval's beginning.
  T* Start(std::size_t t) const { return starts_ + (t - begin_) / kStateInterval * size_.state(c_.shape); }

  /// Prepares Advance() for token `t` after `state`.
  void Begin(std::size_t t, const T* state) {
    LoadHead(c_.alpha, t, head_, keys_, next_alpha_);
    Combine(next_alpha_, state, keys_, size_.values, next_s_);
  }

  /// Loads the rows of token `t` and computes the state after it.
  void Advance(std::size_t t, const TokenRows<T>& rows, const T* before, T* after) {
    std::copy_n(next_s_, size_.values, rows.s);
    std::copy_n(next_alpha_, keys_, rows.alpha);
    LoadHead(c_.r, t, head_, keys_, rows.r);
    LoadDecays(c_.decay, c_.head_decay, t, head_, keys_, rows.w);
    LoadHead(c_.k, t, head_, keys_, rows.k);
    LoadHead(c_.beta, t, head_, keys_, rows.beta);
    LoadHead(c_.v, t, head_, static_cast<std::size_t>(c_.shape.value_dim), rows.v);
    if (t + 1 < end_) LoadHead(c_.alpha, t + 1, head_, keys_, next_alpha_);
    Step<true>(rows, next_alpha_, before, keys_, size_.values, *kept_, t, after, static_cast<T*>(nullptr),
               next_s_);
  }

  /// Computes the states at the beginnings of all intervals.
  void FindStarts(const Segment& segment) {
    T* const state = states_[0];
    std::fill_n(state, size_.state(c_.shape), T{0});
    if (segment.position > 0) {
      LoadState(c_.before, static_cast<std::size_t>(segment.slot), head_, c_.shape, state);
    } else if (c_.initial.data != nullptr) {
      LoadState(c_.initial, 0, head_, c_.shape, state);
    }
    Begin(begin_, state);
    for (std::size_t t = begin_; t < end_; ++t) {
      if ((t - begin_) % kStateInterval == 0) std::copy_n(state, size_.state(c_.shape), Start(t));
      Advance(t, rows_[0], state, state);
    }
  }

  /// Fills the states from before token `begin` to after the last one, and the rows of the tokens.
  void Recompute(std::size_t begin, std::size_t end) {
    std::copy_n(Start(begin), size_.state(c_.shape), states_[0]);
    Begin(begin, states_[0]);
    for (std::size_t t = begin; t < end; ++t)
      Advance(t, rows_[t - begin], states_[t - begin], states_[t - begin + 1]);
  }

  void Token(std::size_t t, std::size_t i) {
    const std::size_t keys = keys_, width = static_cast<std::size_t>(c_.shape.value_dim);
    const TokenRows<T>& rows = rows_[i];
    const TokenGradients<T>& g = gradients_;
    LoadHead(c_.dy, t, head_, width, g.dy);
    Sweep(next_, rows, g, states_[i], states_[i + 1], keys, size_.values, G_);
    if (t + 1 < end_) StoreHead(next_.dalpha, c_.dalpha, t + 1, head_, keys);
    std::copy_n(rows.w, keys, next_.w);
    std::copy_n(rows.alpha, keys, next_.alpha);
    std::copy_n(g.ds, size_.values, next_.ds);
    for (std::size_t j = 0; j < keys; ++j) g.dw[j] *= rows.w[j];
    if (c_.head_decay) {
      T sum{0};
      for (std::size_t j = 0; j < keys; ++j) sum += g.dw[j];
      StoreHead(&sum, c_.ddecay, t, head_, 1);
    } else {
      StoreHead(g.dw, c_.ddecay, t, head_, keys);
    }
    StoreHead(g.dr, c_.dr, t, head_, keys);
    StoreHead(g.dk, c_.dk, t, head_, keys);
    StoreHead(g.dbeta, c_.dbeta, t, head_, keys);
    StoreHead(g.dv, c_.dv, t, head_, width);
  }

  const RecurrenceBackward& c_;
  std::size_t head_;
  TokenScratch size_;
  std::size_t keys_, begin_ = 0, end_ = 0;
  T* starts_;                      // before each interval of the segment
  T* states_[kStateInterval + 1];  // before and after each token of an interval
  T* G_;
  TokenRows<T> rows_[kStateInterval];
  const KeptStates* kept_ = nullptr;  // of the current segment
  TokenGradients<T> gradients_;
  Waiting<T> next_;  // of the token after the current one
  T *next_alpha_, *next_s_;
};

template <class T>
void RunSegments(const RecurrenceBackward& c, std::span<const Segment> segments, std::uint64_t seed,
                 std::size_t head, std::span<std::byte> memory) {
  HeadBackward<T> of(c, head, memory);
  const auto keys = static_cast<std::size_t>(c.shape.key_dim),
             width = static_cast<std::size_t>(c.shape.value_dim);
  const std::size_t values = padded_values(c.shape.value_dim);
  for (const Segment& segment : segments) {
    of.Run(segment, seed);
    if (c.dinitial.data == nullptr || segment.position > 0) continue;
    T* const sum = static_cast<T*>(c.dinitial.data) + head * keys * width;
    for (std::size_t j = 0; j < keys; ++j) AddRow(of.first_gradient() + j * values, width, sum + j * width);
  }
}

void RunRecurrenceBackward(const RecurrenceBackward& c, std::span<const Segment> segments, std::uint64_t seed,
                           std::size_t head, std::span<std::byte> memory) {
  c.arithmetic == Scalar::f64 ? RunSegments<double>(c, segments, seed, head, memory)
                              : RunSegments<float>(c, segments, seed, head, memory);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(RunRecurrenceBackward);

std::size_t recurrence_backward_workspace(const Context& ctx, const RecurrenceShape& shape,
                                          std::int64_t longest, Scalar arithmetic) {
  const TokenScratch size(shape);
  const auto intervals = static_cast<std::size_t>((longest + kStateInterval - 1) / kStateInterval);
  const std::size_t states = (intervals + kStateInterval + 2) * size.state(shape);
  const std::size_t rows = (kStateInterval + 1) * size.elements() + 3 * size.values + 3 * size.keys;
  return aligned((states + rows) * bytes_of(arithmetic)) * static_cast<std::size_t>(ctx.threads);
}

void recurrence_backward(const Context& ctx, const Extent& extent, const RecurrenceBackward& c) {
  const auto run = HWY_DISPATCH_TABLE(RunRecurrenceBackward)[ctx.target()];
  std::int64_t longest = 0;
  for (const Segment& s : extent.segments) {
    longest = std::max(longest, s.length);
    if (s.position > 0 && c.before.data == nullptr)
      throw ShapeError(fmt::format("recurrence: a segment at position {} needs a state", s.position));
  }
  const std::span<std::byte> memory(ctx.workspace,
                                    recurrence_backward_workspace(ctx, c.shape, longest, c.arithmetic));
  // With a gradient of the first state one thread takes all segments of a head, in order.
  const std::int64_t tasks = c.dinitial.data == nullptr ? std::ssize(extent.segments) : 1;
  parallel_for(ctx, tasks * c.shape.heads, [&](std::int64_t task, int thread) {
    const auto head = static_cast<std::size_t>(task % c.shape.heads);
    const std::size_t share = memory.size() / static_cast<std::size_t>(ctx.threads);
    run(c,
        tasks == 1 ? extent.segments
                   : extent.segments.subspan(static_cast<std::size_t>(task / c.shape.heads), 1),
        extent.seed, head, memory.subspan(share * static_cast<std::size_t>(thread), share));
  });
}

}  // namespace mantissa::kernels
#endif  // HWY_ONCE
