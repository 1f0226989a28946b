// The formats in which frozen weights can be held.
#pragma once

#include <optional>
#include <string_view>

#include "mantissa/core/numeric/format.h"
#include "mantissa/core/numeric/quants.h"

namespace mantissa {

inline constexpr QuantFormat kFrozenFormats[] = {QuantFormat::int8, QuantFormat::nf4,
                                                 QuantFormat::nf4_double};

/// Returns the one of kFrozenFormats with this name, such as "nf4-double", or null.
constexpr std::optional<QuantFormat> parse_frozen_format(std::string_view name) {
  for (const QuantFormat f : kFrozenFormats) {
    if (traits(f).name == name) return f;
  }
  return std::nullopt;
}

/// Returns the plain format of a base with this name, f32, bf16 or f16, or null.
constexpr std::optional<Scalar> parse_plain_base(std::string_view text) {
  for (const Scalar s : {Scalar::f32, Scalar::bf16, Scalar::f16}) {
    if (name(s) == text) return s;
  }
  return std::nullopt;
}

}  // namespace mantissa
