// Passes of other programs in the steps of a run, such as the forward pass of a reference model.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "mantissa/engine/plan/program.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/forecast/forecast.h"

namespace mantissa::forecast {

struct OtherPass {
  std::shared_ptr<const plan::Program> program;
  std::size_t weights = 0;  // bytes that it reads, besides the weights in training
  double runs = 1;          // over all rows, in an optimizer step; not of decoding
  double generated = 0;     // tokens that a decoding program generates in an optimizer step
  std::string name = {};    // for people: "the reference"
};

/// Returns the bytes of code and small allocations that the passes need besides those of training: decoding
/// was measured to take 1.5 MB.
std::size_t process_bytes(std::span<const OtherPass> passes);

/// Adds the memory of the passes. They use the arena of training, of `training_arena` bytes, which may have
/// to be larger for them.
void add_memory(MemoryForecast& forecast, std::span<const OtherPass> passes, std::size_t training_arena);

/// Returns the seconds of the passes in one optimizer step. `config` has the rows of one of `ranks` ranks,
/// which also share the tokens to generate.
double forecast_seconds(std::span<const OtherPass> passes, const config::RunConfig& config,
                        const Machine& machine, int ranks = 1);

}  // namespace mantissa::forecast
