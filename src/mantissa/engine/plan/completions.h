// When the backward phase completes each gradient, so that it can leave for other ranks.
#pragma once

#include <cstddef>
#include <vector>

#include "mantissa/engine/plan/program.h"

namespace mantissa::plan {

struct Completion {
  std::size_t slot = 0;
  std::size_t gradient = 0;  // its number among the slots that have one
  std::size_t written = 0;   // the last step that writes it
  std::size_t after = 0;     // the same, or the last step of the chunked range that has it
  bool last = false;         // of a block of the model, whose gradients leave together
};

/// Returns the completions of all gradients of `program`, by `written`. They are the same on all ranks.
std::vector<Completion> completions(const Program& program);

}  // namespace mantissa::plan
