#include "mantissa/setup/programs/decoding.h"

#include <algorithm>

#include "mantissa/engine/model/graphs.h"
#include "mantissa/engine/plan/compile.h"

namespace mantissa::programs {
namespace {

/// Largest number of prompt tokens in one run, which bounds the memory of a long prompt.
constexpr std::int64_t kPromptChunk = 512;

}  // namespace

std::shared_ptr<const plan::Program> compile_decode(const model::ModelConfig& config,
                                                    const precision::Policy& policy, std::int64_t capacity,
                                                    const runtime::Device& device, std::int64_t streams) {
  const std::int64_t tokens = std::max(std::min(capacity, kPromptChunk), streams);
  plan::CompileOptions options;
  options.longest_row = capacity;
  options.longest_leaf = tokens;
  options.quantized = model::held_in_blocks(config);
  return runtime::compile(model::build_decode(config, tokens, streams, capacity), policy, options, device);
}

}  // namespace mantissa::programs
