// A task of backward attention: dK and dV of some keys, and dQ of some queries, of a segment for one key
// head. It processes each key block, every head of the group and each query block. Positions count from the
// first key.
#if defined(MANTISSA_KERNELS_CPU_ATTENTION_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_ATTENTION_BACKWARD_INL_H_
#undef MANTISSA_KERNELS_CPU_ATTENTION_BACKWARD_INL_H_
#else
#define MANTISSA_KERNELS_CPU_ATTENTION_BACKWARD_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "mantissa/kernels/attention.h"
#include "mantissa/kernels/cpu/attention/attention-inl.h"
#include "mantissa/kernels/cpu/attention/backward_operands-inl.h"
#include "mantissa/kernels/cpu/attention/gradients-inl.h"
#include "mantissa/kernels/cpu/attention/layout.h"
#include "mantissa/kernels/cpu/attention/products-inl.h"
#include "mantissa/kernels/cpu/read_ahead.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace attention_parts {

template <class T>
class BackwardTask {
 public:
  /// Writes dK and dV of the range `dkeys` and dQ of the range `dqueries`, either of which may be empty. Both
  /// start at a block.
  BackwardTask(Simd simd, const AttentionBackward& a, const Segment& segment, std::size_t kv_head,
               Range dkeys, Range dqueries, const BackwardScratch<T>& scratch)
      : a_(a),
        s_(scratch),
        dim_(static_cast<std::size_t>(a.shape.head_dim)),
        stride_(padded(dim_)),
        group_(static_cast<std::size_t>(a.shape.heads / a.shape.kv_heads)),
        kv_head_(kv_head),
        window_(a.shape),
        products_(simd, a.accumulator, a.operand, kQueryBlock),
        score_gradients_(a, segment, scratch, products_),
        of_segment_(keys_of(segment, a.span)),
        all_queries_{of_segment_.position, of_segment_.position + static_cast<std::size_t>(segment.length)},
        first_token_(static_cast<std::size_t>(segment.begin)),
        loaded_(a, scratch, products_, {of_segment_.row, first_token_, all_queries_.begin}, kv_head),
        dkeys_(dkeys),
        dqueries_(dqueries) {}

  /// Registers the first operands of this task for prefetching.
  void Announce(ReadAhead& ahead) const {
    const std::size_t column = kv_head_ * dim_, most = kKeyBlock;
    const std::size_t key = std::min(FirstKeyBlock(), of_segment_.end);
    const std::size_t query = dkeys_.count() > 0 ? FirstQueryBlock(dkeys_.begin) : dqueries_.begin;
    for (const ConstMatrix* m : {&a_.k, &a_.v})
      ahead.Add(*m, of_segment_.row + key, std::min(most, of_segment_.end - key), column, dim_);
    for (const ConstMatrix* m : {&a_.q, &a_.dout, &a_.out})
      ahead.Add(*m, Token(query), std::min(most, all_queries_.end - query), column * group_, dim_ * group_);
  }

  void Run(ReadAhead& ahead) {
    const std::optional<tiles::Scope> scope = products_.Scope();
    ahead_ = &ahead;
    ahead.Spread(group_ * Pairs() / (products_.Width() * products_.Height()));
    StartDQueries();
    const std::size_t end = std::min(of_segment_.end, std::max(dkeys_.end, dqueries_.end));
    for (std::size_t key = FirstKeyBlock(); key < end; key += kKeyBlock) {
      AddKeyBlock({key, std::min<std::size_t>(end, key + kKeyBlock)});
    }
    for (std::size_t g = 0; g < group_; ++g) {
      for (std::size_t t = dqueries_.begin; t < dqueries_.end; ++t) {
        Write(DQuery(g, t), a_.dq, Token(t), (kv_head_ * group_ + g) * dim_);
      }
    }
  }

 private:
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  static constexpr std::size_t kBlock = kQueryBlock;  // also the stride of transposed tiles and of P and dS

