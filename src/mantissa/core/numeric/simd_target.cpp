#include "mantissa/core/numeric/simd_target.h"

#include <hwy/highway.h>

namespace mantissa {

std::vector<SimdTarget> simd_targets() {
  std::vector<SimdTarget> targets;
  for (std::int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    targets.push_back(left & -left);
  }
  return targets;
}

std::size_t simd_index(SimdTarget target) {
  constexpr bool kOnlyOne = (HWY_TARGETS & (HWY_TARGETS - 1)) == 0;  // of a build with sanitizers
  if (kOnlyOne) return 0;
  const auto index_of = [](std::int64_t targets) {
    hwy::ChosenTarget chosen;  // a local choice: it does not change the process's
    chosen.Update(targets);
    return chosen.GetIndex();
  };
  static const std::size_t best = index_of(hwy::SupportedTargets());  // slow in virtual machines
  return target == kBestTarget ? best : index_of(target);
}

}  // namespace mantissa
