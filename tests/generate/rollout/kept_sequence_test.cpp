// A sequence over several calls: equal bits with and without its cache, also when the cache grows.
#include "mantissa/generate/rollout/kept_sequence.h"
#include "mantissa/setup/programs/decoding.h"

#include <gtest/gtest.h>

#include "engine/runtime/device.h"
#include "engine/runtime/program.h"

namespace mantissa::rollout {
namespace {

using mantissa::testing::best_device;

const precision::Policy kPlain = precision::Policy::parse("32-true");

weights::ModelSource llama(const nlohmann::json& more) {
  const model::ModelConfig config = mantissa::testing::tiny_llama(false, 29, more);
  const auto program = programs::compile_decode(config, kPlain, 8, best_device());
  runtime::WeightSet weights(*program, best_device());
  weights.initialize(7);
  auto saved = std::make_shared<weights::SavedModel>(weights::save_to_memory(weights, config, kPlain));
  auto tensors = std::make_shared<io::MemoryTensors>();
  for (const weights::SavedTensor& t : saved->tensors)
    tensors->tensors.push_back({t.name, t.dtype, t.shape, t.bytes});
  tensors->keep = saved;
  return weights::model_in_memory(saved->config_json, tensors);
}

/// Extends one sequence three times by `lengths` new prompt tokens, and returns the tokens kept each time.
std::vector<std::int64_t> extend_by(const weights::ModelSource& source,
                                    const std::vector<std::int64_t>& lengths) {
  KeptSequence kept(source, kPlain, best_device());
  GenerateOptions options;
  options.max_new_tokens = 5;
  std::vector<std::int32_t> prompt;
  std::vector<std::int64_t> all;
  for (const std::int64_t length : lengths) {
    for (std::int64_t i = 0; i < length; ++i) prompt.push_back(static_cast<std::int32_t>((7 * i + 3) % 29));
    const Continuation next = kept.extend(prompt, options);
    KeptSequence fresh(source, kPlain, best_device());
    const Continuation alone = fresh.extend(prompt, options);
    EXPECT_EQ(next.generation.ids, alone.generation.ids);
    EXPECT_EQ(next.generation.log_probs, alone.generation.log_probs);
    all.push_back(next.kept);
    prompt.insert(prompt.end(), next.generation.ids.begin(), next.generation.ids.end());
  }
  return all;
}

TEST(KeptSequence, FeedsOnlyNewTokensUntilTheCacheGrows) {
  const weights::ModelSource source = llama({{"max_position_embeddings", 4096}});
  // 10 + 5 tokens, of which the last was not fed; the third prompt needs a larger cache; the fourth does not.
  EXPECT_EQ(extend_by(source, {10, 20, 1000, 3}), (std::vector<std::int64_t>{0, 14, 0, 1044}));
}

TEST(KeptSequence, KeepsNothingIfValuesDependOnTheLength) {
  const weights::ModelSource source =
      llama({{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}}, {"max_position_embeddings", 8}});
  EXPECT_EQ(extend_by(source, {10, 20}), (std::vector<std::int64_t>{0, 0}));
}

TEST(KeptSequence, SamePromptFeedsItsLastToken) {
  KeptSequence kept(llama({{"max_position_embeddings", 64}}), kPlain, best_device());
  GenerateOptions options;
  options.max_new_tokens = 4;
  const std::vector<std::int32_t> prompt = {3, 17, 28};
  const Continuation first = kept.extend(prompt, options), again = kept.extend(prompt, options);
  EXPECT_EQ(again.kept, 2);
  EXPECT_EQ(first.generation.log_probs, again.generation.log_probs);
}

}  // namespace
}  // namespace mantissa::rollout
