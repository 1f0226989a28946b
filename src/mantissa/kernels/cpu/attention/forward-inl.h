// A task of forward attention: some queries of a segment for one key head. It processes one key block after
// the other, a tile of queries at a time.
#if defined(MANTISSA_KERNELS_CPU_ATTENTION_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_ATTENTION_FORWARD_INL_H_
#undef MANTISSA_KERNELS_CPU_ATTENTION_FORWARD_INL_H_
#else
#define MANTISSA_KERNELS_CPU_ATTENTION_FORWARD_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>

#include "mantissa/core/numeric/math-inl.h"
#include "mantissa/kernels/attention.h"
#include "mantissa/kernels/cpu/attention/attention-inl.h"
#include "mantissa/kernels/cpu/attention/bfloat-inl.h"
#include "mantissa/kernels/cpu/attention/layout.h"
#include "mantissa/kernels/cpu/attention/products-inl.h"
#include "mantissa/kernels/cpu/attention/scores-inl.h"
#include "mantissa/kernels/cpu/read_ahead.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace attention_parts {

using mantissa::HWY_NAMESPACE::Log;

/// Row r of the task is query r / group, head r % group of the group.
template <class T>
class ForwardTask {
 public:
  ForwardTask(Simd simd, const Attention& a, const Task& task, std::size_t most_queries,
              const ForwardScratch<T>& scratch)
      : a_(a),
        s_(scratch),
        dim_(static_cast<std::size_t>(a.shape.head_dim)),
        stride_(padded(dim_)),
        group_(static_cast<std::size_t>(a.shape.heads / a.shape.kv_heads)),
        kv_head_(task.kv_head),
        window_(a.shape),
        keys_(keys_of(*task.segment, a.cache)),
        first_query_(task.piece * most_queries),
        first_token_(static_cast<std::size_t>(task.segment->begin) + first_query_),
        rows_(std::min(most_queries, static_cast<std::size_t>(task.segment->length) - first_query_) * group_),
        operands_(OperandsOf<T>(simd, a.order, a.operand, rows_)),
        tiles_(simd == Simd::amx_model) {}

  /// Adds the first operands and results of this task.
  void Announce(ReadAhead& ahead) const {
    const std::size_t queries = rows_ / group_, width = group_ * dim_;
    const std::size_t key = FirstKey(), keys = std::min(key / kBlock * kBlock + kBlock, EndKey()) - key;
    ahead.Add(a_.q, first_token_, queries, kv_head_ * width, width);
    ahead.Add(a_.k, keys_.row + key, keys, kv_head_ * dim_, dim_);
    ahead.Add(a_.v, keys_.row + key, keys, kv_head_ * dim_, dim_);
    ahead.Add(a_.out, first_token_, queries, kv_head_ * width, width);
  }

  void Run(ReadAhead& ahead) {
    const std::optional<tiles::Scope> scope = ScopeOf(operands_, tiles_);
    ahead_ = &ahead;
    const std::size_t sees_first = Position(0) + 1 - FirstKey();
    const std::size_t sees_last = EndKey() - window_.first_key(Position(rows_ - 1));
    ahead.Spread(rows_ * (sees_first + sees_last) / (2 * most_ * (Tiled() ? kSides : kMr)));
    for (std::size_t row = 0; row < rows_; row += most_) LoadQueries(row);
    for (std::size_t key = FirstKey() / kBlock * kBlock; key < EndKey(); key += kBlock) {
      const bool finite = LoadKeyBlock(key);
      for (std::size_t row = 0; row < rows_; row += most_) {
        const Visible keys = See(row, LastRow(row), key);
        if (keys.begin < keys.end) AddKeyBlock(row, key, keys, finite);
      }
    }
    for (std::size_t row = 0; row < rows_; row += most_) Finish(row);
  }

 private:
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  static constexpr std::size_t kBlock = kKeyBlock;

  /// True if operands lie in tiles. O is transposed then: [padded(head_dim), width] of each tile of queries.
  bool Tiled() const { return std::is_same_v<T, float> && operands_ == Operands::tiles; }
  /// True if bf16 operands are loaded into tiles as they are.
  bool Direct() const {
    return Tiled() && HeadWords::Takes(a_.operand, a_.q.type, stride_) &&
           HeadWords::Takes(a_.operand, a_.k.type, stride_) &&
           HeadWords::Takes(a_.operand, a_.v.type, stride_);
  }

  Summation Sums(Layout layout) const { return {a_.order, a_.operand.parts, layout}; }
  std::size_t Position(std::size_t row) const { return keys_.position + first_query_ + row / group_; }
  /// The keys that the task's queries attend to: positions [FirstKey, EndKey).
  std::size_t FirstKey() const { return window_.first_key(Position(0)); }
  std::size_t EndKey() const { return Position(rows_ - 1) + 1; }
  /// The keys of the block starting at `key` that rows [first, last] attend to.
  Visible See(std::size_t first, std::size_t last, std::size_t key) const {
    return visible(window_, Position(first), Position(last), key, kBlock);
  }
  std::size_t LastRow(std::size_t row) const { return std::min(rows_, row + most_) - 1; }
  /// Queries in the tile: half of the most if that holds its rows, as in decoding.
  std::size_t Width(std::size_t row) const { return rows_ - row > most_ / 2 ? most_ : most_ / 2; }
  std::size_t Token(std::size_t row) const { return first_token_ + row / group_; }
  std::size_t Head(std::size_t row) const { return kv_head_ * group_ + row % group_; }

  void LoadQueries(std::size_t row) {
    const std::size_t width = Width(row), count = LastRow(row) + 1 - row;
    if constexpr (std::is_same_v<T, float>) {
      if (direct_) {
        LoadQueriesAsWords(row, count, width);
        return StartSums(row, width);
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      LoadHead<T>(a_.q, Token(row + i), 1, Head(row + i) * dim_, dim_, s_.rows + i * stride_);
    }
    std::fill(s_.rows + count * stride_, s_.rows + width * stride_, T{0});
    T* queries = s_.queries + row * stride_;
    Transpose(s_.rows, stride_, stride_, width, queries, width);
    if (Rounds(a_.operand, a_.q.type)) SplitRow(queries, width * stride_, s_.queries_plane, a_.operand);
    if (operands_ == Operands::pairs)
      of_queries_ = std::min(of_queries_, PairByColumns(queries, 0, stride_, width, width));
    if constexpr (std::is_same_v<T, float>) {
      if (Tiled())
        of_queries_ =
            std::min(of_queries_, TileColumns(queries, {0, stride_}, width, width, WordsAt(queries)));
    }
    StartSums(row, width);
  }

  void LoadQueriesAsWords(std::size_t row, std::size_t count, std::size_t width) {
    const HeadWords rows(WordsAt(s_.rows), stride_);
    const std::size_t step = group_ == 1 ? count : 1;  // heads of a group are not consecutive rows
    for (std::size_t i = 0; i < count; i += step) {
      const auto found = rows.Load(a_.q, Token(row + i), step, Head(row + i) * dim_, dim_, i);
      of_queries_ = std::min(of_queries_, found.exponent);
    }
    rows.Pad({0, count});
    rows.Transposed(width, WordsAt(s_.queries + row * stride_), width);
  }

  void StartSums(std::size_t row, std::size_t width) {
    std::fill(s_.sums + row * stride_, s_.sums + (row + width) * stride_, T{0});
    std::fill(s_.maximum + row, s_.maximum + row + width, -std::numeric_limits<T>::infinity());
    std::fill(s_.denominator + row * kLanes, s_.denominator + (row + width) * kLanes, T{0});
  }

  /// Loads the task's keys of the block that starts at `key`, and their values. Returns true if the values
  /// are finite, or if no query masks a key that another one attends to.
  bool LoadKeyBlock(std::size_t key) {
    const std::size_t from = std::max(key, FirstKey()), count = std::min(key + kBlock, EndKey()) - from;
    const std::size_t at = (from - key) * stride_, column = kv_head_ * dim_;
    const bool masks = Position(0) < Position(rows_ - 1);
    if constexpr (std::is_same_v<T, float>) {
      if (direct_)
        return LoadKeysAsWords({from - key, from - key + count}, keys_.row + from, column) || !masks;
    }
    LoadHead<T>(a_.k, keys_.row + from, count, column, dim_, s_.keys + at);
    bool finite = LoadHead<T>(a_.v, keys_.row + from, count, column, dim_, s_.values + at, masks);
    if (Rounds(a_.operand, a_.k.type)) SplitRow(s_.keys + at, count * stride_, s_.keys_plane, a_.operand);
    if (Rounds(a_.operand, a_.v.type)) {
      SplitRow(s_.values + at, count * stride_, s_.keys_plane, a_.operand);
      finite = finite && (!masks || AllFinite(s_.values + at, count * stride_));
    }
    if constexpr (std::is_same_v<T, float>) {
      if (Tiled()) {
        Word* words = WordsAt(s_.keys) + (from - key) * row_words(stride_);
        of_keys_ = TileRows(s_.keys + at, count, stride_, stride_, words);
        of_values_ =
            TileAcross(s_.values, {from - key, from - key + count}, stride_, s_.rows, WordsAt(s_.values));
      }
    }
    if (operands_ == Operands::pairs) {
      of_keys_ = PairByRows(s_.keys + at, count, stride_, stride_);
      of_values_ = PairByColumns(s_.values, from - key, from - key + count, stride_, stride_);
    }
    return finite;
  }

  /// Loads rows `rows` of a key block from `first` on. Returns true if the values are finite.
  bool LoadKeysAsWords(Range rows, std::size_t first, std::size_t column) {
    const HeadWords keys(WordsAt(s_.keys), stride_);
    of_keys_ = keys.Load(a_.k, first, rows.count(), column, dim_, rows.begin).exponent;
    const HeadWords values(WordsAt(s_.values + kBlock * stride_ / 2), stride_);  // in the upper half
    const auto found = values.Load(a_.v, first, rows.count(), column, dim_, rows.begin);
    values.Pad(rows);
    values.Across(rows, WordsAt(s_.values));
    of_values_ = found.exponent;
    return found.finite;
  }

  /// Computes the products q·k of the tile at `row` and `keys`.
  void MultiplyKeys(std::size_t row, const Visible& keys) {
    const std::size_t width = Width(row);
    const Layout layout = operands_ == Operands::pairs ? WordsOf(of_keys_, of_queries_) : Layout::values;
    for (std::size_t j = keys.begin; j < keys.end; j += kMr) {
      ahead_->Step();
      OrderedProduct<Left::rows, T>(Sums(layout), std::min(kMr, keys.end - j),
                                    {s_.keys + j * stride_, s_.keys_plane}, stride_,
                                    {s_.queries + row * stride_, s_.queries_plane}, width, width, 0, dim_,
                                    s_.scores + j * width, width, Into::set);
    }
  }

  /// The same by tiles, from a multiple of 16 keys on.
  void MultiplyKeysByTiles(std::size_t row, const Visible& keys) {
    const std::size_t width = Width(row);
    const bool fast = bf16::NeverSubnormal(of_keys_, of_queries_);
    for (std::size_t j = keys.begin / kEdge * kEdge; j < keys.end; j += kSides) {
      ahead_->Step();
      tiles_.Multiply({RowsPanel(WordsAt(s_.keys), stride_).From(j),
                       ColumnsPanel(WordsAt(s_.queries + row * stride_), width),
                       {0, dim_},
                       std::min(kSides, keys.end - j),
                       width,
                       s_.scores + j * width,
                       width,
                       Into::set},
                      fast);
    }
  }

  /// Adds P·V of the tile at `row`, transposed, for `keys` of the block that starts at `key`.
  void AddValuesByTiles(std::size_t row, std::size_t key, const Visible& keys, bool values_finite) {
    const D d;
    const std::size_t width = Width(row), last = LastRow(row);
    Word* words = WordsAt(s_.scores);
    const std::uint32_t of_scores = TileColumns(s_.scores, {keys.begin, keys.end}, width, width, words);
    const TiledProduct product = {AcrossPanel(WordsAt(s_.values), stride_),
                                  ColumnsPanel(words, width),
                                  {keys.begin, keys.end},
                                  stride_,
                                  width,
                                  s_.chain,
                                  width,
                                  Into::set};
    if (values_finite) {
      tiles_.Multiply(product, bf16::NeverSubnormal(of_scores, of_values_));
    } else {
      tiles_.MultiplyVisible(product, [&](std::size_t, std::size_t query) {
        const Visible own = See(std::min(row + query, last), std::min(row + query, last), key);
        return Range{own.begin, own.end};
      });
    }
    T *sum = s_.sums + row * stride_, *chain = s_.chain;
    for (std::size_t i = 0; i < dim_; ++i, sum += width, chain += width) {
      for (std::size_t j = 0; j < width; j += hn::Lanes(d)) {
        const V rescaled = hn::Mul(hn::LoadU(d, sum + j), hn::LoadU(d, s_.rescale + j));
        hn::StoreU(hn::Add(rescaled, hn::LoadU(d, chain + j)), d, sum + j);
      }
    }
  }

  /// Adds the contribution of the key block that starts at `key` to the tile at `row`.
  void AddKeyBlock(std::size_t row, std::size_t key, const Visible& keys, bool values_finite) {
    const std::size_t width = Width(row), last = LastRow(row);
    if (!Tiled()) {
      MultiplyKeys(row, keys);
    } else if constexpr (std::is_same_v<T, float>) {
      MultiplyKeysByTiles(row, keys);
    }
    T* scores = s_.scores + keys.begin * width;
    const std::size_t count = (keys.end - keys.begin) * width;
    if (a_.shape.soft_cap > 0) CapScores(a_.shape, scores, count);
    for (std::size_t i = 0; i < width; ++i) {
      const std::size_t query = std::min(row + i, last);
      const Visible own = See(query, query, key);
      s_.limit[i] = static_cast<T>(own.end);
      if (a_.shape.window > 0) s_.lowest[i] = static_cast<T>(own.begin);
    }
    for (std::size_t i = 0; i < width; i += hn::Lanes(D())) {
      Lowers<T>(a_.softmax) ? Softmax<true>(row, i, width, keys) : Softmax<false>(row, i, width, keys);
    }
    SplitRow(scores, count, s_.scores_plane, a_.operand);
    if constexpr (std::is_same_v<T, float>) {
      if (Tiled()) return AddValuesByTiles(row, key, keys, values_finite);
    }
    Layout layout = Layout::values;
    if (operands_ == Operands::pairs) {
      const std::uint32_t of_scores = PairByColumns(s_.scores, keys.begin, keys.end, width, width);
      layout = values_finite ? WordsOf(of_scores, of_values_) : Layout::slow_words;
    }

    // A masked probability is zero, and so is its product with a finite value. If a value is not finite, each
    // row is multiplied separately with just its visible keys.
    const std::size_t step = values_finite ? kMr : 1;
    for (std::size_t i = 0; row + i <= last; i += step) {
      const std::size_t some = std::min(step, last + 1 - row - i);
      const Visible seen = See(row + i, row + i + some - 1, key);
      if (seen.begin >= seen.end) continue;
      OrderedProduct<Left::columns, T>(Sums(layout), some, {s_.scores + i, s_.scores_plane}, width,
                                       {s_.values, s_.keys_plane}, stride_, dim_, seen.begin,
                                       seen.end - seen.begin, s_.chain, stride_, Into::set);
      for (std::size_t r = 0; r < some; ++r) AddChain(s_.rescale[i + r], s_.chain + r * stride_, row + i + r);
    }
  }

  /// A mask of the vector's queries that attend to key j of the block.
  template <Mask kMask>
  static auto Sees(std::size_t j, V lowest, V limit) {
    const D d;
    const V key = hn::Set(d, static_cast<T>(j));
    const auto before_end = hn::Lt(key, limit);
    if constexpr (kMask == Mask::window) return hn::And(before_end, hn::Ge(key, lowest));
    return before_end;
  }

  /// Turns one vector of queries' scores of a key block into probabilities, and updates maximum and
  /// denominator.
  template <bool kLowered>
  void Softmax(std::size_t row, std::size_t at, std::size_t width, const Visible& keys) {
    const D d;
    // Capped scores are already scaled.
    const V scale = hn::Set(d, a_.shape.soft_cap > 0 ? T{1} : static_cast<T>(a_.shape.scale));
    const V limit = hn::LoadU(d, s_.limit + at), nothing = hn::Set(d, -std::numeric_limits<T>::infinity());
    const V lowest = a_.shape.window > 0 ? hn::LoadU(d, s_.lowest + at) : hn::Zero(d);
    const SoftmaxRounding<kLowered, T> rounded(a_.softmax);
    T* scores = s_.scores + at;
    V most = nothing;
    ForEachRun(keys, [&]<Mask kMask>(std::size_t begin, std::size_t end) HWY_ATTR {
      V largest = most;
      for (std::size_t j = begin; j < end; ++j) {
        V s = rounded(hn::Mul(hn::LoadU(d, scores + j * width), scale));
        if constexpr (kMask != Mask::none) s = hn::IfThenElse(Sees<kMask>(j, lowest, limit), s, nothing);
        largest = hn::Max(largest, s);
      }
      most = largest;
    });
    const V before = hn::LoadU(d, s_.maximum + row + at), now = hn::Max(before, most);
    // If all scores are −inf, exp(s − now) must be 0 and not exp(−inf + inf).
    const V origin = hn::IfThenElse(hn::Eq(now, nothing), hn::Zero(d), now);
    const V rescale = hn::IfThenElse(hn::Eq(now, before), hn::Set(d, T{1}), Exp(d, hn::Sub(before, origin)));
    hn::StoreU(now, d, s_.maximum + row + at);
    hn::StoreU(rescale, d, s_.rescale + at);

    T* lanes = s_.denominator + row * kLanes + at;
    for (std::size_t i = 0; i < kLanes; ++i) {
      hn::StoreU(hn::Mul(hn::LoadU(d, lanes + i * width), rescale), d, lanes + i * width);
    }
    ForEachRun(keys, [&]<Mask kMask>(std::size_t begin, std::size_t end) HWY_ATTR {
      const V factor = scale, maximum = origin;
      for (std::size_t j = begin; j < end; ++j) {
        T* lane = lanes + j % kLanes * width;
        const V s = rounded(hn::Mul(hn::LoadU(d, scores + j * width), factor));
        V p = rounded(Exp(d, hn::Sub(s, maximum)));
        if constexpr (kMask != Mask::none) p = hn::IfThenElseZero(Sees<kMask>(j, lowest, limit), p);
        hn::StoreU(hn::Add(hn::LoadU(d, lane), p), d, lane);
        hn::StoreU(p, d, scores + j * width);
      }
    });
  }

  void AddChain(T rescale, const T* chain, std::size_t row) {
    const D d;
    T* sum = s_.sums + row * stride_;
    for (std::size_t i = 0; i < dim_; i += hn::Lanes(d)) {
      const V rescaled = hn::Mul(hn::LoadU(d, sum + i), hn::Set(d, rescale));
      hn::StoreU(hn::Add(rescaled, hn::LoadU(d, chain + i)), d, sum + i);
    }
  }

  /// Joins the denominator's lanes by the fixed tree, then divides and stores the tile's outputs and
  /// log-sum-exps.
  void Finish(std::size_t row) {
    const D d;
    const std::size_t width = Width(row);
    T* lanes = s_.denominator + row * kLanes;
    for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half * width; i += hn::Lanes(d)) {
        hn::StoreU(hn::Add(hn::LoadU(d, lanes + i), hn::LoadU(d, lanes + half * width + i)), d, lanes + i);
      }
    }
    if (Lowers<T>(a_.softmax)) RoundRow<T>(lanes, width, a_.softmax);
    for (std::size_t i = 0; i < width; i += hn::Lanes(d)) {
      const V log_sum = hn::Add(hn::LoadU(d, s_.maximum + row + i), Log(d, hn::LoadU(d, lanes + i)));
      hn::StoreU(log_sum, d, s_.log_sum + i);
    }
    T* sums = s_.sums + row * stride_;
    if (Tiled()) {
      Transpose(sums, width, width, stride_, s_.rows, stride_);
      sums = s_.rows;
    }
    for (std::size_t i = 0; row + i <= LastRow(row); ++i) {
      T* sum = sums + i * stride_;
      for (std::size_t j = 0; j < dim_; j += hn::Lanes(d)) {
        hn::StoreU(hn::Div(hn::LoadU(d, sum + j), hn::Set(d, lanes[i])), d, sum + j);
      }
      const std::size_t token = Token(row + i), head = Head(row + i);
      StoreRow<T>(sum, dim_, a_.out.data, a_.out.type,
                  token * static_cast<std::size_t>(a_.out.ld) + head * dim_);
      StoreRow<T>(s_.log_sum + i, 1, a_.lse.data, a_.lse.type,
                  token * static_cast<std::size_t>(a_.lse.ld) + head);
    }
  }

  const Attention& a_;
  const ForwardScratch<T>& s_;
  const std::size_t dim_, stride_, group_, kv_head_;
  const Window window_;
  const Keys keys_;
  const std::size_t first_query_, first_token_, rows_;
  const Operands operands_;
  const AttentionTiles tiles_;
  const bool direct_ = Direct();
  const std::size_t most_ = Tiled() ? kSides : kNr<T>;  // queries of a tile
  // Smallest exponents: of the task's queries, and of the loaded keys and values.
  std::uint32_t of_queries_ = UINT32_MAX, of_keys_ = 0, of_values_ = 0;
  ReadAhead* ahead_ = nullptr;
};

}  // namespace attention_parts
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_ATTENTION_FORWARD_INL_H_
