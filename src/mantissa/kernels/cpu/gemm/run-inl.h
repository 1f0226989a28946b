// The matrix product on packed operands: packing, tiles, leaves and the epilogue. kernels/cpu/gemm/plan.h
// partitions the work.
#if defined(MANTISSA_KERNELS_CPU_GEMM_RUN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_RUN_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_RUN_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_RUN_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "mantissa/core/numeric/convert-inl.h"
#include "mantissa/kernels/context.h"
#include "mantissa/kernels/cpu/gemm/blocks.h"
#include "mantissa/kernels/cpu/gemm/epilogue-inl.h"
#include "mantissa/kernels/cpu/gemm/plan.h"
#include "mantissa/kernels/cpu/gemm/source-inl.h"
#include "mantissa/kernels/cpu/gemm/units-inl.h"
#include "mantissa/kernels/gemm.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

/// One product on a unit, partitioned for `ctx.threads` threads.
template <class Unit>
class GemmRun {
  using T = typename Unit::Sum;
  using Sums = SumRows<T>;
  using Packed = typename Unit::Packed;
  using Block = gemm_plan::Block;
  using Blocks = gemm_plan::Blocks;
  using GemmTile = gemm_plan::GemmTile;
  using Pieces = gemm_plan::Pieces;

 public:
  GemmRun(const Context& ctx, const Gemm& g)
      : ctx_(ctx),
        g_(g),
        unit_(ctx, g),
        epilogue_(g),
        m_(static_cast<std::size_t>(g.m)),
        n_(static_cast<std::size_t>(g.n)),
        a_(g.a, !g.a.transposed),
        b_(g.b, g.b.transposed),
        one_row_{0, g.k},
        parts_(g.a.operand.parts),
        rounds_(g.accumulator.rounds()),
        tiles_(g.accumulator.order != SumOrder::chain),
        part_sums_(tiles_ && parts_ > 1 ? products_of_parts(Parts()) : 0),
        total_(gemm_plan::summarize(Walk())),
        pieces_(total_.blocks * products_of_parts(Parts())),
        scratch_(m_, n_, static_cast<std::size_t>(g.k), sizeof(T), static_cast<std::size_t>(parts_)) {
    if (g.m * g.n * g.k < gemm_plan::kParallelWork) ctx_.threads = 1;
    direct_ = epilogue_.Stores();
    if (tiles_) a_.unscale = b_.unscale = 1;  // the leaves' sums are multiplied
    if (g.accumulator.order == SumOrder::card) a_.coded = b_.coded = g.a.blocks.has_value();
    // A leaf needs its own sum if there is already a sum to add it to.
    const bool all_long = parts_ > 1 || rounds_ || tiles_;
    const bool leaf_sums =
        !g.continue_blocks && (all_long ? g.accumulate || total_.leaves > 1
                                        : total_.long_leaf || (g.accumulate && total_.long_first_leaf));
    // The sums of parts of a row that is a leaf are added to C like a leaf.
    const bool scaled = g.a.unscale != 1 || g.b.unscale != 1;
    rows_are_leaves_ = part_sums_ > 0 && !rounds_ && !scaled && (g.rows_per_leaf <= 1 || g.rows.size() <= 1);
    sum_sets_ = (direct_ ? 0 : 1) + (leaf_sums && !rows_are_leaves_ ? 1 : 0) + part_sums_;
  }

  void Run() {
    if (total_.blocks == 0) return epilogue_.Clear();
    gemm_plan::shares_rows(m_, n_) ? ShareA() : ShareB();
  }

  /// True if the packed operands fit the memory that gemm_workspace() counts, which is that of FmaUnit.
  bool Fits() const {
    return total_.depth * sizeof(Packed) <= static_cast<std::size_t>(g_.k) * sizeof(T) &&
           Unit::Stored(total_.longest) * sizeof(Packed) <=
               std::min<std::size_t>(static_cast<std::size_t>(g_.k), kSumBlock) * sizeof(T);
  }

 private:
  static constexpr std::size_t kColumns = GemmEpilogue<T>::kColumns;
  static constexpr std::size_t kLeastStrips = 4;  // per task that shares B
  static constexpr std::size_t kRowUnit = gemm_plan::row_unit(Unit::kRows);
  static constexpr std::size_t kMostTogether = 16;  // blocks

