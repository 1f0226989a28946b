// What a policy's `compute` can be: the formats of factors of products, and what results are kept in.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "mantissa/numeric/factor.h"
#include "mantissa/numeric/format.h"
#include "mantissa/numeric/scaled.h"

namespace mantissa::precision {

/// How factors get a scale: not at all, one for a tensor, or one for each block of elements along the sum.
enum class Scaled : std::uint8_t { none, tensor, block };

/// A row of the table of `compute`.
struct ComputeTraits {
  std::string_view name;
  Factor factor;    // of products
  Scalar gradient;  // of factors that are gradients; else as `factor`
  Scalar stored;    // of activations and results, and of factors in ops that are not Linear
  Scaled scaled = Scaled::none;
  BlockFormat block = BlockFormat::mxfp8;  // where scaled by blocks
};

/// One value of `compute`: a plain format, or one that only factors have: tf32; bf16 in one, two or three
/// parts with f32 elsewhere; 8- and 4-bit formats with scales, in Linear ops, with bf16 elsewhere
/// (fp8-hybrid-f16: f16).
class Compute {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): a number format is a way to compute
  Compute(Scalar s);
  /// The one called `text` ("bf16", "bf16x3", "mxfp4", "bfloat16" …); none where there is none.
  static std::optional<Compute> parse(std::string_view text);
  static std::span<const ComputeTraits> all();

  const ComputeTraits* operator->() const { return traits_; }
  friend bool operator==(const Compute&, const Compute&) = default;

 private:
  explicit Compute(const ComputeTraits& traits) : traits_(&traits) {}
  const ComputeTraits* traits_;
};

}  // namespace mantissa::precision
