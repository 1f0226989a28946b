// A product of few rows (kernels/cpu/gemm_thin-inl.h): A is packed in strips of rows and shared by all
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
#include <type_traits>
#include <vector>

#include "mantissa/kernels/context.h"
#include "mantissa/kernels/cpu/gemm_blocks.h"
#include "mantissa/kernels/cpu/gemm_epilogue-inl.h"
#include "mantissa/kernels/cpu/gemm_plan.h"
#include "mantissa/kernels/cpu/gemm_source-inl.h"
#include "mantissa/kernels/cpu/gemm_thin-inl.h"
#include "mantissa/kernels/cpu/gemm_thin_pairs-inl.h"
#include "mantissa/kernels/cpu/tasks.h"
#include "mantissa/kernels/gemm.h"
#include "mantissa/kernels/guard_count.h"

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
        a_(g.a, true),
        b_(g.b, true),
        one_row_{0, g.k},
        pairs_(pairs),
        depth_(gemm_plan::summarize(Walk()).depth),
        scratch_(m_, n_, static_cast<std::size_t>(g.k), sizeof(T), 1),
        asked_(static_cast<std::size_t>(ctx.threads), n_) {
    if (g.m * g.n * g.k < gemm_plan::kParallelWork) ctx_.threads = 1;
    if (g.accumulator.order == SumOrder::tile) a_.unscale = b_.unscale = 1;  // the sums are multiplied
  }

  void Run() {
    if (g_.k <= 0) return epilogue_.Clear();
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
    const std::size_t columns = TileColumns();
    const std::size_t tasks = gemm_plan::ceil_div(n_, columns);
    for_each_in_order(ctx_, static_cast<std::int64_t>(tasks), [&](std::int64_t task, int thread) {
      RunTile(static_cast<std::size_t>(task) * columns, columns, thread);
    });
  }

 private:
  static constexpr std::size_t kColumns = GemmEpilogue<T>::kColumns;
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
    return std::max<std::size_t>(thin_rows(m_ - row), pairs_ ? 4 : 1);
  }
  template <class Packed>
  Packed* StripAt(std::size_t row, const gemm_plan::Block& b) const {
    return reinterpret_cast<Packed*>(ctx_.workspace) + row * depth_ + b.packed * StripRows(row);
  }
  T* Sums(int thread) const {
    return reinterpret_cast<T*>(ctx_.workspace) + scratch_.shared +
           static_cast<std::size_t>(thread) * (scratch_.own + scratch_.temporary) + scratch_.own;
  }

  void PackPairs(std::size_t row, const gemm_plan::Block& b) const {
#if HWY_TARGET == HWY_AVX3
    auto* to = StripAt<std::uint16_t>(row, b);
    const std::size_t rows = StripRows(row), count = std::min(rows, m_ - row);
    if (rows == 4) return pairs::Pack<4>(a_, row, count, b.k, b.depth, to);
    if (rows == 8) return pairs::Pack<8>(a_, row, count, b.k, b.depth, to);
    pairs::Pack<kThinStrip>(a_, row, count, b.k, b.depth, to);
#else
    static_cast<void>(row), static_cast<void>(b);
#endif
  }

  /// Returns the columns that are multiplied at once: two vectors where one would wait for its sums.
  std::size_t Together() const {
    const bool two = std::is_same_v<T, float> && m_ == 1 && !pairs_ &&
                     IsThinQuant(b_, 0, static_cast<std::size_t>(g_.k), g_.accumulator.order);
    return (two ? 2 : 1) * kThinColumns<T>;
  }

  /// Returns the columns of one task: few, because threads that end at different times wait for each other
  /// after every product.
  std::size_t TileColumns() const {
    constexpr std::size_t kLeast = 2 * kThinColumns<T>, kTasks = 8;  // of each thread
    const std::size_t wanted = n_ / (kTasks * static_cast<std::size_t>(ctx_.threads));
    return ctx_.threads == 1 ? kColumns : std::clamp(wanted / kLeast * kLeast, kLeast, kColumns);
  }

  /// Computes the tile of `width` columns from `column` on.
  void RunTile(std::size_t column, std::size_t width, int thread) const {
    const GuardTask counts;
    const std::size_t columns = std::min(width, n_ - column);
    const std::size_t together = Together();
    const auto whole = [&](std::size_t first) { return first + together <= n_; };
    std::size_t& asked = asked_[static_cast<std::size_t>(thread)];
    if (column != asked && whole(column)) AskForColumns(b_, column, together);
    asked = column + width;
    T* sums = Sums(thread);
    for (std::size_t j = 0, count = 0; j < columns; j += count) {
      count = columns - j < together ? std::min(kThinColumns<T>, columns - j) : together;
      gemm_plan::Blocks walk = Walk();
      for (gemm_plan::Block b; walk.next(b);)
        Multiply(column + j, count, b, whole(column + j + count) ? column + j + count : column + j, sums + j);
    }
    for (std::size_t i = 0; i < m_; ++i) {
      epilogue_.Unscale(sums + i * kColumns, columns);
      epilogue_.Finish(i, column, columns, sums + i * kColumns);
    }
  }

  /// Adds one block of the columns [column, column + count), count ≤ Together(), to the sums of all rows.
  /// Prefetches those from `next` on.
  void Multiply(std::size_t column, std::size_t count, const gemm_plan::Block& b, std::size_t next,
                T* sums) const {
    const TileStore store = b.first ? TileStore::set : TileStore::add;
#if HWY_TARGET == HWY_AVX3
    if constexpr (std::is_same_v<T, float>) {
      if (pairs_) {
        const pairs::ThinBlock block(b_, column, count, b.k, b.depth, next);
        for (std::size_t row = 0; row < m_; row += kThinStrip) {
          block.Multiply(StripAt<std::uint16_t>(row, b), StripRows(row), sums + row * kColumns, kColumns,
                         store);
        }
        return;
      }
    }
#endif
    if constexpr (std::is_same_v<T, float>) {
      if (count > kThinColumns<T>) {
        const ColumnsAhead ahead(b_.At(column, b.k), b_.run_bytes - b_.Bytes(b.k), b_.run_bytes,
                                 b_.At(next, 0));
        const auto multiply = g_.accumulator.order == SumOrder::tile ? MultiplyQuantPair<SumOrder::tile>
                                                                     : MultiplyQuantPair<SumOrder::chain>;
        return multiply(b_, column, b.k, b.depth, StripAt<T>(0, b), ahead, sums, store);
      }
    }
    const ThinColumns<T> some(b_, column, count, b.k, b.depth, next, m_ <= kThinStrip, g_.accumulator.order);
    for (std::size_t row = 0; row < m_; row += kThinStrip) {
      some.Multiply(StripRows(row), StripAt<T>(row, b), sums + row * kColumns, kColumns, store);
    }
  }

  Context ctx_;
  const Gemm& g_;
  GemmEpilogue<T> epilogue_;
  std::size_t m_, n_;
  PackSource a_, b_;
  Row one_row_;
  bool pairs_;         // by VDPBF16PS
  std::size_t depth_;  // places that a packed row of A takes
  gemm_plan::GemmScratch scratch_;
  mutable std::vector<std::size_t> asked_;  // the column that each thread's last tile prefetched
};

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_GEMM_THIN_RUN_INL_H_