  /// A block and its packed operands.
  struct PackedBlock {
    Block block;
    const Packed *a, *b;
  };
  /// Blocks whose operands are packed at the same time: a strip's part of C stays in the inner cache while
  /// all of them are added to it.
  struct Together {
    std::array<PackedBlock, kMostTogether> blocks;
    std::size_t count = 0;
    std::span<PackedBlock> all() { return {blocks.data(), count}; }
  };
  /// Sides of packed operands: rows of A and columns of B, in whole panels.
  struct Padded {
    std::size_t a, b;
  };

  Blocks Walk() const {
    const std::size_t longest = tiles_ && !rounds_ ? Unit::kLongest : kSumBlock;
    return Blocks(g_.rows, g_.rows_per_leaf, one_row_, rounds_ ? g_.accumulator.block : 0, longest,
                  Unit::Stored);
  }
  /// The offset of part `part` of a packed block from its first part, with sides padded to `padded`.
  static std::size_t PartAt(std::size_t part, std::size_t padded, const Block& b) {
    return part * padded * b.stored;
  }
  Packed* Shared() const { return reinterpret_cast<Packed*>(ctx_.workspace); }
  Packed* Own(int thread) const { return reinterpret_cast<Packed*>(Region(thread)); }
  T* Temporary(int thread) const { return Region(thread) + scratch_.own; }
  /// The scratch of one thread.
  T* Region(int thread) const {
    return reinterpret_cast<T*>(ctx_.workspace) + scratch_.shared +
           static_cast<std::size_t>(thread) * (scratch_.own + scratch_.temporary);
  }
  /// Rows of the temporary with `columns` sums per row, in whole units.
  std::size_t TemporaryRows(std::size_t columns) const {
    const std::size_t rows = scratch_.temporary / (std::max<std::size_t>(sum_sets_, 1) * columns);
    return std::max(rows / kRowUnit * kRowUnit, kRowUnit);
  }

  /// A is shared in chunks of rows. A task has a tile of columns and all or some of the chunk's rows.
  void ShareA() const {
    const std::size_t most = std::min(gemm_plan::kMostRows, sum_sets_ > 0 ? TemporaryRows(kColumns) : m_);
    const std::size_t chunk = gemm_plan::chunk(m_, PackedDepth(), kRowUnit, gemm_plan::kLeastRows, most);
    const std::size_t width = gemm_plan::tile_columns(n_, Unit::kColumns, sizeof(T), ctx_.threads);
    for (std::size_t row = 0; row < m_; row += chunk) {
      const std::size_t rows = std::min(chunk, m_ - row), panels = gemm_plan::ceil_div(rows, Unit::kRows);
      PackShared<Role::a>(a_, row, rows);
      const gemm_plan::TileTasks tasks(gemm_plan::ceil_div(n_, width), panels, ctx_.threads);
      parallel_for(ctx_, Count(tasks.count), [&](std::int64_t task, int thread) {
        const auto t = static_cast<std::size_t>(task);
        const std::size_t column = tasks.tile(t) * width;
        const std::size_t part = gemm_plan::ceil_div(panels, tasks.parts_of(t)) * Unit::kRows,
                          first = tasks.part(t) * part;
        if (first >= rows) return;
        RunWithA({row + first, std::min(part, rows - first), column, std::min(width, n_ - column)}, first,
                 panels * Unit::kRows, thread);
      });
    }
  }

  /// Computes one tile over all of k. Its rows start at row `first` of the shared chunk's `padded` rows.
  void RunWithA(const GemmTile& t, std::size_t first, std::size_t padded, int thread) const {
    const typename Unit::Scope scope(unit_);
    const Padded sides{padded, gemm_plan::round_up(t.columns, Unit::kColumns)};
    const bool complete = PacksAll(sides.b);
    SourceAhead nothing;
    Blocks walk = Walk();
    Block next;
    for (bool more = walk.next(next); more;) {
      Together now;
      more = PackTogether<Role::b>(b_, t.column, t.columns, thread, walk, next, now);
      for (PackedBlock& b : now.all())
        b.a = Shared() + b.block.packed * padded * Parts() + first * b.block.stored;
      RunTile(now.all(), t, sides, 0, Temporary(thread), kColumns, complete, nothing);
    }
  }

