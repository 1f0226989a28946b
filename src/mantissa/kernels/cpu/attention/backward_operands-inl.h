// Loads the operands of backward attention, in the layouts that its products read: K and V of a key block,
// and Q and dO of a query block with the numbers of its softmax.
#if defined(MANTISSA_KERNELS_CPU_ATTENTION_BACKWARD_OPERANDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_ATTENTION_BACKWARD_OPERANDS_INL_H_
#undef MANTISSA_KERNELS_CPU_ATTENTION_BACKWARD_OPERANDS_INL_H_
#else
#define MANTISSA_KERNELS_CPU_ATTENTION_BACKWARD_OPERANDS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mantissa/core/numeric/lanes-inl.h"
#include "mantissa/kernels/attention.h"
#include "mantissa/kernels/cpu/attention/attention-inl.h"
#include "mantissa/kernels/cpu/attention/bfloat-inl.h"
#include "mantissa/kernels/cpu/attention/layout.h"
#include "mantissa/kernels/cpu/attention/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace attention_parts {

using mantissa::HWY_NAMESPACE::LaneSum;

/// Smallest biased exponents of the loaded operands.
struct OperandExponents {
  std::uint32_t keys = 0, values = 0, queries = 0, douts = 0;
};

/// The rows of a segment's first key and first query, and the position of the latter.
struct OperandRows {
  std::size_t key = 0, query = 0, position = 0;
};

template <class T>
class BackwardOperands {
 public:
  /// For heads of the group `kv_head`.
  BackwardOperands(const AttentionBackward& a, const BackwardScratch<T>& scratch,
                   const TaskProducts<T>& products, const OperandRows& rows, std::size_t kv_head)
      : a_(a),
        s_(scratch),
        products_(products),
        dim_(static_cast<std::size_t>(a.shape.head_dim)),
        stride_(padded(dim_)),
        group_(static_cast<std::size_t>(a.shape.heads / a.shape.kv_heads)),
        rows_(rows),
        kv_head_(kv_head) {}

  const OperandExponents& Exponents() const { return of_; }
  /// True if the loaded keys are finite.
  bool KeysAreFinite() const { return keys_finite_; }
  /// True if the loaded queries and their dO are finite.
  bool QueriesAreFinite() const { return queries_finite_; }

  /// Loads the keys and values of a block from position `from` on.
  void LoadKeys(Range keys, std::size_t from) {
    const std::size_t column = kv_head_ * dim_, at = (from - keys.begin) * stride_;
    const std::size_t first = rows_.key + from, count = keys.end - from;
    if constexpr (std::is_same_v<T, float>) {
      if (direct_) return LoadKeysAsWords({from - keys.begin, keys.count()}, first, column);
    }
    const auto load = [&](const ConstMatrix& matrix, T* to, bool asks) HWY_ATTR {
      return LoadOperand<T>(matrix, first, count, column, dim_, to + at, s_.keys_plane, a_.operand, asks);
    };
    keys_finite_ = load(a_.k, s_.keys, true);
    load(a_.v, s_.values, false);
    if constexpr (std::is_same_v<T, float>) {
      if (products_.Tiled()) return TileKeys(from - keys.begin, keys.count());
    }
    if (!products_.Paired()) return;
    PairByColumns(s_.keys, from - keys.begin, keys.count(), stride_, stride_, s_.keys_across);
    of_.keys = PairByRows(s_.keys + at, count, stride_, stride_);
    of_.values = PairByRows(s_.values + at, count, stride_, stride_);
  }

  /// Loads Q, dO, log-sum-exps and D of a query block of head `g` of the group, padded with zeros to a whole
  /// tile.
  void LoadQueries(std::size_t g, Range queries) {
    const std::size_t head = kv_head_ * group_ + g, column = head * dim_,
                      first = rows_.query + queries.begin - rows_.position;
    const std::size_t count = queries.count(), width = products_.Width(),
                      whole = (count + width - 1) / width * width;
    if constexpr (std::is_same_v<T, float>) {
      if (direct_) {
        LoadQueriesAsWords(first, count, column);
        return LoadSums(first, count, whole, head);
      }
    }
    queries_finite_ = LoadHead<T>(a_.q, first, count, column, dim_, s_.queries);
    queries_finite_ = LoadHead<T>(a_.dout, first, count, column, dim_, s_.douts) && queries_finite_;
    std::fill(s_.queries + count * stride_, s_.queries + whole * stride_, T{0});
    std::fill(s_.douts + count * stride_, s_.douts + whole * stride_, T{0});
    Transpose(s_.queries, stride_, stride_, whole, s_.queries_across, kBlock);
    Transpose(s_.douts, stride_, stride_, whole, s_.douts_across, kBlock);
    LoadSums(first, count, whole, head);  // of dO before it is rounded
    if (Rounds(a_.operand, a_.q.type)) SplitQueries(s_.queries, s_.queries_across, count);
    if (Rounds(a_.operand, a_.dout.type)) SplitQueries(s_.douts, s_.douts_across, count);
    if constexpr (std::is_same_v<T, float>) {
      if (products_.Tiled()) return TileQueries(count, whole);
    }
    if (!products_.Paired()) return;
    PairByColumns(s_.queries_across, 0, stride_, kBlock, whole);
    PairByColumns(s_.douts_across, 0, stride_, kBlock, whole);
    of_.queries = PairByColumns(s_.queries, 0, count, stride_, stride_);
    of_.douts = PairByColumns(s_.douts, 0, count, stride_, stride_);
  }

