// Continuations by a model in memory: what each prompt gives may not depend on the others.
#include "mantissa/generate/rollout/complete.h"

#include <gtest/gtest.h>

#include "engine/runtime/device.h"
#include "engine/runtime/program.h"
#include "mantissa/setup/programs/decoding.h"
#include "mantissa/setup/weights/model_files.h"

namespace mantissa::rollout {
namespace {

using mantissa::testing::best_device;

const precision::Policy kPolicy = precision::Policy::parse("32-true");

/// A Llama trained for 8 positions whose angles depend on the length of longer sequences.
weights::ModelSource dynamic_llama() {
  const model::ModelConfig config = mantissa::testing::tiny_llama(
      false, 29,
      {{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}}, {"max_position_embeddings", 8}});
  const auto program = programs::compile_decode(config, kPolicy, 8, best_device());
  runtime::WeightSet weights(*program, best_device());
  weights.initialize(7);
  auto saved = std::make_shared<weights::SavedModel>(weights::save_to_memory(weights, config, kPolicy));
  auto tensors = std::make_shared<io::MemoryTensors>();
  for (const weights::SavedTensor& t : saved->tensors)
    tensors->tensors.push_back({t.name, t.dtype, t.shape, t.bytes});
  tensors->keep = saved;
  return weights::model_in_memory(saved->config_json, tensors);
}

TEST(Completion, OfOnePromptDoesNotDependOnTheLengthOfOthers) {
  const weights::ModelSource source = dynamic_llama();
  const std::vector<Request> requests = {{{3, 17, 28}, 0}, {{1, 2, 3, 4, 5, 6, 7, 8, 9}, 0}, {{5, 5, 1}, 1}};
  GenerateOptions options;
  options.max_new_tokens = 12;
  std::vector<std::vector<std::int32_t>> told(requests.size());
  options.on_token = [&](std::size_t r, std::int32_t id, double) {
    told[r].push_back(id);
    return true;
  };
  const std::vector<Generation> together = complete(source, kPolicy, requests, options, 2, best_device());
  ASSERT_EQ(together.size(), requests.size());
  options.on_token = nullptr;
  for (std::size_t r = 0; r < requests.size(); ++r) {
    const auto alone =
        complete(source, kPolicy, std::span(requests).subspan(r, 1), options, 1, best_device());
    ASSERT_EQ(together[r].ids.size(), 12U);
    EXPECT_EQ(together[r].ids, alone[0].ids);
    EXPECT_EQ(together[r].log_probs, alone[0].log_probs);
    EXPECT_EQ(told[r], together[r].ids);
  }
}

}  // namespace
}  // namespace mantissa::rollout