  /// B is shared in chunks of columns. A task has some rows and all of the chunk's columns.
  void ShareB() const {
    // Separate sums require that a few of their rows fit the temporary.
    const std::size_t most_columns =
        sum_sets_ > 0 && pieces_ > 1
            ? std::clamp(scratch_.temporary / (sum_sets_ * 2 * kRowUnit) / kColumns * kColumns, kColumns,
                         gemm_plan::kMostColumns)
            : gemm_plan::kMostColumns;
    const std::size_t chunk = gemm_plan::chunk(n_, PackedDepth(), kColumns, kColumns, most_columns);
    for (std::size_t column = 0; column < n_; column += chunk) {
      const std::size_t columns = std::min(chunk, n_ - column);
      const std::size_t padded = gemm_plan::round_up(columns, Unit::kColumns);
      PackShared<Role::b>(b_, column, columns);
      std::size_t most = std::min(gemm_plan::kTaskRows / Unit::kRows, OwnStrips());
      if (pieces_ > 1 && sum_sets_ > 0) most = std::min(most, TemporaryRows(padded) / Unit::kRows);
      const std::size_t strips = gemm_plan::task_strips(gemm_plan::ceil_div(m_, Unit::kRows),
                                                        std::min(most, kLeastStrips), most, ctx_.threads);
      const std::size_t rows = strips * Unit::kRows;
      parallel_for(ctx_, Count(gemm_plan::ceil_div(m_, rows)), [&](std::int64_t task, int thread) {
        const std::size_t row = static_cast<std::size_t>(task) * rows;
        RunWithB({row, std::min(rows, m_ - row), column, columns}, padded, thread);
      });
    }
  }

  /// The strips of A of which a thread's own memory holds a packed block.
  std::size_t OwnStrips() const {
    const std::size_t strip = Unit::kRows * Unit::Stored(total_.longest) * Parts() * sizeof(Packed);
    return scratch_.own * sizeof(T) / strip;
  }

  /// Computes some rows and the shared chunk of columns over all of k.
  void RunWithB(const GemmTile& t, std::size_t padded, int thread) const {
    const typename Unit::Scope scope(unit_);
    const Padded sides{gemm_plan::round_up(t.rows, Unit::kRows), padded};
    const bool complete = PacksAll(sides.a);
    Blocks walk = Walk();
    Block next;
    for (bool more = walk.next(next); more;) {
      Together now;
      more = PackTogether<Role::a>(a_, t.row, t.rows, thread, walk, next, now);
      for (PackedBlock& b : now.all()) b.b = Shared() + b.block.packed * padded * Parts();
      SourceAhead ahead;
      // The hardware prefetches rows of A that are contiguous along k.
      if (more && !a_.depth_contiguous)
        ahead = {a_, t.row, t.rows, next.k, next.depth, now.count * Tiles(t.rows, t.columns)};
      for (std::size_t j = 0; j < t.columns; j += kColumns) {
        const GemmTile tile{t.row, t.rows, t.column + j, std::min(kColumns, t.columns - j)};
        RunTile(now.all(), tile, sides, j, Temporary(thread) + (complete ? 0 : j),
                complete ? kColumns : padded, complete, ahead);
      }
    }
  }

  /// The terms of which a thread's own memory holds `sides` packed sides.
  std::size_t OwnTerms(std::size_t sides) const {
    return scratch_.own * sizeof(T) / (sides * Parts() * sizeof(Packed));
  }
  /// True if PackTogether() packs all blocks at once.
  bool PacksAll(std::size_t sides) const {
    return total_.depth <= OwnTerms(sides) && total_.blocks <= kMostTogether;
  }

  /// Packs one operand of block `next` and of those after it, as many as the thread's own memory holds; the
  /// caller adds the shared operand. Returns true if blocks remain: `next` is then the first of them.
  template <Role kRole>
  bool PackTogether(const PackSource& from, std::size_t first, std::size_t sides, int thread, Blocks& walk,
                    Block& next, Together& now) const {
    const std::size_t padded = gemm_plan::round_up(sides, kRole == Role::a ? Unit::kRows : Unit::kColumns);
    const std::size_t terms = OwnTerms(padded);
    bool more = true;
    for (std::size_t packed = 0; more && now.count < kMostTogether; ++now.count) {
      if (now.count > 0 && packed + next.stored > terms) break;
      Packed* to = Own(thread) + packed * padded * Parts();
      PackParts<kRole>(from, first, sides, padded, next, to);
      now.blocks[now.count] = {next, to, to};
      packed += next.stored;
      more = walk.next(next);
    }
    return more;
  }

