#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "mantissa/core/base/error.h"
#include "mantissa/kernels/cpu/recurrence/prefetch_row.h"
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
  T *dr, *dk, *dbeta;  // [key_dim]
  T *dv, *ds, *dy;     // [padded values]
};

/// What a token still has to do with the state before it, and with G, when the token before it begins.
template <class T>
struct Waiting {
  T *w, *alpha, *dw, *dalpha;  // [key_dim]
  T* ds;                       // [padded values]; zeros if no token follows
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

/// Rows that Sweep() takes at once: with AVX-512 their factors and the sums of their products stay in
/// registers.
inline constexpr std::size_t kSweptRows = 2;

/// Writes `kRows` sums of each of two kinds.
template <std::size_t kRows, class T>
HWY_INLINE void StorePairs(const RowSum<T> (&a)[kSweptRows], const RowSum<T> (&b)[kSweptRows], T* to_a,
                           T* to_b) {
  const RowSum<T> rows[kJoinedRows] = {a[0], a[1], b[0], b[1]};
  T sums[kJoinedRows];
  JoinRows(rows, sums);
  std::copy_n(sums, kRows, to_a);
  std::copy_n(sums + kSweptRows, kRows, to_b);
}

/// Sweep() for rows [j, j + kRows). `kValues`: the values of a row, if the compiler is to know them, else 0.
template <std::size_t kRows, std::size_t kValues, class T>
HWY_INLINE void SweepRows(const Waiting<T> next, const TokenRows<T> t, const TokenGradients<T> g,
                          const T* HWY_RESTRICT after, std::size_t j, std::size_t any_values,
                          T* HWY_RESTRICT G) {
  using Sum = RowSum<T>;
  const typename Sum::D d;
  using V = hn::Vec<typename Sum::D>;
  constexpr std::size_t kLanes = Sum::kLanes, kVectors = Sum::kVectors;
  const std::size_t values = kValues == 0 ? any_values : kValues;
  after += j * values, G += j * values;
  V r[kRows], k[kRows], beta[kRows], alpha[kRows], w[kRows];
  for (std::size_t i = 0; i < kRows; ++i) {
    r[i] = hn::Set(d, t.r[j + i]);
    k[i] = hn::Set(d, t.k[j + i]);
    beta[i] = hn::Set(d, t.beta[j + i]);
    alpha[i] = hn::Set(d, next.alpha[j + i]);
    w[i] = hn::Set(d, next.w[j + i]);
  }
  Sum dr[kSweptRows], dw[kSweptRows], dk[kSweptRows], dbeta[kSweptRows], dalpha[kSweptRows];
  HWY_UNROLL(4)
  for (std::size_t c = 0; c < values; c += kVirtualLanes) {
    for (std::size_t x = 0; x < kVectors; ++x) {
      const std::size_t at = c + x * kLanes;
      const V dy = hn::Load(d, g.dy + at), v = hn::Load(d, t.v + at), s = hn::Load(d, t.s + at),
              ds_next = hn::Load(d, next.ds + at);
      V dv = hn::Load(d, g.dv + at), ds = hn::Load(d, g.ds + at);
      for (std::size_t i = 0; i < kRows; ++i) {
        const std::size_t row = i * values + at;
        const V state = hn::Load(d, after + row), next_grad = hn::Load(d, G + row);
        dw[i].lanes[x] = hn::MulAdd(next_grad, state, dw[i].lanes[x]);
        dalpha[i].lanes[x] = hn::MulAdd(state, ds_next, dalpha[i].lanes[x]);
        dr[i].lanes[x] = hn::MulAdd(state, dy, dr[i].lanes[x]);
        const V passed = hn::MulAdd(w[i], next_grad, hn::Mul(alpha[i], ds_next));
        const V grad = hn::MulAdd(r[i], dy, passed);
        hn::Store(grad, d, G + row);
        dv = hn::MulAdd(k[i], grad, dv);
        ds = hn::MulAdd(beta[i], grad, ds);
        dk[i].lanes[x] = hn::MulAdd(grad, v, dk[i].lanes[x]);
        dbeta[i].lanes[x] = hn::MulAdd(grad, s, dbeta[i].lanes[x]);
      }
      hn::Store(dv, d, g.dv + at);
      hn::Store(ds, d, g.ds + at);
    }
  }
  StorePairs<kRows>(dalpha, dw, next.dalpha + j, next.dw + j);
  StorePairs<kRows>(dr, dk, g.dr + j, g.dk + j);
  StorePairs<kRows>(dbeta, dbeta, g.dbeta + j, g.dbeta + j);
}

/// In one sweep over the state and G: ends the token after this one, for which `after` is the state before,
/// adds the token's own part to G, and computes its gradients but dw and dalpha, which need the state before
/// it. So a sweep reads one state only, and it and G fit the cache of the first level.
template <std::size_t kValues, class T>
void Sweep(const Waiting<T> next, const TokenRows<T> t, const TokenGradients<T> g, const T* after,
           std::size_t keys, std::size_t values, T* G, LinesAhead& ahead) {
  const std::size_t lines = ahead.count() * kSweptRows / keys + 1;
  std::fill_n(g.dv, values, T{0});
  std::fill_n(g.ds, values, T{0});
  std::size_t j = 0;
  for (; j + kSweptRows <= keys; j += kSweptRows) {
    ahead.prefetch(lines);
    SweepRows<kSweptRows, kValues>(next, t, g, after, j, values, G);
  }
  for (; j < keys; ++j) SweepRows<1, kValues>(next, t, g, after, j, values, G);
}

/// EndFirst() for rows [j, j + kRows).
template <std::size_t kRows, class T>
HWY_INLINE void EndRows(const Waiting<T>& first, const T* before, std::size_t j, std::size_t values, T* G) {
  using Sum = RowSum<T>;
  const typename Sum::D d;
  constexpr std::size_t kLanes = Sum::kLanes, kVectors = Sum::kVectors;
  Sum dw[kJoinedRows], dalpha[kJoinedRows];
  for (std::size_t c = 0; c < values; c += kVirtualLanes) {
    for (std::size_t x = 0; x < kVectors; ++x) {
      const std::size_t at = c + x * kLanes;
      const auto ds = hn::Load(d, first.ds + at);
      for (std::size_t i = 0; i < kRows; ++i) {
        const std::size_t row = (j + i) * values + at;
        const auto state = hn::Load(d, before + row), grad = hn::Load(d, G + row);
        dw[i].lanes[x] = hn::MulAdd(grad, state, dw[i].lanes[x]);
        dalpha[i].lanes[x] = hn::MulAdd(state, ds, dalpha[i].lanes[x]);
        const auto corrected = hn::Mul(hn::Set(d, first.alpha[j + i]), ds);
        hn::Store(hn::MulAdd(hn::Set(d, first.w[j + i]), grad, corrected), d, G + row);
      }
    }
  }
  StoreSums<kRows>(dw, first.dw + j);
  StoreSums<kRows>(dalpha, first.dalpha + j);
}

/// Ends the first token of a segment: its dw and dalpha, and G as the gradient of `before`.
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
    gradients_ = {of.r, of.k, of.beta, of.v, of.s, scratch.take(size_.values)};
    next_ = {scratch.take(size_.keys), scratch.take(size_.keys), of.w, of.alpha, scratch.take(size_.values)};
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
    if (c_.dafter.data != nullptr) {
      // w·G + α·ds is G then, also for a zero of either sign.
      LoadState(c_.dafter, static_cast<std::size_t>(segment.slot), head_, c_.shape, G_);
      std::fill_n(next_.w, keys_, T{1});
      std::fill_n(next_.alpha, keys_, -T{0});
    }
    for (std::size_t end = end_; end > begin_;) {
      const std::size_t begin = begin_ + (end - 1 - begin_) / kStateInterval * kStateInterval;
      Recompute(begin, end);
      for (std::size_t t = end; t-- > begin;) Token(t, t - begin);
      end = begin;
    }
    EndFirst(next_, states_[0], keys_, size_.values, G_);
    StoreWaiting(begin_);
    if (c_.dbefore.data != nullptr && segment.position > 0)
      StoreState(G_, c_.dbefore, static_cast<std::size_t>(segment.slot), head_, c_.shape);
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
      if (t + kTokensAhead < end_) prefetch_head(c_, t + kTokensAhead, head_);
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

