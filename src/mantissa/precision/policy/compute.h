// The values of a policy's `compute`: the formats of product operands and of stored results.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "mantissa/core/numeric/factor.h"
#include "mantissa/core/numeric/format.h"
#include "mantissa/core/numeric/scaled.h"

namespace mantissa::precision {

/// The scales of product operands: none, one per tensor, or one per block of elements along the sum.
enum class Scaled : std::uint8_t { none, tensor, block };

/// A row of the table of `compute` values.
struct ComputeTraits {
  std::string_view name;
  Factor factor;    // of product operands
  Scalar gradient;  // of operands that are gradients; equals `factor` for plain formats
  Scalar stored;    // of activations, results, and operands of ops that are not Linear
  Scaled scaled = Scaled::none;
  BlockFormat block = BlockFormat::mxfp8;  // used when scaled by blocks
};

/// One value of `compute`: a plain format, or one that only product operands can have. The latter are tf32;
/// bf16 in one, two or three parts, with f32 elsewhere; and 8- and 4-bit formats with scales in Linear ops,
/// with bf16 elsewhere (f16 for fp8-hybrid-f16).
class Compute {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): a number format is a value of `compute`
  Compute(Scalar s);
  /// Returns the value with the name `text` ("bf16", "bf16x3", "mxfp4", "bfloat16" …), or null.
  static std::optional<Compute> parse(std::string_view text);
  static std::span<const ComputeTraits> all();

  const ComputeTraits* operator->() const { return traits_; }
  friend bool operator==(const Compute&, const Compute&) = default;

 private:
  explicit Compute(const ComputeTraits& traits) : traits_(&traits) {}
  const ComputeTraits* traits_;
};

}  // namespace mantissa::precision
