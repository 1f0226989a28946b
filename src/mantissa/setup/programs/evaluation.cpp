#include "mantissa/setup/programs/evaluation.h"

#include "mantissa/engine/model/graphs.h"
#include "mantissa/engine/plan/compile.h"
#include "mantissa/setup/config/run_config.h"

namespace mantissa::programs {
namespace {

/// Returns the options of one row of up to `length` tokens at a time.
plan::CompileOptions row_options(const model::ModelConfig& config, std::int64_t length) {
  plan::CompileOptions options;
  options.quantized = model::held_in_blocks(config);
  options.longest_row = options.longest_leaf = length;
  options.chunk_tokens = config::BatchSection{}.chunk_tokens;
  return options;
}

}  // namespace

std::shared_ptr<const plan::Program> compile_row_log_probs(const model::ModelConfig& config,
                                                           const precision::Policy& policy,
                                                           std::int64_t length,
                                                           const runtime::Device& device) {
  return runtime::compile(model::build_log_prob(config, length, length, false), policy,
                          row_options(config, length), device);
}

std::shared_ptr<const plan::Program> compile_row_logits(const model::ModelConfig& config,
                                                        const precision::Policy& policy, std::int64_t length,
                                                        const runtime::Device& device) {
  return runtime::compile(model::build_logits(config, length, length, false), policy,
                          row_options(config, length), device);
}

std::shared_ptr<const plan::Program> compile_selected_logits(const model::ModelConfig& config,
                                                             const precision::Policy& policy,
                                                             const SelectedSizes& sizes,
                                                             const runtime::Device& device) {
  plan::CompileOptions options;
  options.longest_row = sizes.longest;
  options.longest_leaf = sizes.tokens;
  options.quantized = model::held_in_blocks(config);
  return runtime::compile(model::build_selected_logits(config, sizes.tokens, sizes.longest, sizes.rows),
                          policy, options, device);
}

std::shared_ptr<const plan::Program> compile_scores(const model::ModelConfig& config,
                                                    const precision::Policy& policy, std::int64_t tokens,
                                                    std::int64_t length, const runtime::Device& device) {
  return runtime::compile(model::build_scores(config, tokens, length, false), policy,
                          row_options(config, length), device);
}

std::shared_ptr<const plan::Program> compile_trace(const model::ModelConfig& config,
                                                   const precision::Policy& policy, std::int64_t length,
                                                   const TraceNeeds& needs, const runtime::Device& device) {
  plan::CompileOptions options;
  options.longest_row = options.longest_leaf = length;
  options.quantized = model::held_in_blocks(config);
  // The bits are the same.
  options.keep_values = needs.keep_values;
  options.fold = needs.fold && !needs.keep_values;
  options.fuse = needs.fuse && !needs.keep_values;
  return runtime::compile(model::build_logits(config, length, length, needs.gradients), policy, options,
                          device);
}

}  // namespace mantissa::programs
