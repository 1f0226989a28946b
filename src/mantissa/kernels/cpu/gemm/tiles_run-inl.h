// A product of many rows by tiles. B is packed in chunks of columns that stay in the second-level cache and
// are shared by all threads. A task has strips of 32 rows of A. Each strip is packed once per chunk, or read
// in place, and multiplied with one panel of B after the other over all of k, so that sums stay in the tile
// registers for a whole leaf. Meanwhile the next strip is prefetched.
#if defined(MANTISSA_KERNELS_CPU_GEMM_TILES_RUN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_TILES_RUN_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_TILES_RUN_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_TILES_RUN_INL_H_
#endif

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "mantissa/kernels/context.h"
#include "mantissa/kernels/cpu/gemm/blocks.h"
#include "mantissa/kernels/cpu/gemm/epilogue-inl.h"
#include "mantissa/kernels/cpu/gemm/plan.h"
#include "mantissa/kernels/cpu/gemm/source-inl.h"
#include "mantissa/kernels/cpu/gemm/tiles-inl.h"
#include "mantissa/kernels/cpu/gemm/tiles_sums-inl.h"
#include "mantissa/kernels/cpu/gemm/units-inl.h"
#include "mantissa/kernels/gemm.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

class TileRun {
 public:
  /// The product must be in tile order, of factors whose parts are bf16 values. Requires Fits() to run.
  TileRun(const Context& ctx, const Gemm& g)
      : ctx_(ctx),
        g_(g),
        unit_(ctx),
        epilogue_(g),
        swapped_(Swaps(g)),
        m_(static_cast<std::size_t>(swapped_ ? g.n : g.m)),
        n_(static_cast<std::size_t>(swapped_ ? g.m : g.n)),
        parts_(static_cast<std::size_t>(g.a.operand.parts)),
        a_(swapped_ ? g.b : g.a, swapped_ || !g.a.transposed),
        b_(swapped_ ? g.a : g.b, swapped_ || g.b.transposed),
        scratch_(static_cast<std::size_t>(g.m), static_cast<std::size_t>(g.n), static_cast<std::size_t>(g.k),
                 sizeof(float), parts_) {
    if (g.m * g.n * g.k < gemm_plan::kParallelWork) ctx_.threads = 1;
    a_.unscale = b_.unscale = 1;  // the leaves' sums are multiplied
    scaled_ = g.a.unscale != 1 || g.b.unscale != 1;
    direct_ = !swapped_ && epilogue_.Stores();
    Split();
    if (ranges_.empty()) return;
    streams_ = Streams();
    const std::size_t term = parts_ * sizeof(Packed);  // bytes of a side
    const std::size_t fitting = scratch_.shared * sizeof(float) / (batch_depth_ * term);
    const std::size_t bytes = ranges_.size() == 1 ? kChunkBytes : kLeafBytes;
    const std::size_t wanted = std::max(bytes / (depth_ * term), kLeastColumns);
    const std::size_t limit = std::min(fitting, wanted) / kSide * kSide;
    if (limit > 0)
      chunk_ = gemm_plan::round_up(gemm_plan::ceil_div(n_, gemm_plan::ceil_div(n_, limit)), kSide);
  }

  /// True if the sums of a leaf do not round, the packed operands fit the memory that gemm_workspace()
  /// counts, and C can hold the sums between ranges.
  bool Fits() const {
    if (ranges_.empty()) return true;
    return !g_.accumulator.rounds() && (ranges_.size() == 1 || direct_) && chunk_ > 0 &&
           depth_ * parts_ * kSide * sizeof(Packed) <= scratch_.own * sizeof(float);
  }

  void Run() {
    if (ranges_.empty()) return epilogue_.Clear();
    const std::size_t strips = gemm_plan::ceil_div(m_, kSide);
    const std::size_t wanted = gemm_plan::ceil_div(strips, gemm_plan::tasks_wanted(ctx_.threads));
    const std::size_t of_task =
        gemm_plan::task_strips(strips, 1, std::min(wanted, kMostStrips), ctx_.threads);
    for (const Batch& batch : batches_) {
      for (std::size_t column = 0; column < n_; column += chunk_) {
        const Chunk chunk{batch.packed, column, std::min(chunk_, n_ - column)};
        PackB(batch, chunk);
        parallel_for(ctx_, Count(gemm_plan::ceil_div(strips, of_task)), [&](std::int64_t task, int thread) {
          const std::size_t first = static_cast<std::size_t>(task) * of_task * kSide;
          RunTask(batch, chunk, first, std::min(m_, first + of_task * kSide), thread);
        });
      }
    }
  }

