// Computes P and dS of a query block and a part of a key block from the products q·k and dO·v. The sums of
// dQ, dK and dV use them.
#if defined(MANTISSA_KERNELS_CPU_ATTENTION_GRADIENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_ATTENTION_GRADIENTS_INL_H_
#undef MANTISSA_KERNELS_CPU_ATTENTION_GRADIENTS_INL_H_
#else
#define MANTISSA_KERNELS_CPU_ATTENTION_GRADIENTS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mantissa/core/numeric/math-inl.h"
#include "mantissa/kernels/cpu/attention/attention-inl.h"
#include "mantissa/kernels/cpu/attention/dropout-inl.h"
#include "mantissa/kernels/cpu/attention/products-inl.h"
#include "mantissa/kernels/cpu/attention/scores-inl.h"
#include "mantissa/kernels/cpu/read_ahead.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace attention_parts {

/// Returns the range within a query block of the queries that attend to some of `keys`.
inline Range QueriesThatSee(const Window& window, Range keys, Range queries) {
  const auto place = [&](std::size_t position) {
    return std::min(queries.end, std::max(position, queries.begin)) - queries.begin;
  };
  return {place(keys.begin), place(window.end_query(keys.end - 1))};
}

/// Smallest biased exponents of P and dS.
struct ScoreExponents {
  std::uint32_t p = 0, ds = 0;
};

template <class T>
class ScoreGradients {
 public:
  ScoreGradients(const AttentionBackward& a, const Segment& segment, const BackwardScratch<T>& scratch,
                 const TaskProducts<T>& products)
      : a_(a),
        s_(scratch),
        products_(products),
        width_(products.Width()),
        dim_(static_cast<std::size_t>(a.shape.head_dim)),
        window_(a.shape),
        dropout_(a.dropout, a.shape, segment, keys_of(segment, a.span)) {}

  /// Computes P and dS, rounded as operands, for the loaded queries of `head` and a part of the loaded keys,
  /// from row `row` on. `scores` and `gradients` are the sums of q·k and of dO·v. Words of P and dS are by
  /// rows, and those of dS also by columns, in `ds_across`.
  ScoreExponents Compute(std::size_t head, Range queries, Range keys, std::size_t row,
                         const Summation& scores, const Summation& gradients, ReadAhead& ahead) const {
    for (std::size_t i = 0; i < queries.count(); i += width_)
      ComputeTile(head, queries, i, keys, row, scores, gradients, ahead);
    for (std::size_t j = 0; j < keys.count(); ++j) {
      // With several parts the masked zeros are split too, because the products also read those of their
      // planes.
      const std::size_t key = keys.begin + j;
      const Range see =
          a_.operand.parts > 1 ? Range{0, queries.count()} : QueriesThatSee(window_, {key, key + 1}, queries);
      for (T* each : {s_.p, s_.ds})
        SplitRow(each + j * kBlock + see.begin, see.count(), s_.scores_plane, a_.operand);
    }
    if (!products_.InWords()) return {};
    const std::size_t count = queries.count(), whole = (count + width_ - 1) / width_ * width_;
    for (std::size_t j = 0; count < whole && j < keys.count(); ++j) {  // their words are multiplied too
      for (T* each : {s_.p, s_.ds}) std::fill(each + j * kBlock + count, each + j * kBlock + whole, T{0});
    }
    if constexpr (std::is_same_v<T, float>) {
      if (products_.Tiled()) {
        TileColumns(s_.ds, {0, keys.count()}, kBlock, whole, WordsAt(s_.ds_across));
        return {TileRows(s_.p, keys.count(), kBlock, kBlock, WordsAt(s_.p)),
                TileRows(s_.ds, keys.count(), kBlock, kBlock, WordsAt(s_.ds))};
      }
    }
    PairByColumns(s_.ds, 0, keys.count(), kBlock, whole, s_.ds_across);
    return {PairByRows(s_.p, keys.count(), kBlock, whole), PairByRows(s_.ds, keys.count(), kBlock, whole)};
  }

 private:
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  static constexpr std::size_t kBlock = kQueryBlock;  // the stride of transposed tiles and of P and dS

  /// Computes the products q·k and dO·v of the queries [at, at + width_) of the block and the seen keys.
  void Multiply(std::size_t at, const Visible& seen, std::size_t row, const Summation& scores,
                const Summation& gradients, ReadAhead& ahead) const {
    const auto product = [&](const T* rows, const T* queries, const Summation& sums) {
      return HeadProduct<T>{
          {rows, s_.keys_plane}, {queries + at, s_.queries_plane}, kBlock, width_, dim_, sums};
    };
    const HeadProduct<T> of_scores = product(s_.keys, s_.queries_across, scores);
    const HeadProduct<T> of_gradients = product(s_.values, s_.douts_across, gradients);
    const std::size_t most = products_.Height();
    for (std::size_t j = products_.FirstRow(seen.begin); j < seen.end; j += most) {
      ahead.Step();
      const std::size_t some = std::min(most, seen.end - j), to = j * kBlock + at;
      products_.MultiplyHead(of_scores, row + j, some, s_.p + to);
      products_.MultiplyHead(of_gradients, row + j, some, s_.ds + to);
    }
  }

