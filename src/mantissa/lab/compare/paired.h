// Differences of two policies that ran with the same seeds, and how exactly their mean is known.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "mantissa/lab/compare/compare.h"

namespace mantissa::lab {

/// Equal policies are called different in one of this many comparisons, at most.
inline constexpr double kComparisonsPerFalseCall = 25;
/// With fewer degrees of freedom, a difference of three standard errors may be chance.
inline constexpr double kLeastDegrees = 4;

/// A seed, and the differences of the two runs with it at their common steps.
struct SeedDifferences {
  std::uint64_t seed = 0;
  std::vector<StepDifference> steps;
};

/// Returns the mean over the seeds of the mean difference over the last tenth of the steps, or null if no
/// seed has one that is finite.
///
/// Few seeds know their own spread badly, so the error uses more than K last values. The last six tenths of
/// the steps are windows of a tenth each. In each window, the variance of the K mean differences is compared
/// with the variance that they would have if steps were independent, which many steps know well. The mean
/// ratio of the windows, at least 1, times that variance of the last window is the variance of a mean
/// difference: so a noise that grows or shrinks with the steps does no harm. The windows count as (K − 1) W /
/// Σ ρ² degrees of freedom for W windows whose differences correlate by ρ (Bartlett's formula), which is K −
/// 1 if the seeds keep their differences through all windows. With fewer than 2 steps in a window the error
/// is that of the K last values alone, with K − 1 degrees.
std::optional<PairedGap> paired_gap(std::span<const SeedDifferences> pairs);

}  // namespace mantissa::lab