 private:
  using Packed = TileUnit::Packed;
  using Block = gemm_plan::Block;
  static constexpr std::size_t kSide = tiles::kSides;
  /// Bytes of the packed chunk of B: with strips of A and sums, a second-level cache of 2 MB. Columns of a
  /// chunk for which this can be exceeded, because every chunk reads all of A.
  static constexpr std::size_t kChunkBytes = std::size_t{1} << 20, kLeastColumns = 128;
  /// Bytes of the leaf of a chunk, if there are several: the strips of C of a task stay in the cache too.
  static constexpr std::size_t kLeafBytes = kChunkBytes / 2;
  /// Terms of short leaves that are packed at a time. Longer leaves are packed one by one: panels of few
  /// terms stay in the caches, so that A is packed once, for many columns of B.
  static constexpr std::size_t kRangeDepth = 320;
  /// Terms of B that are packed before A is multiplied: a task reads and writes its part of C once for all of
  /// them.
  static constexpr std::size_t kBatchDepth = 2304;
  static constexpr std::size_t kMostStrips = 16;

  /// The blocks of a leaf, or of one of its rows if products of parts have sums of their own.
  struct Pass {
    std::size_t begin, end;
    bool opens_leaf, closes_leaf;
  };
  /// Passes whose operands are packed at the same time, whole leaves.
  struct Range {
    std::size_t begin, end;  // passes
    std::size_t packed;      // the place of the first term
    bool first;
  };

  /// Ranges [begin, end) of which B is packed at the same time, from `packed` on.
  struct Batch {
    std::size_t begin, end, packed, depth;
  };
  /// Packed columns of B.
  struct Chunk {
    std::size_t packed;  // the place of the first term
    std::size_t column, columns;
    std::size_t padded() const { return gemm_plan::round_up(columns, kSide); }
  };

  /// What the panels of a strip share.
  struct Strip {
    const Range& range;
    const Chunk& b;
    const Packed* a;
    tiles::StripAhead ahead;
  };

  /// True if B takes the place of A, so that tiles of C are transposed: B then need not be packed, if its
  /// rows lie as they lie in tiles. This pays where A and C together are smaller than B, as in products with
  /// weights of few rows.
  static bool Swaps(const Gemm& g) {
    const bool rows = !g.a.transposed && g.b.transposed && g.rows.empty();
    const bool fresh = !g.accumulate && !g.continue_blocks;
    return rows && fresh && g.m * (g.n + g.k) < g.n * g.k;
  }

  /// Parts of A and B that are multiplied.
  struct PartPair {
    std::size_t a, b;
  };

  /// True if the sums of leaves go to memory past the caches, which need not read it first: C is written
  /// once, in whole lines, and too large to stay in a second-level cache. Gradients of weights are.
  bool Streams() const {
    constexpr std::size_t kLine = 64, kLeast = std::size_t{1} << 22;
    const auto place = reinterpret_cast<std::uintptr_t>(g_.c.data);
    return direct_ && !g_.accumulate && ranges_.size() == 1 && m_ * n_ * sizeof(float) > kLeast &&
           n_ % kSide == 0 && Ldc() * sizeof(float) % kLine == 0 && place % kLine == 0;
  }