  /// Computes unrounded P and dS of the queries [at, at + width_) of the block. Not inlined, so that the
  /// compiler inlines the loops over keys into Gradients().
  HWY_NOINLINE void ComputeTile(std::size_t head, Range queries, std::size_t at, Range keys, std::size_t row,
                                const Summation& scores, const Summation& gradients, ReadAhead& ahead) const {
    const std::size_t first = queries.begin + at, last = std::min(queries.end, first + width_) - 1;
    const Visible seen = visible(window_, first, last, keys.begin, keys.count());
    T *p = s_.p + at, *ds = s_.ds + at;
    Multiply(at, seen, row, scores, gradients, ahead);
    ClearAround(first, last, keys, p, ds);
    KeptPairs kept;
    if (dropout_.Drops()) {
      FindKept(kept, head, first, last, keys.begin, {seen.begin, seen.end});
      dropout_.Apply(kept, {seen.begin, seen.end}, width_, ds, kBlock);
    }
    for (std::size_t i = 0; i < width_; i += hn::Lanes(D())) {
      if (a_.shape.soft_cap > 0) {
        Lowers<T>(a_.softmax)
            ? Gradients<true, true>(at + i, p + i, ds + i, seen, queries.begin, keys.begin)
            : Gradients<false, true>(at + i, p + i, ds + i, seen, queries.begin, keys.begin);
      } else {
        Lowers<T>(a_.softmax)
            ? Gradients<true, false>(at + i, p + i, ds + i, seen, queries.begin, keys.begin)
            : Gradients<false, false>(at + i, p + i, ds + i, seen, queries.begin, keys.begin);
      }
    }
    if (dropout_.Drops()) DropProbabilities(kept, {seen.begin, seen.end}, p);
  }

  /// Finds the pairs of the queries at positions [first, last] that are kept.
  HWY_NOINLINE void FindKept(KeptPairs& kept, std::size_t head, std::size_t first, std::size_t last,
                             std::size_t key, Range rows) const {
    dropout_.Start(kept, rows);
    for (std::size_t query = first; query <= last; ++query)
      dropout_.AddQuery(kept, query - first, query, head, key, rows);
  }

  HWY_NOINLINE void DropProbabilities(const KeptPairs& kept, Range rows, T* p) const {
    dropout_.Apply(kept, rows, width_, p, kBlock);
    if (!Lowers<T>(a_.softmax)) return;
    for (std::size_t j = rows.begin; j < rows.end; ++j) RoundRow<T>(p + j * kBlock, width_, a_.softmax);
  }

  /// Writes zeros around the visible keys of the queries at positions [first, last]: a product tile of kMr
  /// rows that starts or ends within them may extend that far beyond. All rows become words if any do.
  void ClearAround(std::size_t first, std::size_t last, Range keys, T* p, T* ds) const {
    const auto clear = [&](std::size_t begin, std::size_t end) {
      for (std::size_t key = std::max(begin, keys.begin); key < std::min(end, keys.end); ++key) {
        const std::size_t j = (key - keys.begin) * kBlock;
        std::fill(p + j, p + j + width_, T{0});
        std::fill(ds + j, ds + j + width_, T{0});
      }
    };
    const bool all = products_.InWords();
    const std::size_t lowest = window_.first_key(first);
    clear(all ? 0 : lowest - std::min(lowest, kMr), lowest);
    clear(last + 1, all ? keys.end : last + 1 + kMr);
  }

  /// Turns scores into P and dO·V into dS for one vector of queries.
  template <bool kLowered, bool kCapped>
  void Gradients(std::size_t at, T* p, T* ds, const Visible& seen, std::size_t query, std::size_t key) const {
    const D d;
    const V scale = hn::Set(d, static_cast<T>(a_.shape.scale));
    const SoftCap<T> soft(a_.shape.soft_cap);
    const SoftmaxRounding<kLowered, T> rounded(a_.softmax);
    const V log_sum = hn::LoadU(d, s_.log_sum + at), delta = hn::LoadU(d, s_.delta + at);
    // Lane i holds query `query + at + i`, which attends to row j of the keys if key + j ≤ query + at + i,
    // and under a window if key + j > query + at + i − window.
    const double self = static_cast<double>(query + at) - static_cast<double>(key);
    const V last = hn::Iota(d, static_cast<T>(self));
    const V hidden = hn::Iota(d, static_cast<T>(self - static_cast<double>(a_.shape.window)));
    ForEachRun(seen, [&]<Mask kMask>(std::size_t begin, std::size_t end) HWY_ATTR {
      T *to_p = p + begin * kBlock, *to_ds = ds + begin * kBlock;
      for (std::size_t j = begin; j < end; ++j, to_p += kBlock, to_ds += kBlock) {
        V score = hn::Mul(hn::LoadU(d, to_p), scale), tanh = hn::Zero(d);
        if constexpr (kCapped) {
          tanh = soft.Tanh(score);
          score = soft.Score(tanh);
        }
        V probability = rounded(Exp(d, hn::Sub(rounded(score), log_sum)));
        V gradient = hn::Mul(probability, hn::Sub(hn::LoadU(d, to_ds), delta));
        if constexpr (kCapped) gradient = hn::Mul(gradient, hn::NegMulAdd(tanh, tanh, hn::Set(d, T{1})));
        gradient = rounded(hn::Mul(gradient, scale));
        if constexpr (kMask != Mask::none) {
          const V row = hn::Set(d, static_cast<T>(j));
          auto sees = hn::Le(row, last);
          if constexpr (kMask == Mask::window) sees = hn::And(sees, hn::Gt(row, hidden));
          probability = hn::IfThenElseZero(sees, probability);
          gradient = hn::IfThenElseZero(sees, gradient);
        }
        hn::StoreU(probability, d, to_p);
        hn::StoreU(gradient, d, to_ds);
      }
    });
  }

  const AttentionBackward& a_;
  const BackwardScratch<T>& s_;
  const TaskProducts<T> products_;
  const std::size_t width_, dim_;
  const Window window_;
  const PairDropout<T> dropout_;
};

}  // namespace attention_parts
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif
