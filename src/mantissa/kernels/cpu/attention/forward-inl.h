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

#include "mantissa/kernels/attention.h"
#include "mantissa/kernels/cpu/attention/attention-inl.h"
#include "mantissa/kernels/cpu/attention/bfloat-inl.h"
#include "mantissa/kernels/cpu/attention/dropout-inl.h"
#include "mantissa/kernels/cpu/attention/layout.h"
#include "mantissa/kernels/cpu/attention/products-inl.h"
#include "mantissa/kernels/cpu/attention/softmax-inl.h"
#include "mantissa/kernels/cpu/read_ahead.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace attention_parts {

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
        keys_(keys_of(*task.segment, a.span, a.cache)),
        first_query_(task.piece * most_queries),
        first_token_(static_cast<std::size_t>(task.segment->begin) + first_query_),
        rows_(std::min(most_queries, static_cast<std::size_t>(task.segment->length) - first_query_) * group_),
        products_(simd, a.accumulator, a.operand, rows_),
        softmax_(a, scratch),
        dropout_(a.dropout, a.shape, *task.segment, keys_) {}

  /// Registers the first operands and results of this task for prefetching.
  void Announce(ReadAhead& ahead) const {
    const std::size_t queries = rows_ / group_, width = group_ * dim_;
    const std::size_t key = FirstKey(), end = std::min(key / kBlock * kBlock + kBlock, EndKey());
    const std::size_t keys = end - std::min(key, end);
    ahead.Add(a_.q, first_token_, queries, kv_head_ * width, width);
    ahead.Add(a_.k, keys_.row + key, keys, kv_head_ * dim_, dim_);
    ahead.Add(a_.v, keys_.row + key, keys, kv_head_ * dim_, dim_);
    ahead.Add(a_.out, first_token_, queries, kv_head_ * width, width);
  }

  void Run(ReadAhead& ahead) {
    const std::optional<tiles::Scope> scope = products_.Scope();
    ahead_ = &ahead;
    ahead.Spread(rows_ * (KeysOf(0) + KeysOf(rows_ - 1)) / (2 * most_ * products_.Height()));
    for (std::size_t row = 0; row < rows_; row += most_) LoadQueries(row);
    const std::size_t end = FirstKey() < EndKey() ? EndKey() : 0;  // no key of a span may be in the window
    for (std::size_t key = FirstKey() / kBlock * kBlock; key < end; key += kBlock) {
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
  bool Tiled() const { return products_.Tiled(); }
  std::size_t Position(std::size_t row) const { return keys_.position + first_query_ + row / group_; }
  /// The keys that the task's queries attend to: positions [FirstKey, EndKey).
  std::size_t FirstKey() const { return window_.first_key(Position(0)); }
  std::size_t EndKey() const { return std::min(keys_.end, Position(rows_ - 1) + 1); }
  /// The number of keys that a row attends to.
  std::size_t KeysOf(std::size_t row) const {
    const std::size_t end = std::min(keys_.end, Position(row) + 1);
    return end - std::min(end, window_.first_key(Position(row)));
  }
  /// The keys of the block starting at `key` that rows [first, last] attend to.
  Visible See(std::size_t first, std::size_t last, std::size_t key) const {
    return visible(window_, Position(first), Position(last), key, std::min(kBlock, keys_.end - key));
  }
  Visible SeeRow(std::size_t row, std::size_t key) const { return See(row, row, key); }
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
    if (products_.Paired())
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
    softmax_.Start(row, width);
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
    const auto load = [&](const ConstMatrix& matrix, T* to, bool asks) HWY_ATTR {
      return LoadOperand<T>(matrix, keys_.row + from, count, column, dim_, to + at, s_.keys_plane, a_.operand,
                            asks);
    };
    load(a_.k, s_.keys, false);
    const bool finite = load(a_.v, s_.values, masks);
    if constexpr (std::is_same_v<T, float>) {
      if (Tiled()) {
        Word* words = WordsAt(s_.keys) + (from - key) * row_words(stride_);
        of_keys_ = TileRows(s_.keys + at, count, stride_, stride_, words);
        of_values_ =
            TileAcross(s_.values, {from - key, from - key + count}, stride_, s_.rows, WordsAt(s_.values));
      }
    }
    if (products_.Paired()) {
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
    const HeadProduct<T> product = {{s_.keys, s_.keys_plane},
                                    {s_.queries + row * stride_, s_.queries_plane},
                                    width,
                                    width,
                                    dim_,
                                    products_.Sums(true, of_keys_, of_queries_)};
    const std::size_t most = products_.Height();
    for (std::size_t j = products_.FirstRow(keys.begin); j < keys.end; j += most) {
      ahead_->Step();
      products_.MultiplyHead(product, j, std::min(most, keys.end - j), s_.scores + j * width);
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
    const bool fast = bf16::NeverSubnormal(of_scores, of_values_);
    products_.Tiles().MultiplyMasked(product, values_finite, fast, [&](std::size_t, std::size_t query) {
      const Visible own = SeeRow(std::min(row + query, last), key);
      return Range{own.begin, own.end};
    });
    T *sum = s_.sums + row * stride_, *chain = s_.chain;
    for (std::size_t i = 0; i < dim_; ++i, sum += width, chain += width) {
      for (std::size_t j = 0; j < width; j += hn::Lanes(d)) {
        const V rescaled = hn::Mul(hn::LoadU(d, sum + j), hn::LoadU(d, s_.rescale + j));
        hn::StoreU(hn::Add(rescaled, hn::LoadU(d, chain + j)), d, sum + j);
      }
    }
  }

  /// Drops probabilities of the tile at `row` and `keys` of the block that starts at `key`. Not inlined: most
  /// runs have no dropout.
  HWY_NOINLINE void Drop(std::size_t row, std::size_t key, const Visible& keys) const {
    const std::size_t width = Width(row), last = LastRow(row);
    const Range rows{keys.begin, keys.end};
    KeptPairs kept;
    dropout_.Start(kept, rows);
    for (std::size_t i = 0; row + i <= last; ++i)
      dropout_.AddQuery(kept, i, Position(row + i), Head(row + i), key, rows);
    dropout_.Apply(kept, rows, width, s_.scores, width);
    if (Lowers<T>(a_.softmax)) RoundRow<T>(s_.scores + keys.begin * width, rows.count() * width, a_.softmax);
  }

  /// Adds the contribution of the key block that starts at `key` to the tile at `row`.
  void AddKeyBlock(std::size_t row, std::size_t key, const Visible& keys, bool values_finite) {
    const std::size_t width = Width(row), last = LastRow(row);
    MultiplyKeys(row, keys);
    softmax_.AddKeys(row, width, keys,
                     [&](std::size_t i) HWY_ATTR { return SeeRow(std::min(row + i, last), key); });
    if (dropout_.Drops()) Drop(row, key, keys);
    SplitRow(s_.scores + keys.begin * width, (keys.end - keys.begin) * width, s_.scores_plane, a_.operand);
    if constexpr (std::is_same_v<T, float>) {
      if (Tiled()) return AddValuesByTiles(row, key, keys, values_finite);
    }
    AddValues(row, key, keys, values_finite);
  }

  /// Adds P·V of the tile at `row` for `keys` of the block that starts at `key`.
  void AddValues(std::size_t row, std::size_t key, const Visible& keys, bool values_finite) {
    const std::size_t width = Width(row), last = LastRow(row);
    std::uint32_t of_scores = 0;
    if (products_.Paired()) of_scores = PairByColumns(s_.scores, keys.begin, keys.end, width, width);
    const Summation sums = products_.Sums(values_finite, of_scores, of_values_);

    // A masked probability is zero, and so is its product with a finite value. If a value is not finite, and
    // in the order of a card, each row is multiplied separately with just its visible keys.
    const std::size_t step = values_finite && !products_.LeavesMaskedOut() ? kMr : 1;
    for (std::size_t i = 0; row + i <= last; i += step) {
      const std::size_t some = std::min(step, last + 1 - row - i);
      const Visible seen = See(row + i, row + i + some - 1, key);
      if (seen.begin >= seen.end) continue;
      OrderedProduct<Left::columns, T>(sums, some, {s_.scores + i, s_.scores_plane}, width,
                                       {s_.values, s_.keys_plane}, stride_, dim_, seen.begin,
                                       seen.end - seen.begin, s_.chain, stride_, Into::set);
      for (std::size_t r = 0; r < some; ++r) AddChain(s_.rescale[i + r], s_.chain + r * stride_, row + i + r);
    }
  }

  void AddChain(T rescale, const T* chain, std::size_t row) {
    const D d;
    T* sum = s_.sums + row * stride_;
    for (std::size_t i = 0; i < dim_; i += hn::Lanes(d)) {
      const V rescaled = hn::Mul(hn::LoadU(d, sum + i), hn::Set(d, rescale));
      hn::StoreU(hn::Add(rescaled, hn::LoadU(d, chain + i)), d, sum + i);
    }
  }

  /// Divides and stores the tile's outputs, and stores its log-sum-exps.
  void Finish(std::size_t row) {
    const D d;
    const std::size_t width = Width(row);
    const T* denominator = softmax_.Finish(row, width);
    T* sums = s_.sums + row * stride_;
    if (Tiled()) {
      Transpose(sums, width, width, stride_, s_.rows, stride_);
      sums = s_.rows;
    }
    for (std::size_t i = 0; row + i <= LastRow(row); ++i) {
      T* sum = sums + i * stride_;
      for (std::size_t j = 0; j < dim_; j += hn::Lanes(d)) {
        hn::StoreU(hn::Div(hn::LoadU(d, sum + j), hn::Set(d, denominator[i])), d, sum + j);
      }
      const std::size_t token = Token(row + i), head = Head(row + i);
      if (a_.merge && !Merge(token, head, sum, s_.log_sum + i)) continue;
      StoreRow<T>(sum, dim_, a_.out.data, a_.out.type,
                  token * static_cast<std::size_t>(a_.out.ld) + head * dim_);
      StoreRow<T>(s_.log_sum + i, 1, a_.lse.data, a_.lse.type,
                  token * static_cast<std::size_t>(a_.lse.ld) + head);
    }
  }

  /// Merges the results over other keys into those over this span. Returns false if they are to stay.
  bool Merge(std::size_t token, std::size_t head, T* sum, T* log_sum) const {
    const D d;
    constexpr T kNothing = -std::numeric_limits<T>::infinity();
    T before = 0;
    LoadRow<T>(a_.lse.data, a_.lse.type, token * static_cast<std::size_t>(a_.lse.ld) + head, 1, &before);
    if (*log_sum == kNothing) return false;
    if (before == kNothing) return true;
    const V l1 = hn::Set(d, before), l2 = hn::Set(d, *log_sum);
    const V most = hn::IfThenElse(hn::Gt(l1, l2), l1, l2);
    const V w1 = Exp(d, hn::Sub(l1, most)), w2 = Exp(d, hn::Sub(l2, most)), both = hn::Add(w1, w2);
    *log_sum = hn::GetLane(hn::Add(most, Log(d, both)));
    T* other = s_.chain;
    LoadRow<T>(a_.out.data, a_.out.type, token * static_cast<std::size_t>(a_.out.ld) + head * dim_, dim_,
               other);
    for (std::size_t j = 0; j < dim_; j += hn::Lanes(d)) {
      const V numerator = hn::MulAdd(hn::LoadU(d, other + j), w1, hn::Mul(hn::LoadU(d, sum + j), w2));
      hn::StoreU(hn::Div(numerator, both), d, sum + j);
    }
    return true;
  }

  const Attention& a_;
  const ForwardScratch<T>& s_;
  const std::size_t dim_, stride_, group_, kv_head_;
  const Window window_;
  const Keys keys_;
  const std::size_t first_query_, first_token_, rows_;
  const TaskProducts<T> products_;
  const RunningSoftmax<T> softmax_;
  const PairDropout<T> dropout_;
  // True if bf16 operands are loaded into tiles as they are.
  const bool direct_ = Tiled() && HeadWords::Take(a_.operand, stride_, {a_.q.type, a_.k.type, a_.v.type});
  const std::size_t most_ = products_.Width();  // queries of a tile
  // Smallest exponents: of the task's queries, and of the loaded keys and values.
  std::uint32_t of_queries_ = UINT32_MAX, of_keys_ = 0, of_values_ = 0;
  ReadAhead* ahead_ = nullptr;
};

}  // namespace attention_parts
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_ATTENTION_FORWARD_INL_H_
