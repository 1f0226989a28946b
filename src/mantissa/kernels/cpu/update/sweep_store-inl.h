// The store of a sweep's results, with each output's rounding.
#if defined(MANTISSA_KERNELS_CPU_SWEEP_STORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_SWEEP_STORE_INL_H_
#undef MANTISSA_KERNELS_CPU_SWEEP_STORE_INL_H_
#else
#define MANTISSA_KERNELS_CPU_SWEEP_STORE_INL_H_
#endif

#include <cstddef>
#include <type_traits>

#include "mantissa/core/numeric/stochastic-inl.h"
#include "mantissa/kernels/cpu/update/sweep_machine-inl.h"
#include "mantissa/kernels/sweep.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

/// Rounds a tile's row to an output's format and stores it at `to` from element `at` on.
template <class T>
void StoreRounded(const T* row, const Tile& tile, const SweepOutput& output, void* to, std::size_t at,
                  const RandomStream& stream) {
  if constexpr (std::is_same_v<T, float>) {
    mantissa::HWY_NAMESPACE::StoreRowRounded(row, tile.n, to, output.type, at, output.rounding, stream,
                                             tile.offset);
  } else {
    StoreRow(row, tile.n, to, output.type, at);
  }
}

inline RandomStream StreamOf(const Sweep& s, const SweepOutput& output) {
  return {s.key.seed, output.random, s.key.name_hash, s.key.step};
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_SWEEP_STORE_INL_H_
