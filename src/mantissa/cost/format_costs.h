// What products, conversions and updates cost on this machine in every format that a policy can name.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "mantissa/numeric/factor.h"
#include "mantissa/numeric/scaled.h"
#include "mantissa/runtime/device.h"

namespace mantissa::cost {

/// One format: how its factors are stored and multiplied, and the fastest of some runs of each kind of work.
struct FormatCost {
  std::string_view name;
  Scalar stored = Scalar::f32;
  int parts = 1;                           // each factor is a sum of so many values of `stored`
  std::optional<BlockFormat> blocks = {};  // with scales of blocks
  double product = 0;     // flop/s of a square product, what the caller asked for counted once
  double conversion = 0;  // elements/s from f32 to what is stored; of parts, made while multiplied: 0
};

/// Elements/s of AdamW's sweep over weights and moments.
struct UpdateCost {
  double f32 = 0, bf16_stochastic = 0;
};

struct Costs {
  std::vector<FormatCost> formats;
  UpdateCost update;

  /// `name` is one of the formats'.
  const FormatCost& of(std::string_view name) const;
};

/// Takes about a second: round by round over all formats, so that what else the machine does falls on all
/// alike.
Costs measure_costs(const runtime::Device& device);

}  // namespace mantissa::cost
