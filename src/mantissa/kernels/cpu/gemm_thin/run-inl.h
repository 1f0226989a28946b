// A product of few rows (kernels/cpu/gemm_thin/thin-inl.h): A is packed in strips of rows and shared by all
// threads, B is read in place.
#if defined(MANTISSA_KERNELS_CPU_GEMM_THIN_RUN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_THIN_RUN_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_THIN_RUN_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_THIN_RUN_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "mantissa/kernels/context.h"
#include "mantissa/kernels/cpu/gemm/blocks.h"
#include "mantissa/kernels/cpu/gemm/epilogue-inl.h"
#include "mantissa/kernels/cpu/gemm/plan.h"
#include "mantissa/kernels/cpu/gemm/source-inl.h"
#include "mantissa/kernels/cpu/gemm_thin/interleaved-inl.h"
#include "mantissa/kernels/cpu/gemm_thin/pairs-inl.h"
#include "mantissa/kernels/cpu/gemm_thin/quant_pairs-inl.h"
#include "mantissa/kernels/cpu/gemm_thin/thin-inl.h"
#include "mantissa/kernels/cpu/tasks.h"
#include "mantissa/kernels/gemm.h"
#include "mantissa/kernels/guard_count.h"
#include "mantissa/kernels/interleave.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

/// The most rows that are multiplied by VDPBF16PS without packing B.
inline constexpr std::int64_t kThinPairRows = 32;

template <class T>
class ThinRun {
 public:
  /// The product must be one of few rows (kernels/units.h). `pairs`: by VDPBF16PS.
  ThinRun(const Context& ctx, const Gemm& g, bool pairs)
      : ctx_(ctx),
        g_(g),
        epilogue_(g),
        m_(static_cast<std::size_t>(g.m)),
        n_(static_cast<std::size_t>(g.n)),
        a_(Source(g, g.a)),
        b_(SourceOfB(g)),
        interleaved_(g.b.interleaved != nullptr && b_.data == g.b.interleaved),
        one_row_{0, g.k},
        pairs_(pairs),
        depth_(gemm_plan::summarize(Walk()).depth),
        scratch_(m_, n_, static_cast<std::size_t>(g.k), sizeof(T), 1),
        together_(Together()),
        distance_(interleaved_ ? StreamAhead::kLeast
                               : std::max(together_ * b_.run_bytes, StreamAhead::kLeast)),
        expected_(static_cast<std::size_t>(ctx.threads), n_) {
    if (g.m * g.n * g.k < gemm_plan::kParallelWork) ctx_.threads = 1;
  }

  void Run() {
    if (g_.k <= 0) return epilogue_.Clear();
    Pack();
    for_each_piece(ctx_, Split(), [&](const Piece& piece, int thread) {
      RunTile(static_cast<std::size_t>(piece.first), static_cast<std::size_t>(piece.last - piece.first),
              static_cast<std::size_t>(piece.followed_to), NextWeight(thread), thread);
    });
  }