  /// True if operands lie in tiles. The chains of dQ are transposed then: [padded(head_dim), kBlock].
  bool Tiled() const { return products_.Tiled(); }
  /// The first key block that the task reads. dK and dV need the queries that attend to their keys, dQ the
  /// keys that its queries attend to.
  std::size_t FirstKeyBlock() const {
    return dkeys_.count() > 0 ? dkeys_.begin : window_.first_key(dqueries_.begin) / kKeyBlock * kKeyBlock;
  }
  /// The position of the first query block with a query that attends to `key`.
  std::size_t FirstQueryBlock(std::size_t key) const {
    const std::size_t before = key - std::min(key, all_queries_.begin);
    return std::min(all_queries_.end, all_queries_.begin + before / kBlock * kBlock);
  }
  /// The approximate number of visible query-key pairs; each pair is computed once.
  std::size_t Pairs() const {
    const Range &k = dkeys_, &q = dqueries_;
    const auto see = [&](std::size_t key) { return all_queries_.end - std::max(key, all_queries_.begin); };
    const auto seen = [&](std::size_t query) { return std::min(of_segment_.end, query); };
    const std::size_t causal = k.count() > 0 ? k.count() * (see(k.begin) + see(k.end)) / 2
                                             : q.count() * (seen(q.begin) + seen(q.end)) / 2;
    return std::min(causal, std::max(k.count(), q.count()) * window_.most_keys(all_queries_.end));
  }
  /// The token of the query at a position.
  std::size_t Token(std::size_t query) const { return first_token_ + query - all_queries_.begin; }
  T* DQuery(std::size_t g, std::size_t t) const {
    return s_.dqueries + (g * dqueries_.count() + t - dqueries_.begin) * stride_;
  }
  void Write(const T* from, const Matrix& to, std::size_t row, std::size_t column) const {
    StoreRow<T>(from, dim_, to.data, to.type, row * static_cast<std::size_t>(to.ld) + column);
  }

  /// Begins the sums of dQ, with those over earlier keys.
  void StartDQueries() {
    std::fill(s_.dqueries, s_.dqueries + group_ * dqueries_.count() * stride_, T{0});
    if (!a_.add_dq) return;
    for (std::size_t g = 0; g < group_; ++g) {
      for (std::size_t t = dqueries_.begin; t < dqueries_.end; ++t) {
        const std::size_t at = Token(t) * static_cast<std::size_t>(a_.dq.ld);
        LoadRow<T>(a_.dq.data, a_.dq.type, at + (kv_head_ * group_ + g) * dim_, dim_, DQuery(g, t));
      }
    }
  }

  void AddKeyBlock(Range keys) {
    const std::size_t column = kv_head_ * dim_;
    const bool want_dkeys = keys.begin < dkeys_.end;
    const std::size_t lowest =
        want_dkeys ? keys.begin : std::max(keys.begin, window_.first_key(dqueries_.begin));
    if (lowest >= keys.end) return;  // of a span that ends before the window
    loaded_.LoadKeys(keys, lowest);
    std::fill(s_.dkeys, s_.dkeys + keys.count() * stride_, T{0});
    std::fill(s_.dvalues, s_.dvalues + keys.count() * stride_, T{0});

    const std::size_t last = want_dkeys ? all_queries_.end : dqueries_.end;
    const std::size_t from = want_dkeys ? all_queries_.begin : dqueries_.begin;
    const std::size_t first = std::max(from, FirstQueryBlock(keys.begin));
    const std::size_t end = std::min(last, window_.end_query(keys.end - 1));
    for (std::size_t g = 0; g < group_; ++g) {
      for (std::size_t query = first; query < end; query += kBlock) {
        AddQueryBlock(g, {query, std::min(last, query + kBlock)}, keys, want_dkeys);
      }
    }
    if (!want_dkeys) return;
    for (std::size_t j = keys.begin; j < keys.end; ++j) {
      Write(s_.dkeys + (j - keys.begin) * stride_, a_.dk, of_segment_.row + j, column);
      Write(s_.dvalues + (j - keys.begin) * stride_, a_.dv, of_segment_.row + j, column);
    }
  }

