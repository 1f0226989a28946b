// The generation of a rollout's responses inside the trainer, with the weights in training.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/engine/plan/program.h"
#include "mantissa/engine/runtime/arena.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/engine/runtime/session.h"
#include "mantissa/generate/rollout/generate.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/data/prompt_rows.h"
#include "mantissa/setup/weights/model_files.h"

namespace mantissa::rl {

/// Returns the policy under which responses are sampled: rl.rollout_precision, or that of training. Its
/// masters are those of training.
precision::Policy sampling_policy(const config::RunConfig& config, std::int64_t step = 0);

/// Returns the program that samples up to as many sequences at once as a rollout has responses, or fewer if
/// their keys and values would take more than a quarter of the machine's memory. The number changes no bit.
/// `step` is counted from 0.
std::shared_ptr<const plan::Program> compile_sampling(const config::RunConfig& config,
                                                      const model::ModelConfig& model,
                                                      const runtime::Device& device, std::int64_t step = 0);

class Sampler {
 public:
  /// `ends`: the ids that end a response. So do the texts with which the template of `prompts` ends turns.
  Sampler(const config::RunConfig& config, const model::ModelConfig& model,
          std::shared_ptr<const data::PromptSet> prompts, std::vector<std::int32_t> ends,
          const runtime::Device& device);

  /// Compiles the program for the part of the run that begins with `step`, counted from 0.
  void begin_part(std::int64_t step);
  const plan::Program& program() const { return *program_; }
  std::shared_ptr<const plan::Program> shared_program() const { return program_; }
  /// Sets the weights and the memory; null releases them.
  void bind(std::shared_ptr<runtime::WeightSet> weights, std::shared_ptr<runtime::Arena> arena);

  /// Lets ranks share the requests of respond(), which all of them then call alike.
  void share(comm::Communicator& ranks) { ranks_ = &ranks; }

  /// Continues each prompt, with the temperature and top_p of [rl], or with the most likely tokens if
  /// `greedy`. Null if a stop came first. Throws RunStopped if logits are not finite; `name_of` tells what a
  /// request asks for, such as "step 3: response 2 of 8 to prompts.jsonl:17".
  std::optional<std::vector<rollout::Generation>> respond(
      std::span<const rollout::Request> requests, bool greedy,
      const std::function<std::string(std::size_t)>& name_of, const std::stop_token& stop);
  /// Returns the ids that end a response.
  std::span<const std::int32_t> ends() const { return ends_; }

 private:
  /// Does the same for the requests of this rank; `first` is the number of the first one.
  std::optional<std::vector<rollout::Generation>> respond_here(
      std::span<const rollout::Request> requests, std::size_t first, bool greedy,
      const std::function<std::string(std::size_t)>& name_of, const std::stop_token& stop);

  const config::RunConfig config_;
  model::ModelConfig model_;
  std::shared_ptr<const data::PromptSet> prompts_;
  std::vector<std::int32_t> ends_;
  const runtime::Device& device_;
  std::shared_ptr<const plan::Program> program_;
  std::optional<runtime::Session> session_;
  comm::Communicator* ranks_ = nullptr;  // null: this one alone
};

}  // namespace mantissa::rl
