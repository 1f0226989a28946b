// Products of attention in tile order (SumOrder::tile) on operands in place.
#if defined(MANTISSA_KERNELS_CPU_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_ATTENTION_TILE_INL_H_
#undef MANTISSA_KERNELS_CPU_ATTENTION_TILE_INL_H_
#else
#define MANTISSA_KERNELS_CPU_ATTENTION_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/kernels/cpu/attention/attention-inl.h"
#include "mantissa/kernels/cpu/gemm/microkernel_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace attention_parts {

// A part of a block starts with a whole block of terms.
static_assert(kKeyBlock % kTileBlock == 0 && kQueryBlock % kTileBlock == 0 && kKeyPart % kTileBlock == 0);

/// C[kRows, kVectors] from A[kRows, depth] · B[depth, kVectors]: each element is a tile sum whose terms are
/// numbered from `first`. The chains of a block are those of every second term, in either order, because
/// their sum is commutative.
template <Left kLeft, std::size_t kRows, std::size_t kVectors>
HWY_NOINLINE void TileSums(const float* HWY_RESTRICT a, std::size_t a_stride, const float* HWY_RESTRICT b,
                           std::size_t b_stride, std::size_t first, std::size_t depth, float* HWY_RESTRICT c,
                           std::size_t c_stride, Into into) {
  const hn::ScalableTag<float> d;
  constexpr std::size_t kLanes = HWY_LANES(float);
  using V = hn::Vec<decltype(d)>;
  HWY_ALIGN float apart[kRows * kVectors * kLanes];
  float* sums = into == Into::add ? apart : c;
  const std::size_t ld = into == Into::add ? kVectors * kLanes : c_stride;
  bool from_zero = into != Into::extend;
  for (std::size_t k = 0; k < depth; from_zero = false) {
    const std::size_t end = std::min(depth, k + kTileBlock - (first + k) % kTileBlock);
    V some[kRows][kVectors], others[kRows][kVectors];  // each has every second term
    HWY_UNROLL(8)
    for (std::size_t i = 0; i < kRows; ++i) {
      HWY_UNROLL(2)
      for (std::size_t j = 0; j < kVectors; ++j) some[i][j] = others[i][j] = hn::Zero(d);
    }
    const auto multiply = [&](V(&chains)[kRows][kVectors]) HWY_ATTR {
      V right[kVectors];
      HWY_UNROLL(2)
      for (std::size_t j = 0; j < kVectors; ++j) right[j] = hn::LoadU(d, b + k * b_stride + j * kLanes);
      HWY_UNROLL(8)
      for (std::size_t i = 0; i < kRows; ++i) {
        const V left = hn::Set(d, kLeft == Left::rows ? a[i * a_stride + k] : a[k * a_stride + i]);
        HWY_UNROLL(2)
        for (std::size_t j = 0; j < kVectors; ++j) chains[i][j] = hn::MulAdd(left, right[j], chains[i][j]);
      }
      ++k;
    };
    while (k + 2 <= end) {
      multiply(some);
      multiply(others);
    }
    if (k < end) multiply(some);
    HWY_UNROLL(8)
    for (std::size_t i = 0; i < kRows; ++i) {
      HWY_UNROLL(2)
      for (std::size_t j = 0; j < kVectors; ++j) {
        float* to = sums + i * ld + j * kLanes;
        const V before = from_zero ? hn::Zero(d) : hn::LoadU(d, to);
        hn::StoreU(hn::Add(before, hn::Add(some[i][j], others[i][j])), d, to);
      }
    }
  }
  if (into != Into::add) return;
  for (std::size_t i = 0; i < kRows; ++i) {
    for (std::size_t j = 0; j < kVectors * kLanes; j += kLanes) {
      float* to = c + i * c_stride + j;
      hn::StoreU(hn::Add(hn::LoadU(d, to), hn::Load(d, apart + i * ld + j)), d, to);
    }
  }
}

template <Left kLeft, std::size_t kVectors, std::size_t... kRow>
constexpr auto TileSumsTable(std::index_sequence<kRow...>) {
  return std::array{&TileSums<kLeft, kRow + 1, kVectors>...};
}

/// `Product` in tile order: term 0 of each sum has the number `first`.
template <Left kLeft>
void TileProduct(std::size_t rows, const float* a, std::size_t a_stride, const float* b, std::size_t b_stride,
                 std::size_t columns, std::size_t first, std::size_t depth, float* c, std::size_t c_stride,
                 Into into) {
  static constexpr auto kPairs = TileSumsTable<kLeft, 2>(std::make_index_sequence<kTileRows>());
  static constexpr auto kSingles = TileSumsTable<kLeft, 1>(std::make_index_sequence<kTileRows>());
  constexpr std::size_t kLanes = HWY_LANES(float);
  const std::size_t step = kLeft == Left::rows ? a_stride : 1;
  for (std::size_t shares = (rows + kTileRows - 1) / kTileRows; shares > 0; --shares) {
    const std::size_t share = (rows + shares - 1) / shares;
    for (std::size_t j = 0; j < columns; j += 2 * kLanes) {
      const auto& table = j + kLanes < columns ? kPairs : kSingles;
      table[share - 1](a, a_stride, b + j, b_stride, first, depth, c + j, c_stride, into);
    }
    rows -= share;
    a += share * step;
    c += share * c_stride;
  }
}

/// `TileProduct` of operands in `parts` parts, smallest terms first. Each product of parts is a tile sum of
/// its own. Into::extend continues these sums, which are `c_plane` apart; otherwise their total is set or
/// added.
template <Left kLeft>
void TileProductOfParts(int parts, std::size_t rows, Planes<float> a, std::size_t a_stride, Planes<float> b,
                        std::size_t b_stride, std::size_t columns, std::size_t first, std::size_t depth,
                        float* c, std::size_t c_stride, std::size_t c_plane, Into into) {
  const auto each = [&](std::size_t column, std::size_t width, float* to, std::size_t ld, std::size_t plane,
                        Into how) {
    for (int sum = parts - 1; sum >= 0; --sum) {
      for (int i = sum; i >= 0; --i, to += plane) {
        TileProduct<kLeft>(rows, a.part(i), a_stride, b.part(sum - i) + column, b_stride, width, first, depth,
                           to, ld, how);
        if (how == Into::set) how = Into::add;
      }
    }
  };
  if (into != Into::add || parts == 1)
    return each(0, columns, c, c_stride, into == Into::extend ? c_plane : 0, into);
  const hn::ScalableTag<float> d;
  HWY_ALIGN float total[kMr * kNr<float>];
  for (std::size_t column = 0; column < columns; column += kNr<float>) {
    const std::size_t width = std::min(kNr<float>, columns - column);
    each(column, width, total, kNr<float>, 0, Into::set);
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = 0; j < width; j += hn::Lanes(d)) {
        float* to = c + i * c_stride + column + j;
        hn::StoreU(hn::Add(hn::LoadU(d, to), hn::Load(d, total + i * kNr<float> + j)), d, to);
      }
    }
  }
}

}  // namespace attention_parts
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_ATTENTION_TILE_INL_H_