  /// Adds the contribution of the query block through a key block with visible keys.
  void AddQueryBlock(std::size_t g, Range queries, Range keys, bool want_dkeys) {
    const bool want_dqueries = queries.begin >= dqueries_.begin && queries.begin < dqueries_.end;
    loaded_.LoadQueries(g, queries);
    const OperandExponents& of_loaded = loaded_.Exponents();
    const std::size_t planes = Summation{a_.accumulator.order, a_.operand.parts}.Continued();
    for (std::size_t i = 0; i < planes; ++i)
      std::fill_n(s_.chain + i * s_.queries_plane, (Tiled() ? kBlock : queries.count()) * stride_, T{0});
    const std::size_t first = std::max(keys.begin, window_.first_key(queries.begin) / kKeyPart * kKeyPart);
    const std::size_t end = std::min(keys.end, queries.end);
    std::uint32_t of_chain = UINT32_MAX;  // dS of all parts: later ones continue the sums of earlier ones
    for (std::size_t key = first; key < end; key += kKeyPart) {
      const Range part{key, std::min(end, key + kKeyPart)};
      const std::size_t row = key - keys.begin, at = row * stride_;
      const ScoreExponents of = score_gradients_.Compute(
          kv_head_ * group_ + g, queries, part, row, products_.Sums(true, of_loaded.keys, of_loaded.queries),
          products_.Sums(true, of_loaded.values, of_loaded.douts), *ahead_);
      of_chain = std::min(of_chain, of.ds);
      if constexpr (std::is_same_v<T, float>) {
        if (Tiled()) {
          if (want_dkeys) AddDKeysByTiles(queries, part, row, of);
          if (want_dqueries) AddDQueriesByTiles(queries, part, row, of_chain);
          continue;
        }
      }
      if (want_dkeys) AddDKeys(queries, part, at, of);
      if (want_dqueries) AddDQueries(queries, part, at, of);
    }
    if (!want_dqueries) return;
    if (Tiled()) {
      return AddTransposed(s_.chain, kBlock, queries.count(), stride_,
                           [&](std::size_t i) { return DQuery(g, queries.begin + i); });
    }
    const D d;
    for (std::size_t t = queries.begin; t < queries.end; ++t) {
      T* sum = DQuery(g, t);
      const T* chain = s_.chain + (t - queries.begin) * stride_;
      for (std::size_t i = 0; i < dim_; i += hn::Lanes(d)) {
        V total = hn::LoadU(d, chain + i);
        for (std::size_t p = 1; p < planes; ++p)
          total = hn::Add(total, hn::LoadU(d, chain + p * s_.queries_plane + i));
        hn::StoreU(hn::Add(hn::LoadU(d, sum + i), total), d, sum + i);
      }
    }
  }

  // A masked entry of P and dS is zero, and so is its product with a finite number. If a number is not
  // finite, and in the order of a card, the functions below multiply just the visible entries of each row.

  void AddDKeys(Range queries, Range keys, std::size_t rows, const ScoreExponents& of) {
    const bool finite = loaded_.QueriesAreFinite();
    const std::size_t step = finite && !products_.LeavesMaskedOut() ? kMr : 1;
    for (std::size_t j = 0; j < keys.count(); j += step) {
      const std::size_t some = std::min(step, keys.count() - j), row = rows + j * stride_;
      const std::size_t key = keys.begin + j;
      const Range see = QueriesThatSee(window_, {key, key + some}, queries);
      if (see.begin >= see.end) continue;
      const std::size_t from = see.begin, depth = see.count(), at = j * kBlock;
      OrderedProduct<Left::rows, T>(products_.Sums(finite, of.p, loaded_.Exponents().douts), some,
                                    {s_.p + at, s_.scores_plane}, kBlock, {s_.douts, s_.queries_plane},
                                    stride_, dim_, from, depth, s_.dvalues + row, stride_, Into::add);
      OrderedProduct<Left::rows, T>(products_.Sums(finite, of.ds, loaded_.Exponents().queries), some,
                                    {s_.ds + at, s_.scores_plane}, kBlock, {s_.queries, s_.queries_plane},
                                    stride_, dim_, from, depth, s_.dkeys + row, stride_, Into::add);
    }
  }

