// The programs of forward passes over whole rows: evaluation, comparisons of models, and traces.
#pragma once

#include <cstdint>
#include <memory>

#include "mantissa/engine/model/config.h"
#include "mantissa/engine/plan/program.h"
#include "mantissa/engine/runtime/device.h"

namespace mantissa::programs {

/// Return the programs of the log-probabilities, or logits, of one row of up to `length` tokens at a time.
std::shared_ptr<const plan::Program> compile_row_log_probs(const model::ModelConfig& config,
                                                           const precision::Policy& policy,
                                                           std::int64_t length,
                                                           const runtime::Device& device);
std::shared_ptr<const plan::Program> compile_row_logits(const model::ModelConfig& config,
                                                        const precision::Policy& policy, std::int64_t length,
                                                        const runtime::Device& device);

/// The capacity of a program for several rows at once, in all: `tokens` tokens, of which `rows` have logits.
struct SelectedSizes {
  std::int64_t tokens = 0;
  std::int64_t longest = 0;  // tokens of one row
  std::int64_t rows = 0;
};
/// Returns the program of the logits of selected tokens.
std::shared_ptr<const plan::Program> compile_selected_logits(const model::ModelConfig& config,
                                                             const precision::Policy& policy,
                                                             const SelectedSizes& sizes,
                                                             const runtime::Device& device);

/// Returns the program of the scores of a reward model, for micro-batches of up to `tokens` tokens in rows of
/// up to `length`. The score after a token is its output "value".
std::shared_ptr<const plan::Program> compile_scores(const model::ModelConfig& config,
                                                    const precision::Policy& policy, std::int64_t tokens,
                                                    std::int64_t length, const runtime::Device& device);

/// What a trace needs of its program.
struct TraceNeeds {
  bool gradients = false;
  bool keep_values = false;  // all results are stored and kept: nothing is folded or overwritten
  bool fold = true, fuse = true;
};
/// Returns the program of a trace of rows of `length` tokens, one row at a time.
std::shared_ptr<const plan::Program> compile_trace(const model::ModelConfig& config,
                                                   const precision::Policy& policy, std::int64_t length,
                                                   const TraceNeeds& needs, const runtime::Device& device);

}  // namespace mantissa::programs
