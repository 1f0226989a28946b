// A product of few rows by tiles (kernels/cpu/gemm_thin/tiles-inl.h): A is packed and shared by all threads,
// B is read in place, or packed column group by column group if it does not lie as tiles need it.
#if defined(MANTISSA_KERNELS_CPU_GEMM_THIN_TILES_RUN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_THIN_TILES_RUN_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_THIN_TILES_RUN_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_THIN_TILES_RUN_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mantissa/kernels/context.h"
#include "mantissa/kernels/cpu/gemm/blocks.h"
#include "mantissa/kernels/cpu/gemm/epilogue-inl.h"
#include "mantissa/kernels/cpu/gemm/plan.h"
#include "mantissa/kernels/cpu/gemm/source-inl.h"
#include "mantissa/kernels/cpu/gemm/units-inl.h"
#include "mantissa/kernels/cpu/gemm_thin/tiles-inl.h"
#include "mantissa/kernels/gemm.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

class ThinTileRun {
 public:
  /// The product must be one of few rows (kernels/units.h) and of bf16 values, in tile order.
  ThinTileRun(const Context& ctx, const Gemm& g)
      : ctx_(ctx),
        g_(g),
        unit_(ctx),
        epilogue_(g),
        m_(static_cast<std::size_t>(g.m)),
        n_(static_cast<std::size_t>(g.n)),
        padded_(gemm_plan::round_up(m_, kGroup)),
        a_(g.a, true),
        b_(g.b, true),
        one_row_{0, g.k},
        total_(gemm_plan::summarize(Walk())),
        scratch_(m_, n_, static_cast<std::size_t>(g.k), sizeof(float), 1) {
    if (g.m * g.n * g.k < gemm_plan::kParallelWork) ctx_.threads = 1;
    a_.unscale = b_.unscale = 1;  // the sums are multiplied
    in_place_ = b_.type == Scalar::bf16 && Unrounded(b_);
  }

  /// True if the packed operands fit the memory that gemm_workspace() counts.
  bool Fits() const {
    return total_.depth * padded_ * sizeof(Packed) <= scratch_.shared * sizeof(float) &&
           tiles::packed_depth(total_.longest) * kGroup * sizeof(Packed) <= scratch_.own * sizeof(float);
  }

  void Run() const {
    if (g_.k <= 0) return epilogue_.Clear();
    PackA();
    const std::size_t width = gemm_plan::tile_columns(n_, kGroup, sizeof(float), ctx_.threads);
    const std::size_t tasks = gemm_plan::ceil_div(n_, width);
    parallel_for(ctx_, static_cast<std::int64_t>(tasks), [&](std::int64_t task, int thread) {
      RunTile(static_cast<std::size_t>(task) * width, width, thread);
    });
  }

 private:
  using Packed = TileUnit::Packed;
  static constexpr std::size_t kColumns = GemmEpilogue<float>::kColumns;
  static constexpr std::size_t kGroup = tiles::kSides;  // columns, and rows of a strip

  gemm_plan::Blocks Walk() const {
    return gemm_plan::Blocks(g_.rows, g_.rows_per_leaf, one_row_, 0, tiles::kLongest, &tiles::packed_depth);
  }
  /// The panel of the strip from `row` on.
  Packed* PanelOfA(std::size_t row, const gemm_plan::Block& b) const {
    return reinterpret_cast<Packed*>(ctx_.workspace) + b.packed * padded_ + row * b.stored;
  }
  float* Region(int thread) const {
    return reinterpret_cast<float*>(ctx_.workspace) + scratch_.shared +
           static_cast<std::size_t>(thread) * (scratch_.own + scratch_.temporary);
  }
  float* Sums(int thread) const { return Region(thread) + scratch_.own; }

  /// Packs A as the right factor, a segment of a strip at a time.
  void PackA() const {
    const std::size_t strips = padded_ / kGroup;
    parallel_for(ctx_, static_cast<std::int64_t>(total_.blocks * strips), [&](std::int64_t task, int) {
      const std::size_t row = static_cast<std::size_t>(task) % strips * kGroup;
      std::size_t before = static_cast<std::size_t>(task) / strips;
      gemm_plan::Blocks walk = Walk();
      gemm_plan::Block b;
      while (walk.next(b) && before-- > 0) {
      }
      tiles::Pack(a_, true, row, std::min(kGroup, m_ - row), b.k, b.depth, PanelOfA(row, b));
    });
  }