  /// The rows that the tokens before `t` read and write.
  LinesAhead Ahead(std::size_t t) const {
    LinesAhead lines;
    const auto width = static_cast<std::size_t>(c_.shape.value_dim);
    const std::size_t decays = c_.head_decay ? 1 : keys_;
    if (t >= begin_ + kTokensAhead) {
      const std::size_t ahead = t - kTokensAhead;
      for (const ConstMatrix& m : {c_.dy, ConstMatrix(c_.dv)}) lines.add(m, ahead, head_ * width, width);
      for (const Matrix& m : {c_.dr, c_.dk, c_.dalpha, c_.dbeta}) lines.add(m, ahead, head_ * keys_, keys_);
      lines.add(c_.ddecay, ahead, head_ * decays, decays);
    }
    if (t >= begin_ + kStateInterval) {  // Recompute() reads these
      const std::size_t ahead = t - kStateInterval;
      for (const ConstMatrix& m : {c_.r, c_.k, c_.alpha, c_.beta}) lines.add(m, ahead, head_ * keys_, keys_);
      lines.add(c_.v, ahead, head_ * width, width);
      lines.add(c_.decay, ahead, head_ * decays, decays);
    }
    return lines;
  }

  /// Stores the gradients of the token that waited.
  void StoreWaiting(std::size_t t) const {
    StoreHead(next_.dalpha, c_.dalpha, t, head_, keys_);
    for (std::size_t j = 0; j < keys_; ++j) next_.dw[j] *= next_.w[j];
    if (c_.head_decay) {
      T sum{0};
      for (std::size_t j = 0; j < keys_; ++j) sum += next_.dw[j];
      StoreHead(&sum, c_.ddecay, t, head_, 1);
    } else {
      StoreHead(next_.dw, c_.ddecay, t, head_, keys_);
    }
  }

  void Token(std::size_t t, std::size_t i) {
    const std::size_t keys = keys_, width = static_cast<std::size_t>(c_.shape.value_dim);
    const TokenRows<T>& rows = rows_[i];
    const TokenGradients<T>& g = gradients_;
    LinesAhead ahead = Ahead(t);
    LoadHead(c_.dy, t, head_, width, g.dy);
    // Most models have heads of 64.
    (size_.values == 64 ? Sweep<64, T> : Sweep<0, T>)(next_, rows, g, states_[i + 1], keys, size_.values, G_,
                                                      ahead);
    if (t + 1 < end_) StoreWaiting(t + 1);
    std::copy_n(rows.w, keys, next_.w);
    std::copy_n(rows.alpha, keys, next_.alpha);
    std::copy_n(g.ds, size_.values, next_.ds);
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
