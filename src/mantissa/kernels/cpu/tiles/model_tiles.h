// A model of AMX's tiles (cpu/amx_tiles.h) in plain C++, with the bits of the instructions, to test on any
// machine what runs on those with AMX. Slow.
#pragma once

#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "mantissa/kernels/cpu/tiles/amx_tiles.h"

namespace mantissa::kernels {

class ModelTiles {
 public:
  /// As HardwareTiles::Scope. The registers themselves belong to the objects of this class.
  class Scope {
   public:
    Scope() { configured_ = true; }
    ~Scope() { configured_ = false; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };

  ModelTiles() { assert(configured_); }

  template <int kTile>
  void load_once(const void* rows, std::size_t stride) {
    load<kTile>(rows, stride);
  }
  template <int kTile>
  void load(const void* rows, std::size_t stride) {
    for (std::size_t i = 0; i < kTileRegisterRows; ++i)
      std::memcpy(tiles_[kTile].words[i], static_cast<const std::byte*>(rows) + i * stride, kTileRowBytes);
  }
  template <int kTile>
  void zero() {
    tiles_[kTile] = {};
  }
  template <int kC, int kA, int kB>
  __attribute__((always_inline)) void multiply_add() {
    add_product(tiles_[kA], tiles_[kB], tiles_[kC]);
  }
  template <int kTile>
  void store(void* rows, std::size_t stride) const {
    for (std::size_t i = 0; i < kTileRegisterRows; ++i)
      std::memcpy(static_cast<std::byte*>(rows) + i * stride, tiles_[kTile].words[i], kTileRowBytes);
  }

 private:
  static constexpr std::size_t kPairs = kTileRowBytes / 4;
  struct Tile {
    std::uint32_t words[kTileRegisterRows][kPairs];  // pairs of bf16, the first in the low half, or f32
  };

  /// Returns zero with the sign of x if x is subnormal, else x.
  static __attribute__((always_inline)) float flushed(float x) {
    return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0F, x) : x;
  }
  /// Returns x · y + z with one rounding, or zero with its sign if that is below 2^-126 after rounding to 24
  /// bits. A result that is subnormal rounds to fewer bits, perhaps up to 2^-126, so a scaled one decides.
  /// Scaling overflows only where x · y + z is far from it.
  static __attribute__((always_inline)) float fused(float x, float y, float z) {
    constexpr float kScale = 0x1p64F, kScaledLeast = 0x1p-62F;
    const float result = __builtin_fmaf(x, y, z);
    const float scaled = __builtin_fmaf(x * kScale, y, z * kScale);
    return std::abs(scaled) < kScaledLeast ? std::copysign(0.0F, result) : result;
  }
  static __attribute__((always_inline)) float as_float(std::uint32_t bits) {
    float x = 0;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  }
  static __attribute__((always_inline)) float first(std::uint32_t pair) {
    return flushed(as_float(pair << 16U));
  }
  static __attribute__((always_inline)) float second(std::uint32_t pair) {
    return flushed(as_float(pair & 0xffff0000U));
  }

  /// Inlined into kernels, so it uses their instruction set's fused multiply-add.
  static __attribute__((always_inline)) void add_product(const Tile& a, const Tile& b, Tile& c) {
    float of_even[kPairs][kPairs], of_odd[kPairs][kPairs];  // B's terms
    for (std::size_t p = 0; p < kPairs; ++p) {
      for (std::size_t j = 0; j < kPairs; ++j) {
        of_even[p][j] = first(b.words[p][j]);
        of_odd[p][j] = second(b.words[p][j]);
      }
    }
    for (std::size_t i = 0; i < kTileRegisterRows; ++i) {
      float even[kPairs] = {}, odd[kPairs] = {};
      for (std::size_t p = 0; p < kPairs; ++p) {
        const float x = first(a.words[i][p]), y = second(a.words[i][p]);
        for (std::size_t j = 0; j < kPairs; ++j) {
          even[j] = fused(x, of_even[p][j], even[j]);
          odd[j] = fused(y, of_odd[p][j], odd[j]);
        }
      }
      for (std::size_t j = 0; j < kPairs; ++j) {
        const float before = flushed(as_float(c.words[i][j]));
        const float after = flushed(before + flushed(even[j] + odd[j]));
        std::memcpy(&c.words[i][j], &after, sizeof after);
      }
    }
  }

  static inline constinit thread_local bool configured_ = false;
  Tile tiles_[8];
};

}  // namespace mantissa::kernels