  /// Finds the blocks, passes, ranges and batches, and the order of products of parts.
  void Split() {
    const Row one_row{0, g_.k};
    gemm_plan::Blocks walk(g_.rows, g_.rows_per_leaf, one_row, 0, tiles::kLongest, TileUnit::Stored);
    bool opens = true;
    for (Block b; walk.next(b);) {
      const std::size_t at = blocks_.size();
      blocks_.push_back(b);
      if (opens) passes_.push_back({at, at, b.opens_leaf, false});
      opens = b.closes_leaf || (parts_ > 1 && b.closes_row);
      if (!opens) continue;
      passes_.back().end = at + 1;
      passes_.back().closes_leaf = b.closes_leaf;
    }
    gemm_plan::Pieces pieces({}, g_.a.operand.parts, g_.swap_parts);
    for (Block piece; pieces.next(piece);)
      products_.push_back({swapped_ ? piece.b_part : piece.a_part, swapped_ ? piece.a_part : piece.b_part});
    std::size_t leaf = 0;  // its first pass
    for (std::size_t i = 0; i < passes_.size(); ++i) {
      if (passes_[i].opens_leaf) leaf = i;
      if (!passes_[i].closes_leaf) continue;
      const Block &first = blocks_[passes_[leaf].begin], &last = blocks_[passes_[i].end - 1];
      const std::size_t end = last.packed + last.stored;
      if (ranges_.empty() || end - ranges_.back().packed > kRangeDepth)
        ranges_.push_back({leaf, i + 1, first.packed, ranges_.empty()});
      ranges_.back().end = i + 1;
      depth_ = std::max(depth_, end - ranges_.back().packed);
    }
    for (std::size_t i = 0; i < ranges_.size(); ++i) {
      const std::size_t end =
          i + 1 < ranges_.size() ? ranges_[i + 1].packed : blocks_.back().packed + blocks_.back().stored;
      if (batches_.empty() || end - batches_.back().packed > kBatchDepth)
        batches_.push_back({i, i, ranges_[i].packed, 0});
      batches_.back().end = i + 1;
      batches_.back().depth = end - batches_.back().packed;
      batch_depth_ = std::max(batch_depth_, batches_.back().depth);
    }
  }

  Packed* Shared() const { return reinterpret_cast<Packed*>(ctx_.workspace); }
  Packed* Own(int thread) const {
    return reinterpret_cast<Packed*>(reinterpret_cast<float*>(ctx_.workspace) + scratch_.shared +
                                     static_cast<std::size_t>(thread) * (scratch_.own + scratch_.temporary));
  }
  /// The offset of a part of a block, with `sides` packed sides, if the terms from `packed` on are packed.
  std::size_t PartAt(std::size_t packed, const Block& b, std::size_t part, std::size_t sides) const {
    return ((b.packed - packed) * parts_ + part * b.stored) * sides;
  }
  static std::int64_t Count(std::size_t n) { return static_cast<std::int64_t>(n); }
  std::size_t FirstBlock(const Range& range) const { return passes_[range.begin].begin; }
  std::size_t EndBlock(const Range& range) const { return passes_[range.end - 1].end; }

  void PackB(const Batch& batch, const Chunk& chunk) const {
    constexpr std::size_t kPanels = tiles::kMostJoined;  // of a task: rows of 1 KB
    const std::size_t groups = gemm_plan::ceil_div(chunk.columns, kPanels * kSide);
    const std::size_t first = FirstBlock(ranges_[batch.begin]), end = EndBlock(ranges_[batch.end - 1]);
    parallel_for(ctx_, Count((end - first) * groups), [&](std::int64_t task, int) {
      const Block& b = blocks_[first + static_cast<std::size_t>(task) / groups];
      const std::size_t at = static_cast<std::size_t>(task) % groups * kPanels * kSide;
      const std::size_t sides = std::min(kPanels * kSide, chunk.columns - at);
      for (std::size_t part = 0; part < parts_; ++part) {
        Packed* to = Shared() + PartAt(batch.packed, b, part, chunk.padded()) + at * b.stored;
        tiles::Pack(b_.Part(part), true, chunk.column + at, sides, b.k, b.depth, to);
      }
    });
  }

