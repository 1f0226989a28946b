// The tile registers of AMX, and TDPBF16PS, which multiplies two of them: 16 × 16 sums of 32 products of
// bf16.
//
// A tile has 16 rows of 64 bytes. A tile of A holds a row of A in each: 32 terms. A tile of B holds two terms
// of 16 columns in each: B[2p, j] and B[2p + 1, j] side by side. For every element of C, multiply_add()
// computes one chain of fused multiply-adds from zero over the 16 even and one over the 16 odd terms, in
// ascending order, and adds the sum of the two to C. Each operation rounds to nearest even, takes subnormal
// operands as zero and returns zero for a subnormal result; MXCSR has no effect (Intel SDM, TDPBF16PS).
//
// Written in assembly because GCC 12's intrinsics do not declare the memory that they read and accept only
// literal numbers of tiles. cpu/model_tiles.h has the same interface on every machine.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mantissa::kernels {

/// Rows of a tile, and bytes of its row.
inline constexpr std::size_t kTileRegisterRows = 16, kTileRowBytes = 64;

/// Returns true if the processor has AMX for bf16 and the system lets this process use it. The first call
/// asks the system for the permission, which holds for all threads.
bool has_amx_tiles();

#if defined(__x86_64__)

class HardwareTiles {
 public:
  /// Configures all eight tiles of the calling thread, with zeros, and releases them at its end. They are
  /// usable only in its lifetime.
  class Scope {
   public:
    Scope() {
      const Configuration all;
      __asm__ volatile("ldtilecfg %0" ::"m"(all) : "memory");
    }
    ~Scope() { __asm__ volatile("tilerelease" ::: "memory"); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };

  /// Loads the rows of a tile, `stride` bytes apart.
  template <int kTile>
  __attribute__((always_inline)) void load(const void* rows, std::size_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(rows), "r"(stride), "i"(kTile) : "memory");
  }
  /// The same, with a hint that the rows are not soon loaded again.
  template <int kTile>
  __attribute__((always_inline)) void load_once(const void* rows, std::size_t stride) {
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(rows), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  __attribute__((always_inline)) void zero() {
    __asm__ volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  /// C += A · B in tiles kC, kA and kB, which must differ.
  template <int kC, int kA, int kB>
  __attribute__((always_inline)) void multiply_add() {
    static_assert(kC != kA && kC != kB && kA != kB);
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
  }
  /// Stores the rows of a tile, `stride` bytes apart.
  template <int kTile>
  __attribute__((always_inline)) void store(void* rows, std::size_t stride) const {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(rows), "r"(stride), "i"(kTile) : "memory");
  }

 private:
  /// The operand of LDTILECFG in palette 1.
  struct alignas(64) Configuration {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};  // the last eight are reserved
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  static_assert(sizeof(Configuration) == 64);
};

#endif

}  // namespace mantissa::kernels