  /// Packs sides [first, first + sides) of the shared operand. Each task packs every `slices`-th block of
  /// some sides. If sides are adjacent in memory, blocks are distributed before sides, so that reads are long
  /// runs.
  template <Role kRole>
  void PackShared(const PackSource& from, std::size_t first, std::size_t sides) const {
    constexpr std::size_t kPanel = kRole == Role::a ? Unit::kRows : Unit::kColumns;
    constexpr std::size_t kUnit = kPanel % HWY_LANES(T) == 0 ? kPanel : 8 * kPanel;  // whole vectors
    const std::size_t padded = gemm_plan::round_up(sides, kPanel),
                      wanted = gemm_plan::tasks_wanted(ctx_.threads);
    const std::size_t slices = from.depth_contiguous ? 1 : std::min(wanted, total_.blocks);
    const std::size_t step =
        gemm_plan::round_up(gemm_plan::ceil_div(sides, gemm_plan::ceil_div(wanted, slices)), kUnit);
    parallel_for(ctx_, Count(gemm_plan::ceil_div(sides, step) * slices), [&](std::int64_t task, int) {
      const std::size_t begin = static_cast<std::size_t>(task) / slices * step;
      std::size_t turn = static_cast<std::size_t>(task) % slices;
      Blocks walk = Walk();
      for (Block b; walk.next(b); turn = turn == 0 ? slices - 1 : turn - 1) {
        if (turn > 0) continue;
        Packed* to = Shared() + b.packed * padded * Parts() + begin * b.stored;
        PackParts<kRole>(from, first + begin, std::min(step, sides - begin), padded, b, to);
      }
    });
  }

  /// Packs all parts of a block's sides [first, first + sides), one part after the other at PartAt offsets.
  template <Role kRole>
  void PackParts(const PackSource& from, std::size_t first, std::size_t sides, std::size_t padded,
                 const Block& b, Packed* to) const {
    for (std::size_t part = 0; part < Parts(); ++part) {
      Unit::template Pack<kRole>(from.Part(part), first, sides, b.k, b.depth, to + PartAt(part, padded, b));
    }
  }

  /// Computes some blocks of a tile, strip by strip. The tile's first column is column `column` of the packed
  /// B. Separate sums are at `temporary`, `ld` apart; each set is a tile's rows after the previous one: sums
  /// not in C, those of leaves, those of products of parts. `complete`: these are all blocks, so a strip's
  /// sums are complete at once, and all strips share the same rows.
  void RunTile(std::span<const PackedBlock> blocks, const GemmTile& t, const Padded& sides,
               std::size_t column, T* temporary, std::size_t ld, bool complete, SourceAhead& ahead) const {
    const std::size_t rows = complete ? Unit::kRows : gemm_plan::round_up(t.rows, Unit::kRows);
    for (std::size_t i = 0; i < t.rows; i += Unit::kRows) {
      const GemmTile strip{t.row + i, std::min(Unit::kRows, t.rows - i), t.column, t.columns};
      T* sums = temporary + (complete ? 0 : i) * ld;
      for (const PackedBlock& b : blocks) {
        Pieces pieces(b.block, parts_, g_.swap_parts);
        for (Block piece; pieces.next(piece);) {
          RunStrip(piece, strip, b.a + PartAt(piece.a_part, sides.a, piece) + i * piece.stored,
                   b.b + PartAt(piece.b_part, sides.b, piece) + column * piece.stored, sums, ld, rows * ld,
                   ahead);
        }
      }
    }
  }