  /// Computes rows [first, last) of the chunk, whose part of C stays in the cache.
  void RunTask(const Batch& batch, const Chunk& chunk, std::size_t first, std::size_t last,
               int thread) const {
    const TileUnit::Scope scope(unit_);
    for (std::size_t i = batch.begin; i < batch.end; ++i) {
      for (std::size_t row = first; row < last; row += kSide) {
        const bool more = row + kSide < last;
        const Range* next = more ? &ranges_[i] : i + 1 < batch.end ? &ranges_[i + 1] : nullptr;
        unit_.WithTiles([&]<class Tiles>() {
          RunStrip<Tiles>(ranges_[i], chunk, row, next, more ? row + kSide : first, thread);
        });
      }
    }
    if (streams_) hwy::FlushStream();  // before the loop ends and other threads read C
  }

  /// Computes up to 32 rows of the chunk. The strip from `next_row` on, of the range `next`, follows.
  template <class Tiles>
  void RunStrip(const Range& range, const Chunk& chunk, std::size_t row, const Range* next,
                std::size_t next_row, int thread) const {
    const std::size_t rows = std::min(kSide, m_ - row);
    Packed* own = Own(thread);
    std::size_t blocks = 0;
    for (std::size_t i = FirstBlock(range); i < EndBlock(range); ++i) {
      const Block& b = blocks_[i];
      blocks += tiles::blocks_of(b.depth);
      for (std::size_t part = 0; part < parts_; ++part)
        tiles::PackOrRefer(a_.Part(part), row, rows, b.k, b.depth,
                           own + PartAt(range.packed, b, part, kSide));
    }
    Strip strip = {range, chunk, own, {}};
    const std::size_t steps = blocks * (chunk.padded() / kSide) * products_.size();
    if (next != nullptr) strip.ahead = AheadInA(*next, next_row, steps);
    for (std::size_t j = 0; j < chunk.columns; j += kSide)
      RunPanel<Tiles>(strip, {row, rows, chunk.column + j, std::min(kSide, chunk.columns - j)}, j);
  }

  /// Prefetches the source of the strip from `row` on.
  tiles::StripAhead AheadInA(const Range& range, std::size_t row, std::size_t blocks) const {
    const Block &first = blocks_[FirstBlock(range)], &end = blocks_[EndBlock(range) - 1];
    const std::size_t rows = std::min(kSide, m_ - row), depth = end.k + end.depth - first.k;
    if (a_.depth_contiguous) return {a_.At(row, first.k), rows, a_.Bytes(depth), a_.run_bytes, blocks};
    return {a_.At(first.k, row), depth, a_.Bytes(rows), a_.run_bytes, blocks};
  }

  /// Computes the columns of one panel, which starts at column `at` of the chunk.
  template <class Tiles>
  void RunPanel(Strip& strip, const gemm_plan::GemmTile& t, std::size_t at) const {
    HWY_ALIGN float sums[kSide * kSide], next[kSide * kSide], row[kSide * kSide], other[kSide * kSide];
    const Range& range = strip.range;
    const bool adds = g_.accumulate || !range.first;
    const SumRows<float> c = {direct_ ? static_cast<float*>(g_.c.data) + t.row * Ldc() + t.column : nullptr,
                              Ldc()};
    const SumRows<float> total = {sums, kSide};
    for (std::size_t i = 0; direct_ && !streams_ && i < t.rows; ++i) {
      __builtin_prefetch(c.Row(i), 1, 3);
      __builtin_prefetch(c.Row(i) + kSide / 2, 1, 3);
    }
    if (range.end - range.begin == 1 && direct_ && !streams_ && !adds && !scaled_ && t.rows == kSide &&
        t.columns == kSide) {
      SumPass<Tiles>(strip, passes_[range.begin], at, {c.first, c.ld, t.rows, TileStore::set}, other);
      return;
    }
    if (g_.continue_blocks && parts_ == 1) {
      if (t.rows < kSide || t.columns < kSide) std::fill_n(sums, kSide * kSide, 0.0F);
      tiles::Copy(c, total, t.rows, t.columns);
      SumPass<Tiles>(strip, passes_[range.begin], at, {sums, kSide, t.rows, TileStore::add}, other);
      return tiles::Copy(total, c, t.rows, t.columns);
    }
    bool normal = true, fresh = !adds;
    SumRows<float> before = adds ? c : total;  // the sum of C and earlier leaves
    for (std::size_t i = range.begin; i < range.end; ++i) {
      const Pass& pass = passes_[i];
      float *leaf = fresh ? sums : next, *to = pass.opens_leaf ? leaf : row;
      normal &= SumPass<Tiles>(strip, pass, at, {to, kSide, t.rows, TileStore::set}, other);
      if (!pass.opens_leaf) tiles::AddRows(row, t.rows * kSide, leaf);
      if (!pass.closes_leaf) continue;
      for (std::size_t r = 0; scaled_ && r < t.rows; ++r) epilogue_.Unscale(leaf + r * kSide, t.columns);
      if (!fresh) {
        const bool last = direct_ && i + 1 == range.end;
        if (streams_ && last) {
          return tiles::Stream(c, t.rows, [&](auto d, std::size_t r, std::size_t j) HWY_ATTR {
            return hn::Add(hn::LoadU(d, before.Row(r) + j), hn::LoadU(d, next + r * kSide + j));
          });
        }
        const SumRows<float> after = last ? c : total;
        for (std::size_t r = 0; r < t.rows; ++r)
          tiles::AddRow(before.Row(r), next + r * kSide, t.columns, after.Row(r));
        before = after;
      }
      fresh = false;
    }
    normal &= !scaled_;
    if (swapped_) {
      tiles::TransposeSums(sums, next);
      return epilogue_.FinishTile({t.column, t.columns, t.row, t.rows}, {next, kSide}, normal);
    }
    if (!direct_) return epilogue_.FinishTile(t, total, normal);
    if (streams_) {
      return tiles::Stream(c, t.rows, [&](auto d, std::size_t r, std::size_t j) HWY_ATTR {
        return hn::LoadU(d, total.Row(r) + j);
      });
    }
    if (before.first != c.first) tiles::Copy(total, c, t.rows, t.columns);
  }

