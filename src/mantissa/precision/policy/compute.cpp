#include "mantissa/precision/policy/compute.h"

#include <array>
#include <string>

#include "mantissa/core/base/words.h"

namespace mantissa::precision {
namespace {

constexpr ComputeTraits plain(Scalar s) {
  return {name(s), s, s, s};
}
/// f32 values as sums of bf16 parts.
constexpr ComputeTraits split(std::string_view name, int parts) {
  return {name, Factor(Scalar::bf16, parts), Scalar::bf16, Scalar::f32};
}
constexpr ComputeTraits by_tensor(std::string_view name, Scalar forward, Scalar gradient,
                                  Scalar stored = Scalar::bf16) {
  return {name, forward, gradient, stored, Scaled::tensor};
}
constexpr ComputeTraits by_block(std::string_view name, BlockFormat block) {
  return {name, Scalar::bf16, Scalar::bf16, Scalar::bf16, Scaled::block, block};
}

// The plain formats come first, in the order of Scalar.
constexpr std::array kTable = {
    plain(Scalar::f64),
    plain(Scalar::f32),
    ComputeTraits{"tf32", Scalar::tf32, Scalar::tf32, Scalar::f32},
    plain(Scalar::bf16),
    plain(Scalar::f16),
    by_tensor("e5m2", Scalar::e5m2, Scalar::e5m2),
    by_tensor("e4m3", Scalar::e4m3, Scalar::e4m3),
    by_tensor("fp8-hybrid", Scalar::e4m3, Scalar::e5m2),
    by_tensor("fp8-hybrid-f16", Scalar::e4m3, Scalar::e5m2, Scalar::f16),
    split("bf16x1", 1),
    split("bf16x3", 2),
    split("bf16x6", 3),
    by_block("mxfp8", BlockFormat::mxfp8),
    by_block("mxfp8-e5m2", BlockFormat::mxfp8_e5m2),
    by_block("mxfp6-e2m3", BlockFormat::mxfp6_e2m3),
    by_block("mxfp6-e3m2", BlockFormat::mxfp6_e3m2),
    by_block("mxfp4", BlockFormat::mxfp4),
    by_block("nvfp4", BlockFormat::nvfp4),
};

}  // namespace

Compute::Compute(Scalar s) : traits_(&kTable.at(static_cast<std::size_t>(s))) {}

std::span<const ComputeTraits> Compute::all() {
  return kTable;
}

std::optional<Compute> Compute::parse(std::string_view text) {
  const std::string word = lowered(text);
  for (const ComputeTraits& row : kTable) {
    if (row.name == word) return Compute(row);
  }
  const std::optional<Scalar> scalar = parse_scalar(text);
  return scalar ? std::optional(Compute(*scalar)) : std::nullopt;
}

}  // namespace mantissa::precision