  void AddDQueries(Range queries, Range keys, std::size_t rows, const ScoreExponents& of) {
    const bool finite = loaded_.KeysAreFinite(), pairs = products_.Paired();
    const std::size_t step = finite && !products_.LeavesMaskedOut() ? kMr : 1;
    const T *scores = pairs ? s_.ds_across : s_.ds,
            *part_keys = pairs ? s_.keys_across + rows / 2 : s_.keys + rows;
    for (std::size_t i = 0; i < queries.count(); i += step) {
      const std::size_t some = std::min(step, queries.count() - i), first = queries.begin + i;
      const Visible seen = visible(window_, first, first + some - 1, keys.begin, keys.count());
      if (seen.begin >= seen.end) continue;
      OrderedProduct<Left::columns, T>(products_.Sums(finite, of.ds, loaded_.Exponents().keys), some,
                                       {scores + i, s_.scores_plane}, kBlock, {part_keys, s_.keys_plane},
                                       stride_, dim_, seen.begin, seen.end - seen.begin,
                                       s_.chain + i * stride_, stride_, Into::extend, s_.queries_plane);
    }
  }

  void AddDKeysByTiles(Range queries, Range keys, std::size_t row, const ScoreExponents& of) {
    for (std::size_t j = 0; j < keys.count(); j += kSides) {
      const std::size_t some = std::min(kSides, keys.count() - j), key = keys.begin + j;
      const Range see = QueriesThatSee(window_, {key, key + some}, queries);
      if (see.begin >= see.end) continue;
      const auto add = [&](const T* scores, std::uint32_t of_scores, const T* rows, std::uint32_t of_rows,
                           T* sums) {
        const TiledProduct product = {RowsPanel(WordsAt(scores), kBlock).From(j),
                                      ColumnsPanel(WordsAt(rows), stride_),
                                      see,
                                      some,
                                      stride_,
                                      sums + (row + j) * stride_,
                                      stride_,
                                      Into::add};
        const bool fast = bf16::NeverSubnormal(of_scores, of_rows);
        products_.Tiles().MultiplyMasked(product, loaded_.QueriesAreFinite(), fast,
                                         [&](std::size_t i, std::size_t) {
                                           return QueriesThatSee(window_, {key + i, key + i + 1}, queries);
                                         });
      };
      add(s_.p, of.p, s_.douts, loaded_.Exponents().douts, s_.dvalues);
      add(s_.ds, of.ds, s_.queries, loaded_.Exponents().queries, s_.dkeys);
    }
  }

  void AddDQueriesByTiles(Range queries, Range keys, std::size_t row, std::uint32_t of_chain) {
    for (std::size_t i = 0; i < queries.count(); i += kSides) {
      const std::size_t last = std::min(queries.count(), i + kSides) - 1;
      const auto sees = [&](std::size_t from, std::size_t to) {
        const Visible keys_seen =
            visible(window_, queries.begin + from, queries.begin + to, keys.begin, keys.count());
        return Range{keys_seen.begin, keys_seen.end};
      };
      const Range seen = sees(i, last);
      if (seen.begin >= seen.end) continue;
      const TiledProduct product = {AcrossPanel(WordsAt(s_.keys_across), stride_).From(0, row / kTileBlock),
                                    ColumnsPanel(WordsAt(s_.ds_across), kBlock).From(i),
                                    seen,
                                    stride_,
                                    kSides,
                                    s_.chain + i,
                                    kBlock,
                                    Into::extend};
      const bool fast = bf16::NeverSubnormal(of_chain, loaded_.Exponents().keys);
      products_.Tiles().MultiplyMasked(product, loaded_.KeysAreFinite(), fast,
                                       [&](std::size_t, std::size_t query) {
                                         return sees(std::min(i + query, last), std::min(i + query, last));
                                       });
    }
  }

  const AttentionBackward& a_;
  const BackwardScratch<T>& s_;
  const std::size_t dim_, stride_, group_, kv_head_;
  const Window window_;
  const TaskProducts<T> products_;
  const ScoreGradients<T> score_gradients_;
  const Keys of_segment_;
  const Range all_queries_;  // of the segment
  const std::size_t first_token_;
  BackwardOperands<T> loaded_;
  const Range dkeys_, dqueries_;
  ReadAhead* ahead_ = nullptr;
};

}  // namespace attention_parts
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_ATTENTION_BACKWARD_INL_H_
