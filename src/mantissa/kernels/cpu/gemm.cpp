// The matrix product: packing, tiles, leaves and the epilogue. How work is cut: kernels/cpu/gemm_plan.h.
#include "mantissa/kernels/gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "mantissa/base/error.h"
#include "mantissa/kernels/cpu/gemm_blocks.h"
#include "mantissa/kernels/cpu/gemm_plan.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/gemm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/kernels/cpu/gemm_pack-inl.h"
#include "mantissa/kernels/cpu/microkernel-inl.h"
#include "mantissa/numeric/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

using mantissa::HWY_NAMESPACE::LoadRow;
using mantissa::HWY_NAMESPACE::RoundRow;
using mantissa::HWY_NAMESPACE::StoreRow;
using mantissa::HWY_NAMESPACE::ViewRow;

/// Rows [row, row + rows) × columns [column, column + columns) of C.
struct Tile {
  std::size_t row, rows, column, columns;
};

/// One product, cut for `ctx.threads` threads.
template <class T>
class Product {
 public:
  Product(const Context& ctx, const Gemm& g)
      : ctx_(ctx),
        g_(g),
        m_(static_cast<std::size_t>(g.m)),
        n_(static_cast<std::size_t>(g.n)),
        a_{g.a.matrix.data, g.a.matrix.type, g.a.operand, static_cast<std::size_t>(g.a.matrix.ld), !g.a.transposed},
        b_{g.b.matrix.data, g.b.matrix.type, g.b.operand, static_cast<std::size_t>(g.b.matrix.ld), g.b.transposed},
        one_row_{0, g.k},
        sums_(summarize(blocks())),
        direct_(g.c.type == kScalar && g.bias == nullptr && g.addend.data == nullptr &&
                (kScalar == Scalar::f64 || kHolds(g.rounded))),
        scratch_(m_, static_cast<std::size_t>(g.k), sizeof(T)) {
    if (g.m * g.n * g.k < kParallelWork) ctx_.threads = 1;
    columns_ = tile_columns(n_, kNr<T>, sizeof(T), ctx_.threads);
    // The sum of a leaf needs memory of its own where there is already something to add it to.
    leaf_sums_ = !g.continue_blocks && (sums_.long_leaf || (g.accumulate && sums_.long_first_leaf));
    const bool two_temporaries = leaf_sums_ && !direct_;
    temporary_rows_ = two_temporaries ? scratch_.temporary_rows / 2 / kRowUnit * kRowUnit : scratch_.temporary_rows;
    chunk_ = chunk_rows(m_, sums_.depth, temporary_rows_);
    packed_a_ = reinterpret_cast<T*>(ctx_.workspace);
  }

  void Run() {
    if (sums_.blocks == 0) return Clear();
    for (std::size_t row = 0; row < m_; row += chunk_) RunChunk(row, std::min(chunk_, m_ - row));
  }

 private:
  static constexpr Scalar kScalar = std::is_same_v<T, double> ? Scalar::f64 : Scalar::f32;
  static constexpr std::size_t kMostColumns = kTileBytes / sizeof(T);
  static constexpr bool kHolds(Scalar rounded) { return Holds(rounded, kScalar); }

  Blocks blocks() const { return Blocks(g_.rows, g_.rows_per_leaf, one_row_); }
  T* packed_b(int thread) const {
    return packed_a_ + scratch_.a + static_cast<std::size_t>(thread) * (scratch_.b + scratch_.temporary);
  }
  T* temporary(int thread) const { return packed_b(thread) + scratch_.b; }
  T* c_at(std::size_t row, std::size_t column) const {
    return static_cast<T*>(g_.c.data) + row * static_cast<std::size_t>(g_.c.ld) + column;
  }

  /// Packs rows [row, row + rows) of A and multiplies them.
  void RunChunk(std::size_t row, std::size_t rows) {
    constexpr std::size_t kPanelsPerTask = 4;
    const std::size_t panels = ceil_div(rows, kMr), padded = panels * kMr;
    parallel_for(ctx_, static_cast<std::int64_t>(ceil_div(panels, kPanelsPerTask)), [&](std::int64_t task, int) {
      const std::size_t first = static_cast<std::size_t>(task) * kPanelsPerTask * kMr;
      PackChunk(row, first, std::min(kPanelsPerTask * kMr, rows - first), padded);
    });
    const std::size_t tiles = ceil_div(n_, columns_);
    const std::size_t wanted = ctx_.threads == 1 ? 1 : kTasksPerThread * static_cast<std::size_t>(ctx_.threads);
    const std::size_t part = ceil_div(panels, std::min(panels, ceil_div(wanted, tiles))) * kMr;
    const std::size_t parts = ceil_div(rows, part);
    parallel_for(ctx_, static_cast<std::int64_t>(tiles * parts), [&](std::int64_t task, int thread) {
      const std::size_t column = static_cast<std::size_t>(task) / parts * columns_;
      const std::size_t first = static_cast<std::size_t>(task) % parts * part;
      const Tile tile{row + first, std::min(part, rows - first), column, std::min(columns_, n_ - column)};
      RunTile(tile, packed_a_ + first * sums_first_depth(), first, padded, thread);
    });
  }

  void PackChunk(std::size_t row, std::size_t first, std::size_t rows, std::size_t padded) const {
    Blocks walk = blocks();
    for (Block b; walk.next(b);) {
      PackA<T>(a_, row + first, rows, b.k, b.depth, packed_a_ + b.packed * padded + first * b.depth);
    }
  }

  Context ctx_;
  const Gemm& g_;
  std::size_t m_, n_;
  PackSource a_, b_;
  Row one_row_;
  BlockSummary sums_;
  bool direct_;
  GemmScratch scratch_;
  std::size_t columns_ = 0, chunk_ = 0, temporary_rows_ = 0;
  bool leaf_sums_ = false;
  T* packed_a_ = nullptr;
};

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();