  /// Computes one block for one panel of A. Separate sums are at `first`, `ld` apart, their sets `set` apart.
  void RunStrip(const Block& b, const GemmTile& t, const Packed* packed_a, const Packed* packed_b, T* first,
                std::size_t ld, std::size_t set, SourceAhead& ahead) const {
    const auto ldc = static_cast<std::size_t>(g_.c.ld);
    const Sums sums =
        direct_ ? Sums{static_cast<T*>(g_.c.data) + t.row * ldc + t.column, ldc} : Sums{first, ld};
    const bool whole = rows_are_leaves_ || (b.opens_leaf && b.closes_leaf && !rounds_ && !tiles_);
    const bool into_sum = g_.continue_blocks || whole || (b.in_first_leaf && !g_.accumulate);
    const Sums leaf = into_sum ? sums : Sums{direct_ ? first : first + set, ld};
    const Sums parts{first + (sum_sets_ - part_sums_) * set, ld};
    bool fresh = into_sum ? b.first && !g_.accumulate : b.opens_leaf;
    if (part_sums_ > 0) {
      for (std::size_t i = 0; fresh && i < t.rows; ++i) std::fill_n(leaf.Row(i), t.columns, T{0});
      fresh = b.opens_row || (rounds_ && b.after_rounding);
    }
    // C is about to be written: the sums of the next strip, or the results of this one.
    const bool fetches = direct_ ? b.first : b.last;
    const std::size_t fetched = t.row + (direct_ ? Unit::kRows : 0);
    const Sums to = part_sums_ > 0 ? Sums{parts.first + b.piece * set, ld} : leaf;
    // The panel of the next strip, a part with each panel of B.
    const auto* panel = reinterpret_cast<const std::uint8_t*>(packed_a + Unit::kRows * b.stored);
    for (std::size_t j = 0; j < t.columns; j += Unit::kColumns, panel += kPanelBytes) {
      const std::size_t columns = std::min(Unit::kColumns, t.columns - j);
      if (fetches) FetchC({fetched, t.rows, t.column + j, columns});
      unit_.Multiply(g_.accumulator.order, b.depth, packed_a, packed_b + j * b.stored, to.first + j, to.ld,
                     t.rows, columns, fresh ? TileStore::set : TileStore::add, {ahead.Next(), panel});
    }
    if (part_sums_ > 0 && (b.closes_row || (rounds_ && b.rounds))) {
      for (std::size_t i = 0; i < t.rows; ++i)
        GemmEpilogue<T>::AddParts(parts.Row(i), set, part_sums_, t.columns, leaf.Row(i));
    }
    if (rounds_ && b.rounds) {
      for (std::size_t i = 0; i < t.rows; ++i)
        mantissa::HWY_NAMESPACE::RoundRow<T>(leaf.Row(i), t.columns, g_.accumulator.format);
    }
    for (std::size_t i = 0; b.closes_leaf && i < t.rows; ++i) {
      epilogue_.Unscale(leaf.Row(i), t.columns);
      if (!into_sum) GemmEpilogue<T>::AddRow(leaf.Row(i), t.columns, sums.Row(i));
    }
    if (direct_ || !b.last) return;
    epilogue_.FinishTile(t, sums, false);
  }

  /// Prefetches elements of C, to be written. Inline, because GCC removes calls of functions that only
  /// prefetch.
  HWY_INLINE void FetchC(const GemmTile& t) const {
    const std::size_t size = bytes_of(g_.c.type), ld = static_cast<std::size_t>(g_.c.ld);
    auto at = reinterpret_cast<std::uintptr_t>(g_.c.data) + (t.row * ld + t.column) * size;
    for (std::size_t i = 0; i < t.rows; ++i, at += ld * size) {
      for (std::size_t line = 0; line < t.columns * size; line += 64)
        __builtin_prefetch(reinterpret_cast<const void*>(at + line), 1, 3);
    }
  }

  std::size_t Parts() const { return static_cast<std::size_t>(parts_); }
  std::size_t PackedDepth() const { return total_.depth * Parts(); }
  static std::size_t Tiles(std::size_t rows, std::size_t columns) {
    return gemm_plan::ceil_div(rows, Unit::kRows) * gemm_plan::ceil_div(columns, Unit::kColumns);
  }

  static std::int64_t Count(std::size_t n) { return static_cast<std::int64_t>(n); }

  Context ctx_;
  const Gemm& g_;
  Unit unit_;
  GemmEpilogue<T> epilogue_;
  std::size_t m_, n_;
  PackSource a_, b_;
  Row one_row_;
  int parts_;              // of both operands
  bool rounds_;            // partial sums are rounded
  bool tiles_;             // tile order, or that of a card
  std::size_t part_sums_;  // products of parts with sums of their own
  gemm_plan::BlockSummary total_;
  std::size_t pieces_;  // chains per element
  gemm_plan::GemmScratch scratch_;
  bool direct_ = false;  // sums are in C itself
  bool rows_are_leaves_ = false;
  std::size_t sum_sets_ = 0;  // in the temporary: those not in C, those of leaves, those of parts
};

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_GEMM_RUN_INL_H_