 private:
  static constexpr std::size_t kBlock = kQueryBlock;  // the stride of transposed tiles

  /// Loads rows `rows` of a key block from token `first` on.
  void LoadKeysAsWords(Range rows, std::size_t first, std::size_t column) {
    const HeadWords keys(WordsAt(s_.keys), stride_), values(WordsAt(s_.values), stride_);
    const auto found = keys.Load(a_.k, first, rows.count(), column, dim_, rows.begin);
    keys.Pad(rows);
    keys.Across(rows, WordsAt(s_.keys_across));
    keys_finite_ = found.finite;
    of_.keys = found.exponent;
    of_.values = values.Load(a_.v, first, rows.count(), column, dim_, rows.begin).exponent;
  }

  /// Puts rows [first, end) of the loaded keys and values into tiles.
  void TileKeys(std::size_t first, std::size_t end) {
    const std::size_t at = first * stride_, words = first * row_words(stride_), count = end - first;
    TileAcross(s_.keys, {first, end}, stride_, nullptr, WordsAt(s_.keys_across));
    of_.keys = TileRows(s_.keys + at, count, stride_, stride_, WordsAt(s_.keys) + words);
    of_.values = TileRows(s_.values + at, count, stride_, stride_, WordsAt(s_.values) + words);
  }

  void SplitQueries(T* rows, T* across, std::size_t count) {
    SplitRow(rows, count * stride_, s_.queries_plane, a_.operand);
    SplitRow(across, dim_ * kBlock, s_.queries_plane, a_.operand);
    queries_finite_ = queries_finite_ && AllFinite(rows, count * stride_);
  }

  /// Loads log-sum-exps and D of tokens from `first` on, with zeros from `count` up to `whole`. D are the
  /// sums of dO·O.
  void LoadSums(std::size_t first, std::size_t count, std::size_t whole, std::size_t head) {
    std::fill(s_.log_sum + count, s_.log_sum + whole, T{0});
    std::fill(s_.delta + count, s_.delta + whole, T{0});
    T *out = s_.chain, *dout = s_.chain + stride_;  // not used yet
    for (std::size_t i = 0; i < count; ++i) {
      const auto token = first + i;
      const auto load = [&](const ConstMatrix& m, std::size_t column, std::size_t n, T* to) {
        LoadRow<T>(m.data, m.type, token * static_cast<std::size_t>(m.ld) + column, n, to);
      };
      load(a_.lse, head, 1, s_.log_sum + i);
      load(a_.out, head * dim_, dim_, out);
      if (direct_) load(a_.dout, head * dim_, dim_, dout);
      LaneSum<T> delta;
      delta.AddProduct(direct_ ? dout : s_.douts + i * stride_, out, dim_);
      s_.delta[i] = delta.Total();
    }
  }

  /// Loads queries and dO of tokens from `first` on.
  void LoadQueriesAsWords(std::size_t first, std::size_t count, std::size_t column) {
    queries_finite_ = true;
    const auto load = [&](const ConstMatrix& from, T* rows, T* across) {
      const HeadWords words(WordsAt(across + stride_ * kBlock / 2), stride_);  // in the upper half
      const auto found = words.Load(from, first, count, column, dim_, 0);
      words.Pad({0, count});
      words.Transposed(blocks_of(count) * kTileBlock, WordsAt(across), kBlock);
      words.Columns({0, count}, WordsAt(rows));
      queries_finite_ = queries_finite_ && found.finite;
      return found.exponent;
    };
    of_.queries = load(a_.q, s_.queries, s_.queries_across);
    of_.douts = load(a_.dout, s_.douts, s_.douts_across);
  }

  /// Puts the loaded queries and dO into tiles, as the columns of products over head_dim and over queries.
  void TileQueries(std::size_t count, std::size_t whole) {
    for (T* across : {s_.queries_across, s_.douts_across})
      TileColumns(across, {0, stride_}, kBlock, whole, WordsAt(across));
    of_.queries = TileColumns(s_.queries, {0, count}, stride_, stride_, WordsAt(s_.queries));
    of_.douts = TileColumns(s_.douts, {0, count}, stride_, stride_, WordsAt(s_.douts));
  }

  const AttentionBackward& a_;
  const BackwardScratch<T>& s_;
  const TaskProducts<T> products_;
  const std::size_t dim_, stride_, group_;
  const OperandRows rows_;
  const std::size_t kv_head_;
  // True if bf16 operands are loaded into tiles as they are.
  const bool direct_ = products_.Tiled() &&
                       HeadWords::Take(a_.operand, stride_, {a_.q.type, a_.k.type, a_.v.type, a_.dout.type});
  bool keys_finite_ = false, queries_finite_ = false;
  OperandExponents of_;
};

}  // namespace attention_parts
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_ATTENTION_BACKWARD_OPERANDS_INL_H_