  /// Computes the sums of a pass, from zero or, for operands in one part, continued. `other` is scratch.
  /// Returns true if none can be subnormal.
  template <class Tiles>
  bool SumPass(Strip& strip, const Pass& pass, std::size_t at, const tiles::Sums& to, float* other) const {
    bool normal = Multiply<Tiles>(strip, pass, products_.front(), at, to);
    for (std::size_t i = 1; i < products_.size(); ++i) {
      normal &= Multiply<Tiles>(strip, pass, products_[i], at, {other, kSide, to.rows, TileStore::set});
      for (std::size_t r = 0; r < to.rows; ++r) tiles::AddRows(other + r * kSide, kSide, to.data + r * to.ld);
    }
    return normal;
  }

  /// Computes the product of one part of each operand over the blocks of a pass.
  template <class Tiles>
  bool Multiply(Strip& strip, const Pass& pass, const PartPair& parts, std::size_t at,
                const tiles::Sums& to) const {
    const auto panels = [&](std::size_t i) -> tiles::PanelPair {
      const Block& b = blocks_[i];
      return {b.depth, strip.a + PartAt(strip.range.packed, b, parts.a, kSide),
              Shared() + PartAt(strip.b.packed, b, parts.b, strip.b.padded()) + at * b.stored};
    };
    return tiles::MultiplyPanels<Tiles>(pass.begin, pass.end, panels, to, strip.ahead);
  }

  std::size_t Ldc() const { return static_cast<std::size_t>(g_.c.ld); }

  Context ctx_;
  const Gemm& g_;
  TileUnit unit_;
  GemmEpilogue<float> epilogue_;
  bool swapped_;               // B takes the place of A
  std::size_t m_, n_, parts_;  // the rows and columns of tiles
  PackSource a_, b_;
  gemm_plan::GemmScratch scratch_;
  bool scaled_ = false;   // leaves' sums are multiplied by scales
  bool direct_ = false;   // C holds the sums
  bool streams_ = false;  // past the caches
  std::vector<Block> blocks_;
  std::vector<Pass> passes_;
  std::vector<Range> ranges_;
  std::vector<PartPair> products_;  // of parts, in order
  std::vector<Batch> batches_;
  std::size_t depth_ = 0, batch_depth_ = 0;  // terms of the longest range and batch in packed operands
  std::size_t chunk_ = 0;                    // columns
};

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_GEMM_TILES_RUN_INL_H_
