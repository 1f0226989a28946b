// The matrix product: packing, tiles, leaves and the epilogue. kernels/cpu/gemm_plan.h partitions the work.
#include "mantissa/kernels/gemm.h"

#include <algorithm>
#include <type_traits>

#include "mantissa/kernels/cpu/gemm_blocks.h"
#include "mantissa/kernels/cpu/gemm_check.h"
#include "mantissa/kernels/cpu/gemm_plan.h"
#include "mantissa/kernels/interleave.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/gemm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/kernels/cpu/gemm_epilogue-inl.h"
#include "mantissa/kernels/cpu/gemm_thin_run-inl.h"
#include "mantissa/kernels/cpu/gemm_thin_tiles_run-inl.h"
#include "mantissa/kernels/cpu/gemm_tiles_run-inl.h"
#include "mantissa/kernels/cpu/gemm_units-inl.h"
#include "mantissa/numeric/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

using gemm_plan::Block;
using gemm_plan::Blocks;
using gemm_plan::ceil_div;
using gemm_plan::GemmTile;
using gemm_plan::Pieces;
using gemm_plan::round_up;

/// One product on a unit, partitioned for `ctx.threads` threads.
template <class Unit>
class GemmRun {
  using T = typename Unit::Sum;
  using Sums = SumRows<T>;
  using Packed = typename Unit::Packed;

