// What of a program is not as usual: bits that depend on more than config, data and seed, and arithmetic that
// own code imitates.
#pragma once

#include <string>
#include <vector>

#include "mantissa/plan/program.h"

namespace mantissa::plan {

/// Why bits depend on the split into micro-batches (docs/numerics.md, "Reproducibility"), one sentence each;
/// empty where they do not.
std::vector<std::string> split_exceptions(const Program& program);

/// Roundings that no format's own hardware does, each with the first of its uses: "sums rounded to f16 after
/// every 8 terms: lm_head log_prob (policy line)".
struct Imitation {
  std::string what, use;
  bool sums = false;  // of sums
};
std::vector<Imitation> imitations(const Program& program);

}  // namespace mantissa::plan
