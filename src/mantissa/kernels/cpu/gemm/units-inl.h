// The units that multiply packed operands: how a panel lies, how it is packed, and how two panels are
// multiplied. All units give the same bits.
#if defined(MANTISSA_KERNELS_CPU_GEMM_UNITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_UNITS_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_UNITS_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_UNITS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mantissa/core/numeric/factor.h"
#include "mantissa/kernels/cpu/cards/card_product-inl.h"
#include "mantissa/kernels/cpu/gemm/check.h"
#include "mantissa/kernels/cpu/gemm/microkernel-inl.h"
#include "mantissa/kernels/cpu/gemm/microkernel_tile-inl.h"
#include "mantissa/kernels/cpu/gemm/pack-inl.h"
#include "mantissa/kernels/cpu/gemm/pairs-inl.h"
#include "mantissa/kernels/cpu/gemm/tiles-inl.h"
#include "mantissa/kernels/cpu/tiles/tile_panels-inl.h"
#include "mantissa/kernels/guard_count.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

/// The operand that a panel holds: kRows rows of A, or kColumns columns of B.
enum class Role { a, b };

// A unit names the type of sums and of packed operands, the sides of its panels, and the longest block that
// it multiplies at once in tile order. Stored(depth) is the number of places that a side takes in a packed
// block. A Scope lives in every task while it multiplies.

/// Fused multiply-adds in T, in either order (f64: the chain), and the sums of cards.
template <class T>
class FmaUnit {
 public:
  using Sum = T;
  using Packed = T;
  static constexpr std::size_t kRows = kMr, kColumns = kNr<T>, kLongest = kSumBlock;
  struct Scope {
    explicit Scope(const FmaUnit& /*unit*/) {}
  };
  FmaUnit(const Context& /*ctx*/, const Gemm& g) : card_(card_sum_of(g)) {}
  static std::size_t Stored(std::size_t depth) { return depth; }
  template <Role kRole>
  static void Pack(const PackSource& from, std::size_t first, std::size_t sides, std::size_t first_depth,
                   std::size_t depth, T* to) {
    PackPanels<kRole == Role::a ? kRows : kColumns>(from, first, sides, first_depth, depth, to);
  }
  void Multiply(SumOrder order, std::size_t depth, const T* a, const T* b, T* c, std::size_t ldc,
                std::size_t m, std::size_t n, TileStore store, const TileAhead& ahead) const {
    if constexpr (std::is_same_v<T, float>) {
      if (order == SumOrder::tile) return TileMicrokernel(depth, a, b, c, ldc, m, n, store, ahead.lines);
      if (order == SumOrder::card) return CardMicrokernel(card_, depth, a, b, c, ldc, m, n, store);
    }
    Microkernel<T>(depth, a, b, c, ldc, m, n, store, ahead);
  }

 private:
  CardSum card_;
};

#if HWY_TARGET == HWY_AVX3
/// VDPBF16PS, for factors that are bf16 values, in tile order.
struct PairUnit {
  using Sum = float;
  using Packed = std::uint16_t;
  static constexpr std::size_t kRows = kMr, kColumns = kNr<float>, kLongest = kSumBlock;
  struct Scope : GuardTask {
    explicit Scope(const PairUnit& /*unit*/) {}
  };
  PairUnit(const Context& /*ctx*/, const Gemm& /*g*/) {}
  static std::size_t Stored(std::size_t depth) { return pairs::packed_depth(depth); }
  template <Role kRole>
  static void Pack(const PackSource& from, std::size_t first, std::size_t sides, std::size_t first_depth,
                   std::size_t depth, Packed* to) {
    pairs::Pack<kRole == Role::a ? kRows : kColumns>(from, first, sides, first_depth, depth, to);
  }
  static void Multiply(SumOrder /*order*/, std::size_t depth, const Packed* a, const Packed* b, float* c,
                       std::size_t ldc, std::size_t m, std::size_t n, TileStore store,
                       const TileAhead& ahead) {
    pairs::Multiply(depth, a, b, c, ldc, m, n, store, ahead.lines);
  }
};
#endif

/// TDPBF16PS of AMX, or its model, for factors that are bf16 values, in tile order.
class TileUnit {
 public:
  using Sum = float;
  using Packed = std::uint16_t;
  static constexpr std::size_t kRows = tiles::kSides, kColumns = tiles::kSides, kLongest = tiles::kLongest;

  struct Scope : tiles::Scope {
    explicit Scope(const TileUnit& unit) : tiles::Scope(unit.model_) {}
  };

  explicit TileUnit(const Context& ctx) : model_(ctx.simd == Simd::amx_model) {}
  TileUnit(const Context& ctx, const Gemm& /*g*/) : TileUnit(ctx) {}
  static std::size_t Stored(std::size_t depth) { return tiles::packed_depth(depth); }
  template <Role kRole>
  static void Pack(const PackSource& from, std::size_t first, std::size_t sides, std::size_t first_depth,
                   std::size_t depth, Packed* to) {
    if (kRole == Role::a) return tiles::PackOrRefer(from, first, sides, first_depth, depth, to);
    tiles::Pack(from, true, first, sides, first_depth, depth, to);
  }
  void Multiply(SumOrder /*order*/, std::size_t depth, const Packed* a, const Packed* b, float* c,
                std::size_t ldc, std::size_t m, std::size_t n, TileStore store,
                const TileAhead& ahead) const {
    WithTiles([&]<class Tiles>() { tiles::Multiply<Tiles>(depth, a, b, c, ldc, m, n, store, ahead.lines); });
  }
  /// Calls f.operator()<Tiles>() for the class of the tiles, which a Scope must have configured.
  template <class F>
  void WithTiles(const F& f) const {
    model_ ? f.template operator()<ModelTiles>() : f.template operator()<tiles::Amx>();
  }

 private:
  bool model_;
};

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_GEMM_UNITS_INL_H_