 public:
  GemmRun(const Context& ctx, const Gemm& g)
      : ctx_(ctx),
        g_(g),
        unit_(ctx),
        epilogue_(g),
        m_(static_cast<std::size_t>(g.m)),
        n_(static_cast<std::size_t>(g.n)),
        a_(g.a, !g.a.transposed),
        b_(g.b, g.b.transposed),
        one_row_{0, g.k},
        parts_(g.a.operand.parts),
        rounds_(g.accumulator.rounds()),
        tiles_(g.accumulator.order == SumOrder::tile),
        part_sums_(tiles_ && parts_ > 1 ? products_of_parts(Parts()) : 0),
        total_(gemm_plan::summarize(Walk())),
        pieces_(total_.blocks * products_of_parts(Parts())),
        scratch_(m_, n_, static_cast<std::size_t>(g.k), sizeof(T), static_cast<std::size_t>(parts_)) {
    if (g.m * g.n * g.k < gemm_plan::kParallelWork) ctx_.threads = 1;
    direct_ = epilogue_.Stores();
    if (tiles_) a_.unscale = b_.unscale = 1;  // the leaves' sums are multiplied
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
      const std::size_t rows = std::min(chunk, m_ - row), panels = ceil_div(rows, Unit::kRows);
      PackShared<Role::a>(a_, row, rows);
      const gemm_plan::TileTasks tasks(ceil_div(n_, width), panels, ctx_.threads);
      parallel_for(ctx_, Count(tasks.count), [&](std::int64_t task, int thread) {
        const auto t = static_cast<std::size_t>(task);
        const std::size_t column = tasks.tile(t) * width;
        const std::size_t part = ceil_div(panels, tasks.parts_of(t)) * Unit::kRows,
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
    Packed* packed_b = Own(thread);
    SourceAhead nothing;
    Blocks walk = Walk();
    for (Block b; walk.next(b);) {
      const std::size_t width = round_up(t.columns, Unit::kColumns);
      PackParts<Role::b>(b_, t.column, t.columns, width, b, packed_b);
      const Packed* packed_a = Shared() + b.packed * padded * Parts() + first * b.stored;
      Pieces pieces(b, parts_, g_.swap_parts);
      for (Block piece; pieces.next(piece);) {
        RunTile(piece, t, packed_a + PartAt(piece.a_part, padded, b),
                packed_b + PartAt(piece.b_part, width, b), Temporary(thread), kColumns, t.rows, nothing);
      }
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
      const std::size_t padded = round_up(columns, Unit::kColumns);
      PackShared<Role::b>(b_, column, columns);
      std::size_t most = std::min(gemm_plan::kTaskRows / Unit::kRows, OwnStrips());
      if (pieces_ > 1 && sum_sets_ > 0) most = std::min(most, TemporaryRows(padded) / Unit::kRows);
      const std::size_t strips =
          gemm_plan::task_strips(ceil_div(m_, Unit::kRows), std::min(most, kLeastStrips), most, ctx_.threads);
      const std::size_t rows = strips * Unit::kRows;
      parallel_for(ctx_, Count(ceil_div(m_, rows)), [&](std::int64_t task, int thread) {
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
    Packed* packed_a = Own(thread);
    const std::size_t rows = round_up(t.rows, Unit::kRows);
    Blocks walk = Walk();
    Block b, next;
    for (bool more = walk.next(b); more; b = next) {
      PackParts<Role::a>(a_, t.row, t.rows, rows, b, packed_a);
      more = walk.next(next);
      SourceAhead ahead;
      // The hardware prefetches rows of A that are contiguous along k.
      if (more && !a_.depth_contiguous)
        ahead = {a_, t.row, t.rows, next.k, next.depth, Tiles(t.rows, t.columns)};
      const Packed* packed_b = Shared() + b.packed * padded * Parts();
      for (std::size_t j = 0; j < t.columns; j += kColumns) {
        const GemmTile tile{t.row, t.rows, t.column + j, std::min(kColumns, t.columns - j)};
        const bool one = pieces_ == 1;
        Pieces pieces(b, parts_, g_.swap_parts);
        for (Block piece; pieces.next(piece);) {
          RunTile(piece, tile, packed_a + PartAt(piece.a_part, rows, b),
                  packed_b + PartAt(piece.b_part, padded, b) + j * b.stored,
                  Temporary(thread) + (one ? 0 : j), one ? kColumns : padded, rows, ahead);
        }
      }
    }
  }

  /// Packs sides [first, first + sides) of the shared operand. Each task packs every `slices`-th block of
  /// some sides. If sides are adjacent in memory, blocks are distributed before sides, so that reads are long
  /// runs.
  template <Role kRole>
  void PackShared(const PackSource& from, std::size_t first, std::size_t sides) const {
    constexpr std::size_t kPanel = kRole == Role::a ? Unit::kRows : Unit::kColumns;
    constexpr std::size_t kUnit = kPanel % HWY_LANES(T) == 0 ? kPanel : 8 * kPanel;  // whole vectors
    const std::size_t padded = round_up(sides, kPanel), wanted = gemm_plan::tasks_wanted(ctx_.threads);
    const std::size_t slices = from.depth_contiguous ? 1 : std::min(wanted, total_.blocks);
    const std::size_t step = round_up(ceil_div(sides, ceil_div(wanted, slices)), kUnit);
    parallel_for(ctx_, Count(ceil_div(sides, step) * slices), [&](std::int64_t task, int) {
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

  /// Computes one block of a tile, strip by strip. Separate sums are at `temporary`, `ld` apart; each set is
  /// `rows` rows after the previous one: sums not in C, those of leaves, those of products of parts. With
  /// only one block a strip's sums are complete at once, so all strips share the same rows.
  void RunTile(const Block& b, const GemmTile& t, const Packed* packed_a, const Packed* packed_b,
               T* temporary, std::size_t ld, std::size_t rows, SourceAhead& ahead) const {
    for (std::size_t i = 0; i < t.rows; i += Unit::kRows) {
      const GemmTile strip{t.row + i, std::min(Unit::kRows, t.rows - i), t.column, t.columns};
      T* sums = temporary + (pieces_ == 1 ? 0 : i) * ld;
      RunStrip(b, strip, packed_a + i * b.stored, packed_b, sums, ld, rows * ld, ahead);
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
    const Sums to = part_sums_ > 0 ? Sums{parts.first + b.piece * set, ld} : leaf;
    for (std::size_t j = 0; j < t.columns; j += Unit::kColumns) {
      unit_.Multiply(g_.accumulator.order, b.depth, packed_a, packed_b + j * b.stored, to.first + j, to.ld,
                     t.rows, std::min(Unit::kColumns, t.columns - j), fresh ? TileStore::set : TileStore::add,
                     ahead.Next());
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

  std::size_t Parts() const { return static_cast<std::size_t>(parts_); }
  std::size_t PackedDepth() const { return total_.depth * Parts(); }
  static std::size_t Tiles(std::size_t rows, std::size_t columns) {
    return ceil_div(rows, Unit::kRows) * ceil_div(columns, Unit::kColumns);
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
  bool tiles_;             // tile order
  std::size_t part_sums_;  // products of parts with sums of their own
  gemm_plan::BlockSummary total_;
  std::size_t pieces_;  // chains per element
  gemm_plan::GemmScratch scratch_;
  bool direct_ = false;  // sums are in C itself
  bool rows_are_leaves_ = false;
  std::size_t sum_sets_ = 0;  // in the temporary: those not in C, those of leaves, those of parts
};

void GemmF32(const Context& ctx, const Gemm& g) {
  const UnitId unit = unit_of(ctx, g);
  const bool pairs = unit == UnitId::vdpbf16ps;
  const bool by_tiles = unit == UnitId::tdpbf16ps || unit == UnitId::tile_model;
  const bool packed = kernel_of(g) == ProductKernel::packed;
  if (by_tiles && !packed) {
    const ThinTileRun run(ctx, g);
    if (run.Fits()) return run.Run();
  }
  if (!packed && (!pairs || g.m <= kThinPairRows)) return ThinRun<float>(ctx, g, pairs).Run();
  if (by_tiles) {
    TileRun run(ctx, g);
    if (run.Fits()) return run.Run();
  }
  if (by_tiles) {
    GemmRun<TileUnit> run(ctx, g);
    if (run.Fits()) return run.Run();
  }
#if HWY_TARGET == HWY_AVX3
  if (pairs) {
    GemmRun<PairUnit> run(ctx, g);
    if (run.Fits()) return run.Run();
  }
#endif
  GemmRun<FmaUnit<float>>(ctx, g).Run();
}
/// Runs the products in one loop if their kernels can. Returns false if it has computed nothing.
bool TogetherF32(const Context& ctx, std::span<const Gemm> products) {
  const UnitId unit = unit_of(ctx, products[0]);
  const bool pairs = unit == UnitId::vdpbf16ps;
  const bool thin = std::ranges::all_of(products, [&](const Gemm& g) {
    return unit_of(ctx, g) == unit && kernel_of(g) != ProductKernel::packed;
  });
  if (!thin || unit == UnitId::tdpbf16ps || unit == UnitId::tile_model) return false;
  if (pairs && products[0].m > kThinPairRows) return false;
  ThinRun<float>::RunTogether(ctx, products, pairs);
  return true;
}

void GemmF64(const Context& ctx, const Gemm& g) {
  if (kernel_of(g) != ProductKernel::packed) return ThinRun<double>(ctx, g, false).Run();
  GemmRun<FmaUnit<double>>(ctx, g).Run();
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {
namespace {

HWY_EXPORT(GemmF32);
HWY_EXPORT(TogetherF32);
HWY_EXPORT(GemmF64);

}  // namespace

void gemm(const Context& ctx, const Gemm& g) {
  if (g.m <= 0 || g.n <= 0) return;
  check(ctx, g);
  if (arithmetic_of(g) == Scalar::f64) {
    HWY_DISPATCH_TABLE(GemmF64)[ctx.target()](ctx, g);
  } else {
    HWY_DISPATCH_TABLE(GemmF32)[ctx.target()](ctx, g);
  }
}

void gemm_together(const Context& ctx, std::span<const Gemm> products) {
  const Gemm& first = products[0];
  const auto alike = [&](const Gemm& g) {
    return arithmetic_of(g) == Scalar::f32 && g.m == first.m && g.k == first.k && g.k > 0 && g.n > 0 &&
           g.n % kInterleaved == 0 && g.a.matrix.data == first.a.matrix.data &&
           g.a.operand == first.a.operand && g.accumulator == first.accumulator && g.rows.empty();
  };
  if (products.size() > 1 && first.m > 0 && std::ranges::all_of(products, alike)) {
    for (const Gemm& g : products) check(ctx, g);
    if (HWY_DISPATCH_TABLE(TogetherF32)[ctx.target()](ctx, products)) return;
  }
  for (const Gemm& g : products) gemm(ctx, g);
}

}  // namespace mantissa::kernels
#endif  // HWY_ONCE