  /// Runs products in one loop, or returns false if the workspace does not hold the rows of all A.
  static bool RunTogether(const Context& ctx, std::span<const Gemm> products, bool pairs) {
    std::vector<ThinRun> runs;
    runs.reserve(products.size());
    std::int64_t columns = 0;
    for (const Gemm& g : products) {
      runs.emplace_back(ctx, g, pairs);
      columns += g.n;
    }
    const auto most = std::max_element(runs.begin(), runs.end(),
                                       [](const ThinRun& x, const ThinRun& y) { return x.n_ < y.n_; });
    gemm_plan::GemmScratch scratch = most->scratch_;
    scratch.shared = 0;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      ThinRun& run = runs[i];
      run.rows_at_ = i > 0 && SameRows(products[i - 1], products[i]) ? runs[i - 1].rows_at_ : scratch.shared;
      scratch.shared = std::max(scratch.shared, run.rows_at_ + run.scratch_.shared);
      scratch.own = std::max(scratch.own, run.scratch_.own);
      scratch.temporary = std::max(scratch.temporary, run.scratch_.temporary);
    }
    if (scratch.elements(ctx.threads) * sizeof(T) > ctx.workspace_bytes) return false;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      runs[i].scratch_ = scratch;
      runs[i].ctx_.threads = ctx.threads;
      if (i == 0 || !SameRows(products[i - 1], products[i])) runs[i].Pack();
    }
    Pieces pieces = most->Split();
    pieces.count = columns;
    for_each_piece(ctx, pieces, [&](const Piece& piece, int thread) {
      std::int64_t begin = 0;  // the first column of a product among those of all
      for (std::size_t i = 0; i < runs.size(); begin += products[i++].n) {
        const std::int64_t first = std::max(piece.first - begin, std::int64_t{0}),
                           last = std::min(piece.last - begin, products[i].n);
        if (first >= last) continue;
        const std::int64_t end = std::min(piece.followed_to - begin, products[i].n);
        const bool continues = piece.followed_to - begin > products[i].n;
        runs[i].RunTile(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first),
                        static_cast<std::size_t>(end),
                        continues ? runs[i + 1].FirstColumns() : runs[i].NextWeight(thread), thread);
      }
    });
    return true;
  }

 private:
  static constexpr std::size_t kColumns = GemmEpilogue<T>::kColumns;

  /// True if two products read the same A.
  static bool SameRows(const Gemm& x, const Gemm& y) {
    return x.a.matrix.data == y.a.matrix.data && x.k == y.k;
  }

  void Pack() const {
    for (std::size_t row = 0; row < m_; row += kThinStrip) {
      gemm_plan::Blocks walk = Walk();
      for (gemm_plan::Block b; walk.next(b);) {
        if (pairs_) {
          PackPairs(row, b);
        } else {
          PackThin<T>(a_, row, m_ - row, b.k, b.depth, StripAt<T>(row, b));
        }
      }
    }
  }
  Pieces Split() const {
    const std::int64_t unit = interleaved_ && !b_.Quantized()
                                  ? kInterleaved
                                  : static_cast<std::int64_t>(std::max(together_, 2 * kThinColumns<T>));
    return {static_cast<std::int64_t>(n_), interleaved_ ? kInterleaved : std::int64_t{kThinColumns<T>}, unit,
            kColumns};
  }
  /// What a thread reads after its columns: its share of the next weight.
  std::span<const std::byte> NextWeight(int thread) const {
    return share_of(ctx_.next_weight, ctx_.threads, thread);
  }
  /// The memory from the first column on.
  std::span<const std::byte> FirstColumns() const {
    return {reinterpret_cast<const std::byte*>(b_.At(0, 0)), n_ * b_.run_bytes};
  }

  gemm_plan::Blocks Walk() const {
    return gemm_plan::Blocks(g_.rows, g_.rows_per_leaf, one_row_, 0, kSumBlock,
                             pairs_ ? &Stored : gemm_plan::Blocks::as_it_is);
  }
  /// The places that a block takes in a packed row.
  static std::size_t Stored(std::size_t depth) {
#if HWY_TARGET == HWY_AVX3
    return pairs::packed_depth(depth);
#else
    return depth;
#endif
  }
  /// Rows of the strip that starts at `row`; missing rows are zero.
  std::size_t StripRows(std::size_t row) const {
    return std::max<std::size_t>(thin_rows(m_ - row), pairs_ && !OneRowOfPairs() ? 4 : 1);
  }
  /// True if `count` columns of a block are decoded to pairs where they are.
  bool DecodesPairs(std::size_t count, const gemm_plan::Block& b) const {
    if (!pairs_ || m_ >= kStripRows || !(interleaved_ || count == kThinColumns<T>)) return false;
    return IsThinQuant(b_, b.k, b.depth, g_.accumulator.order) && interleaves(b_.quants.format);
  }
  /// True if the panels of pairs have one row.
  bool OneRowOfPairs() const {
    return pairs_ && m_ == 1 && interleaved_;
  }
  template <class Packed>
  Packed* StripAt(std::size_t row, const gemm_plan::Block& b) const {
    return reinterpret_cast<Packed*>(reinterpret_cast<T*>(ctx_.workspace) + rows_at_) + row * depth_ +
           b.packed * StripRows(row);
  }
  T* Sums(int thread) const {
    return reinterpret_cast<T*>(ctx_.workspace) + scratch_.shared +
           static_cast<std::size_t>(thread) * (scratch_.own + scratch_.temporary) + scratch_.own;
  }

  void PackPairs(std::size_t row, const gemm_plan::Block& b) const {
#if HWY_TARGET == HWY_AVX3
    auto* to = StripAt<std::uint16_t>(row, b);
    const std::size_t rows = StripRows(row), count = std::min(rows, m_ - row);
    if (rows == 1) return pairs::PackRow(a_, row, b.k, b.depth, to);
    if (rows == 4) return pairs::Pack<4>(a_, row, count, b.k, b.depth, to);
    if (rows == 8) return pairs::Pack<8>(a_, row, count, b.k, b.depth, to);
    pairs::Pack<kThinStrip>(a_, row, count, b.k, b.depth, to);
#else
    static_cast<void>(row), static_cast<void>(b);
#endif
  }

  static PackSource Source(const Gemm& g, const GemmOperand& operand) {
    PackSource source(operand, true);
    if (g.accumulator.order == SumOrder::tile) source.unscale = 1;  // the sums are multiplied
    return source;
  }
  /// The interleaved copy of B if there is one with the elements that are multiplied, else its rows.
  static PackSource SourceOfB(const Gemm& g) {
    PackSource b = Source(g, g.b);
    const bool few = std::is_same_v<T, float> && g.m < kStripRows;
    if (g.b.interleaved != nullptr && few && b.Quantized() && interleaves(b.quants.format) &&
        IsThinQuant(b, 0, static_cast<std::size_t>(g.k), g.accumulator.order)) {
      b.data = g.b.interleaved;
      b.run_bytes = interleaved_row_bytes(g.k, b.quants.format);
      return b;
    }
    if (b.Quantized()) return b;
    if (g.b.interleaved == nullptr || !few || !interleaves(b.type) || !Unrounded(b)) return b;
    b.data = g.b.interleaved;
    b.ld = static_cast<std::size_t>(interleaved_width(g.k, b.type));
    b.run_bytes = b.ld * bytes_of(b.type);
    return b;
  }

  /// Returns the columns that are multiplied at once: several vectors where one would wait for its sums.
  std::size_t Together() const {
    if (interleaved_ && !b_.Quantized()) return kInterleaved;
    const bool several = std::is_same_v<T, float> && m_ == 1 && !pairs_ &&
                         IsThinQuant(b_, 0, static_cast<std::size_t>(g_.k), g_.accumulator.order);
    return (several ? quant_vectors(b_.quants.format) : 1) * kThinColumns<T>;
  }
  /// The same where `left` columns are left.
  std::size_t Together(std::size_t left) const {
    if (left >= together_ || (interleaved_ && !b_.Quantized())) return std::min(left, together_);
    return std::min(left, together_ > 2 * kThinColumns<T> && left >= 2 * kThinColumns<T> ? 2 * kThinColumns<T>
                                                                                         : kThinColumns<T>);
  }

  /// Returns what a thread prefetches while it reads a block of the columns [column, column + count): the
  /// columns up to `end`, and then `after`.
  StreamAhead Ahead(std::size_t column, std::size_t count, std::size_t k, std::size_t end,
                    std::span<const std::byte> after) const {
    const std::uint8_t* at = b_.At(column, 0) + count * b_.Bytes(k) + distance_;
    if (const std::uint8_t* last = b_.At(end, 0); at >= last) {
      const auto past = static_cast<std::size_t>(at - last);
      at = past < after.size() ? reinterpret_cast<const std::uint8_t*>(after.data()) + past
                               : b_.At(column, k);  // read just now
    }
    return StreamAhead(at);
  }

  /// Computes a tile of columns. The thread continues with those up to `end`, and then reads `after`.
  void RunTile(std::size_t column, std::size_t columns, std::size_t end, std::span<const std::byte> after,
               int thread) const {
    const GuardTask counts;
    std::size_t& expected = expected_[static_cast<std::size_t>(thread)];
    if (column != expected)
      StreamAhead::Begin(b_.At(column, 0), std::min(distance_, (end - column) * b_.run_bytes));
    expected = column + columns;
    T* sums = Sums(thread);
    for (std::size_t j = 0, count = 0; j < columns; j += count) {
      count = Together(columns - j);
      gemm_plan::Blocks walk = Walk();
      for (gemm_plan::Block b; walk.next(b);)
        Multiply(column + j, count, b, Ahead(column + j, count, b.k, end, after), sums + j);
    }
    for (std::size_t i = 0; i < m_; ++i) {
      epilogue_.Unscale(sums + i * kColumns, columns);
      epilogue_.Finish(i, column, columns, sums + i * kColumns);
    }
  }

  /// Adds one block of the columns [column, column + count), count ≤ Together(), to the sums of all rows.
  /// Meanwhile prefetches as many bytes from `ahead` on.
  void Multiply(std::size_t column, std::size_t count, const gemm_plan::Block& b, StreamAhead ahead,
                T* sums) const {
    const TileStore store = b.first ? TileStore::set : TileStore::add;
#if HWY_TARGET == HWY_AVX3
    if constexpr (std::is_same_v<T, float>) {
      if (DecodesPairs(count, b)) {
        const auto multiply = interleaved_ ? pairs::MultiplyQuants<true> : pairs::MultiplyQuants<false>;
        return multiply(b_, column, b.k, b.depth, StripAt<std::uint16_t>(0, b), StripRows(0), m_, ahead, sums,
                        kColumns, store);
      }
      if (pairs_) {
        const pairs::ThinBlock block(b_, column, count, b.k, b.depth, ahead);
        for (std::size_t row = 0; row < m_; row += kThinStrip) {
          block.Multiply(StripAt<std::uint16_t>(row, b), StripRows(row), sums + row * kColumns, kColumns,
                         store);
        }
        return;
      }
    }
#endif
    if constexpr (std::is_same_v<T, float>) {
      if (interleaved_ && b_.Quantized()) {
        const auto multiply = g_.accumulator.order == SumOrder::tile
                                  ? MultiplyInterleavedQuants<SumOrder::tile>
                                  : MultiplyInterleavedQuants<SumOrder::chain>;
        return multiply(StripRows(0), b_, column, (count + kThinColumns<T> - 1) / kThinColumns<T>, b.k,
                        b.depth, StripAt<T>(0, b), ahead, sums, kColumns, store);
      }
      if (interleaved_) {
        const auto multiply = g_.accumulator.order == SumOrder::tile ? MultiplyInterleaved<SumOrder::tile>
                                                                     : MultiplyInterleaved<SumOrder::chain>;
        return multiply(StripRows(0), b_.type, b_.At(column, kInterleaved * b.k), b.depth, StripAt<T>(0, b),
                        ahead, sums, kColumns, store);
      }
      if (count > kThinColumns<T>) {
        const auto multiply = g_.accumulator.order == SumOrder::tile ? MultiplyQuantVectors<SumOrder::tile>
                                                                     : MultiplyQuantVectors<SumOrder::chain>;
        return multiply(b_, column, count / kThinColumns<T>, b.k, b.depth, StripAt<T>(0, b), ahead, sums,
                        store);
      }
    }
    const ThinColumns<T> some(b_, column, count, b.k, b.depth, ahead, m_ <= kThinStrip, g_.accumulator.order);
    for (std::size_t row = 0; row < m_; row += kThinStrip) {
      some.Multiply(StripRows(row), StripAt<T>(row, b), sums + row * kColumns, kColumns, store);
    }
  }

  Context ctx_;
  const Gemm& g_;
  GemmEpilogue<T> epilogue_;
  std::size_t m_, n_;
  PackSource a_, b_;
  bool interleaved_;  // b_ is g_.b.interleaved
  Row one_row_;
  bool pairs_;         // by VDPBF16PS
  std::size_t depth_;  // places that a packed row of A takes
  gemm_plan::GemmScratch scratch_;
  std::size_t rows_at_ = 0;                    // the packed rows in the workspace
  std::size_t together_, distance_;            // from reading to prefetching, in bytes
  mutable std::vector<std::size_t> expected_;  // the column with which each thread continues to read
};

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_GEMM_THIN_RUN_INL_H_
