// Exceptions of a program: bits that depend on more than config, data and seed, and simulated arithmetic.
#pragma once

#include <string>
#include <vector>

#include "mantissa/engine/plan/program.h"

namespace mantissa::plan {

/// Returns true if a scale of activations comes from the values of its pass.
bool scales_by_batch(const Program& program);

/// Returns the reasons why bits depend on the split into micro-batches (docs/numerics.md, "Reproducibility"),
/// one sentence each, or none.
std::vector<std::string> split_exceptions(const Program& program);

/// Returns the roundings that no hardware format provides, each with its first use: "sums rounded to f16
/// after every 8 terms: lm_head log_prob (policy line)".
struct Imitation {
  std::string what, use;
  bool sums = false;  // a rounding of sums
};
std::vector<Imitation> imitations(const Program& program);

}  // namespace mantissa::plan