  /// Computes the columns of the tile of `width` columns from `column` on.
  void RunTile(std::size_t column, std::size_t width, int thread) const {
    const TileUnit::Scope scope(unit_);
    const std::size_t columns = std::min(width, n_ - column);
    const std::size_t stride = width * static_cast<std::size_t>(ctx_.threads);
    if (column < stride) AskFor(column);  // a thread's first tile, not prefetched yet
    float* sums = Sums(thread);
    for (std::size_t j = 0; j < columns; j += kGroup) {
      // The next tile of this thread follows if all threads are equally fast.
      const std::size_t next = j + kGroup < columns ? column + j + kGroup : column + stride;
      for (std::size_t row = 0; row < m_; row += kGroup) {
        // The first strip brings the columns into the second-level cache, from which the others load them.
        const std::uint8_t* ahead = row == 0 && LiesRight(next) ? b_.At(next, 0) : nullptr;
        unit_.WithTiles([&]<class Tiles>() {
          MultiplyStrip<Tiles>(column + j, row, ahead, reinterpret_cast<Packed*>(Region(thread)),
                               sums + row * kColumns + j);
        });
      }
    }
    for (std::size_t i = 0; i < m_; ++i) {
      epilogue_.Unscale(sums + i * kColumns, columns);
      epilogue_.Finish(i, column, columns, sums + i * kColumns);
    }
  }

  /// True if tiles of the columns [column, column + 32) can be loaded from B itself.
  bool LiesRight(std::size_t column) const { return in_place_ && column + kGroup <= n_; }

  /// Prefetches a group of adjacent columns.
  void AskFor(std::size_t column) const {
    if (!LiesRight(column)) return;
    const std::uint8_t* from = b_.At(column, 0);
    for (std::size_t i = 0; i < kGroup * b_.run_bytes; i += kTileRowBytes)
      __builtin_prefetch(from + i, 0, tiles::kThinLevel);
  }

  /// Computes the sums of a group of columns and a strip of rows over all of k. Prefetches from `ahead` on.
  template <class Tiles>
  void MultiplyStrip(std::size_t column, std::size_t row, const std::uint8_t* ahead, Packed* own,
                     float* to) const {
    tiles::ThinSums<Tiles> sums(std::min(kGroup, m_ - row));
    gemm_plan::Blocks walk = Walk();
    for (gemm_plan::Block b; walk.next(b);) {
      const std::uint8_t* next = ahead == nullptr ? nullptr : ahead + b.k * kGroup * sizeof(Packed);
      sums.Add(tiles::blocks_of(b.depth), ColumnTiles(column, b, own), PanelOfA(row, b), next);
    }
    sums.WriteTo(to, kColumns);
  }

  /// Returns the places of the tiles of a group of columns: in B itself, or packed in `own`. Columns a
  /// multiple of 4096 bytes apart share a set of the first-level cache, but each strip reads a line only
  /// once or twice, so that packing would cost more than it saves.
  tiles::TilePlaces ColumnTiles(std::size_t column, const gemm_plan::Block& b, Packed* own) const {
    if (LiesRight(column) && b.depth % kTileBlock == 0) return tiles::tiles_of_source(b_, column, b.k);
    tiles::Pack(b_, false, column, std::min(kGroup, n_ - column), b.k, b.depth, own);
    return tiles::tiles_of_panel(own);
  }

  Context ctx_;
  const Gemm& g_;
  TileUnit unit_;
  GemmEpilogue<float> epilogue_;
  std::size_t m_, n_, padded_;  // rows, in whole strips
  PackSource a_, b_;
  bool in_place_ = false;  // B's elements are multiplied as stored
  Row one_row_;
  gemm_plan::BlockSummary total_;
  gemm_plan::GemmScratch scratch_;
};

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_GEMM_THIN_TILES_RUN_INL_H_
